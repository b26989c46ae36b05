"""The key with which a node signs backups and what it puts into the archive."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from qm.node.config.schema import StorageSection
from qm.node.membership.birth import sealing_key
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.store.sealing import SealingError
from qm.store.signing import Signer

logger = logging.getLogger(__name__)


class ExportSigner:
    """Returns the signer once the sealing key is there, which a new member gets when it joins.

    Call it in a thread: the key may come from a command.
    """

    def __init__(
        self,
        storage: StorageSection,
        data: Path,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage, self._data = storage, data
        self._signer: Signer | None = None
        self._unsigned = metrics.counter("quorate_exports_unsigned_total")
        self._log = LimitedLog(logger, clock)

    def __call__(self) -> Signer | None:
        """Return the signer; None, with a warning, while there is no sealing key."""
        if self._signer is None:
            try:
                self._signer = Signer(sealing_key(self._storage, self._data))
            except SealingError as error:
                self._unsigned.inc()
                self._log.warning("unsigned", "this node cannot sign exports", reason=str(error))
        return self._signer

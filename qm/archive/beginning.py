"""Where the archive of a cluster begins that was not archived from its birth.

The log before is gone, so the archive begins with a whole state, and each node's ranges begin after
that. A cluster that is archived from its birth needs none, nor does an archive that has ranges.
Only policy `full` has states in the archive; with another one ranges just begin somewhere.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from qm.archive.checkpoints import (
    CHECKPOINT_NAME,
    CHECKPOINTS_FOLDER,
    CheckpointError,
    decode_checkpoint,
    is_of_folder,
)
from qm.archive.destination import Destination
from qm.archive.manifest import RANGES_FOLDER
from qm.archive.ranges import Identity

TURN_S: Final = 10.0
"""How long a node waits for each one before it to write the first checkpoint."""
NO_LIMIT_BYTES: Final = 1 << 62
"""Log that justifies a checkpoint of any size."""


class Beginning(msgspec.Struct, frozen=True):
    """What the archive begins with."""

    has_ranges: bool
    checkpoint: int | None
    """Index of the oldest checkpoint of any node."""


def find_beginning(destination: Destination, identity: Identity) -> Beginning:
    """Look what the archive of this cluster begins with. Raises DestinationError."""
    nodes = f"{identity.cluster}/{RANGES_FOLDER}"
    has_ranges = any(destination.folders(f"{nodes}/{node}") for node in destination.folders(nodes))
    folder = f"{identity.cluster}/{CHECKPOINTS_FOLDER}"
    for name in destination.folders(folder):
        data = destination.read(f"{folder}/{name}/{CHECKPOINT_NAME}")
        if data is None:
            continue  # still being written, or broken off
        try:
            checkpoint = decode_checkpoint(data)
        except CheckpointError:
            continue
        if is_of_folder(checkpoint, f"{folder}/{name}"):
            return Beginning(has_ranges, checkpoint.index)
    return Beginning(has_ranges, None)


class BeginningTurns:
    """Which node writes the first checkpoint: one after the other, unless one before was faster."""

    def __init__(self, now: Callable[[], float], turn: Callable[[], int]) -> None:
        """`now`: seconds, monotonic; `turn`: how many members go before this node."""
        self._now = now
        self._turn = turn
        self._since: float | None = None

    def is_own(self) -> bool:
        """Whether this node has waited for all before it; the first call begins to wait."""
        if self._since is None:
            self._since = self._now()
        return self._now() - self._since >= self._turn() * TURN_S

"""How much of what may be remembered of other queue managers is used up, for metrics.

There may be very many addresses: each call reads a page of them, and the fullest of the last whole
round is shown until the next one has found a fuller one.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from qm.model.queries import View, list_address_uses
from qm.model.values.limits import (
    SOURCES_MAX,
    SOURCES_PER_ADDRESS_MAX,
    STREAMS_PER_ADDRESS_MAX,
)
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics

logger = logging.getLogger(__name__)

WARN_FROM_RATIO: Final = 0.8
PAGE_ROWS: Final = 512
_ALL, _SOURCES, _STREAMS = "sources", "sources_per_address", "streams_per_address"


class PeerQuotas:
    """Sets `quorate_peer_quota_ratio`."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        self._gauge = metrics.gauge("quorate_peer_quota_ratio")
        self._lines = LimitedLog(logger, clock)
        self._after = ""
        self._fullest: dict[str, float] = {}
        """Of the present round."""
        self._shown: dict[str, float] = {}
        """Of the last one."""

    def refresh(self, view: View) -> None:
        """Read the next page, and set the gauges."""
        page = list_address_uses(view, after=self._after, limit=PAGE_ROWS)
        for use in page.items:
            self._see(_SOURCES, use.source_count / SOURCES_PER_ADDRESS_MAX, use.address)
            self._see(_STREAMS, use.stream_count / STREAMS_PER_ADDRESS_MAX, use.address)
        self._after = page.next or ""
        if page.next is None:
            self._shown, self._fullest = self._fullest, {}
        for quota in (_SOURCES, _STREAMS):
            ratio = max(self._shown.get(quota, 0.0), self._fullest.get(quota, 0.0))
            self._gauge.labels(quota=quota).set(ratio)
        self._gauge.labels(quota=_ALL).set(view.counters().source_count / SOURCES_MAX)

    def _see(self, quota: str, ratio: float, address: str) -> None:
        self._fullest[quota] = max(self._fullest.get(quota, 0.0), ratio)
        if ratio >= WARN_FROM_RATIO:
            self._lines.warning(
                f"{quota} {address}",
                "so much is remembered because of one address that new queue managers, or new"
                " destinations, will be refused there; `qm peer list --address` shows them",
                quota=quota,
                address=address,
                ratio=round(ratio, 3),
            )

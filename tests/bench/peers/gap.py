"""How long confirmed publishing stops when something happens to a queue's leader."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

PUBLISH_EVERY_S: Final = 0.005
QUIET_S: Final = 1.0
"""Of publishing before the blow."""
AFTER_S: Final = 2.0
"""A confirmation that comes this long after the blow ends the round: what comes at once may have
been on its way.
"""
GAP_WAIT_S: Final = 60.0


def longest_gap_ms(
    publish: Callable[[], None],
    confirmations: Callable[[float], int],
    strike: Callable[[], None],
) -> float:
    """Publish one message after the other, strike, and continue until confirmations come again.

    `confirmations` waits for at most this many seconds and returns how many came. Messages are
    outstanding all the time. Raises TimeoutError.
    """
    start = published_at = time.perf_counter()
    confirmed_at: list[float] = []
    struck_at: float | None = None
    while struck_at is None or confirmed_at[-1] < struck_at + AFTER_S:
        now = time.perf_counter()
        if now - start > GAP_WAIT_S:
            raise TimeoutError(f"nothing is confirmed any more after {GAP_WAIT_S:.0f} s")
        if now - published_at >= PUBLISH_EVERY_S:
            publish()
            published_at = now
        if confirmations(PUBLISH_EVERY_S):
            confirmed_at.append(time.perf_counter())
        if struck_at is None and confirmed_at and now - start > QUIET_S:
            strike()
            struck_at = now
    gaps = pairwise(confirmed_at)
    return max(end - begin for begin, end in gaps if end > struck_at) * 1e3

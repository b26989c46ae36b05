"""Ticks of a monotonic clock, counted in whole milliseconds."""

from typing import Final

from raft.core.core import TICK_MS


class TickCount:
    """Counts the ticks that have passed, and tells when the next ones are due.

    Seconds are floats, so sums of 0.005 s drift in one direction as long as the clock stays between
    two powers of two: a timer set for the next tick would then fire before it, find no tick, and
    be set for "now" again and again. Milliseconds since the start are integers.
    """

    __slots__ = ("_start_ms", "count")

    def __init__(self, now_s: float) -> None:
        self._start_ms: Final = round(now_s * 1000)
        self.count = 0
        """Ticks counted so far."""

    def take(self, now_s: float) -> int:
        """Return how many ticks have passed since the last call; not negative."""
        passed = (round(now_s * 1000) - self._start_ms) // TICK_MS - self.count
        if passed <= 0:
            return 0
        self.count += passed
        return passed

    def due_s(self, ticks: int) -> float:
        """Return the time at which `ticks` more will have passed."""
        return (self._start_ms + (self.count + ticks) * TICK_MS) / 1000

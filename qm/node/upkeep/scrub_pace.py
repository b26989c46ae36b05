"""How fast a node reads its records and bodies back: everything that lives once in a period."""

from typing import Final

import msgspec

WANTED_SHARE: Final = 0.8
"""A round that is not held up ends in this share of the period; the rest is for busy hours."""
STEP_MIN_BYTES: Final = 64 << 10
STEP_MAX_BYTES: Final = 8 << 20
"""Of one step, so that no step delays the log's disk; at a step in a second that is 4.8 TB a week.
"""
ASKED_STEP_BYTES: Final = 64 << 20
"""Of a round that somebody waits for."""


class Pace(msgspec.Struct):
    """The present round; it is written to the disk and goes on after a restart."""

    elapsed_s: float = 0.0
    """Seconds that this node ran since the round began."""
    done_bytes: int = 0

    def due_bytes(self, passed_s: float, live_bytes: int, period_s: float, *, is_busy: bool) -> int:
        """Return how many bytes to read now; 0 to rest.

        `passed_s`: since the last call. A busy node rests until the round would last longer than
        the period.
        """
        self.elapsed_s += passed_s
        span_s = period_s if is_busy else period_s * WANTED_SHARE
        if self.elapsed_s >= span_s:
            return STEP_MAX_BYTES
        due = int(live_bytes * self.elapsed_s / span_s) - self.done_bytes
        if due < min(STEP_MIN_BYTES, live_bytes - self.done_bytes):
            return 0
        return max(0, min(due, STEP_MAX_BYTES))

"""How many entries are applied at once, so that the event loop is not held up for long.

What an entry costs the state machine differs by two orders of magnitude. State depends on the
sequence of entries alone, so each replica may cut it as its own clock says.
"""

from typing import Final

APPLY_SPAN_S: Final = 0.04
"""What applying may take before the rest of the loop gets its turn; one entry may take longer."""


class ApplyPace:
    """Sans I/O: its owner measures."""

    def __init__(self, entries_max: int) -> None:
        """`entries_max`: at any pace."""
        self.entries = self._entries_max = entries_max
        """To be applied next, at most."""
        self._applied = 0
        self._span_s = 0.0

    def applied(self, entries: int, span_s: float) -> None:
        """So many entries were applied in one go."""
        self._applied, self._span_s = entries, span_s
        if span_s > APPLY_SPAN_S:
            self._fit()
        elif 2 * span_s < APPLY_SPAN_S and entries >= self.entries:
            self.entries = min(2 * self.entries, self._entries_max)

    def settled(self, span_s: float) -> None:
        """What these entries had left for later took so much longer."""
        self._span_s += span_s
        if self._applied and self._span_s > APPLY_SPAN_S:
            self._fit()

    def _fit(self) -> None:
        fitting = int(self._applied * APPLY_SPAN_S / self._span_s)
        self.entries = max(1, min(fitting, self._entries_max))

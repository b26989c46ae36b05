"""What each acknowledgement depended on when it left, for the audit (DESIGN section 5)."""

from collections import deque

import msgspec

from qm.edge.limits import ACK_MARKS_MAX_COUNT


class AckMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One acknowledgement that was handed to the transport."""

    session: int
    """The edge's number of the session."""
    acknowledged: int
    """Position of the last message that it covers."""
    depends_on: int
    """The highest log index that put a verdict on one of those messages."""
    commit_index: int
    """What the edge knew to be committed at that moment."""


class AckMarks:
    """Marks that were not drained yet, bounded in number; the oldest are dropped first."""

    def __init__(self) -> None:
        self._marks: deque[AckMark] = deque(maxlen=ACK_MARKS_MAX_COUNT)
        self.dropped = 0
        """Number of marks that were dropped since the process began."""

    def add(self, mark: AckMark) -> None:
        """Keep a mark."""
        if len(self._marks) == ACK_MARKS_MAX_COUNT:
            self.dropped += 1
        self._marks.append(mark)

    def drain(self) -> list[AckMark]:
        """Return the marks, oldest first, and forget them."""
        marks = list(self._marks)
        self._marks.clear()
        return marks

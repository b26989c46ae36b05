"""A cursor over a queue, as a LookupIdentifier and a side of it: it survives any node.

Before first use it is before the head. It is at a message that was peeked at, and after one that
was received; the end of the queue is after the last message (AC-A39 names its states).
"""

from qm.client.errors import MqError
from qm.client.mqac.manager import FIRST, Seek, Selection
from qm.wire.codes import ErrorCode


class Cursor:
    """Where one MSMQQueue object continues reading."""

    __slots__ = ("_anchor", "_is_at", "_is_past_end")

    def __init__(self) -> None:
        self._anchor = 0
        self._is_at = False
        self._is_past_end = False

    @property
    def place(self) -> tuple[int, bool, bool]:
        """Where it is, for comparisons."""
        return self._anchor, self._is_at, self._is_past_end

    def from_here(self) -> tuple[Selection, ...]:
        """Return the selections that find the first message at the cursor or after it, in order;
        the last one waits.
        """
        if not self._anchor:
            return (FIRST,)
        after = Selection(Seek.AFTER, self._anchor)
        return (Selection(Seek.EXACT, self._anchor), after) if self._is_at else (after,)

    def next_selection(self) -> Selection:
        """Return the selection of the message after the cursor's.

        Raises MQ_ERROR_ILLEGAL_CURSOR_ACTION for a cursor that was never used or is past the end.
        """
        if not self._anchor or self._is_past_end:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION)
        return Selection(Seek.AFTER, self._anchor)

    def advanced(self) -> bool:
        """Move the cursor past its message, without a peek at the next one; False if it was never
        used or is past the end.
        """
        if not self._anchor or self._is_past_end:
            return False
        self._is_at = False
        return True

    def seen(self, lookup_identifier: int) -> None:
        """Move the cursor to a message that was peeked at."""
        self._anchor, self._is_at, self._is_past_end = lookup_identifier, True, False

    def taken(self, lookup_identifier: int) -> None:
        """Move the cursor past a message that was received."""
        self._anchor, self._is_at, self._is_past_end = lookup_identifier, False, False

    def passed_end(self) -> None:
        """Record that there was nothing after the cursor's message."""
        self._is_at, self._is_past_end = False, True

"""A cursor over a queue, as a LookupIdentifier and a side: it outlives any node.

Before first use it is before the head. It is at a message that was peeked at, and behind one that
was received; the end of the queue is behind the last message.
"""

from qm.client.errors import MqError
from qm.client.queue import after, exactly
from qm.client.reading import FIRST, Selection
from qm.wire.codes import ErrorCode


class Cursor:
    """Where one MSMQQueue object reads on."""

    __slots__ = ("_anchor", "_is_at", "_is_past_end")

    def __init__(self) -> None:
        self._anchor = 0
        self._is_at = False
        self._is_past_end = False

    @property
    def is_at_message(self) -> bool:
        """Whether it is at a message, which somebody may have taken since."""
        return self._is_at

    def selection(self) -> Selection:
        """Return what is at the cursor, or comes first behind it."""
        if self._is_at:
            return exactly(self._anchor)
        return after(self._anchor) if self._anchor else FIRST

    def next_selection(self) -> Selection:
        """Return what comes behind the cursor's message.

        Raises MQ_ERROR_ILLEGAL_CURSOR_ACTION of a cursor that was never used or is past the end.
        """
        if not self._anchor or self._is_past_end:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION)
        return after(self._anchor)

    def seen(self, lookup_identifier: int) -> None:
        """A message was peeked at: the cursor is at it."""
        self._anchor, self._is_at, self._is_past_end = lookup_identifier, True, False

    def taken(self, lookup_identifier: int) -> None:
        """A message was received: the cursor is behind it."""
        self._anchor, self._is_at, self._is_past_end = lookup_identifier, False, False

    def passed_to_next(self) -> None:
        """Its message is left behind, without a look at the next one."""
        self._is_at = False

    def passed_end(self) -> None:
        """There was nothing behind the cursor's message."""
        self._is_at, self._is_past_end = False, True

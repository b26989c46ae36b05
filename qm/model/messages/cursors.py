"""Cursors ([MS-MQDMPR] 3.2): positions in a queue that belong to one node's open handle.

Volatile: a cursor exists on the node that accepted the call and survives a change of leader. It
holds keys, never references to positions, so it stays valid when its position is gone. Peeks are
answered from the state; a dequeue proposes a `Selector` and gets the outcome from apply.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from qm.model.values.commands import Selector, SelectorKind

START: Final = -1
"""Precedes every key: where a new cursor starts."""


class CursorState(IntEnum):
    """3.2.1.2 CursorState."""

    UNREAD = 0
    READ = 1
    WAIT_PEEK = 2
    WAIT_RECEIVE = 3


class CursorAnswer(IntEnum):
    """rStatus of the events of 3.2.7."""

    SUCCEEDED = 0
    WAITING = 1
    ALREADY_RECEIVED = 2
    NOT_FOUND = 3
    ILLEGAL = 4
    """IllegalCursorAction: MQ_ERROR_ILLEGAL_CURSOR_ACTION."""


Seek = Callable[[int], int | None]
"""Returns the first key after the given one at which a seek stops, or None."""
IsAvailable = Callable[[int], bool]


class Cursor:
    """One cursor; `handle` is unique over all cursors of the queue manager."""

    __slots__ = ("_resume", "handle", "key", "state")

    def __init__(self, handle: int) -> None:
        """3.2.7.1 Initialize: at Start, unread."""
        self.handle = handle
        self.key = START
        """Key of the current message; in Unread, the next one after it is meant."""
        self.state = CursorState.UNREAD
        self._resume = CursorState.UNREAD

    def get_message_for_peek(self, seek: Seek, is_available: IsAvailable) -> CursorAnswer:
        """3.2.7.2: the current message; `key` is its place on success."""
        if self.state is CursorState.UNREAD:
            return self._peek_forward(seek)
        if self.state is CursorState.READ:
            is_there = is_available(self.key)
            return CursorAnswer.SUCCEEDED if is_there else CursorAnswer.ALREADY_RECEIVED
        return CursorAnswer.ILLEGAL  # a wait is under way (DM-A18)

    def get_next_message_for_peek(self, seek: Seek) -> CursorAnswer:
        """3.2.7.3: the message after the current one."""
        if self.state is not CursorState.READ:
            return CursorAnswer.ILLEGAL
        return self._peek_forward(seek)

    def _peek_forward(self, seek: Seek) -> CursorAnswer:
        found = seek(self.key)
        if found is None:
            self._resume, self.state = self.state, CursorState.WAIT_PEEK
            return CursorAnswer.WAITING
        self.key, self.state = found, CursorState.READ
        return CursorAnswer.SUCCEEDED

    def selector_for_dequeue(self) -> Selector | None:
        """3.2.7.4, first half: what to propose; None during a wait."""
        if self.state is CursorState.UNREAD:
            if self.key == START:
                return Selector(SelectorKind.FIRST)
            return Selector(SelectorKind.AFTER, self.key)
        if self.state is CursorState.READ:
            return Selector(SelectorKind.EXACT, self.key)
        return None

    def dequeued(self, found: int | None, *, no_wait: bool) -> CursorAnswer:
        """3.2.7.4, second half: apply took the message at `found`, or none."""
        if found is not None:
            self.key, self.state = found, CursorState.UNREAD
            return CursorAnswer.SUCCEEDED
        if self.state is CursorState.READ:
            return CursorAnswer.ALREADY_RECEIVED
        if no_wait:
            return CursorAnswer.NOT_FOUND
        self._resume, self.state = self.state, CursorState.WAIT_RECEIVE
        return CursorAnswer.WAITING

    def message_available(self, key: int) -> None:
        """3.2.7.5: a wait ended with the message at `key`."""
        if self.state is CursorState.WAIT_PEEK:
            self.key, self.state = key, CursorState.READ
        elif self.state is CursorState.WAIT_RECEIVE:
            self.key, self.state = key, CursorState.UNREAD

    def wait_time_expired(self, last_key: int) -> None:
        """3.2.7.6. `last_key`: the highest key at present.

        End must not hide later arrivals, so it means "after the last key" (DM-A17); a peek's wait
        ends where it began (DM-A18).
        """
        if self.state is CursorState.WAIT_RECEIVE:
            self.key, self.state = max(self.key, last_key), CursorState.UNREAD
        elif self.state is CursorState.WAIT_PEEK:
            self.state = self._resume

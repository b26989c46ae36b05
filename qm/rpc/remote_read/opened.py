"""An open queue of a remote reader: its cursors, its reads that wait, and what it was lent.

The table of pending requests [MS-MQRR 3.1.1.2] is `reads` and `lent`, by request number of the
client: a read waits, or its message is lent until the client accepts or returns it, closes the
queue or goes away, or the cleanup time is over.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from qm.model.messages.cursors import Cursor
from qm.rpc.remote_read.sessions import ReadSession

CURSORS_PER_QUEUE_MAX: Final = 256
READS_PER_QUEUE_MAX: Final = 1_024
CLEANUP_AFTER_S: Final = 300.0
"""From lending to return, if the client does not end its read [MS-MQRR 3.1.2.2]."""


class WaitingRead(Protocol):
    """A read that has no answer yet."""

    cursor: int
    """At which it waits; 0: at none."""

    def cancel(self) -> None:
        """End it as cancelled."""


class BegunPeek(WaitingRead):
    """A peek that does not wait yet: it learns first what is current."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.is_cancelled = False

    @override
    def cancel(self) -> None:
        self.is_cancelled = True


class Lent(msgspec.Struct):
    """A message that was lent."""

    key: int
    is_transactional: bool
    """Begun by R_StartTransactionalReceive, so that its own end ends it."""
    timer: asyncio.TimerHandle


class OpenedQueue:
    """A queue that a remote reader has open; what its context handle stands for."""

    def __init__(
        self,
        session: ReadSession,
        handle: int,
        queue_id: int,
        *,
        may_receive: bool,
        is_for_moving: bool,
        closed: Callable[["OpenedQueue"], None],
        returned: Callable[[str, int], None],
        cleanup_after_s: float = CLEANUP_AFTER_S,
    ) -> None:
        """`handle`: the replicated one. `closed`: told of a rundown. `returned`: told (cause, how
        many) of messages that went back to their queue.
        """
        self.session = session
        self.handle = handle
        self.queue_id = queue_id
        self.may_receive = may_receive
        self.is_for_moving = is_for_moving
        self.move_context = 0
        self.reads: dict[int, WaitingRead] = {}
        self.lent: dict[int, Lent] = {}
        self._cursors: dict[int, Cursor] = {}
        self._numbers = itertools.count(1)
        self._closed = closed
        self._returned = returned
        self._cleanup_after_s = cleanup_after_s
        self.is_closed = False

    # Cursors -----------------------------------------------------------------------------

    def create_cursor(self) -> int:
        """Return the number of a new cursor before the first message; 0: there are too many."""
        if len(self._cursors) >= CURSORS_PER_QUEUE_MAX:
            return 0
        number = next(self._numbers)
        self._cursors[number] = Cursor(number)
        return number

    def close_cursor(self, number: int) -> bool:
        """Close a cursor, and end what waits at it; whether there was one."""
        if self._cursors.pop(number, None) is None:
            return False
        for read in list(self.reads.values()):
            if read.cursor == number:
                read.cancel()
        return True

    def cursor(self, number: int) -> Cursor | None:
        """Return a cursor of this handle."""
        return self._cursors.get(number)

    # Lending -----------------------------------------------------------------------------

    def lend(self, request: int, key: int, *, is_transactional: bool) -> None:
        """Note that a message is lent for a request, and begin its cleanup time (RP-A31)."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._cleanup_after_s, self._clean_up, request)
        self.lent[request] = Lent(key, is_transactional, timer)

    def take_lent(self, request: int) -> Lent | None:
        """Remove and return what was lent for a request."""
        found = self.lent.pop(request, None)
        if found is not None:
            found.timer.cancel()
        return found

    def _clean_up(self, request: int) -> None:
        found = self.lent.pop(request, None)
        if found is not None:
            self.session.give_back(self.queue_id, found.key)
            self._returned("timeout", 1)

    # End ---------------------------------------------------------------------------------

    def end(self, cause: str) -> list[int]:
        """End reads that wait and close cursors; return the keys of what was lent."""
        self.is_closed = True
        for read in list(self.reads.values()):
            read.cancel()
        self._cursors.clear()
        keys = [one.key for one in self.lent.values()]
        for one in self.lent.values():
            one.timer.cancel()
        self.lent.clear()
        if keys:
            self._returned(cause, len(keys))
        return keys

    def run_down(self) -> None:
        """The client is gone: its session ends, too, which returns what was lent (RP-A42)."""
        self.end("rundown")
        self._closed(self)

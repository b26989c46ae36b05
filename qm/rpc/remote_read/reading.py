"""One read of a remote reader: from its call to its answer, without a task while it waits.

It stands in its queue's line like every reader of the cluster (`qm.api.data.waits`). When it is
called it looks, or tries to have a message lent; a try is a task that lives as long as the
proposal. Whatever ends a read while a try is under way waits for its outcome: what was lent is
answered, or goes back.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from typing_extensions import override

from qm.api.convert.outcomes import has_message
from qm.api.data.waits import Reader, Waits
from qm.api.gate.errors import MsmqError
from qm.cluster.cluster import Cluster, Unavailable
from qm.model.messages.cursors import Cursor, CursorAnswer, CursorState
from qm.model.queries import PositionInfo
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.results import RequestResult
from qm.rpc.remote_read.opened import OpenedQueue
from qm.rpc.remote_read.sessions import Failures
from qm.wire.codes import MQ_OK, ErrorCode

TIMEOUT_INFINITE_MS: Final = 0xFFFF_FFFF
TRY_AGAIN_AFTER_S: Final = 0.5
"""After a try that failed because there was no leader."""
FAILING_MAX_S: Final = 60.0
"""How long tries of one read may fail before it is answered (RP-A59)."""
_WAITING_KINDS: Final = (SelectorKind.FIRST, SelectorKind.AFTER)
_WAIT_ENDS: Final = (ErrorCode.MQ_ERROR_IO_TIMEOUT, ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
"""Statuses of a wait that found nothing."""

Found = RequestResult | PositionInfo
Look = Callable[[], tuple[int, PositionInfo | None]]
"""What a peek sees now: a status other than MQ_OK ends it."""


class Finish(Protocol):
    """Told of the end of a read."""

    def __call__(self, read: "PendingRead", status: int, found: Found | None) -> None:
        """`found`: the message, with MQ_OK alone; lent, if the read was destructive."""


async def time_when_current(
    cluster: Cluster, timeout_ms: int, is_unwanted: Callable[[], bool]
) -> int:
    """Have this node learn what is current, for a peek that may wait `timeout_ms`; return how much
    of that is left.

    Without a leader it tries again as long as it may wait, like other reads (RP-A59). Raises
    Unavailable.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    end = began + min(timeout_ms / 1000, FAILING_MAX_S)
    while True:
        try:
            await cluster.read_barrier()
            break
        except Unavailable:
            if is_unwanted() or loop.time() + TRY_AGAIN_AFTER_S >= end:
                raise
        await asyncio.sleep(TRY_AGAIN_AFTER_S)
    if timeout_ms == TIMEOUT_INFINITE_MS:
        return timeout_ms
    return max(0, timeout_ms - round(1000 * (loop.time() - began)))


class _Place(Reader):
    """A read's place in its queue's line: a call makes it try."""

    def __init__(self, read: "PendingRead", opened: OpenedQueue, *, is_destructive: bool) -> None:
        super().__init__(
            opened.session.client_id,
            opened.handle,
            0,
            principal=opened.session.who.name,
            is_destructive=is_destructive,
        )
        self._read = read

    @override
    def call(self) -> None:
        super().call()
        self._read.called()


class PendingRead:
    """A read between its call and its answer."""

    def __init__(
        self,
        opened: OpenedQueue,
        request: int,
        waits: Waits,
        selector: Callable[[], Selector | None],
        timeout_ms: int,
        finish: Finish,
        *,
        look: Look | None,
        cursor: int = 0,
        is_transactional: bool = False,
    ) -> None:
        """`selector`: what a destructive read wants now, None for a status at once. `look`: what a
        peek sees now; None for a destructive read.
        """
        self.opened = opened
        self.request = request
        self.cursor = cursor
        self.is_transactional = is_transactional
        self._waits = waits
        self._selector = selector
        self._look = look
        self._timeout_ms = timeout_ms
        self._finish = finish
        self._place = _Place(self, opened, is_destructive=look is None)
        self._is_in_line = False
        self._is_trying = False
        self._is_over = False
        self._end_with = MQ_OK
        """Status with which it ends when its try has missed."""
        self._must_return = False
        """Nobody wants its message any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._fails_since = 0.0
        """Loop time of the first try since the last that was answered; 0: none failed."""
        self._task: asyncio.Task[None] | None = None

    # Beginning ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Look for a message, and wait for one if the call wants to."""
        loop = asyncio.get_running_loop()
        waits_ms = self._timeout_ms
        if waits_ms:
            try:
                self._waits.join(self.opened.queue_id, self._place)
            except Exception:
                self._conclude(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
                raise
            self._is_in_line = True
            if waits_ms != TIMEOUT_INFINITE_MS:
                self._timer = loop.call_later(waits_ms / 1000, self._time_out)
        if self._look is None and waits_ms and not self._waits.available(self.opened.queue_id):
            return  # nothing is there; the next arrival calls
        self._place.call()
        if not self._is_in_line:
            self._try()

    def called(self) -> None:
        """Try, unless a try is under way."""
        if not self._is_in_line or self._is_trying or self._is_over:
            return
        if self._look is None and not self._place.is_closed:
            self._try()  # its proposal is to be under way before the state machine settles
        else:
            asyncio.get_running_loop().call_soon(self._try)  # it may leave the line

    def _try(self) -> None:
        if self._is_trying or self._is_over:
            return
        if self._place.is_closed:
            self._conclude(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
            return
        self._place.begin()
        if self._look is not None:
            self._peek(self._look)
            return
        self._is_trying = True
        self._task = asyncio.ensure_future(self._lend())

    def _peek(self, look: Look) -> None:
        try:
            status, found = look()
        except Unavailable:
            if self._is_in_line:
                self._place.missed()  # it is called when the state is there again
            else:
                self._conclude(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
            return
        if status or found is not None:
            self._conclude(status, found)
        else:
            self._missed()

    async def _lend(self) -> None:
        opened = self.opened
        status, found = MQ_OK, None
        selector = self._selector()
        may_wait = selector is not None and selector.kind in _WAITING_KINDS
        try:
            if selector is None:
                status = ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION
            else:
                found = await opened.session.lend(opened.handle, opened.queue_id, selector)
        except MsmqError as error:
            status = error.hresult
        except Failures:
            # Whoever waits goes on: what an unknown outcome has lent comes back to its place.
            if may_wait and self._goes_on():
                return
            status = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
        finally:
            self._is_trying = False
        self._fails_since = 0.0
        if found is not None and not has_message(found):
            status, found = found.status, None
        if found is not None:
            self._lent(found)
        elif status or not may_wait:
            self._conclude(status or ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        else:
            self._missed()

    def _goes_on(self) -> bool:
        """Try again soon after a failure; False: it has failed for too long, or need not wait."""
        loop = asyncio.get_running_loop()
        self._fails_since = self._fails_since or loop.time()
        is_wanted = self._is_in_line and not self._end_with
        if not is_wanted or loop.time() - self._fails_since > FAILING_MAX_S:
            return False
        loop.call_later(TRY_AGAIN_AFTER_S, self._place.call)
        return True

    def _lent(self, found: RequestResult) -> None:
        if self._must_return or self._end_with == ErrorCode.MQ_ERROR_OPERATION_CANCELLED:
            self.opened.session.give_back(self.opened.queue_id, found.lookup_identifier)
            self._conclude(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
        else:
            self._conclude(MQ_OK, found)

    def _missed(self) -> None:
        """Nothing was found: wait, or end."""
        if self._end_with:
            self._conclude(self._end_with)
        elif not self._is_in_line:
            self._conclude(ErrorCode.MQ_ERROR_IO_TIMEOUT)
        else:
            self._place.missed()
            if self._place.is_called:
                self.called()

    # Ending ------------------------------------------------------------------------------

    def tell(
        self, cursor: Cursor, status: int, found: Found | None, last_key: Callable[[], int]
    ) -> None:
        """Tell its cursor how it ended; that a receive has waited the cursor hears only now."""
        key = None if found is None else found.lookup_identifier
        if self._look is None:
            is_unread = cursor.state is CursorState.UNREAD
            has_waited = is_unread and self._timeout_ms > 0 and status in _WAIT_ENDS
            if cursor.dequeued(key, no_wait=not has_waited) is CursorAnswer.WAITING:
                cursor.wait_time_expired(last_key())
        elif key is not None:
            cursor.message_available(key)
        else:
            cursor.wait_time_expired(last_key())

    def _time_out(self) -> None:
        self._end(ErrorCode.MQ_ERROR_IO_TIMEOUT)

    def cancel(self) -> None:
        """End a waiting call with C00E0008, as its caller cancels it or this node stops; a message
        that a try is about to get goes back.
        """
        self._end(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)

    def abandon(self) -> None:
        """Its caller is gone."""
        self._must_return = True
        self._end(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)

    def _end(self, status: int) -> None:
        if self._is_over:
            return
        self._end_with = self._end_with or status
        if status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED:
            self._end_with = status
        if not self._is_trying:
            self._conclude(self._end_with)

    def _conclude(self, status: int, found: Found | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_in_line:
            self._is_in_line = False
            self._waits.leave(self.opened.queue_id, self._place)
        self._finish(self, status, found)


def no_cursor(selector: Selector) -> Callable[[], Selector | None]:
    """Return what a read without a cursor wants."""
    return lambda: selector


def at_cursor(cursor: Cursor) -> Callable[[], Selector | None]:
    """Return what a destructive read at a cursor wants."""
    return cursor.selector_for_dequeue

"""Messages that are accepted or returned by how the work on them ends.

A message is lent to the reader meanwhile (two-phase receive): it is accepted when the work is done,
returned to its place when it fails, and returned by the cluster when this process dies. How often
it comes back, and where it goes then, is set at the queue (docs/client.md, Poison messages).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Final, Literal, Protocol

from qm.client.errors import ClientError
from qm.client.message import ReceivedMessage
from qm.client.stream import CREDIT_MAX, Stream

logger = logging.getLogger(__name__)

PREFETCH: Final = 16
"""Messages that are lent to a reader at once, the one in work included."""
CONCURRENCY: Final = 8
GRACE_S: Final = 25.0
"""How long work in progress may take once it is to stop; less than Kubernetes and systemd give."""


class Rejected(Exception):
    """Raised by the work on a message that nobody will ever be able to handle: it is not returned
    but rejected, with dead letter and negative acknowledgment as its sender asked.
    """


class Lending(Protocol):
    """The queue that lends messages (`qm.client.queue.Queue`)."""

    @property
    def name(self) -> str:
        """Its format name."""

    def stream(
        self, credit: int = 512, *, is_two_phase: bool = False, commit_confirms: bool = False
    ) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Receive continuously."""

    async def accept(self, message: ReceivedMessage) -> None:
        """Remove a lent message."""

    async def give_back(self, message: ReceivedMessage) -> None:
        """Return a lent message to its place."""

    async def reject(self, message: ReceivedMessage) -> None:
        """Reject a lent message for good."""


async def settle(queue: Lending, message: ReceivedMessage, error: BaseException | None) -> None:
    """Accept, return or reject a lent message by how the work on it ended. Raises ClientError."""
    if error is None:
        await queue.accept(message)
    elif isinstance(error, Rejected):
        await queue.reject(message)
    else:
        await queue.give_back(message)


class Messages:
    """The messages of a queue, one after the other; made by `Queue.messages`. For one task.

    A message is accepted when the next one is asked for, or when the block is left. It is returned
    when an exception leaves the block, and rejected by `Rejected`, which ends there.
    """

    def __init__(self, queue: Lending, prefetch: int = PREFETCH) -> None:
        if not 1 <= prefetch <= CREDIT_MAX:
            raise ValueError(f"a prefetch of {prefetch} is not 1 to {CREDIT_MAX}")
        self._queue = queue
        self._opening = queue.stream(prefetch, is_two_phase=True)
        self._stream: Stream | None = None
        self._current: ReceivedMessage | None = None

    async def __aenter__(self) -> "Messages":
        self._stream = await self._opening.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        stream, self._stream = self._stream, None
        assert stream is not None
        try:
            await self._settle(error)
            for message in await stream.stop():
                await self._queue.give_back(message)
        finally:
            await self._opening.__aexit__(None, None, None)
        return isinstance(error, Rejected)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Accept the message before and return the next one, however long it takes."""
        if self._stream is None:
            raise RuntimeError(
                "messages are lent to a block: write `async with queue.messages() as messages`"
            )
        await self._settle(None)
        self._current = await anext(self._stream)
        return self._current

    async def reject(self, message: ReceivedMessage) -> None:
        """Reject the message in work; the loop goes on with the next one."""
        if message is not self._current:
            raise ValueError("only the message in work can be rejected")
        self._current = None
        await self._queue.reject(message)

    async def give_back(self, message: ReceivedMessage) -> None:
        """Return the message in work to its place; the loop goes on with the next one."""
        if message is not self._current:
            raise ValueError("only the message in work can be returned")
        self._current = None
        await self._queue.give_back(message)

    async def _settle(self, error: BaseException | None) -> None:
        message, self._current = self._current, None
        if message is not None:
            await settle(self._queue, message, error)


Work = Callable[[ReceivedMessage], Awaitable[None]]
"""Handles one message; an exception returns it, `Rejected` rejects it."""


class Runner:
    """Handles the messages of a queue, several at a time, until it is stopped.

    Order is kept with a concurrency of 1 only, as with any competing readers.
    """

    def __init__(
        self,
        queue: Lending,
        work: Work,
        *,
        concurrency: int = CONCURRENCY,
        grace_s: float = GRACE_S,
    ) -> None:
        """`grace_s`: how long work in progress may take after `stop`; it is then cancelled, and
        its messages are returned.
        """
        if not 1 <= concurrency <= CREDIT_MAX:
            raise ValueError(f"a concurrency of {concurrency} is not 1 to {CREDIT_MAX}")
        self._queue = queue
        self._work = work
        self._concurrency = concurrency
        self._grace_s = grace_s
        self._stopping = asyncio.Event()
        self._failure: ClientError | None = None
        self.handled = 0
        """Messages that were accepted."""
        self.returned = 0
        """Messages that were returned or rejected because their work failed."""

    def stop(self) -> None:
        """Take no more messages; `run` ends when work in progress has. May be a signal's handler:
        `loop.add_signal_handler(signal.SIGTERM, runner.stop)`.
        """
        self._stopping.set()

    async def run(self) -> None:
        """Handle messages until `stop`. Raises ClientError when no node answers or the queue is
        gone; messages in work are settled before.
        """
        free = asyncio.Semaphore(self._concurrency)
        stopped = asyncio.ensure_future(self._stopping.wait())
        working: set[asyncio.Task[None]] = set()
        async with self._queue.stream(self._concurrency, is_two_phase=True) as stream:
            try:
                while await self._next(stream, free, stopped, working):
                    pass
            finally:
                stopped.cancel()
                try:
                    for message in await stream.stop():
                        await self._queue.give_back(message)
                finally:
                    await self._end(working)
        if self._failure is not None:
            raise self._failure

    async def _next(
        self,
        stream: Stream,
        free: asyncio.Semaphore,
        stopped: "asyncio.Future[Literal[True]]",
        working: set[asyncio.Task[None]],
    ) -> bool:
        """Begin the work on the next message; return False when it is to stop."""
        for wait in (free.acquire, stream.__anext__):
            waiting: asyncio.Future[bool | ReceivedMessage] = asyncio.ensure_future(wait())
            await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._let_go(waiting)
                return False
            found = waiting.result()
            if isinstance(found, ReceivedMessage):
                task = asyncio.create_task(self._handle(found), name="qm-work")
                working.add(task)
                task.add_done_callback(working.discard)
                task.add_done_callback(lambda _: free.release())
        return True

    async def _let_go(self, waiting: "asyncio.Future[bool | ReceivedMessage]") -> None:
        """End a wait; a message that it met is returned."""
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait((waiting,))
        elif not waiting.cancelled() and waiting.exception() is None:
            found = waiting.result()
            if isinstance(found, ReceivedMessage):
                await self._queue.give_back(found)

    async def _handle(self, message: ReceivedMessage) -> None:
        error: BaseException | None = None
        try:
            await self._work(message)
        except (Exception, asyncio.CancelledError) as failed:
            error = failed
            if not isinstance(failed, Rejected | asyncio.CancelledError):
                logger.warning(
                    "a message of %s is returned: its handler failed",
                    self._queue.name,
                    exc_info=failed,
                )
        try:
            await settle(self._queue, message, error)
        except ClientError as failed:
            self._failure = failed
            self.stop()
        else:
            self.handled += error is None
            self.returned += error is not None

    async def _end(self, working: set[asyncio.Task[None]]) -> None:
        left = set(working)
        if left:
            _, left = await asyncio.wait(left, timeout=self._grace_s)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

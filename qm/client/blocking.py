"""The client for programs without an event loop: the same calls, each waiting for its answer.

One event loop in a separate thread makes all calls of a client; methods may be called from any
thread. A call that is interrupted (KeyboardInterrupt) is cancelled and can be repeated.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from qm.client.calls import DEADLINE_S, Method, Stubs, Tls
from qm.client.client import TRANSACTION_TIMEOUT_S, Access, Client, RecoveredSend
from qm.client.handling import CONCURRENCY, GRACE_S, PREFETCH, Messages
from qm.client.handling import Runner as AsyncRunner
from qm.client.message import Message, ReceivedMessage, Sent
from qm.client.queue import Queue, after
from qm.client.reading import FIRST, FOREVER_S, Selection
from qm.client.stream import Stream
from qm.client.transaction import Transaction

_T = TypeVar("_T")
_Q = TypeVar("_Q")
_R = TypeVar("_R")


class Runner(Protocol):
    """Runs coroutines for threads that wait."""

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result."""

    def soon(self, work: Callable[[], None]) -> None:
        """Have something done in the loop, without waiting for it."""

    def close(self) -> None:
        """Run no more."""


class LoopThread:
    """An event loop that runs in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="qm-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, work: Callable[[], None]) -> None:
        """Have something done in the loop, without waiting for it."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


class BlockingClient:
    """`qm.client.client.Client` for programs without an event loop.

    The constructor opens it; use it as a context manager.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        client_id: str = "",
        memory: Path | None = None,
    ) -> None:
        """Connect. Raises ClientError when no node answers."""
        self._thread: Runner = LoopThread()
        self._client = Client(endpoints, tls=tls, client_id=client_id, memory=memory)
        try:
            self._thread.call(self._client.open())
        except BaseException:
            self._thread.close()
            raise

    @classmethod
    def over(cls, client: Client, runner: Runner) -> "BlockingClient":
        """Return the blocking form of a client that is open, in whatever loop `runner` uses."""
        self = cls.__new__(cls)
        self._thread, self._client = runner, client
        return self

    @property
    def client(self) -> Client:
        """The underlying client; its coroutines belong to another thread (`run`)."""
        return self._client

    @property
    def computer_name(self) -> str:
        """The cluster's computer name."""
        return self._client.computer_name

    @property
    def recovered(self) -> list[RecoveredSend]:
        """Sends of an earlier process that were completed."""
        return self._client.recovered

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the underlying client and return its result."""
        return self._thread.call(work)

    def soon(self, work: Callable[[], None]) -> None:
        """Have something done in the loop of the underlying client; does not wait for it."""
        self._thread.soon(work)

    def call(
        self,
        method: Callable[[Stubs], Method[_Q, _R]],
        request: _Q,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> _R:
        """Make a call of any service (`Wire.call`)."""
        return self.run(self._client.wire.call(method, request, deadline_s=deadline_s))

    def format_name(self, queue: str) -> str:
        r"""Return a queue's format name; `.\private$\q` is the cluster's own."""
        return self._client.format_name(queue)

    def open_queue(
        self, queue: str, access: Access = Access.RECEIVE, *, exclusive: bool = False
    ) -> "BlockingQueue":
        """Open a queue, by format name or path name, in a session of its own."""
        return BlockingQueue(
            self, self.run(self._client.open_queue(queue, access, exclusive=exclusive))
        )

    def send(self, queue: str | Sequence[str], *messages: Message) -> list[Sent]:
        """Send messages in order to a queue, or each to several queues."""
        return self.run(self._client.send(queue, *messages))

    @contextmanager
    def transaction(
        self, timeout_s: float = TRANSACTION_TIMEOUT_S
    ) -> Iterator["BlockingTransaction"]:
        """Return a transaction: `with client.transaction() as transaction`."""
        transaction = self.begin_transaction(timeout_s)
        try:
            yield transaction
        except BaseException as error:
            self.run(transaction.transaction.__aexit__(type(error), error, None))
            raise
        self.run(transaction.transaction.__aexit__(None, None, None))

    def begin_transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> "BlockingTransaction":
        """Return a transaction that the caller commits or aborts."""
        return BlockingTransaction(self, self._client.transaction(timeout_s))

    def close(self, *, confirm: bool = True) -> None:
        """End all sessions, and confirm the messages received."""
        try:
            self.run(self._client.close(confirm=confirm))
        finally:
            self._thread.close()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(confirm=kind is None)


class BlockingQueue:
    """`qm.client.queue.Queue` for programs without an event loop."""

    def __init__(self, client: BlockingClient, queue: Queue) -> None:
        self._client = client
        self.queue = queue
        """The underlying queue."""

    @property
    def name(self) -> str:
        """The queue's format name."""
        return self.queue.name

    def receive(
        self, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Take the next message; None if there is none within `timeout_s`."""
        return self._client.run(self.queue.receive(timeout_s, selection=selection))

    def receive_many(
        self, count: int, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> list[ReceivedMessage]:
        """Take at most `count` messages, and at most 1,024, in one step."""
        return self._client.run(self.queue.receive_many(count, timeout_s, selection=selection))

    def receive_two_phase(
        self, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Read and lock the next message until `accept`, `give_back` or `reject`."""
        return self._client.run(self.queue.receive_two_phase(timeout_s, selection=selection))

    def accept(self, message: ReceivedMessage) -> None:
        """Accept a locked message: it is removed from the queue."""
        self._client.run(self.queue.accept(message))

    def give_back(self, message: ReceivedMessage) -> None:
        """Return a locked message to its place."""
        self._client.run(self.queue.give_back(message))

    def reject(self, message: ReceivedMessage) -> None:
        """Reject a locked message for good, with dead letter and negative acknowledgment as its
        sender requested.
        """
        self._client.run(self.queue.reject(message))

    def peek(
        self, timeout_s: float = 0.0, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Peek at the next message; None if there is none within `timeout_s`."""
        return self._client.run(self.queue.peek(timeout_s, selection=selection))

    def peek_many(
        self, count: int, timeout_s: float = 0.0, *, selection: Selection = FIRST
    ) -> list[ReceivedMessage]:
        """Peek at up to `count` messages, at most 1,024, starting at the selection."""
        return self._client.run(self.queue.peek_many(count, timeout_s, selection=selection))

    def move(
        self,
        message: ReceivedMessage,
        target: "BlockingQueue",
        transaction: "BlockingTransaction | None" = None,
    ) -> int:
        """Move a message of this queue to a subqueue, or from one; return its LookupIdentifier."""
        running = transaction.transaction if transaction is not None else None
        return self._client.run(self.queue.move(message, target.queue, running))

    def browse(self, page: int = 100) -> Iterator[ReceivedMessage]:
        """Yield the queue's messages in order, without taking them or waiting."""
        selection = FIRST
        while messages := self.peek_many(page, selection=selection):
            yield from messages
            selection = after(messages[-1].lookup_identifier)

    def confirm(self) -> None:
        """Confirm everything received so far; the confirmation travels with the next call."""
        self._client.run(_now(self.queue.confirm))

    @contextmanager
    def stream(
        self, credit: int = 512, *, is_two_phase: bool = False, commit_confirms: bool = False
    ) -> Iterator["BlockingStream"]:
        """Receive continuously: at most `credit` messages are in flight or unconfirmed."""
        opening = self.queue.stream(
            credit, is_two_phase=is_two_phase, commit_confirms=commit_confirms
        )
        stream = self._client.run(opening.__aenter__())
        try:
            yield BlockingStream(self._client, stream)
        finally:
            self._client.run(opening.__aexit__(None, None, None))

    def messages(self, prefetch: int = PREFETCH) -> "BlockingMessages":
        """Return messages that are lent to the block that handles them:

        with queue.messages() as messages:
            for message in messages:
                ...
        """
        return BlockingMessages(self._client, self.queue.messages(prefetch))

    def runner(
        self,
        work: Callable[[ReceivedMessage], None],
        *,
        concurrency: int = CONCURRENCY,
        grace_s: float = GRACE_S,
    ) -> "BlockingRunner":
        """Return what handles messages with `work`, each in a thread, several at a time."""
        return BlockingRunner(self._client, self.queue, work, concurrency, grace_s)

    def close(self, *, confirm: bool = True) -> None:
        """Close the queue and confirm the messages received from it; without `confirm`, those that
        are not confirmed yet are dead-lettered.
        """
        self._client.run(self._client.client.close_queue(self.queue, confirm=confirm))


class BlockingStream:
    """`qm.client.stream.Stream` for programs without an event loop."""

    def __init__(self, client: BlockingClient, stream: Stream) -> None:
        self._client = client
        self._stream = stream

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message; the one before counts as done."""
        return self._client.run(self._stream.__anext__())

    def batch(self) -> list[ReceivedMessage]:
        """Return the next messages, at least one; earlier ones count as done."""
        return self._client.run(self._stream.batch())

    def stop(self) -> list[ReceivedMessage]:
        """Request nothing more, and return the messages that were in flight."""
        return self._client.run(self._stream.stop())


class BlockingMessages:
    """`qm.client.handling.Messages` for programs without an event loop."""

    def __init__(self, client: BlockingClient, messages: Messages) -> None:
        self._client = client
        self._messages = messages

    def __enter__(self) -> "BlockingMessages":
        self._client.run(self._messages.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self._client.run(self._messages.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        """Accept the message before and return the next one, however long it takes."""
        return self._client.run(self._messages.__anext__())

    def reject(self, message: ReceivedMessage) -> None:
        """Reject the message in work; the loop goes on with the next one."""
        self._client.run(self._messages.reject(message))

    def give_back(self, message: ReceivedMessage) -> None:
        """Return the message in work to its place; the loop goes on with the next one."""
        self._client.run(self._messages.give_back(message))


class BlockingRunner:
    """`qm.client.handling.Runner` for work that is a plain function, each call in a thread."""

    def __init__(
        self,
        client: BlockingClient,
        queue: Queue,
        work: Callable[[ReceivedMessage], None],
        concurrency: int,
        grace_s: float,
    ) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="qm-work")

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.get_running_loop().run_in_executor(self._threads, work, message)

        self._runner: AsyncRunner = client.run(
            _now(lambda: queue.runner(handle, concurrency=concurrency, grace_s=grace_s))
        )

    @property
    def handled(self) -> int:
        """Messages that were accepted."""
        return self._runner.handled

    @property
    def returned(self) -> int:
        """Messages that were returned or rejected because their work failed."""
        return self._runner.returned

    def stop(self) -> None:
        """Take no more messages; `run` ends when work in progress has. May be called from any
        thread, and by a signal's handler.
        """
        self._client.soon(self._runner.stop)

    def run(self) -> None:
        """Handle messages until `stop`, or until KeyboardInterrupt. Raises ClientError.

        Work that takes longer than the grace goes on in its thread, but its message is returned.
        """
        try:
            self._client.run(self._runner.run())
        finally:
            self._threads.shutdown(wait=False)


async def _now(work: Callable[[], _T]) -> _T:
    """Do something in the client's loop."""
    return work()


class BlockingTransaction:
    """`qm.client.transaction.Transaction` for programs without an event loop."""

    def __init__(self, client: BlockingClient, transaction: Transaction) -> None:
        self._client = client
        self.transaction = transaction
        """The underlying transaction."""

    def send(self, queue: str | Sequence[str], *messages: Message) -> list[Sent]:
        """Send messages, each to one queue or several, that appear when the transaction commits."""
        return self._client.run(self.transaction.send(queue, *messages))

    def receive(
        self,
        queue: BlockingQueue | str,
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        """Take a message; a commit removes it, an abort returns it to its queue."""
        source = queue.queue if isinstance(queue, BlockingQueue) else queue
        return self._client.run(
            self.transaction.receive(source, timeout_s, selection=selection, allow_peek=allow_peek)
        )

    def receive_many(
        self,
        queue: BlockingQueue | str,
        count: int,
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
        allow_peek: bool = False,
    ) -> list[ReceivedMessage]:
        """Take at most `count` messages; it waits for the first one only."""
        source = queue.queue if isinstance(queue, BlockingQueue) else queue
        return self._client.run(
            self.transaction.receive_many(
                source, count, timeout_s, selection=selection, allow_peek=allow_peek
            )
        )

    def commit(self) -> None:
        """Commit. Raises MqError when it has been aborted, Unavailable when no node answers."""
        self._client.run(self.transaction.commit())

    def abort(self) -> None:
        """Abort: undo everything that the transaction did."""
        self._client.run(self.transaction.abort())

"""The client for programs without an event loop: the same calls, each waiting for its answer.

One event loop in a separate thread makes all calls of a client; methods may be called from any
thread. A call that is interrupted (KeyboardInterrupt) is cancelled and can be repeated.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from qm.client.calls import DEADLINE_S, Method, Stubs, Tls
from qm.client.client import TRANSACTION_TIMEOUT_S, Access, Client, RecoveredSend
from qm.client.message import Message, ReceivedMessage, Sent
from qm.client.queue import Queue
from qm.client.reading import FIRST, FOREVER_S, Selection
from qm.client.transaction import Transaction

_T = TypeVar("_T")
_Q = TypeVar("_Q")
_R = TypeVar("_R")


class Runner(Protocol):
    """Runs coroutines for threads that wait."""

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result."""

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
        """End all sessions."""
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

    def receive_many(self, count: int, timeout_s: float = FOREVER_S) -> list[ReceivedMessage]:
        """Take at most `count` messages, and at most 1,024, in one step."""
        return self._client.run(self.queue.receive_many(count, timeout_s))

    def receive_two_phase(self, timeout_s: float = FOREVER_S) -> ReceivedMessage | None:
        """Read and lock the next message until `accept`, `give_back` or `reject`."""
        return self._client.run(self.queue.receive_two_phase(timeout_s))

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

    def move(self, message: ReceivedMessage, target: "BlockingQueue") -> int:
        """Move a message of this queue to a subqueue, or from one; return its LookupIdentifier."""
        return self._client.run(self.queue.move(message, target.queue))

    def close(self, *, confirm: bool = True) -> None:
        """Close the queue and confirm the messages received from it; without `confirm`, those that
        are not confirmed yet are dead-lettered.
        """
        self._client.run(self._client.client.close_queue(self.queue, confirm=confirm))


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

    def commit(self) -> None:
        """Commit. Raises MqError when it has been aborted, Unavailable when no node answers."""
        self._client.run(self.transaction.commit())

    def abort(self) -> None:
        """Abort: undo everything that the transaction did."""
        self._client.run(self.transaction.abort())

"""Transactions: messages that are sent and received together, or not at all."""

import uuid
from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Final, Protocol

from qm.client.errors import ClientError, MqError, Unavailable, check_status
from qm.client.message import Message, ReceivedMessage, Sent, messages_of
from qm.client.queue import FIRST, FOREVER_S, Queue
from qm.client.reading import NOTHING_THERE, WAIT_SLICE_S, Selection
from qm.client.sending import send
from qm.client.session import Session
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode


class Outcome(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No node answered; the cluster has decided or will, and asking again tells."""


class Opener(Protocol):
    """Turns what an application names a queue by into a format name."""

    def format_name(self, queue: str) -> str:
        """Return it. Raises QueueNameError."""


class Transaction:
    """Use it as a context: it commits at the end, and aborts when an exception leaves it.

    All of its calls are made by one task, one after another.
    """

    def __init__(
        self,
        session: Session,
        opener: Opener,
        release: Callable[[Session], Awaitable[None]],
        *,
        timeout_s: float,
    ) -> None:
        """`release` gets the session back at the end; the cluster aborts after `timeout_s`."""
        self.session: Final = session
        self.identifier: Final = uuid.uuid4().bytes_le
        """16 raw bytes."""
        self._opener = opener
        self._release = release
        self._timeout_s = timeout_s
        self.outcome: Outcome | None = None
        """None while it runs."""

    async def begin(self) -> None:
        """Create it at the cluster; entering the context does so."""
        await self.session.once(
            lambda stubs: stubs.data.BeginTransaction,
            lambda request: data_pb2.BeginTransactionRequest(
                request=request,
                transaction=self.identifier,
                timeout_ms=round(self._timeout_s * 1000),
            ),
        )

    async def send(self, queue: "Queue | str", *messages: Message) -> list[Sent]:
        """Send messages that appear when the transaction commits."""
        targets = [queue.name if isinstance(queue, Queue) else self._opener.format_name(queue)]
        return await send(self.session, targets, messages, self.identifier)

    async def receive(
        self,
        queue: "Queue | str",
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
    ) -> ReceivedMessage | None:
        """Take a message that is gone when the transaction commits, and back when it aborts."""
        messages = await self.receive_many(queue, 1, timeout_s, selection=selection)
        return messages[0] if messages else None

    async def receive_many(
        self,
        queue: "Queue | str",
        count: int,
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
    ) -> list[ReceivedMessage]:
        """Take at most `count` messages; it waits for the first one only."""
        name = queue.name if isinstance(queue, Queue) else self._opener.format_name(queue)
        opened = await self.session.open_queue(name, data_pb2.RECEIVE_ACCESS, data_pb2.DENY_NONE)
        left = timeout_s
        while True:
            wait_s = min(left, WAIT_SLICE_S)
            first = self.session.numbers.take(count)
            try:
                reply = await self.session.wire.call(
                    lambda stubs: stubs.data.Receive,
                    data_pb2.ReceiveRequest(
                        request=self.session.request(first),
                        handle=opened.handle,
                        selector=selection.selector(),
                        timeout_ms=round(wait_s * 1000),
                        count=count,
                        transaction=self.identifier,
                        view=data_pb2.PACKETS,
                    ),
                    wait_s=wait_s,
                )
            except MqError as error:
                if error.code == ErrorCode.MQ_ERROR_INVALID_HANDLE:
                    self.session.lose(opened)
                raise
            finally:
                # Whatever it holds is settled by the outcome of the transaction.
                self.session.numbers.finish(first, count)
            messages, left = messages_of(reply.messages), left - wait_s
            if messages or reply.status != ErrorCode.MQ_ERROR_IO_TIMEOUT or left <= 0:
                if not messages and reply.status not in NOTHING_THERE:
                    check_status(reply.status)
                return messages

    async def commit(self) -> None:
        """Make it so. Raises MqError when it has been aborted, Unavailable when nobody answers."""
        await self._end(Outcome.COMMITTED, commits=True)

    async def abort(self) -> None:
        """Undo it all."""
        await self._end(Outcome.ABORTED, commits=False)

    async def _end(self, outcome: Outcome, *, commits: bool) -> None:
        if self.outcome not in (None, Outcome.UNKNOWN):
            raise MqError(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        self.outcome = Outcome.UNKNOWN
        try:
            await self.session.once(
                lambda stubs: (
                    stubs.data.CommitTransaction if commits else stubs.data.AbortTransaction
                ),
                lambda request: data_pb2.EndTransactionRequest(
                    request=request, transaction=self.identifier
                ),
            )
        except Unavailable:
            raise
        except ClientError:
            self.outcome = Outcome.ABORTED
            raise
        else:
            self.outcome = outcome
        finally:
            await self._release(self.session)

    async def __aenter__(self) -> "Transaction":
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.outcome is not None:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except ClientError:
            # What left the context tells more; the cluster aborts by time-out.
            return

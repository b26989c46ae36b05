"""Transactions: messages that are sent and received together, or not at all."""

import asyncio
import contextlib
import uuid
from collections.abc import Collection, Sequence
from enum import Enum
from types import TracebackType
from typing import Final, Protocol

from qm.client.errors import ClientError, MqError, Subject, Unavailable, check_status, has_ended
from qm.client.memory import Opened
from qm.client.message import Message, ReceivedMessage, Sent
from qm.client.queue import Queue
from qm.client.reading import (
    FIRST,
    FOREVER_S,
    NOTHING_THERE,
    RECEIVE_MAX_COUNT,
    Found,
    Selection,
    receive,
    wait_in_slices,
)
from qm.client.sending import send
from qm.client.session import Session
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

_SHARED: Final = (data_pb2.RECEIVE_ACCESS, data_pb2.DENY_NONE)


class Outcome(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No node answered; the cluster has decided or will decide: ask again to find out."""


class Lender(Protocol):
    """What a transaction needs of its client."""

    def format_name(self, queue: str) -> str:
        """Return a queue's format name. Raises QueueNameError."""

    async def lend(self) -> Session:
        """Return a session that no other transaction uses."""

    def closed_queues(self, session: Session) -> Collection[str]:
        """Return the queues that the application has closed since the session was lent."""

    def give_back(self, session: Session) -> None:
        """Take back the session of a transaction that has ended."""

    def discard(self, session: Session) -> None:
        """Take back a session that has ended, or is to end: no other transaction gets it."""


class Transaction:
    """Use it as a context manager: it commits at the end of the block and aborts on an exception.

    It begins with its first call, in a session of its own; if that call reads a queue that is open
    exclusively, in the queue's session. Make all calls from one task, one after another.
    """

    def __init__(self, lender: Lender, *, timeout_s: float) -> None:
        """The cluster aborts the transaction `timeout_s` after it began."""
        self.identifier: Final = uuid.uuid4().bytes_le
        """16 raw bytes."""
        self._lender = lender
        self._timeout_s = timeout_s
        self._session: Session | None = None
        self._is_lent = False
        self._opened: list[Opened] = []
        self._unfinished: list[data_pb2.ReceiveRequest] = []
        """Reads that were interrupted: the cluster may have taken messages for them."""
        self._kept: dict[int, list[ReceivedMessage]] = {}
        """By handle: what they took beyond what was asked for since."""
        self.outcome: Outcome | None = None
        """None until the transaction has ended."""

    async def session(self, queue: "Queue | None" = None) -> Session:
        """Return the transaction's session, beginning the transaction if it has not begun.

        `queue` is what the caller is about to read. Raises MQ_ERROR_TRANSACTION_ENLIST when that
        is open exclusively in a session that is not the transaction's.
        """
        exclusive = queue if queue is not None and queue.is_exclusive else None
        if self.outcome is not None:
            raise MqError(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        if self._session is None and exclusive is None:
            await self._begin_in_lent()
        elif self._session is None and exclusive is not None:
            self._session = exclusive.session
            exclusive.session.memory.set_transaction(exclusive.session.client_id, self.identifier)
            await self._begin(exclusive.session)
        assert self._session is not None
        if exclusive is not None and exclusive.session is not self._session:
            raise MqError(
                ErrorCode.MQ_ERROR_TRANSACTION_ENLIST,
                f"{exclusive.name} is open exclusively: read it before the transaction does"
                " anything else",
            )
        return self._session

    async def send(self, queue: str | Sequence[str], *messages: Message) -> list[Sent]:
        """Send messages, each to one queue or several, that appear when the transaction commits."""
        queues = [queue] if isinstance(queue, str) else queue
        targets = [self._lender.format_name(each) for each in queues]
        return await send(await self.session(), targets, messages, self.identifier)

    async def receive(
        self,
        queue: "Queue | str",
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        """Take a message; a commit removes it, an abort returns it to its queue.

        With `allow_peek` peeks see it until then. What a read of this queue took that was
        interrupted comes first.
        """
        messages = await self.receive_many(
            queue, 1, timeout_s, selection=selection, allow_peek=allow_peek
        )
        return messages[0] if messages else None

    async def receive_many(
        self,
        queue: "Queue | str",
        count: int,
        timeout_s: float = FOREVER_S,
        *,
        selection: Selection = FIRST,
        allow_peek: bool = False,
    ) -> list[ReceivedMessage]:
        """Take at most `count` messages; it waits for the first one only."""
        session, opened = await self._reader(queue)
        count = min(count, RECEIVE_MAX_COUNT)
        kept = self._kept.setdefault(opened.handle, [])
        for unfinished in [one for one in self._unfinished if one.handle == opened.handle]:
            if not kept:
                self._unfinished.remove(unfinished)
                kept += (await self._read(session, unfinished))[0]
        if kept:
            given, kept[:] = kept[:count], kept[count:]
            return given

        async def ask(wait_s: float) -> Found:
            first = session.numbers.take(count)
            request = data_pb2.ReceiveRequest(
                request=session.request(first),
                handle=opened.handle,
                selector=selection.selector(),
                timeout_ms=round(wait_s * 1000),
                count=count,
                transaction=self.identifier,
                view=data_pb2.PACKETS,
                allow_peek_when_locked=allow_peek,
            )
            return await self._read(session, request)

        messages, status = await wait_in_slices(timeout_s, ask)
        if not messages and status not in NOTHING_THERE:
            check_status(status, Subject(queue=opened.queue, principal=session.principal))
        return messages

    async def _read(self, session: Session, request: data_pb2.ReceiveRequest) -> Found:
        try:
            found = await receive(session, request)
        except (Unavailable, asyncio.CancelledError):
            request.timeout_ms = 0
            self._unfinished.append(request)
            raise
        except BaseException:
            session.numbers.finish(request.request.number, request.count)
            raise
        # The outcome of the transaction settles whatever these numbers hold.
        session.numbers.finish(request.request.number, request.count)
        return found

    async def commit(self) -> None:
        """Commit. Raises MqError when it has been aborted, Unavailable when no node answers.

        It aborts instead if a read that was interrupted took a message that nobody has seen.
        """
        if await self._has_unseen():
            await self.abort()
            raise MqError(
                ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
                "the transaction was aborted: a read of it that was interrupted took a message",
            )
        await self._end(Outcome.COMMITTED, commits=True)

    async def _has_unseen(self) -> bool:
        """Close interrupted reads; whether they took a message that was not asked for since."""
        session = self._session
        if any(self._kept.values()):
            return True
        while session is not None and self._unfinished:
            request = self._unfinished[0]
            first, count = request.request.number, request.count
            reply = await session.wire.call(
                lambda stubs: stubs.data.Cancel,
                data_pb2.CancelRequest(
                    client_id=session.client_id, first_number=first, count=count
                ),
            )
            if reply.received_numbers:
                return True
            del self._unfinished[0]
            session.numbers.finish(first, count)
        return False

    async def abort(self) -> None:
        """Abort: undo everything that the transaction did."""
        await self._end(Outcome.ABORTED, commits=False)

    async def _reader(self, queue: "Queue | str") -> tuple[Session, Opened]:
        if isinstance(queue, Queue):
            session = await self.session(queue)
            if session is queue.session:
                return session, queue.opened
            # It stays open for the next transaction: the application has it open, too.
            return session, await session.open_queue(queue.name, *_SHARED)
        session, name = await self.session(), self._lender.format_name(queue)
        was_open = session.has_open(name, *_SHARED)
        opened = await session.open_queue(name, *_SHARED)
        if not was_open:
            self._opened.append(opened)
        return session, opened

    async def _begin_in_lent(self) -> None:
        """Begin in a session that is lent: in another one if it ended while nobody used it."""
        while True:
            self._is_lent = True
            self._session = await self._lender.lend()
            try:
                await self._begin(self._session)
            except MqError as error:
                if not has_ended(error):
                    raise
                self._lender.discard(self._session)
                self.outcome = None
            else:
                return

    async def _begin(self, session: Session) -> None:
        try:
            await session.once(
                lambda stubs: stubs.data.BeginTransaction,
                lambda request: data_pb2.BeginTransactionRequest(
                    request=request,
                    transaction=self.identifier,
                    timeout_ms=round(self._timeout_s * 1000),
                ),
            )
        except ClientError:
            self._leave(Outcome.ABORTED)
            raise

    async def _end(self, outcome: Outcome, *, commits: bool) -> None:
        session = self._session
        if self.outcome not in (None, Outcome.UNKNOWN):
            raise MqError(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        if session is None:
            self.outcome = outcome
            return
        try:
            await self._close_opened(session)
            await session.once(
                lambda stubs: (
                    stubs.data.CommitTransaction if commits else stubs.data.AbortTransaction
                ),
                lambda request: data_pb2.EndTransactionRequest(
                    request=request, transaction=self.identifier
                ),
            )
        except Unavailable:
            self.outcome = Outcome.UNKNOWN
            raise
        except ClientError:
            self._leave(Outcome.ABORTED)
            raise
        except BaseException:
            self.outcome = Outcome.UNKNOWN
            raise
        self.outcome = outcome
        try:
            await self._close_shared(session)
            if self._is_lent and session.is_opening:
                with contextlib.suppress(ClientError):  # its lease does the same
                    await session.close()
        finally:
            self._leave(outcome)

    async def _close_opened(self, session: Session) -> None:
        """Close queues that were opened only for this transaction; reads stay valid."""
        while self._opened:
            await session.close_queue(self._opened.pop())

    async def _close_shared(self, session: Session) -> None:
        """Close queues that were left open for the next transaction, if the application closed
        them before this one ended: others may want them for themselves.
        """
        closed: set[str] = set()
        while left := set(self._lender.closed_queues(session)) - closed:  # more meanwhile
            name = min(left)
            closed.add(name)
            with contextlib.suppress(ClientError):  # such as one that was deleted
                await session.close_shared(name)

    def _leave(self, outcome: Outcome) -> None:
        self.outcome = outcome
        while self._unfinished and self._session is not None:
            request = self._unfinished.pop()
            self._session.numbers.finish(request.request.number, request.count)
        self._kept.clear()
        if self._is_lent and self._session is not None:
            if self._session.is_opening:
                # Nobody asks again: its number would keep all later ones from being confirmed.
                self._lender.discard(self._session)
            else:
                self._lender.give_back(self._session)
            self._is_lent = False

    async def __aenter__(self) -> "Transaction":
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
            # The original exception matters more; the cluster aborts by timeout.
            return

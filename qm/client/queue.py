"""An open queue: receiving, peeking, two-phase reads, moving."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from qm.client.errors import Subject, check_status
from qm.client.handling import CONCURRENCY, GRACE_S, PREFETCH, Messages, Runner, Work
from qm.client.memory import Opened
from qm.client.message import ReceivedMessage, messages_of
from qm.client.reading import (
    FIRST,
    FOREVER_S,
    NOTHING_THERE,
    RECEIVE_MAX_COUNT,
    Found,
    Reader,
    Selection,
    wait_in_slices,
)
from qm.client.session import Session
from qm.client.stream import Stream
from qm.pb import data_pb2

_READING: Final = "RECEIVE_MESSAGE"


class RunningTransaction(Protocol):
    """The interface of a transaction that a queue needs to move a message in it."""

    @property
    def identifier(self) -> bytes:
        """16 raw bytes."""

    async def session(self) -> Session:
        """Return the transaction's session, beginning the transaction if it has not begun."""


def exactly(lookup_identifier: int) -> Selection:
    """Select the message with this LookupIdentifier; never waits."""
    return Selection(data_pb2.EXACT, lookup_identifier)


def after(lookup_identifier: int) -> Selection:
    """Select the first message after this LookupIdentifier, which need not exist; waits."""
    return Selection(data_pb2.AFTER, lookup_identifier)


class Queue:
    """A queue that is open in its own session; made by `Client.open`."""

    def __init__(self, session: Session, opened: Opened) -> None:
        self.session: Final = session
        self.opened: Final = opened
        self.reader: Final = Reader(session, opened)

    @property
    def name(self) -> str:
        """The queue's format name."""
        return self.opened.queue

    @property
    def queue_id(self) -> int:
        """The cluster's number for the queue."""
        return self.opened.queue_id

    @property
    def is_exclusive(self) -> bool:
        """Whether no other client may read it meanwhile."""
        return self.opened.share_mode == data_pb2.DENY_RECEIVE

    @property
    def is_transactional(self) -> bool:
        """Whether it accepts only transactional messages."""
        return self.opened.is_transactional

    # Receiving -----------------------------------------------------------------------------

    async def receive(
        self, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Take the next message; None if there is none within `timeout_s`.

        The message counts as done when the next one is requested (`qm.client.reading`); use a
        transaction or `receive_two_phase` where other work depends on it. Raises ClientError.
        """
        messages = await self.receive_many(1, timeout_s, selection=selection)
        return messages[0] if messages else None

    async def receive_many(
        self, count: int, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> list[ReceivedMessage]:
        """Take at most `count` messages, and at most 1,024, in one step.

        It waits for the first one only.
        """
        messages, status = await self.reader.read(selection, count, timeout_s)
        self._check(messages, status)
        return messages

    async def receive_two_phase(
        self, timeout_s: float = FOREVER_S, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Read and lock the next message until `accept`, `give_back` or `reject`."""
        messages, status = await self.reader.read(selection, 1, timeout_s, is_two_phase=True)
        self._check(messages, status)
        return messages[0] if messages else None

    async def accept(self, message: ReceivedMessage) -> None:
        """Accept a locked message: it is removed from the queue."""
        await self._complete(message, data_pb2.CompleteRequest.ACCEPT)

    async def give_back(self, message: ReceivedMessage) -> None:
        """Return a locked message to its place."""
        await self._complete(message, data_pb2.CompleteRequest.RETURN)

    async def reject(self, message: ReceivedMessage) -> None:
        """Reject a locked message for good, with dead letter and negative acknowledgment as its
        sender requested.
        """
        await self._complete(message, data_pb2.CompleteRequest.REJECT)

    def confirm(self) -> None:
        """Confirm everything received so far; the confirmation travels with the next call."""
        self.reader.confirm()

    @asynccontextmanager
    async def stream(
        self, credit: int = 512, *, is_two_phase: bool = False, commit_confirms: bool = False
    ) -> AsyncIterator[Stream]:
        """Receive continuously: at most `credit` messages are in flight or unconfirmed.

        `commit_confirms`: no further messages are requested before the confirmation of earlier ones
        is committed.
        """
        stream = Stream(
            self.session,
            self.opened.handle,
            credit,
            is_two_phase=is_two_phase,
            commit_confirms=commit_confirms,
        )
        try:
            yield stream
        finally:
            await stream.close()

    def messages(self, prefetch: int = PREFETCH) -> Messages:
        """Return messages that are lent to the block that handles them:

            async with queue.messages() as messages:
                async for message in messages:
                    ...

        Each is accepted when the next one is asked for, and returned when an exception leaves the
        block. At most `prefetch` are lent at a time.
        """
        return Messages(self, prefetch)

    def runner(
        self, work: Work, *, concurrency: int = CONCURRENCY, grace_s: float = GRACE_S
    ) -> Runner:
        """Return what handles messages with `work`, several at a time (`qm.client.handling`)."""
        return Runner(self, work, concurrency=concurrency, grace_s=grace_s)

    # Peeking -------------------------------------------------------------------------------

    async def peek(
        self, timeout_s: float = 0.0, *, selection: Selection = FIRST
    ) -> ReceivedMessage | None:
        """Peek at the next message; None if there is none within `timeout_s`."""
        messages = await self.peek_many(1, timeout_s, selection=selection)
        return messages[0] if messages else None

    async def peek_many(
        self, count: int, timeout_s: float = 0.0, *, selection: Selection = FIRST
    ) -> list[ReceivedMessage]:
        """Peek at up to `count` messages, at most 1,024, starting at the selection."""
        count = min(count, RECEIVE_MAX_COUNT)

        async def ask(wait_s: float) -> Found:
            reply = await self.session.wire.call(
                lambda stubs: stubs.data.Peek,
                data_pb2.PeekRequest(
                    client_id=self.session.client_id,
                    handle=self.opened.handle,
                    selector=selection.selector(),
                    timeout_ms=round(wait_s * 1000),
                    count=count,
                    view=data_pb2.PACKETS,
                ),
                wait_s=wait_s,
            )
            return messages_of(reply.messages), reply.status

        messages, status = await wait_in_slices(timeout_s, ask)
        self._check(messages, status)
        return messages

    async def browse(self, page: int = 100) -> AsyncIterator[ReceivedMessage]:
        """Yield the queue's messages in order, without taking them or waiting."""
        selection = FIRST
        while messages := await self.peek_many(page, selection=selection):
            for message in messages:
                yield message
            selection = after(messages[-1].lookup_identifier)

    # Moving and ending ---------------------------------------------------------------------

    async def move(
        self,
        message: ReceivedMessage,
        target: "Queue",
        transaction: RunningTransaction | None = None,
    ) -> int:
        """Move a message of this queue to a subqueue, or from one; return its LookupIdentifier."""
        session = await transaction.session() if transaction is not None else self.session
        reply = await session.once(
            lambda stubs: stubs.data.Move,
            lambda request: data_pb2.MoveRequest(
                request=request,
                source_queue_id=message.queue_id,
                lookup_identifier=message.lookup_identifier,
                target_queue_id=target.queue_id,
                transaction=transaction.identifier if transaction is not None else b"",
            ),
        )
        return reply.lookup_identifier

    async def close(self, *, confirm: bool = True) -> None:
        """Close the queue and its session.

        Received messages are confirmed, or dead-lettered by the cluster.
        """
        if confirm:
            self.reader.confirm()
        await self.session.close()

    async def _complete(
        self, message: ReceivedMessage, decision: data_pb2.CompleteRequest.Decision.ValueType
    ) -> None:
        await self.session.once(
            lambda stubs: stubs.data.Complete,
            lambda request: data_pb2.CompleteRequest(
                request=request,
                queue_id=message.queue_id,
                lookup_identifier=message.lookup_identifier,
                decision=decision,
            ),
        )

    def _check(self, messages: Sequence[ReceivedMessage], status: int) -> None:
        if not messages and status not in NOTHING_THERE:
            principal = self.session.principal
            check_status(status, Subject(queue=self.name, right=_READING, principal=principal))

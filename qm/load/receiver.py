"""Receivers that record what they receive: by stream, in two phases, or in transactions."""

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from typing import Final

from qm.client.client import Client
from qm.client.errors import ClientError, Unavailable
from qm.client.message import ReceivedMessage
from qm.client.queue import Queue
from qm.load.history import EventKind, HistoryEvent
from qm.load.sender import Record
from qm.load.workload import message_name

_WAIT_S: Final = 0.25
"""How long a read waits before it checks whether to stop."""


class Mode(Enum):
    """How messages are taken."""

    STREAM = "stream"
    TWO_PHASE = "two_phase"
    TRANSACTION = "transaction"


class RecordingReceiver:
    """Reads one queue until it is stopped. One task."""

    def __init__(
        self,
        name: str,
        client: Client,
        queue: str,
        record: Record,
        *,
        mode: Mode = Mode.STREAM,
        batch: int = 64,
        return_every: int = 0,
        credit: int = 512,
    ) -> None:
        """`batch`: messages of one transaction. `return_every`: every n-th message of a two-phase
        read, and every n-th transaction, is returned; 0: none.
        """
        self.name = name
        self._client = client
        self._queue_name = queue
        self._record = record
        self._mode = mode
        self._batch = batch
        self._return_every = return_every
        self._credit = credit
        self._stopping = asyncio.Event()
        self._turn = 0
        self._queue: Queue | None = None
        """The queue while it is open."""
        self.received = 0
        """Messages whose read took effect."""

    def stop(self) -> None:
        """End `run` once reads in progress are settled."""
        self._stopping.set()

    async def run(self) -> None:
        """Read until `stop`. Raises ClientError for errors that no other node could resolve."""
        self._queue = queue = await self._client.open_queue(self._queue_name)
        if self._mode is Mode.STREAM:
            await self._stream(queue)
        while not self._stopping.is_set():
            if self._mode is Mode.TWO_PHASE:
                await self._two_phase(queue)
            else:
                await self._transaction(queue)
        await self._client.close_queue(queue)
        self._queue = None

    async def recover(self) -> None:
        """After a run that ended by an error: record what its last read took, or return it.

        Otherwise the queue would hold it for this reader, where nobody else sees it. Raises
        ClientError.
        """
        queue = self._queue
        if queue is None:
            return
        if self._mode is Mode.STREAM:
            async with queue.stream(self._credit) as stream:
                self._took(await stream.stop())
        elif self._mode is Mode.TWO_PHASE:
            message = await queue.receive_two_phase(0)
            if message is not None:
                await queue.give_back(message)
        await self._client.close_queue(queue)
        self._queue = None

    async def _stream(self, queue: Queue) -> None:
        stopped = asyncio.ensure_future(self._stopping.wait())
        async with queue.stream(self._credit) as stream:
            while not stopped.done():
                batch = asyncio.ensure_future(stream.batch())
                await asyncio.wait((batch, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not batch.done():
                    batch.cancel()
                    await asyncio.gather(batch, return_exceptions=True)
                    break
                self._took(batch.result())
            self._took(await stream.stop())
        stopped.cancel()

    def _took(self, messages: Sequence[ReceivedMessage]) -> None:
        self._write(EventKind.RECEIVED, messages)
        self.received += len(messages)

    async def _two_phase(self, queue: Queue) -> None:
        message = await queue.receive_two_phase(_WAIT_S)
        if message is None:
            return
        self._write(EventKind.RECEIVED, [message])
        if self._is_turn():
            await queue.give_back(message)
            self._write(EventKind.RETURNED, [message])
        else:
            await queue.accept(message)
            self.received += 1

    async def _transaction(self, queue: Queue) -> None:
        transaction = self._client.transaction()
        name = transaction.identifier.hex()
        outcome = EventKind.ABORTED
        try:
            messages = await transaction.receive_many(queue, self._batch, _WAIT_S)
            if not messages:
                await transaction.abort()
                return
            self._write(EventKind.RECEIVED, messages, name)
            if self._is_turn():
                await transaction.abort()
            else:
                await transaction.commit()
                outcome = EventKind.COMMITTED
                self.received += len(messages)
        except Unavailable:
            outcome = EventKind.UNKNOWN
        except ClientError:
            # Refused: the cluster has aborted it, for a time-out.
            outcome = EventKind.ABORTED
        self._record(HistoryEvent(time.monotonic_ns(), self.name, outcome, transaction=name))

    def _is_turn(self) -> bool:
        self._turn += 1
        return self._return_every > 0 and self._turn % self._return_every == 0

    def _write(
        self, kind: EventKind, messages: Sequence[ReceivedMessage], transaction: str = ""
    ) -> None:
        record_messages(self._record, self.name, kind, self._queue_name, messages, transaction)


def record_messages(
    record: Record,
    client: str,
    kind: EventKind,
    queue: str,
    messages: Sequence[ReceivedMessage],
    transaction: str = "",
) -> None:
    """Record the same event for several messages, with one time."""
    now = time.monotonic_ns()
    for message in messages:
        record(
            HistoryEvent(
                now,
                client,
                kind,
                queue=queue,
                message=message_name(message.body),
                priority=message.priority,
                transaction=transaction,
                lookup_identifier=message.lookup_identifier,
            )
        )


async def record_remaining(client: Client, queues: Sequence[str], record: Record) -> int:
    """Record the messages left in queues after the load; return how many there are."""
    count = 0
    for name in queues:
        queue = await client.open_queue(name)
        messages = [message async for message in queue.browse()]
        record_messages(record, "auditor", EventKind.REMAINING, name, messages)
        count += len(messages)
        await client.close_queue(queue)
    return count

"""A sender that uses data plane calls and sends transactions of several messages as one."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from qm.client.client import Client
from qm.client.errors import ClientError, Unavailable
from qm.client.message import Message
from qm.load.history import EventKind, HistoryEvent
from qm.load.sender import Record
from qm.load.workload import Delivery, Planned, Workload, plan


class RecordingCaller:
    """Sends planned messages, one call after another, until it is stopped. One task."""

    def __init__(
        self,
        name: str,
        client: Client,
        workload: Workload,
        record: Record,
        *,
        rate_per_s: float,
        abort_every: int = 0,
    ) -> None:
        """`abort_every`: every n-th transaction is aborted on purpose; 0: none."""
        self.name = name
        self._client = client
        self._workload = workload
        self._record = record
        self._pause_s = 1 / rate_per_s
        self._abort_every = abort_every
        self._transactions = 0
        self._stopping = asyncio.Event()
        self.sent = 0
        """Messages whose send took effect, as far as this sender knows."""

    def stop(self) -> None:
        """End `run` after the current call."""
        self._stopping.set()

    async def run(self) -> None:
        """Send until `stop`. A refusal ends it with ClientError."""
        for group in _groups(plan(self._workload, self.name)):
            if self._stopping.is_set():
                return
            if group[0].transaction:
                await self._transact(group)
            else:
                await self._send(group)
            try:
                await asyncio.wait_for(self._stopping.wait(), self._pause_s * len(group))
            except TimeoutError:
                continue

    async def _send(self, group: Sequence[Planned]) -> None:
        self._write(EventKind.SENT, group)
        try:
            await self._client.send(self._queue(group), *map(_message, group))
        except Unavailable:
            return
        self._write(EventKind.ACKNOWLEDGED, group)
        self.sent += len(group)

    async def _transact(self, group: Sequence[Planned]) -> None:
        transaction = self._client.transaction()
        name = transaction.identifier.hex()
        self._write(EventKind.SENT, group, name)
        self._transactions += 1
        outcome = EventKind.ABORTED
        try:
            await transaction.send(self._queue(group), *map(_message, group))
            if self._abort_every and self._transactions % self._abort_every == 0:
                await transaction.abort()
            else:
                await transaction.commit()
                outcome = EventKind.COMMITTED
        except Unavailable:
            outcome = EventKind.UNKNOWN
        except ClientError:
            # Refused: the cluster has aborted it after a timeout.
            outcome = EventKind.ABORTED
        now = time.monotonic_ns()
        self._record(HistoryEvent(now, self.name, outcome, transaction=name))
        if outcome is EventKind.COMMITTED:
            self._write(EventKind.ACKNOWLEDGED, group, name)
            self.sent += len(group)

    def _queue(self, group: Sequence[Planned]) -> str:
        return self._workload.targets[group[0].target].format_name

    def _write(self, kind: EventKind, group: Sequence[Planned], transaction: str = "") -> None:
        now, queue = time.monotonic_ns(), self._queue(group)
        for planned in group:
            self._record(
                HistoryEvent(
                    now,
                    self.name,
                    kind,
                    queue=queue,
                    message=planned.name,
                    delivery=planned.delivery.value,
                    priority=planned.priority,
                    number=planned.number,
                    transaction=transaction,
                )
            )


def _groups(messages: Iterator[Planned]) -> Iterator[list[Planned]]:
    """Yield what one call sends: a whole transaction, or one message."""
    group: list[Planned] = []
    for message in messages:
        group.append(message)
        if message.is_last or not message.transaction:
            yield group
            group = []


def _message(planned: Planned) -> Message:
    return Message(
        body=planned.body,
        label=planned.name,
        priority=None if planned.transaction else planned.priority,
        recoverable=planned.delivery is not Delivery.EXPRESS,
    )

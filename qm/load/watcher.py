"""A watcher looks repeatedly at a queue that has no readers and records what each look showed; a
look that shows less than it must is stale (`qm.load.staleness`).
"""

import asyncio
import contextlib
from time import monotonic_ns
from typing import Final

from qm.client.client import Client
from qm.client.errors import Unavailable
from qm.client.queue import Queue
from qm.client.reading import Selection
from qm.load.history import EventKind, HistoryEvent
from qm.load.sender import Record
from qm.load.workload import message_name
from qm.pb import control_pb2, data_pb2

LOOK_EVERY_S: Final = 0.2
"""Interval between the looks of a watcher."""
_LAST: Final = Selection(data_pb2.SEEK_LAST)


class RecordingWatcher:
    """Peeks at the last message, or asks for the number of messages. One task."""

    def __init__(
        self, name: str, client: Client, queue: str, record: Record, kind: EventKind
    ) -> None:
        """`client`: used by no other watcher: a failed look moves it to another node, which
        would move others' looks too. `queue`: as its senders name it. `kind`: PEEKED or COUNTED.
        """
        self.name = name
        self._client = client
        self._queue_name = queue
        self._record = record
        self._do_look = self._peek if kind is EventKind.PEEKED else self._count
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End `run` after the current look."""
        self._stopping.set()

    async def run(self) -> None:
        """Look until `stop`. Raises ClientError for errors that no other node could resolve."""
        queue = await self._client.open_queue(self._queue_name)
        while not self._stopping.is_set():
            with contextlib.suppress(Unavailable):
                await self._do_look(queue)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_EVERY_S)
        await self._client.close_queue(queue)

    async def _peek(self, queue: Queue) -> None:
        began_ns = monotonic_ns()
        seen = await queue.peek(selection=_LAST)
        if seen is None:
            self._look(EventKind.PEEKED, began_ns)
        else:
            message, place = message_name(seen.body), seen.lookup_identifier
            self._look(EventKind.PEEKED, began_ns, message=message, place=place)

    async def _count(self, queue: Queue) -> None:
        began_ns = monotonic_ns()
        request = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=self._queue_name))
        found = await queue.session.wire.call(lambda stubs: stubs.queues.GetQueue, request)
        self._look(EventKind.COUNTED, began_ns, number=found.message_count)

    def _look(
        self, kind: EventKind, began_ns: int, *, message: str = "", place: int = 0, number: int = 0
    ) -> None:
        self._record(
            HistoryEvent(
                monotonic_ns(),
                self.name,
                kind,
                queue=self._queue_name,
                message=message,
                number=number,
                lookup_identifier=place,
                began_ns=began_ns,
            )
        )

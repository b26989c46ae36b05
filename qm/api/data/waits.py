"""Reads that wait at this node for a message ([MS-MQDMPR] 3.1.1.10, 3.1.7.2.2).

Waits are volatile and local to a node; what they find is committed. Each queue has a line of
readers, first come first served: when positions become available, the first readers are *called*,
as many as there are messages. A called reader tries; one that finds nothing, because another node's
reader was faster, keeps its place and is called again by the next arrival.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final

from typing_extensions import override

from qm.api.gate.errors import LimitReached, QuotaReached
from qm.cluster.cluster import Cluster, ClusterListener, Leadership, Unavailable
from qm.model.clients.clients import client_key
from qm.model.clients.opens import OPEN_RECORD, OPEN_RECORD_KEY
from qm.model.queries import get_client
from qm.model.state.tables import State, Table
from qm.model.values.effects import Applied
from qm.model.values.limits import WAITING_READERS_PER_CLIENT_MAX
from qm.model.values.results import count_of, number_of
from qm.model.values.rows import REQUEST_KEY
from qm.observe.metrics import Metrics

logger = logging.getLogger(__name__)

WAITING_READERS_MAX: Final = 16_384
"""On one node, streams included."""
WAITING_READERS_PER_PRINCIPAL_MAX: Final = 8_192
"""Of all clients of one principal."""
SWEEP_EVERY_S: Final = 1.0
"""Period at which waits check for an end not reported to this node: the number was answered
through another node, or the client, handle or queue is gone."""


class Reader:
    """One read in a line. `is_called` means that it should try now."""

    __slots__ = (
        "_is_called_again",
        "_news",
        "client_id",
        "cursor",
        "handle",
        "is_called",
        "is_closed",
        "is_destructive",
        "number",
        "principal",
        "wanted",
    )

    def __init__(
        self,
        client_id: str,
        handle: int,
        number: int,
        *,
        principal: str,
        is_destructive: bool,
        cursor: int = 0,
        news: asyncio.Event | None = None,
    ) -> None:
        """`number`: of its first request, 0 for a peek. `cursor`: 0 for a read without one.
        `principal`: whose client it is.

        `news` is set by every call.
        """
        self.client_id = client_id
        self.handle = handle
        self.number = number
        self.cursor = cursor
        self.principal = principal
        self.is_destructive = is_destructive
        self.is_closed = False
        """Its handle or cursor was closed, or this node is stopping."""
        self.wanted = 1
        """How many messages it can take."""
        self.is_called = False
        """It should try, or is trying."""
        self._is_called_again = False
        self._news = news if news is not None else asyncio.Event()

    def call(self) -> None:
        """Have it try, or try once more if it is trying."""
        self.is_called = self._is_called_again = True
        self._news.set()

    def close(self) -> None:
        """End its wait."""
        self.is_closed = True
        self.call()

    def begin(self) -> None:
        """Note that it tries now; later calls make it try again."""
        self._is_called_again = False

    def missed(self) -> None:
        """Note that it found nothing; it waits unless it was called again meanwhile."""
        self.is_called = self._is_called_again

    async def called(self, until: float | None) -> bool:
        """Wait to be called; False after `until`, monotonic seconds (None: never)."""
        left = None if until is None else until - monotonic()
        try:
            async with asyncio.timeout(left):
                while not self.is_called:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return self.is_called


_Line = dict[Reader, None]
"""Readers of one queue, in the order in which they came."""


class Waits(ClusterListener):
    """The lines of all queues; listens to the cluster."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._gauge = metrics.gauge("quorate_waiting_readers")
        self._lines: dict[int, _Line] = {}
        self._peeks: dict[int, _Line] = {}
        """Those of a line that take nothing: an arrival is for all of them."""
        self._count = 0
        self._by_client: Counter[str] = Counter()
        self._by_principal: Counter[str] = Counter()
        self._sweeping: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._stop_listening = cluster.listen(self)

    # Readers -----------------------------------------------------------------------------

    def join(self, queue_id: int, reader: Reader) -> None:
        """Put a reader at the end of its queue's line. Raises LimitReached, QuotaReached."""
        held = self._by_client[reader.client_id]
        if self._count >= WAITING_READERS_MAX or held >= WAITING_READERS_PER_CLIENT_MAX:
            raise LimitReached(
                f"{self._count} reads wait at this node and {held} of this client;"
                f" {WAITING_READERS_MAX} and {WAITING_READERS_PER_CLIENT_MAX} are allowed: ask"
                " another node, or wait with fewer"
            )
        if self._by_principal[reader.principal] >= WAITING_READERS_PER_PRINCIPAL_MAX:
            raise QuotaReached(
                "waits",
                f"{WAITING_READERS_PER_PRINCIPAL_MAX} reads and streams of {reader.principal!r}"
                " wait at this node: ask another node, or wait with fewer",
            )
        self._lines.setdefault(queue_id, {})[reader] = None
        if not reader.is_destructive:
            self._peeks.setdefault(queue_id, {})[reader] = None
        reader.is_closed = self._is_stopped
        self._count += 1
        self._by_client[reader.client_id] += 1
        self._by_principal[reader.principal] += 1
        self._gauge.set(self._count)
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.ensure_future(self._sweep())

    def leave(self, queue_id: int, reader: Reader) -> None:
        """Remove a reader from its line; its call passes to those behind it."""
        line = self._lines[queue_id]
        del line[reader]
        if not reader.is_destructive:
            del self._peeks[queue_id][reader]
            if not self._peeks[queue_id]:
                del self._peeks[queue_id]
        self._count -= 1
        self._gauge.set(self._count)
        for counts, key in (
            (self._by_client, reader.client_id),
            (self._by_principal, reader.principal),
        ):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        if not line:
            del self._lines[queue_id]
        elif reader.is_called:
            self._call(queue_id, line)

    def poke(self, client_id: str, first: int, count: int) -> None:
        """Have waits of these numbers check whether they were answered."""
        for reader in self._readers():
            if reader.client_id == client_id and first <= reader.number < first + count:
                reader.call()

    def close_handle(self, client_id: str, handle: int) -> None:
        """End waits behind a handle (DM-A19)."""
        for reader in self._readers():
            if reader.handle == handle and reader.client_id == client_id:
                reader.close()

    def close_cursor(self, cursor: int) -> None:
        """End waits at a cursor ([MS-MQDMPR] 3.1.7.1.2)."""
        for reader in self._readers():
            if reader.cursor == cursor:
                reader.close()

    def stop(self) -> None:
        """End all waits, as this node stops."""
        self._is_stopped = True
        self._stop_listening()
        for reader in self._readers():
            reader.close()
        if self._sweeping is not None:
            self._sweeping.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether this node is stopping."""
        return self._is_stopped

    def _readers(self) -> list[Reader]:
        return [reader for line in self._lines.values() for reader in line]

    # Calls -------------------------------------------------------------------------------

    def available(self, queue_id: int) -> int:
        """Return how many positions a read could take now, as far as this node knows."""
        try:
            queue = self._cluster.view.ledger.queue(queue_id)
        except Unavailable:
            return 0  # a snapshot is replacing the state; all are called afterwards
        return 0 if queue is None else queue.count() - sum(queue.locked)

    def _call(self, queue_id: int, line: _Line) -> None:
        """Call the first readers, as many as there are messages, and all that only look."""
        left = self.available(queue_id)
        if left <= 0:
            return
        for reader in list(self._peeks.get(queue_id, ())):
            reader.call()
        for reader in list(line):
            if left <= 0:
                return
            if reader.is_destructive:
                reader.call()
                left -= reader.wanted

    def expect(self, queues: Callable[[], Iterable[int]]) -> None:
        """Messages for queues are about to be proposed here: have the first reader of each that
        waits for a single one try, so that its try is in the messages' entry, or in the next.
        """
        if not self._lines:
            return
        for queue_id in queues():
            if queue_id in self._peeks:
                continue  # they are to see the message before it is taken
            first = None
            for reader in self._lines.get(queue_id, ()):
                if reader.is_destructive and reader.wanted == 1:
                    # One that tries already may miss, as its try may be in an earlier entry.
                    first = first if reader.is_called and first else reader
                    if not reader.is_called:
                        break
            if first is not None:
                first.call()

    @override
    def on_applied(self, applied: Applied) -> None:
        if not self._lines:
            return
        for queue_id in applied.woken_queue_ids:
            line = self._lines.get(queue_id)
            if line is not None:
                self._call(queue_id, line)

    @override
    def on_restored(self, index: int) -> None:
        for reader in self._readers():
            reader.call()

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        pass

    # Ends reported elsewhere -------------------------------------------------------------

    async def _sweep(self) -> None:
        while self._lines:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                for reader in self._ended():
                    reader.call()
            except Unavailable as error:
                logger.debug("waits will be checked later: %s", error)

    def _ended(self) -> Iterator[Reader]:
        """Yield waiting readers that should check again."""
        view, state = self._cluster.view, self._cluster.state
        highest: dict[str, int] = {}
        open_handles: dict[int, bool] = {}
        for queue_id, line in list(self._lines.items()):
            queue = view.ledger.queue(queue_id)
            is_gone = queue is None or queue.record.is_deleting
            for reader in [one for one in line if not one.is_called]:
                client_id, handle = reader.client_id, reader.handle
                if client_id not in highest:
                    client = get_client(view, client_id)
                    is_open = client is not None and client.is_open
                    highest[client_id] = client.highest_number if client and is_open else -1
                if handle not in open_handles:
                    open_handles[handle] = _is_open(state, handle)
                if (
                    is_gone
                    or highest[client_id] < 0
                    or not open_handles[handle]
                    or (0 < reader.number <= highest[client_id] and _is_answered(state, reader))
                ):
                    yield reader


def _is_open(state: State, handle: int) -> bool:
    return state.get(Table.OPEN, OPEN_RECORD_KEY.pack(OPEN_RECORD, handle)) is not None


def _is_answered(state: State, reader: Reader) -> bool:
    """Whether the reader's number has a result, requested through another node or call."""
    prefix = client_key(reader.client_id)
    high = prefix + REQUEST_KEY.pack(reader.number) + b"\0"
    rows = state.scan(Table.RESULT, prefix, high, 1, backward=True)
    return any(reader.number < number_of(row) + count_of(row) for _, row in rows)

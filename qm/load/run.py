"""One run of a load: senders at a given rate, receivers, a history, and the final verdict."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import Final

import msgspec

from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.errors import ClientError
from qm.load.caller import RecordingCaller
from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent, HistoryWriter, read_history
from qm.load.receiver import Mode, RecordingReceiver, record_remaining
from qm.load.sender import Address, RecordingSender
from qm.load.verdict import Verdict
from qm.load.watcher import RecordingWatcher
from qm.load.workload import Planned, Target, Workload, plan
from qm.session.limits import RETRY_CONNECT_TIMEOUT_MS

TICK_S: Final = 0.02
BACKLOG_MAX_COUNT: Final = 20_000
"""Default limit of a plan."""
ABORT_EVERY: Final = 5
"""Of this many transactions of a caller, one is aborted on purpose."""
MARKS_PER_S: Final = 10
"""Rate of each marker's messages to a watched queue."""
ABANDON_S: Final = 10.0
"""What is still reading then is cancelled."""
_POLL_S: Final = 0.02


class Reading(msgspec.Struct, frozen=True):
    """One receiver."""

    queue: str
    """Path name or format name."""
    mode: Mode = Mode.STREAM
    return_every: int = 0
    """Every n-th message (two-phase) or transaction is returned; 0: none."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does."""

    workload: Workload
    rate_per_s: float
    """Rate of each sender."""
    senders: Sequence[Sequence[Address]]
    """MSMQ endpoints of each sender, in the order of its attempts."""
    receivers: Sequence[Reading]
    watched: Target | None = None
    """A separate queue that markers write to and that has no readers: a peeker and a counter at
    each endpoint check that acknowledged messages are visible."""
    callers: int = 0
    """Senders that use calls, with transactions, of which every fifth is aborted."""
    endpoints: Sequence[str]
    """The nodes' APIs, for receivers and callers; each starts at a different one."""
    tls: Tls | None = None
    reconnect_s: float = RETRY_CONNECT_TIMEOUT_MS / 1000
    history: Path
    backlog_max: int = BACKLOG_MAX_COUNT
    """Unacknowledged messages above which a sender adds no more: it is behind its rate."""


class Run:
    """Use it as a context manager: entering connects all clients, leaving disconnects them.

    The verdict is based on the file that clients wrote, not on counters here.
    """

    def __init__(self, plan_: Plan) -> None:
        self._plan = plan_
        plan_.history.parent.mkdir(parents=True, exist_ok=True)
        plan_.history.unlink(missing_ok=True)
        self._writer = HistoryWriter(plan_.history)
        self.senders: list[RecordingSender] = []
        self.callers: list[RecordingCaller] = []
        self.receivers: list[RecordingReceiver] = []
        self.watchers: list[RecordingWatcher] = []
        self._messages: list[Iterator[Planned]] = []
        self._markers: list[tuple[RecordingSender, Iterator[Planned]]] = []
        self._clients: list[Client] = []
        self._reading: list[asyncio.Task[None]] = []
        self._calling: list[asyncio.Task[None]] = []

    # Figures for a display -----------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Messages that were sent at least once."""
        called = sum(caller.sent for caller in self.callers)
        return called + sum(sender.sent for sender in self.senders)

    @property
    def acknowledged(self) -> int:
        """Messages whose senders have their acknowledgement."""
        called = sum(caller.sent for caller in self.callers)
        return called + sum(sender.acknowledged for sender in self.senders)

    @property
    def received(self) -> int:
        """Messages whose read took effect."""
        return sum(receiver.received for receiver in self.receivers)

    @property
    def sessions(self) -> int:
        """MSMQ sessions that the senders have had."""
        return sum(sender.link.sessions for sender in self.senders)

    # The run -------------------------------------------------------------------------------

    async def __aenter__(self) -> "Run":
        plan_ = self._plan
        for number, reading in enumerate(plan_.receivers):
            client = await self._client(number)
            receiver = RecordingReceiver(
                f"receiver-{number + 1}",
                client,
                reading.queue,
                self._writer.write,
                mode=reading.mode,
                return_every=reading.return_every,
            )
            self.receivers.append(receiver)
            self._reading.append(asyncio.create_task(receiver.run()))
        for number, addresses in enumerate(plan_.senders, 1):
            sender = self._sender(f"sender-{number}", addresses, plan_.workload)
            self.senders.append(sender)
            self._messages.append(plan(plan_.workload, sender.client))
        if plan_.watched is not None:
            await self._watch(plan_.watched)
        for number in range(plan_.callers):
            self.callers.append(
                RecordingCaller(
                    f"caller-{number + 1}",
                    await self._client(number),
                    plan_.workload,
                    self._writer.write,
                    rate_per_s=plan_.rate_per_s,
                    abort_every=ABORT_EVERY,
                )
            )
            self._calling.append(asyncio.create_task(self.callers[-1].run()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for sender in self._every_sender():
                await sender.link.stop()
            for task in (*self._reading, *self._calling):
                task.cancel()
            await asyncio.gather(*self._reading, *self._calling, return_exceptions=True)
            for client in self._clients:
                await client.close(confirm=kind is None)
        finally:
            self._writer.close()

    async def send(self, duration_s: float) -> None:
        """Send at the plan's rate for a time. Raises the error that ended a receiver early."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        added = marked = 0
        while (passed := loop.time() - start) < duration_s:
            due = int(passed * self._plan.rate_per_s) - added
            for sender, messages in zip(self.senders, self._messages, strict=True):
                if sender.unacknowledged < self._plan.backlog_max:
                    sender.add([next(messages) for _ in range(due)])
            added += due
            due = int(passed * MARKS_PER_S) - marked
            for marker, marks in self._markers:
                if marker.unacknowledged < self._plan.backlog_max:
                    marker.add([next(marks) for _ in range(due)])
            marked += due
            self._raise_failures()
            await asyncio.sleep(TICK_S)

    async def settle(self, stall_s: float) -> bool:
        """Wait until everything sent is acknowledged and received; return whether that happened.

        Gives up after `stall_s` without progress. Receivers then stop. The verdict shows what is
        not settled.
        """
        for caller in self.callers:
            caller.stop()
        await asyncio.gather(*self._calling)
        loop = asyncio.get_running_loop()
        moved_at, seen = loop.time(), (0, 0)
        while not self._is_settled() and loop.time() < moved_at + stall_s:
            self._raise_failures()
            await asyncio.sleep(_POLL_S)
            now = (self.acknowledged, self.received)
            if now != seen:
                moved_at, seen = loop.time(), now
        is_settled = self._is_settled()
        self._stop_readers()
        await asyncio.gather(*self._reading)
        return is_settled

    async def abandon(self) -> None:
        """Stop readers and callers: one of them met an error that settling cannot fix. What their
        last reads took is recorded or returned, so that the verdict can tell it from what is lost.
        """
        self._stop_readers()
        for caller in self.callers:
            caller.stop()
        tasks = (*self._reading, *self._calling)
        if tasks:
            await asyncio.wait(tasks, timeout=ABANDON_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for receiver in self.receivers:
            with contextlib.suppress(ClientError):
                await receiver.recover()

    def fault(self, detail: str) -> None:
        """Record that a fault begins now."""
        self._mark(EventKind.FAULT, detail)

    def healed(self, detail: str) -> None:
        """Record that the fault has ended."""
        self._mark(EventKind.HEALED, detail)

    def elected(self, node: str) -> None:
        """Record that a node was seen to lead now."""
        self._mark(EventKind.ELECTED, node)

    async def verdict(self) -> Verdict:
        """Record what remains in the queues, and judge the histories."""
        queues = {reading.queue for reading in self._plan.receivers}
        if self._plan.watched is not None:
            queues.add(self._plan.watched.format_name)
        await record_remaining(self._clients[0], sorted(queues), self._writer.write)
        self._writer.flush()
        return judge(read_history(self._plan.history))

    def _sender(
        self, client: str, addresses: Sequence[Address], workload: Workload
    ) -> RecordingSender:
        """Return a sender that connects."""
        sender = RecordingSender(
            client,
            uuid.uuid4().bytes_le,
            addresses,
            workload.targets,
            self._writer.write,
            reconnect_s=self._plan.reconnect_s,
        )
        sender.link.start()
        return sender

    async def _watch(self, queue: Target) -> None:
        """Write to a queue and watch it through each endpoint."""
        marks = Workload(targets=(queue,), seed=self._plan.workload.seed)
        # Write at every node: messages do not get through at a node that is cut off but watched.
        for number, addresses in enumerate(self._plan.senders, 1):
            marker = self._sender(f"marker-{number}", addresses, marks)
            self._markers.append((marker, plan(marks, marker.client)))
        for number in range(len(self._plan.endpoints)):
            for name, kind in (("peeker", EventKind.PEEKED), ("counter", EventKind.COUNTED)):
                watcher = RecordingWatcher(
                    f"{name}-{number + 1}",
                    await self._client(number),
                    queue.format_name,
                    self._writer.write,
                    kind,
                )
                self.watchers.append(watcher)
                self._reading.append(asyncio.create_task(watcher.run()))

    def _every_sender(self) -> list[RecordingSender]:
        return [*self.senders, *(marker for marker, _ in self._markers)]

    async def _client(self, number: int) -> Client:
        endpoints = self._plan.endpoints
        turn = number % len(endpoints)
        client = Client(
            [*endpoints[turn:], *endpoints[:turn]],
            tls=self._plan.tls,
            client_id=f"load-{uuid.uuid4().hex}",
        )
        self._clients.append(client)
        await client.open()
        return client

    def _stop_readers(self) -> None:
        for receiver in self.receivers:
            receiver.stop()
        for watcher in self.watchers:
            watcher.stop()

    def _is_settled(self) -> bool:
        is_acknowledged = not any(sender.unacknowledged for sender in self._every_sender())
        return is_acknowledged and self.received >= self.sent

    def _raise_failures(self) -> None:
        for task in (*self._reading, *self._calling):
            if task.done():
                task.result()

    def _mark(self, kind: EventKind, detail: str) -> None:
        self._writer.write(HistoryEvent(monotonic_ns(), "runner", kind, detail=detail))

"""A cluster with a backlog, and a sender that probes it while something happens to its leader.

The probe is an MSMQ sender: a small recoverable message every few milliseconds over one session.
Its gap is the longest time between two advances of AckSequenceNumber while a message was
outstanding. All probes of a cluster are judged at the end: what was acknowledged is in its queue,
once.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from pathlib import Path

from qm.client.calls import Calls
from qm.client.client import Client
from qm.drill.leaders import leader_of
from qm.drill.targets.ability import Ability
from qm.drill.targets.process_target import ProcessTarget
from qm.drill.targets.target import DrillNode
from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent
from qm.load.receiver import record_remaining
from qm.load.sender import RecordingSender
from qm.load.timeline import acknowledgement_gaps, faults
from qm.load.verdict import Verdict
from qm.load.workload import Delivery, Planned, Target
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2
from qm.session.limits import RETRY_CONNECT_TIMEOUT_MS
from tests.bench.cluster_load import Sending
from tests.bench.load import load

PROBE_EVERY_S = 0.005
QUIET_S = 0.7
"""Of probing before the fault and after the first advance that follows it."""
GAP_WAIT_S = 30.0
RECONNECT_S = 0.25
"""Of a sender at the virtual address."""
LEAD_WAIT_S = 10.0
BACKLOG_BODY_BYTES = 256
BACKLOG_AT_ONCE = 100_000
BACKLOG_SESSIONS = 8
COMPUTER = "QUORATE"


class Happening(Enum):
    """What happens to the leader."""

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"
    TRANSFER = "transfer"
    ADDRESS = "address"
    """It is killed, and had the virtual address that the sender knows alone."""
    DEFAULT_TIMERS = "default-timers"
    """It is killed, and the sender's session with it, which waits as MSMQ does before it tries
    another address."""


class KeptTarget(ProcessTarget):
    """Its cluster outlives it: another process takes it up again with what is queued there."""

    @property
    def is_made(self) -> bool:
        return self._made.exists()

    @property
    def _made(self) -> Path:
        return self.folder / "made"

    def keep(self) -> None:
        """It has what it shall have."""
        self._made.touch()

    async def up(self) -> None:
        """See Target.up."""
        if not self.is_made:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            await super().up()
            return
        self._members = self._layout.nodes()
        await self.heal()


class Probed:
    """Use it as a context. One task."""

    def __init__(self, target: ProcessTarget, backlog: int) -> None:
        """`backlog`: messages in another queue than the probes', made where the target is not kept
        with them.
        """
        self.target = target
        self.backlog = backlog
        self._events: list[HistoryEvent] = []
        self._probes = 0
        self._senders = 0
        # Of this use alone: what an earlier one left is judged already, or never will be.
        self._probes_name = f"probes.{os.urandom(4).hex()}"
        self._queue = Target(f"DIRECT=OS:{COMPUTER}\\private$\\{self._probes_name}")

    async def __aenter__(self) -> "Probed":
        try:
            await self._make()
        except BaseException:
            await self.target.down()
            raise
        return self

    async def _make(self) -> None:
        await self.target.up()
        self._wire = Calls([node.api for node in self.target.nodes], self.target.tls)
        await self._create_queue(self._probes_name)
        if isinstance(self.target, KeptTarget) and not self.target.is_made:
            await self._create_queue("backlog")
            await self._fill()
            self.target.keep()

    async def _create_queue(self, name: str) -> None:
        request = control_pb2.CreateQueueRequest(path_name=f".\\private$\\{name}")
        await self._wire.call(lambda stubs: stubs.queues.CreateQueue, request)

    async def _fill(self) -> None:
        leader = self._node(await leader_of(self.target))
        for done in range(0, self.backlog, BACKLOG_AT_ONCE):
            work = Sending(
                host=leader.host,
                target=f"DIRECT=OS:{COMPUTER}\\private$\\backlog",
                sessions=BACKLOG_SESSIONS,
                messages=min(BACKLOG_AT_ONCE, self.backlog - done),
                body_bytes=BACKLOG_BODY_BYTES,
            )
            await asyncio.to_thread(lambda work: load(work).run(), work)

    async def __aexit__(self, *_: object) -> None:
        await self._wire.close()
        await self.target.down()

    async def gap_ms(self, what: Happening, turn: int) -> float:
        """Return what a sender at a node that is not struck sees, or one at the virtual address.

        `turn` chooses the node.
        """
        if what is Happening.ADDRESS:
            return await self._address_gap_ms()
        if what is Happening.DEFAULT_TIMERS:
            return await self._default_timers_gap_ms()
        leader = await leader_of(self.target)
        others = [node.name for node in self.target.nodes if node.name != leader]
        strike: Callable[[], Awaitable[None]]
        match what:
            case Happening.KILL:
                strike = lambda: self.target.kill(leader)  # noqa: E731
            case Happening.PAUSE:
                strike = lambda: self.target.pause(leader)  # noqa: E731
            case Happening.PARTITION:
                strike = lambda: self.target.partition([leader], others)  # noqa: E731
            case _:
                strike = lambda: self._transfer(others[turn % 2])  # noqa: E731
        # A transfer kills no node: the sender is in turn at the leader, its successor, the other.
        safe = [leader, *others] if what is Happening.TRANSFER else others
        return await self._gap_ms(strike, self._hosts(safe[turn % len(safe)]), QUIET_S)

    async def _address_gap_ms(self) -> float:
        """Kill the leader, which has the address as well."""
        address = await self.target.front(Ability.VIRTUAL_ADDRESS)
        holder = await self.target.holder()
        async with asyncio.timeout(LEAD_WAIT_S):
            while await leader_of(self.target) != holder:
                await self._transfer(holder)
        return await self._gap_ms(lambda: self.target.kill(holder), [address], RECONNECT_S)

    async def _default_timers_gap_ms(self) -> float:
        leader = await leader_of(self.target)
        others = [node.name for node in self.target.nodes if node.name != leader]
        reconnect_s = RETRY_CONNECT_TIMEOUT_MS / 1000
        hosts = self._hosts(leader, *others)
        return await self._gap_ms(lambda: self.target.kill(leader), hosts, reconnect_s)

    async def verdict(self) -> Verdict:
        """Judge all probes."""
        client = Client([node.api for node in self.target.nodes], tls=self.target.tls)
        await client.open()
        try:
            await record_remaining(client, [self._queue.format_name], self._events.append)
        finally:
            await client.close()
        return judge(self._events)

    # ---------------------------------------------------------------------------------------

    async def _gap_ms(
        self, strike: Callable[[], Awaitable[None]], hosts: Sequence[str], reconnect_s: float
    ) -> float:
        first = len(self._events)
        self._senders += 1
        sender = RecordingSender(
            f"prober-{self._senders}",
            os.urandom(16),
            [(host, MSMQ_PORT) for host in hosts],
            [self._queue],
            self._events.append,
            reconnect_s=reconnect_s,
        )
        sender.link.start()
        probing = asyncio.create_task(self._probe(sender))
        try:
            await self._advance(sender, 1)
            await asyncio.sleep(QUIET_S)
            self._events.append(
                HistoryEvent(time.monotonic_ns(), "runner", EventKind.FAULT, detail="fault")
            )
            await strike()
            # The messages that leave from now on are acknowledged by the leader at that time.
            await self._advance(sender, sender.sent + 1)
            await asyncio.sleep(QUIET_S)
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        await self._advance(sender, sender.sent)
        await sender.link.stop()
        await self.target.heal()
        events = self._events[first:]
        (fault,) = faults(events, acknowledgement_gaps(events))
        return fault.gap_ms

    async def _probe(self, sender: RecordingSender) -> None:
        number = 0
        while True:
            number += 1
            self._probes += 1
            name = f"probe-{self._probes}"
            body = name.encode() + b"\0"
            sender.add([Planned(name, 0, Delivery.RECOVERABLE, 3, number, body)])
            await asyncio.sleep(PROBE_EVERY_S)

    async def _advance(self, sender: RecordingSender, count: int) -> None:
        """Wait until this many messages of a sender are acknowledged."""
        async with asyncio.timeout(GAP_WAIT_S):
            while sender.acknowledged < count:
                await asyncio.sleep(PROBE_EVERY_S)

    async def _transfer(self, heir: str) -> None:
        request = control_pb2.TransferLeadershipRequest(to=heir)
        await self._wire.call(lambda stubs: stubs.cluster.TransferLeadership, request)

    def _hosts(self, *nodes: str) -> list[str]:
        return [self._node(name).host for name in nodes]

    def _node(self, name: str) -> DrillNode:
        return next(node for node in self.target.nodes if node.name == name)

"""Drivers in one loop over a memory network, on real folders, with a machine that keeps a list."""

import asyncio
import json
import random
import threading
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from raft.batch import split
from raft.core.core import CoreConfig
from raft.driver import Driver, DriverConfig
from raft.log.disk import DiskDirectory
from raft.log.files import Directory, FatalDiskError, File
from raft.machine import SnapshotSink, SnapshotSource
from raft.replica import Replica, ReplicaConfig
from raft.step import Alarm
from raft.transport.memory_transport import MemoryNetwork, MemoryTransport
from raft.transport.transport import TransportEvents
from raft.types import Configuration, Entry, NodeId, Role, SnapshotMeta, SoftState
from tests.unit.raft.nodes import FullDirectory
from tests.unit.raft.transport.worlds import run, until

GROUP = 1
CLUSTER = bytes(range(16))


class ListMachine:
    """Keeps every payload; the result of a payload is its place in the list. Durable at once."""

    def __init__(self, *, expects_prologue: bool) -> None:
        self._expects_prologue = expects_prologue
        self.prologues: list[str] = []
        self.payloads: list[str] = []
        self.entries = 0
        self.settled = 0
        """Entries up to the last `settle`."""
        self._index = 0
        self.durable = 0
        self.broken = False

    def applied_index(self) -> int:
        return self._index

    def durable_index(self) -> int:
        return self.durable

    def settle(self) -> None:
        """Remember how much was applied."""
        self.settled = self.entries

    def apply(self, entries: Sequence[Entry]) -> Sequence[Sequence[int]]:
        if self.broken:
            raise RuntimeError("the machine is broken")
        results = []
        for entry in entries:
            first = len(self.payloads)
            payloads = [bytes(payload).decode() for payload in split(entry.data)]
            if self._expects_prologue:
                self.prologues.append(payloads.pop(0))
            self.payloads += payloads
            results.append(range(first, len(self.payloads)))
            self._index = entry.index
            self.entries += 1
        return results

    def snapshot(self, meta_index: int) -> tuple[int, SnapshotSource]:
        return meta_index, _Source(json.dumps([meta_index, self.payloads]).encode())

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        return _Sink(self)

    def restore(self, data: bytes) -> None:
        self._index, self.payloads = json.loads(data)
        self.durable = self._index


class _Source:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def size_bytes(self) -> int:
        return len(self._data)

    def identity(self) -> bytes:
        return zlib.crc32(self._data).to_bytes(4, "big")

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def close(self) -> None:
        pass


class _Sink:
    def __init__(self, machine: ListMachine) -> None:
        self._machine = machine
        self._data = b""

    def offset(self) -> int:
        return len(self._data)

    def write(self, chunk: bytes) -> None:
        self._data += chunk

    def finish(self) -> None:
        self._machine.restore(self._data)

    def abandon(self) -> None:
        self._data = b""


class Disk:
    """What a member's syncs do."""

    def __init__(self) -> None:
        self.fails = False
        self._may_sync = threading.Event()
        self._may_sync.set()

    def hang(self) -> None:
        self._may_sync.clear()

    def go_on(self) -> None:
        self._may_sync.set()

    def sync(self, file: File) -> None:
        self._may_sync.wait()
        if self.fails:
            raise FatalDiskError("a made error")
        file.fdatasync()


class FaultyDirectory:
    """A folder on such a disk."""

    def __init__(self, inner: Directory, disk: Disk) -> None:
        self._inner = inner
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, name: str, *, create: bool = False) -> Any:
        return FaultyFile(self._inner.open(name, create=create), self._disk)

    def subdirectory(self, name: str) -> "FaultyDirectory":
        return FaultyDirectory(self._inner.subdirectory(name), self._disk)


class FaultyFile:
    def __init__(self, inner: File, disk: Disk) -> None:
        self._inner = inner
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def fdatasync(self) -> None:
        self._disk.sync(self._inner)


class Member:
    """One driver and what it reported to its owner. The machine outlives a restart, as if it were
    durable.
    """

    def __init__(self, group: "Group", node: NodeId, options: dict[str, Any]) -> None:
        self.group = group
        self.node = node
        self.options = options
        self.machine = ListMachine(expects_prologue="prologue" in options)
        self.full = [False]
        self.disk = Disk()
        self.states: list[SoftState] = []
        self.configurations: list[Configuration] = []
        self.alarms: list[Alarm] = []
        self.deaths: list[str] = []

    def _replica_config(self) -> ReplicaConfig:
        eager = {"election_ticks": 20} if self.node == self.group.eager else {}
        core = CoreConfig(self.node, GROUP, **self.options.get("core", {}) | eager)
        sizes = {"segment_bytes": 1 << 16, **self.options.get("replica", {})}
        return ReplicaConfig(core, CLUSTER, **sizes)

    def _directory(self) -> Directory:
        path = self.group.path / self.node
        path.mkdir(exist_ok=True)
        disk = FullDirectory(DiskDirectory(path).subdirectory("raft"), self.full)
        faulty: Any = FaultyDirectory(disk, self.disk)
        directory: Directory = faulty
        return directory

    def create(self, founders: Sequence[NodeId]) -> None:
        chance = random.Random(self.node).randrange
        members = Configuration(tuple(founders))
        Replica.create(self._replica_config(), self._directory(), members, chance)

    async def start(self) -> None:
        chance = random.Random(self.node).randrange
        replica = Replica(
            self._replica_config(), self._directory(), lambda log: self.machine, chance
        )

        def connect(events: TransportEvents) -> MemoryTransport:
            address = self.group.address(self.node)
            return MemoryTransport(self.group.network, CLUSTER, self.node, address, events, chance)

        config = DriverConfig(GROUP, **self.options.get("driver", {}))
        self.driver: Driver[int] = Driver(
            replica,
            connect,
            self.group.address,
            self,
            config,
            self.deaths.append,
            self.options.get("prologue"),
        )
        await self.driver.start()

    def on_soft_state(self, state: SoftState) -> None:
        self.states.append(state)

    def on_configuration(self, configuration: Configuration) -> None:
        self.configurations.append(configuration)

    def on_alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)


class Group:
    """Members `a.1`, `b.1`, ... and the network between them."""

    def __init__(self, path: Path, *, eager: NodeId = "", **options: Any) -> None:
        """`eager` campaigns soon, regardless of the options."""
        self.path = path
        self.eager = eager
        self.options = options
        self.network = MemoryNetwork()
        self.members: dict[NodeId, Member] = {}

    def __getitem__(self, node: NodeId) -> Member:
        return self.members[node]

    @staticmethod
    def address(node: NodeId) -> str:
        return f"at {node}"

    def add(self, node: NodeId) -> Member:
        self.members[node] = Member(self, node, self.options)
        return self.members[node]

    async def found(self, names: str = "abc") -> None:
        nodes = [f"{name}.1" for name in names]
        for node in nodes:
            self.add(node).create(nodes)
        for node in nodes:
            await self[node].start()

    async def leader(self, *, among: Sequence[NodeId] = ()) -> Member:
        """Wait until one of the members leads and the others follow it."""
        asked = [self[node] for node in among or self.members]

        def views() -> list[tuple[int, NodeId | None]]:
            return [(m.driver.status().term, m.driver.leader) for m in asked]

        await until(
            lambda: len(set(views())) == 1 and views()[0][1] in [m.node for m in asked], views
        )
        leader = views()[0][1]
        assert leader is not None
        return self[leader]

    async def followers(self) -> list[Member]:
        leader = await self.leader()
        return [member for member in self.members.values() if member is not leader]

    async def agree(self) -> list[str]:
        """Wait until every member that runs holds the same list; return it."""
        asked = [m for m in self.members.values() if not m.deaths]

        def lists() -> set[tuple[str, ...]]:
            return {tuple(member.machine.payloads) for member in asked}

        await until(lambda: len(lists()) == 1, lists)
        return list(lists().pop())

    def isolate(self, node: NodeId) -> None:
        for other in self.members:
            if other != node:
                self.network.block(node, other)

    def rejoin(self, node: NodeId) -> None:
        for other in self.members:
            self.network.unblock(node, other)

    async def close(self) -> None:
        for member in self.members.values():
            member.disk.go_on()
        await asyncio.gather(*(member.driver.abort() for member in self.members.values()))


def in_group(path: Path, body: Callable[[Group], Awaitable[None]], **options: Any) -> None:
    """Run a scenario in a fresh group, closed afterwards."""

    async def scenario() -> None:
        group = Group(path, **options)
        try:
            await body(group)
        finally:
            await group.close()

    work: Coroutine[Any, Any, None] = scenario()
    run(work)


def is_leading(member: Member) -> bool:
    return member.driver.role is Role.LEADER

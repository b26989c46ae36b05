"""Replicas on real folders: a machine that keeps a list, and a wire that tests cut."""

import errno
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from raft.core.state import CoreConfig
from raft.log.disk import DiskDirectory
from raft.log.files import Directory, File
from raft.log_view import SyncToken
from raft.machine import LogReader
from raft.replica import Alarm, AppliedEntry, Install, Replica, ReplicaConfig, SnapshotSend, Step
from raft.types import SNAPSHOT_REFUSED, Configuration, Entry, Envelope, NodeId, Role, SnapshotMeta

GROUP = 7
CLUSTER = b"sixteen bytes id"
CHUNK_BYTES = 16


class ListMachine:
    """Keeps (index, data) of everything applied; durable on request."""

    def __init__(self, path: Path, reader: LogReader) -> None:
        self._path = path
        self.reader = reader
        self.state: list[tuple[int, str]] = []
        self.retired: list[tuple[int, int]] = []
        self.sources: list[ListSource] = []
        self.is_full = False
        self.is_slow = False
        self._is_settled = True
        self._picture: tuple[int, ListSource] | None = None
        reader.on_retire(self._retire)
        if path.exists():
            self.state = [(index, data) for index, data in json.loads(path.read_text())]
        self._durable = self.applied_index()

    def _retire(self, first: int, last: int) -> None:
        self._check_space()
        self.retired.append((first, last))

    def _check_space(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def applied_index(self) -> int:
        """Return the last index of a DATA entry."""
        return self.state[-1][0] if self.state else 0

    def durable_index(self) -> int:
        """Return what the last flush wrote."""
        return self._durable

    def flush(self) -> None:
        """Make the state durable."""
        self._path.write_text(json.dumps(self.state))
        self._durable = self.applied_index()

    def settle(self) -> None:
        """Remember that it was asked for."""
        if not self._is_settled:
            self._check_space()
        self._is_settled = True

    def apply(self, entries: Sequence[Entry]) -> list[str]:
        """Remember; the result is the data in capitals."""
        self._check_space()
        self._is_settled = False
        self.state += [(entry.index, entry.data.decode()) for entry in entries]
        return [entry.data.decode().upper() for entry in entries]

    def snapshot(self, meta_index: int) -> "tuple[int, ListSource] | None":
        """Return the state as bytes; when it is slow, at the second question."""
        assert meta_index == self.applied_index()
        self._check_space()
        made, self._picture = self._picture, None
        if made is None:
            made = meta_index, ListSource(json.dumps(self.state).encode())
            self.sources.append(made[1])
            if self.is_slow:
                self._picture = made
                return None
        return made

    def receive_snapshot(self, meta: SnapshotMeta) -> "ListSink":
        """Receive beside the state."""
        return ListSink(self, meta)

    def install(self, state: list[tuple[int, str]]) -> None:
        """Take a snapshot's state, durably."""
        assert self._is_settled, "in another thread that would be too late"
        self.state = state
        self.flush()

    def data(self) -> list[str]:
        """Return what was applied."""
        return [data for _, data in self.state]


class ListSource:
    """A snapshot of a ListMachine."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_closed = False

    def size_bytes(self) -> int:
        """Return the length."""
        return len(self.data)

    def identity(self) -> bytes:
        """Return what tells it from others."""
        return zlib.crc32(self.data).to_bytes(4, "big")

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes."""
        assert not self.is_closed
        return self.data[offset : offset + length]

    def close(self) -> None:
        """Close."""
        assert not self.is_closed
        self.is_closed = True


class ListSink:
    """What a ListMachine receives."""

    def __init__(self, machine: ListMachine, meta: SnapshotMeta) -> None:
        self._machine = machine
        self._meta = meta
        self._data = b""

    def offset(self) -> int:
        """Return how much is held."""
        return len(self._data)

    def write(self, chunk: bytes) -> None:
        """Take a chunk."""
        self._data += chunk

    def finish(self) -> None:
        """Install. Raises ValueError for damaged bytes."""
        state = [(index, data) for index, data in json.loads(self._data)]
        if not state or state[-1][0] != self._meta.index:
            raise ValueError("another index")
        self._machine.install(state)

    def abandon(self) -> None:
        """Forget."""
        self._data = b""


class FullDirectory:
    """A folder whose disk can be full, or have no space for another segment."""

    def __init__(
        self, inner: Directory, full: list[bool], short: Sequence[bool] = (False,)
    ) -> None:
        self._inner = inner
        self.full = full
        self._short = short

    def open(self, name: str, *, create: bool = False) -> "File":
        """Open, with writes that may fail."""
        return FullFile(self._inner.open(name, create=create), self.full, self._short)

    def names(self) -> list[str]:
        """Forward to the folder."""
        return self._inner.names()

    def rename(self, old: str, new: str) -> None:
        """Forward to the folder."""
        self._inner.rename(old, new)

    def unlink(self, name: str) -> None:
        """Forward to the folder."""
        self._inner.unlink(name)

    def subdirectory(self, name: str) -> "FullDirectory":
        """Return a folder on the same disk."""
        return FullDirectory(self._inner.subdirectory(name), self.full, self._short)

    def sync(self) -> None:
        """Forward to the folder."""
        self._inner.sync()

    def close(self) -> None:
        """Forward to the folder."""
        self._inner.close()

    def free_bytes(self) -> int:
        """Return nothing when full."""
        return 0 if self.full[0] or self._short[0] else self._inner.free_bytes()


class FullFile:
    """A file on such a disk."""

    def __init__(self, inner: File, full: list[bool], short: Sequence[bool]) -> None:
        self._inner = inner
        self._full = full
        self._short = short

    def _check(self, *, is_larger: bool = False) -> None:
        if self._full[0] or (is_larger and self._short[0]):
            raise OSError(errno.ENOSPC, "No space left on device")

    def pread(self, length: int, offset: int) -> bytes:
        """Forward to the file."""
        return self._inner.pread(length, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Fail when full."""
        self._check()
        self._inner.pwrite(data, offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        """Fail when full."""
        self._check()
        self._inner.pwritev(buffers, offset)

    def write_out(self) -> None:
        """Forward to the file."""
        self._inner.write_out()

    def fdatasync(self) -> None:
        """Forward to the file."""
        self._inner.fdatasync()

    def allocate(self, length: int) -> None:
        """Fail when full or short."""
        self._check(is_larger=True)
        self._inner.allocate(length)

    def size(self) -> int:
        """Forward to the file."""
        return self._inner.size()

    def close(self) -> None:
        """Forward to the file."""
        self._inner.close()


@dataclass
class Node:
    """One replica and what it has said."""

    node: NodeId
    path: Path
    options: dict[str, int] = field(default_factory=dict)
    """Of ReplicaConfig; the core's are prefixed with `core_`."""
    full: list[bool] = field(default_factory=lambda: [False])
    short: list[bool] = field(default_factory=lambda: [False])
    auto_sync: bool = True
    auto_install: bool = True
    jitter: int = 40
    outbox: list[Envelope] = field(default_factory=list)
    syncs: list[SyncToken] = field(default_factory=list)
    installs: list[Install] = field(default_factory=list)
    snapshots: list[SnapshotSend] = field(default_factory=list)
    results: list[AppliedEntry[str]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    configurations: list[Configuration] = field(default_factory=list)
    restored: list[int] = field(default_factory=list)
    steps: list[Step[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.mkdir(exist_ok=True)

    @property
    def config(self) -> ReplicaConfig:
        """The settings."""
        core = {k.removeprefix("core_"): v for k, v in self.options.items() if k[:5] == "core_"}
        rest = {k: v for k, v in self.options.items() if k[:5] != "core_"}
        rest.setdefault("segment_bytes", 1 << 16)
        return ReplicaConfig(CoreConfig(self.node, GROUP, **core), CLUSTER, **rest)

    def directory(self) -> FullDirectory:
        """The folder of the replica."""
        disk = DiskDirectory(self.path).subdirectory("raft")
        return FullDirectory(disk, self.full, self.short)

    def random(self, n: int) -> int:
        """What the replica draws."""
        return min(self.jitter, n - 1)

    def create(self, founders: Configuration) -> "Node":
        """Prepare the folder."""
        Replica.create(self.config, self.directory(), founders, self.random)
        return self

    def start(self) -> "Node":
        """Open the replica."""
        self.replica: Replica[str] = Replica(
            self.config, self.directory(), self._new_machine, self.random
        )
        return self

    def _new_machine(self, reader: LogReader) -> ListMachine:
        self.machine = ListMachine(self.path / "state.json", reader)
        return self.machine

    def restart(self) -> "Node":
        """Close and open again."""
        self.replica.close()
        self.syncs.clear()
        self.outbox.clear()
        return self.start()

    def work(self) -> None:
        """Poll until there is nothing to do, or it waits for a sync or an install."""
        for _ in range(1000):
            if not self.replica.has_work():
                return
            self.step()
        raise AssertionError(f"{self.node} does not come to rest")

    def step(self) -> Step[str]:
        """One poll, its sync and install at once unless requested otherwise."""
        messages = self.replica.outgoing()
        step = self.replica.poll()
        step = msgspec.structs.replace(step, messages=messages + step.messages)
        self.steps.append(step)
        self.outbox += step.messages
        self.snapshots += step.snapshots
        self.results += step.results
        self.reads += step.reads
        self.alarms += step.alarms
        if step.restored_index:
            self.restored.append(step.restored_index)
        if step.configuration is not None:
            self.configurations.append(step.configuration)
        if step.sync is not None:
            self.syncs.append(step.sync)
            if self.auto_sync:
                self.finish_sync()
        if step.install is not None:
            self.installs.append(step.install)
            if self.auto_install:
                self.finish_install()
        return step

    def finish_sync(self) -> None:
        """Run the outstanding sync."""
        sync = self.syncs.pop(0)
        sync.run()
        self.replica.sync_done(sync)

    def finish_install(self) -> None:
        """Run the outstanding install."""
        install = self.installs.pop(0)
        install.run()
        self.replica.install_done(install)


class Cluster:
    """Nodes and what is between them."""

    def __init__(self, path: Path, names: str = "abc", **options: int) -> None:
        self.founders = Configuration(tuple(f"{name}.1" for name in names))
        self.path = path
        self.options = options
        self.nodes: dict[NodeId, Node] = {}
        self.cut: set[NodeId] = set()
        self.drops: Callable[[Envelope], bool] = lambda envelope: False
        for name in names:
            self.add(f"{name}.1").create(self.founders).start()

    def add(self, node: NodeId) -> Node:
        """Make a node, not created yet."""
        self.nodes[node] = Node(node, self.path / node, dict(self.options))
        return self.nodes[node]

    def join(self, node: NodeId) -> Node:
        """Make a node that waits to be added."""
        return self.add(node).create(Configuration(())).start()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name if "." in name else f"{name}.1"]

    def settle(self) -> None:
        """Poll and deliver until nothing moves."""
        for _ in range(2000):
            wire: list[Envelope] = []
            for node in self.nodes.values():
                node.work()
                wire += node.outbox
                node.outbox = []
                for send in node.snapshots:
                    self.send_snapshot(node, send)
                node.snapshots = []
            if not wire and not any(node.replica.has_work() for node in self.nodes.values()):
                return
            for envelope in wire:
                is_cut = bool({envelope.sender, envelope.to} & self.cut)
                if envelope.to in self.nodes and not is_cut and not self.drops(envelope):
                    self.nodes[envelope.to].replica.receive((envelope,))
        raise AssertionError("the cluster does not come to rest")

    def send_snapshot(self, sender: Node, send: SnapshotSend) -> None:
        """What a transport does."""
        receiver = self.nodes[send.to].replica
        offset = 0
        if send.to in self.cut:
            send.source.close()
            sender.replica.snapshot_done(send.to, False)
            return
        for _ in range(10_000):
            chunk = send.source.read(offset, CHUNK_BYTES)
            wanted = receiver.snapshot_chunk(sender.node, send.meta, offset, chunk)
            if wanted in (SNAPSHOT_REFUSED, send.meta.size_bytes):
                break
            offset = wanted
        send.source.close()
        sender.replica.snapshot_done(send.to, wanted == send.meta.size_bytes)

    def tick(self, count: int = 1, *names: str) -> None:
        """Let time pass."""
        for _ in range(count):
            for node in [self[name] for name in names] or list(self.nodes.values()):
                node.replica.tick()
            self.settle()

    def elect(self, name: str) -> Node:
        """Let a node win the first election."""
        self[name].replica.close()
        self[name].jitter = 0
        self[name].start()
        for _ in range(300):
            if self[name].replica.role is Role.LEADER:
                return self[name]
            self.tick()
        raise AssertionError(f"{name} was not elected")

    def leader(self) -> Node:
        """Return the leader of the newest term."""
        leaders = [node for node in self.nodes.values() if node.replica.role is Role.LEADER]
        return max(leaders, key=lambda node: node.replica.term)

    def propose(self, text: str) -> int:
        """Propose at the leader and let it settle."""
        index = self.leader().replica.propose(text.encode())
        self.settle()
        return index

    def close(self) -> None:
        """Close all."""
        for node in self.nodes.values():
            node.replica.close()

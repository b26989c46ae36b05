"""Receiving snapshots, and installing them across crashes."""

import contextlib
import errno
from collections.abc import Sequence
from random import Random

import pytest
from msgspec import structs

from raft.log.files import Directory, FatalDiskError
from raft.log.log import Log, LogConfig
from raft.machine import SnapshotSource
from raft.snapshot import INSTALL_FILE, SnapshotReceiver, recover
from raft.types import SNAPSHOT_REFUSED, Configuration, Entry, HardState, SnapshotMeta
from tests.unit.raft.log.faults import Disk, Loss, Stopped
from tests.unit.raft.log.test_log import entries, sync

MEMBERS = Configuration(("n1.1", "n2.1"))
CONFIG = LogConfig(group=1, salt=1, segment_bytes=4096)


def state_bytes(index: int) -> bytes:
    """The stream of a snapshot; any change in it is noticed."""
    return f"state at {index}".encode() + bytes([index % 251]) * index


def meta_of(index: int, term: int = 2) -> SnapshotMeta:
    return SnapshotMeta(index, term, MEMBERS, len(state_bytes(index)))


class Machine:
    """The smallest state machine: its state is an index, in a file replaced durably."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.fails: OSError | None = None
        if "state" not in directory.names():
            self.become(0)

    def become(self, index: int) -> None:
        file = self.directory.open("next", create=True)
        file.pwrite(index.to_bytes(8, "big"), 0)
        file.fdatasync()
        self.directory.rename("next", "state")
        self.directory.sync()

    def applied_index(self) -> int:
        return int.from_bytes(self.directory.open("state").pread(8, 0), "big")

    def durable_index(self) -> int:
        return self.applied_index()

    def settle(self) -> None:
        """Nothing was put off."""

    def apply(self, batch: Sequence[Entry]) -> Sequence[object]:
        self.become(batch[-1].index)
        return batch

    def snapshot(self, meta_index: int) -> tuple[int, SnapshotSource] | None:
        raise NotImplementedError

    def receive_snapshot(self, meta: SnapshotMeta) -> "Sink":
        return Sink(self, meta)


class Sink:
    """Keeps the bytes in their own file; its name identifies the snapshot."""

    def __init__(self, machine: Machine, meta: SnapshotMeta) -> None:
        self.machine = machine
        self.meta = meta
        self.name = f"received-{meta.index}"
        self.file = machine.directory.open(self.name, create=True)

    def offset(self) -> int:
        return self.file.size()

    def write(self, chunk: bytes) -> None:
        if self.machine.fails:
            raise self.machine.fails
        self.file.pwrite(chunk, self.file.size())

    def finish(self) -> None:
        if self.machine.fails:
            raise self.machine.fails
        if self.file.pread(1 << 20, 0) != state_bytes(self.meta.index):
            raise ValueError("other bytes")
        self.machine.become(self.meta.index)
        self.abandon()

    def abandon(self) -> None:
        self.machine.directory.unlink(self.name)


class Node:
    """A replica's parts on one disk, as they are after a start."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.machine = Machine(disk.root.subdirectory("machine"))
        self.log = Log.open(disk.root.subdirectory("log"), CONFIG)
        recover(disk.root, self.log, self.machine)
        self.receiver = SnapshotReceiver(disk.root, self.machine)

    def receive(self, index: int, *, chunk_bytes: int = 20, sender: str = "n2.1") -> int:
        """Take a snapshot as a sender would send it; return the bytes that were sent."""
        meta, data = meta_of(index), state_bytes(index)
        wanted = self.receiver.receive(sender, meta, 0, b"")
        sent = 0
        while wanted < meta.size_bytes:
            chunk = data[wanted : wanted + chunk_bytes]
            sent += len(chunk)
            wanted = self.receiver.receive(sender, meta, wanted, chunk)
        return sent

    def install(self) -> None:
        meta = self.receiver.finish()
        self.log.reset(meta)
        self.receiver.installed()

    def stands_at(self) -> tuple[int, int, int]:
        return self.machine.applied_index(), self.log.first_index() - 1, self.log.last_index()


@pytest.fixture
def node() -> Node:
    return Node(Disk())


class TestReceiving:
    def test_chunks_in_order_make_it_whole(self, node: Node) -> None:
        assert not node.receiver.is_whole()
        assert node.receive(100) == meta_of(100).size_bytes
        held = node.receiver.meta
        assert held == meta_of(100)
        assert node.receiver.is_whole()
        node.install()
        assert node.stands_at() == (100, 100, 100)
        assert node.log.snapshot_meta == meta_of(100)
        assert node.receiver.meta is None
        assert node.disk.root.names() == []

    def test_it_resumes_where_it_broke(self, node: Node) -> None:
        data = state_bytes(100)
        assert node.receiver.receive("n2.1", meta_of(100), 0, data[:40]) == 40
        assert node.receive(100) == len(data) - 40
        assert node.receiver.is_whole()

    def test_it_resumes_after_a_restart(self, node: Node) -> None:
        data = state_bytes(100)
        node.receiver.receive("n2.1", meta_of(100), 0, data[:40])
        again = Node(node.disk)
        assert again.receive(100) == len(data) - 40
        again.install()
        assert again.stands_at() == (100, 100, 100)

    @pytest.mark.parametrize("offset", [0, 39, 41, 10_000])
    def test_a_chunk_elsewhere_changes_nothing(self, node: Node, offset: int) -> None:
        node.receiver.receive("n2.1", meta_of(100), 0, state_bytes(100)[:40])
        assert node.receiver.receive("n2.1", meta_of(100), offset, b"x") == 40
        assert node.receive(100) == meta_of(100).size_bytes - 40
        node.receiver.finish()

    def test_a_chunk_that_overruns_changes_nothing(self, node: Node) -> None:
        data = state_bytes(100)
        assert node.receiver.receive("n2.1", meta_of(100), 0, data + b"x") == 0
        assert node.receiver.receive("n2.1", meta_of(100), 0, data) == len(data)
        assert node.receiver.receive("n2.1", meta_of(100), len(data), b"x") == len(data)
        node.receiver.finish()

    def test_a_newer_one_replaces_it(self, node: Node) -> None:
        node.receiver.receive("n2.1", meta_of(100), 0, state_bytes(100)[:40])
        assert node.receive(120) == meta_of(120).size_bytes
        assert "received-100" not in node.machine.directory.names()
        assert node.receiver.receive("n2.1", meta_of(100), 40, b"x") == SNAPSHOT_REFUSED
        node.install()
        assert node.stands_at() == (120, 120, 120)

    def test_another_sender_begins_again(self, node: Node) -> None:
        """Two nodes' snapshots of one index need not have the same bytes."""
        node.receiver.receive("n2.1", meta_of(100), 0, b"other bytes of the state")
        assert node.receive(100, sender="n3.1") == meta_of(100).size_bytes
        node.receiver.finish()

    def test_another_stream_of_the_same_sender_begins_again(self, node: Node) -> None:
        """It made its picture anew: index, term and size are the same, bytes need not be."""
        first = structs.replace(meta_of(100), identity=b"first")
        assert node.receiver.receive("n2.1", first, 0, state_bytes(100)[:40]) == 40
        assert node.receiver.receive("n2.1", first, 40, b"") == 40
        second = structs.replace(first, identity=b"second")
        node.receiver.receive("n2.1", second, 40, b"x")
        assert node.receiver.meta == second

    def test_what_was_held_of_another_size_is_forgotten(self, node: Node) -> None:
        data = state_bytes(100)
        node.receiver.receive("n2.1", meta_of(100), 0, data)
        smaller = SnapshotMeta(100, 2, MEMBERS, 50)
        again = Node(node.disk)
        assert again.receiver.receive("n2.1", smaller, 0, b"") == 0

    def test_bytes_that_do_not_prove_themselves_are_forgotten(self, node: Node) -> None:
        size = meta_of(100).size_bytes
        node.receiver.receive("n2.1", meta_of(100), 0, bytes(size))
        with pytest.raises(ValueError, match="other bytes"):
            node.receiver.finish()
        assert node.stands_at() == (0, 0, 0)
        assert node.disk.root.names() == []
        assert node.receive(100) == size
        node.install()
        assert node.stands_at() == (100, 100, 100)

    def test_it_must_be_whole_to_be_installed(self, node: Node) -> None:
        with pytest.raises(ValueError, match="not whole"):
            node.receiver.finish()
        node.receiver.receive("n2.1", meta_of(100), 0, b"some")
        with pytest.raises(ValueError, match="not whole"):
            node.receiver.finish()

    def test_it_may_be_abandoned(self, node: Node) -> None:
        node.receive(100)
        node.receiver.abandon()
        assert node.receiver.meta is None
        assert "received-100" not in node.machine.directory.names()
        node.receiver.abandon()

    def test_a_full_disk_refuses_for_now(self, node: Node) -> None:
        node.receiver.receive("n2.1", meta_of(100), 0, state_bytes(100)[:40])
        node.machine.fails = OSError(errno.ENOSPC, "no space")
        assert node.receiver.receive("n2.1", meta_of(100), 40, b"x") == SNAPSHOT_REFUSED
        node.machine.fails = None
        assert node.receive(100) == meta_of(100).size_bytes - 40
        node.machine.fails = OSError(errno.ENOSPC, "no space")
        with pytest.raises(ValueError, match="no space"):
            node.receiver.finish()
        assert node.disk.root.names() == []

    def test_a_failing_disk_is_no_full_one(self, node: Node) -> None:
        node.machine.fails = FatalDiskError("the disk does not take it")
        with pytest.raises(FatalDiskError):
            node.receiver.receive("n2.1", meta_of(100), 0, b"x")
        node.machine.fails = None
        node.receive(100)
        node.machine.fails = FatalDiskError("the disk does not take it")
        with pytest.raises(FatalDiskError):
            node.receiver.finish()


def run(node: Node) -> None:
    """Entries, a snapshot in their place, more entries, and another snapshot."""
    node.log.append(HardState(1, "n1.1", 0), entries(1, 60))
    sync(node.log)
    node.machine.become(40)
    node.receive(100)
    node.install()
    node.log.append(HardState(2, None, 100), entries(101, 130, 2))
    sync(node.log)
    node.machine.become(110)
    node.receive(125)
    node.receiver.abandon()
    node.receive(150)
    node.install()


LEGAL = {
    (0, 0, 0),
    (40, 0, 59),
    (100, 100, 100),
    (110, 100, 129),
    (150, 150, 150),
}


def test_a_crash_anywhere_leaves_a_state_and_a_log_that_belong_together() -> None:
    whole = Disk()
    run(Node(whole))
    seen = set()
    for stop_at in range(whole.operations + 1):
        for seed, loss in enumerate(Loss):
            disk = Disk()
            disk.stop_at = stop_at
            with contextlib.suppress(Stopped):
                run(Node(disk))
            node = Node(disk.after_crash(loss, Random(stop_at * 10 + seed)))
            applied, first, last = node.stands_at()
            assert first <= applied <= last, (stop_at, loss)
            assert node.log.term(applied) == (0 if applied == 0 else 1 if applied < 100 else 2)
            assert INSTALL_FILE not in node.disk.root.names()
            seen.add((applied, first, last))
            node.receive(200)
            node.install()
            assert Node(node.disk).stands_at() == (200, 200, 200)
    assert seen >= LEGAL


def test_a_crash_during_recovery_is_no_other_one() -> None:
    disk = Disk()
    node = Node(disk)
    node.log.append(HardState(1, "n1.1", 0), entries(1, 60))
    sync(node.log)
    node.receive(100)
    node.receiver.finish()
    recovered = disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
    Node(recovered)
    for stop_at in range(recovered.operations + 1):
        for loss in Loss:
            half = disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
            half.stop_at = stop_at
            with contextlib.suppress(Stopped):
                Node(half)
            after = half.after_crash(loss, Random(stop_at))
            assert Node(after).stands_at() == (100, 100, 100)


@pytest.mark.parametrize("applied", [0, 40, 59])
def test_a_note_that_came_before_the_state_is_forgotten(applied: int) -> None:
    """Step 1 happened, step 2 did not."""
    disk = Disk()
    node = Node(disk)
    node.log.append(HardState(2, None, 0), entries(1, 60, 2))
    sync(node.log)
    node.machine.become(applied)
    node.receive(50)
    disk.stop_at = disk.operations + 5
    with pytest.raises(Stopped):
        node.receiver.finish()
    after = disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
    assert after.root.names() == [INSTALL_FILE]
    assert Node(after).stands_at() == (applied, 0, 59)


def test_a_log_that_continues_the_snapshot_is_kept() -> None:
    disk = Disk()
    node = Node(disk)
    node.log.append(HardState(2, None, 0), entries(1, 60, 2))
    sync(node.log)
    node.receive(50)
    node.receiver.finish()
    assert Node(disk).stands_at() == (50, 0, 59)


def test_a_log_that_begins_just_behind_the_snapshot_is_kept() -> None:
    disk = Disk()
    node = Node(disk)
    node.log.append(HardState(2, None, 0), entries(1, 60, 2))
    sync(node.log)
    node.log.compact(SnapshotMeta(51, 2, MEMBERS, 1))
    sync(node.log)
    node.receive(50)
    node.receiver.finish()
    assert Node(disk).stands_at() == (50, 51, 59)


def test_a_log_of_another_term_is_dropped() -> None:
    disk = Disk()
    node = Node(disk)
    node.log.append(HardState(2, None, 0), entries(1, 60, 1))
    sync(node.log)
    node.receive(50)
    node.receiver.finish()
    assert Node(disk).stands_at() == (50, 50, 50)


def test_a_damaged_note_is_no_note() -> None:
    disk = Disk()
    node = Node(disk)
    node.receive(50)
    node.receiver.finish()
    disk.root.bytes_of(INSTALL_FILE)[-1] ^= 1
    assert Node(disk).stands_at() == (50, 0, 0)

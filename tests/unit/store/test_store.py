"""The store over a real log: bodies wherever they are, replay, batch sizes, audit marks."""

import errno
import os
import shutil
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, EdgeBatch, Facts, Stamp
from qm.model.values.effects import Applied
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.results import RequestResult, columns_of
from qm.model.values.rows import POSITION_KEY, unpack_position
from qm.security.body_seals import BodyOpener, BodySealer, is_sealed
from qm.store.audit import prove
from qm.store.bodies import blobs as blobs_module
from qm.store.bodies import body_places as bodies_module
from qm.store.bodies.blobs import Blobs
from qm.store.bodies.body_places import BodyDamaged, BodyPlace, BodyPlaces
from qm.store.codec import encode_command, encode_stamp
from qm.store.effects.chain import hashed
from qm.store.rocks import RocksState
from qm.store.snapshot import Manifest
from qm.store.store import Diverged, Store
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.packets.user_message import parse_user_message
from raft.batch import BatchBuilder
from raft.log.disk import DiskDirectory
from raft.log.files import Directory
from raft.log.log import Log, LogConfig
from raft.replica import StartRefused
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta
from tests.unit.model.world import (
    HOST,
    NOW_MS,
    OWN,
    PEER,
    PEER_ADDRESS,
    direct,
    packet,
    request,
    results_of,
)

ORDERS = f"DIRECT=OS:{HOST}\\orders"
CACHE_BYTES = 1 << 20


def data(*batch: Command, version: int = APPLY_VERSION, is_hashed: bool = False) -> bytes:
    """Return an entry's; `is_hashed`: its stamp says its hash."""
    builder = BatchBuilder()
    for command in batch:
        builder.add(encode_command(command))
    stamp = Stamp(NOW_MS, "n1.1", version)
    return builder.build(hashed(stamp, builder.payloads) if is_hashed else encode_stamp(stamp))


def arrivals(*packets: bytes) -> EdgeBatch:
    offsets = [0]
    for raw in packets:
        offsets.append(offsets[-1] + len(raw))
    return EdgeBatch(
        "n1",
        1,
        memoryview(b"".join(packets)),
        0,
        array("I", offsets),
        array("I", [zlib.crc32(raw) for raw in packets]),
        bytes(len(packets)),
        (Facts(1, PEER, PEER_ADDRESS, ()),),
        0,
        0,
    )


def setup_commands() -> list[Command]:
    journaling = {"journaling": encode_attribute(True)}
    return [
        commands.LeaderActivated(1, "n1", is_archived=True),
        commands.Provision(OWN, HOST, "", (), bytes(16), 1, b"", b""),
        commands.CreateQueue(request(), b"o" * 16, b"j" * 16, ".\\orders", {}, b"", ()),
        commands.CreateQueue(request(), b"k" * 16, b"l" * 16, ".\\kept", journaling, b"", ()),
        commands.OpenClient("c", "p", 60_000),
        commands.OpenQueue(request(1, "c"), ORDERS, 0, 0, ()),
    ]


def receive(first: int, count: int, confirmed_upto: int = 0) -> commands.ReceiveRun:
    return commands.ReceiveRun("c", 1, 6, first, count, confirmed_upto)


class Node:
    """A log and a store in one folder, without consensus."""

    def __init__(
        self, path: Path, *, keeps_effects: bool = False, directory: Directory | None = None
    ) -> None:
        """`directory`: where the log is, if it is not in the folder."""
        self.path = path
        self.keeps_effects = keeps_effects
        path.mkdir(exist_ok=True)
        self.directory = directory or DiskDirectory(path)
        config = LogConfig(1, 7, segment_bytes=64 * 1024, spare_segments=0)
        self.log = Log.open(self.directory.subdirectory("log"), config)
        self.store = Store(
            path / "store", self.log, cache_bytes=CACHE_BYTES, keeps_effects=keeps_effects
        )
        self.replay()

    def replay(self) -> None:
        """Apply what the log has and the state lacks."""
        low = self.store.applied_index() + 1
        while low <= self.log.last_index():
            entries = self.log.entries(low, self.log.last_index() + 1, 1 << 20)
            self.store.apply(entries)
            self.store.settle()
            low = entries[-1].index + 1

    def put(
        self,
        *batches: Sequence[Command],
        in_one_apply: bool = False,
        version: int = APPLY_VERSION,
        is_hashed: bool = False,
    ) -> list[Applied]:
        """Append entries, sync, apply, settle."""
        entries = self.append(*batches, version=version, is_hashed=is_hashed)
        runs = [entries] if in_one_apply else [[entry] for entry in entries]
        results = [applied for run in runs for applied in self.store.apply(run)]
        self.store.settle()
        return results

    def append(
        self,
        *batches: Sequence[Command],
        version: int = APPLY_VERSION,
        is_hashed: bool = False,
    ) -> list[Entry]:
        """Append entries, and sync."""
        first = self.log.last_index() + 1
        entries = [
            Entry(first + k, 1, EntryKind.DATA, data(*batch, version=version, is_hashed=is_hashed))
            for k, batch in enumerate(batches)
        ]
        self.log.append(None, entries)
        sync = self.log.begin_sync()
        sync.run()
        self.log.end_sync(sync)
        return entries

    def compact(self) -> None:
        """Drop every whole segment that the state does not need."""
        self.store.flush()
        self.drop()

    def drop(self) -> None:
        """Drop what the state that was flushed last does not need."""
        index = self.store.durable_index()
        configuration = Configuration(("n1.1",))
        self.log.compact(SnapshotMeta(index, self.log.term(index), configuration, 0))

    def reopen(self) -> "Node":
        self.close()
        return Node(self.path, keeps_effects=self.keeps_effects)

    def close(self) -> None:
        self.store.close()
        self.log.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    return node


def place(result: RequestResult) -> BodyPlace:
    return BodyPlace(
        result.body_index,
        result.body_offset,
        result.body_length,
        result.body_ordinal,
        result.body_crc32,
    )


def places(results: Sequence[RequestResult]) -> BodyPlaces:
    columns = columns_of(results)
    return BodyPlaces(
        columns.body_indexes,
        columns.body_offsets,
        columns.body_lengths,
        columns.body_ordinals,
        columns.body_crc32s,
    )


def received(applied: Applied) -> list[RequestResult]:
    return results_of(applied.outcomes[0].value)


def test_a_body_is_the_packet_that_came(node: Node) -> None:
    packets = [packet(n, body=bytes([n]) * 50) for n in range(1, 4)]
    node.put([commands.Confirm("c", 0), arrivals(*packets[:2]), arrivals(packets[2])])
    (applied,) = node.put([receive(2, 3)])
    assert [node.store.bodies.read(place(r)) for r in received(applied)] == packets
    node.close()


def test_living_bodies_outlive_their_segment_and_dead_ones_do_not(node: Node) -> None:
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 500) for n in range(1, 201)}
    for n in range(1, 201, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
    (applied,) = node.put([receive(2, 150)])
    results = received(applied)
    node.put([commands.Confirm("c", results[99].number)])
    node.compact()
    assert node.log.first_index() > 2
    for result in results[100:]:
        assert node.store.bodies.read(place(result)) == packets[result.message_ordinal]
    with pytest.raises(BodyDamaged):
        node.store.bodies.read(place(results[0]))
    node = node.reopen()
    assert node.store.bodies.read(place(results[-1])) == packets[150]
    node.put([receive(152, 50)], [commands.Confirm("c", 300)])
    node.compact()
    node.compact()
    assert node.directory.subdirectory("store").subdirectory("g-00000001").subdirectory(
        "blobs"
    ).names() in (
        [],
        ["blob-00000001"],
    )
    node.close()


def test_bodies_that_were_moved_ahead_are_not_moved_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "MOVED_AHEAD_BYTES", 30_000)
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 500) for n in range(1, 201)}
    for n in range(1, 201, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
    bodies = node.store.bodies
    first, last = node.log.first_index(), node.log.retirable(node.store.applied_index())
    assert first < last < node.store.applied_index()
    steps = 1
    while bodies.move_ahead(node.store.applied_index()):
        steps += 1
    assert steps > 2
    node.put([receive(2, 30)], [commands.Confirm("c", 20)])  # some die between
    sync = bodies.begin_sync()
    sync.run()
    bodies.end_sync(sync)
    monkeypatch.setattr(Blobs, "append", None)
    node.compact()
    assert node.log.first_index() == last + 1
    monkeypatch.undo()
    node = node.reopen()
    assert node.store.verify()
    (applied,) = node.put([receive(32, 200)])
    results = received(applied)
    assert [r.message_ordinal for r in results] == list(range(31, 201))
    for result in results:
        assert node.store.bodies.read(place(result)) == packets[result.message_ordinal]
    node.close()


def test_after_a_start_what_was_moved_is_looked_at_in_steps_and_not_moved_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    while node.store.bodies.move_ahead(node.store.applied_index()):
        pass
    node.store.bodies.settle()
    node = node.reopen()
    monkeypatch.setattr(bodies_module, "LOOKED_AHEAD_ENTRIES", 2)
    monkeypatch.setattr(Blobs, "append", None)
    steps = 1
    while node.store.bodies.move_ahead(node.store.applied_index()):
        steps += 1
    assert steps > 2
    node.compact()
    assert node.log.retirable(node.store.applied_index()) < node.log.first_index()
    node.close()


def test_what_was_applied_is_seen_at_once_and_written_when_it_is_settled(node: Node) -> None:
    written = node.store.applied.index
    (entry,) = node.append([arrivals(packet(1), packet(2))])
    node.store.apply([entry])
    low, high = POSITION_KEY.pack(0, 0), POSITION_KEY.pack(99, 0)
    assert len(node.store.state.scan(Table.POSITION, low, high, 9)) == 2
    assert node.store.state.applied.index == written
    node.store.flush()
    assert node.store.durable_index() == written, "the log keeps what is not in a batch"
    settled = node.store.applied
    assert settled.index == entry.index
    node.store.flush()
    assert node.store.durable_index() == entry.index
    assert node.reopen().store.applied == settled


def test_what_was_not_settled_is_replayed(node: Node) -> None:
    batches = [arrivals(packet(1), packet(2))], [receive(2, 1)], [arrivals(packet(3))]
    entries = node.append(*batches)
    for entry in entries:
        node.store.apply([entry])
    assert node.store.state.applied.index == entries[-2].index, "the next apply settles the last"
    node = node.reopen()
    assert node.store.applied.index == entries[-1].index
    assert node.store.verify()
    other = Node(node.path.with_name("other"))
    other.put(setup_commands(), *batches)
    assert other.store.applied == node.store.applied


def test_whoever_commits_in_between_commits_what_was_applied(node: Node) -> None:
    """Its batch and its index belong together: a power loss would leave the one without the
    other.
    """
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2000)) for k in range(n, n + 10)))])
    (entry,) = node.append([receive(2, 30), arrivals(packet(500))])
    node.store.apply([entry])
    bodies = node.store.bodies
    while bodies.move_ahead(entry.index):
        pass
    sync = bodies.begin_sync()
    sync.run()
    (later,) = node.append([receive(32, 10)])
    node.store.apply([later])
    bodies.end_sync(sync)
    assert node.store.state.applied.index == later.index
    node.store.flush()
    assert node.store.durable_index() == later.index
    assert node.store.verify()
    node.close()


def test_a_move_that_failed_is_made_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 300) for n in range(1, 121)}
    for n in range(1, 121, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
    blobs = node.store.bodies._blobs
    moved: list[int] = []

    def append(index: int, *arguments: Any) -> None:
        if len(moved) == 2:
            raise OSError(errno.ENOSPC, "the disk is full")
        moved.append(index)
        Blobs.append(blobs, index, *arguments)

    monkeypatch.setattr(blobs, "append", append)
    with pytest.raises(OSError, match="full"):
        node.compact()
    monkeypatch.undo()
    node.put([arrivals(packet(999))])
    tables = {key[0] for key, _ in node.store._state.rows()}
    assert Table.BLOB not in tables, "a row must not name bytes that were not synced"
    node.compact()
    assert node.log.first_index() > max(moved)
    node = node.reopen()
    (applied,) = node.put([receive(2, 120)])
    results = received(applied)
    assert [r.message_ordinal for r in results] == list(range(1, 121))
    for result in results:
        assert node.store.bodies.read(place(result)) == packets[result.message_ordinal]
    node.close()


def test_sparse_blob_files_are_emptied(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 20_000)
    packets = {n: packet(n, body=bytes(1000)) for n in range(1, 101)}
    for n in range(1, 101, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
    for n in range(60):
        node.put([arrivals(packet(1000 + n, body=bytes(2000)))])
    node.compact()
    blobs = node.directory.subdirectory("store").subdirectory("g-00000001").subdirectory("blobs")
    before = len(blobs.names())
    assert before > 3
    (applied,) = node.put([receive(2, 90)])
    results = received(applied)
    keep = [r for r in results if r.message_ordinal % 30 == 0]
    node.put([commands.Confirm("c", keep[0].number - 1)])
    while node.store.bodies.empty_sparse():
        node.store.bodies.settle()
    node.store.bodies.settle()
    assert len(blobs.names()) < before
    assert node.store.bodies.read(place(keep[0])) == packets[keep[0].message_ordinal]
    node.close()


def test_dropping_entries_whose_bodies_are_durable_elsewhere_flushes_and_removes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take a disk tens of milliseconds, and the loop waits while entries are dropped."""
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 20_000)
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    bodies = node.store.bodies
    while bodies.move_ahead(node.store.applied_index()):
        pass
    sync = bodies.begin_sync()
    sync.run()
    bodies.end_sync(sync)
    node.put([receive(2, 60)], [commands.Confirm("c", 61)])
    bodies.end_sync(bodies.begin_sync())  # finds files that are empty now
    node.store.flush()
    flush = RocksState.flush
    monkeypatch.setattr(RocksState, "flush", None)
    blobs = node.directory.subdirectory("store").subdirectory("g-00000001").subdirectory("blobs")
    before = blobs.names()
    last = node.log.retirable(node.store.applied_index())
    node.drop()
    assert node.log.first_index() == last + 1
    assert blobs.names() == before
    monkeypatch.setattr(RocksState, "flush", flush)
    bodies.begin_removal().run()
    assert len(blobs.names()) < len(before)
    node = node.reopen()
    assert node.store.verify()
    (applied,) = node.put([receive(62, 140)])
    assert len(received(applied)) == 140
    for result in received(applied):
        assert node.store.bodies.read(place(result))
    node.close()


@pytest.mark.parametrize("is_moved_ahead", [False, True])
def test_a_state_that_a_power_cut_brings_back_misses_no_bodies(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_moved_ahead: bool
) -> None:
    """It may be older than the removal of a message, whose entry must not be gone by then."""
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    (applied,) = node.put([receive(2, 200)])
    node.store.flush()
    node.put([commands.Confirm("c", 201)])
    bodies = node.store.bodies
    if is_moved_ahead:
        assert not bodies.move_ahead(node.store.applied_index())
        bodies.end_sync(bodies.begin_sync())
    last = node.log.retirable(node.store.durable_index())
    node.drop()
    assert node.log.first_index() == last + 1 > received(applied)[0].body_index
    cut = node.path.with_name("cut")
    shutil.copytree(node.path, cut)  # closing would write what was not flushed
    node.close()
    with monkeypatch.context() as patched:
        patched.setattr(Node, "replay", lambda node: None)  # the log's end, too, may be gone
        node = Node(cut)
    assert not [one for one in received(applied) if node.store.bodies.is_damaged(place(one))]
    node.store.bodies.move_ahead(node.store.applied_index())
    node.replay()
    assert node.store.verify()
    node.close()


def test_bodies_that_wait_for_their_sync_are_durable_before_their_entries_go(node: Node) -> None:
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    (applied,) = node.put([receive(2, 200)])
    node.store.flush()
    index = node.store.durable_index()
    meta = SnapshotMeta(index, node.log.term(index), Configuration(("n1.1",)), 0)
    for first in (1, node.log.oldest_end() + 1):  # nothing is applied between the two
        assert node.log.first_index() == first
        node.log.compact(meta, is_careful=True)
        node.store.bodies.move_ahead(index)
    cut = node.path.with_name("cut")
    shutil.copytree(node.path, cut)
    node.close()
    node = Node(cut)
    assert not [one for one in received(applied) if node.store.bodies.is_damaged(place(one))]
    node.close()


def test_a_damaged_body_is_not_served(node: Node) -> None:
    node.put([arrivals(packet(1))])
    (applied,) = node.put([receive(2, 1)])
    (result,) = received(applied)
    body = msgspec.structs.replace(place(result), crc32=result.body_crc32 ^ 1)
    with pytest.raises(BodyDamaged, match="checksum"):
        node.store.bodies.read(body)
    node.close()


def test_bodies_are_read_together_wherever_they_lie(node: Node) -> None:
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 500) for n in range(1, 101)}
    for n in range(1, 101, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
    (applied,) = node.put([receive(2, 100)])
    results = received(applied)
    node.compact()
    assert node.log.first_index() > results[0].body_index, "some bodies have moved to blobs"
    assert node.log.first_index() <= results[-1].body_index, "some are still in the log"
    for some in (results, results[::-1], results[::3], results[5:25], results[:1], []):
        read = node.store.bodies.read_all(places(some))
        wanted = [packets[result.message_ordinal] for result in some]
        assert read.block == b"".join(wanted)
        assert list(read.lengths) == [len(one) for one in wanted]
    node.close()


def test_one_damaged_body_among_neighbours_is_not_served(node: Node) -> None:
    node.put([arrivals(*(packet(n) for n in range(1, 4)))])
    (applied,) = node.put([receive(2, 3)])
    results = received(applied)
    results[1] = msgspec.structs.replace(results[1], body_crc32=results[1].body_crc32 ^ 1)
    with pytest.raises(BodyDamaged, match=r"body 1 .* checksum"):
        node.store.bodies.read_all(places(results))
    node.close()


def workload() -> list[list[Command]]:
    batches: list[list[Command]] = [setup_commands()]
    for n in range(1, 60, 4):
        batches.append([arrivals(*(packet(k, priority=k % 8) for k in range(n, n + 4)))])
        batches.append([receive(n + 1, 2), receive(n + 3, 1, confirmed_upto=max(n - 4, 0))])
    batches.append([commands.PurgeQueue(request(), 6, ()), commands.PurgeStep(6, 100)])
    return batches


def test_batch_sizes_and_restarts_change_nothing(tmp_path: Path) -> None:
    singly, together, restarted = (Node(tmp_path / name) for name in ("a", "b", "c"))
    singly.put(*workload())
    together.put(*workload(), in_one_apply=True)
    for batch in workload():
        restarted.put(batch)
        restarted = restarted.reopen()
    for node in (singly, together, restarted):
        assert node.store.verify()
    digests = {node.store.applied.digest for node in (singly, together, restarted)}
    assert len(digests) == 1
    for node in (singly, together, restarted):
        node.close()


def test_a_crash_before_a_flush_is_replayed_from_the_log(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(*workload()[:10])
    node.store.flush()
    node.put(*workload()[10:])
    digest = node.store.applied.digest
    node.log.close()  # the store's memory is lost with the process
    node.store.close()
    assert Node(tmp_path / "node").store._state.applied.digest == digest


# Audit -------------------------------------------------------------------------------------


def test_a_mark_gives_every_node_the_digest_at_its_entry(tmp_path: Path) -> None:
    marks = []
    for name, in_one_apply in (("a", False), ("b", True)):
        node = Node(tmp_path / name)
        node.put(
            *workload(), [commands.AuditMark(1)], [arrivals(packet(999))], in_one_apply=in_one_apply
        )
        (mark,) = node.store.marks
        proof = prove(node.store.copy_at(mark))
        assert proof.is_sound
        marks.append((mark.index, proof.digest))
        told = {"n1": proof.digest, "n2": proof.digest, "n3": b"x" * 16}
        node.put([commands.AuditResult(1, told)])
        node.close()
    assert marks[0] == marks[1]


@pytest.mark.parametrize("where", ["a row", "a byte of the file"])
def test_a_flipped_byte_is_found_at_the_next_mark(tmp_path: Path, where: str) -> None:
    node = Node(tmp_path / "a")
    node.put(*workload())
    node.store.flush()
    if where == "a row":
        database = node.store._state._database._rocks
        key, value = next(row for row in node.store._state.rows() if row[0][0] == Table.QUEUE)
        database.put(key, bytes([value[0] ^ 1]) + value[1:])
    node.put([commands.AuditMark(1)])
    copy = node.store.copy_at(node.store.marks[0])
    if where == "a byte of the file":
        (table,) = sorted(copy.folder.glob("*.sst"))[:1]
        data = bytearray(table.read_bytes())
        data[len(data) // 3] ^= 0x10
        table.unlink()  # a hard link: the live file keeps its bytes
        table.write_bytes(data)
    proof = prove(copy)
    assert not proof.is_sound
    assert proof.digest != node.store.marks[0].kept
    assert proof.reason
    node.close()


@pytest.mark.parametrize("mine", ["in the minority", "no majority"])
def test_a_diverged_node_stops(node: Node, mine: str) -> None:
    node.put([commands.AuditMark(1)])
    own = node.store.marks[0].kept
    others = [b"x" * 16, b"x" * 16] if mine == "in the minority" else [b"x" * 16, b"y" * 16]
    digests = dict(zip(("n1", "n2", "n3"), (own, *others), strict=True))
    with pytest.raises(Diverged):
        node.put([commands.AuditResult(1, digests)])
    node.close()


@pytest.mark.parametrize(("other", "alarms"), [("same", []), ("another", ["diverged"])])
def test_a_node_of_the_majority_goes_on_and_says_that_one_differs(
    node: Node, other: str, alarms: list[str]
) -> None:
    node.put([commands.AuditMark(1)])
    own = node.store.marks[0].kept
    digests = {"n1": own, "n2": own, "n3": own if other == "same" else b"x" * 16}
    (applied,) = node.put([commands.AuditResult(1, digests)])
    assert applied.alarms == alarms
    node.close()


def test_a_row_that_was_changed_behind_our_back_is_found(node: Node) -> None:
    assert node.store.verify()
    database = node.store._state._database._rocks
    key, value = next(iter(database.items()))
    database.put(key, bytes([value[0] ^ 1]) + value[1:])
    assert not node.store.verify()
    node.close()


# Snapshots ---------------------------------------------------------------------------------


def filled(path: Path) -> tuple[Node, dict[int, bytes]]:
    """Return a node whose bodies are in blob files and in the log."""
    node = Node(path)
    node.put(setup_commands())
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 300) for n in range(1, 121)}
    for n in range(1, 121, 10):
        node.put([arrivals(*(packets[k] for k in range(n, n + 10)))])
        if n == 81:
            node.compact()
    node.put([receive(2, 20)])
    return node, packets


def meta_of(node: Node, size: int, identity: bytes = b"") -> SnapshotMeta:
    index = node.store.applied_index()
    return SnapshotMeta(index, 1, Configuration(("n1.1",)), size, identity)


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_a_snapshot_carries_rows_and_bodies_to_another_node(tmp_path: Path, chunk: int) -> None:
    node, packets = filled(tmp_path / "a")
    source = node.store.snapshot(node.store.applied_index())
    meta = meta_of(node, source.size_bytes(), source.identity())
    digest = node.store.applied.digest
    node.put([receive(22, 90)], [commands.Confirm("c", 500)])  # the sender continues
    node.compact()
    other = Node(tmp_path / "b")
    sink = other.store.receive_snapshot(meta)
    while sink.offset() < meta.size_bytes:
        if sink.offset() > meta.size_bytes // 2:
            sink = other.store.receive_snapshot(meta)  # a broken transfer continues
        sink.write(source.read(sink.offset(), chunk))
    assert source.read(meta.size_bytes, chunk) == b""
    sink.finish()
    source.close()
    assert (other.store.applied_index(), other.store.durable_index()) == (meta.index, meta.index)
    assert other.store.applied.digest == digest
    assert other.store.verify()
    other.log.reset(meta)
    (applied,) = other.put([receive(22, 200)])
    results = received(applied)
    assert [r.message_ordinal for r in results] == list(range(21, 121))
    for result in results:
        assert other.store.bodies.read(place(result)) == packets[result.message_ordinal]
    other = other.reopen()
    assert other.store.bodies.read(place(results[-1])) == packets[120]
    node.close()
    other.close()


def test_what_was_received_of_another_stream_is_not_gone_on_with(tmp_path: Path) -> None:
    """The same index, term and size, from the same sender; its bodies moved in between."""
    node, packets = filled(tmp_path / "a")
    first = node.store.snapshot(node.store.applied_index())
    meta = meta_of(node, first.size_bytes(), first.identity())
    folder = tmp_path / "b"
    receiver = Node(folder)
    sink = receiver.store.receive_snapshot(meta)
    while sink.offset() < meta.size_bytes - 2_000:
        sink.write(first.read(sink.offset(), 1_000))
    first.close()
    receiver.close()
    node.compact()
    second = node.store.snapshot(node.store.applied_index())
    assert second.identity() != first.identity()
    other = Node(folder)
    same = other.store.receive_snapshot(meta)
    assert same.offset() == sink.offset(), "after a restart it goes on with the same stream"
    for one in (meta_of(node, meta.size_bytes, second.identity()), meta_of(node, meta.size_bytes)):
        again = other.store.receive_snapshot(one)
        assert again.offset() == 0, "with no other, and with none that does not tell"
        again.write(b"begun")
    new = meta_of(node, second.size_bytes(), second.identity())
    sink = other.store.receive_snapshot(new)
    sink.write(second.read(0, new.size_bytes))
    sink.finish()
    second.close()
    other.log.reset(new)
    (applied,) = other.put([receive(22, 200)])
    for result in received(applied):
        assert other.store.bodies.read(place(result)) == packets[result.message_ordinal]
    node.close()
    other.close()


def test_a_damaged_body_is_found_when_it_is_installed(tmp_path: Path) -> None:
    """Of a message in a queue, of one that was received and not confirmed, in log and blob."""
    node, packets = filled(tmp_path / "a")
    source = node.store.snapshot(node.store.applied_index())
    meta = meta_of(node, source.size_bytes(), source.identity())
    stream = source.read(0, meta.size_bytes)
    source.close()
    other = Node(tmp_path / "b")
    before = other.store.applied
    for number in (1, 20, 70, 120):
        at = stream.index(packets[number]) + len(packets[number]) - 7
        sink = other.store.receive_snapshot(meta)
        sink.write(stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :])
        with pytest.raises(ValueError, match="does not match its checksum"):
            sink.finish()
        assert other.store.applied == before
    sink = other.store.receive_snapshot(meta)
    sink.write(stream)
    sink.finish()
    assert other.store.applied_index() == meta.index
    node.close()
    other.close()


def offset_of_rows(stream: bytes) -> int:
    """Return where the first table of the database begins in a stream."""
    length = int.from_bytes(stream[8:12], "little")
    manifest = msgspec.msgpack.decode(stream[12 : 12 + length], type=Manifest)
    at = 12 + length
    for name, size in manifest.files:
        if name.endswith(".sst"):
            return at
        at += size
    raise AssertionError("a snapshot without tables")


def test_a_damaged_snapshot_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    node, _ = filled(tmp_path / "a")
    source = node.store.snapshot(node.store.applied_index())
    meta = meta_of(node, source.size_bytes())
    stream = source.read(0, meta.size_bytes)
    source.close()
    other = Node(tmp_path / "b")
    other.put(setup_commands())
    before = other.store.applied
    at = offset_of_rows(stream) + 40
    damaged = {
        "cut": stream[:-10],
        "no snapshot": b"x" + stream[1:],
        "flipped row": stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :],
        "manifest": stream[:20] + bytes([stream[20] ^ 0x55]) + stream[21:],
    }
    for what, bad in damaged.items():
        sink = other.store.receive_snapshot(meta)
        sink.write(bad)
        with pytest.raises(ValueError, match=r"."):
            sink.finish()
        assert other.store.applied == before, what
    wrong = SnapshotMeta(meta.index + 1, 1, meta.configuration, meta.size_bytes)
    sink = other.store.receive_snapshot(wrong)
    sink.write(stream)
    with pytest.raises(ValueError, match="not"):
        sink.finish()
    other.put([arrivals(packet(1))])
    node.close()
    other.close()


def test_a_snapshot_is_installed_after_a_damaged_one_whose_error_is_kept(tmp_path: Path) -> None:
    """An iterator in a traceback keeps RocksDB open, and its folder locked."""
    node, _ = filled(tmp_path / "a")
    source = node.store.snapshot(node.store.applied_index())
    meta = meta_of(node, source.size_bytes())
    stream = source.read(0, meta.size_bytes)
    source.close()
    other = Node(tmp_path / "b")
    kept = []
    for at in range(offset_of_rows(stream) + 40, len(stream), max(1, len(stream) // 12)):
        sink = other.store.receive_snapshot(meta)
        sink.write(stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :])
        try:
            sink.finish()
        except ValueError as error:
            kept.append(error)
            assert "lock hold" not in str(error), f"byte {at}: {error}"
    assert kept
    sink = other.store.receive_snapshot(meta)
    sink.write(stream)
    sink.finish()
    assert other.store.applied_index() == meta.index
    node.close()
    other.close()


def test_the_state_of_a_newer_build_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put([commands.RaiseApplyVersion(APPLY_VERSION)])
    node.close()
    with monkeypatch.context() as older:
        older.setattr("qm.store.store.APPLY_VERSION", APPLY_VERSION - 1)
        with pytest.raises(StartRefused, match="start the build that wrote it"):
            Node(node.path)


def sealed_arrivals(*packets: bytes) -> EdgeBatch:
    sealer = BodySealer(bytes(32), 1, os.urandom)
    made = arrivals(*map(sealer.sealed, packets))
    facts = msgspec.structs.replace(made.facts[0], is_sealed=True)
    return msgspec.structs.replace(made, facts=(facts,))


def test_sealed_bodies_are_opened_wherever_they_lie(node: Node) -> None:
    """Beside plain ones, which are read as before; who gives no opener gets what is stored."""
    opener = BodyOpener(lambda _: bytes(32))
    packets = {n: packet(n, body=n.to_bytes(4, "big") * 500) for n in range(1, 101)}
    for n in range(1, 101, 10):
        some = [packets[k] for k in range(n, n + 10)]
        node.put([sealed_arrivals(*some[:7]), arrivals(*some[7:])])
    (applied,) = node.put([receive(2, 100)])
    results = received(applied)
    node.compact()
    assert node.log.first_index() > results[0].body_index, "some bodies have moved to blobs"
    assert node.log.first_index() <= results[-1].body_index, "some are still in the log"
    opened = opener.opened

    def plain(raw: bytes) -> bytes:
        return opened(raw) if is_sealed(raw) else raw

    for some_results in (results, results[::-1], results[::3], results[5:25], results[:1]):
        read = node.store.bodies.read_all(places(some_results), plain)
        wanted = [packets[result.message_ordinal] for result in some_results]
        assert read.block == b"".join(wanted)
        assert list(read.lengths) == [len(one) for one in wanted]
        assert [node.store.bodies.read(place(one), plain) for one in some_results] == wanted
    raw = node.store.bodies.read_all(places(results[:8]))
    assert list(raw.lengths) == [one.body_length for one in results[:8]]
    assert raw.block != b"".join(packets[n] for n in range(1, 9))
    node.close()


def test_an_acknowledgement_returns_a_sealed_body_opened(node: Node) -> None:
    opener = BodyOpener(lambda _: bytes(32))
    full = {"quota": encode_attribute(0)}
    node.put([commands.CreateQueue(request(), b"a" * 16, b"b" * 16, ".\\audit", {}, b"", ())])
    node.put([commands.CreateQueue(request(), b"f" * 16, b"g" * 16, ".\\full", full, b"", ())])
    fields: dict[str, Any] = {
        "to": "full",
        "body": b"returned to its sender",
        "admin_queue": direct("audit"),
        "properties": {"flags": int(AcknowledgeFlags.NA)},
    }
    node.put([sealed_arrivals(packet(1, **fields))])
    rows = node.store.state.scan(Table.POSITION, b"", b"\xff" * 12, 10)
    (position,) = [unpack_position(row) for _, row in rows]
    at = BodyPlace(
        position.body_index,
        position.body_offset,
        position.body_length,
        position.body_ordinal,
        position.body_crc32,
    )
    returned = node.store.bodies.read(at, opener.opened)
    message, _ = parse_user_message(returned, 0, len(returned))
    assert message.properties.message_body == b"returned to its sender"
    assert b"returned to its sender" not in node.store.bodies.read(at)
    node.close()


def test_a_copy_proves_its_bodies_in_files_and_in_the_log(node: Node) -> None:
    for n in range(1, 81, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    node.compact()
    node.put([arrivals(packet(81, body=b"in the log"))])
    blobs = node.path / "store" / "g-00000001" / "blobs"
    (file,) = sorted(blobs.iterdir())[:1]
    before = sorted(path.name for path in blobs.iterdir())
    pinned = node.store.pin()
    source = pinned.source(proves_bodies=True)
    assert sorted(path.name for path in (pinned.folder / "blobs").iterdir()) == before
    source.close()
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    pinned = node.store.pin()
    file.write_bytes(damaged)  # the copy is a link to it
    with pytest.raises(BodyDamaged, match="checksum"):
        pinned.source(proves_bodies=True)
    pinned.close()
    pinned = node.store.pin()
    pinned.source().close()
    node.close()

"""Disks without space: no acknowledged body is lost, and what waits goes on when space is back."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qm.model.queries import queue_statistics
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Command
from qm.model.values.rows import unpack_position
from qm.store import store as store_module
from qm.store.bodies import blobs as blobs_module
from qm.store.bodies.blobs import moved_entry
from qm.store.bodies.body_places import BodyPlace
from qm.store.database import Database, DatabaseFull
from qm.store.replay import _RecentEntries as RecentEntries
from qm.store.snapshot import unpack
from qm.store.store import Store
from raft.log.disk import DiskDirectory
from raft.log.files import FatalDiskError
from raft.log.segment import is_disk_full
from tests.unit.model.world import packet
from tests.unit.store.faults import full_for
from tests.unit.store.full_rocks import NO_SPACE, NO_SYNC, fill
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

CONSUMED = 16
"""Of the 20 that the first blob file holds."""


def sparse_node(path: Path) -> Node:
    """Return a node whose first blob file holds little that is alive."""
    node = Node(path)
    node.put(setup_commands())
    for n in range(40):
        node.put([arrivals(packet(1 + n, body=b"x" * 3_000))])
    for n in range(30):
        node.put([arrivals(packet(1_000 + n, to="kept", body=b"y" * 3_000))])
    node.compact()
    node.compact()
    node.put([receive(2, CONSUMED)])
    node.put([commands.Confirm("c", 1 + CONSUMED)])
    return node


def bodies_in(node: Node) -> int:
    """Read the bodies of all positions; return how many."""
    rows = [row for key, row in node.store.state.rows() if key[0] == Table.POSITION]
    for row in rows:
        at = unpack_position(row)
        node.store.bodies.read(
            BodyPlace(at.body_index, at.body_offset, at.body_length, at.body_ordinal, at.body_crc32)
        )
    return len(rows)


def refused(work: Callable[[], object]) -> bool:
    """Return whether there was no space for it."""
    try:
        work()
    except OSError as error:
        assert is_disk_full(error), error
        return True
    return False


def empty_sparse(node: Node) -> None:
    """As the node's housekeeping does."""
    bodies = node.store.bodies
    while bodies.empty_sparse():
        sync = bodies.begin_sync()
        sync.run()
        bodies.end_sync(sync)


def move_ahead(node: Node) -> None:
    """Likewise."""
    bodies = node.store.bodies
    bodies.move_ahead(0)
    sync = bodies.begin_sync()
    sync.run()
    bodies.end_sync(sync)


@pytest.mark.parametrize("after_writes", [0, 1, 2, 3])
def test_a_full_disk_removes_no_file_that_holds_a_live_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_writes: int
) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 60 * 1024)
    node = sparse_node(tmp_path / "node")
    expected = bodies_in(node)
    assert expected == 40 - CONSUMED + 30
    with full_for("blob-", after_writes=after_writes):
        for _ in range(4):
            refused(lambda: empty_sparse(node))
            move_ahead(node)
            node.store.flush()
            node.store.bodies.begin_removal().run()
            assert bodies_in(node) == expected
    empty_sparse(node)
    node.store.flush()
    node.store.bodies.begin_removal().run()
    assert bodies_in(node) == expected
    node.put([arrivals(packet(5_000, body=b"z" * 3_000))])
    node = node.reopen()
    assert bodies_in(node) == expected + 1
    assert node.store.verify()
    node.close()


def test_sparse_files_are_emptied_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 60 * 1024)
    node = sparse_node(tmp_path / "node")
    blobs = tmp_path / "node" / "store" / "g-00000001" / "blobs"
    before = {path.name for path in blobs.iterdir()}
    with full_for("blob-", after_writes=1):
        assert refused(lambda: empty_sparse(node))
    empty_sparse(node)
    node.store.flush()
    node.store.bodies.begin_removal().run()
    assert before - {path.name for path in blobs.iterdir()}, "no sparse file went"
    assert bodies_in(node) == 40 - CONSUMED + 30
    node.close()


def test_a_step_of_emptying_sparse_files_copies_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 60 * 1024)
    monkeypatch.setattr(blobs_module, "SPARSE_BYTES_PER_STEP", 1)
    node = sparse_node(tmp_path / "node")
    assert [node.store.bodies.empty_sparse() for _ in range(2)] == [1, 1]
    node.close()


def test_a_file_that_was_emptied_stays_until_a_flush_covers_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on disk still names it, and a crash goes back to that."""
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 60 * 1024)
    node = sparse_node(tmp_path / "node")
    blobs = tmp_path / "node" / "store" / "g-00000001" / "blobs"
    empty_sparse(node)
    before = {path.name for path in blobs.iterdir()}
    node.store.bodies.begin_removal().run()
    assert {path.name for path in blobs.iterdir()} == before
    node.store.flush()
    node.store.bodies.begin_removal().run()
    assert {path.name for path in blobs.iterdir()} < before
    node.close()


def test_moves_are_durable_once_a_flush_covers_them(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    node.put(*([arrivals(packet(n, body=b"x" * 3_000))] for n in range(1, 31)))
    before = node.store.bodies.recorded
    bodies = node.store.bodies
    bodies.move_ahead(node.log.last_index())
    sync = bodies.begin_sync()
    sync.run()
    bodies.end_sync(sync)
    assert bodies.recorded == before + 1
    node.close()


def test_a_packet_that_an_entry_never_had_has_no_place() -> None:
    entry = moved_entry(3, 100, [5, 0, 7])
    assert [entry.span(ordinal) for ordinal in range(5)] == [
        (100, 5),
        (105, 0),
        (105, 7),
        (0, 0),
        (0, 0),
    ]


# The state ---------------------------------------------------------------------------------


def broken(node: Node) -> None:
    """Have a flush find no space."""
    fill(node.store)
    with pytest.raises(DatabaseFull):
        node.store.flush()
    assert node.store.needs_reopening


def test_a_state_that_found_no_space_goes_on_once_it_is_opened_again(tmp_path: Path) -> None:
    reference = Node(tmp_path / "reference", keeps_effects=True)
    node = Node(tmp_path / "node", keeps_effects=True)
    batches: list[list[Command]] = [setup_commands(), [arrivals(packet(1), packet(2))]]
    for one in (reference, node):
        one.put(*batches)
    node.store.flush()
    later: list[list[Command]] = [
        [arrivals(packet(3), packet(4))],
        [receive(2, 3)],
        [commands.AuditMark(7)],
    ]
    for one in (reference, node):
        one.put(*later)
    broken(node)
    last: list[Command] = [arrivals(packet(5))]
    (entry,) = node.append(last)
    node.store.apply([entry])
    with pytest.raises(DatabaseFull):
        node.store.settle()
    assert queue_statistics(node.store.view, 1) is not None, "what is in memory is read"
    with pytest.raises(DatabaseFull):
        node.store.apply(node.append(last))
    index = node.store.durable_index()
    node.store.reopen()
    reference.put(last)
    assert not node.store.needs_reopening
    assert node.store.durable_index() == index
    assert node.store.applied == reference.store.applied
    assert node.store.verify()
    assert node.store.kept_rows(0, 99) == reference.store.kept_rows(0, 99)
    assert [mark.number for mark in node.store.marks] == [7]
    reference.put(last)
    node.replay()  # the entry that was refused
    assert node.store.applied == reference.store.applied
    node.store.flush()
    node = node.reopen()
    assert node.store.applied == reference.store.applied
    for one in (node, reference):
        one.close()


def test_bodies_outlive_that_the_state_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places that were written and not flushed are forgotten; the log has not let go of them."""
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 60 * 1024)
    node = sparse_node(tmp_path / "node")
    expected = bodies_in(node)
    for n in range(30):
        node.put([arrivals(packet(2_000 + n, to="kept", body=b"z" * 3_000))])
    while node.store.bodies.move_ahead(node.store.applied_index()):
        pass
    bodies = node.store.bodies
    sync = bodies.begin_sync()
    sync.run()
    bodies.end_sync(sync)
    empty_sparse(node)
    broken(node)
    with pytest.raises(DatabaseFull):
        node.compact()
    first = node.log.first_index()
    node.store.reopen()
    assert bodies_in(node) == expected + 30
    assert node.log.first_index() == first
    node.compact()
    assert node.log.first_index() > first
    assert bodies_in(node) == expected + 30
    node.close()


def test_a_mark_in_a_run_that_finds_no_space_takes_nothing_back(tmp_path: Path) -> None:
    """Entries before it in the run are applied; were it refused, they would be applied twice."""
    node = Node(tmp_path / "node")
    reference = Node(tmp_path / "reference")
    for one in (node, reference):
        one.put(setup_commands())
    node.store.flush()
    fill(node.store)
    with pytest.raises(DatabaseFull):
        node.store.flush()
    run: list[list[Command]] = [
        [arrivals(packet(1))],
        [commands.AuditMark(3)],
        [arrivals(packet(2))],
    ]
    reference.put(*run, in_one_apply=True)
    entries = node.append(*run)
    assert len(node.store.apply(entries)) == 3
    node.store.reopen()
    assert node.store.applied == reference.store.applied
    assert [mark.number for mark in node.store.marks] == [3]
    for one in (node, reference):
        one.close()


def test_a_state_that_cannot_be_opened_again_yet_says_so_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands(), [arrivals(packet(1))])
    broken(node)
    with monkeypatch.context() as patch:

        def no_space(*_: object, **__: object) -> Database:
            raise DatabaseFull(NO_SPACE)

        patch.setattr(store_module, "open_database", no_space)
        for _ in range(2):
            with pytest.raises(DatabaseFull):
                node.store.reopen()
            for work in (node.store.flush, node.store.pin, node.compact):
                assert refused(work)
            assert refused(lambda: node.store._retire(1, 1)), "bodies would go with the entries"
    node.store.reopen()
    assert node.store.verify()
    assert bodies_in(node) == 1
    node.close()


def test_an_error_that_is_not_a_lack_of_space_is_none_to_wait_out(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    full = fill(node.store, NO_SYNC)
    with pytest.raises(FatalDiskError):
        node.store.flush()
    assert not node.store.needs_reopening
    with pytest.raises(FatalDiskError):
        node.put([arrivals(packet(1))])
    full.heal()
    node.close()


# Pictures ----------------------------------------------------------------------------------


def test_a_file_that_is_removed_while_a_picture_is_taken_is_none_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread removes it between two hard links."""
    monkeypatch.setattr(blobs_module, "BLOB_FILE_BYTES", 20 * 1024)
    node = sparse_node(tmp_path / "node")
    node.store.bodies.end_sync(node.store.bodies.begin_sync())  # finds files that are empty now
    node.store.flush()
    removal = node.store.bodies.begin_removal()
    assert removal.files
    real_link, left = os.link, [removal]

    def link(source: Path, target: Path) -> None:
        while left:
            left.pop().run()
        real_link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        pinned = node.store.pin()
    names = {path.name for path in (pinned.folder / "blobs").iterdir()}
    assert names
    assert names.isdisjoint(removal.files)
    source = pinned.source()
    stream = tmp_path / "stream"
    stream.write_bytes(source.read(0, source.size_bytes()))
    source.close()
    with stream.open("rb") as file:
        applied, directory = node.store.applied, DiskDirectory(tmp_path)
        unpack(file, directory, tmp_path / "copy", applied.index, applied.term)
    node.close()


def test_a_picture_that_finds_no_space_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = sparse_node(tmp_path / "node")

    def link(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space for a name")

    first = node.log.first_index()
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        assert refused(node.store.pin)
    assert not list(node.path.glob("store/pinned/*"))
    for n in range(30):
        node.put([arrivals(packet(3_000 + n, to="kept", body=b"z" * 3_000))])
    node.compact()
    assert node.log.first_index() > first, "nothing holds the log"
    node.store.pin().close()
    node.close()


def test_a_store_that_cannot_be_opened_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node tries again every second while its disk is full."""
    node = Node(tmp_path)
    node.store.close()

    def full(*_: object, **__: object) -> Database:
        raise DatabaseFull("No space left on device")

    monkeypatch.setattr(store_module, "open_database", full)
    before, errors = len(os.listdir("/proc/self/fd")), []
    for number in range(2, 5):
        (tmp_path / "store" / f"g-{number:08}").mkdir()  # is removed, which opens the folder
        with pytest.raises(DatabaseFull) as caught:
            Store(tmp_path / "store", RecentEntries())
        errors.append(caught)  # and with it what the tries held
    assert len(os.listdir("/proc/self/fd")) == before

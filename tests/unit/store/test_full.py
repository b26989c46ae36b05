"""Disks without space: no acknowledged body is lost, and what waits goes on when space is back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.rows import unpack_position
from qm.store.bodies import blobs as blobs_module
from qm.store.bodies.body_places import BodyPlace
from raft.log.segment import is_disk_full
from tests.unit.model.world import packet
from tests.unit.store.faults import full_for
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

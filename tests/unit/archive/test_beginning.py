"""An archive that begins after the cluster's birth begins with its whole state."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from qm.archive import beginning
from qm.archive.checkpoints import CHECKPOINTS_FOLDER
from qm.archive.manifest import RANGES_FOLDER
from qm.archive.ranges import Identity, Policy
from qm.model.values import commands
from tests.unit.archive.test_archiver import fill
from tests.unit.archive.test_checkpoints import checkpoints
from tests.unit.archive.world import CLUSTER, CONFIG, archiver_of, check_chain, export, ranges
from tests.unit.store.test_store import Node, setup_commands

BIRTH = 5
"""Entries before the archive was switched on."""


def switched_on(path: Path) -> Node:
    """Return a node that archives since the last of its entries."""
    node = Node(path)
    node.put([commands.LeaderActivated(1, "n1")], setup_commands()[1:])
    fill(node, 1, BIRTH)
    node.store.flush()
    node.close()
    node = Node(path, keeps_effects=True)
    node.put([commands.LeaderActivated(2, "n1", is_archived=True)])
    return node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return switched_on(tmp_path / "node")


def test_it_begins_with_a_checkpoint_and_ranges_go_on_from_it(node: Node, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    fill(node, 20, 2)
    at = node.store.applied_index()
    export(node, root)
    ((checkpoint, _),) = checkpoints(root)
    assert checkpoint.index == at
    assert not (root / CLUSTER / RANGES_FOLDER).exists()
    fill(node, 30, 3)
    export(node, root)
    ((manifest, _),) = ranges(root)
    assert (manifest.first, manifest.previous_index) == (at + 1, at)
    assert not manifest.is_gap_before
    assert len(checkpoints(root)) == 1
    node.close()


def test_a_cluster_that_is_archived_from_its_birth_needs_none(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands())
    fill(node, 1, 3)
    export(node, tmp_path / "archive")
    assert check_chain(tmp_path / "archive") == [1, 2, 3, 4]
    assert not (tmp_path / "archive" / CLUSTER / CHECKPOINTS_FOLDER).exists()
    node.close()


def test_one_node_writes_it_and_the_others_begin_there_too(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    first, second = switched_on(tmp_path / "n1"), switched_on(tmp_path / "n2")

    async def other(turn: int) -> None:
        archiver = archiver_of(second, root, identity=Identity(CLUSTER, "n2.1", 1), turn=turn)
        await archiver.step()
        await archiver.stop()

    for node in (first, second):
        fill(node, 20, 4)
    asyncio.run(other(turn=1))
    assert not root.exists()
    export(first, root)
    ((checkpoint, _),) = checkpoints(root)
    for node in (first, second):
        fill(node, 30, 1)
    asyncio.run(other(turn=1))
    assert [m.previous_index for m, _ in ranges(root, "n2.1")] == [checkpoint.index]
    assert len(checkpoints(root)) == 1
    first.close()
    second.close()


def test_a_node_that_waited_for_the_others_in_vain_writes_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "TURN_S", 0.0)
    root = tmp_path / "archive"

    async def scenario() -> None:
        archiver = archiver_of(node, root, turn=2)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    assert len(checkpoints(root)) == 1
    node.close()


def test_a_crash_behind_the_checkpoint_writes_no_second_one(node: Node, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    export(node, root)
    node.close()
    again = Node(node.path, keeps_effects=True)
    fill(again, 30, 2)
    export(again, root)
    ((checkpoint, _),) = checkpoints(root)
    assert [m.previous_index for m, _ in ranges(root)] == [checkpoint.index]
    again.close()


def test_an_archive_without_bodies_has_no_state(node: Node, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    fill(node, 20, 1)
    export(node, root, config=structs.replace(CONFIG, policy=Policy.NONE))
    assert checkpoints(root) == []
    ((manifest, _),) = ranges(root)
    assert manifest.previous_index > 0
    node.close()

"""However and wherever an export ends, each entry is in the archive once."""

import shutil
from pathlib import Path

import pytest
from msgspec import structs

from qm.archive.manifest import node_folder, range_folder
from tests.unit.archive.world import (
    CLUSTER,
    CONFIG,
    Failing,
    Told,
    check_chain,
    export,
    ranges,
    with_destination,
)
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, setup_commands

CALLS = 12
"""Of the destination, for three ranges of entries, operations and manifest: all can fail."""


def filled(path: Path) -> Node:
    node = Node(path, keeps_effects=True)
    node.put(setup_commands())
    node.store.flush()
    shutil.copytree(path / "store", path / "flushed")
    for n in range(1, 12):
        node.put([arrivals(packet(n))])
    return node


def after_power_loss(node: Node) -> None:
    """Leave of the state what was flushed, and of the log everything."""
    node.close()
    shutil.rmtree(node.path / "store")
    shutil.copytree(node.path / "flushed", node.path / "store")


def folders(root: Path) -> set[str]:
    return {folder.name for folder in (root / node_folder(CLUSTER, "n1.1")).iterdir()}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", range(1, CALLS))
def test_a_failure_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, is_done: bool
) -> None:
    node, archive, told = filled(tmp_path / "node"), tmp_path / "archive", Told()
    with monkeypatch.context() as patch:
        with_destination(patch, Failing(archive, calls, is_done=is_done))
        export(node, archive, told)
    is_hit = told.value("quorate_archive_failures_total", reason="destination")
    assert is_hit == (calls <= 9), "nine files are written"
    # As another archiver would find it, which closes ranges elsewhere.
    export(node, archive, told, structs.replace(CONFIG, range_entries=3))
    assert check_chain(archive) == list(range(1, 13))
    assert folders(archive) == {folder.name for _, folder in ranges(archive)}, "leftovers"


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", [2, 3, 5, 9])
def test_a_power_loss_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, is_done: bool
) -> None:
    """Everything that was not flushed is lost: the log brings it back, the archive has it."""
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    with monkeypatch.context() as patch:
        with_destination(patch, Failing(archive, calls, is_done=is_done))
        export(node, archive)
    after_power_loss(node)
    node = Node(node.path, keeps_effects=True)
    assert node.store.kept is not None
    assert node.store.kept.exported.upto == 0
    export(node, archive, config=structs.replace(CONFIG, range_entries=5))
    assert check_chain(archive) == list(range(1, 13))
    node.put([arrivals(packet(50))])
    assert node.store.kept_rows(0, 100)[0][0] == 13, "what the archive has is kept no more"
    node.close()


def test_entries_that_come_back_after_the_archive_was_asked_are_not_kept(tmp_path: Path) -> None:
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    export(node, archive)
    entries = node.log.entries(2, 13, 1 << 30)
    after_power_loss(node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "replay", lambda self: None)
        node = Node(node.path, keeps_effects=True)
        assert node.store.applied_index() == 1
        export(node, archive)
        node.store.apply(entries)
        node.store.settle()
    assert node.store.kept_rows(0, 100) == []
    node.put([arrivals(packet(50))])
    export(node, archive)
    assert check_chain(archive) == list(range(1, 14))
    node.close()


def test_only_own_folders_above_the_archive_are_touched(tmp_path: Path) -> None:
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    export(node, archive)
    strange = [
        archive / range_folder(CLUSTER, "n2.1", 13, 20),
        archive / node_folder(CLUSTER, "n1.1") / "notes",
        archive / range_folder(CLUSTER, "n1.1", 1, 3),
    ]
    leftover = archive / range_folder(CLUSTER, "n1.1", 13, 99)
    for folder in [*strange, leftover]:
        folder.mkdir(parents=True)
        (folder / "entries.parquet").write_bytes(b"half")
    node.put([arrivals(packet(50))])
    export(node, archive)
    assert all(folder.exists() for folder in strange)
    assert not leftover.exists()
    node.close()


def test_a_damaged_manifest_is_not_gone_over(tmp_path: Path) -> None:
    node, archive, told = filled(tmp_path / "node"), tmp_path / "archive", Told()
    export(node, archive)
    *_, (_, folder) = ranges(archive)
    (folder / "manifest.json").write_bytes(b"{")
    node = node.reopen()
    export(node, archive, told)
    assert told.value("quorate_archive_failures_total", reason="destination") == 1
    assert folder.name in folders(archive)
    node.close()

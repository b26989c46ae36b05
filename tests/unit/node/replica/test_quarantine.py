"""A node whose state is wrong stays down, and stops at once, whatever its disk takes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from qm.model.values import commands
from qm.node.replica.quarantine import TEXT_MAX_BYTES, Quarantine
from qm.node.replica.state_machine import AppliedStore
from qm.store.store import Diverged
from raft.replica import StartRefused
from tests.unit.store.test_store import Node, setup_commands

TEXT = "audit mark 7: this node's state differs from the majority's"


class FullDisk:
    """No new bytes; what a file has may be overwritten, as on ext4 and xfs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.times_given_up = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if self.is_full and os.fstat(descriptor).st_size < len(data):
            raise OSError(errno.ENOSPC, "no space")
        return self._write(descriptor, data)

    def give_up_reserve(self) -> None:
        self.times_given_up += 1
        self.is_full = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def reason(data: Path) -> str:
    """Return why a node with this data does not start."""
    with pytest.raises(StartRefused) as refused:
        Quarantine(data).check()
    return str(refused.value)


def test_a_note_gets_onto_a_full_disk(tmp_path: Path, disk: FullDisk) -> None:
    quarantine = Quarantine(tmp_path, disk.give_up_reserve)
    quarantine.check()
    quarantine.prepare()
    quarantine.check()
    disk.is_full = True
    quarantine.prepare()
    quarantine.enter(TEXT)
    assert f"found wrong: {TEXT} (move" in reason(tmp_path)
    assert not disk.times_given_up


def test_a_note_for_which_nothing_was_kept_takes_the_reserve(
    tmp_path: Path, disk: FullDisk
) -> None:
    quarantine = Quarantine(tmp_path, disk.give_up_reserve)
    disk.is_full = True
    quarantine.prepare()
    quarantine.enter(TEXT * 1_000)
    assert TEXT in reason(tmp_path)
    assert len(reason(tmp_path)) < 2 * TEXT_MAX_BYTES
    assert disk.times_given_up == 1


def test_a_diverged_node_ends_though_its_disk_is_full(tmp_path: Path, disk: FullDisk) -> None:
    """Consensus takes a lack of space for something to wait out, and would apply once more."""
    node = Node(tmp_path / "node")
    node.put(setup_commands(), [commands.AuditMark(5)])
    quarantine = Quarantine(tmp_path)
    disk.is_full = True
    machine = AppliedStore(node.store, lambda run: None, lambda: None, quarantine.enter)
    told = {"n1": b"x" * 16, "n2": b"x" * 16, "n3": b"y" * 16}
    with pytest.raises(Diverged, match="differs from the majority"):
        machine.apply(node.append([commands.AuditResult(5, told)]))
    node.close()

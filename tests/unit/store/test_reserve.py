"""The disk reserve: held, given up, and held again."""

import errno
from pathlib import Path

import pytest

from qm.store.reserve import DiskLevel, DiskReserve
from raft.log.disk import DiskDirectory, DiskFile


class Disk(DiskDirectory):
    """A real folder on a disk whose free space the test decides."""

    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free


def test_the_reserve_is_held_given_up_and_taken_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    reserve = DiskReserve(disk, 1 << 20)
    assert (tmp_path / "reserve").stat().st_size == 1 << 20
    assert reserve.level() is DiskLevel.ROOM
    disk.free = (1 << 20) - 1
    assert reserve.level() is DiskLevel.REFUSING
    reserve.give_up()
    assert reserve.level() is DiskLevel.EXHAUSTED
    assert not (tmp_path / "reserve").exists()
    assert not reserve.hold()
    disk.free = 1 << 30
    assert reserve.hold()
    assert DiskReserve(disk, 1 << 20).level() is DiskLevel.ROOM


def test_a_part_of_the_reserve_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(self: DiskFile, length: int) -> None:
        self.pwrite(bytes(length // 2), 0)
        raise OSError(errno.ENOSPC, "No space left on device")

    disk = Disk(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "allocate", allocate)
        reserve = DiskReserve(disk, 1 << 12)
    assert not (tmp_path / "reserve").exists()
    assert reserve.level() is DiskLevel.EXHAUSTED
    assert reserve.hold()
    assert (tmp_path / "reserve").stat().st_size == 1 << 12

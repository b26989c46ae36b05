"""The disk reserve: held, given up, and held again."""

from pathlib import Path

from qm.store.reserve import DiskLevel, DiskReserve
from raft.log.disk import DiskDirectory


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

"""The simulated disk loses what no sync has covered, and nothing else."""

import errno
from pathlib import Path

import pytest

from raft.log.files import FatalDiskError
from tests.sim.nodes.disk import Disk, SimDirectory
from tests.sim.nodes.world import ProcessDied, World

SEEDS = range(40)


def disk_of(tmp_path: Path, seed: int = 0) -> Disk:
    base = tmp_path / f"seed{seed}"
    return Disk(World(seed, base), "n1", base)


def folder_of(disk: Disk) -> SimDirectory:
    return SimDirectory(disk, disk.data / "raft")


def content(disk: Disk, name: str) -> bytes:
    return (disk.data / "raft" / name).read_bytes()


def test_what_was_synced_survives_any_power_loss(tmp_path: Path) -> None:
    for seed in SEEDS:
        disk = disk_of(tmp_path, seed)
        folder = folder_of(disk)
        file = folder.open("log", create=True)
        folder.sync()
        file.pwrite(b"a" * 2_000, 0)
        file.fdatasync()
        file.pwrite(b"b" * 2_000, 1_000)
        disk.crash(power=True)
        assert content(disk, "log")[:1_000] == b"a" * 1_000
        assert set(content(disk, "log")[1_000:2_000]) <= set(b"ab")


def test_power_loses_nothing_all_and_parts(tmp_path: Path) -> None:
    left = set()
    for seed in SEEDS:
        disk = disk_of(tmp_path, seed)
        folder = folder_of(disk)
        file = folder.open("log", create=True)
        folder.sync()
        for number in range(4):
            file.pwrite(b"x" * 1_024, number * 1_024)
        disk.crash(power=True)
        left.add(content(disk, "log").count(b"x"))
    assert {0, 4_096} < left, "none, all, and something between"


def test_kill_loses_nothing(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    folder_of(disk).open("log", create=True).pwrite(b"x" * 100, 0)
    assert disk.crash(power=False) == 0
    assert content(disk, "log") == b"x" * 100


def test_names_come_back_with_their_files(tmp_path: Path) -> None:
    kept = set()
    for seed in SEEDS:
        disk = disk_of(tmp_path, seed)
        folder = folder_of(disk)
        for name in ("old", "gone"):
            folder.open(name, create=True).pwrite(name.encode(), 0)
            folder.open(name).fdatasync()
        folder.sync()
        folder.rename("old", "new")
        folder.unlink("gone")
        disk.crash(power=True)
        names = tuple(folder_of(disk).names())
        kept.add(names)
        for name in names:
            assert content(disk, name) == (b"old" if name == "new" else name.encode())
    assert kept == {("gone", "old"), ("gone", "new"), ("new",)}, "any prefix"


def test_names_outlive_a_kill_and_go_with_the_power_of_the_next_life(tmp_path: Path) -> None:
    kept = set()
    for seed in SEEDS:
        disk = disk_of(tmp_path, seed)
        folder_of(disk).open("fresh", create=True)
        disk.crash(power=False)
        assert folder_of(disk).names() == ["fresh"]
        disk.crash(power=True)
        kept.add(tuple(folder_of(disk).names()))
    assert kept == {(), ("fresh",)}


def test_a_failed_sync_is_readable_until_the_next_death_of_any_kind(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    folder = folder_of(disk)
    file = folder.open("blob-1", create=True)
    folder.sync()
    file.pwrite(b"first", 0)
    file.fdatasync()
    file.pwrite(b"other", 0)
    disk.failing.append("blob-")
    with pytest.raises(FatalDiskError):
        file.fdatasync()
    assert file.pread(5, 0) == b"other"
    assert not disk.findings
    file.fdatasync()
    assert disk.findings, "a sync that is tried again takes lost bytes for durable"
    disk.crash(power=False)
    assert content(disk, "blob-1") == b"first"


def test_a_full_disk_takes_what_fits(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    folder = folder_of(disk)
    reserve = folder.open("reserve", create=True)
    reserve.allocate(500)
    disk.fill(300)
    file = folder.open("log", create=True)
    with pytest.raises(OSError) as raised:
        file.pwrite(b"x" * 400, 0)
    assert raised.value.errno == errno.ENOSPC
    assert file.size() == 300
    folder.unlink("reserve")
    assert disk.free_bytes == 500
    file.pwrite(b"y" * 300, 0)
    assert disk.free_bytes == 500, "an overwrite takes no space"


def test_the_dead_touch_nothing(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    folder = folder_of(disk)
    file = folder.open("log", create=True)
    disk.dies_in = 1
    with pytest.raises(ProcessDied):
        file.pwrite(b"x", 0)
    for act in (file.fdatasync, folder.sync, lambda: file.pwrite(b"x", 0)):
        with pytest.raises(ProcessDied):
            act()
    disk.crash(power=False)
    with pytest.raises(ProcessDied):
        file.pread(1, 0)

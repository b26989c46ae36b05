"""The simulated disk keeps what it promises, and nothing more."""

import random

import pytest

from raft.log.files import FatalDiskError
from tests.sim.disk import ProcessDied, SimDirectory, SimDisk, SimFile

SEEDS = range(200)


def disk_of(seed: int, sector_bytes: int = 16) -> tuple[SimDisk, SimDirectory]:
    disk = SimDisk(random.Random(seed), sector_bytes)
    return disk, disk.directory()


def synced_file(directory: SimDirectory, content: bytes) -> SimFile:
    file = directory.open("f", create=True)
    file.pwrite(content, 0)
    file.fdatasync()
    directory.sync()
    return file


def content_after_power_cut(disk: SimDisk) -> bytes | None:
    disk.lose_power()
    directory = disk.directory()
    if "f" not in directory.names():
        return None
    file = directory.open("f")
    return file.pread(file.size(), 0)


def test_reads_see_writes_at_once() -> None:
    _, directory = disk_of(0)
    file = directory.open("f", create=True)
    file.pwritev([b"ab", memoryview(b"cd")], 2)
    assert file.pread(10, 0) == b"\0\0abcd"
    assert file.pread(2, 3) == b"bc"
    assert file.size() == 6


def test_synced_bytes_survive_every_power_cut() -> None:
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, bytes(range(100)))
        file.pwrite(b"x" * 40, 100)
        left = content_after_power_cut(disk)
        assert left is not None
        assert left[:100] == bytes(range(100))


def test_unsynced_bytes_are_kept_lost_and_torn() -> None:
    lengths = set()
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, b"")
        file.pwrite(b"x" * 64, 0)
        left = content_after_power_cut(disk)
        assert left is not None
        lengths.add(len(left.rstrip(b"\0")))
    assert {0, 64} < lengths
    assert all(length % 16 == 0 for length in lengths)


def test_a_sector_holds_one_version_and_never_a_mixture() -> None:
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, b"0" * 16)
        for version in b"123":
            file.pwrite(bytes([version]) * 16, 0)
        left = content_after_power_cut(disk)
        assert left in {b"0" * 16, b"1" * 16, b"2" * 16, b"3" * 16}


def test_kill_keeps_the_cache_and_makes_nothing_durable() -> None:
    is_lost = False
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, b"old!")
        file.pwrite(b"new!", 0)
        disk.end_process()
        assert disk.directory().open("f").pread(4, 0) == b"new!"
        is_lost |= content_after_power_cut(disk) == b"old!"
    assert is_lost


def test_names_survive_by_sync_alone_and_in_order() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        for name in ("a", "b", "c"):
            directory.open(name, create=True)
        disk.lose_power()
        outcomes.add(tuple(disk.directory().names()))
    assert outcomes == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_a_rename_replaces_in_one_step() -> None:
    contents = set()
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        synced_file(directory, b"old")
        new = directory.open("g", create=True)
        new.pwrite(b"new", 0)
        new.fdatasync()
        directory.sync()
        directory.rename("g", "f")
        contents.add(content_after_power_cut(disk))
    assert contents == {b"old", b"new"}


def test_a_background_sync_covers_what_was_written_before_it() -> None:
    is_lost = False
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, b"....")
        file.pwrite(b"A", 0)
        covered = disk.sequence
        file.pwrite(b"B", 1)
        disk.uncovered = (covered, disk.sequence)
        file.fdatasync()
        disk.uncovered = (0, 0)
        left = content_after_power_cut(disk)
        assert left is not None
        assert left[:1] == b"A"
        is_lost |= left[1:2] == b"."
    assert is_lost


def test_durable_sequence_tells_what_no_power_cut_can_take() -> None:
    disk, directory = disk_of(0)
    file = directory.open("1.segment", create=True)
    assert disk.durable_sequence(".segment") < disk.sequence
    directory.sync()
    assert disk.durable_sequence(".segment") == disk.sequence
    file.pwrite(b"x", 0)
    assert disk.durable_sequence(".segment") < disk.sequence
    directory.open("other", create=True).pwrite(b"y", 0)
    file.fdatasync()
    assert disk.durable_sequence(".segment") == disk.sequence


def test_what_was_written_under_another_name_holds_up_nothing() -> None:
    disk, directory = disk_of(0)
    spare = directory.open("1.spare", create=True)
    spare.allocate(32)
    segment = directory.open("1.segment", create=True)
    directory.sync()
    segment.pwrite(b"x", 0)
    segment.fdatasync()
    before = disk.sequence
    directory.rename("1.spare", "2.segment")
    assert disk.durable_sequence(".segment") == before
    directory.sync()
    assert disk.durable_sequence(".segment") == before
    spare.fdatasync()
    assert disk.durable_sequence(".segment") == disk.sequence


def test_a_process_dies_at_the_boundary_that_was_armed() -> None:
    for boundary in range(1, 4):
        disk, directory = disk_of(boundary)
        disk.dies_in = boundary
        for number in range(1, boundary):
            directory.open(f"f{number}", create=True)
        with pytest.raises(ProcessDied):
            directory.open("last", create=True)


def test_the_dead_touch_nothing() -> None:
    disk, directory = disk_of(0)
    file = synced_file(directory, b"x")
    disk.end_process()
    with pytest.raises(ProcessDied):
        file.pwrite(b"y", 0)
    with pytest.raises(ProcessDied):
        file.pread(1, 0)
    with pytest.raises(ProcessDied):
        directory.open("f")
    file.close()


def test_a_failed_sync_leaves_its_writes_undecided() -> None:
    contents = set()
    for seed in SEEDS:
        disk, directory = disk_of(seed)
        file = synced_file(directory, b"old!")
        file.pwrite(b"new!", 0)
        disk.fails_sync = True
        with pytest.raises(FatalDiskError):
            file.fdatasync()
        contents.add(content_after_power_cut(disk))
    assert contents == {b"old!", b"new!"}


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    disk, directory = disk_of(0)
    file = synced_file(directory, b"1234")
    disk.fill(2)
    with pytest.raises(OSError, match="no space"):
        file.pwrite(b"abcd", 4)
    assert file.pread(10, 0) == b"1234ab"
    file.pwrite(b"5678", 0)
    with pytest.raises(OSError, match="no space"):
        directory.open("g", create=True).allocate(100)
    disk.make_room()
    file.pwrite(b"abcd", 4)
    assert file.pread(10, 0) == b"5678abcd"

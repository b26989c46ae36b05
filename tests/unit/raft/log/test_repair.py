"""A log that was refused at the start is repaired, or stays refused."""

import tracemalloc
from random import Random

import pytest

from raft.log.log import Log, LogConfig, LogDamaged
from raft.log.repair import repair, whole_entry
from raft.types import EntryKind
from tests.unit.raft.log.faults import Disk, Loss
from tests.unit.raft.log.model import READ_ALL
from tests.unit.raft.log.test_damage import CONFIG, counted_bytes
from tests.unit.raft.log.test_log import entries, meta, sync
from tests.unit.raft.log.test_scrub import LAST, SIZE, filled, place


def closed() -> Disk:
    disk = Disk()
    filled(disk).close()
    return disk


def refused(disk: Disk) -> LogDamaged | None:
    """Why the log is refused."""
    try:
        Log.open(disk.root, CONFIG).close()
    except LogDamaged as error:
        return error
    return None


def repaired(disk: Disk) -> int:
    """Repair the log with entries of another; return how many were needed."""
    given = 0
    while (error := refused(disk)) is not None:
        wanted = repair(disk.root, CONFIG.group, error)
        if wanted is not None:
            (entry,) = entries(wanted.index, wanted.index + 1, wanted.term, SIZE)
            assert wanted.is_given_by(entry.kind, entry.data)
            wanted.write(disk.root, entry.data)
            given += 1
    return given


def test_any_flipped_bit_is_repaired() -> None:
    before = closed()
    names = [name for name in before.root.names() if name.endswith("segment")]
    for name in names[:-1]:
        for byte in sorted(counted_bytes(before.root, name))[::31]:
            disk = before.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
            disk.root.bytes_of(name)[byte] ^= 1 << byte % 8
            assert repaired(disk) <= 1
            log = Log.open(disk.root, CONFIG)
            assert log.entries(1, LAST + 1, READ_ALL) == entries(1, LAST + 1, size=SIZE), byte
            log.abandon()


def test_several_damaged_entries_are_given_one_after_the_other() -> None:
    disk = Disk()
    log = filled(disk)
    wanted = [3, 4, 20]
    for index in wanted:
        name, offset, _ = place(log, index)
        disk.root.bytes_of(name)[offset + 70 : offset + 80] = bytes(10)
    log.close()
    assert repaired(disk) == len(wanted)


def test_a_log_that_is_refused_gives_what_is_whole_in_it() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 20)
    disk.root.bytes_of(name)[offset + 70 : offset + 80] = bytes(10)
    log.close()
    assert refused(disk) is not None
    for index in range(1, LAST + 1):
        found = whole_entry(disk.root, CONFIG.group, index, 1)
        if index == 20:
            assert found is None, "its own damage is given to nobody"
        else:
            assert (found,) == entries(index, index + 1, size=SIZE)
    assert whole_entry(disk.root, CONFIG.group, LAST + 1, 1) is None
    assert whole_entry(disk.root, CONFIG.group, 3, 2) is None, "of another term"


def test_entries_of_batches_that_go_on_in_another_segment_are_given() -> None:
    """A segment's first record tells where the log ended before the batch, not before it."""
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    for first in (1, 21):
        log.append(None, entries(first, first + 20, size=800))
    log.append(None, entries(11, 31, 2, size=800))  # in place of others
    sync(log)
    log.close()
    for index in range(1, 41):
        term = 2 if 11 <= index <= 30 else 1
        found = whole_entry(disk.root, CONFIG.group, index, term)
        assert (found,) == entries(index, index + 1, term, 800), index


def test_a_segment_that_cannot_be_read_hides_no_entry_of_another() -> None:
    disk = Disk()
    log = filled(disk)
    name, _, _ = place(log, LAST)
    log.close()
    disk.root.make_unreadable(name)
    assert (whole_entry(disk.root, CONFIG.group, 3, 1),) == entries(3, 4, size=SIZE)
    assert whole_entry(disk.root, CONFIG.group, LAST, 1) is None


def test_giving_an_entry_takes_no_memory_for_its_segment() -> None:
    disk = Disk()
    log = Log.open(disk.root, LogConfig(CONFIG.group, CONFIG.salt, segment_bytes=8 << 20))
    log.append(None, entries(1, 2_001, size=SIZE))
    sync(log)
    log.close()
    tracemalloc.start()
    try:
        found = whole_entry(disk.root, CONFIG.group, 2_000, 1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found,) == entries(2_000, 2_001, size=SIZE)
    assert peak_bytes < 100_000


def test_a_lost_header_and_a_lost_file_stay_refused() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 9)
    log.close()
    lost = disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
    lost.root.bytes_of(name)[offset : offset + 8] = bytes(8)
    error = refused(lost)
    assert error is not None
    with pytest.raises(LogDamaged):
        repair(lost.root, CONFIG.group, error)
    disk.root.unlink(name)
    error = refused(disk)
    assert error is not None
    with pytest.raises(LogDamaged):
        repair(disk.root, CONFIG.group, error)


def test_a_segment_that_cannot_be_read_stays_refused_with_its_place() -> None:
    disk = closed()
    name = disk.root.names()[0]
    disk.root.make_unreadable(name)
    error = refused(disk)
    assert error is not None
    with pytest.raises(LogDamaged, match=f"{name}.*cannot be read.*move this log away"):
        repair(disk.root, CONFIG.group, error)


def test_other_data_are_not_taken() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 9)
    disk.root.bytes_of(name)[offset + 70 : offset + 80] = bytes(10)
    log.close()
    error = refused(disk)
    assert error is not None
    wanted = repair(disk.root, CONFIG.group, error)
    assert wanted is not None
    (entry,) = entries(9, 10, size=SIZE)
    assert (wanted.index, wanted.term) == (9, 1)
    assert not wanted.is_given_by(EntryKind.NOOP, entry.data)
    assert not wanted.is_given_by(EntryKind.DATA, entry.data[:-1] + b"!")
    assert not wanted.is_given_by(EntryKind.DATA, entry.data + b"!")


@pytest.mark.parametrize("byte", [3, 70])
def test_damage_that_hides_what_was_dropped_is_repaired(byte: int) -> None:
    """The record that says which files were dropped lies behind it: a file seems to be missing."""
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, LAST - 1)
    log.compact(meta(LAST // 2, 1))
    sync(log)
    log.close()
    disk.root.bytes_of(name)[offset + byte] ^= 1
    error = refused(disk)
    assert error is not None
    assert error.file not in disk.root.names()
    assert repaired(disk) <= 1
    log = Log.open(disk.root, CONFIG)
    assert log.entries(LAST - 1, LAST + 1, READ_ALL) == entries(LAST - 1, LAST + 1, size=SIZE)
    log.abandon()

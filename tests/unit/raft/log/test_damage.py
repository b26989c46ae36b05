"""Bits that flip on the disk: nothing that was synced is lost in silence."""

from random import Random

import pytest
from msgspec import structs

from raft.log.log import Log, LogConfig, LogDamaged
from raft.log.record import (
    RECORD_HEADER_BYTES,
    encode_header,
    parse_header,
    record_bytes,
    segment_keys,
)
from raft.log.segment import SEGMENT_HEADER_BYTES, segment_name
from raft.types import Entry, EntryKind, HardState
from tests.unit.raft.log.faults import Disk, FaultyDirectory, Loss, Stopped
from tests.unit.raft.log.model import READ_ALL, State, differences
from tests.unit.raft.log.test_log import entries, meta, sync

SALT = 0x1234
CONFIG = LogConfig(group=7, salt=SALT, segment_bytes=4096)


def filled(disk: Disk, last: int, *, is_idle: bool = True) -> State:
    """A log with synced entries; if not idle, four more that were never synced."""
    log = Log.open(disk.root, CONFIG)
    log.append(HardState(1, "n1.1", 0), entries(1, last + 1, size=50))
    sync(log)
    if is_idle:
        log.mark_synced()
    else:
        log.append(None, entries(last + 1, last + 5, size=50))
    return State(HardState(1, "n1.1", 0), entries=entries(1, last + 5, size=50))


def copy(disk: Disk) -> FaultyDirectory:
    return disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0)).root


def places(folder: FaultyDirectory, name: str) -> list[tuple[int, int]]:
    """(offset, length with header and padding) of the records of a segment."""
    data = bytes(folder.bytes_of(name))
    keys = segment_keys(CONFIG.group, SALT, int(name.removesuffix(".segment"), 16))
    found = []
    at = SEGMENT_HEADER_BYTES
    while (header := parse_header(data, at, keys)) is not None:
        found.append((at, record_bytes(header.length)))
        at += record_bytes(header.length)
    return found


def newest(disk: Disk) -> str:
    return max(name for name in disk.root.names() if name.endswith("segment"))


def flip(folder: FaultyDirectory, name: str, byte: int) -> None:
    folder.bytes_of(name)[byte] ^= 1 << byte % 8


def counted_bytes(folder: FaultyDirectory, name: str) -> set[int]:
    """The bytes of a segment that are neither padding nor unused."""
    counted = set(range(52))
    for offset, length in places(folder, name):
        data = bytes(folder.bytes_of(name)[offset : offset + length])
        counted |= set(range(offset, offset + RECORD_HEADER_BYTES + data_length(data)))
    return counted


def data_length(record: bytes) -> int:
    return int.from_bytes(record[12:16], "little")


@pytest.mark.parametrize("last", [8, 40])
def test_each_byte_of_a_synced_log_is_refused_when_it_flips(last: int) -> None:
    """Harmless flips are accepted: padding, and the note that the rest is synced."""
    disk = Disk()
    filled(disk, last)
    state = State(HardState(1, "n1.1", 0), entries=entries(1, last + 1, size=50))
    names = [name for name in disk.root.names() if name.endswith("segment")]
    assert len(names) == {8: 1, 40: 2}[last]
    for name in names:
        records = places(disk.root, name)
        counted = counted_bytes(disk.root, name)
        if name == names[-1]:
            counted -= set(range(records[-1][0], sum(records[-1])))
        for byte in range(sum(records[-1]) + 100):
            folder = copy(disk)
            flip(folder, name, byte)
            if byte not in counted:
                assert differences(Log.open(folder, CONFIG), state) == []
                continue
            with pytest.raises(LogDamaged) as caught:
                Log.open(folder, CONFIG)
            error = caught.value
            at = max([0, *(offset for offset, _ in records if offset <= byte)])
            assert (error.file, error.offset) == (name, at), byte
            assert f"{name}: damaged at byte {at} (entry {error.index})" in str(error)
            assert error.index <= last


def test_each_byte_above_the_last_mark_is_cut_when_it_flips() -> None:
    disk = Disk()
    state = filled(disk, 8, is_idle=False)
    (name,) = (name for name in disk.root.names() if name.endswith("segment"))
    records = places(disk.root, name)
    for number, (offset, length) in enumerate(records[-4:]):
        for byte in range(offset, offset + length):
            folder = copy(disk)
            flip(folder, name, byte)
            log = Log.open(folder, CONFIG)
            assert log.last_index() in (8 + number, 12)
            assert log.entries(1, log.last_index() + 1, READ_ALL) == state.between(
                1, log.last_index() + 1
            )
            assert log.hard_state == state.hard_state


def test_what_is_cut_leaves_its_number_unused() -> None:
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    log.append(None, entries(1, 41, size=50))
    offset, _ = places(disk.root, segment_name(1))[5]
    flip(disk.root, segment_name(1), offset)
    assert segment_name(2) in disk.root.names()
    log = Log.open(disk.root, CONFIG)
    assert log.last_index() == 4
    assert segment_name(2) not in disk.root.names()
    log.append(None, entries(5, 41, size=50))
    assert segment_name(2) not in disk.root.names()
    assert segment_name(3) in disk.root.names()
    assert differences(log, State(entries=entries(1, 41, size=50))) == []


def test_the_place_of_damage_names_the_entry() -> None:
    disk = Disk()
    filled(disk, 60)
    name = segment_name(2)
    first = len(places(disk.root, segment_name(1))) - 2
    offset, _ = places(disk.root, name)[3]
    flip(disk.root, name, offset + RECORD_HEADER_BYTES + 30)
    with pytest.raises(LogDamaged) as caught:
        Log.open(disk.root, CONFIG)
    assert (caught.value.file, caught.value.offset) == (name, offset)
    # Before it are the entries of segment 1, a hard state and two entries.
    assert caught.value.index == first + 3
    assert "rejoin under the next incarnation" in str(caught.value)


def test_a_lost_hard_state_is_refused_like_a_lost_entry() -> None:
    """A vote has no index of its own; forgetting it elects two leaders."""
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    log.append(HardState(4, "n1.1", 0), ())
    sync(log)
    log.mark_synced()
    (name,) = (name for name in disk.root.names() if name.endswith("segment"))
    offset, _ = places(disk.root, name)[-2]
    flip(disk.root, name, offset + RECORD_HEADER_BYTES + 8)
    with pytest.raises(LogDamaged):
        Log.open(disk.root, CONFIG)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment_is_refused(number: int) -> None:
    disk = Disk()
    filled(disk, 110)
    assert segment_name(4) in disk.root.names()
    disk.root.unlink(segment_name(number))
    with pytest.raises(LogDamaged):
        Log.open(disk.root, CONFIG)


def test_a_missing_newest_segment_is_refused_by_name() -> None:
    """The one before it names it once it is durable."""
    disk = Disk()
    filled(disk, 110)
    name = newest(disk)
    disk.root.unlink(name)
    with pytest.raises(LogDamaged, match="the file is missing") as caught:
        Log.open(disk.root, CONFIG)
    assert caught.value.file == name


def test_a_newest_segment_without_a_valid_header_is_refused_by_name() -> None:
    disk = Disk()
    filled(disk, 110)
    name = newest(disk)
    disk.root.bytes_of(name)[:] = bytes(CONFIG.segment_bytes)
    with pytest.raises(LogDamaged, match="the header") as caught:
        Log.open(disk.root, CONFIG)
    assert caught.value.file == name


def test_a_newest_segment_that_was_never_synced_may_be_missing() -> None:
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    log.append(None, entries(1, 41, size=50))
    disk.root.unlink(newest(disk))
    assert 0 < Log.open(disk.root, CONFIG).last_index() < 41


@pytest.mark.parametrize("left_out", [1, 2])
def test_a_name_that_a_crash_left_out_is_made_up_for(left_out: int) -> None:
    """The newest segment was durable; the one before it was not written, or not synced."""
    config = structs.replace(CONFIG, spare_segments=0)
    disk = Disk()
    log = Log.open(disk.root, config)
    log.append(None, entries(1, 111, size=50))
    disk.stop_at = disk.operations + _operations_of_a_sync(config) - left_out
    with pytest.raises(Stopped):
        log.begin_sync().run()
    disk = disk.after_crash(Loss.NOTHING_SURVIVES, Random(0))
    log = Log.open(disk.root, config)
    assert log.last_index() == 110
    log.append(None, entries(111, 112, size=50))
    sync(log)
    name = newest(disk)
    disk.root.unlink(name)
    with pytest.raises(LogDamaged, match=f"{name}.*the file is missing"):
        Log.open(disk.root, config)


def test_a_name_that_is_found_is_durable_like_all_that_is_found() -> None:
    """A process that was killed may have left it in the page cache alone."""
    config = structs.replace(CONFIG, spare_segments=0)
    disk = Disk()
    log = Log.open(disk.root, config)
    log.append(None, entries(1, 111, size=50))
    disk.stop_at = disk.operations + _operations_of_a_sync(config) - 2
    with pytest.raises(Stopped):
        log.begin_sync().run()
    disk.stop_at = None
    log = Log.open(disk.root, config)
    log.append(None, entries(111, 112, size=50))
    disk.stop_at = disk.operations + 2  # the entry's sync, and the name is written
    with pytest.raises(Stopped):
        log.begin_sync().run()
    disk.stop_at = None
    Log.open(disk.root, config)
    disk = disk.after_crash(Loss.NOTHING_SURVIVES, Random(0))
    name = newest(disk)
    disk.root.unlink(name)
    with pytest.raises(LogDamaged, match=f"{name}.*the file is missing"):
        Log.open(disk.root, config)


def _operations_of_a_sync(config: LogConfig) -> int:
    """How often the disk is asked to make those entries durable."""
    disk = Disk()
    log = Log.open(disk.root, config)
    log.append(None, entries(1, 111, size=50))
    before = disk.operations
    sync(log)
    return disk.operations - before


def test_a_full_disk_puts_off_the_name_of_the_newest_segment() -> None:
    """What is durable is acknowledged anyway, and a later sync makes up for it."""
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    log.append(None, entries(1, 111, size=50))
    disk.write_budget_bytes = 0
    assert sync(log) == 110
    disk.write_budget_bytes = None
    log.append(None, entries(111, 112, size=50))
    sync(log)
    name = newest(disk)
    disk.root.unlink(name)
    with pytest.raises(LogDamaged, match=f"{name}.*the file is missing"):
        Log.open(disk.root, CONFIG)


@pytest.mark.parametrize("number", [3, 4])
def test_a_missing_segment_of_a_compacted_log_is_refused(number: int) -> None:
    disk = Disk()
    filled(disk, 110)
    log = Log.open(disk.root, CONFIG)
    log.compact(meta(60))
    sync(log)
    log.close()
    assert next(n for n in disk.root.names() if n.endswith("segment")) == segment_name(3)
    disk.root.unlink(segment_name(number))
    with pytest.raises(LogDamaged):
        Log.open(disk.root, CONFIG)


def test_a_missing_segment_without_entries_is_refused() -> None:
    """All that it said, a later one says again; but who knows what else is missing."""
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    for term in range(1, 50):
        log.append(HardState(term, "n1.1", 0), ())
    sync(log)
    log.close()
    disk.root.unlink(segment_name(1))
    with pytest.raises(LogDamaged, match="the file is missing") as caught:
        Log.open(disk.root, CONFIG)
    assert (caught.value.file, caught.value.index) == (segment_name(1), 1)


@pytest.mark.parametrize("length", [0, 10, 64, 1000, 4000])
def test_a_shortened_segment_is_refused(length: int) -> None:
    disk = Disk()
    filled(disk, 60)
    del disk.root.bytes_of(segment_name(2))[length:]
    with pytest.raises(LogDamaged):
        Log.open(disk.root, CONFIG)


def test_another_group_s_log_is_refused() -> None:
    disk = Disk()
    filled(disk, 8)
    with pytest.raises(LogDamaged, match="belongs to group 7, not to group 8"):
        Log.open(disk.root, LogConfig(group=8, salt=1, segment_bytes=4096))


def test_what_cannot_be_read_is_refused() -> None:
    disk = Disk()
    filled(disk, 60)
    disk.fails_to_read = True
    with pytest.raises(LogDamaged, match="cannot be read"):
        Log.open(disk.root, CONFIG)


def test_damage_while_running_is_seen_by_who_reads_entries() -> None:
    disk = Disk()
    filled(disk, 60)
    log = Log.open(disk.root, CONFIG)
    offset, _ = places(disk.root, segment_name(2))[3]
    index = len(places(disk.root, segment_name(1))) - 2 + 3
    flip(disk.root, segment_name(2), offset + RECORD_HEADER_BYTES + 30)
    assert log.entries(1, index, READ_ALL) == entries(1, index, size=50)
    with pytest.raises(LogDamaged) as caught:
        log.entries(1, 60, READ_ALL)
    assert (caught.value.file, caught.value.offset) == (segment_name(2), offset)
    assert caught.value.index == index
    assert log.read_entry(index - 1) == entries(index - 1, index, size=50)[0].data
    with pytest.raises(LogDamaged):
        log.read_entry(index)
    disk.fails_to_read = True
    reads = (lambda: log.entries(1, 2, 1), lambda: log.read(1, 0, 1), lambda: log.read_entry(1))
    for read in reads:
        with pytest.raises(LogDamaged, match="cannot be read"):
            read()


def test_a_body_that_imitates_records_proves_nothing() -> None:
    """A peer may send bytes that look like a record which says that all before it was synced. In
    a torn write recovery finds them behind the tear, and must not refuse the log for them.
    """
    guesses = [segment_keys(7, salt, 1) for salt in (0, 1, SALT + 1)]
    forged = b"".join(encode_header(keys, 1, 1, 10, b"", (10, 4000), 0)[0] for keys in guesses)
    true = encode_header(segment_keys(7, SALT, 1), 1, 1, 10, b"", (10, 4000), 0)[0]
    for body, is_refused in ((forged, False), (true, True)):
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(None, (Entry(1, 1, EntryKind.DATA, body),))
        name = segment_name(1)
        offset, _ = places(disk.root, name)[1]
        flip(disk.root, name, offset)
        if is_refused:
            with pytest.raises(LogDamaged):
                Log.open(disk.root, CONFIG)
        else:
            assert Log.open(disk.root, CONFIG).last_index() == 0


def test_stale_records_of_a_recycled_segment_are_never_found() -> None:
    """All records have one size, so that those of the former life are where new ones would be."""
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    last = 0
    for _ in range(30):
        log.append(None, entries(last + 1, last + 6, size=900))
        last += 5
        sync(log)
        log.compact(meta(last))
        sync(log)
        folder = copy(disk)
        found = Log.open(folder, CONFIG)
        assert found.last_index() == last
        state = State(entries=entries(1, last + 1, size=900), meta=meta(last))
        assert differences(found, state) == []
    reused = [name for name in disk.root.names() if disk.root.bytes_of(name).count(b"1.1 ")]
    assert reused

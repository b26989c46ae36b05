"""A running log finds damaged records and is given them again."""

from collections.abc import Sequence

import pytest

from raft.log.files import FatalDiskError
from raft.log.log import Log, LogDamaged
from raft.log.record import RECORD_HEADER_BYTES, Header, parse_header
from raft.log.scrub import CannotRepair, DamagedRange
from raft.types import Entry, EntryKind, HardState
from tests.unit.raft.log.faults import Disk, FaultyDirectory, FaultyFile
from tests.unit.raft.log.model import READ_ALL
from tests.unit.raft.log.test_damage import CONFIG
from tests.unit.raft.log.test_log import entries, meta, sync

LAST = 60
SIZE = 150


def filled(disk: Disk) -> Log:
    """A log of several segments, with hard states and a truncation between the entries."""
    log = Log.open(disk.root, CONFIG)
    for index in range(1, LAST + 1):
        state = HardState(1, "n1.1", index - 1) if index % 7 == 0 else None
        log.append(state, entries(index, index + 1, size=SIZE))
        if index % 3 == 0:
            sync(log)
        if index == 30:
            log.append(None, entries(28, 31, size=SIZE))
    sync(log)
    log.mark_synced()
    return log


def place(log: Log, index: int) -> tuple[str, int, int]:
    """File, offset of the record and length of the data of an entry."""
    segment = log.scrub._contents.segment_of(index)
    return segment.name, *segment.table.place(index)


def header_of(disk: Disk, log: Log, index: int) -> Header:
    """The header of an entry's record, as it is on the disk."""
    name, offset, _ = place(log, index)
    data = bytes(disk.root.bytes_of(name)[offset : offset + RECORD_HEADER_BYTES])
    header = parse_header(data, 0, log.scrub._contents.segment_of(index).keys)
    assert header is not None
    return header


def spoil(folder: FaultyDirectory, name: str, begin: int, end: int) -> None:
    data = folder.bytes_of(name)
    for at in range(begin, end):
        data[at] ^= 0x5A


def scrubbed(log: Log, step: int = 1_000) -> list[DamagedRange]:
    position, found = 0, []
    while (stretch := log.scrub.stretch(position)) is not None:
        following, damaged = stretch.read(step)
        assert following > position
        position = following
        found += damaged
    return found


def damaged(log: Log) -> list[int]:
    return [index for found in scrubbed(log) for index in log.scrub.damaged_entries(found)]


def repair(log: Log, wanted: Sequence[Entry], *, is_confirmed: bool = True) -> None:
    for entry in wanted:
        log.scrub.repair(entry, is_confirmed=is_confirmed).run()


def reopened(disk: Disk, log: Log) -> Log:
    log.close()
    return Log.open(disk.root, CONFIG)


def test_a_round_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    log = filled(disk)
    opened: list[FaultyFile] = []
    plain = FaultyDirectory.open

    def noted(self: FaultyDirectory, name: str, *, create: bool = False) -> FaultyFile:
        opened.append(plain(self, name, create=create))
        return opened[-1]

    monkeypatch.setattr(FaultyDirectory, "open", noted)
    assert scrubbed(log) == []
    assert opened
    assert all(file.is_closed for file in opened)


@pytest.mark.parametrize("step", [1, 500, 4_000, 1 << 20])
def test_a_whole_log_has_no_damage(step: int) -> None:
    log = filled(Disk())
    assert scrubbed(log, step) == []


@pytest.mark.parametrize("index", [1, 17, 27, 28, 33, 59])
@pytest.mark.parametrize("byte", [0, SIZE - 1])
def test_damaged_data_are_found_and_repaired_with_the_same_bytes(index: int, byte: int) -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, index)
    before = bytes(disk.root.bytes_of(name))
    spoil(disk.root, name, offset + RECORD_HEADER_BYTES + byte, offset + 65 + byte)
    assert damaged(log) == [index]
    repair(log, entries(index, index + 1, size=SIZE), is_confirmed=False)
    assert bytes(disk.root.bytes_of(name)) == before
    assert damaged(log) == []
    assert len(reopened(disk, log).entries(1, LAST + 1, READ_ALL)) == LAST


@pytest.mark.parametrize("index", [1, 17, 20, 21, 28, 59])
def test_a_lost_header_is_rebuilt_so_that_the_log_links_up(index: int) -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, length = place(log, index)
    spoil(disk.root, name, offset, offset + RECORD_HEADER_BYTES + length)
    assert damaged(log) == [index]
    repair(log, entries(index, index + 1, size=SIZE))
    assert scrubbed(log) == []
    assert reopened(disk, log).entries(1, LAST + 1, READ_ALL) == entries(1, LAST + 1, size=SIZE)


def test_a_lost_header_at_the_end_of_any_file_is_rebuilt() -> None:
    log = filled(Disk())
    last = {place(log, index)[0]: index for index in range(1, LAST + 1)}
    assert len(last) > 3
    for index in last.values():
        disk = Disk()
        log = filled(disk)
        name, offset, length = place(log, index)
        spoil(disk.root, name, offset, offset + RECORD_HEADER_BYTES + length)
        repair(log, entries(index, index + 1, size=SIZE))
        assert scrubbed(log) == []
        assert reopened(disk, log).entries(1, LAST + 1, READ_ALL) == entries(1, LAST + 1, size=SIZE)


@pytest.mark.parametrize(("index", "before"), [(1, None), (17, 16), (29, 28), (59, 58)])
def test_a_rebuilt_header_claims_no_more_was_synced_than_the_one_before_it(
    index: int, before: int | None
) -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, length = place(log, index)
    spoil(disk.root, name, offset, offset + RECORD_HEADER_BYTES + length)
    repair(log, entries(index, index + 1, size=SIZE))
    rebuilt = header_of(disk, log, index)
    known = (0, 0)
    if before is not None:
        neighbour = header_of(disk, log, before)
        known = neighbour.synced_index, neighbour.synced_position
        assert known > (0, 0)
    assert (rebuilt.synced_index, rebuilt.synced_position) == known


def test_neighbours_that_are_lost_together_are_rebuilt_in_their_order() -> None:
    disk = Disk()
    log = filled(disk)
    name, begin, _ = place(log, 8)
    _, end, length = place(log, 11)
    spoil(disk.root, name, begin, end + RECORD_HEADER_BYTES + length)
    assert damaged(log) == [8, 9, 10, 11]
    repair(log, entries(8, 12, size=SIZE))
    assert scrubbed(log) == []
    assert reopened(disk, log).last_index() == LAST


def test_sectors_that_cannot_be_read_are_damage() -> None:
    disk = Disk()
    log = filled(disk)
    disk.fails_to_read = True
    assert damaged(log) == [*range(1, LAST + 1)]


def test_other_bytes_are_refused_and_nothing_is_written() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset + RECORD_HEADER_BYTES, offset + 70)
    before = bytes(disk.root.bytes_of(name))
    good = entries(5, 6, size=SIZE)[0]
    for wrong in (
        Entry(5, 1, EntryKind.DATA, good.data[:-1] + b"!"),
        Entry(5, 1, EntryKind.DATA, good.data + b"!"),
        Entry(5, 2, EntryKind.DATA, good.data),
        Entry(5, 1, EntryKind.NOOP, good.data),
    ):
        with pytest.raises(CannotRepair):
            repair(log, [wrong])
    assert bytes(disk.root.bytes_of(name)) == before


def test_a_lost_checksum_needs_two_members_that_agree() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset, offset + 4)
    with pytest.raises(CannotRepair, match="two members"):
        repair(log, entries(5, 6, size=SIZE), is_confirmed=False)


def test_damage_of_a_file_that_was_reused_meanwhile_does_not_count() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset, offset + 4)
    found = scrubbed(log)
    stretch = log.scrub.stretch(0)
    log.compact(meta(40))
    sync(log)
    assert [log.scrub.holds(one) for one in found] == [False]
    assert log.scrub.damaged_entries(found[0]) == []
    assert stretch is not None
    assert stretch.read(100)[0] > 0


def test_a_damaged_record_that_is_not_an_entry_is_found_with_its_segment() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, length = place(log, 6)  # a hard state follows it
    at = offset + (RECORD_HEADER_BYTES + length + 63) // 64 * 64
    spoil(disk.root, name, at, at + 1)
    (found,) = scrubbed(log)
    assert log.scrub.damaged_entries(found) == []
    assert log.scrub.holds(found)
    upto = log.scrub.last_index_of(found)
    assert upto >= 7
    log.compact(meta(upto))
    assert scrubbed(log) == []
    sync(log)
    assert reopened(disk, log).first_index() == upto + 1


@pytest.mark.parametrize("byte", [0, 9, 33, 50])
def test_one_bit_is_corrected_without_another_member(byte: int) -> None:
    disk = Disk()
    log = filled(disk)
    whole = {name: bytes(disk.root.bytes_of(name)) for name in disk.root.names()}
    name, offset, length = place(log, 6)  # a hard state follows it
    hard_state = offset + (RECORD_HEADER_BYTES + length + 63) // 64 * 64
    for at in (0, offset, hard_state, hard_state + 64):
        disk.root.bytes_of(name)[at + byte % (64 if at <= hard_state else 8)] ^= 8
        (found,) = scrubbed(log)
        token = log.scrub.correct(found)
        assert token is not None
        token.run()
        assert scrubbed(log) == []
    assert {name: bytes(disk.root.bytes_of(name)) for name in disk.root.names()} == whole


def test_an_error_while_a_repair_is_synced_is_fatal() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset + RECORD_HEADER_BYTES, offset + 70)
    token = log.scrub.repair(entries(5, 6, size=SIZE)[0], is_confirmed=False)
    disk.fails_to_sync = True
    with pytest.raises(FatalDiskError):
        token.run()


def test_entries_are_given_to_other_members_if_they_are_whole() -> None:
    disk = Disk()
    log = filled(disk)
    assert log.scrub.entry(5, 1) == entries(5, 6, size=SIZE)[0]
    assert log.scrub.entry(5, 2) is None
    assert log.scrub.entry(LAST + 1, 1) is None
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset + RECORD_HEADER_BYTES, offset + 70)
    assert log.scrub.entry(5, 1) is None
    with pytest.raises(LogDamaged):
        log.read_entry(5)


def test_an_entry_is_whole_unless_its_record_is_damaged() -> None:
    disk = Disk()
    log = filled(disk)
    name, offset, _ = place(log, 5)
    spoil(disk.root, name, offset + RECORD_HEADER_BYTES, offset + 70)
    log.compact(meta(2))
    indexes = (0, 1, 4, 5, 6, LAST, LAST + 1)
    assert [index for index in indexes if not log.scrub.is_whole(index)] == [5]

"""What a log promises its owner, on the real disk and on the tests' own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raft.inspection import Inspection
from raft.log.disk import DiskDirectory
from raft.log.files import Directory
from raft.log.log import Log, LogConfig, has_log
from raft.log_view import Compacted, Unavailable
from raft.types import Configuration, Entry, EntryKind, HardState, SnapshotMeta
from tests.unit.raft.log.faults import Disk
from tests.unit.raft.log.model import READ_ALL, State, after_append, differences

CONFIG = LogConfig(group=7, salt=0x1234, segment_bytes=4096)
MEMBERS = Configuration(("n1.1", "n2.1", "n3.1"), ("n4.1",), ("n0.1",))


def real(tmp_path: Path) -> Directory:
    return DiskDirectory(tmp_path / "log")


def faulty(_: Path) -> Directory:
    return Disk().root


@pytest.fixture(params=[real, faulty])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    make: Callable[[Path], Directory] = request.param
    return make(tmp_path)


@pytest.fixture
def log(directory: Directory) -> Iterator[Log]:
    log = Log.open(directory, CONFIG)
    yield log
    log.close()


def entries(low: int, high: int, term: int = 1, size: int = 100) -> tuple[Entry, ...]:
    """Entries from `low` to below `high`, each with its own data."""
    return tuple(
        Entry(index, term, EntryKind.DATA, (b"%d.%d " % (index, term)).ljust(size, b"."))
        for index in range(low, high)
    )


def meta(index: int, term: int = 1) -> SnapshotMeta:
    return SnapshotMeta(index, term, MEMBERS, 1000)


def sync(log: Log) -> int:
    token = log.begin_sync()
    token.run()
    return log.end_sync(token)


def reopened(directory: Directory, log: Log, **changes: Any) -> Log:
    log.close()
    settings = {"group": CONFIG.group, "salt": 0, "segment_bytes": 4096} | changes
    return Log.open(directory, LogConfig(**settings))


class TestEmpty:
    def test_a_new_log_has_nothing(self, log: Log) -> None:
        assert (log.first_index(), log.last_index(), log.durable_index) == (1, 0, 0)
        assert (log.term(0), log.last_term) == (0, 0)
        assert log.hard_state == HardState()
        assert log.snapshot_meta is None
        assert log.config_entries() == ()
        assert not log.has_unsynced
        assert log.entries(1, 1, READ_ALL) == ()

    def test_it_is_there_from_then_on(self, directory: Directory) -> None:
        assert not has_log(directory)
        Log.open(directory, CONFIG).close()
        assert has_log(directory)

    def test_reading_it_says_what_is_missing(self, log: Log) -> None:
        for read in (lambda: log.term(1), lambda: log.entries(1, 2, 1), lambda: log.read(1, 0, 0)):
            with pytest.raises(Unavailable):
                read()
        with pytest.raises(Compacted):
            log.entries(0, 1, READ_ALL)


class TestAppend:
    def test_entries_can_be_read_at_once_and_are_durable_after_a_sync(self, log: Log) -> None:
        log.append(HardState(1, "n1.1", 0), entries(1, 4))
        assert log.entries(1, 4, READ_ALL) == entries(1, 4)
        assert log.has_unsynced
        assert log.durable_index == 0
        assert sync(log) == 3
        assert log.durable_index == 3
        assert not log.has_unsynced

    def test_data_of_any_length_come_back(self, log: Log) -> None:
        sizes = [0, 1, 3, 4, 5, 11, 12, 100, 3000, 4096, 9000, 70_000]
        written = tuple(
            Entry(number, 1, EntryKind.DATA, bytes([number]) * size)
            for number, size in enumerate(sizes, start=1)
        )
        log.append(None, written)
        assert log.entries(1, len(sizes) + 1, READ_ALL) == written

    def test_kinds_come_back(self, directory: Directory, log: Log) -> None:
        written = tuple(
            Entry(index, 1, kind, b"x") for index, kind in enumerate(EntryKind, start=1)
        )
        log.append(None, written)
        log = reopened(directory, log)
        assert log.entries(1, 4, READ_ALL) == written
        assert log.config_entries() == tuple(e for e in written if e.kind == EntryKind.CONFIG)
        log.close()

    def test_a_batch_may_span_many_segments(self, directory: Directory, log: Log) -> None:
        log.append(HardState(3, None, 1), entries(1, 500))
        assert len([name for name in directory.names() if name.endswith("segment")]) > 10
        assert sync(log) == 499
        assert log.entries(1, 500, READ_ALL) == entries(1, 500)

    def test_gaps_are_refused(self, log: Log) -> None:
        log.append(None, entries(1, 4))
        with pytest.raises(ValueError, match="neither the next one"):
            log.append(None, entries(5, 6))
        with pytest.raises(ValueError, match="neither the next one"):
            log.append(None, entries(0, 1))
        with pytest.raises(ValueError, match="in the place of"):
            log.append(None, entries(4, 5) + entries(6, 7))
        assert log.last_index() == 3

    def test_the_same_hard_state_is_not_written_again(self, directory: Directory, log: Log) -> None:
        log.append(HardState(1, "n1.1", 0), ())
        sync(log)
        log.append(HardState(1, "n1.1", 0), ())
        assert not log.has_unsynced

    def test_hard_state_comes_back(self, directory: Directory, log: Log) -> None:
        for state in (HardState(1, "n1.1", 0), HardState(2, None, 0), HardState(2, "ñ.2", 9)):
            log.append(state, ())
            log = reopened(directory, log)
            assert log.hard_state == state
        log.close()


class TestTruncation:
    def test_an_entry_replaces_all_from_its_index_on(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 100))
        log.append(None, entries(50, 52, term=2))
        expected = entries(1, 50) + entries(50, 52, term=2)
        assert log.entries(1, 52, READ_ALL) == expected
        assert (log.last_index(), log.last_term) == (51, 2)
        assert (log.term(49), log.term(50)) == (1, 2)
        with pytest.raises(Unavailable):
            log.term(52)
        log = reopened(directory, log)
        assert log.entries(1, 52, READ_ALL) == expected
        log.close()

    def test_what_was_durable_is_so_only_up_to_there(self, log: Log) -> None:
        log.append(None, entries(1, 10))
        sync(log)
        log.append(None, entries(5, 20, term=2))
        assert log.durable_index == 4
        assert sync(log) == 19

    def test_a_sync_that_began_before_says_nothing_of_the_new_entries(self, log: Log) -> None:
        log.append(None, entries(1, 10))
        token = log.begin_sync()
        log.append(None, entries(5, 20, term=2))
        token.run()
        assert log.end_sync(token) == 4
        assert sync(log) == 19

    def test_reading_across_what_was_truncated(self, log: Log) -> None:
        log.append(None, entries(1, 3))
        log.append(None, (Entry(3, 1, EntryKind.DATA, bytes(200_000)),))
        log.append(None, entries(3, 5, term=2))
        assert log.entries(1, 5, READ_ALL) == entries(1, 3) + entries(3, 5, term=2)

    def test_a_far_truncation_does_not_read_what_lies_between(self, tmp_path: Path) -> None:
        config = LogConfig(group=1, salt=1, segment_bytes=1 << 20)
        with_gap = Log.open(DiskDirectory(tmp_path / "gap"), config)
        with_gap.append(None, entries(1, 3))
        with_gap.append(None, (Entry(3, 1, EntryKind.DATA, bytes(200_000)),))
        with_gap.append(None, entries(3, 5, term=2))
        assert with_gap.entries(1, 5, READ_ALL) == entries(1, 3) + entries(3, 5, term=2)
        with_gap.close()

    @pytest.mark.parametrize("last", [3, 99])
    def test_truncated_members_are_forgotten(
        self, directory: Directory, log: Log, last: int
    ) -> None:
        config = Entry(3, 1, EntryKind.CONFIG, b"members")
        log.append(None, (*entries(1, 3), config, *entries(4, last + 1)))
        assert log.config_entries() == (config,)
        log.append(None, entries(3, 4, term=2))
        assert log.config_entries() == ()
        log = reopened(directory, log)
        assert log.config_entries() == ()
        log.close()

    @pytest.mark.parametrize("cuts", [(90, 5, 3), (40, 60, 20), (1, 1, 1)])
    def test_again_and_again_across_segments(
        self, directory: Directory, log: Log, cuts: tuple[int, ...]
    ) -> None:
        log.append(None, entries(1, 200))
        state = State(entries=entries(1, 200))
        for term, cut in enumerate(cuts, start=2):
            batch = entries(cut, cut + 70, term)
            log.append(None, batch)
            state = after_append(state, None, batch)[-1]
            assert differences(log, state) == []
        log = reopened(directory, log)
        assert differences(log, state) == []
        log.close()


class TestReading:
    def test_as_much_as_fits_and_at_least_one(self, log: Log) -> None:
        log.append(None, entries(1, 100))
        assert log.entries(1, 100, 0) == entries(1, 2)
        assert log.entries(1, 100, 199) == entries(1, 2)
        assert log.entries(1, 100, 200) == entries(1, 3)
        assert log.entries(30, 100, 5_000) == entries(30, 80)
        assert log.entries(98, 100, READ_ALL) == entries(98, 100)

    def test_a_range_must_be_in_the_log(self, log: Log) -> None:
        log.append(None, entries(1, 4))
        with pytest.raises(Unavailable):
            log.entries(2, 5, READ_ALL)
        with pytest.raises(ValueError, match="not a range"):
            log.entries(3, 2, READ_ALL)

    def test_a_part_of_an_entry(self, log: Log) -> None:
        log.append(None, entries(1, 100))
        assert log.read(77, 0, 4) == b"77.1"
        assert log.read(77, 1, 3) == b"7.1"
        assert log.read(77, 100, 0) == b""
        for offset, length in ((0, 101), (100, 1), (-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="has 100 bytes"):
                log.read(77, offset, length)

    def test_a_whole_entry(self, log: Log) -> None:
        log.append(None, entries(1, 100))
        assert log.read_entry(77) == log.read(77, 0, 100)

    def test_terms_come_without_the_disk(self, log: Log) -> None:
        for term in range(1, 40):
            log.append(None, entries(term * 3, term * 3 + 3, term) if term > 1 else entries(1, 6))
        assert [log.term(i) for i in (0, 1, 5, 6, 8, 9, 119)] == [0, 1, 1, 2, 2, 3, 39]


class TestSync:
    def test_appending_goes_on_while_it_runs(self, log: Log) -> None:
        log.append(None, entries(1, 4))
        token = log.begin_sync()
        log.append(None, entries(4, 9))
        token.run()
        assert log.end_sync(token) == 3
        assert log.has_unsynced
        assert sync(log) == 8

    def test_one_is_outstanding_at_most(self, log: Log) -> None:
        log.append(None, entries(1, 4))
        token = log.begin_sync()
        with pytest.raises(ValueError, match="has not ended"):
            log.begin_sync()
        with pytest.raises(ValueError, match="has not run"):
            log.end_sync(token)
        token.run()
        log.end_sync(token)
        with pytest.raises(ValueError, match="not outstanding"):
            log.end_sync(token)

    def test_one_group_commit_costs_one_fdatasync(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, LogConfig(group=1, salt=1))
        before = disk.syncs
        for batch in range(10):
            for index in range(5):
                low = batch * 50 + index * 10 + 1
                log.append(HardState(1, None, low), entries(low, low + 10))
            sync(log)
        assert disk.syncs - before == 10

    def test_the_disk_begins_before_a_thread_waits_for_it_once_for_each_sync(self) -> None:
        """More would fill the queue of a stuck disk, and stop the writer."""
        disk = Disk()
        log = Log.open(disk.root, LogConfig(group=1, salt=1))
        log.append(None, entries(1, 3))
        assert disk.write_outs == 0
        token = log.begin_sync()
        assert disk.write_outs == 1
        log.append(None, entries(3, 5))
        token.run()
        log.end_sync(token)
        assert disk.write_outs == 1


class TestMark:
    def test_it_is_written_once_and_only_when_idle(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(None, entries(1, 3))
        writes = disk.operations
        log.mark_synced()
        token = log.begin_sync()
        log.mark_synced()
        assert disk.operations == writes
        token.run()
        log.end_sync(token)
        writes = disk.operations
        log.mark_synced()
        assert disk.operations == writes + 1
        assert not log.has_unsynced
        log.mark_synced()
        assert disk.operations == writes + 1
        log.append(None, entries(3, 4))
        sync(log)
        log.mark_synced()
        found = Log.open(disk.root, CONFIG)
        assert found.entries(1, 4, READ_ALL) == entries(1, 4)


class TestCompaction:
    def test_whole_segments_go_and_the_rest_stays(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        log.compact(meta(100))
        first = log.first_index()
        assert 50 < first <= 101
        assert log.entries(first, 200, READ_ALL) == entries(first, 200)
        assert log.term(first - 1) == 1
        assert log.snapshot_meta == meta(100)
        for read in (
            lambda: log.term(first - 2),
            lambda: log.entries(first - 1, 200, READ_ALL),
            lambda: log.read(first - 1, 0, 1),
            lambda: log.hold(first - 1),
        ):
            with pytest.raises(Compacted):
                read()
        log = reopened(directory, log)
        assert log.first_index() == first
        assert log.snapshot_meta == meta(100)
        assert log.entries(first, 200, READ_ALL) == entries(first, 200)
        log.close()

    def test_carefully_the_oldest_segment_goes_alone(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        retired: list[tuple[int, int]] = []
        log.on_retire(lambda first, last: retired.append((first, last)))
        while log.first_index() < 150:
            first, end = log.first_index(), log.oldest_end()
            log.compact(meta(199), is_careful=True)
            assert retired.pop() == (first, end)
            assert not retired
            assert log.first_index() == end + 1
            sync(log)

    def test_nothing_goes_that_is_not_synced(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        with pytest.raises(ValueError, match="durable"):
            log.compact(meta(199))
        sync(log)
        log.compact(meta(199))
        assert log.first_index() > 150

    def test_files_are_reused(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 100))
        sync(log)
        log.compact(meta(90))
        sync(log)
        for low in range(100, 2000, 50):
            log.append(None, entries(low, low + 50))
            sync(log)
            log.compact(meta(low + 40))
            sync(log)
            assert len(directory.names()) <= 10
        first = log.first_index()
        assert log.entries(first, 2000, READ_ALL) == entries(first, 2000)

    def test_held_entries_stay_until_released(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        with log.hold(60), log.hold(120):
            log.compact(meta(199))
            first = log.first_index()
            assert 30 < first <= 60
            assert log.read(60, 0, 4) == b"60.1"
        log.compact(meta(199))
        assert log.first_index() > 150

    def test_releasing_a_hold_twice_does_nothing(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        hold, other = log.hold(1), log.hold(1)
        hold.release()
        hold.release()
        log.compact(meta(199))
        assert log.first_index() == 1
        other.release()
        log.compact(meta(199))
        assert log.first_index() > 150

    def test_the_hook_hears_of_every_entry_once_and_in_time(self, log: Log) -> None:
        heard: list[int] = []

        def retire(first: int, last: int) -> None:
            assert log.entries(first, last + 1, READ_ALL) == entries(first, last + 1)
            heard.extend(range(first, last + 1))

        log.on_retire(retire)
        log.append(None, entries(1, 200))
        sync(log)
        for upto in (50, 50, 120, 199):
            log.compact(meta(upto))
            assert heard == list(range(1, log.first_index()))
        assert len(heard) > 150

    def test_a_hook_that_fails_keeps_everything(self, log: Log) -> None:
        def fail(first: int, last: int) -> None:
            raise RuntimeError(f"{first} to {last} cannot be moved")

        log.append(None, entries(1, 200))
        sync(log)
        log.on_retire(fail)
        with pytest.raises(RuntimeError):
            log.compact(meta(150))
        assert log.first_index() == 1
        assert log.entries(1, 200, READ_ALL) == entries(1, 200)

    def test_truncated_segments_go_too(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 150))
        log.append(None, entries(10, 200, term=2))
        sync(log)
        log.compact(meta(180, term=2))
        first = log.first_index()
        assert first > 100
        log = reopened(directory, log)
        assert log.first_index() == first
        assert log.entries(first, 200, READ_ALL) == entries(first, 200, term=2)
        log.close()

    def test_what_the_meta_stands_for_can_not_be_replaced(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        log.compact(meta(100))
        with pytest.raises(ValueError, match="may be replaced"):
            log.append(None, entries(100, 101, term=2))
        log.append(None, entries(101, 102, term=2))

    def test_the_meta_must_be_of_this_log(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        for wrong in (meta(100, term=2), meta(200)):
            with pytest.raises(ValueError, match="durable"):
                log.compact(wrong)

    def test_an_older_meta_does_not_replace_a_newer_one(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        sync(log)
        with log.hold(60):
            log.compact(meta(199))
        log.compact(meta(150))
        assert log.first_index() > 110
        assert log.snapshot_meta == meta(199)

    def test_members_below_stay_known_through_the_meta(self, log: Log) -> None:
        config = Entry(200, 1, EntryKind.CONFIG, b"members")
        log.append(None, (Entry(1, 1, EntryKind.CONFIG, b"old"), *entries(2, 200), config))
        sync(log)
        log.compact(meta(199))
        assert log.config_entries() == (config,)

    def test_members_of_dropped_segments_do_not_return(
        self, directory: Directory, log: Log
    ) -> None:
        """Their files are there until a sync has made the floor durable."""
        log.append(None, (Entry(1, 1, EntryKind.CONFIG, b"old"), *entries(2, 200)))
        sync(log)
        log.compact(meta(199))
        log = reopened(directory, log)
        assert log.config_entries() == ()
        log.close()


class TestReset:
    @pytest.mark.parametrize("index", [1, 60, 199, 200, 5000])
    def test_the_log_begins_behind_the_snapshot(
        self, directory: Directory, log: Log, index: int
    ) -> None:
        log.append(HardState(3, "n2.1", 7), (*entries(1, 200),))
        log.reset(meta(index, 3))
        for _ in range(2):
            assert (log.first_index(), log.last_index()) == (index + 1, index)
            assert (log.term(index), log.last_term, log.durable_index) == (3, 3, index)
            assert log.snapshot_meta == meta(index, 3)
            assert log.hard_state == HardState(3, "n2.1", 7)
            log = reopened(directory, log)
        log.append(None, entries(index + 1, index + 100, 3))
        assert sync(log) == index + 99
        log = reopened(directory, log)
        assert log.entries(index + 1, index + 100, READ_ALL) == entries(index + 1, index + 100, 3)
        log.close()

    def test_it_is_durable_when_it_returns(self, log: Log) -> None:
        log.append(None, entries(1, 200))
        token = log.begin_sync()
        log.reset(meta(500))
        assert not log.has_unsynced
        token.run()
        assert log.end_sync(token) == 500

    def test_old_files_are_free(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 2000))
        log.reset(meta(5000))
        assert len(directory.names()) <= 1 + CONFIG.recycled_segments_max


class TestSettings:
    def test_the_size_of_segments_may_change(self, directory: Directory, log: Log) -> None:
        log.append(None, entries(1, 100))
        log = reopened(directory, log, segment_bytes=16384)
        log.append(None, entries(100, 1000))
        assert log.entries(1, 1000, READ_ALL) == entries(1, 1000)
        log = reopened(directory, log, segment_bytes=8192)
        assert log.entries(1, 1000, READ_ALL) == entries(1, 1000)
        log.close()

    @pytest.mark.parametrize(
        "changes",
        [{"segment_bytes": 4095}, {"segment_bytes": (1 << 30) + 1}, {"spare_segments": 5}],
    )
    def test_impossible_ones_are_refused(self, changes: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="must be"):
            LogConfig(**({"group": 1, "salt": 1} | changes))


class TestInspection:
    """What a log on disk says while nothing has it open for writing."""

    def test_members_are_those_of_the_snapshot_or_of_a_newer_entry(
        self, directory: Directory, log: Log
    ) -> None:
        log.append(HardState(1, None, 0), entries(1, 4))
        sync(log)
        log.close()
        with Inspection.open(directory, CONFIG.group) as inspection:
            assert inspection.configuration() == Configuration(())
        log = Log.open(directory, CONFIG)
        log.reset(meta(9))
        log.close()
        with Inspection.open(directory, CONFIG.group) as inspection:
            assert inspection.configuration() == MEMBERS

    @pytest.mark.parametrize("missing", range(-150, 700, 50))
    def test_no_file_is_filled_beyond_its_end(
        self, directory: Directory, log: Log, missing: int
    ) -> None:
        """An entry of nearly a segment leaves room for records that are not entries."""
        log.append(None, entries(1, 3))
        log.append(None, entries(3, 4, size=CONFIG.segment_bytes - missing))
        for term in range(1, 4):
            log.append(HardState(term, None, 0), ())
        sync(log)
        log.close()
        with Inspection.open(directory, CONFIG.group) as inspection:
            assert inspection.last_index == 3
            assert inspection.hard_state.term == 3
            for segment in inspection.segments():
                assert segment.used_bytes <= segment.size_bytes
        log = Log.open(directory, CONFIG)
        assert len(log.entries(3, 4, 1 << 20)[0].data) == CONFIG.segment_bytes - missing
        log.close()


def test_nothing_can_go_from_a_log_that_has_one_segment(log: Log) -> None:
    log.append(None, entries(1, 4))
    sync(log)
    assert log.retirable(3) == 0
    log.reset(meta(9))
    assert log.retirable(9) == 9

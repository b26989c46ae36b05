"""Full disks, which pass, and failing ones, which do not."""

import errno
from random import Random

import pytest

from raft.log.files import FatalDiskError
from raft.log.log import Log, LogConfig, LogFull
from raft.log.segment import is_disk_full, may_pass
from raft.types import Entry, EntryKind, HardState
from tests.unit.raft.log.faults import Disk, FaultyFile, Loss
from tests.unit.raft.log.model import READ_ALL, State, after_append, differences
from tests.unit.raft.log.test_log import entries, meta, sync

SEGMENT_BYTES = 8192
CONFIG = LogConfig(group=7, salt=1, segment_bytes=SEGMENT_BYTES)


def fill(log: Log) -> int:
    """Append and sync until the disk is full; return the last index."""
    while True:
        last = log.last_index()
        try:
            log.append(HardState(1, None, last), entries(last + 1, last + 4))
        except LogFull:
            return last
        sync(log)


def is_short(log: Log) -> bool:
    return log.is_short_of_space


def append_all(log: Log, states: list[HardState]) -> None:
    for state in states:
        log.append(state, ())


class TestFullDisk:
    def test_it_says_so_and_changes_nothing(self) -> None:
        disk = Disk(capacity_bytes=3 * SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        last = fill(log)
        assert last > 80
        assert log.is_short_of_space
        state = State(HardState(1, None, last - 3), entries=entries(1, last + 1))
        assert differences(log, state) == []
        for _ in range(3):
            with pytest.raises(LogFull, match="free space on the log's disk"):
                log.append(HardState(2, "n1.1", 0), entries(last + 1, last + 200))
            assert differences(log, state) == []
            assert sync(log) == last
        for loss in Loss:
            found = Log.open(disk.after_crash(loss, Random(1)).root, CONFIG)
            assert differences(found, state) == []

    def test_it_goes_on_when_space_returns(self) -> None:
        disk = Disk(capacity_bytes=3 * SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        last = fill(log)
        disk.capacity_bytes = 10 * SEGMENT_BYTES
        log.append(HardState(1, None, last), entries(last + 1, last + 4))
        assert sync(log) == last + 3
        assert not log.is_short_of_space
        assert log.entries(1, last + 4, READ_ALL) == entries(1, last + 4)

    def test_shortage_is_known_a_segment_ahead(self) -> None:
        disk = Disk(capacity_bytes=2 * SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        assert not is_short(log)
        log.append(None, entries(1, 50))
        sync(log)
        assert is_short(log)
        used = disk.used_bytes()
        operations = disk.operations
        sync(log)  # no try to allocate while the disk says that it has no space
        assert disk.operations == operations
        log.append(None, entries(50, 55))
        assert sync(log) == 54
        assert disk.used_bytes() == used <= disk.capacity_bytes
        disk.capacity_bytes *= 2
        sync(log)
        assert not is_short(log)

    def test_votes_go_on(self) -> None:
        disk = Disk(capacity_bytes=SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        fill(log)
        for term in range(2, 6):
            log.append(HardState(term, "n2.1", 0), ())
            sync(log)
        found = Log.open(disk.after_crash(Loss.NOTHING_SURVIVES, Random(0)).root, CONFIG)
        assert found.hard_state == HardState(5, "n2.1", 0)

    def test_compaction_makes_room(self) -> None:
        disk = Disk(capacity_bytes=3 * SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        for _ in range(3):
            last = fill(log)
            log.compact(meta(last))
            sync(log)
            log.append(None, entries(last + 1, last + 20))
            assert sync(log) == last + 19

    def test_a_snapshot_makes_room(self) -> None:
        disk = Disk(capacity_bytes=3 * SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        fill(log)
        log.reset(meta(1000))
        log.append(None, entries(1001, 1050))
        assert sync(log) == 1049

    def test_the_reserve_ends_too(self) -> None:
        disk = Disk(capacity_bytes=SEGMENT_BYTES)
        log = Log.open(disk.root, CONFIG)
        fill(log)
        votes = [HardState(term, "n2.1", 0) for term in range(2, 40)]
        with pytest.raises(LogFull):
            append_all(log, votes)
        term = log.hard_state.term
        assert 5 < term < 39
        with pytest.raises(LogFull):
            log.reset(meta(99))
        sync(log)
        with pytest.raises(LogFull):
            Log.open(disk.after_crash(Loss.NOTHING_SURVIVES, Random(0)).root, CONFIG)
        disk.capacity_bytes *= 2
        found = Log.open(disk.after_crash(Loss.NOTHING_SURVIVES, Random(0)).root, CONFIG)
        assert found.hard_state.term == term

    def test_a_lack_of_descriptors_is_waited_out_and_is_no_full_disk(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither for a log that is written nor for one that is opened."""

        def refused(name: str, *, create: bool = False) -> FaultyFile:
            raise OSError(errno.EMFILE, "too many open files")

        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(HardState(1, None, 0), entries(1, 30))
        sync(log)
        with monkeypatch.context() as without:
            without.setattr(disk.root, "open", refused)
            last = fill(log)
            with pytest.raises(LogFull, match="too many files are open") as caught:
                log.append(None, entries(last + 1, last + 200))
            assert not is_disk_full(caught.value)
            with pytest.raises(OSError, match="too many open files") as found:
                Log.open(disk.root, CONFIG)
            assert may_pass(found.value)
        log.append(None, entries(last + 1, last + 200))
        assert sync(log) == last + 199

    def test_no_space_for_a_log_at_all(self) -> None:
        disk = Disk(capacity_bytes=SEGMENT_BYTES - 1)
        with pytest.raises(LogFull, match="first segment"):
            Log.open(disk.root, CONFIG)
        assert disk.root.names() == []
        disk.capacity_bytes += 1
        log = Log.open(disk.root, CONFIG)
        assert log.is_short_of_space

    def test_an_allocation_that_fails_leaves_nothing_behind(self) -> None:
        disk = Disk(capacity_bytes=SEGMENT_BYTES + 100)
        log = Log.open(disk.root, CONFIG)
        fill(log)
        assert disk.used_bytes() == SEGMENT_BYTES

    @pytest.mark.parametrize("budget", range(0, 22_000, 997))
    def test_writes_that_fail_half_way_change_nothing(self, budget: int) -> None:
        """File systems that allocate on every write (copy on write) can be full at any byte."""
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(HardState(1, None, 0), entries(1, 30))
        sync(log)
        state = State(HardState(1, None, 0), entries=entries(1, 30))
        disk.write_budget_bytes = budget
        with pytest.raises(LogFull):
            log.append(HardState(2, "n2.1", 7), entries(20, 200, term=2))
        disk.write_budget_bytes = None
        assert differences(log, state) == []
        # After a crash a part of it may be there: it was requested but not acknowledged.
        batch = (HardState(2, "n2.1", 7), entries(20, 200, term=2))
        found = Log.open(disk.after_crash(Loss.EVERYTHING_SURVIVES, Random(0)).root, CONFIG)
        states = [state, *after_append(state, *batch)]
        assert any(differences(found, other) == [] for other in states)
        log.append(HardState(2, "n2.1", 7), entries(20, 200, term=2))
        assert sync(log) == 199
        found = Log.open(disk.after_crash(Loss.NOTHING_SURVIVES, Random(0)).root, CONFIG)
        expected = entries(1, 20) + entries(20, 200, term=2)
        assert differences(found, State(HardState(2, "n2.1", 7), entries=expected)) == []

    def test_an_idle_mark_that_finds_no_space_is_left_out(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(None, entries(1, 30))
        sync(log)
        disk.write_budget_bytes = 0
        log.mark_synced()
        disk.write_budget_bytes = None
        log.append(None, entries(30, 31))
        assert sync(log) == 30

    def test_an_idle_mark_that_finds_no_room_is_left_out(self) -> None:
        """It is not worth a segment, and must not end beyond its file."""
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(None, (Entry(1, 1, EntryKind.DATA, bytes(6500)),))
        for term in range(1, 40):
            log.append(HardState(term, None, 0), ())
            sync(log)
            log.mark_synced()
            for name in disk.root.names():
                assert len(disk.root.bytes_of(name)) == SEGMENT_BYTES, term
        assert log.hard_state.term == 39


class TestFailingDisk:
    def test_a_failed_sync_is_never_retried(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(HardState(1, None, 0), entries(1, 30))
        token = log.begin_sync()
        disk.fails_to_sync = True
        with pytest.raises(FatalDiskError):
            token.run()
        disk.fails_to_sync = False
        for act in (
            lambda: log.end_sync(token),
            lambda: log.append(None, entries(30, 31)),
            lambda: log.append(HardState(2, None, 0), ()),
            lambda: log.reset(meta(50)),
        ):
            with pytest.raises(FatalDiskError, match="stop the process"):
                act()
        assert log.durable_index == 0
        syncs = disk.syncs
        log.close()
        assert disk.syncs == syncs

    def test_it_is_no_full_disk_to_wait_out(self) -> None:
        assert not isinstance(FatalDiskError("x"), LogFull)
        assert FatalDiskError("x").errno != LogFull("x", OSError(errno.ENOSPC, "full")).errno

    def test_opening_needs_a_disk_that_syncs(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        log.append(None, entries(1, 30))
        disk.fails_to_sync = True
        with pytest.raises(FatalDiskError):
            Log.open(disk.root, CONFIG)

    def test_so_does_a_reset(self) -> None:
        disk = Disk()
        log = Log.open(disk.root, CONFIG)
        disk.fails_to_sync = True
        with pytest.raises(FatalDiskError):
            log.reset(meta(50))
        disk.fails_to_sync = False
        with pytest.raises(FatalDiskError):
            log.append(None, entries(51, 52))

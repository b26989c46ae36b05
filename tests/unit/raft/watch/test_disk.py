"""What is said of a disk that refuses, and when it is tried again."""

import errno

from raft.step import AlarmKind
from raft.watch.disk import FULL_RETRY_TICKS, Alarms, DiskWatch, Work

STUCK_TICKS = 200
FULL = OSError(errno.ENOSPC, "full")
NO_DESCRIPTOR = OSError(errno.EMFILE, "too many open files")


def kinds(alarms: Alarms) -> list[AlarmKind]:
    return [alarm.kind for alarm in alarms.take()]


def test_a_full_disk_is_told_once_until_everything_found_space() -> None:
    alarms = Alarms()
    watch = DiskWatch(alarms, STUCK_TICKS)
    watch.note_full(Work.WRITE, FULL, 5)
    watch.note_full(Work.APPLY, FULL, 6)
    assert kinds(alarms) == [AlarmKind.DISK_FULL]
    watch.note_room(Work.WRITE)
    assert (watch.is_full, kinds(alarms)) == (True, [])
    watch.note_room(Work.APPLY)
    watch.note_room(Work.APPLY)
    assert (watch.is_full, kinds(alarms)) == (False, [AlarmKind.DISK_ROOM])


def test_a_lack_of_descriptors_is_no_full_disk() -> None:
    """The reserve is given up when a full disk is told; of that a later one is told as well."""
    alarms = Alarms()
    watch = DiskWatch(alarms, STUCK_TICKS)
    watch.note_full(Work.WRITE, NO_DESCRIPTOR, 5)
    watch.note_full(Work.WRITE, NO_DESCRIPTOR, 30)
    assert kinds(alarms) == [AlarmKind.DESCRIPTORS_SHORT]
    watch.note_full(Work.WRITE, FULL, 55)
    watch.note_full(Work.WRITE, FULL, 80)
    assert kinds(alarms) == [AlarmKind.DISK_FULL]
    watch.note_room(Work.WRITE)
    watch.note_full(Work.WRITE, NO_DESCRIPTOR, 90)
    assert kinds(alarms) == [AlarmKind.DISK_ROOM, AlarmKind.DESCRIPTORS_SHORT]


def test_a_try_is_put_off_and_may_be_had_at_once() -> None:
    watch = DiskWatch(Alarms(), STUCK_TICKS)
    watch.note_full(Work.APPLY, FULL, 5)
    assert watch.is_put_off(Work.APPLY, 5 + FULL_RETRY_TICKS - 1)
    assert not watch.is_put_off(Work.WRITE, 6)
    assert watch.ticks_until_retry(6) == FULL_RETRY_TICKS - 1
    assert watch.is_retry_due(5 + FULL_RETRY_TICKS)
    watch.retry_at_once(7)
    assert watch.is_retry_due(7)
    assert not watch.is_put_off(Work.APPLY, 7)


def test_stuck_is_what_waits_too_long_but_no_compaction() -> None:
    watch = DiskWatch(Alarms(), STUCK_TICKS)
    watch.note_full(Work.COMPACT, FULL, 0)
    assert not watch.is_stuck(None, STUCK_TICKS)
    assert watch.is_stuck(1, 1 + STUCK_TICKS)
    assert not watch.is_stuck(2, 1 + STUCK_TICKS)
    watch.note_full(Work.WRITE, FULL, 3)
    assert watch.is_stuck(None, 3 + STUCK_TICKS)


def test_stuck_is_news_again_after_the_disk_took_everything() -> None:
    alarms = Alarms()
    watch = DiskWatch(alarms, STUCK_TICKS)
    watch.tell_stuck()
    watch.is_stuck(0, STUCK_TICKS)
    watch.tell_stuck()
    assert kinds(alarms) == [AlarmKind.STUCK]
    watch.is_stuck(None, STUCK_TICKS + 1)
    watch.tell_stuck()
    assert kinds(alarms) == [AlarmKind.STUCK]


def test_shortage_is_told_when_it_comes_and_when_it_goes() -> None:
    alarms = Alarms()
    watch = DiskWatch(alarms, STUCK_TICKS)
    for is_short in (False, True, True, False):
        watch.note_short(is_short)
    assert kinds(alarms) == [AlarmKind.DISK_SHORT, AlarmKind.DISK_ROOM]

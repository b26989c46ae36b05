"""How much of the log is kept, and what will go next."""

from raft.log.retention import MARK_BYTES, Retention
from raft.types import Entry, EntryKind

MARKS = 8


def test_what_goes_soon_is_what_goes_when_so_much_more_was_appended() -> None:
    retention = Retention(MARKS * MARK_BYTES)
    soon: dict[int, int] = {}
    for index in range(1, 4 * MARKS):
        retention.appended([Entry(index, 1, EntryKind.DATA, bytes(MARK_BYTES))])
        assert retention.droppable() == max(0, index - MARKS)
        assert retention.droppable_soon(0) == retention.droppable()
        soon[index + 3] = retention.droppable_soon(3 * MARK_BYTES)
        assert soon.get(index, retention.droppable()) == retention.droppable()


def test_nothing_goes_before_enough_was_appended_since_the_start() -> None:
    retention = Retention(MARKS * MARK_BYTES)
    assert retention.droppable_soon(100 * MARK_BYTES) == 0
    retention.appended([Entry(1, 1, EntryKind.DATA, b"x")])
    assert retention.droppable() == 0
    assert retention.droppable_soon(MARKS * MARK_BYTES) == 1
    retention.clear()
    assert retention.droppable_soon(100 * MARK_BYTES) == 0


def test_shortened_it_keeps_so_much_less_than_there_is_and_copies_nothing_ahead() -> None:
    retention = Retention(100 * MARK_BYTES)
    for index in range(1, 2 * MARKS + 1):
        retention.appended([Entry(index, 1, EntryKind.DATA, bytes(MARK_BYTES))])
    assert retention.droppable() == 0
    assert retention.shorten(MARKS * MARK_BYTES)
    assert retention.droppable_soon(100 * MARK_BYTES) == retention.droppable() == MARKS + 1
    assert retention.shorten(MARKS * MARK_BYTES)
    assert retention.droppable() == 2 * MARKS
    assert not retention.shorten(MARKS * MARK_BYTES), "there is nothing left that could go"
    retention.appended([Entry(2 * MARKS + 1, 1, EntryKind.DATA, bytes(MARK_BYTES))])
    assert retention.droppable() == 2 * MARKS + 1
    retention.restore()
    retention.appended([Entry(2 * MARKS + 2, 1, EntryKind.DATA, bytes(MARK_BYTES))])
    assert not retention.is_shortened
    assert retention.droppable() == 0


def test_shortened_after_a_restart_it_gives_up_what_was_there_before() -> None:
    retention = Retention(100 * MARK_BYTES, last_index=70)
    retention.appended([Entry(71, 1, EntryKind.DATA, b"x")])
    assert retention.droppable() == 0
    assert retention.shorten(MARK_BYTES)
    assert retention.droppable() >= 70


def test_it_remembers_a_mark_for_each_mebibyte_whatever_entries_are_like() -> None:
    """A log of small entries would otherwise have as many marks as entries."""
    retention = Retention(MARKS * MARK_BYTES)
    size, last = MARK_BYTES // 16, 0
    steps: list[int] = []
    for index in range(1, 3 * MARKS * 16):
        retention.appended([Entry(index, 1, EntryKind.DATA, bytes(size))])
        now = retention.droppable()
        if now != last:
            steps.append(now - last)
            last = now
    assert steps[0] <= 1
    assert set(steps[1:]) == {16}

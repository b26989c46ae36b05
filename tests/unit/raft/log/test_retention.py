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

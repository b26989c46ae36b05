"""Cursors, event by event [MS-MQDMPR 3.2]; test_api_reads has them where callers see them."""

import pytest

from qm.model.messages.cursors import START, Cursor, CursorAnswer, CursorState
from qm.model.values.commands import Selector, SelectorKind

OK, WAITING = CursorAnswer.SUCCEEDED, CursorAnswer.WAITING
UNREAD, READ = CursorState.UNREAD, CursorState.READ


class Keys:
    """A queue's available keys, with the seeks that cursors ask for."""

    def __init__(self, *keys: int) -> None:
        self.keys = list(keys)

    def seek(self, after: int) -> int | None:
        return min((key for key in self.keys if key > after), default=None)

    def has(self, key: int) -> bool:
        return key in self.keys


@pytest.mark.spec("DM-3.2.7.1-02", "DM-3.2.1.2-02", "DM-3.2.1.2-03", "DM-3.1.1.2-24")
def test_a_fresh_cursor_stands_at_the_start() -> None:
    cursor = Cursor(5)
    assert (cursor.handle, cursor.key, cursor.state) == (5, START, UNREAD)
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.FIRST)
    # No message is ever there, and none before it: also key 0, the first there can be, comes after.
    queue = Keys(0, 7)
    assert not queue.has(START)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is OK
    assert cursor.key == 0
    assert {state.name for state in CursorState} == {
        "UNREAD",
        "READ",
        "WAIT_PEEK",
        "WAIT_RECEIVE",
    }


@pytest.mark.spec(
    "DM-3.2.7.2-01", "DM-3.2.7.2-03", "DM-3.2.7.3-02", "DM-3.2.1.2-03", "DM-3.2.7.6-02"
)
def test_peeking_forward() -> None:
    queue, cursor = Keys(3, 8), Cursor(1)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is OK
    assert (cursor.key, cursor.state) == (3, READ)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is OK
    assert cursor.key == 3
    assert cursor.get_next_message_for_peek(queue.seek) is OK
    assert (cursor.key, cursor.state) == (8, READ)
    queue.keys.remove(8)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is CursorAnswer.ALREADY_RECEIVED
    assert cursor.get_next_message_for_peek(queue.seek) is WAITING
    assert cursor.state is CursorState.WAIT_PEEK
    cursor.wait_time_expired(last_key=20)
    assert (cursor.key, cursor.state) == (8, READ)


@pytest.mark.spec(
    "DM-3.2.7.2-02", "DM-3.2.7.3-01", "DM-3.2.7.5-01", "DM-3.2.7.6-02", "DM-3.2.1.2-03"
)
def test_waiting_for_a_peek() -> None:
    queue, cursor = Keys(), Cursor(1)
    cursor.wait_time_expired(last_key=20)
    assert (cursor.key, cursor.state) == (START, UNREAD), "nobody waits"
    assert cursor.get_next_message_for_peek(queue.seek) is CursorAnswer.ILLEGAL
    assert cursor.state is UNREAD
    assert cursor.get_message_for_peek(queue.seek, queue.has) is WAITING
    assert cursor.state is CursorState.WAIT_PEEK
    assert cursor.get_message_for_peek(queue.seek, queue.has) is CursorAnswer.ILLEGAL
    assert cursor.selector_for_dequeue() is None
    cursor.wait_time_expired(last_key=0)
    assert (cursor.key, cursor.state) == (START, UNREAD)
    cursor.get_message_for_peek(queue.seek, queue.has)
    cursor.message_available(9)
    assert (cursor.key, cursor.state) == (9, READ)
    cursor.wait_time_expired(last_key=20)
    assert (cursor.key, cursor.state) == (9, READ)


@pytest.mark.spec("DM-3.2.7.4-01", "DM-3.2.7.4-02", "DM-3.2.7.4-03", "DM-3.2.1.2-03")
def test_dequeuing_through_a_cursor() -> None:
    queue, cursor = Keys(3, 8), Cursor(1)
    assert cursor.dequeued(3, no_wait=False) is OK
    assert (cursor.key, cursor.state) == (3, UNREAD)
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.AFTER, 3)
    assert cursor.dequeued(None, no_wait=True) is CursorAnswer.NOT_FOUND
    assert (cursor.key, cursor.state) == (3, UNREAD)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is OK
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.EXACT, 8)
    assert cursor.dequeued(None, no_wait=False) is CursorAnswer.ALREADY_RECEIVED
    assert (cursor.key, cursor.state) == (8, READ)
    assert cursor.dequeued(8, no_wait=False) is OK
    assert cursor.state is UNREAD
    assert cursor.dequeued(None, no_wait=False) is WAITING
    assert cursor.state is CursorState.WAIT_RECEIVE
    # What came was retrieved by the read that waited, and is not the cursor's to read.
    cursor.message_available(12)
    assert (cursor.key, cursor.state) == (12, UNREAD)
    assert cursor.dequeued(None, no_wait=False) is WAITING
    cursor.wait_time_expired(last_key=20)
    assert (cursor.key, cursor.state) == (20, UNREAD)


@pytest.mark.spec("DM-3.2.7.6-01", "DM-3.2.7.5-01", "DM-3.2.1.2-02", "DM-3.1.1.2-24")
def test_the_end_after_a_timeout_does_not_hide_later_arrivals() -> None:
    """DM-A17: End is the place after the last key, where nothing is."""
    queue, cursor = Keys(3, 40), Cursor(1)
    cursor.dequeued(None, no_wait=False)
    cursor.wait_time_expired(last_key=40)
    assert cursor.state is UNREAD
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.AFTER, 40)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is WAITING, "it is past Tail"
    cursor.wait_time_expired(last_key=40)
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.AFTER, 40)
    cursor.dequeued(None, no_wait=False)
    cursor.message_available(41)
    assert (cursor.key, cursor.state) == (41, UNREAD)
    # Also when the last key is gone, and none is left: what it has passed stays behind it.
    for last_key in (3, -1):
        cursor.dequeued(None, no_wait=False)
        cursor.wait_time_expired(last_key)
        assert (cursor.key, cursor.state) == (41, UNREAD)
        assert cursor.selector_for_dequeue() == Selector(SelectorKind.AFTER, 41)

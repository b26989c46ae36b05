"""Cursors, waiting reads and dispatch: the volatile half of [MS-MQDMPR]."""

import pytest

from qm.model.commands import Selector, SelectorKind
from qm.model.cursors import START, Cursor, CursorAnswer, CursorState
from qm.model.descriptors import (
    STATUS_NOT_FOUND,
    OpenQueueDescriptor,
    WaitingMessageReadOperation,
)
from qm.model.dispatch import DispatchCollection
from qm.model.elements import QueueAccessType, QueueShareMode
from qm.model.limits import CURSORS_PER_CLIENT_MAX
from qm.wire.codes import ErrorCode

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


def descriptor() -> OpenQueueDescriptor:
    return OpenQueueDescriptor(
        1, 2, 7, "DIRECT=OS:h\\q", QueueAccessType.RECEIVE_ACCESS, QueueShareMode.DENY_NONE
    )


@pytest.mark.spec("DM-3.2.7.1-02", "DM-3.2.1.2-02", "DM-3.2.1.2-03", "DM-3.1.1.2-24")
def test_a_fresh_cursor_stands_at_the_start() -> None:
    cursor = Cursor(5)
    assert (cursor.handle, cursor.key, cursor.state) == (5, START, UNREAD)
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.FIRST)
    assert {state.name for state in CursorState} == {
        "UNREAD",
        "READ",
        "WAIT_PEEK",
        "WAIT_RECEIVE",
    }


@pytest.mark.spec("DM-3.2.7.2-01", "DM-3.2.7.2-03", "DM-3.2.7.3-02")
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


@pytest.mark.spec("DM-3.2.7.2-02", "DM-3.2.7.3-01", "DM-3.2.7.5-01", "DM-3.2.7.6-02")
def test_waiting_for_a_peek() -> None:
    queue, cursor = Keys(), Cursor(1)
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


@pytest.mark.spec("DM-3.2.7.4-01", "DM-3.2.7.4-02", "DM-3.2.7.4-03")
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


@pytest.mark.spec("DM-3.2.7.6-01")
def test_the_end_after_a_timeout_does_not_hide_later_arrivals() -> None:
    cursor = Cursor(1)
    cursor.dequeued(None, no_wait=False)
    cursor.wait_time_expired(last_key=40)
    assert cursor.state is UNREAD
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.AFTER, 40)
    cursor.dequeued(None, no_wait=False)
    cursor.message_available(41)
    assert (cursor.key, cursor.state) == (41, UNREAD)


@pytest.mark.spec(
    "DM-3.1.7.1.1-01",
    "DM-3.1.7.1.1-02",
    "DM-3.1.7.1.2-01",
    "DM-3.1.7.1.2-02",
    "DM-3.2.7.1-01",
)
def test_cursors_belong_to_their_descriptor() -> None:
    opened = descriptor()
    one, two = opened.open_cursor(1), opened.open_cursor(2)
    assert one is not None
    assert two is not None
    assert opened.cursors == {1: one, 2: two}
    for request, cursor in ((1, one), (2, two), (3, None)):
        assert opened.wait(WaitingMessageReadOperation(True, request, None, cursor))
    assert [waiting.request for waiting in opened.close_cursor(one)] == [1]
    assert opened.cursors == {2: two}
    assert opened.stop(1) is None
    assert opened.stop(2) is not None
    opened.queue_deleted()
    assert opened.open_cursor(3) is None
    assert not opened.wait(WaitingMessageReadOperation(False, 4))


def test_cursors_are_bounded() -> None:
    opened = descriptor()
    made = [opened.open_cursor(n) for n in range(CURSORS_PER_CLIENT_MAX + 1)]
    assert made[-1] is None
    assert None not in made[:-1]


@pytest.mark.spec("DM-3.1.7.1.6-04")
def test_closing_a_queue_ends_waits_and_cursors() -> None:
    opened = descriptor()
    opened.open_cursor(1)
    opened.wait(WaitingMessageReadOperation(False, 1))
    opened.wait(WaitingMessageReadOperation(True, 2, tag=9))
    ended = opened.close()
    assert [(waiting.request, status) for waiting, status in ended] == [
        (1, ErrorCode.MQ_ERROR_OPERATION_CANCELLED),
        (2, ErrorCode.MQ_ERROR_OPERATION_CANCELLED),
    ]
    assert opened.cursors == {}
    assert opened.close() == []


def test_waits_are_served_in_order_and_peeks_share_a_message() -> None:
    opened = descriptor()
    for request, is_destructive in ((1, False), (2, False), (3, True), (4, False), (5, True)):
        opened.wait(WaitingMessageReadOperation(is_destructive, request))
    woken, is_taken = opened.message_available()
    assert [waiting.request for waiting in woken] == [1, 2, 3]
    assert is_taken
    woken, is_taken = opened.message_available()
    assert [waiting.request for waiting in woken] == [3]  # it keeps its place until it has one
    assert opened.stop(3) is not None
    woken, _ = opened.message_available()
    assert [waiting.request for waiting in woken] == [4, 5]
    opened.stop(5)
    assert opened.message_available() == ([], False)


def test_a_wait_is_cancelled_by_its_tag() -> None:
    opened = descriptor()
    opened.wait(WaitingMessageReadOperation(True, 1, tag=7))
    status, cancelled = opened.cancel(7)
    assert status == 0
    assert cancelled is not None
    assert cancelled.request == 1
    assert opened.cancel(7) == (STATUS_NOT_FOUND, None)


@pytest.mark.spec("DM-3.1.1.18-01", "DM-3.1.7.1.28-01", "DM-3.1.1.2-13", "DM-3.1.7.3.9-01")
def test_dispatch_sends_one_at_a_time_by_priority() -> None:
    collection = DispatchCollection()
    low = collection.add(1, 10, "data", 0, 3)
    high = collection.add(2, 20, "data", 5, 3)
    later = collection.add(1, 11, "data", 0, 3)
    assert (low.priority, high.priority, low.send_in_progress) == (3, 8, False)
    assert collection.next(lambda _: True, lambda *_: True) is high
    assert high.send_in_progress
    assert collection.next(lambda _: True, lambda *_: True) is None
    collection.remove(2, 20)
    assert collection.next(lambda _: True, lambda *_: True) is low
    collection.remove(1, 10)
    assert collection.next(lambda _: True, lambda *_: True) is later


@pytest.mark.spec("DM-3.1.7.3.9-02", "DM-3.1.7.1.29-01", "DM-3.1.7.1.34-01", "DM-3.1.7.1.28-02")
def test_dispatch_skips_what_cannot_be_sent() -> None:
    collection = DispatchCollection()
    gone = collection.add(1, 10, "data", 0, 7)
    paused = collection.add(2, 20, "data", 0, 6)
    ready = collection.add(3, 30, "data", 0, 1)
    chosen = collection.next(
        lambda queue_id: queue_id != paused.queue_id,
        lambda queue_id, _: queue_id != gone.queue_id,
    )
    assert chosen is ready
    assert len(collection) == 2
    collection.remove(9, 99)  # absent: no error
    collection.remove(3, 30)
    assert collection.next(lambda _: True, lambda *_: True) is paused
    collection.add(4, 40, "data", 0, 0)
    collection.remove_by_queue(2)
    resumed = collection.next(lambda _: True, lambda *_: True)
    assert resumed is not None
    assert resumed.queue_id == 4

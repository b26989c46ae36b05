"""Reads that wait [MS-MQDMPR 3.1.1.10, 3.1.1.16, 3.1.7.1.17, 3.1.7.2.2, 3.1.7.3.1 to .7]."""

from __future__ import annotations

import pytest

from qm.model.cursors import Cursor
from qm.model.descriptors import (
    STATUS_NOT_FOUND,
    OpenQueueDescriptor,
    WaitingMessageReadOperation,
)
from qm.model.elements import QueueAccessType, QueueShareMode
from qm.wire.codes import ErrorCode

CANCELLED = ErrorCode.MQ_ERROR_OPERATION_CANCELLED
PEEK, TAKE = False, True


def descriptor() -> OpenQueueDescriptor:
    return OpenQueueDescriptor(
        1, 2, 7, "DIRECT=OS:h\\q", QueueAccessType.RECEIVE_ACCESS, QueueShareMode.DENY_NONE
    )


def waiting(
    opened: OpenQueueDescriptor, *kinds: bool, first: int = 1
) -> list[WaitingMessageReadOperation]:
    made = [WaitingMessageReadOperation(kind, first + n) for n, kind in enumerate(kinds)]
    for operation in made:
        assert opened.wait(operation)
    return made


def served(opened: OpenQueueDescriptor) -> list[int]:
    return [operation.request for operation in opened.message_available()[0]]


@pytest.mark.spec("DM-3.1.1.10-01", "DM-3.1.1.16-02", "DM-3.1.7.3.1-03")
def test_a_waiting_read_and_its_descriptor() -> None:
    opened = descriptor()
    assert opened.access_type is QueueAccessType.RECEIVE_ACCESS
    assert opened.share_mode is QueueShareMode.DENY_NONE
    cursor = opened.open_cursor(9)
    plain = WaitingMessageReadOperation(PEEK, 1)
    assert (plain.is_destructive, plain.tag, plain.cursor) == (False, None, None)
    full = WaitingMessageReadOperation(TAKE, 2, 77, cursor)
    assert (full.is_destructive, full.tag, full.cursor) == (True, 77, cursor)
    assert opened.wait(plain)
    assert opened.wait(full)
    assert opened.message_available() == ([plain, full], True)


@pytest.mark.spec("DM-3.1.7.2.2-03", "DM-3.1.1.16-06", "DM-3.1.7.3.6-01")
def test_readers_are_served_in_order() -> None:
    opened = descriptor()
    waiting(opened, TAKE, TAKE, TAKE)
    for request in (1, 2, 3):
        assert served(opened) == [request]
        taken = opened.stop(request)
        assert taken is not None
        assert taken.request == request
    assert opened.message_available() == ([], False)


@pytest.mark.spec("DM-3.1.7.2.2-04", "DM-3.1.7.2.2-05", "DM-3.1.7.3.7-01")
def test_a_peek_lets_the_next_reader_go_and_a_receive_does_not() -> None:
    """DM-A16: every peek releases the next reader."""
    opened = descriptor()
    waiting(opened, PEEK, PEEK, TAKE, PEEK)
    assert served(opened) == [1, 2, 3]
    opened.stop(3)
    # The fourth waits for the next message, and gets that.
    assert opened.stop(1) is None
    assert served(opened) == [4]
    assert served(opened) == []


@pytest.mark.spec("DM-3.1.7.3.1-01", "DM-3.1.7.3.1-05", "DM-3.1.7.1.6-02")
def test_without_a_queue_nothing_waits() -> None:
    opened = descriptor()
    waiting(opened, TAKE, PEEK)
    ended = opened.queue_deleted()
    gone = ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert [(operation.request, status) for operation, status in ended] == [(1, gone), (2, gone)]
    assert not opened.wait(WaitingMessageReadOperation(TAKE, 3))
    assert opened.message_available() == ([], False)
    assert opened.close() == []


@pytest.mark.spec("DM-3.1.7.3.1-04", "DM-3.1.7.3.1-05", "DM-3.1.7.3.5-01")
def test_a_wait_ends_once() -> None:
    opened = descriptor()
    operations = waiting(opened, TAKE, TAKE)
    assert opened.stop(1) is operations[0]
    assert opened.stop(1) is None
    assert served(opened) == [2]
    assert opened.stop(2) is operations[1]
    assert opened.stop(2) is None
    assert served(opened) == []


@pytest.mark.spec("DM-3.1.7.1.17-01", "DM-3.1.7.1.17-02")
def test_a_wait_is_found_by_its_tag_only() -> None:
    opened = descriptor()
    untagged = WaitingMessageReadOperation(TAKE, 1)
    first, second = (WaitingMessageReadOperation(TAKE, n, tag=n * 11) for n in (2, 3))
    for operation in (untagged, first, second):
        opened.wait(operation)
    assert STATUS_NOT_FOUND == 0xC000_0225
    assert opened.cancel(44) == (STATUS_NOT_FOUND, None)
    assert opened.cancel(33) == (0, second)
    assert opened.cancel(33) == (STATUS_NOT_FOUND, None)
    assert served(opened) == [1]
    opened.stop(1)
    assert served(opened) == [2]


@pytest.mark.spec("DM-3.1.7.1.6-03")
def test_closing_cancels_tagged_and_untagged_waits() -> None:
    """DM-A19."""
    opened = descriptor()
    cursor: Cursor | None = opened.open_cursor(5)
    opened.wait(WaitingMessageReadOperation(TAKE, 1, tag=8))
    opened.wait(WaitingMessageReadOperation(PEEK, 2, cursor=cursor))
    assert [(o.request, status) for o, status in opened.close()] == [(1, CANCELLED), (2, CANCELLED)]
    assert opened.cursors == {}
    assert opened.cancel(8) == (STATUS_NOT_FOUND, None)

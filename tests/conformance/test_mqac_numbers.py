"""What the numbers of [MC-MQAC] 2.2.2 ask of the methods that take them."""

from __future__ import annotations

import queue as queues
from collections.abc import Iterator

import pytest

from qm.client.mqac import MSMQEvent, MSMQMessage, MSMQQueue, MSMQService
from qm.client.mqac.constants import MQACCESS
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_reads import body, filled
from tests.conformance.mqac_world import RECEIVE, SEND, fails, made, opened, serving

E = ErrorCode
FIRST, CURRENT, NEXT = range(3)
WAIT_S = 20
NOTHING = E.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def watched(queue: MSMQQueue, cursor: int) -> tuple[int, int]:
    """What EnableNotification tells at once of a place: 0 or an HRESULT, and the place."""
    told: queues.Queue[tuple[int, int]] = queues.Queue()
    event = MSMQEvent(
        lambda _, place: told.put((0, place)), lambda _, status, place: told.put((status, place))
    )
    queue.EnableNotification(event, cursor, 0)
    return told.get(timeout=WAIT_S)


@pytest.mark.spec("AC-2.2.2.8-01")
def test_a_cursor_s_number_says_where_a_notification_watches(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    queue, other = opened(info), opened(info)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "b"
    assert watched(queue, CURRENT) == (0, CURRENT)
    assert watched(queue, NEXT) == (NOTHING, NEXT)
    queue.Reset()
    queue.PeekCurrent(ReceiveTimeout=0)
    last = queue.PeekNext(ReceiveTimeout=0)
    assert last is not None
    other.ReceiveByLookupId(last.LookupId)
    assert watched(queue, FIRST) == (0, FIRST)
    assert watched(queue, CURRENT) == (NOTHING, CURRENT)
    other.Purge()
    assert watched(queue, FIRST) == (NOTHING, FIRST)


@pytest.mark.spec("AC-2.2.2.2-01")
def test_a_share_s_number_says_whether_others_may_receive(service: MSMQService) -> None:
    info = made(service)
    several = [info.Open(MQACCESS(1), 0) for _ in range(2)]
    assert [queue.ShareMode for queue in several] == [0, 0]
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        info.Open(MQACCESS(1), 1)
    for queue in several:
        queue.Close()
    alone = info.Open(MQACCESS(1), 1)
    assert alone.ShareMode == 1
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        info.Open(MQACCESS(1), 0)


@pytest.mark.spec("AC-2.2.2.1-01", "AC-2.2.2.5-01")
def test_a_transaction_s_number_says_how_a_message_is_sent(service: MSMQService) -> None:
    plain, exact = made(service), made(service, is_transactional=True)
    for number in (0, 1, 2, 3):
        info, other = (exact, plain) if number == 3 else (plain, exact)
        message = MSMQMessage(service)
        with fails(E.MQ_ERROR_TRANSACTION_USAGE):
            message.Send(opened(other, SEND), number)
        message.Send(opened(info, SEND), number)
        # A single message is a transaction of its own, which has ended: it can be received.
        found = opened(info, RECEIVE).Receive(number, ReceiveTimeout=0)
        assert found is not None
        is_single = int(number == 3)
        assert (found.IsFirstInTransaction, found.IsLastInTransaction) == (is_single, is_single)
        with fails(NOTHING):
            opened(info, RECEIVE).Receive(number, ReceiveTimeout=0)

"""What the numbers of [MC-MQAC] 2.2.2 ask of the methods that take them."""

from __future__ import annotations

import queue as queues
from collections.abc import Iterator

import pytest
from msgspec import structs

from qm.client.errors import MqError
from qm.client.mqac import MSMQApplication, MSMQEvent, MSMQMessage, MSMQQueue, MSMQService
from qm.client.mqac.constants import MQACCESS
from qm.client.signing import new_signer
from qm.wire.codes import ErrorCode
from qm.wire.packets.user_message import UserMessage
from tests.conformance.mqac_reads import body, filled
from tests.conformance.mqac_world import (
    RECEIVE,
    SEND,
    fails,
    info_of,
    made,
    opened,
    serving,
)
from tests.conformance.test_mqac_retrieved import Changing, signing

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


@pytest.mark.spec("AC-2.2.2.4-01", "AC-2.2.2.6-01", "AC-2.2.2.7-01")
def test_the_numbers_of_a_queue_are_read_as_they_were_put(service: MSMQService) -> None:
    info = made(service)
    for name, numbers in (
        ("Journal", (1, 0)),
        ("Authenticate", (1, 0)),
        ("PrivLevel", (0, 2, 1)),
    ):
        for number in numbers:
            setattr(info, name, number)
            assert getattr(info, name) == number
            info.Update()
            assert getattr(info_of(service, name=info.FormatName or ""), name) == number


def forged(packet: UserMessage) -> UserMessage:
    """Another body, under the same signature."""
    properties = structs.replace(packet.properties, message_body=b"forged")
    return structs.replace(packet, properties=properties)


@pytest.mark.spec("AC-2.2.2.6-01")
def test_an_authenticating_queue_takes_here_too_what_is_signed_alone(service: MSMQService) -> None:
    signer = new_signer("admin", 1024, 1)
    assert MSMQApplication(service).RegisterCertificate(1, signer.certificate) == 0
    right = signing(service, signer)
    wrong = signing(service, Changing(signer, forged))
    info = made(service)
    reader = opened(info, RECEIVE)
    for number in (1, 0):
        info.Authenticate = number
        info.Update()
        for program, level in ((right, 0), (wrong, 4), (right, 4)):
            message = MSMQMessage(program)
            message.Body, message.AuthLevel = "body", level
            is_right = program is right and level > 0
            sender = opened(info_of(program, name=info.FormatName or ""), SEND)
            if is_right or not number:
                message.Send(sender)
                found = reader.Receive(ReceiveTimeout=0)
                assert found is not None
                assert found.IsAuthenticated == is_right
            else:
                with pytest.raises(MqError):
                    message.Send(sender)
            with fails(NOTHING):
                reader.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-2.2.2.3-01")
def test_an_access_s_number_says_what_may_be_done(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    receiver, sender, looker = (info.Open(MQACCESS(number), 0) for number in (1, 2, 0x20))
    assert [queue.Access for queue in (receiver, sender, looker)] == [1, 2, 0x20]
    assert body(receiver.Peek(ReceiveTimeout=0)) == body(looker.Peek(ReceiveTimeout=0)) == "a"
    for queue in (sender, looker):
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            queue.Receive(ReceiveTimeout=0)
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        sender.Peek(ReceiveTimeout=0)
    for queue in (receiver, looker):
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            MSMQMessage(service).Send(queue)
    assert body(receiver.Receive(ReceiveTimeout=0)) == "a"
    MSMQMessage(service).Send(sender)
    assert body(receiver.Receive(ReceiveTimeout=0)) == "b"
    assert receiver.Receive(ReceiveTimeout=0) is not None
    for number in (0, 3, 0x21, 0x80, 0x82):
        with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
            info.Open(MQACCESS(number), 0)

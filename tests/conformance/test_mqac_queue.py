"""MSMQQueue over a real node [MC-MQAC 3.11]."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from qm.client.mqac import (
    MSMQEvent,
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQMSGCURSOR,
    MQSHARE,
    MQTRANSACTION,
    OLE_E_BLANK,
)
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import (
    PEEK,
    RECEIVE,
    SEND,
    fails,
    info_of,
    made,
    opened,
    serving,
)

E = ErrorCode
WAIT_S = 20


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def send(service: MSMQService, info: MSMQQueueInfo, *bodies: str, **properties: object) -> None:
    queue = opened(info, SEND)
    for body in bodies:
        message = MSMQMessage(service)
        message.Body = body
        for name, value in properties.items():
            setattr(message, name, value)
        message.Send(queue)
    queue.Close()


def filled(service: MSMQService, *bodies: str) -> MSMQQueueInfo:
    info = made(service)
    send(service, info, *bodies)
    return info


def body(message: MSMQMessage | None) -> object:
    assert message is not None
    return message.Body


# State -----------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.11.4.1.1-01", "AC-3.11.4.1.2-01", "AC-3.11.4.1.3-01", "AC-3.11.4.1.4-01",
    "AC-3.11.4.1.20-01",
)  # fmt: skip
def test_an_open_queue_says_how_it_was_opened(service: MSMQService) -> None:
    info = made(service)
    queue = info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    assert (queue.Access, queue.ShareMode) == (RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    assert queue.QueueInfo is info
    assert queue.Handle == queue.Handle2 & 0xFFFF_FFFF
    assert queue.Handle2 > 0
    queue.Close()
    blank = MSMQQueue(service)
    for name in ("Access", "ShareMode", "QueueInfo", "Handle", "Handle2"):
        with fails(OLE_E_BLANK):
            getattr(blank, name)


@pytest.mark.spec(
    "AC-3.11.4.1.5-01", "AC-3.11.4.1.6-01", "AC-3.11.4.1.32-01", "AC-3.11.1.1-01",
    "AC-3.11.1-01",
)  # fmt: skip
def test_a_closed_queue_knows_that_and_nothing_else(service: MSMQService) -> None:
    queue = opened(made(service))
    assert (queue.IsOpen, queue.IsOpen2) == (1, True)
    queue.Close()
    assert (queue.IsOpen, queue.IsOpen2) == (0, False)
    calls: list[Callable[[], object]] = [
        queue.Close, queue.Reset, queue.Purge, queue.Receive, queue.Peek, queue.PeekCurrent,
        queue.PeekNext, queue.ReceiveCurrent, lambda: queue.PeekByLookupId(1),
    ]  # fmt: skip
    for call in calls:
        with fails(E.MQ_ERROR_INVALID_HANDLE):
            call()
    blank = MSMQQueue(service)
    for name in ("IsOpen", "IsOpen2"):
        with fails(OLE_E_BLANK):
            getattr(blank, name)
    with fails(OLE_E_BLANK):
        blank.Close()


@pytest.mark.spec("AC-3.11.4-01", "AC-3.11.4-02", "AC-3.11.4.1.19-01")
def test_guards_come_in_their_order(service: MSMQService) -> None:
    blank = MSMQQueue(service)
    with fails(OLE_E_BLANK):
        blank.Receive()
    info = filled(service, "a")
    sender, looker, reader = opened(info, SEND), opened(info, PEEK), opened(info, RECEIVE)
    for receive in (sender.Receive, looker.Receive, looker.ReceiveCurrent, sender.Purge):
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            receive()
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        sender.Peek()
    assert body(looker.Peek(ReceiveTimeout=0)) == body(reader.Peek(ReceiveTimeout=0)) == "a"
    sender.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        sender.Receive()
    with fails(E_NOTIMPL):
        _ = reader.Properties


# From the head ---------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11-01", "AC-3.11.4.1.14-01", "AC-3.11.4.1.15-01")
def test_reads_begin_at_the_head(service: MSMQService) -> None:
    info = filled(service, "low")
    send(service, info, "high", Priority=7)
    queue = opened(info)
    assert body(queue.Peek(ReceiveTimeout=0)) == body(queue.Receive(ReceiveTimeout=0)) == "high"
    assert body(queue.Receive(ReceiveTimeout=0)) == "low"


@pytest.mark.spec("AC-3.11.4.1.7-01", "AC-3.11.4.1.8-01")
def test_earlier_names_read_the_same(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b"))
    assert body(queue.Peek_v1(ReceiveTimeout=0)) == "a"
    assert body(queue.Receive_v1(ReceiveTimeout=0)) == "a"
    assert body(queue.Receive(ReceiveTimeout=0)) == "b"


@pytest.mark.spec("AC-3.11.4.1.11-01", "AC-3.11.4.1.12-01", "AC-3.11.4.1.13-01")
def test_earlier_names_of_cursor_reads(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b", "c"))
    assert body(queue.PeekCurrent_v1(ReceiveTimeout=0)) == "a"
    assert body(queue.PeekNext_v1(ReceiveTimeout=0)) == "b"
    assert body(queue.ReceiveCurrent_v1(ReceiveTimeout=0)) == "b"
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "c"


@pytest.mark.spec("AC-3.11.4-06", "AC-3.11.2-01")
def test_time_outs_poll_wait_and_wait_for_ever(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Receive(ReceiveTimeout=0)
    with fails(E.MQ_ERROR_IO_TIMEOUT):
        queue.Peek(ReceiveTimeout=30)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(body(queue.Receive())))
    waiting.start()
    send(service, info, "late")
    waiting.join(WAIT_S)
    assert found == ["late"]


@pytest.mark.spec("AC-3.11.4-07")
def test_a_message_brings_what_was_wanted(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    queue = opened(info)
    bare = queue.Receive(WantBody=False, ReceiveTimeout=0)
    assert bare is not None
    assert (bare.BodyLength, bare.DestinationQueueInfo) == (0, None)
    full = queue.Receive(WantDestinationQueue=True, ReceiveTimeout=0)
    assert full is not None
    assert full.Body == "b"
    destination = full.DestinationQueueInfo
    assert destination is not None
    assert destination.QueueGuid == info.QueueGuid


@pytest.mark.spec("AC-3.11.4-03", "AC-3.11.4-04", "AC-3.11.4-05")
def test_a_transactional_read_locks_until_the_outcome(service: MSMQService) -> None:
    info = made(service, is_transactional=True)
    dispenser = MSMQTransactionDispenser(service)
    filling = dispenser.BeginTransaction()
    queue = opened(info, SEND)
    for text in ("a", "b"):
        message = MSMQMessage(service)
        message.Body = text
        message.Send(queue, filling)
    filling.Commit()
    reader, looker = opened(info), opened(info, PEEK)
    reading = dispenser.BeginTransaction()
    assert body(reader.Receive(Transaction=reading, ReceiveTimeout=0)) == "a"
    assert body(looker.Peek(ReceiveTimeout=0)) == "b"
    reading.Abort()
    assert body(looker.Peek(ReceiveTimeout=0)) == "a"
    with fails(E_INVALIDARG):
        reader.Receive(Transaction="mine", ReceiveTimeout=0)  # type: ignore[arg-type]
    single = MQTRANSACTION.MQ_SINGLE_MESSAGE
    assert body(reader.Receive(Transaction=single, ReceiveTimeout=0)) == "a"


# By cursor -------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.11.4.1.10-01", "AC-3.11.4.1.16-01", "AC-3.11.4.1.17-01", "AC-3.11.4.1.18-01"
)
def test_a_cursor_moves_by_peeking_and_receiving(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c", "d")
    queue, other = opened(info), opened(info)
    with fails(E.MQ_ERROR_ILLEGAL_CURSOR_ACTION):
        queue.PeekNext(ReceiveTimeout=0)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "b"
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    assert body(other.PeekCurrent(ReceiveTimeout=0)) == "a"  # each object has its own
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "b"
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "c"
    third = queue.PeekCurrent(ReceiveTimeout=0)
    assert third is not None
    other.ReceiveByLookupId(third.LookupId)
    for call in (queue.PeekCurrent, queue.ReceiveCurrent):
        with fails(E.MQ_ERROR_MESSAGE_ALREADY_RECEIVED):
            call(ReceiveTimeout=0)
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "d"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.PeekNext(ReceiveTimeout=0)
    with fails(E.MQ_ERROR_ILLEGAL_CURSOR_ACTION):
        queue.PeekNext(ReceiveTimeout=0)
    queue.Reset()
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"


# By LookupId -----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.11.4.1.26-01", "AC-3.11.4.1.27-01", "AC-3.11.4.1.28-01", "AC-3.11.4.1.29-01",
    "AC-3.11.4.1.30-01",
)  # fmt: skip
def test_peeks_by_lookup_id(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b", "c"))
    first, last = queue.PeekFirstByLookupId(), queue.PeekLastByLookupId()
    assert first is not None
    assert last is not None
    assert (first.Body, last.Body) == ("a", "c")
    middle = queue.PeekNextByLookupId(first.LookupId)
    assert middle is not None
    assert middle.Body == "b"
    assert body(queue.PeekByLookupId(middle.LookupId)) == "b"
    assert body(queue.PeekPreviousByLookupId(int(last.LookupId))) == "b"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.PeekNextByLookupId(last.LookupId)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.PeekPreviousByLookupId(first.LookupId)
    for call in (queue.PeekByLookupId, queue.PeekNextByLookupId, queue.PeekPreviousByLookupId):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            call(0)


@pytest.mark.spec(
    "AC-3.11.4.1.21-01", "AC-3.11.4.1.22-01", "AC-3.11.4.1.23-01", "AC-3.11.4.1.24-01",
    "AC-3.11.4.1.25-01",
)  # fmt: skip
def test_receives_by_lookup_id(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b", "c", "d", "e", "f"))
    first = queue.PeekFirstByLookupId()
    assert first is not None
    assert body(queue.ReceiveNextByLookupId(first.LookupId)) == "b"
    last = queue.PeekLastByLookupId()
    assert last is not None
    assert body(queue.ReceivePreviousByLookupId(last.LookupId)) == "e"
    assert body(queue.ReceiveByLookupId(last.LookupId)) == "f"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceiveByLookupId(last.LookupId)
    assert body(queue.ReceiveFirstByLookupId()) == "a"
    assert body(queue.ReceiveLastByLookupId()) == "d"
    assert body(queue.ReceiveLastByLookupId()) == "c"
    for call in (queue.ReceiveFirstByLookupId, queue.ReceiveLastByLookupId):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            call()
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        queue.ReceiveByLookupId("0")
    with fails(E_INVALIDARG):
        queue.ReceiveByLookupId("nothing")


@pytest.mark.spec("AC-3.11.4.1.33-01")
def test_a_receive_by_lookup_id_that_allows_peeks(service: MSMQService) -> None:
    info = made(service, is_transactional=True)
    dispenser = MSMQTransactionDispenser(service)
    for text in ("a", "b"):
        message = MSMQMessage(service)
        message.Body = text
        message.Send(opened(info, SEND), MQTRANSACTION.MQ_SINGLE_MESSAGE)
    queue = opened(info)
    first = queue.PeekFirstByLookupId()
    assert first is not None
    reading = dispenser.BeginTransaction()
    assert body(queue.ReceiveByLookupIdAllowPeek(first.LookupId, reading)) == "a"
    assert body(queue.PeekByLookupId(first.LookupId)) == "a"
    assert body(queue.Peek(ReceiveTimeout=0)) == "a"
    assert body(queue.Receive(ReceiveTimeout=0)) == "b"
    reading.Abort()
    # Given back, it is like any other again.
    reading = dispenser.BeginTransaction()
    assert body(queue.ReceiveByLookupId(first.LookupId, reading)) == "a"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Peek(ReceiveTimeout=0)
    reading.Commit()
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceiveByLookupIdAllowPeek(first.LookupId)
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        queue.ReceiveByLookupIdAllowPeek("0")


# The rest --------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.31-01")
def test_purge_leaves_what_is_locked(service: MSMQService) -> None:
    info = made(service, is_transactional=True)
    dispenser = MSMQTransactionDispenser(service)
    for text in ("a", "b"):
        message = MSMQMessage(service)
        message.Body = text
        message.Send(opened(info, SEND), MQTRANSACTION.MQ_SINGLE_MESSAGE)
    queue = opened(info)
    reading = dispenser.BeginTransaction()
    assert body(queue.Receive(Transaction=reading, ReceiveTimeout=0)) == "a"
    queue.Purge()
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Receive(ReceiveTimeout=0)
    reading.Commit()
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        opened(info, PEEK).Purge()


@pytest.mark.spec("AC-3.11.4.1.9-01")
def test_a_notification_comes_once(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    told: list[tuple[object, ...]] = []
    done = threading.Event()

    def tell(*what: object) -> None:
        told.append(what)
        done.set()

    event = MSMQEvent(tell, tell)
    with fails(E_INVALIDARG):
        queue.EnableNotification(event, 9)
    with fails(E_INVALIDARG):
        queue.EnableNotification(None)  # type: ignore[arg-type]
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        opened(info, SEND).EnableNotification(event)
    with fails(OLE_E_BLANK):
        MSMQQueue(service).EnableNotification(event)
    queue.EnableNotification(event, ReceiveTimeout=20)
    assert done.wait(WAIT_S)
    assert told == [(queue, E.MQ_ERROR_IO_TIMEOUT, MQMSGCURSOR.MQMSG_FIRST)]
    told.clear()
    done.clear()
    queue.EnableNotification(event)
    send(service, info, "a", "b")
    assert done.wait(WAIT_S)
    assert told == [(queue, MQMSGCURSOR.MQMSG_FIRST)]
    assert body(queue.Receive(ReceiveTimeout=0)) == "a"
    queue.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        queue.EnableNotification(event)


def test_null_on_empty_is_a_choice_of_the_service(service: MSMQService) -> None:
    lenient = MSMQService(service.manager, null_on_empty=True)
    queue = opened(info_of(lenient, name=made(service).FormatName or ""))
    assert queue.Receive(ReceiveTimeout=0) is None
    assert queue.PeekFirstByLookupId() is None

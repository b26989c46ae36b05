"""MSMQQueue over a real node [MC-MQAC 3.11]."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from typing_extensions import override

from qm.client.mqac import (
    MSMQEvent,
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransaction,
    MSMQTransactionDispenser,
)
from qm.client.mqac.cluster.manager import ClusterManager, ClusterQueue
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQACCESS,
    MQSHARE,
    MQTRANSACTION,
    OLE_E_BLANK,
)
from qm.client.mqac.manager import OpenedQueue
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from tests.conformance import mqac_reads as reads
from tests.conformance.mqac_reads import body, filled, send
from tests.conformance.mqac_world import (
    PEEK,
    RECEIVE,
    SEND,
    ask,
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


def handles(service: MSMQService) -> list[int]:
    """Descriptors of queues that are open in the cluster."""
    reply = ask(service, lambda s: s.clients.ListOpens, control_pb2.ListOpensRequest())
    return [each.handle for each in reply.opens]


class Wide(ClusterQueue):
    """An open queue whose handle needs more than 32 bits."""

    handle = 0x12_8000_0034


class FarAlong(ClusterManager):
    """The cluster, after so many queues were opened."""

    @override
    def open_queue(self, format_name: str, access: MQACCESS, share_mode: MQSHARE) -> OpenedQueue:
        found = super().open_queue(format_name, access, share_mode)
        assert isinstance(found, ClusterQueue)
        return Wide(self, format_name, found._queue)


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
    outgoing = info_of(service, name="DIRECT=TCP:127.255.255.254\\private$\\how")
    MSMQMessage(service).Send(opened(outgoing, SEND))
    for access in (RECEIVE, SEND, PEEK, RECEIVE | ADMIN, PEEK | ADMIN):
        other = opened(outgoing if access & ADMIN else made(service), access)
        assert (other.Access, other.ShareMode) == (access, MQSHARE.MQ_DENY_NONE)
    assert queue.Handle == queue.Handle2 & 0xFFFF_FFFF
    assert queue.Handle2 > 0
    assert opened(made(service)).Handle2 != queue.Handle2
    # The descriptor's, and of it the lower half.
    same = made(service)
    several = [opened(same), opened(same, SEND), opened(same, PEEK)]
    assert {each.Handle2 for each in several} <= {*handles(service)}
    assert len({each.Handle for each in several}) == 3
    assert isinstance(service.manager, ClusterManager)
    wide = info_of(MSMQService(FarAlong(service.manager.client)), name=same.FormatName or "")
    assert (opened(wide).Handle2, opened(wide).Handle) == (0x12_8000_0034, 0x8000_0034)
    assert opened(made(service)).ShareMode == MQSHARE.MQ_DENY_NONE
    queue.Close()
    blank = MSMQQueue(service)
    for name in ("Access", "ShareMode", "QueueInfo", "Handle", "Handle2"):
        with fails(0x8004_0007):
            getattr(blank, name)


@pytest.mark.spec("AC-3.11.3-01")
def test_an_application_s_own_queue_is_blank(service: MSMQService) -> None:
    blank = MSMQQueue(service)
    names = {name for name in vars(MSMQQueue) if name[0].isupper()} - {"Properties"}
    for name in sorted(names):
        found = inspect.getattr_static(MSMQQueue, name)
        with fails(OLE_E_BLANK):
            if isinstance(found, property):
                getattr(blank, name)
            elif name == "EnableNotification":
                blank.EnableNotification(MSMQEvent())
            else:
                getattr(blank, name)(*([1] if reads.takes(name, "LookupId") else []))
    assert {"Receive", "Peek", "Purge", "Reset", "Close", "Handle2", "IsOpen"} <= names
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        blank.PeekByLookupId(0)
    with fails(E_INVALIDARG):
        blank.EnableNotification(MSMQEvent(), 5)
    with fails(E_NOTIMPL):
        _ = blank.Properties


@pytest.mark.spec("AC-3.11.3-02", "AC-3.11.1-01")
def test_an_open_queue_begins_before_its_first_message(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    queue, other = opened(info), opened(info)
    assert queue.IsOpen2
    assert queue.QueueInfo is info
    with fails(E.MQ_ERROR_ILLEGAL_CURSOR_ACTION):  # Unread
        queue.PeekNext(ReceiveTimeout=0)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "b"
    assert body(other.PeekCurrent(ReceiveTimeout=0)) == "a"  # its own cursor
    blank = MSMQQueue(service)  # not initialised
    for call in (lambda: blank.IsOpen, blank.Close, partial(blank.Peek, ReceiveTimeout=0)):
        with fails(OLE_E_BLANK):
            call()


@pytest.mark.spec(
    "AC-3.11.4.1.5-01", "AC-3.11.4.1.6-01", "AC-3.11.4.1.32-01", "AC-3.11.1.1-01",
    "AC-3.11.1.1-02",
)  # fmt: skip
def test_a_closed_queue_knows_that_and_nothing_else(service: MSMQService) -> None:
    queue = opened(made(service))
    assert (queue.IsOpen, queue.IsOpen2) == (1, True)
    assert (type(queue.IsOpen), type(queue.IsOpen2)) == (int, bool)
    handle = queue.Handle2
    assert handle in handles(service)
    queue.Close()
    assert (queue.IsOpen, queue.IsOpen2) == (0, False)
    assert handle not in handles(service)
    calls: list[Callable[[], object]] = [
        queue.Close, queue.Reset, queue.Purge, lambda: queue.EnableNotification(MSMQEvent()),
        lambda: queue.Access, lambda: queue.ShareMode, lambda: queue.Handle,
        lambda: queue.Handle2,
    ]  # fmt: skip
    for name in (*PEEKS, "PeekNext", "PeekNext_v1", *RECEIVES):
        calls.append(partial(getattr(queue, name), **reads.arguments(name)))
    assert isinstance(queue.QueueInfo, MSMQQueueInfo)
    for call in calls:
        with fails(0xC00E_0007):
            call()
    blank = MSMQQueue(service)
    for name in ("IsOpen", "IsOpen2", "Access", "ShareMode", "QueueInfo", "Handle", "Handle2"):
        with fails(0x8004_0007):
            getattr(blank, name)
    with fails(OLE_E_BLANK):
        blank.Close()


@pytest.mark.spec("AC-3.11.4-01")
def test_every_read_has_the_same_guards_in_the_same_order(service: MSMQService) -> None:
    info = filled(service, "a")
    sender, looker, reader, closed = (opened(info, each) for each in (SEND, PEEK, RECEIVE, SEND))
    closed.Close()
    names = [name for name in vars(MSMQQueue) if name.startswith(("Receive", "Peek"))]
    assert len(names) == 21
    for name in names:
        is_receive = reads.takes(name, "Transaction")
        # What is wrong with an argument is looked at behind them.
        given = reads.arguments(name, **({"Transaction": 99} if is_receive else {}))
        for queue, code in (
            (MSMQQueue(service), OLE_E_BLANK),
            (closed, E.MQ_ERROR_INVALID_HANDLE),
            (sender, E.MQ_ERROR_ACCESS_DENIED),
            *([(looker, E.MQ_ERROR_ACCESS_DENIED), (reader, E_INVALIDARG)] if is_receive else []),
        ):
            with fails(code):
                getattr(queue, name)(**given)


@pytest.mark.spec("AC-3.11.4-01", "AC-3.11.4.1.19-01")
def test_guards_come_in_their_order(service: MSMQService) -> None:
    queue = opened(filled(service, "a"), SEND)
    for wrong in ("mine", 99):
        with fails(OLE_E_BLANK):
            MSMQQueue(service).Receive(wrong)  # type: ignore[arg-type]
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            queue.Receive(wrong)  # type: ignore[arg-type]
    queue.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        queue.Receive(99)
    reader = opened(filled(service, "a"))
    with fails(E_INVALIDARG):
        reader.Receive(99)
    with fails(E_NOTIMPL):
        _ = reader.Properties


RECEIVES = (
    "Receive", "Receive_v1", "ReceiveCurrent", "ReceiveCurrent_v1", "ReceiveByLookupId",
    "ReceiveNextByLookupId", "ReceivePreviousByLookupId", "ReceiveFirstByLookupId",
    "ReceiveLastByLookupId", "ReceiveByLookupIdAllowPeek", "Purge",
)  # fmt: skip
PEEKS = (
    "Peek", "Peek_v1", "PeekCurrent", "PeekCurrent_v1", "PeekByLookupId", "PeekNextByLookupId",
    "PeekPreviousByLookupId", "PeekFirstByLookupId", "PeekLastByLookupId",
)  # fmt: skip
ADMIN = MQACCESS.MQ_ADMIN_ACCESS


@pytest.mark.spec("AC-3.11.4-02")
@pytest.mark.parametrize("access", [RECEIVE, PEEK, SEND, RECEIVE | ADMIN, PEEK | ADMIN])
def test_receives_need_receive_access_and_peeks_that_or_peek_access(
    service: MSMQService, access: MQACCESS
) -> None:
    far = info_of(service, name="DIRECT=TCP:127.255.255.254\\private$\\guarded")
    info = far if access & ADMIN else made(service)
    sender = opened(info, SEND)
    lookup, queue = opened(info, PEEK | (access & ADMIN)), opened(info, access)
    for _ in range(2 + len(RECEIVES)):
        MSMQMessage(service).Send(sender)
    for name in ("PeekNext", "PeekNext_v1"):
        if access & (RECEIVE | PEEK):
            queue.Reset()
            assert queue.PeekCurrent(ReceiveTimeout=0) is not None
            assert getattr(queue, name)(ReceiveTimeout=0) is not None
        else:
            with fails(E.MQ_ERROR_ACCESS_DENIED):
                getattr(queue, name)(ReceiveTimeout=0)
    for name in (*PEEKS, *RECEIVES):
        second = lookup.PeekNextByLookupId(reads.first_of(lookup).LookupId)
        assert second is not None
        given = reads.arguments(name, second.LookupId)
        if access & RECEIVE or (name in PEEKS and access & PEEK):
            assert getattr(queue, name)(**given) is not None or name == "Purge"
        else:
            with fails(E.MQ_ERROR_ACCESS_DENIED):
                getattr(queue, name)(**given)
        queue.Reset()


# From the head ---------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.14-01", "AC-3.11.4.1.15-01")
def test_reads_begin_at_the_head(service: MSMQService) -> None:
    info = filled(service, "low")
    send(service, info, "high", Priority=7)
    queue = opened(info)
    queue.PeekCurrent(ReceiveTimeout=0)
    queue.PeekNext(ReceiveTimeout=0)  # the cursor is elsewhere, and stays (AC-A40)
    assert body(queue.Peek(ReceiveTimeout=0)) == body(queue.Receive(ReceiveTimeout=0)) == "high"
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "low"
    assert body(queue.Receive(ReceiveTimeout=0)) == "low"


@pytest.mark.spec(
    "AC-3.11.4.1.15-01", "AC-3.11.4.1.29-01", "AC-3.11.4.1.30-01", "AC-3.11.4-03",
    "DM-3.1.7.3.2-03",
)  # fmt: skip
def test_peeks_pass_locked_messages_that_may_not_be_seen(service: MSMQService) -> None:
    queue, taker, transaction = with_both_ends_locked(service)
    for _ in range(2):  # kept
        for peek in (queue.Peek, queue.PeekFirstByLookupId, queue.PeekCurrent):
            assert body(peek(**reads.arguments(peek.__name__))) == "b"
        assert body(queue.PeekLastByLookupId()) == "e"
    second = reads.first_of(queue).LookupId
    taker.ReceiveByLookupIdAllowPeek(second, transaction)  # locked, but to be seen
    for _ in range(2):
        assert body(queue.Peek(ReceiveTimeout=0)) == "b"
        assert body(queue.PeekFirstByLookupId()) == "b"
        assert body(queue.PeekLastByLookupId()) == "e"
    assert body(queue.Receive(ReceiveTimeout=0)) == "c"  # no receiver's
    fourth, last = queue.PeekNextByLookupId(second), queue.PeekLastByLookupId()
    assert fourth is not None
    assert last is not None
    # By its own identifier, too, and in whichever order it is looked for.
    taker.ReceiveByLookupId(fourth.LookupId, transaction)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.PeekByLookupId(fourth.LookupId)
    assert body(queue.PeekByLookupId(second)) == "b"
    for locked in (second, fourth.LookupId):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            queue.ReceiveByLookupId(locked)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceivePreviousByLookupId(last.LookupId)
    taker.ReceiveByLookupIdAllowPeek(last.LookupId, transaction)
    assert body(queue.PeekLastByLookupId()) == "e"
    transaction.Commit()


@pytest.mark.spec("AC-3.11.4.1.17-01", "AC-3.11.4.1.18-01")
def test_a_cursor_advances_over_locked_messages(service: MSMQService) -> None:
    info = filled(service, *"abcd", is_transactional=True)
    queue, taker = opened(info), opened(info)
    a, b, _, d = [message.LookupId for message in reads.walk(queue)]
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    taker.ReceiveByLookupId(b, transaction)
    taker.ReceiveByLookupIdAllowPeek(d, transaction)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    for text in ("c", "d"):  # the last one is locked, too, but to be seen
        assert body(queue.PeekNext(ReceiveTimeout=0)) == text
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == text
    taker.ReceiveByLookupId(a, transaction)
    transaction.Abort()
    queue.Reset()
    queue.PeekCurrent(ReceiveTimeout=0)
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "b"


@pytest.mark.spec("AC-3.11.4.1.14-01", "AC-3.11.4.1.24-01", "AC-3.11.4.1.25-01")
def test_receives_pass_locked_messages(service: MSMQService) -> None:
    queue, _, transaction = with_both_ends_locked(service)
    assert body(queue.ReceiveFirstByLookupId()) == "b"
    assert body(queue.ReceiveLastByLookupId()) == "e"
    assert body(queue.Receive(ReceiveTimeout=0)) == "c"
    assert body(queue.ReceiveLastByLookupId()) == "d"
    for read in (queue.Receive, queue.ReceiveFirstByLookupId, queue.ReceiveLastByLookupId):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            read(**reads.arguments(read.__name__))
    transaction.Abort()
    assert body(queue.ReceiveLastByLookupId()) == "f"
    assert body(queue.ReceiveFirstByLookupId()) == "a"


def with_both_ends_locked(service: MSMQService) -> tuple[MSMQQueue, MSMQQueue, MSMQTransaction]:
    """A queue of a to f, another view of it, and the transaction that has locked a and f there."""
    info = filled(service, *"abcdef", is_transactional=True)
    queue, taker = opened(info), opened(info)
    a, *_, f = [message.LookupId for message in reads.walk(queue)]
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    for locked in (a, f):
        taker.ReceiveByLookupId(locked, transaction)
    return queue, taker, transaction


@pytest.mark.spec("AC-3.11-01", "AC-3.11-02")
def test_a_message_is_kept_or_taken_found_in_three_ways(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c", "d", is_transactional=True)
    queue = opened(info)
    third = reads.walk(queue)[2].LookupId
    for _ in range(2):  # peeks keep it
        assert body(queue.Peek(ReceiveTimeout=0)) == "a"
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
        assert body(queue.PeekByLookupId(third)) == "c"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "a"
    assert body(queue.ReceiveByLookupId(third)) == "c"
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    assert body(queue.Receive(transaction, ReceiveTimeout=0)) == "b"
    assert [message.Body for message in reads.walk(queue)] == ["d"]
    transaction.Abort()
    assert [message.Body for message in reads.walk(queue)] == ["b", "d"]


@pytest.mark.spec("AC-3.11.4-06", "AC-3.11.2-01", "AC-3.11.4-12", "AC-3.11.4-13", "AC-3.11.4-14")
def test_time_outs_poll_wait_and_wait_for_ever(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    with fails(0xC00E_0088):
        queue.Receive(ReceiveTimeout=0)
    both: tuple[Callable[..., object], ...] = (queue.Peek, queue.Receive)
    for read in both:
        before = time.monotonic()
        with fails(0xC00E_001B):
            read(ReceiveTimeout=30)  # milliseconds
        assert 0.02 < time.monotonic() - before < WAIT_S
    send(service, info, "gone")
    queue.PeekCurrent(ReceiveTimeout=0)
    assert body(queue.Receive(ReceiveTimeout=0)) == "gone"
    with fails(0xC00E_001D):
        queue.PeekCurrent(ReceiveTimeout=0)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(body(queue.Receive())))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
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
    for wanted in (True, False):
        send(service, info, "c", ConnectorTypeGuid=reads.CONNECTOR)
        found = queue.Receive(WantConnectorType=wanted, ReceiveTimeout=0)
        assert found is not None
        assert (found.ConnectorTypeGuid == reads.CONNECTOR) is wanted


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
    identifier = reading.attached().GetTransactionInfo().uow

    def known() -> list[bytes]:
        listed = control_pb2.ListTransactionsRequest()
        reply = ask(service, lambda stubs: stubs.clients.ListTransactions, listed)
        return [each.identifier for each in reply.transactions]

    assert identifier not in known()
    assert body(reader.Receive(Transaction=reading, ReceiveTimeout=0)) == "a"
    assert identifier in known()
    assert body(looker.Peek(ReceiveTimeout=0)) == "b"
    reading.Abort()
    assert body(looker.Peek(ReceiveTimeout=0)) == "a"
    with fails(E_INVALIDARG):
        reader.Receive(Transaction="mine", ReceiveTimeout=0)  # type: ignore[arg-type]
    with fails(E_INVALIDARG):  # it represents no transaction
        reader.Receive(Transaction=MSMQTransaction(), ReceiveTimeout=0)
    # Only a queue that keeps a journal copies what is taken.
    unkept = made(service, is_transactional=True)
    MSMQMessage(service).Send(opened(unkept, SEND), MQTRANSACTION.MQ_SINGLE_MESSAGE)
    reading = dispenser.BeginTransaction()
    assert opened(unkept).Receive(reading, ReceiveTimeout=0) is not None
    reading.Commit()
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        opened(info_of(service, name=f"{unkept.FormatName};JOURNAL")).Receive(ReceiveTimeout=0)
    # Taken in a transaction it is copied to the journal by the commit, otherwise at once.
    info.Journal = 1
    info.Update()
    journal = opened(info_of(service, name=f"{info.FormatName};JOURNAL"))
    reading = dispenser.BeginTransaction()
    assert body(reader.Receive(reading, ReceiveTimeout=0)) == "a"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        journal.Receive(ReceiveTimeout=0)
    reading.Commit()
    assert body(journal.Receive(ReceiveTimeout=0)) == "a"
    single = MQTRANSACTION.MQ_SINGLE_MESSAGE
    assert body(reader.Receive(Transaction=single, ReceiveTimeout=0)) == "b"
    assert body(journal.Receive(ReceiveTimeout=0)) == "b"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        reader.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-3.11.4-10", "AC-2.2.2.1-03", "AC-2.2.2.1-01")
def test_no_transaction_is_not_the_same_as_none_given(service: MSMQService) -> None:
    info = filled(service, *"abcdef", is_transactional=True)
    queue = opened(info)
    numbers = MQTRANSACTION
    for transaction, text in (
        (None, "a"), (numbers.MQ_NO_TRANSACTION, "b"), (numbers.MQ_MTS_TRANSACTION, "c"),
        (numbers.MQ_XA_TRANSACTION, "d"), (numbers.MQ_SINGLE_MESSAGE, "e"),
    ):  # fmt: skip
        # There is no ambient transaction (AC-A21): each is taken at once.
        assert body(queue.Receive(transaction, ReceiveTimeout=0)) == text
    assert body(queue.Receive(ReceiveTimeout=0)) == "f"
    for name in RECEIVES[:-1]:
        assert inspect.signature(getattr(queue, name)).parameters["Transaction"].default == 1


# By cursor -------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.11.4.1.10-01",
    "AC-3.11.4.1.16-01",
    "AC-3.11.4.1.17-01",
    "AC-3.11.4.1.18-01",
    "MQ-2.4-07",
)
def test_a_cursor_moves_by_peeking_and_receiving(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c", "d")
    queue, other = opened(info), opened(info)
    with fails(0xC00E_001C):
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
    with fails(0xC00E_001C):
        queue.PeekNext(ReceiveTimeout=0)
    queue.Reset()
    with fails(0xC00E_001C):  # before the first one again
        queue.PeekNext(ReceiveTimeout=0)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    with fails(OLE_E_BLANK):
        MSMQQueue(service).Reset()
    queue.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        queue.Reset()


@pytest.mark.spec("AC-3.11.4.1.16-01")
def test_a_receive_at_the_cursor_passes_locked_ones_and_waits_at_the_end(
    service: MSMQService,
) -> None:
    info = filled(service, "a", "b", "c", is_transactional=True)
    queue, taker = opened(info), opened(info)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    assert body(taker.Receive(transaction, ReceiveTimeout=0)) == "a"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "b"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "c"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceiveCurrent(ReceiveTimeout=0)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(body(queue.ReceiveCurrent())))
    waiting.start()
    transaction.Abort()  # in front of the cursor
    waiting.join(0.2)
    assert waiting.is_alive()
    send(service, info, "late")
    waiting.join(WAIT_S)
    assert found == ["late"]
    assert body(queue.Receive(ReceiveTimeout=0)) == "a"
    # So it is of the message under the cursor, which is locked and not gone.
    send(service, info, "d", "e")
    queue.Reset()
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "d"
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    assert body(taker.Receive(transaction, ReceiveTimeout=0)) == "d"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "e"
    transaction.Abort()


def test_a_cursor_passes_over_what_is_locked(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c", is_transactional=True)
    queue, taker = opened(info), opened(info)
    queue.PeekCurrent(ReceiveTimeout=0)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    assert body(taker.Receive(transaction, ReceiveTimeout=0)) == "a"
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    queue.Reset()
    queue.PeekCurrent(ReceiveTimeout=0)
    assert body(taker.Receive(transaction, ReceiveTimeout=0)) == "b"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "c"
    transaction.Abort()


# By LookupId -----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.11.4.1.26-01", "AC-3.11.4.1.27-01", "AC-3.11.4.1.28-01", "AC-3.11.4.1.29-01",
    "AC-3.11.4.1.30-01",
)  # fmt: skip
def test_peeks_by_lookup_id(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c")
    queue, name = opened(info), info.FormatName or ""
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
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.PeekByLookupId(int(last.LookupId) + 1)
    assert [message.Body for message in reads.walk(queue)] == ["a", "b", "c"]  # kept
    lenient = opened(info_of(MSMQService(service.manager, null_on_empty=True), name=name))
    assert lenient.PeekNextByLookupId(last.LookupId) is None
    assert lenient.PeekPreviousByLookupId(first.LookupId) is None
    assert lenient.PeekByLookupId(int(last.LookupId) + 1) is None
    for call in (queue.PeekByLookupId, queue.PeekNextByLookupId, queue.PeekPreviousByLookupId):
        for none in (0, "0"):
            with fails(E.MQ_ERROR_INVALID_PARAMETER):
                call(none)


@pytest.mark.spec(
    "AC-3.11.4.1.24-09", "AC-3.11.4.1.25-09", "AC-3.11.4.1.26-07", "AC-3.11.4.1.33-10",
    "AC-3.11.4.1.21-10",
)  # fmt: skip
def test_reads_by_lookup_id_mean_what_their_names_say(service: MSMQService) -> None:
    info = filled(service, *"abcdef", is_transactional=True)
    queue, taker = opened(info), opened(info)
    a, b, c, *_, f = [message.LookupId for message in reads.walk(queue)]
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    for locked in (a, f):
        taker.ReceiveByLookupId(locked, transaction)
    assert body(queue.ReceiveFirstByLookupId()) == "b"
    assert body(queue.ReceiveLastByLookupId()) == "e"
    assert body(queue.PeekByLookupId(c)) == "c"
    assert body(queue.PeekNextByLookupId(c)) == "d"
    for locked in (a, f):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            queue.ReceiveByLookupIdAllowPeek(locked)
    # Locked is locked, whoever may see it; and what is gone is not the next one.
    other = MSMQTransactionDispenser(service).BeginTransaction()
    assert body(taker.ReceiveByLookupIdAllowPeek(c, other)) == "c"
    assert body(queue.PeekByLookupId(c)) == "c"
    for nothing in (b, c):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            queue.ReceiveByLookupIdAllowPeek(nothing)
    other.Abort()
    assert body(queue.ReceiveByLookupIdAllowPeek(c)) == "c"
    transaction.Commit()
    assert [message.Body for message in reads.walk(queue)] == ["d"]
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceiveByLookupId(b)


@pytest.mark.spec("AC-3.11.4.1.22-10")
def test_neighbours_of_a_message_that_is_gone_are_not_found(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b", "c"))
    middle = reads.walk(queue)[1].LookupId
    queue.ReceiveByLookupId(middle)
    for call in (
        queue.PeekNextByLookupId, queue.PeekPreviousByLookupId, queue.ReceiveNextByLookupId,
        queue.ReceivePreviousByLookupId,
    ):  # fmt: skip
        for nothing in (middle, 1, int(middle) + (1 << 40)):  # nor were there ever such ones
            with fails(0xC00E_0088):
                call(nothing)
    assert [message.Body for message in reads.walk(queue)] == ["a", "c"]


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
        queue.ReceivePreviousByLookupId(first.LookupId)
    final = queue.PeekLastByLookupId()
    assert final is not None
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.ReceiveNextByLookupId(final.LookupId)
    for by_id in (
        queue.ReceiveByLookupId, queue.ReceiveNextByLookupId, queue.ReceivePreviousByLookupId,
    ):  # fmt: skip
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            by_id(last.LookupId)
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            by_id(0)
    assert body(queue.ReceiveFirstByLookupId()) == "a"
    assert body(queue.ReceiveLastByLookupId()) == "d"
    assert body(queue.ReceiveLastByLookupId()) == "c"
    for call in (queue.ReceiveFirstByLookupId, queue.ReceiveLastByLookupId):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            call()
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        queue.ReceiveByLookupId("0")
    for by_id in (
        queue.ReceiveByLookupId, queue.ReceiveNextByLookupId, queue.ReceivePreviousByLookupId,
    ):  # fmt: skip
        for none in ("nothing", 1 << 64, str(1 << 64)):  # of more than 64 bits
            with fails(E_INVALIDARG):
                by_id(none)
        if by_id != queue.ReceivePreviousByLookupId:
            with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
                by_id((1 << 64) - 1)


@pytest.mark.spec("AC-3.11.4.1.33-01", "AC-3.11.4.1.33-08")
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
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    assert body(queue.Receive(ReceiveTimeout=0)) == "b"
    assert body(queue.PeekFirstByLookupId()) == body(queue.PeekLastByLookupId()) == "a"
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
    # The cursor sees it, too, from the message before.
    queue = opened(filled(service, "x", "y", "z", is_transactional=True))
    ids = [message.LookupId for message in reads.walk(queue)]
    reading = dispenser.BeginTransaction()
    assert body(queue.ReceiveByLookupIdAllowPeek(ids[1], reading)) == "y"
    assert [message.Body for message in reads.sights(queue, *ids)] == ["y"] * 5
    reading.Abort()


# The rest --------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.31-01", "AC-3.11.4.1.31-02", "AC-3.11.4.1.31-03")
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
    reading.Abort()  # what was locked goes as well, now
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Receive(ReceiveTimeout=0)
    # It is not taken away with the others: who has locked it gets it. None is received.
    info.Journal = 1
    info.Update()
    journal = opened(info_of(service, name=f"{info.FormatName};JOURNAL"))
    send(service, info, "c", "d")
    reading = dispenser.BeginTransaction()
    assert body(queue.Receive(Transaction=reading, ReceiveTimeout=0)) == "c"
    queue.Purge()
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        journal.Receive(ReceiveTimeout=0)
    reading.Commit()
    assert body(journal.Receive(ReceiveTimeout=0)) == "c"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        journal.Receive(ReceiveTimeout=0)
    looker = opened(info, PEEK)
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        looker.Purge()
    looker.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        looker.Purge()
    with fails(OLE_E_BLANK):
        MSMQQueue(service).Purge()


def test_null_on_empty_is_a_choice_of_the_service(service: MSMQService) -> None:
    lenient = MSMQService(service.manager, null_on_empty=True)
    queue = opened(info_of(lenient, name=made(service).FormatName or ""))
    assert queue.Receive(ReceiveTimeout=0) is None
    assert queue.PeekFirstByLookupId() is None

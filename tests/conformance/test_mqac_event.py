"""MSMQEvent and MSMQQueue.EnableNotification [MC-MQAC 3.11.4.1.9, 3.16] over a real node."""

from __future__ import annotations

import inspect
import queue as queues
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from typing_extensions import override

from qm.client.mqac import (
    MSMQEvent,
    MSMQMessage,
    MSMQQueue,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.constants import (
    E_INVALIDARG,
    MQACCESS,
    MQMSGCURSOR,
    MQSHARE,
    OLE_E_BLANK,
)
from qm.client.mqac.event import CONNECTIONS_MAX
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_reads import body, filled, send
from tests.conformance.mqac_world import PEEK, SEND, fails, info_of, made, opened, serving

E = ErrorCode
FIRST, CURRENT, NEXT = MQMSGCURSOR
SOON_MS = 10
WAIT_S = 20
EVENTS_IID = "d7d6e078-dccd-11d0-aa4b-0060970debae"


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


class Sink:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: queues.Queue[tuple[object, ...]] = queues.Queue()

    def Arrived(self, Queue: MSMQQueue, Cursor: int) -> None:
        self.told.put((Queue, Cursor))

    def ArrivedError(self, Queue: MSMQQueue, ErrorCode: int, Cursor: int) -> None:
        self.told.put((Queue, ErrorCode, Cursor))

    def next(self) -> tuple[object, ...]:
        return self.told.get(timeout=WAIT_S)


def watched() -> tuple[MSMQEvent, Sink]:
    """An event, and its only sink."""
    event, sink = MSMQEvent(), Sink()
    event.Advise(sink)
    return event, sink


# EnableNotification ----------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.9-01", "AC-3.11.4.1.9-03")
def test_a_notification_is_guarded_in_order(service: MSMQService) -> None:
    info = made(service)
    event, sink = watched()
    blank, closed, sender = MSMQQueue(service), opened(info), opened(info, SEND)
    closed.Close()
    for queue in (blank, closed, sender, opened(info)):
        for number in (3, -1):
            with fails(E_INVALIDARG):  # the cursor comes first
                queue.EnableNotification(event, number)
    with fails(OLE_E_BLANK):
        blank.EnableNotification(None)  # type: ignore[arg-type]
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        closed.EnableNotification(None)  # type: ignore[arg-type]
    with fails(E_INVALIDARG):
        sender.EnableNotification(None)  # type: ignore[arg-type]
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        sender.EnableNotification(event)
    send(service, info, "a")
    away = info_of(service, name="DIRECT=TCP:127.255.255.254\\PRIVATE$\\guarded")
    MSMQMessage(service).Send(opened(away, SEND))
    for name, access in ((info, PEEK), (info, 1), (away, PEEK | 0x80)):  # receive access will do
        queue = opened(name, access)  # type: ignore[arg-type]
        queue.EnableNotification(event)
        assert sink.next() == (queue, FIRST)


@pytest.mark.spec("AC-4.5-01", "AC-3.11.4.1.9-04")
def test_a_program_is_told_of_what_arrives_and_receives_it(service: MSMQService) -> None:
    info = info_of(service, name=made(service).FormatName or "")
    queue = info.Open(MQACCESS.MQ_RECEIVE_ACCESS, MQSHARE.MQ_DENY_NONE)
    taken: queues.Queue[object] = queues.Queue()

    def arrived(Queue: MSMQQueue, Cursor: int) -> None:
        taken.put((Cursor, body(Queue.Receive(ReceiveTimeout=0))))

    event = MSMQEvent(arrived, lambda *what: taken.put(what))
    omitted = inspect.signature(queue.EnableNotification).parameters
    assert [each.default for each in omitted.values()][1:] == [0, 0xFFFF_FFFF]
    queue.EnableNotification(event)  # omitted: the first message, without end
    with pytest.raises(queues.Empty):
        taken.get(timeout=0.5)
    send(service, info, "here", "next")
    assert taken.get(timeout=WAIT_S) == (FIRST, "here")
    queue.PeekCurrent(ReceiveTimeout=0)  # the cursor is at the last message
    queue.EnableNotification(event)  # which the first one does not ask for
    assert taken.get(timeout=WAIT_S) == (FIRST, "next")


@pytest.mark.spec(
    "AC-3.11.4.1.9-02", "AC-3.11.4.1.9-06", "AC-3.11.4.1.9-09", "AC-3.11.4.1.9-11",
    "AC-3.16.4.4.1-02",
)  # fmt: skip
def test_one_call_tells_once_of_the_head(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    event, sink = watched()
    queue.EnableNotification(event, FIRST, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, FIRST)
    for kind in (FIRST, CURRENT):
        queue.EnableNotification(event, kind, SOON_MS)
        assert sink.next() == (queue, 0xC00E_001B, kind)
        queue.EnableNotification(event, kind, WAIT_S * 1_000)  # which does not elapse
        with pytest.raises(queues.Empty):
            sink.told.get(timeout=0.2)
        send(service, info, "in time")
        assert sink.next() == (queue, kind)
        assert body(queue.Receive(ReceiveTimeout=0)) == "in time"
    queue.EnableNotification(event)  # for ever
    send(service, info, "a", "b")
    assert sink.next() == (queue, FIRST)
    with pytest.raises(queues.Empty):
        sink.told.get(timeout=0.2)
    assert body(queue.Receive(ReceiveTimeout=0)) == "a"  # it stayed
    queue.EnableNotification(event, ReceiveTimeout=0)
    assert sink.next() == (queue, FIRST)
    send(service, info, "c")  # nobody asked again
    with pytest.raises(queues.Empty):
        sink.told.get(timeout=0.2)


@pytest.mark.spec("AC-3.11.4.1.9-12")
@pytest.mark.parametrize("kind", [CURRENT, NEXT])
def test_the_cursor_stands_at_what_was_waited_for(service: MSMQService, kind: int) -> None:
    info = filled(service, "a")
    queue = opened(info)
    queue.PeekCurrent(ReceiveTimeout=0)
    if kind == CURRENT:
        queue.ReceiveCurrent(ReceiveTimeout=0)
    event, sink = watched()
    queue.EnableNotification(event, kind)
    with pytest.raises(queues.Empty):
        sink.told.get(timeout=0.2)
    send(service, info, "b", "c")
    assert sink.next() == (queue, kind)
    assert body(queue.PeekNext(ReceiveTimeout=0)) == "c"  # behind b
    left = ["b", "c"] if kind == CURRENT else ["a", "b", "c"]
    assert [body(queue.Receive(ReceiveTimeout=0)) for _ in left] == left


@pytest.mark.spec("AC-3.11.4.1.9-10", "AC-3.11.4.1.9-07")
def test_locked_messages_are_passed_over(service: MSMQService) -> None:
    info = filled(service, "a", "b", "c", "d", is_transactional=True)
    queue, taker = opened(info), opened(info)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    queue.PeekCurrent(ReceiveTimeout=0)  # at a
    ids = []
    for _ in range(2):
        message = taker.Receive(transaction, ReceiveTimeout=0)
        assert message is not None
        ids.append(message.LookupId)
    event, sink = watched()
    queue.EnableNotification(event, FIRST, 0)
    assert sink.next() == (queue, FIRST)
    # From a, which is locked, over b, which is, too.
    queue.EnableNotification(event, CURRENT, 0)
    assert sink.next() == (queue, CURRENT)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "c"
    rest = [taker.Receive(transaction, ReceiveTimeout=0) for _ in range(2)]
    assert len(rest) == 2
    queue.EnableNotification(event, FIRST, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, FIRST)
    transaction.Abort()
    other = MSMQTransactionDispenser(service).BeginTransaction()
    taker.ReceiveByLookupIdAllowPeek(ids[0], other)  # locked, but to be seen
    queue.Reset()
    queue.EnableNotification(event, CURRENT, 0)
    assert sink.next() == (queue, CURRENT)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    other.Abort()


@pytest.mark.spec("AC-3.11.4.1.9-07")
def test_the_cursor_moves_over_locked_messages_until_one_is_given_back(
    service: MSMQService,
) -> None:
    for kind, at in ((CURRENT, "b"), (NEXT, "a")):
        info = filled(service, "a", "b", "c", "d", is_transactional=True)
        queue, taker = opened(info), opened(info)
        event, sink = watched()
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
        if at == "b":
            assert body(queue.PeekNext(ReceiveTimeout=0)) == "b"
        begin = MSMQTransactionDispenser(service).BeginTransaction
        first, second, third = begin(), begin(), begin()
        for transaction, text in ((first, "a"), (first, "b"), (second, "c"), (third, "d")):
            assert body(taker.Receive(transaction, ReceiveTimeout=0)) == text
        queue.EnableNotification(event, kind, 0)
        assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, kind)
        queue.EnableNotification(event, kind)
        with pytest.raises(queues.Empty):
            sink.told.get(timeout=0.2)
        third.Abort()  # d comes first, and c later: the cursor is at d
        assert sink.next() == (queue, kind)
        second.Abort()
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "d"
        first.Abort()
        queue.Reset()
        queue.PeekCurrent(ReceiveTimeout=0)
        # With one that is suitable behind locked ones, at once.
        transaction = begin()
        for text in ("a", "b"):
            assert body(taker.Receive(transaction, ReceiveTimeout=0)) == text
        queue.EnableNotification(event, kind, 0)
        assert sink.next() == (queue, kind)
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "c"
        transaction.Abort()


@pytest.mark.spec(
    "AC-2.2.2.8-02", "AC-3.11.4.1.9-05", "AC-3.11.4.1.9-12", "AC-3.11.4.1.9-02",
    "AC-3.16.4.4.1-02",
)  # fmt: skip
def test_next_advances_at_once_and_waits_there(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    queue = opened(info)
    queue.PeekCurrent(ReceiveTimeout=0)
    event, sink = watched()
    queue.EnableNotification(event, NEXT, 0)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    assert sink.next() == (queue, NEXT)
    queue.EnableNotification(event, CURRENT, 0)
    assert sink.next() == (queue, CURRENT)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    queue.EnableNotification(event, NEXT)  # behind the last one
    send(service, info, "c")
    assert sink.next() == (queue, NEXT)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "c"
    assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "c"
    # Behind the last one the cursor has nothing, the head has.
    queue.EnableNotification(event, CURRENT, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, CURRENT)
    queue.EnableNotification(event, FIRST, 0)
    assert sink.next() == (queue, FIRST)
    # A finite time ends there as well, and a longer one lasts until a message comes.
    for kind in (CURRENT, NEXT):
        queue.EnableNotification(event, kind, SOON_MS)
        assert sink.next() == (queue, E.MQ_ERROR_IO_TIMEOUT, kind)
    assert body(queue.Receive(ReceiveTimeout=0)) == "a"
    assert body(queue.Receive(ReceiveTimeout=0)) == "b"
    for kind, text in ((FIRST, "d"), (CURRENT, "e")):
        queue.EnableNotification(event, kind)
        with pytest.raises(queues.Empty):
            sink.told.get(timeout=0.2)
        send(service, info, text)
        assert sink.next() == (queue, kind)
        assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == text


class Later(MSMQEvent):
    """An event that looks when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Callable[[], object]] = []

    @override
    def watch(self, queue: MSMQQueue, cursor: int, look: Callable[[], object]) -> None:
        self.looks.append(look)


@pytest.mark.spec("AC-3.11.4.1.9-05", "AC-2.2.2.8-02")
def test_the_cursor_has_advanced_before_anybody_looks(service: MSMQService) -> None:
    for kind, text in ((NEXT, "b"), (CURRENT, "a"), (FIRST, "a")):
        queue, event = opened(filled(service, "a", "b", "c")), Later()
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
        queue.EnableNotification(event, kind)
        (look,) = event.looks
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == text
        look()
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == text


@pytest.mark.spec("AC-3.11.4.1.9-02")
def test_a_cursor_whose_message_is_gone_waits_for_the_next_one(service: MSMQService) -> None:
    info = filled(service, "a")
    queue, other = opened(info), opened(info)
    queue.PeekCurrent(ReceiveTimeout=0)
    assert body(other.Receive(ReceiveTimeout=0)) == "a"
    event, sink = watched()
    queue.EnableNotification(event, CURRENT, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, CURRENT)
    queue.EnableNotification(event, CURRENT, SOON_MS)
    assert sink.next() == (queue, E.MQ_ERROR_IO_TIMEOUT, CURRENT)
    queue.EnableNotification(event, CURRENT)
    send(service, info, "b")
    assert sink.next() == (queue, CURRENT)
    assert sink.told.empty()


@pytest.mark.spec("AC-3.11.4.1.9-08")
def test_a_cursor_that_cannot_advance_is_no_error_of_the_call(service: MSMQService) -> None:
    queue, empty = opened(filled(service, "a")), opened(made(service))
    event, sink = watched()
    for kind in (FIRST, CURRENT):
        empty.EnableNotification(event, kind, 0)
        assert sink.next() == (empty, 0xC00E_0088, kind)
    queue.EnableNotification(event, NEXT, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, NEXT)
    for timeout in (SOON_MS, 0xFFFF_FFFF):
        queue.EnableNotification(event, NEXT, timeout)
        assert sink.next() == (queue, E.MQ_ERROR_ILLEGAL_CURSOR_ACTION, NEXT)
    queue.PeekCurrent(ReceiveTimeout=0)
    queue.EnableNotification(event, NEXT, 0)
    assert sink.next() == (queue, E.MQ_ERROR_MESSAGE_NOT_FOUND, NEXT)


# Sinks -----------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.16-01", "AC-3.16.1-01", "AC-3.16.4-09", "AC-3.16.4-10", "AC-3.16.4-06")
def test_an_event_is_its_own_connection_point(service: MSMQService) -> None:
    event = MSMQEvent()
    assert event.EnumConnectionPoints() == [event]
    assert event.GetConnectionPointContainer() is event
    assert event.GetConnectionInterface() == EVENTS_IID
    cookie = event.Advise(Sink())
    event.Unadvise(cookie)
    with fails(0x8004_0200):
        event.Unadvise(cookie)
    # What it keeps: each sink by its cookie, and so many of them.
    sinks = {event.Advise(each): each for each in [Sink() for _ in range(CONNECTIONS_MAX)]}
    with fails(0x8004_0201):
        event.Advise(Sink())
    (left, *_) = sinks
    event.Unadvise(left)
    queue = opened(made(service))
    event.FireArrivedEvent(queue, FIRST)
    for each, sink in sinks.items():
        assert sink.told.qsize() == (0 if each == left else 1)
    for iid in (EVENTS_IID, EVENTS_IID.upper(), "{" + EVENTS_IID + "}"):
        assert event.FindConnectionPoint(iid) is event
    for iid in ("d7d6e077-dccd-11d0-aa4b-0060970debae", "", "00000000-0000-0000-0000-000000000000"):
        with fails(0x8004_0200):
            event.FindConnectionPoint(iid)


@pytest.mark.spec("AC-3.16.4.1.1-01", "AC-3.16.4-01")
def test_a_connection_point_says_what_it_is() -> None:
    event = MSMQEvent()
    assert event.GetConnectionInterface() == EVENTS_IID
    assert event.GetConnectionPointContainer() is event
    assert event.Hwnd == 0
    with fails(0x8000_4001):
        _ = event.Properties
    with fails(0x8000_4001):
        event.EnumConnections()


@pytest.mark.spec(
    "AC-3.16.1-02", "AC-3.16.3-01", "AC-3.16.4-06", "AC-3.16.4.5.3-01", "AC-3.16.4.5.3-02"
)
def test_sinks_have_cookies_up_to_a_limit() -> None:
    event = MSMQEvent()
    for number in (0, 1):  # none yet
        with fails(0x8004_0200):
            event.Unadvise(number)
    with fails(0x8000_4003):
        event.Advise(None)  # type: ignore[arg-type]
    whole = {"Arrived": print, "ArrivedError": print}
    for missing in (["Arrived"], ["ArrivedError"], [*whole]):  # it is no _DMSMQEventEvents
        half = SimpleNamespace(**{name: whole[name] for name in whole if name not in missing})
        with fails(0x8004_0202):
            event.Advise(half)
    cookies = {event.Advise(Sink()) for _ in range(CONNECTIONS_MAX)}
    assert len(cookies) == CONNECTIONS_MAX
    assert all(isinstance(cookie, int) and cookie > 0 for cookie in cookies)
    with fails(0x8004_0201):
        event.Advise(Sink())
    with fails(0x8000_4003):  # before the limit
        event.Advise(None)  # type: ignore[arg-type]
    event.Unadvise(cookies.pop())
    assert event.Advise(Sink()) not in cookies


@pytest.mark.spec("AC-3.16.4.5.4-01")
def test_a_sink_that_left_is_never_called_again(service: MSMQService) -> None:
    queue = opened(filled(service, "a"))
    event, gone = watched()
    kept = Sink()
    event.Advise(kept)
    event.Unadvise(1)
    queue.EnableNotification(event)
    assert kept.next() == (queue, FIRST)
    assert gone.told.empty()
    with fails(0x8004_0200):
        event.Unadvise(1)


@pytest.mark.spec("AC-3.16.4.5.3-03", "AC-3.16.4.5-01")
def test_an_object_without_the_methods_is_no_sink() -> None:
    event = MSMQEvent()

    class Half:
        def Arrived(self, Queue: MSMQQueue, Cursor: int) -> None:
            pytest.fail("nobody calls it")

    for wrong in (object(), Half()):
        with fails(0x8004_0202):
            event.Advise(wrong)  # type: ignore[arg-type]
    event.FireArrivedEvent(None, 0)  # type: ignore[arg-type]
    # The other two have the published numbers, too.
    with fails(0x8004_0200):
        event.Unadvise(1)
    for _ in range(CONNECTIONS_MAX):
        event.Advise(Sink())
    with fails(0x8004_0201):
        event.Advise(Sink())


@pytest.mark.spec(
    "AC-3.16.4-02", "AC-3.16.4-03", "AC-3.16.4-07", "AC-3.16.4.3.2-01", "AC-3.16.4.3.3-01"
)
def test_every_sink_is_told_until_it_leaves(service: MSMQService) -> None:
    queue = opened(filled(service, "a", "b"))
    event = MSMQEvent()
    one, two = Sink(), Sink()
    cookie = event.Advise(one)
    event.Advise(two)
    event.FireArrivedEvent(queue, CURRENT)
    event.FireArrivedErrorEvent(queue, E.MQ_ERROR_IO_TIMEOUT, NEXT)
    for sink in (one, two):
        assert sink.next() == (queue, CURRENT)
        assert sink.next() == (queue, E.MQ_ERROR_IO_TIMEOUT, NEXT)
    for kind in (FIRST, CURRENT, NEXT):  # the cursor of the call that asked for it
        queue.EnableNotification(event, kind, 0)
        for sink in (one, two):
            assert sink.next() == (queue, kind)
    event.Unadvise(cookie)
    event.FireArrivedEvent(queue, FIRST)
    assert two.next() == (queue, FIRST)
    assert one.told.empty()
    for gone in (cookie, 0, 99):
        with fails(0x8004_0200):
            event.Unadvise(gone)


class Failing:
    """A sink that raises whatever it is told."""

    def Arrived(self, Queue: MSMQQueue, Cursor: int) -> None:
        raise RuntimeError("busy")

    def ArrivedError(self, Queue: MSMQQueue, ErrorCode: int, Cursor: int) -> None:
        raise RuntimeError("busy")


@pytest.mark.spec("AC-3.16.4-02", "AC-3.16.4-03")
def test_a_sink_that_fails_keeps_nobody_from_being_told(service: MSMQService) -> None:
    queue = opened(made(service))
    event, kept = MSMQEvent(), Sink()
    event.Advise(Failing())
    event.Advise(kept)
    with pytest.raises(RuntimeError):
        event.FireArrivedEvent(queue, FIRST)
    assert kept.next() == (queue, FIRST)
    with pytest.raises(RuntimeError):
        event.FireArrivedErrorEvent(queue, E.MQ_ERROR_IO_TIMEOUT, NEXT)
    assert kept.next() == (queue, E.MQ_ERROR_IO_TIMEOUT, NEXT)


def test_the_application_implements_what_is_called(service: MSMQService) -> None:
    info = filled(service, "a")
    queue = opened(info)
    told: queues.Queue[tuple[object, ...]] = queues.Queue()
    event = MSMQEvent(lambda *what: told.put(what), lambda *what: told.put(what))
    queue.EnableNotification(event)
    assert told.get(timeout=WAIT_S) == (queue, FIRST)
    queue.Receive(ReceiveTimeout=0)
    queue.EnableNotification(event, ReceiveTimeout=SOON_MS)
    assert told.get(timeout=WAIT_S) == (queue, E.MQ_ERROR_IO_TIMEOUT, FIRST)

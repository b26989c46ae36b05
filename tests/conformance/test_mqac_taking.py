"""What each read of an MSMQQueue finds, takes and waits for [MC-MQAC 3.11.4]."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from qm.client.mqac import (
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
    connect,
)
from tests.conformance import mqac_reads as reads
from tests.conformance.mqac_reads import body, filled, send
from tests.conformance.mqac_world import SEND, fails, info_of, made, opened, serving
from tests.unit.client.threaded import threaded_node

ARRIVES_WITHIN_MS = 60_000
WAIT_MS = 20_000
E_INVALIDARG = 0x8007_0057
NOT_FOUND = 0xC00E_0088
ALREADY_RECEIVED = 0xC00E_001D
TRANSACTION_USAGE = 0xC00E_0050
RECEIVES = (
    "Receive", "Receive_v1", "ReceiveCurrent", "ReceiveCurrent_v1", "ReceiveByLookupId",
    "ReceiveNextByLookupId", "ReceivePreviousByLookupId", "ReceiveFirstByLookupId",
    "ReceiveLastByLookupId", "ReceiveByLookupIdAllowPeek",
)  # fmt: skip
TIMED = (
    "Receive", "Receive_v1", "ReceiveCurrent", "ReceiveCurrent_v1", "Peek", "Peek_v1",
    "PeekCurrent", "PeekCurrent_v1", "PeekNext", "PeekNext_v1",
)  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def of_every_priority(service: MSMQService) -> MSMQQueueInfo:
    """A queue with a message of each priority, which is its body."""
    info = made(service)
    for priority in (3, 0, 7, 5, 1, 6, 2, 4):
        send(service, info, str(priority), Priority=priority)
    return info


# Both ends -------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.15-01", "AC-3.11.4.1.29-01", "AC-3.11.4.1.30-01")
def test_peeks_see_both_ends_in_the_order_of_priorities(service: MSMQService) -> None:
    queue = opened(of_every_priority(service))
    for _ in range(2):
        assert body(queue.Peek(ReceiveTimeout=0)) == "7"
        assert body(queue.PeekFirstByLookupId()) == "7"
        assert body(queue.PeekLastByLookupId()) == "0"
    assert len(reads.walk(queue)) == 8


@pytest.mark.spec(
    "AC-3.11.4.1.14-01", "AC-3.11.4.1.24-01", "AC-3.11.4.1.25-01", "AC-3.11.4.1.24-09",
    "AC-3.11.4.1.25-09",
)  # fmt: skip
@pytest.mark.parametrize("is_journaling", [False, True])
def test_receives_take_both_ends_and_pass_what_is_locked_whoever_sees_it(
    service: MSMQService, is_journaling: bool
) -> None:
    info = of_every_priority(service)
    info.Journal = int(is_journaling)
    info.Update()
    queue = opened(info)
    for first, last in (("7", "0"), ("6", "1"), ("5", "2")):
        assert body(queue.ReceiveFirstByLookupId()) == first
        assert body(queue.ReceiveLastByLookupId()) == last
    assert body(queue.Receive(ReceiveTimeout=0)) == "4"
    assert body(queue.ReceiveLastByLookupId()) == "3"
    info = made(service, is_transactional=True)
    info.Journal = int(is_journaling)
    info.Update()
    for text, priority in (("head", 7), ("a", 3), ("b", 3), ("c", 3), ("d", 3), ("tail", 0)):
        send(service, info, text, Priority=priority)
    queue, taker = opened(info), opened(info)
    head, *_, tail = (message.LookupId for message in reads.walk(queue))
    begin = MSMQTransactionDispenser(service).BeginTransaction
    locking, other = begin(), begin()
    for locked in (head, tail):
        taker.ReceiveByLookupIdAllowPeek(locked, locking)
    assert body(queue.Peek(ReceiveTimeout=0)) == "head"
    assert body(queue.Receive(ReceiveTimeout=0)) == "a"
    assert body(queue.ReceiveFirstByLookupId()) == "b"
    assert body(queue.ReceiveLastByLookupId()) == "d"
    assert body(queue.Receive(other, ReceiveTimeout=0)) == "c"
    for transaction in (None, other):
        for name in ("Receive", "ReceiveFirstByLookupId", "ReceiveLastByLookupId"):
            with fails(NOT_FOUND):
                getattr(queue, name)(**reads.arguments(name, Transaction=transaction))
    other.Abort()
    locking.Abort()
    assert body(queue.ReceiveLastByLookupId()) == "tail"
    assert body(queue.ReceiveFirstByLookupId()) == "head"
    assert body(queue.Receive(ReceiveTimeout=0)) == "c"


# The cursor ------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4.1.17-01", "AC-3.11.4.1.18-01")
def test_what_was_purged_is_gone_from_under_the_cursor(service: MSMQService) -> None:
    info = filled(service, "a", "b")
    queue = opened(info)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "a"
    opened(info).Purge()
    send(service, info, "c", "d")
    for _ in range(2):
        with fails(ALREADY_RECEIVED):
            queue.PeekCurrent(ReceiveTimeout=0)
    for text in ("c", "d"):
        assert body(queue.PeekNext(ReceiveTimeout=0)) == text
        for _ in range(2):
            assert body(queue.PeekCurrent(ReceiveTimeout=0)) == text


# Transactions ----------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11-02")
@pytest.mark.parametrize("name", RECEIVES)
def test_every_receive_may_run_in_a_transaction(service: MSMQService, name: str) -> None:
    reads.locks(service, name, is_visible=name.endswith("AllowPeek"))


@pytest.mark.spec("AC-2.2.2.1-03")
@pytest.mark.parametrize("name", RECEIVES)
def test_every_receive_takes_the_number_of_a_transaction(service: MSMQService, name: str) -> None:
    queue = opened(filled(service, *"abcdefg", is_transactional=True))

    def there() -> list[str]:
        return [message.LookupId for message in reads.walk(queue)]

    place = -1 if "Previous" in name else 0 if "Next" in name else 1
    for number in range(4):
        before = there()
        found = getattr(queue, name)(**reads.arguments(name, before[place], Transaction=number))
        assert found.LookupId in before
        assert there() == [each for each in before if each != found.LookupId]
    before = there()
    for wrong in (4, -1):
        with fails(E_INVALIDARG):
            getattr(queue, name)(**reads.arguments(name, before[place], Transaction=wrong))
    assert there() == before


@pytest.mark.spec("AC-2.2.2.1-03")
def test_a_send_takes_the_number_of_a_transaction(service: MSMQService) -> None:
    exact, plain = made(service, is_transactional=True), made(service)
    for number in (4, -1):
        for info in (exact, plain):
            with fails(E_INVALIDARG):
                MSMQMessage(service).Send(opened(info, SEND), number)
    for number in range(3):  # there is no transaction of the context (AC-A21)
        with fails(TRANSACTION_USAGE):
            MSMQMessage(service).Send(opened(exact, SEND), number)
        MSMQMessage(service).Send(opened(plain, SEND), number)
    MSMQMessage(service).Send(opened(exact, SEND), 3)
    assert len(reads.walk(opened(exact))) == 1
    assert len(reads.walk(opened(plain))) == 3


@pytest.mark.spec("AC-3.11.4.1.21-10")
def test_a_receive_of_a_queue_that_keeps_a_journal_is_no_peek(service: MSMQService) -> None:
    reads.journals(service, "ReceiveByLookupId")


# Time ------------------------------------------------------------------------------------------


def in_vain(info: MSMQQueueInfo, name: str) -> MSMQQueue:
    """The queue, open with nothing for a read to find: there is nothing, or nothing more."""
    queue = opened(info)
    if name.startswith("PeekNext"):
        assert queue.PeekCurrent(ReceiveTimeout=0) is not None
    return queue


@pytest.mark.spec("AC-3.11.2-01", "AC-3.11.4-12")
@pytest.mark.parametrize("name", TIMED)
def test_each_call_has_a_time_of_its_own_in_milliseconds(service: MSMQService, name: str) -> None:
    info = made(service)
    if name.startswith("PeekNext"):
        send(service, info, "before")

    def meanwhile() -> None:
        reads.times_out(in_vain(info, name), name)
        begun = time.monotonic()
        with fails(0xC00E_001B):  # the shortest is a time, too
            getattr(in_vain(info, name), name)(ReceiveTimeout=1)
        assert time.monotonic() - begun < WAIT_MS / 1_000
        send(service, info, "late")

    patient = partial(getattr(in_vain(info, name), name), ReceiveTimeout=WAIT_MS)
    assert reads.what_comes(patient, meanwhile) == ["late"]


# Other computers -------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.1.1.2-01")
def test_what_is_sent_to_another_computer_is_kept_here_until_it_is_there(
    service: MSMQService,
) -> None:
    with threaded_node() as (endpoint, tls):
        there = connect([endpoint], tls=tls)
        try:
            queue = made(there)
            path = (queue.PathName or "").partition("\\")[2]
            host = endpoint.rpartition(":")[0]
            far = opened(info_of(service, name=f"DIRECT=TCP:{host}\\{path}"), SEND)
            for text in ("a", "b"):
                message = MSMQMessage(service)
                message.Body = text
                message.Send(far)
            reader = opened(queue)
            for text in ("a", "b"):
                assert body(reader.Receive(ReceiveTimeout=ARRIVES_WITHIN_MS)) == text
        finally:
            there.close()

"""Sending, and what acknowledgements release [MS-MQQB 3.1.5.5, 3.1.7.1, 3.1.7.11]."""

from __future__ import annotations

import pytest

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    AcksReceived,
    Closed,
    CloseReason,
    SessionConfig,
    SessionMisuse,
    SessionState,
)
from qm.wire.guid import GUID_NULL
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.ack import OrderAck
from qm.wire.packets.internal import ConnectionParameters
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from tests.unit.session.builders import (
    THEM,
    US,
    Driven,
    acceptor,
    ack,
    establish,
    final_ack,
    message,
    messages,
    open_acceptor,
    open_initiator,
    order_ack,
)


def released(driven: Driven) -> list[int]:
    return driven.event(AcksReceived).released


@pytest.mark.spec("QB-3.1.7.1-02", "QB-3.1.3.2-05", "QB-3.1.1.3.1-10", "QB-3.1.7.1.3-03")
def test_send_gate_is_the_smaller_window() -> None:
    driven = open_initiator(SessionConfig(window_size=6), window=4)
    # QB-A13: a backlog longer than the window does not block the first message.
    driven.offer(1, 10)
    assert len(driven.out()) == 4
    assert driven.session.in_flight == 4
    assert driven.out() == []
    driven.feed(ack(1, 1, 1, window=4))
    assert len(driven.out()) == 1
    # The peer's window is that of its latest header (QB-A33).
    driven.feed(ack(5, 2, 0b1111, window=100))
    assert len(driven.out()) == 5
    driven = open_initiator(SessionConfig(window_size=3), window=64)
    driven.offer(1, 10)
    assert len(driven.out()) == 3
    # A message that carries an acknowledgement is held to it like the others.
    driven = open_acceptor(window=4, recoverable_ack_timeout_ms=1000)
    driven.offer(1, 3)
    assert len(driven.out()) == 3
    driven.feed(message(1), message(2))
    driven.session.commit(1)
    driven.wait(0.8)
    driven.offer(4, 2)
    (last,) = driven.out()
    assert isinstance(last, UserMessage)
    assert last.session is not None


@pytest.mark.spec("QB-3.1.7.1-01")
def test_nothing_is_sent_before_open() -> None:
    driven = acceptor()
    for packet in (None, establish(THEM, US)):
        if packet is not None:
            driven.feed(packet)
            driven.out()
        assert driven.session.room == 0
        with pytest.raises(SessionMisuse, match="wait for Established"):
            driven.offer(1, 1)
        assert driven.out() == []
    driven.feed(ConnectionParameters(500, 20_000))
    driven.out()
    driven.offer(1, 1)
    assert len(driven.out()) == 1
    # What was offered and has not left stays when the queue is put on hold, or the session ends.
    for ends in (False, True):
        driven = open_acceptor()
        driven.offer(1, 2)
        if ends:
            driven.session.close(CloseReason.STOPPED)
        else:
            driven.session.pause()
        assert driven.session.room == 0
        assert [sent for sent in driven.out() if isinstance(sent, UserMessage)] == []


@pytest.mark.spec("QB-3.1.3.2-06")
def test_default_window_is_64() -> None:
    driven = open_initiator(window=1000)
    driven.offer(1, 100)
    assert len(driven.out()) == 64
    driven.feed(message(1))
    driven.session.commit(1)
    assert [header.window_size for header in driven.acks()] == [64]


@pytest.mark.spec(
    "QB-3.1.1.3.1-03", "QB-3.1.7.1.3-03", "QB-3.1.5.8.7-02", "MQ-2.2.20.4-08", "MQ-2.2.20.4-10"
)
def test_every_message_sent_is_counted() -> None:
    driven = open_acceptor()
    kinds = [KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL]
    tokens = range(1, 4)
    driven.session.offer(tokens, [write_packet(message(n, kinds[n - 1])) for n in tokens])
    driven.session.offer([4, 5], [write_packet(order_ack()), write_packet(final_ack())])
    assert len(driven.out()) == 5
    assert driven.session.in_flight == 5
    driven.feed(message(1, KIND_EXPRESS))
    driven.session.commit(1)
    # OrderAck and FinalAck have positions like all others; the FinalAck is recoverable.
    assert driven.acks() == [SessionHeader(1, 0, 0, 5, 3)]
    # Of messages that were offered together, those count that the window let go.
    driven = open_acceptor(window=2)
    kinds = [KIND_RECOVERABLE, KIND_EXPRESS, KIND_EXPRESS, KIND_TRANSACTIONAL]
    packets = [write_packet(message(number, kind)) for number, kind in enumerate(kinds, 1)]
    driven.session.offer(range(1, 5), packets)
    for released_count, counts in ((0, (2, 1)), (2, (4, 2))):
        if released_count:
            driven.feed(ack(released_count, 1, 0, window=2, sent=1))
        assert len(driven.out()) == 2
        assert driven.session.in_flight == 2
        driven.feed(message(1 + released_count, KIND_EXPRESS))
        driven.session.commit(driven.session.arrived_count)
        (header,) = driven.acks()
        found = header.user_msg_sequence_number, header.recoverable_msg_seq_number
        assert found == counts


@pytest.mark.spec("QB-3.1.7.1.3-03")
def test_recoverable_messages_have_numbers_among_themselves() -> None:
    mixed = (
        KIND_EXPRESS,
        KIND_RECOVERABLE,
        KIND_EXPRESS,
        KIND_TRANSACTIONAL,
        KIND_RECOVERABLE,
    )
    # Position of each recoverable message, by RecoverableSequenceNumber; numbers 2 and 3 of the
    # mixed ones are the transactional one, which is not released, and the last.
    for kinds, places in (
        ([KIND_RECOVERABLE] * 4, [1, 2, 3, 4]),
        (mixed, [2, None, 5]),
    ):
        driven = open_initiator()
        packets = [write_packet(message(number, kind)) for number, kind in enumerate(kinds, 1)]
        driven.session.offer(range(1, len(kinds) + 1), packets)
        driven.out()
        driven.feed(ack(len(kinds)))
        driven.events()
        for number, place in enumerate(places, 1):
            driven.feed(ack(len(kinds), number))
            named = [event for event in driven.events() if isinstance(event, AcksReceived)]
            assert [event.released for event in named] == ([[place]] if place else [])


@pytest.mark.spec("QB-3.1.5.5.1-01", "QB-3.1.5.5.2-01", "QB-3.1.1.6.1-02", "MQ-2.2.20.4-05")
def test_ack_sequence_number_releases_express_messages() -> None:
    driven = open_initiator(window=4)
    driven.offer(1, 6, KIND_EXPRESS)
    driven.out()
    driven.feed(ack(3))
    assert released(driven) == [1, 2, 3]
    assert driven.session.in_flight == 1
    # Unsent ones are never acknowledged, whatever number the peer says (QB-A5).
    driven.out()
    driven.feed(ack(6))
    assert released(driven) == [4, 5, 6]
    # Among recoverable ones, that the peer has not named, only those that are express.
    mixed = [*messages(7, 1, KIND_RECOVERABLE), *messages(8, 1, KIND_EXPRESS)]
    driven.session.offer([7, 8], mixed)
    driven.out()
    driven.feed(ack(8))
    assert released(driven) == [8]


@pytest.mark.spec("QB-3.1.5.5.1-01")
@pytest.mark.parametrize("number", [4, 100, 0xFFFF])
def test_acknowledging_what_was_not_sent_closes(number: int) -> None:
    driven = open_initiator(window=3)
    driven.offer(1, 5, KIND_EXPRESS)
    driven.out()
    driven.feed(ack(number))
    (closed,) = driven.events()
    assert isinstance(closed, Closed)
    assert closed.reason is CloseReason.FALSE_ACKNOWLEDGEMENT
    assert closed.unacknowledged == [1, 2, 3, 4, 5]


@pytest.mark.spec("QB-3.1.5.5.3-01", "QB-3.1.5.5.3-02", "QB-3.1.5.5-02", "QB-3.1.1.6.1-02")
def test_base_and_flags_release_recoverable_messages() -> None:
    driven = open_initiator()
    driven.offer(1, 6)
    driven.out()
    driven.feed(ack(6))
    # AcknowledgedSequenceNumber alone frees the window and releases nothing.
    assert driven.events() == []
    assert driven.session.in_flight == 0
    driven.feed(ack(6, 2, 0b101))
    # Base 2 means everything up to 2, bit 2 means 4; 3 is not named.
    assert released(driven) == [1, 2, 4]
    driven.feed(ack(6, 0, 0))
    assert driven.events() == []
    driven.feed(ack(6, 3, 0b1001))
    assert released(driven) == [3, 6]
    driven.feed(ack(6, 5, 0))
    assert released(driven) == [5]
    # Also where express ones stand between them, and AckSequenceNumber comes with the base.
    driven = open_initiator()
    kinds = (KIND_RECOVERABLE, KIND_EXPRESS, *[KIND_RECOVERABLE] * 3)
    mixed = [write_packet(message(number, kind)) for number, kind in enumerate(kinds, 1)]
    driven.session.offer(range(1, 6), mixed)
    driven.out()
    driven.feed(ack(5, 2, 0b101))
    assert released(driven) == [1, 2, 3, 5]
    driven.feed(ack(5, 3, 0))
    assert released(driven) == [4]


@pytest.mark.spec("QB-3.1.5.5.3-02", "MQ-2.2.20.4-07")
@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_the_flags_names_one_message(bit: int) -> None:
    driven = open_initiator()
    driven.offer(1, 40)
    driven.out()
    driven.feed(ack(40, 3, 1 << bit))
    # Up to the base all, and then the one that the bit names.
    assert released(driven) == [1, 2, 3] + [3 + bit] * (bit > 0)


@pytest.mark.spec("QB-3.1.5.5.3-02")
@pytest.mark.parametrize(("base", "flags"), [(4, 0), (1, 0b1000), (0xFFFF, 0), (2, 0xFFFF_FFFF)])
def test_naming_a_recoverable_message_that_was_not_sent_closes(base: int, flags: int) -> None:
    driven = open_initiator()
    driven.offer(1, 3)
    driven.out()
    driven.feed(ack(3, base, flags))
    assert driven.closed() is CloseReason.FALSE_ACKNOWLEDGEMENT


@pytest.mark.spec("QB-3.1.5.5.3-03", "QB-3.1.5.5.5-03", "QB-3.1.1.6.2-05")
def test_session_acknowledgements_release_no_transactional_message() -> None:
    driven = open_initiator()
    driven.offer(1, 3, KIND_TRANSACTIONAL)
    driven.offer(4, 1, KIND_RECOVERABLE)
    driven.out()
    driven.feed(ack(4, 1, 0b1111))
    event = driven.event(AcksReceived)
    assert event.released == [4]
    assert event.retained == [1, 2, 3]
    # Nor where kinds are mixed in what leaves together, or the peer names all of it.
    transactional, express, recoverable = KIND_TRANSACTIONAL, KIND_EXPRESS, KIND_RECOVERABLE
    for first, kinds, acked, released, retained in (
        (5, (transactional, express, recoverable), ack(7, 5, 0b11), [6, 7], [5]),
        (8, (recoverable, transactional, recoverable), ack(10, 7, 0b111), [8, 10], [9]),
    ):
        mixed = [packet for k, kind in enumerate(kinds) for packet in messages(first + k, 1, kind)]
        driven.session.offer(range(first, first + 3), mixed)
        driven.out()
        driven.feed(acked)
        event = driven.event(AcksReceived)
        assert (event.released, event.retained) == (released, retained)


@pytest.mark.spec("QB-3.1.5.5.1-02", "QB-3.1.1.6-01")
def test_messages_in_flight_are_not_sent_again_on_the_session() -> None:
    driven = open_initiator()
    driven.offer(1, 4, KIND_EXPRESS)
    assert len(driven.out()) == 4
    driven.feed(ack(2))
    assert released(driven) == [1, 2]
    assert driven.out() == []
    driven.session.close(CloseReason.DISCONNECTED)
    closed = driven.event(Closed)
    # They are sent again on the next one.
    assert closed.unacknowledged == [3, 4]


@pytest.mark.spec("QB-3.1.7.11-01", "QB-3.1.7.1.3-04", "QB-2.2.6-03", "MQ-2.2.20.4-10")
def test_a_message_that_leaves_late_in_the_period_carries_the_acknowledgement() -> None:
    # The window is large enough that one committed message of two does not cause an ack.
    driven = open_acceptor(recoverable_ack_timeout_ms=1000)
    driven.feed(message(1), message(2))
    driven.session.commit(1)
    driven.wait(0.75)
    driven.offer(1, 1)
    (plain,) = driven.out()
    assert isinstance(plain, UserMessage)
    assert plain.session is None
    driven.wait(0.001)
    driven.offer(2, 2)
    first, second = driven.out()
    assert isinstance(first, UserMessage)
    assert first.session == SessionHeader(1, 1, 1, 2, 2)
    assert isinstance(second, UserMessage)
    assert second.session is None
    # The acknowledgement is made: what the timer restarts for is the second message.
    assert driven.session.next_timer() == pytest.approx(driven.now + 1.0)
    driven.session.commit(2)
    assert driven.acks() == [SessionHeader(2, 2, 1, 3, 3)]
    # However late: where nothing is to be acknowledged no message carries anything; what is not
    # durable is not to be.
    unsettled = open_acceptor(recoverable_ack_timeout_ms=1000)
    unsettled.feed(message(1))
    unsettled.wait(0.9)
    unsettled.offer(1, 1)
    (bare,) = unsettled.out()
    assert isinstance(bare, UserMessage)
    assert bare.session is None
    driven.feed(ack(3, 1, 0b111, sent=2, recoverable_sent=2))
    driven.wait(2)
    driven.offer(4, 1)
    (last,) = driven.out()
    assert isinstance(last, UserMessage)
    assert last.session is None
    # Express messages are no recoverable ones.
    hasty = open_acceptor(recoverable_ack_timeout_ms=1000)
    hasty.feed(message(1), message(2))
    hasty.session.commit(1)
    hasty.wait(0.8)
    hasty.offer(1, 1, KIND_EXPRESS)
    assert hasty.acks() == [SessionHeader(1, 1, 1, 1, 0)]


@pytest.mark.spec("QB-2.2.4-01")
def test_order_acks_carry_no_session_header() -> None:
    driven = open_acceptor(recoverable_ack_timeout_ms=1000)
    driven.feed(message(1), message(2))
    driven.session.commit(1)
    driven.wait(0.9)
    driven.session.offer([1], [write_packet(order_ack())])
    (packet,) = driven.out()
    assert isinstance(packet, OrderAck)


@pytest.mark.spec("QB-3.1.5.9-01", "QB-3.1.5.9-02")
@pytest.mark.parametrize("reason", [CloseReason.STOPPED, CloseReason.DISCONNECTED])
def test_closing_sends_nothing_and_stops_every_timer(reason: CloseReason) -> None:
    """That the transport has ended (3.1.7.3) is DISCONNECTED, and runs the same procedure."""
    for driven in (open_initiator(), open_acceptor()):
        driven.feed(*messages(1, 2))
        driven.session.commit(2)
        driven.offer(1, 100)
        driven.session.close(reason)
        assert driven.out() == []
        assert driven.session.next_timer() is None
        assert driven.state() is SessionState.CLOSED
        closed = driven.event(Closed)
        assert closed.reason is reason
        assert closed.unacknowledged == list(range(1, 101))
        driven.session.close(CloseReason.IDLE)
        assert driven.events() == []


@pytest.mark.spec("QB-3.1.3.2-04", "QB-3.1.1.4-01", "MQ-2.2.20.4-03")
def test_a_new_session_counts_anew() -> None:
    first = open_initiator()
    first.offer(1, 3)
    first.out()
    first.session.close(CloseReason.DISCONNECTED)
    tokens = first.event(Closed).unacknowledged
    second = open_initiator()
    second.session.offer(tokens, messages(1, 3))
    second.out()
    second.feed(ack(2, 1, 0b11))
    assert released(second) == [1, 2]
    assert second.session.in_flight == 1


def test_an_initiator_recycles_its_session_before_the_counters_wrap() -> None:
    driven = open_initiator(SessionConfig(window_size=0x4000), window=0x4000)
    limit = 0xFFFF - 0x4000
    packet = write_packet(message(1, KIND_EXPRESS))
    sent = 0
    while driven.session.room:
        count = driven.session.room
        driven.session.offer(range(sent, sent + count), [packet] * count)
        while driven.session.take_outgoing(driven.now):
            pass
        sent += count
        driven.feed(ack(sent))
        driven.events()
    assert limit <= sent <= 0xFFFF
    assert driven.session.take_outgoing(driven.now) == b""
    closed = driven.event(Closed)
    assert closed.reason is CloseReason.RECYCLED
    assert closed.unacknowledged == []


def test_a_session_carries_messages_of_many_queues() -> None:
    # QB-A36: tokens are the owner's; nothing ties a session to one queue.
    driven = open_acceptor()
    driven.session.offer([(1 << 64) + 5, 7], messages(1, 2, KIND_EXPRESS))
    driven.out()
    driven.feed(ack(2))
    assert released(driven) == [(1 << 64) + 5, 7]


def test_direct_sessions_wait_twice_as_long() -> None:
    for remote, factor in ((GUID_NULL, 2), (None, 1)):
        driven = open_initiator(remote=remote) if remote is not None else open_initiator()
        driven.offer(1, 1)
        driven.out()
        assert driven.session.next_timer() == driven.now + 20 * factor

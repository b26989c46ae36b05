"""Counting and acknowledging what arrives [MS-MQQB 3.1.1.4, 3.1.1.6.1, 3.1.5.5.5, 3.1.5.8]."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    AcksReceived,
    CloseReason,
    FinalAckArrived,
    OrderAckArrived,
    PacketsArrived,
    SessionConfig,
    SessionState,
)
from qm.wire.guid import GUID_NULL
from qm.wire.headers.session_header import SessionHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import FinalAck, OrderAck, order_queue_at
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    parse_session_ack,
)
from qm.wire.packets.packet import Packet, write_packet
from tests.unit.session.builders import (
    STRANGER,
    THEM,
    US,
    Driven,
    acceptor,
    ack,
    establish,
    final_ack,
    initiator,
    message,
    messages,
    open_acceptor,
    open_initiator,
    order_ack,
    packets_in,
)


def sessions_in_every_state() -> dict[SessionState, list[Driven]]:
    """Fresh sessions of both sides, by their state, as far as a packet can be received in it."""
    half_accepted, half_made = acceptor(), initiator()
    half_accepted.feed(establish(THEM, US))
    half_made.out()
    half_made.feed(establish(US, THEM))
    found: dict[SessionState, list[Driven]] = {}
    for driven in (
        *(acceptor(), half_accepted, initiator(), half_made),
        *(open_acceptor(), open_initiator()),
    ):
        found.setdefault(driven.state(), []).append(driven)
    return found


@pytest.mark.spec("QB-3.1.5.5-01", "QB-3.1.5.3-01", "QB-3.1.5.4-01")
@pytest.mark.parametrize(
    ("packet", "takers"),
    [
        (ack(0), {"OPEN"}),
        (order_ack(), {"OPEN"}),
        (final_ack(), {"OPEN"}),
        (message(1), {"OPEN"}),
        (message(1, KIND_TRANSACTIONAL), {"OPEN"}),
        (establish(THEM, US), {"WAITING_EC_MSG"}),
        (establish(US, THEM), {"WAITING_ECR_MSG"}),
        (ConnectionParameters(500, 20_000), {"WAITING_CP_MSG", "WAITING_CPR_MSG"}),
    ],
    ids=[
        *("SessionAck", "OrderAck", "FinalAck", "UserMessage", "transactional"),
        *("EC request", "EC response", "ConnectionParameters"),
    ],
)
def test_packets_of_another_state_close(packet: Packet, takers: set[str]) -> None:
    for state, sessions in sessions_in_every_state().items():
        for driven in sessions:
            driven.feed(packet)
            if state.value in takers:
                assert driven.closed() is None
                continue
            # EstablishConnection of the other direction is expected here, with other GUIDs.
            is_misdirected = isinstance(packet, EstablishConnection) and state in (
                SessionState.WAITING_EC_MSG,
                SessionState.WAITING_ECR_MSG,
            )
            wanted = CloseReason.UNEXPECTED_PACKET
            assert driven.closed() is (
                CloseReason.WRONG_QUEUE_MANAGER if is_misdirected else wanted
            )
            assert driven.state() is SessionState.CLOSED


@pytest.mark.spec("QB-3.1.1.3.1-09")
def test_the_states_of_a_session() -> None:
    assert {state.value for state in sessions_in_every_state()} == {
        *("WAITING_EC_MSG", "WAITING_CP_MSG", "WAITING_ECR_MSG", "WAITING_CPR_MSG", "OPEN"),
    }
    ended = open_acceptor()
    ended.session.close(CloseReason.STOPPED)
    assert ended.state().value == "CLOSED"
    others = {"CLOSED", "WAITING_RECONNECT"}
    assert {s.value for s in SessionState} - {s.value for s in sessions_in_every_state()} == others


@pytest.mark.spec("QB-3.1.5.1.2-02", "QB-3.1.5.1.3-01")
@pytest.mark.parametrize(("offset", "value"), [(0, 0x11), (4, 0x4D), (8, 3), (11, 0x7F)])
def test_what_is_no_packet_is_discarded_and_closes(offset: int, value: int) -> None:
    driven = open_acceptor()
    bad = bytearray(write_packet(message(2)))
    bad[offset] = value
    driven.feed(message(1), bytes(bad), message(3))
    events = driven.events()
    assert packets_in(events) == [write_packet(message(1))]
    assert driven.closed() is CloseReason.MALFORMED_PACKET
    driven.feed(message(4))
    assert driven.events() == []
    assert driven.out() == []


@pytest.mark.spec("QB-3.1.1.4-01", "QB-3.1.1.4-02", "QB-3.1.5.8.2-02", "MQ-2.2.20.4-04")
def test_positions_count_messages_and_recoverable_ones_apart() -> None:
    driven = open_acceptor()
    kinds = [KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL, KIND_EXPRESS, KIND_RECOVERABLE]
    driven.feed(*(message(n + 1, kind) for n, kind in enumerate(kinds)), order_ack(), final_ack())
    run, order, final = driven.events()
    assert isinstance(run, PacketsArrived)
    assert (run.first_position, run.kinds) == (1, bytes(kinds))
    assert isinstance(order, OrderAckArrived)
    assert order.position == 6
    assert isinstance(final, FinalAckArrived)
    assert final.position == 7
    # final_ack() is recoverable, order_ack() is express: seven messages, four recoverable.
    driven.session.commit(7)
    assert driven.acks() == [SessionHeader(7, 1, 0b1111, 0, 0, 64)]
    driven.feed(ack(0, sent=7, recoverable_sent=4))
    assert driven.state() is SessionState.OPEN
    # What is sent has a series of its own, which counts the same kinds.
    sent = [write_packet(message(number, kind)) for number, kind in enumerate(kinds, 1)]
    driven.session.offer(range(1, 6), sent)
    assert len(driven.out()) == 5
    driven.feed(message(8, KIND_EXPRESS))
    driven.session.commit(8)
    assert driven.acks() == [SessionHeader(8, 0, 0, 5, 3, 64)]
    # A peer that counts its recoverable messages otherwise is not heard on.
    driven.feed(ack(0, sent=8, recoverable_sent=8))
    assert driven.state() is SessionState.CLOSED


@pytest.mark.spec("QB-3.1.1.3.1-02", "MQ-2.2.20.4-06", "MQ-2.2.20.4-07")
def test_counts_have_16_bits_and_go_on_behind_their_last() -> None:
    """QB-A7: an acceptor cannot recycle its session; its counts wrap in both directions."""
    driven = open_acceptor(SessionConfig(acknowledged_after_count=1))
    done = 0
    for count in (24, *[29] * 2_260):
        run = messages(1, count)
        driven.feed(*run)
        driven.session.offer(range(done, done + count), run)
        done += count
        driven.session.commit(done)
        data = driven.session.take_outgoing(driven.now)
        # The flags are relative to their number, and count no further than 32 bits.
        header = parse_session_ack(data, 0, 36)[0].session
        assert header.ack_sequence_number == done % 0x1_0000
        numbers = header.acknowledged_recoverable_numbers()
        assert {n % 0x1_0000 for n in range(done - count + 1, done + 1)} <= set(numbers)
        assert len(data) == 36 + sum(map(len, run))
        sent = done % 0x1_0000
        first = (done - count + 1) % 0x1_0000 or 0xFFFF
        flags = (1 << count + (first == 0xFFFF)) - 1
        assert header.recoverable_msg_ack_seq_number == first  # 0 would be none
        driven.feed(ack(sent, first, flags, sent=sent, recoverable_sent=sent))
        assert driven.closed() is None
        assert driven.session.in_flight == driven.session.uncommitted == 0
    assert first == 0xFFFF, "the last began with the number 0"


@pytest.mark.spec("QB-3.1.1.6.1-01", "QB-3.1.5.8.1-03", "QB-3.1.5.8.7-02", "MQ-2.2.20.4-05")
def test_acknowledgement_covers_what_is_committed_and_nothing_else() -> None:
    driven = open_acceptor()
    driven.feed(*messages(1, 5))
    assert driven.acks() == []
    driven.session.commit(3)
    assert driven.acks() == []
    # A duplicate is an arrival like any other, and is counted and acknowledged as one.
    driven.feed(message(5))
    driven.session.commit(6)
    assert driven.session.acknowledged == 0
    assert driven.acks() == [SessionHeader(6, 1, 0b111111, 0, 0, 64)]
    assert driven.session.acknowledged == 6
    # A commit that moves nothing is no occasion.
    driven.session.commit(6)
    assert driven.acks() == []
    # What arrived last is not named with what is committed before it.
    driven.feed(*messages(6, 3))
    driven.session.commit(8)
    assert driven.acks() == []
    driven.wait(0.5)
    assert driven.acks() == [SessionHeader(8, 7, 0b11, 0, 0, 64)]


@pytest.mark.spec("QB-3.1.1.6.1-03", "QB-3.1.5.8.7-02", "QB-2.2.6-03", "MQ-2.2.20.4-06")
def test_numbers_of_the_bitmap_are_those_since_the_last_acknowledgement() -> None:
    driven = open_acceptor()
    driven.feed(message(1, KIND_EXPRESS), message(2), message(3))
    driven.session.commit(3)
    assert driven.acks() == [SessionHeader(3, 1, 0b11)]
    driven.feed(message(4, KIND_EXPRESS))
    driven.session.commit(4)
    # Nothing recoverable since: both fields are 0.
    assert driven.acks() == [SessionHeader(4, 0, 0)]
    driven.offer(1, 2, KIND_RECOVERABLE)
    driven.offer(3, 1, KIND_EXPRESS)
    driven.out()
    driven.feed(message(5), message(6))
    driven.session.commit(6)
    assert driven.acks() == [SessionHeader(6, 3, 0b11, 3, 2)]
    # What has arrived is not named before it is kept.
    driven.feed(message(7), message(8))
    for upto in (7, 8):
        driven.session.commit(upto)
        driven.wait(0.5)
        assert driven.acks() == [SessionHeader(upto, upto - 2, 0b1, 3, 2)]


@pytest.mark.spec("QB-3.1.5.8.7-01", "QB-3.1.5.8.7-03", "QB-3.1.5.8.2-10", "MQ-2.2.20.4-07")
def test_thirty_two_recoverable_messages_are_acknowledged_at_once() -> None:
    driven = open_acceptor(window=200)
    config = SessionConfig(window_size=200, acknowledged_after_count=200)
    driven = open_acceptor(config, window=200)
    driven.feed(*messages(1, 80))
    driven.session.commit(31)
    assert driven.acks() == []
    driven.session.commit(32)
    assert driven.acks() == [SessionHeader(32, 1, 0xFFFF_FFFF, window_size=200)]
    # More than one header can name, back to back.
    driven.session.commit(79)
    assert driven.acks() == [
        SessionHeader(79, 33, 0xFFFF_FFFF, window_size=200),
        SessionHeader(79, 65, 0x7FFF, window_size=200),
    ]
    driven.session.commit(80)
    assert driven.acks() == [SessionHeader(80, 80, 1, window_size=200)]
    # An express one between them has no number of theirs.
    driven.feed(message(81, KIND_EXPRESS), message(82), ack(0, sent=82, recoverable_sent=81))
    driven.session.commit(82)
    assert driven.acks() == [SessionHeader(82, 81, 1, window_size=200)]


@pytest.mark.spec("QB-3.1.1.6.1-04", "QB-3.1.1.3.1-10", "QB-2.2.2.1-03")
@pytest.mark.parametrize(
    ("own", "peer", "half"), [(64, 64, 32), (10, 64, 5), (64, 6, 3), (1, 1, 1)]
)
def test_acknowledgement_by_count_at_half_the_smaller_window(
    own: int, peer: int, half: int
) -> None:
    config = SessionConfig(window_size=own, acknowledged_after_count=own)
    driven = open_acceptor(config, window=peer)
    driven.feed(*messages(1, half + 1, KIND_EXPRESS))
    driven.session.commit(half - 1)
    assert driven.acks() == []
    driven.session.commit(half)
    assert driven.acks() == [SessionHeader(half, window_size=own)]


def test_eight_durable_messages_wait_for_no_more() -> None:
    driven = open_acceptor(SessionConfig(window_size=64), window=64)
    driven.feed(*messages(1, 20))
    driven.session.commit(7)
    assert driven.acks() == []
    driven.session.commit(8)
    assert driven.acks() == [SessionHeader(8, 1, 0xFF)]
    driven.session.commit(15)
    assert driven.acks() == []


def test_zero_window_of_the_peer_counts_as_one() -> None:
    driven = open_acceptor(window=0)
    driven.offer(1, 2)
    assert len(driven.out()) == 1


@pytest.mark.spec("QB-3.1.5.5.5-01")
@pytest.mark.parametrize(("sent", "recoverable"), [(2, 1), (4, 2), (3, 1), (3, 3), (0xFFFF, 2)])
def test_counts_that_do_not_match_close(sent: int, recoverable: int) -> None:
    driven = open_acceptor()
    driven.feed(message(1), message(2), message(3, KIND_EXPRESS))
    driven.feed(ack(0, sent=3, recoverable_sent=2))
    assert driven.closed() is None
    driven.feed(ack(0, sent=sent, recoverable_sent=recoverable))
    assert driven.closed() is CloseReason.COUNT_MISMATCH


@pytest.mark.spec("MQ-2.2.20.4-03")
def test_each_direction_counts_by_itself_and_anew_in_each_session() -> None:
    for opened in (open_acceptor, open_initiator, open_acceptor):
        driven = opened()
        driven.offer(71, 3)
        driven.out()
        driven.feed(message(1), message(2, KIND_EXPRESS))
        (run,) = driven.events()
        assert isinstance(run, PacketsArrived)
        assert run.first_position == 1
        driven.session.commit(2)
        driven.wait(1)
        (header,) = driven.acks()
        assert (header.ack_sequence_number, header.recoverable_msg_ack_seq_number) == (2, 1)
        assert (header.user_msg_sequence_number, header.recoverable_msg_seq_number) == (3, 3)
        driven.feed(message(3), ack(3, 1, 0b111, sent=3, recoverable_sent=2))
        run, *_ = driven.events()
        assert isinstance(run, PacketsArrived)
        assert run.first_position == 3
        assert driven.session.in_flight == 0
        assert driven.state() is SessionState.OPEN


@pytest.mark.spec("QB-3.1.5.8.4-01", "QB-3.1.5.5-02", "QB-2.2.6-03", "MQ-2.2.20.4-09")
def test_a_piggybacked_header_counts_its_own_message() -> None:
    driven = open_acceptor()
    driven.offer(71, 3, KIND_EXPRESS)
    driven.out()
    driven.feed(message(1), message(2, session=SessionHeader(2, 0, 0, 2, 2)))
    events = driven.events()
    # The header is gone from the packet, and Flags.SH with it.
    assert packets_in(events) == [write_packet(message(1)), write_packet(message(2))]
    assert driven.session.in_flight == 1
    assert driven.state() is SessionState.OPEN
    driven.feed(message(3, session=SessionHeader(3, 0, 0, 2, 2)))
    events = driven.events()
    assert packets_in(events) == [write_packet(message(3))]
    # The counts come last: what the header acknowledges is acknowledged.
    assert [event.released for event in events if isinstance(event, AcksReceived)] == [[73]]
    assert driven.closed() is CloseReason.COUNT_MISMATCH
    # Though what it says of recoverable ones is right.
    for sent in (0, 2):
        driven = open_acceptor()
        driven.feed(message(1, KIND_EXPRESS, session=SessionHeader(0, 0, 0, sent, 0)))
        assert packets_in(driven.events()) == [write_packet(message(1, KIND_EXPRESS))]
        assert driven.closed() is CloseReason.COUNT_MISMATCH


@pytest.mark.spec("QB-3.1.5.11-01")
@pytest.mark.parametrize(
    "message_class", [MessageClass.ACK_REACH_QUEUE, MessageClass.NACK_BAD_DST_Q, 0x8500]
)
def test_administration_acknowledgements_are_ordinary_messages(message_class: int) -> None:
    driven = open_acceptor()
    packet = message(1, KIND_EXPRESS, message_class=message_class, priority=0)
    driven.feed(packet)
    assert packets_in(driven.events()) == [write_packet(packet)]


@pytest.mark.spec("QB-3.1.5.1.1-02", "QB-3.1.5.1.1-03")
@pytest.mark.parametrize("own", [order_ack(), final_ack()], ids=["OrderAck", "FinalAck"])
def test_acknowledgements_for_another_queue_manager_are_passed_on(own: OrderAck | FinalAck) -> None:
    driven = open_acceptor()
    foreign = replace(own, queue_manager_address=STRANGER)
    driven.feed(foreign)
    (event,) = driven.events()
    assert isinstance(event, PacketsArrived)
    assert event.block == write_packet(foreign)
    # A direct name comes to the queue manager that it is for, and names none.
    name = order_queue_at("10.1.1.1")
    driven.feed(own, replace(own, queue_manager_address=GUID_NULL, destination_queue=name))
    for event in driven.events():
        assert isinstance(event, OrderAckArrived | FinalAckArrived)


def test_a_message_to_the_order_queue_that_is_no_acknowledgement_is_a_message() -> None:
    driven = open_acceptor()
    packet = message(
        1, KIND_EXPRESS, destination=order_ack().destination_queue, priority=0, label="QM Ordering"
    )
    driven.feed(message(7), packet, message(8))
    assert packets_in(driven.events()) == [
        write_packet(p) for p in (message(7), packet, message(8))
    ]


@pytest.mark.spec("QB-3.1.3.2-01")
def test_a_session_starts_with_all_counts_at_zero() -> None:
    driven = open_acceptor()
    session = driven.session
    assert (session.in_flight, session.uncommitted, session.acknowledged) == (0, 0, 0)
    driven.feed(ack(0, sent=0, recoverable_sent=0))
    assert driven.state() is SessionState.OPEN
    driven.session.pause()
    assert driven.acks() == [SessionHeader(0, 0, 0, 0, 0, 1)]
    # The first recoverable message is number 1.
    driven.feed(message(1))
    driven.session.commit(1)
    assert driven.acks() == [SessionHeader(1, 1, 1, 0, 0, 64)]
    assert driven.session.acknowledged == 1


@pytest.mark.spec("QB-3.1.5.8.8-03")
def test_quota_of_the_queue_manager_closes_without_acknowledgement() -> None:
    driven = open_acceptor()
    driven.feed(*messages(1, 4))
    # Two of the four could be stored; the third met the quota, so its position is not committed.
    driven.session.commit(2)
    driven.session.close(CloseReason.QUEUE_MANAGER_QUOTA)
    assert driven.closed() is CloseReason.QUEUE_MANAGER_QUOTA
    assert driven.out() == []
    driven.session.commit(4)
    assert driven.out() == []


@pytest.mark.spec("QB-3.1.7.13-01", "QB-3.1.7.13-02", "QB-3.1.5.8.7-02")
def test_pause_sends_one_acknowledgement_with_a_window_of_one() -> None:
    driven = open_initiator()
    driven.feed(*messages(1, 3))
    driven.session.commit(2)
    driven.offer(11, 64)
    assert len(driven.out()) == 64
    driven.offer(101, 2)
    assert driven.session.next_timer() is not None
    assert driven.session.pause() == [101, 102]
    assert driven.acks() == [SessionHeader(2, 1, 0b11, 64, 64, 1)]
    driven.feed(ack(64, 33, 0xFFFF_FFFF, sent=3, recoverable_sent=3))
    assert driven.session.room == 0
    assert driven.out() == []
    # The session is idle now, and ends with the first cleanup period; then the window is ours
    # again.
    driven.session.commit(3)
    assert driven.acks() == [SessionHeader(3, 3, 1, 64, 64, 64)]
    driven.wait(300)
    assert driven.closed() is CloseReason.IDLE


@pytest.mark.spec("QB-3.1.7.14-01")
def test_resume_sends_again() -> None:
    driven = open_initiator()
    driven.offer(1, 2)
    withdrawn = driven.session.pause()
    driven.out()
    driven.session.resume()
    assert driven.session.room == 64
    driven.session.offer(withdrawn, messages(1, 2))
    assert len(driven.out()) == 2
    # It is in use from then on, though nothing is sent.
    idle = open_initiator()
    idle.session.pause()
    idle.session.resume()
    idle.wait(300)
    assert idle.closed() is None
    idle.wait(300)
    assert idle.closed() is CloseReason.IDLE

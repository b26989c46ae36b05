"""Cutting, limits and hostile bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    Blame,
    Closed,
    CloseReason,
    Event,
    PacketsArrived,
    Session,
    SessionConfig,
    SessionState,
)
from qm.session.events import BLAME
from qm.session.framing import Stream
from qm.session.states import Role
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.packet import Packet, write_packet
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.session.builders import (
    NOW,
    THEM,
    US,
    Driven,
    acceptor,
    ack,
    establish,
    final_ack,
    initiator,
    message,
    open_acceptor,
    open_initiator,
    order_ack,
)

STREAM = b"".join(
    write_packet(packet)
    for packet in (
        message(1),
        message(2, KIND_EXPRESS, body=bytes(700)),
        ack(0, sent=2, recoverable_sent=1),
        message(3, KIND_TRANSACTIONAL),
        message(4, session=SessionHeader(0, 0, 0, 4, 3)),
        order_ack(),
        message(5, priority=0, destination=DirectQueueFormatName("TCP:1.2.3.4\\order_queue$")),
        message(6, KIND_EXPRESS, priority=0),
        final_ack(),
        ack(0, sent=8, recoverable_sent=5),
        message(7, body=bytes(9000)),
    )
)


def flat(events: list[Event]) -> list[object]:
    """Events with every run taken apart, so that how they were gathered does not matter."""
    found: list[object] = []
    for event in events:
        if isinstance(event, PacketsArrived):
            for at, kind in enumerate(event.kinds):
                packet = event.block[event.offsets[at] : event.offsets[at + 1]]
                found.append((event.first_position + at, packet, kind))
            assert event.offsets[0] == 0
            assert event.offsets[-1] == len(event.block)
        else:
            found.append(event)
    return found


def run(stream: bytes, cuts: list[int]) -> tuple[list[object], SessionState]:
    driven = open_acceptor()
    at = 0
    for cut in [*sorted(cuts), len(stream)]:
        driven.feed(stream[at:cut])
        at = cut
    return flat(driven.events()), driven.state()


WHOLE = run(STREAM, [])


def test_whole_stream_has_all_its_positions() -> None:
    events, state = WHOLE
    assert state is SessionState.OPEN
    assert len(events) == 9
    positions = [e[0] if isinstance(e, tuple) else e.position for e in events]  # type: ignore[attr-defined]
    assert positions == list(range(1, 10))


def test_one_byte_at_a_time_gives_the_same() -> None:
    assert run(STREAM, list(range(len(STREAM)))) == WHOLE


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
@settings(max_examples=200, derandomize=True)
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    assert run(STREAM, cuts) == WHOLE


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255), st.lists(st.integers(0, len(STREAM))))
@settings(max_examples=500, derandomize=True)
def test_a_flipped_byte_ends_the_session_or_not_but_never_raises(
    at: int, change: int, cuts: list[int]
) -> None:
    damaged = bytearray(STREAM)
    damaged[at] ^= change
    whole = run(bytes(damaged), [])
    assert run(bytes(damaged), cuts) == whole
    closed = [event for event in whole[0] if isinstance(event, Closed)]
    assert len(closed) == (whole[1] is SessionState.CLOSED)
    if closed:
        assert closed[0].blame is Blame.PEER
        assert whole[0][-1] is closed[0]


@given(st.binary(max_size=2000), st.sampled_from(["acceptor", "initiator", "open", "sending"]))
@settings(max_examples=500, derandomize=True)
def test_random_bytes_never_raise(data: bytes, where: str) -> None:
    driven = {
        "acceptor": acceptor,
        "initiator": initiator,
        "open": open_acceptor,
        "sending": open_initiator,
    }[where]()
    if where == "sending":
        driven.offer(1, 10)
        driven.out()
    driven.feed(data)
    driven.out()
    driven.wait(1000)
    assert driven.closed() is not None


def test_mutated_packets_never_raise() -> None:
    chance = random.Random(5)
    packets: list[Packet] = [ack(3, 1, 7), order_ack(), final_ack(), message(1)]
    for _ in range(3000):
        driven = open_initiator() if chance.random() < 0.5 else open_acceptor()
        driven.offer(1, 5)
        driven.out()
        packet = bytearray(write_packet(chance.choice(packets)))
        for _ in range(chance.randint(1, 6)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        driven.feed(bytes(packet), message(2))
        driven.session.commit(driven.session.uncommitted)
        driven.out()


def test_every_reason_says_whose_doing_it_is() -> None:
    assert set(BLAME) == set(CloseReason)
    assert len({reason.value for reason in CloseReason}) == len(CloseReason)


def test_details_hold_no_bytes_of_the_peer() -> None:
    driven = open_acceptor()
    driven.feed(b"\x10" + b"<script>" * 10)
    closed = driven.event(Closed)
    assert "<script>" not in closed.detail
    assert "script" not in closed.detail


@pytest.mark.parametrize("driven", [acceptor(), initiator()], ids=["acceptor", "initiator"])
def test_a_message_before_open_is_refused_by_its_first_bytes(driven: Driven) -> None:
    big = write_packet(message(1, body=bytes(1_000_000)))
    driven.feed(big[:15])
    assert driven.closed() is None
    driven.feed(big[15:16])
    assert driven.closed() is CloseReason.UNEXPECTED_PACKET


def test_an_internal_packet_has_a_largest_size() -> None:
    for driven in (acceptor(), open_acceptor()):
        packet = bytearray(write_packet(ack(0)))
        packet[8:12] = (573).to_bytes(4, "little")
        driven.feed(bytes(packet[:16]))
        assert driven.closed() is CloseReason.MALFORMED_PACKET


def test_announced_sizes_are_bounded() -> None:
    driven = open_acceptor()
    packet = bytearray(write_packet(message(1)))
    packet[8:12] = (0x0040_0001).to_bytes(4, "little")
    driven.feed(bytes(packet[:16]))
    assert driven.closed() is CloseReason.MALFORMED_PACKET


def test_largest_message_in_chunks() -> None:
    packet = write_packet(message(1, body=bytes(0x0040_0000 - 200)))
    driven = open_acceptor()
    for at in range(0, len(packet), 65_536):
        driven.feed(packet[at : at + 65_536])
    assert flat(driven.events()) == [(1, packet, KIND_RECOVERABLE)]
    assert driven.session.reading_paused is False


def test_the_buffer_keeps_one_incomplete_packet_at_most() -> None:
    stream = Stream()
    assert stream.join(b"abc") == b"abc"
    stream.keep(b"abc", 1, 10)
    assert stream.kept_bytes == 2
    assert stream.join(b"defg") is None
    joined = stream.join(b"hijk")
    assert joined == b"bcdefghijk"
    assert isinstance(joined, bytearray)
    stream.keep(joined, 10, 16)
    assert stream.kept_bytes == 0
    assert stream.join(b"x") == b"x"
    stream.keep(b"x", 0, 2)
    stream.clear()
    assert stream.kept_bytes == 0


def test_reading_pauses_while_too_much_is_uncommitted() -> None:
    packet = write_packet(message(1))
    config = SessionConfig(uncommitted_max_bytes=10 * len(packet))
    driven = open_acceptor(config)
    paused = []
    for count in (10, 1):
        driven.feed(packet * count)
        paused.append(driven.session.reading_paused)
    for upto in (5, 11):
        driven.session.commit(upto)
        paused.append(driven.session.reading_paused)
    assert paused == [False, True, True, False]
    by_count = open_acceptor(SessionConfig(uncommitted_max_count=4))
    by_count.feed(packet * 5)
    paused = [by_count.session.reading_paused]
    for upto in (2, 3):
        by_count.session.commit(upto)
        paused.append(by_count.session.reading_paused)
    assert paused == [True, True, False]
    by_count.feed(packet * 5)
    by_count.session.close(CloseReason.STOPPED)
    assert not by_count.session.reading_paused


def test_every_kind_of_arrival_counts_against_the_bound() -> None:
    packet = write_packet(order_ack())
    driven = open_acceptor(SessionConfig(uncommitted_max_bytes=4 * len(packet)))
    driven.feed(packet * 4)
    paused = [driven.session.reading_paused]
    driven.feed(write_packet(message(1, session=SessionHeader(0, 0, 0, 5, 1))))
    paused.append(driven.session.reading_paused)
    driven.session.commit(3)
    paused.append(driven.session.reading_paused)
    assert paused == [False, True, False]


def test_has_outgoing_says_whether_there_is_anything_to_write() -> None:
    for driven in (initiator(), acceptor()):
        wants = [driven.session.has_outgoing]
        driven.feed(establish(US if driven.session.role is Role.INITIATOR else THEM, THEM))
        wants.append(driven.session.has_outgoing)
        driven.out()
        wants.append(driven.session.has_outgoing)
        assert wants == [driven.session.role is Role.INITIATOR, True, False]
    driven = open_initiator(window=1)
    wants = []
    for step in (
        lambda: driven.offer(1, 2, KIND_EXPRESS),
        driven.out,
        lambda: driven.feed(ack(1)),
        driven.out,
        lambda: driven.feed(message(1)),
        lambda: driven.session.commit(1),
        driven.out,
    ):
        step()
        wants.append(driven.session.has_outgoing)
    assert wants == [True, False, True, False, False, True, False]


def test_a_closed_session_is_deaf_and_mute() -> None:
    session = Session(SessionConfig(), Role.ACCEPTOR, US, NOW)
    session.close(CloseReason.STOPPED)
    session.receive(STREAM, NOW)
    session.commit(10**6)
    session.handle_timer(NOW + 10**6)
    assert session.take_outgoing(NOW) == b""
    assert isinstance(session.next_event(), Closed)
    assert session.next_event() is None
    assert not session.has_outgoing
    assert session.room == 0

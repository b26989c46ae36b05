"""Cursors and window against an obvious model, across the wrap of their u16 counters (QB-A7)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    CloseReason,
    SessionConfig,
    SessionMisuse,
    SessionState,
)
from qm.session.receive_cursors import ReceiveCursors
from qm.session.send_window import FalseAcknowledgement, SendWindow
from qm.wire.errors import ValueOutOfRange
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.packet import write_packet
from tests.unit.session.builders import ack, message, messages, open_acceptor, open_initiator

U16 = 0xFFFF
PACKETS = {
    kind: write_packet(message(1, kind))
    for kind in (KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL)
}
KINDS = st.sampled_from(sorted(PACKETS))


class NaiveReceiver:
    """Every arrival is a row; what an acknowledgement must say is counted from the rows."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.committed = 0
        self.acked = 0

    def numbers(self, start: int, stop: int) -> list[int]:
        """Recoverable numbers of the positions in (start, stop]."""
        before = sum(kind != KIND_EXPRESS for kind in self.kinds[:start])
        inside = sum(kind != KIND_EXPRESS for kind in self.kinds[start:stop])
        return list(range(before + 1, before + inside + 1))


@given(
    st.lists(
        st.one_of(
            st.lists(KINDS, min_size=1, max_size=40).map(lambda kinds: ("arrive", kinds)),
            st.integers(1, 60).map(lambda count: ("commit", count)),
            st.just(("ack", 0)),
        ),
        max_size=40,
    )
)
@settings(max_examples=300, derandomize=True)
def test_cursors_against_rows(steps: list[tuple[str, list[int] | int]]) -> None:
    cursors, naive = ReceiveCursors(), NaiveReceiver()
    for verb, argument in steps:
        if isinstance(argument, list):
            assert cursors.arrived(bytes(argument), 10 * len(argument)) == len(naive.kinds) + 1
            naive.kinds += argument
        elif verb == "commit":
            naive.committed = min(naive.committed + argument, len(naive.kinds))
            cursors.commit(naive.committed)
        else:
            headers = list(cursors.session_headers(0, 0, 64))
            named = [n for header in headers for n in header.acknowledged_recoverable_numbers()]
            assert named == naive.numbers(naive.acked, naive.committed)
            assert {header.ack_sequence_number for header in headers} == {naive.committed}
            naive.acked = naive.committed
        assert cursors.uncommitted == len(naive.kinds) - naive.committed
        assert cursors.unacked == naive.committed - naive.acked
        assert (cursors.uncommitted_bytes == 0) is (cursors.uncommitted == 0)


def test_commit_beyond_the_arrivals_is_misuse() -> None:
    driven = open_acceptor()
    driven.feed(message(1))
    with pytest.raises(SessionMisuse):
        driven.session.commit(2)
    driven.session.commit(1)
    driven.session.commit(0)
    assert driven.session.uncommitted == 0


def test_receiving_across_the_wrap() -> None:
    cursors = ReceiveCursors()
    seen = 0
    while seen < 2 * U16 + 100:
        cursors.arrived(bytes([KIND_RECOVERABLE]) * 20, 0)
        cursors.commit(seen + 20)
        (header, *more) = cursors.session_headers(0, 0, 64)
        assert not more
        assert header.ack_sequence_number == (seen + 20) & U16
        numbers = set(header.acknowledged_recoverable_numbers())
        assert numbers >= {(seen + n) & U16 for n in range(1, 21)}
        # The number before the first new one may be named again; base 0 would mean "nothing".
        assert len(numbers) <= 21
        assert header.recoverable_msg_ack_seq_number != 0
        seen += 20


@pytest.mark.spec("MQ-2.2.20.4-07")
def test_more_than_32_messages_across_the_wrap() -> None:
    cursors = ReceiveCursors()
    cursors.arrived(bytes([KIND_RECOVERABLE]) * U16, 0)
    cursors.commit(U16)
    list(cursors.session_headers(0, 0, 64))
    cursors.arrived(bytes([KIND_RECOVERABLE]) * 40, 0)
    cursors.commit(U16 + 40)
    first, second = cursors.session_headers(0, 0, 64)
    assert (first.recoverable_msg_ack_seq_number, first.recoverable_msg_ack_flags) == (
        U16,
        0xFFFF_FFFF,
    )
    assert (second.recoverable_msg_ack_seq_number, second.recoverable_msg_ack_flags) == (31, 0x1FF)


def filled(count: int, kind: int) -> SendWindow:
    window = SendWindow()
    window.offer(range(count), [PACKETS[kind]] * count)
    window.transmit(count, 1 << 40, [])
    return window


def test_sending_across_the_wrap() -> None:
    """An acceptor cannot recycle its session, so it counts on."""
    sender, receiver = SendWindow(), ReceiveCursors()
    sent = 0
    while sent < 2 * U16 + 100:
        kinds = [(KIND_EXPRESS, KIND_RECOVERABLE)[n % 3 != 0] for n in range(sent, sent + 25)]
        sender.offer(range(sent, sent + 25), [PACKETS[kind] for kind in kinds])
        sender.transmit(64, 1 << 40, [])
        receiver.arrived(bytes(kinds), 0)
        sent += 25
        receiver.commit(sent)
        released = []
        for header in receiver.session_headers(0, 0, 64):
            released += sender.acknowledge(header)[0]
        assert released == list(range(sent - 25, sent))
    assert sender.in_flight == 0
    assert not sender.is_awaiting


def test_a_header_that_was_filled_in_earlier_changes_nothing() -> None:
    window = filled(10, KIND_EXPRESS)
    window.acknowledge(SessionHeader(8))
    assert window.acknowledge(SessionHeader(5)) == ([], [])
    assert window.in_flight == 2
    with pytest.raises(FalseAcknowledgement):
        window.acknowledge(SessionHeader(0xFFF0))
    assert window.acknowledge(SessionHeader(10)) == ([8, 9], [])


def test_persisted_before_received() -> None:
    window = filled(4, KIND_RECOVERABLE)
    assert window.acknowledge(SessionHeader(0, 1, 0b1011)) == ([], [])
    assert window.acknowledge(SessionHeader(4)) == ([0, 1, 3], [])
    assert window.is_awaiting
    assert window.acknowledge(SessionHeader(4, 3, 1)) == ([2], [])
    assert not window.is_awaiting


@given(st.lists(KINDS, min_size=1, max_size=60), st.data())
@settings(max_examples=300, derandomize=True)
def test_window_against_rows(kinds: list[int], data: st.DataObject) -> None:
    """What is released is exactly what the headers named, each once."""
    window = SendWindow()
    window.offer(range(len(kinds)), [PACKETS[kind] for kind in kinds])
    window.transmit(len(kinds), 1 << 40, [])
    numbers = {t: n for n, t in enumerate((t for t, k in enumerate(kinds) if k), start=1)}
    covered, persisted = 0, set[int]()
    released: list[int] = []
    retained: list[int] = []
    for _ in range(data.draw(st.integers(1, 6))):
        covered = data.draw(st.integers(covered, len(kinds)))
        base, flags = 0, 0
        if numbers:
            base = data.draw(st.integers(1, len(numbers)))
            flags = data.draw(st.integers(0, (1 << min(32, len(numbers) - base + 1)) - 1))
            persisted |= set(range(1, base + 1))
            persisted |= {base + bit for bit in range(32) if flags >> bit & 1}
        one, other = window.acknowledge(SessionHeader(covered, base, flags))
        released += one
        retained += other
        tokens = range(covered)
        assert sorted(retained) == [t for t in tokens if kinds[t] == KIND_TRANSACTIONAL]
        assert sorted(released) == [
            t
            for t in tokens
            if kinds[t] == KIND_EXPRESS
            or (kinds[t] == KIND_RECOVERABLE and numbers[t] in persisted)
        ]
        assert window.in_flight == len(kinds) - covered
    assert sorted([*released, *retained, *window.drain()]) == list(range(len(kinds)))


def test_a_peer_that_never_persists_is_not_sent_to_for_ever() -> None:
    driven = open_acceptor(SessionConfig(window_size=0x4000), window=0x4000)
    sent = 0
    for _ in range(4):
        count = driven.session.room
        driven.session.offer(range(sent, sent + count), [PACKETS[KIND_RECOVERABLE]] * count)
        while driven.session.take_outgoing(driven.now):
            pass
        sent += driven.session.in_flight
        driven.feed(ack(sent & U16))
        assert driven.session.in_flight == 0
    assert sent == 0x4000
    assert driven.session.has_outgoing
    driven.feed(ack(sent & U16, sent & U16, 1))
    assert len(driven.out()) > 0


def test_output_comes_in_bounded_chunks() -> None:
    driven = open_initiator()
    packet = write_packet(message(1, body=bytes(100_000)))
    driven.session.offer(range(10), [packet] * 10)
    sizes = []
    while data := driven.session.take_outgoing(driven.now):
        sizes.append(len(data) // len(packet))
    assert sizes == [3, 3, 3, 1]


def test_acknowledgements_overtake_messages_that_wait_for_the_window() -> None:
    driven = open_initiator(window=1)
    driven.offer(1, 3)
    driven.feed(message(1), message(2))
    driven.session.commit(2)
    (data,) = [driven.session.take_outgoing(driven.now)]
    # The SessionAck comes first and counts what comes before it: nothing.
    assert data[:2] == write_packet(ack(0))[:2]
    assert data[20:36] == bytes(write_packet(ack(2, 1, 0b11)))[20:36]
    assert len(data) == 36 + len(messages(1, 1)[0])


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        messages(1, 1)[0][:-1],
        messages(1, 1)[0] + b"\x00",
        write_packet(ack(0)),
        write_packet(message(1, session=SessionHeader(0))),
    ],
    ids=["empty", "short", "long", "internal", "with SessionHeader"],
)
def test_only_whole_messages_can_be_offered(packet: bytes) -> None:
    driven = open_acceptor()
    with pytest.raises(SessionMisuse):
        driven.session.offer([1], [packet])
    assert not driven.session.has_outgoing


def test_offers_are_bounded_and_paired() -> None:
    driven = open_acceptor()
    with pytest.raises(SessionMisuse):
        driven.session.offer([1], [])
    with pytest.raises(SessionMisuse):
        driven.session.offer(range(0x4001), [messages(1, 1)[0]] * 0x4001)


@pytest.mark.parametrize(
    "config",
    [
        SessionConfig(window_size=0),
        SessionConfig(window_size=0x4001),
        SessionConfig(ack_wait_timeout_ms=19_999),
        SessionConfig(ack_wait_timeout_ms=120_001),
        SessionConfig(cleanup_timeout_ms=0),
        SessionConfig(uncommitted_max_count=0x4001),
    ],
)
def test_configurations_with_which_sessions_cannot_run(config: SessionConfig) -> None:
    with pytest.raises(ValueOutOfRange):
        config.check()


def test_an_initiator_that_received_too_much_recycles_too() -> None:
    driven = open_initiator(SessionConfig(uncommitted_max_count=0x4000))
    count = 0
    while driven.state() is SessionState.OPEN and count <= U16:
        driven.feed(PACKETS[KIND_EXPRESS] * 0x1000)
        count += 0x1000
        driven.session.commit(count)
        driven.out()
    assert driven.closed() is CloseReason.RECYCLED
    assert count <= U16

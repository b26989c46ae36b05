"""Streams: any cutting of the same bytes gives the same packets, heads and error."""

from __future__ import annotations

from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.wire.errors import ProtocolError
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.framer import Framer, frame_packet
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.peek import Head, peek_head
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.wire import strategies
from tests.unit.wire.streams import cut, error_text, read_stream


def message(body: bytes = b"body", session: SessionHeader | None = None) -> bytes:
    header = UserHeader(b"\x01" * 16, DirectQueueFormatName("OS:h\\q"))
    properties = MessagePropertiesHeader(body)
    return write_packet(UserMessage(header, properties, session=session))


@settings(max_examples=150)
@given(
    packets=st.lists(strategies.packets, max_size=5),
    garbage=st.binary(max_size=40),
    sizes=st.lists(st.integers(0, 300), max_size=12),
)
def test_cutting_does_not_matter(packets: list[Packet], garbage: bytes, sizes: list[int]) -> None:
    raw = [write_packet(packet) for packet in packets]
    stream = b"".join(raw) + garbage
    whole, heads, framer = read_stream([stream])
    assert whole[: len(raw)] == raw
    for pieces in (cut(stream, sizes), [stream[at : at + 1] for at in range(len(stream))]):
        again, again_heads, again_framer = read_stream(pieces)
        assert again == whole
        assert again_heads == heads
        assert error_text(again_framer.error) == error_text(framer.error)
        assert again_framer.buffered_bytes == framer.buffered_bytes
    for one, head in zip(whole, heads, strict=True):
        assert head == (None if one[2] & 0x08 else peek_head(one, 0))


@settings(max_examples=150)
@given(packets=st.lists(strategies.packets, min_size=1, max_size=4), data=st.data())
def test_a_broken_packet_ends_the_stream_behind_the_whole_ones(
    packets: list[Packet], data: st.DataObject
) -> None:
    good = [write_packet(packet) for packet in packets]
    bad = bytearray(message())
    at, value = data.draw(st.sampled_from([(0, 0x11), (4, 0x4D), (7, 0), (10, 0x41), (8, 119)]))
    bad[at] = value
    if at == 8:
        bad[9:12] = bytes(3)
    stream = b"".join(good) + bad + message()
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        read, _, framer = read_stream(pieces)
        assert read == good
        assert framer.error is not None
        assert framer.error.offset == (8 if at in (8, 10) else 0 if at == 0 else 4)
        assert framer.buffered_bytes == 0
        with pytest.raises(ProtocolError) as raised:
            framer.feed(message())
        assert raised.value is framer.error


def test_packets_stay_in_the_chunk_that_brought_them() -> None:
    chunk = message() * 3 + message()[:50]
    framer = Framer()
    (frames,) = framer.feed(chunk)
    size = len(message())
    assert frames.buffer is chunk
    assert frames.offsets == [0, size, 2 * size, 3 * size]
    (straddler, rest) = framer.feed(message()[50:] + message())
    assert straddler.offsets == [0, size]
    assert bytes(straddler.buffer) == message()
    assert rest.offsets == [size - 50, 2 * size - 50]


def test_what_the_framer_holds_is_not_the_callers_memory() -> None:
    """A receive buffer may be reused once its frames were used."""
    buffer = bytearray(message()[:70])
    framer = Framer()
    assert framer.feed(memoryview(buffer)) == []
    buffer[:] = bytes(70)
    (frames,) = framer.feed(message()[70:])
    assert bytes(frames.buffer) == message()


def test_the_session_header_of_a_message_lies_behind_its_packet_size() -> None:
    plain, ridden = message(), message(session=SessionHeader(7))
    assert len(ridden) == len(plain) + 16
    read, heads, framer = read_stream([ridden + plain + ridden])
    assert read == [ridden, plain, ridden]
    assert [head and Head(*head).packet_size for head in heads] == [len(plain)] * 3
    assert framer.buffered_bytes == 0


@pytest.mark.parametrize("size", [20, 36])
def test_a_session_ack_of_either_size_takes_36_bytes(size: int) -> None:
    raw = bytearray(bytes.fromhex("10001b004c494f5224000000ffffffff00000100") + bytes(16))
    raw[8] = size
    raw[32] = 64
    stream = bytes(raw) + message()
    read, heads, _ = read_stream([stream])
    assert read == [bytes(raw), message()]
    assert heads[0] is None
    packet, after = parse_packet(stream, 0, len(stream))
    assert (packet, after) == (parse_packet(raw, 0, 36)[0], 36)


def test_what_no_packet_can_be_is_not_waited_for() -> None:
    """Sizes are judged from the first 16 bytes, before anything is buffered for them."""
    for is_internal, size, is_legal in (
        (False, 119, False),
        (False, 120, True),
        (False, 0x40_0000, True),
        (False, 0x40_0001, False),
        (True, 19, False),
        (True, 20, True),
        (True, 572, True),
        (True, 573, False),
        (False, 0xFFFF_FFFF, False),
    ):
        start = bytearray(message()[:16])
        start[2] = 0x08 if is_internal else 0
        pack_into("<I", start, 8, size)
        framer = Framer()
        assert framer.feed(bytes(start)) == []
        assert (framer.error is None) == is_legal
        if framer.error is not None:
            assert framer.error.field == "BaseHeader.PacketSize"
            assert framer.error.offset == 8


def test_fewer_than_16_bytes_need_more() -> None:
    raw = message()
    assert all(frame_packet(raw, 0, end) is None for end in range(len(raw)))
    assert frame_packet(raw, 0, len(raw)) == len(raw)
    assert frame_packet(raw + raw, len(raw), 2 * len(raw)) == 2 * len(raw)
    with pytest.raises(ProtocolError) as raised:
        frame_packet(b"\xff" * 40, 4, 40)
    assert raised.value.offset == 0


def test_the_largest_packet_byte_by_byte_holds_no_more_than_itself() -> None:
    largest = bytearray(0x40_0000)
    largest[:16] = message()[:16]
    pack_into("<I", largest, 8, len(largest))
    framer = Framer()
    step = 1 << 16
    for at in range(0, len(largest) - step, step):
        assert framer.feed(largest[at : at + step]) == []
        assert framer.buffered_bytes == at + step
    (frames,) = framer.feed(largest[len(largest) - step :])
    assert frames.offsets == [0, len(largest)]
    assert framer.buffered_bytes == 0

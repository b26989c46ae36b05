"""What must hold for any bytes at all; shared by the fuzzer and the property tests.

Each function asserts. Any exception that leaves one of them is a bug in the codec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qm.wire.errors import ProtocolError
from qm.wire.packets.framer import Framer
from qm.wire.packets.packet import Packet, PacketKind, packet_kind, parse_packet, write_packet
from qm.wire.packets.peek import HeadFields, peek_destination, peek_head, peek_transaction
from qm.wire.packets.ping import Ping, parse_ping, write_ping

SECTION = re.compile(r"^MS-(MQMQ|MQQB|DTYP) \d+(\.\d+)+$")
FIELD = re.compile(r"^[A-Z]\w+(\.[A-Z]\w*)*$")


def check_error(error: ProtocolError, length: int) -> None:
    """An error names a place in the bytes, a field, a section and a reason, and prints them."""
    assert 0 <= error.offset <= length
    assert SECTION.match(error.section)
    assert FIELD.match(error.field)
    assert error.reason
    text = str(error)
    assert str(error.offset) in text
    assert all(part in text for part in (error.field, error.section, error.reason))


def check_packet(raw: bytes) -> Packet | None:
    """Bytes are a packet or one error; what was read and written is read as the same value."""
    try:
        packet, after = parse_packet(raw, 0, len(raw))
    except ProtocolError as error:
        check_error(error, len(raw))
        return None
    assert 20 <= after <= len(raw)
    again = write_packet(packet)
    assert parse_packet(again, 0, len(again)) == (packet, len(again))
    # Written once, a packet is canonical.
    assert write_packet(parse_packet(again, 0, len(again))[0]) == again
    if packet_kind(raw, 0, len(raw)) is PacketKind.MESSAGE:
        head = peek_head(raw, 0)
        peek_destination(raw, 0, head)
        if head.user_flags & 0x0010_0000:
            peek_transaction(raw, 0, head)
    return packet


def check_ping(raw: bytes) -> Ping | None:
    """A datagram is a ping or one error, and every ping is written as it was read."""
    try:
        ping, after = parse_ping(raw, 0, len(raw))
    except ProtocolError as error:
        check_error(error, len(raw))
        assert len(raw) < 24 or raw[2:4] != b"HU"
        return None
    assert after == 24
    assert write_ping(ping) == raw[:24]
    return ping


def check_stream(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    """However a stream is cut, it gives the same packets, heads, error and rest."""
    whole = _read([stream])
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    assert _read([*pieces, stream[at:]]) == whole
    return whole[0]


def _read(pieces: Iterable[bytes]) -> tuple[list[bytes], list[HeadFields | None], str | None, int]:
    framer = Framer()
    packets: list[bytes] = []
    heads: list[HeadFields | None] = []
    for piece in pieces:
        if framer.error is not None:
            break
        for frames in framer.feed(piece):
            bounds = zip(frames.offsets, frames.offsets[1:], strict=False)
            packets += [bytes(frames.buffer[start:stop]) for start, stop in bounds]
            heads += frames.heads
    assert framer.buffered_bytes <= 0x40_0000 + 16
    error = None if framer.error is None else str(framer.error)
    return packets, heads, error, framer.buffered_bytes

"""Streams for tests: every way of cutting them must give the same packets."""

from __future__ import annotations

from collections.abc import Iterable

from qm.wire.errors import ProtocolError
from qm.wire.packets.framer import Framer
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.peek import HeadFields, peek_head


def cut(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Cut a stream into pieces of these sizes, and what is left as the last piece."""
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    return [*pieces, stream[at:]]


def read_stream(
    pieces: Iterable[bytes],
) -> tuple[list[bytes], list[HeadFields | None], Framer]:
    """Feed pieces as a session would; return raw packets, their heads, and the framer."""
    framer = Framer()
    packets: list[bytes] = []
    heads: list[HeadFields | None] = []
    for piece in pieces:
        if framer.error is not None:
            break
        for frames in framer.feed(piece):
            bounds = zip(frames.offsets, frames.offsets[1:], strict=False)
            packets += [bytes(frames.buffer[start:stop]) for start, stop in bounds]
            assert frames.offsets[-1] <= len(frames.buffer)
            heads += frames.heads
    assert len(packets) == len(heads)
    return packets, heads, framer


def error_text(error: ProtocolError | None) -> str | None:
    return None if error is None else str(error)


def check_io(packet: Packet, raw: bytes) -> None:
    """Check one (value, bytes) pair: written, read whole, byte by byte, and with bytes behind."""
    assert write_packet(packet) == raw
    for buffer in (raw, bytearray(raw), memoryview(raw)):
        assert parse_packet(buffer, 0, len(raw)) == (packet, len(raw))
    padded = b"\xee" * 3 + raw + b"\xee" * 7
    assert parse_packet(padded, 3, len(padded)) == (packet, 3 + len(raw))
    one_by_one, heads, framer = read_stream(raw[at : at + 1] for at in range(len(raw)))
    assert (one_by_one, framer.buffered_bytes, framer.error) == ([raw], 0, None)
    is_internal = bool(raw[2] & 0x08)
    assert heads == [None if is_internal else peek_head(raw, 0)]
    whole, _, framer = read_stream([raw + raw[:-1]])
    assert (whole, framer.buffered_bytes, framer.error) == ([raw], len(raw) - 1, None)

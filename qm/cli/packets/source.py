"""Input of `qm packet decode`, cut into packets: hex text, raw bytes, a capture.

After an error decoding resumes at the next place that looks like the start of a packet, so that one
damaged packet does not hide the rest; skipped bytes are reported.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from qm.cli.packets.capture import Capture, Chunk, Stream, read_capture
from qm.wire.errors import ProtocolError
from qm.wire.headers.base_header import VERSION_NUMBER
from qm.wire.limits import PING_SIZE_BYTES
from qm.wire.packets.describe import Description, describe_packet, describe_ping
from qm.wire.packets.framer import frame_packet
from qm.wire.packets.ping import PING_SIGNATURE

INPUT_SIZE_MAX_BYTES: Final = 256 * 1024 * 1024

_CAPTURE_MAGIC: Final = frozenset(
    bytes.fromhex(magic)
    for magic in (
        "a1b2c3d4",
        "d4c3b2a1",
        "a1b23c4d",
        "4d3cb2a1",
        "a1b2cd34",
        "34cdb2a1",
        "0a0d0d0a",
    )
)
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_HEX_SEPARATORS: Final = b" \t\r\n,:"
# Position of the signature in the first 16 bytes of a packet.
_SIGNATURE_AT: Final = 4
_SIGNATURE_BYTES: Final = b"LIOR"


class SourceError(Exception):
    """The input cannot be cut into packets; the text says why."""


@dataclass(frozen=True)
class Found:
    """A packet, or bytes that should have been one."""

    source: str
    """"TCP 192.0.2.1:49152 -> 192.0.2.2:1801", "UDP ...", or "" outside captures."""
    offset: int
    """Offset from the start of the source, in bytes."""
    description: Description
    time: float | None = None
    """When its last byte was captured, Unix seconds."""


@dataclass(frozen=True)
class Lost:
    """A place where packets may be missing."""

    source: str
    offset: int
    size: int
    reason: str
    time: float | None = None


Item = Found | Lost


@dataclass(frozen=True)
class Decoded:
    """Everything found in an input."""

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()
    """Notes about the input as a whole."""

    @property
    def is_clean(self) -> bool:
        """Whether every byte belongs to a packet without errors."""
        return all(isinstance(i, Found) and i.description.error is None for i in self.items)


def decode_input(data: bytes) -> Decoded:
    """Decode hex text, a capture or raw packets; `SourceError` when there is nothing to decode."""
    if len(data) > INPUT_SIZE_MAX_BYTES:
        raise SourceError(f"{len(data)} bytes; at most {INPUT_SIZE_MAX_BYTES} are read")
    if data[:4] in _CAPTURE_MAGIC:
        return decode_capture(read_capture(io.BytesIO(data)))
    if not data.strip():
        raise SourceError("there are no bytes to decode")
    data = hex_text(data) or data
    if len(data) == PING_SIZE_BYTES and int.from_bytes(data[2:4], "little") == PING_SIGNATURE:
        return Decoded((Found("", 0, describe_ping(data)),))
    return Decoded(tuple(_cut("", Chunk(0, data, (len(data),), (None,)))))


def hex_text(data: bytes) -> bytes | None:
    """Return the bytes of hexadecimal text, with blanks, commas, colons or 0x; None if it is
    none.
    """
    digits = data.translate(None, _HEX_SEPARATORS).replace(b"0x", b"").replace(b"0X", b"")
    if not digits or len(digits) % 2 or digits.translate(None, _HEX_DIGITS):
        return None
    return bytes.fromhex(digits.decode("ascii"))


def decode_capture(capture: Capture) -> Decoded:
    """Decode all streams and pings of a capture, in the order in which they were completed."""
    items: list[Item] = [
        Found(datagram.name, 0, describe_ping(datagram.data), datagram.time)
        for datagram in capture.datagrams
    ]
    notes = list(capture.notes)
    for stream in capture.streams:
        items += _cut_stream(stream)
        notes += [f"{stream.name}: {note}" for note in stream.notes]
    if not items:
        notes.append("no traffic of TCP port 1801 or UDP port 3527 was found")
    items.sort(key=lambda item: item.time or 0)
    return Decoded(tuple(items), tuple(notes))


def _cut_stream(stream: Stream) -> Iterator[Item]:
    end = 0
    for chunk in stream.chunks:
        if chunk.offset > end:
            size = chunk.offset - end
            time = chunk.times[0]
            yield Lost(stream.name, end, size, "missing from the capture", time)
        yield from _cut(stream.name, chunk)
        end = chunk.offset + len(chunk.data)


def _cut(source: str, chunk: Chunk) -> Iterator[Item]:
    """Cut contiguous bytes into packets."""
    data = chunk.data
    position = 0
    while position < len(data):
        reason = ""
        try:
            after = frame_packet(data, position, len(data))
        except ProtocolError as error:
            after, reason = _next_start(data, position + 1), str(error)
        if after is None:  # the input ends inside a packet
            after = len(data)
        time = chunk.seen_at(chunk.offset + after)
        offset = chunk.offset + position
        if reason:
            yield Lost(source, offset, after - position, f"no packet starts here: {reason}", time)
        else:
            yield Found(source, offset, describe_packet(data[position:after]), time)
        position = after


def _next_start(data: bytes, start: int) -> int:
    """Return where the next packet seems to start; the end if there is none."""
    at = data.find(_SIGNATURE_BYTES, start + _SIGNATURE_AT)
    while at >= 0:
        if data[at - _SIGNATURE_AT] == VERSION_NUMBER:
            return at - _SIGNATURE_AT
        at = data.find(_SIGNATURE_BYTES, at + 1)
    return len(data)

"""Splits bytes into packets: `Framer` for a session's TCP stream, `frame_packet` for a buffer.

The stream is read in place: a chunk's whole packets stay in the chunk, and only a packet that spans
chunks is collected, its bytes copied once into a buffer of its own. Each `feed` costs its own bytes
plus a constant, so the work is linear however the stream is split, and the packets, the error and
its offset are the same for one chunk and for single bytes.
"""

import msgspec

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_IN,
    FLAG_SH,
    FLAGS_OFFSET,
    SIGNATURE,
    VERSION_NUMBER,
    packet_span,
)
from qm.wire.limits import PACKET_SIZE_MAX_BYTES, USER_PACKET_SIZE_MIN_BYTES
from qm.wire.packets.peek import HEAD, HeadFields

_NOT_PLAIN = FLAG_IN | FLAG_SH


class Frames(msgspec.Struct, frozen=True, gc=False):
    """Consecutive whole packets in one buffer.

    Packet k is `buffer[offsets[k]:offsets[k + 1]]`, and all together they are
    `buffer[offsets[0]:offsets[-1]]`: one copy moves a run of packets into a batch.
    """

    buffer: Buffer
    """The chunk that was fed, or the buffer in which the framer collected one packet."""
    offsets: list[int]
    """Where each packet starts, and where the last one ends: one more than there are packets."""
    heads: list[HeadFields | None]
    """The fixed fields of each user packet; None for an internal packet.

    `Head(*fields)` names them, at about the cost of framing the packet.
    """


def frame_packet(buffer: Buffer, offset: int, end: int) -> int | None:
    """Return the offset after the packet at `offset`, None when it extends beyond `end`.

    A UserMessage's SessionHeader is part of what the packet occupies (QB-A17). Raises
    `ProtocolError`, counted from the packet's start, when its first 16 bytes are not a packet's.
    """
    try:
        span = packet_span(buffer, offset, end)
    except ProtocolError as error:
        raise error.counted_from(offset) from None
    return None if span is None or offset + span > end else offset + span


class Framer:
    """Splits one stream into packets; holds at most one unfinished packet."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self.error: ProtocolError | None = None
        """Why the rest of the stream cannot be read; the packets returned before are whole."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an incomplete packet; above zero at a stream's end, the stream was cut."""
        return len(self._partial)

    def feed(self, chunk: Buffer) -> list[Frames]:
        """Take the next bytes of the stream and return the packets that they complete, in order.

        The frames refer to `chunk`, which must stay unchanged until they are used; nothing else of
        it is kept. Check `error` afterwards: it is set, and raised by all later calls, when the
        bytes after the last returned packet cannot be one.
        """
        if self.error is not None:
            raise self.error
        frames: list[Frames] = []
        try:
            position = self._complete(chunk, frames) if self._partial else 0
            if position < len(chunk):
                position = _scan(chunk, position, frames)
                # Fewer bytes than a header, or the start of a packet with a valid header.
                self._partial += memoryview(chunk)[position:]
        except ProtocolError as error:
            self._partial = bytearray()
            self.error = error
        return frames

    def _complete(self, chunk: Buffer, frames: list[Frames]) -> int:
        """Complete the unfinished packet from the chunk; return how many bytes were used."""
        view = memoryview(chunk)
        partial = self._partial
        position = 0
        if len(partial) < BASE_HEADER_SIZE_BYTES:
            position = BASE_HEADER_SIZE_BYTES - len(partial)
            partial += view[:position]
        span = packet_span(partial, 0, len(partial))
        if span is None:
            return len(view)
        missing = span - len(partial)
        partial += view[position : position + missing]
        if len(partial) < span:
            return len(view)
        head = None if partial[FLAGS_OFFSET] & FLAG_IN else HEAD.unpack_from(partial)
        frames.append(Frames(partial, [0, span], [head]))
        self._partial = bytearray()
        return position + missing


def _scan(buffer: Buffer, start: int, frames: list[Frames]) -> int:
    """Append the whole packets from `start` on as one `Frames`; return where they end.

    The loop is the hot path: one unpack gives both what framing checks and what `Frames.heads`
    promises. It handles messages without SessionHeader; everything else takes the slow path.
    """
    unpack_from = HEAD.unpack_from
    end = len(buffer)
    last_head = end - HEAD.size
    offsets = [start]
    heads: list[HeadFields | None] = []
    add_offset = offsets.append
    add_head = heads.append
    position = start
    try:
        while position <= last_head:
            head = unpack_from(buffer, position)
            version, flags, signature, size, _, _, _, _, _, _, _, _ = head
            if (
                version != VERSION_NUMBER
                or signature != SIGNATURE
                or flags & _NOT_PLAIN
                or size < USER_PACKET_SIZE_MIN_BYTES
                or size > PACKET_SIZE_MAX_BYTES
            ):
                framed = frame_packet(buffer, position, end)
                if framed is None:
                    break
                after = framed
                add_head(None if flags & FLAG_IN else head)
            else:
                after = position + size
                if after > end:
                    break
                add_head(head)
            add_offset(after)
            position = after
        # The rest is shorter than a message, but may contain internal packets.
        while (framed := frame_packet(buffer, position, end)) is not None:
            add_head(None)
            add_offset(framed)
            position = framed
    finally:
        if heads:
            frames.append(Frames(buffer, offsets, heads))
    return position

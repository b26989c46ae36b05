"""BaseHeader: the first 16 bytes of every packet of a session [MS-MQMQ 2.2.19.1]."""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.limits import (
    INTERNAL_PACKET_SIZE_MAX_BYTES,
    PACKET_SIZE_MAX_BYTES,
    PACKET_SIZE_MIN_BYTES,
    PRIORITY_DEFAULT,
    SESSION_HEADER_SIZE_BYTES,
    TIME_INFINITE_S,
    USER_PACKET_SIZE_MIN_BYTES,
)
from qm.wire.packing import pack_fields

SECTION: Final = "MS-MQMQ 2.2.19.1"
VERSION_NUMBER: Final = 0x10
# QB-A37: the value is little-endian like all others, so the wire shows 4C 49 4F 52 ("LIOR").
SIGNATURE: Final = 0x524F494C

FLAG_PR: Final = 0x0007
FLAG_IN: Final = 0x0008
FLAG_SH: Final = 0x0010
FLAG_DH: Final = 0x0020
FLAG_TR: Final = 0x0100

FLAGS_OFFSET: Final = 2
PACKET_SIZE_OFFSET: Final = 8
_LAYOUT: Final = Struct("<BBHIII")
BASE_HEADER_SIZE_BYTES: Final = _LAYOUT.size


class BaseHeader(msgspec.Struct, frozen=True, gc=False):
    """Identifies a packet and gives its length; reserved flag bits are ignored."""

    packet_size: int
    """Bytes of the packet, without the SessionHeader that follows a UserMessage (MQ-A5)."""
    time_to_reach_queue: int = TIME_INFINITE_S
    """Seconds to reach the destination queue manager; 0xFFFFFFFF is infinite."""
    priority: int = PRIORITY_DEFAULT
    """Flags.PR, 0..7; 7 is read first."""
    is_internal: bool = False
    """Flags.IN: the packet serves the session itself."""
    has_session_header: bool = False
    """Flags.SH."""
    has_debug_header: bool = False
    """Flags.DH."""
    is_traced: bool = False
    """Flags.TR: report messages are wanted; needs a DebugHeader, which names their queue."""
    reserved: int = 0
    """Any value is accepted."""


def parse_base_header(buffer: Buffer, offset: int, end: int) -> tuple[BaseHeader, int]:
    """Read and check 16 bytes; the packet itself may extend beyond `end`."""
    after = offset + BASE_HEADER_SIZE_BYTES
    if after > end:
        raise truncated(offset, BASE_HEADER_SIZE_BYTES, end, "BaseHeader", SECTION)
    version, reserved, flags, signature, packet_size, time_to_reach_queue = _LAYOUT.unpack_from(
        buffer, offset
    )
    if version != VERSION_NUMBER or signature != SIGNATURE:
        raise _not_a_packet(offset, version, signature)
    if not PACKET_SIZE_MIN_BYTES <= packet_size <= PACKET_SIZE_MAX_BYTES:
        raise ProtocolError(
            offset + PACKET_SIZE_OFFSET,
            "BaseHeader.PacketSize",
            SECTION,
            f"{packet_size} bytes; {PACKET_SIZE_MIN_BYTES} to {PACKET_SIZE_MAX_BYTES} are allowed",
        )
    is_internal = bool(flags & FLAG_IN)
    has_debug_header = bool(flags & FLAG_DH)
    is_traced = bool(flags & FLAG_TR)
    if is_internal and (has_debug_header or is_traced):
        raise ProtocolError(
            offset + FLAGS_OFFSET, "BaseHeader.Flags.DH", SECTION, "DH or TR in an internal packet"
        )
    if is_traced and not has_debug_header:
        raise ProtocolError(offset + FLAGS_OFFSET, "BaseHeader.Flags.TR", SECTION, "set without DH")
    header = BaseHeader(
        packet_size,
        time_to_reach_queue,
        flags & FLAG_PR,
        is_internal,
        bool(flags & FLAG_SH),
        has_debug_header,
        is_traced,
        reserved,
    )
    return header, after


def write_base_header(header: BaseHeader) -> bytes:
    """Return the 16 bytes; reserved flag bits are clear."""
    if not PACKET_SIZE_MIN_BYTES <= header.packet_size <= PACKET_SIZE_MAX_BYTES:
        raise ValueOutOfRange(
            "BaseHeader.PacketSize",
            SECTION,
            f"{header.packet_size} bytes; a packet has {PACKET_SIZE_MIN_BYTES} to "
            f"{PACKET_SIZE_MAX_BYTES}",
        )
    if not 0 <= header.priority <= FLAG_PR:
        raise ValueOutOfRange("BaseHeader.Flags.PR", SECTION, f"{header.priority} is not 0 to 7")
    if header.is_traced and not header.has_debug_header:
        raise ValueOutOfRange("BaseHeader.Flags.TR", SECTION, "needs a DebugHeader")
    if header.is_internal and header.has_debug_header:
        raise ValueOutOfRange("BaseHeader.Flags.DH", SECTION, "not in an internal packet")
    flags = (
        header.priority
        | (FLAG_IN if header.is_internal else 0)
        | (FLAG_SH if header.has_session_header else 0)
        | (FLAG_DH if header.has_debug_header else 0)
        | (FLAG_TR if header.is_traced else 0)
    )
    return pack_fields(
        _LAYOUT,
        "BaseHeader",
        SECTION,
        VERSION_NUMBER,
        header.reserved,
        flags,
        SIGNATURE,
        header.packet_size,
        header.time_to_reach_queue,
    )


def packet_span(buffer: Buffer, offset: int, end: int) -> int | None:
    """Return how many bytes the packet at `offset` occupies in a stream.

    None means that fewer than the 16 bytes that determine it are there. A size that no packet of
    its kind can have is an error at once, so that nothing is buffered for it.
    """
    if end - offset < BASE_HEADER_SIZE_BYTES:
        return None
    version, _, flags, signature, packet_size, _ = _LAYOUT.unpack_from(buffer, offset)
    if version != VERSION_NUMBER or signature != SIGNATURE:
        raise _not_a_packet(offset, version, signature)
    if flags & FLAG_IN:
        smallest, largest = PACKET_SIZE_MIN_BYTES, INTERNAL_PACKET_SIZE_MAX_BYTES
    else:
        smallest, largest = USER_PACKET_SIZE_MIN_BYTES, PACKET_SIZE_MAX_BYTES
    if not smallest <= packet_size <= largest:
        raise ProtocolError(
            offset + PACKET_SIZE_OFFSET,
            "BaseHeader.PacketSize",
            SECTION,
            f"{packet_size} bytes; this kind of packet has {smallest} to {largest}",
        )
    # QB-A17: a UserMessage's SessionHeader follows its PacketSize bytes. In a SessionAck it is part
    # of them (36), but the size that the wording of MS-MQMQ gives (20) is accepted.
    if flags & FLAG_SH and (not flags & FLAG_IN or packet_size == PACKET_SIZE_MIN_BYTES):
        return int(packet_size) + SESSION_HEADER_SIZE_BYTES
    return int(packet_size)


def _not_a_packet(offset: int, version: int, signature: int) -> ProtocolError:
    if version != VERSION_NUMBER:
        return ProtocolError(
            offset,
            "BaseHeader.VersionNumber",
            SECTION,
            f"0x{version:02X}, only 0x{VERSION_NUMBER:02X} is known",
        )
    return ProtocolError(
        offset + 4,
        "BaseHeader.Signature",
        SECTION,
        f"0x{signature:08X} instead of 0x{SIGNATURE:08X}",
    )

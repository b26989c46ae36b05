"""The packets that set up and acknowledge a session [MS-MQQB 2.2.1, 2.2.2, 2.2.3, 2.2.6].

Each is a BaseHeader with IN, an InternalHeader and one header of fixed size. TimeToReachQueue is
written as infinite and ignored when read, as are all reserved bits of InternalHeader.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    BaseHeader,
    parse_base_header,
    write_base_header,
)
from qm.wire.headers.session_header import SessionHeader, parse_session_header, write_session_header
from qm.wire.limits import (
    ACK_TIMEOUT_MAX_MS,
    ACK_TIMEOUT_MIN_MS,
    ESTABLISH_CONNECTION_PADDING_BYTE,
    ESTABLISH_CONNECTION_PADDING_BYTES,
    PRIORITY_DEFAULT,
    RECOVERABLE_ACK_TIMEOUT_MAX_MS,
    RECOVERABLE_ACK_TIMEOUT_MIN_MS,
    SESSION_HEADER_SIZE_BYTES,
    WINDOW_SIZE_DEFAULT,
)
from qm.wire.packing import guid_bytes, pack_fields

SECTION_INTERNAL: Final = "MS-MQQB 2.2.1"
SECTION_PARAMETERS: Final = "MS-MQQB 2.2.2"
SECTION_PARAMETERS_HEADER: Final = "MS-MQQB 2.2.2.1"
SECTION_ESTABLISH: Final = "MS-MQQB 2.2.3"
SECTION_ESTABLISH_HEADER: Final = "MS-MQQB 2.2.3.1"
SECTION_SESSION_ACK: Final = "MS-MQQB 2.2.6"

FLAG_PT: Final = 0x000F
FLAG_CS: Final = 0x0010

OPERATING_SYSTEM_RE: Final = 0x0010
OPERATING_SYSTEM_RE_MASK: Final = 0x00FF
OPERATING_SYSTEM_SE: Final = 0x0100
OPERATING_SYSTEM_OS: Final = 0x0200
OPERATING_SYSTEM_QS: Final = 0x0400

_INTERNAL: Final = Struct("<HH")
_PARAMETERS: Final = Struct("<IIHH")
_ESTABLISH: Final = Struct(f"<16s16sIHH{ESTABLISH_CONNECTION_PADDING_BYTES}s")
_INTERNAL_OFFSET: Final = BASE_HEADER_SIZE_BYTES
_HEADER_OFFSET: Final = _INTERNAL_OFFSET + _INTERNAL.size
CONNECTION_PARAMETERS_SIZE_BYTES: Final = _HEADER_OFFSET + _PARAMETERS.size
ESTABLISH_CONNECTION_SIZE_BYTES: Final = _HEADER_OFFSET + _ESTABLISH.size
SESSION_ACK_SIZE_BYTES: Final = _HEADER_OFFSET + SESSION_HEADER_SIZE_BYTES


class PacketType(IntEnum):
    """InternalHeader.Flags.PT."""

    SESSION_ACK = 1
    ESTABLISH_CONNECTION = 2
    CONNECTION_PARAMETERS = 3


class EstablishConnection(msgspec.Struct, frozen=True, gc=False):
    """Asks for a session, or answers that request."""

    client_guid: Guid
    """The initiator's queue manager, 16 raw bytes."""
    server_guid: Guid = GUID_NULL
    """The acceptor's queue manager, 16 raw bytes; zeros when only its address is known."""
    time_stamp: int = 0
    """Milliseconds since the initiator's system start, u32; the answer repeats it."""
    is_ping_skipped: bool = False
    """OperatingSystem.SE: no ping was sent before; the answer repeats it."""
    is_server_class: bool = False
    """OperatingSystem.OS: the initiator runs a server-class system."""
    has_quality_of_service: bool = False
    """OperatingSystem.QS: the transport guarantees a quality of service."""
    is_refused: bool = False
    """Flags.CS: the acceptor refuses the session."""
    padding: bytes = bytes([ESTABLISH_CONNECTION_PADDING_BYTE]) * ESTABLISH_CONNECTION_PADDING_BYTES
    """512 bytes: 0x5A in an answer, anything in a request."""
    priority: int = PRIORITY_DEFAULT
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


class ConnectionParameters(msgspec.Struct, frozen=True, gc=False):
    """Proposes, or answers with, the timeouts and the window of a session."""

    recoverable_ack_timeout: int
    """Milliseconds before a recoverable message is acknowledged, 500..120000."""
    ack_timeout: int
    """Milliseconds without acknowledgment after which the session ends, 20000..120000."""
    window_size: int = WINDOW_SIZE_DEFAULT
    """Unacknowledged messages allowed, u16; 0 is legal here."""
    is_refused: bool = False
    """Flags.CS: the session is refused."""
    priority: int = PRIORITY_DEFAULT
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


class SessionAck(msgspec.Struct, frozen=True, gc=False):
    """Acknowledges messages of the session without carrying one."""

    session: SessionHeader
    priority: int = PRIORITY_DEFAULT
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


def parse_internal_type(buffer: Buffer, offset: int, end: int) -> tuple[PacketType, bool]:
    """Read the InternalHeader of the packet at `offset`: its type, and whether CS is set."""
    start = offset + _INTERNAL_OFFSET
    if start + _INTERNAL.size > end:
        raise truncated(start, _INTERNAL.size, end, "InternalHeader", SECTION_INTERNAL)
    _, flags = _INTERNAL.unpack_from(buffer, start)
    packet_type = _PACKET_TYPES.get(flags & FLAG_PT)
    if packet_type is None:
        raise ProtocolError(
            start + 2,
            "InternalHeader.Flags.PT",
            SECTION_INTERNAL,
            f"{flags & FLAG_PT}, only 1, 2 and 3 exist",
        )
    is_refused = bool(flags & FLAG_CS)
    if is_refused and packet_type is PacketType.SESSION_ACK:
        raise ProtocolError(
            start + 2, "InternalHeader.Flags.CS", SECTION_INTERNAL, "set in a SessionAck"
        )
    return packet_type, is_refused


def parse_establish_connection(
    buffer: Buffer, offset: int, end: int
) -> tuple[EstablishConnection, int]:
    """Read and check the 572 bytes; errors count their offset from the packet's start."""
    base, is_refused = _parse_start(
        buffer, offset, end, PacketType.ESTABLISH_CONNECTION, ESTABLISH_CONNECTION_SIZE_BYTES
    )
    client, server, time_stamp, operating_system, _, padding = _ESTABLISH.unpack_from(
        buffer, offset + _HEADER_OFFSET
    )
    if operating_system & OPERATING_SYSTEM_RE_MASK != OPERATING_SYSTEM_RE:  # QB-A54
        raise ProtocolError(
            56,
            "EstablishConnectionHeader.OperatingSystem.RE",
            SECTION_ESTABLISH_HEADER,
            f"0x{operating_system & OPERATING_SYSTEM_RE_MASK:02X} instead of 0x10",
        )
    packet = EstablishConnection(
        client,
        server,
        time_stamp,
        bool(operating_system & OPERATING_SYSTEM_SE),
        bool(operating_system & OPERATING_SYSTEM_OS),
        bool(operating_system & OPERATING_SYSTEM_QS),
        is_refused,
        padding,
        base.priority,
        base.reserved,
    )
    return packet, offset + ESTABLISH_CONNECTION_SIZE_BYTES


def write_establish_connection(packet: EstablishConnection) -> bytes:
    """Return the 572 bytes."""
    if len(packet.padding) != ESTABLISH_CONNECTION_PADDING_BYTES:
        raise ValueOutOfRange(
            "EstablishConnectionHeader.Padding",
            SECTION_ESTABLISH_HEADER,
            f"{len(packet.padding)} bytes instead of {ESTABLISH_CONNECTION_PADDING_BYTES}",
        )
    header = "EstablishConnectionHeader"
    client = guid_bytes(packet.client_guid, f"{header}.ClientGuid", SECTION_ESTABLISH_HEADER)
    server = guid_bytes(packet.server_guid, f"{header}.ServerGuid", SECTION_ESTABLISH_HEADER)
    operating_system = (
        OPERATING_SYSTEM_RE
        | (OPERATING_SYSTEM_SE if packet.is_ping_skipped else 0)
        | (OPERATING_SYSTEM_OS if packet.is_server_class else 0)
        | (OPERATING_SYSTEM_QS if packet.has_quality_of_service else 0)
    )
    return _write_start(
        PacketType.ESTABLISH_CONNECTION, ESTABLISH_CONNECTION_SIZE_BYTES, packet, packet.is_refused
    ) + pack_fields(
        _ESTABLISH,
        header,
        SECTION_ESTABLISH_HEADER,
        client,
        server,
        packet.time_stamp,
        operating_system,
        0,
        packet.padding,
    )


def parse_connection_parameters(
    buffer: Buffer, offset: int, end: int, *, is_clamping: bool = False
) -> tuple[ConnectionParameters, int]:
    """Read and check the 32 bytes; errors count their offset from the packet's start.

    QB-A45: a timeout outside its range ends the session; `is_clamping` moves it into the range.
    """
    base, is_refused = _parse_start(
        buffer, offset, end, PacketType.CONNECTION_PARAMETERS, CONNECTION_PARAMETERS_SIZE_BYTES
    )
    recoverable, ack, _, window_size = _PARAMETERS.unpack_from(buffer, offset + _HEADER_OFFSET)
    if is_clamping:
        recoverable = min(
            max(recoverable, RECOVERABLE_ACK_TIMEOUT_MIN_MS), RECOVERABLE_ACK_TIMEOUT_MAX_MS
        )
        ack = min(max(ack, ACK_TIMEOUT_MIN_MS), ACK_TIMEOUT_MAX_MS)
    misfit = _timeout_misfit(recoverable, ack)
    if misfit is not None:
        at, field, reason = misfit
        raise ProtocolError(at, field, SECTION_PARAMETERS_HEADER, reason)
    packet = ConnectionParameters(
        recoverable, ack, window_size, is_refused, base.priority, base.reserved
    )
    return packet, offset + CONNECTION_PARAMETERS_SIZE_BYTES


def write_connection_parameters(packet: ConnectionParameters) -> bytes:
    """Return the 32 bytes."""
    misfit = _timeout_misfit(packet.recoverable_ack_timeout, packet.ack_timeout)
    if misfit is not None:
        _, field, reason = misfit
        raise ValueOutOfRange(field, SECTION_PARAMETERS_HEADER, reason)
    return _write_start(
        PacketType.CONNECTION_PARAMETERS,
        CONNECTION_PARAMETERS_SIZE_BYTES,
        packet,
        packet.is_refused,
    ) + pack_fields(
        _PARAMETERS,
        "ConnectionParametersHeader",
        SECTION_PARAMETERS_HEADER,
        packet.recoverable_ack_timeout,
        packet.ack_timeout,
        0,
        packet.window_size,
    )


def parse_session_ack(buffer: Buffer, offset: int, end: int) -> tuple[SessionAck, int]:
    """Read and check the 36 bytes; errors count their offset from the packet's start.

    QB-A17: PacketSize is 36; 20, which leaves the SessionHeader out, is read too.
    """
    base, _ = _parse_start(buffer, offset, end, PacketType.SESSION_ACK, SESSION_ACK_SIZE_BYTES)
    try:
        session, after = parse_session_header(
            buffer, offset + _HEADER_OFFSET, offset + SESSION_ACK_SIZE_BYTES
        )
    except ProtocolError as error:
        raise error.counted_from(offset) from None
    return SessionAck(session, base.priority, base.reserved), after


def write_session_ack(packet: SessionAck) -> bytes:
    """Return the 36 bytes."""
    return _write_start(
        PacketType.SESSION_ACK, SESSION_ACK_SIZE_BYTES, packet, False
    ) + write_session_header(packet.session)


def _parse_start(
    buffer: Buffer, offset: int, end: int, packet_type: PacketType, size: int
) -> tuple[BaseHeader, bool]:
    """Check BaseHeader and InternalHeader of a packet of known type and size."""
    try:
        base, _ = parse_base_header(buffer, offset, end)
        if not base.is_internal:
            raise ProtocolError(
                offset + 2, "BaseHeader.Flags.IN", SECTION_INTERNAL, "clear in an internal packet"
            )
        found_type, is_refused = parse_internal_type(buffer, offset, end)
    except ProtocolError as error:
        raise error.counted_from(offset) from None
    section = _SECTIONS[packet_type]
    if found_type is not packet_type:
        raise ProtocolError(
            18,
            "InternalHeader.Flags.PT",
            section,
            f"{found_type.name} instead of {packet_type.name}",
        )
    if base.has_session_header != (packet_type is PacketType.SESSION_ACK):
        raise ProtocolError(
            2, "BaseHeader.Flags.SH", section, f"{int(base.has_session_header)} in this packet"
        )
    sizes = (size, _HEADER_OFFSET) if base.has_session_header else (size,)
    if base.packet_size not in sizes:
        raise ProtocolError(
            8, "BaseHeader.PacketSize", section, f"{base.packet_size} bytes instead of {size}"
        )
    if offset + size > end:
        raise truncated(0, size, end - offset, "BaseHeader.PacketSize", section)
    return base, is_refused


def _write_start(
    packet_type: PacketType,
    size: int,
    packet: EstablishConnection | ConnectionParameters | SessionAck,
    is_refused: bool,
) -> bytes:
    base = BaseHeader(
        size,
        priority=packet.priority,
        is_internal=True,
        has_session_header=packet_type is PacketType.SESSION_ACK,
        reserved=packet.base_reserved,
    )
    flags = packet_type | (FLAG_CS if is_refused else 0)
    return write_base_header(base) + _INTERNAL.pack(0, flags)


def _timeout_misfit(recoverable: int, ack: int) -> tuple[int, str, str] | None:
    """Return offset, field and reason of the first timeout outside its range."""
    if not RECOVERABLE_ACK_TIMEOUT_MIN_MS <= recoverable <= RECOVERABLE_ACK_TIMEOUT_MAX_MS:
        return (
            20,
            "ConnectionParametersHeader.RecoverableAckTimeout",
            _out_of_range(
                recoverable, RECOVERABLE_ACK_TIMEOUT_MIN_MS, RECOVERABLE_ACK_TIMEOUT_MAX_MS
            ),
        )
    if not ACK_TIMEOUT_MIN_MS <= ack <= ACK_TIMEOUT_MAX_MS:
        return (
            24,
            "ConnectionParametersHeader.AckTimeout",
            _out_of_range(ack, ACK_TIMEOUT_MIN_MS, ACK_TIMEOUT_MAX_MS),
        )
    return None


def _out_of_range(found_ms: int, smallest_ms: int, largest_ms: int) -> str:
    return f"{found_ms} ms is not {smallest_ms} to {largest_ms}"


_PACKET_TYPES: Final = {packet_type.value: packet_type for packet_type in PacketType}
_SECTIONS: Final = {
    PacketType.SESSION_ACK: SECTION_SESSION_ACK,
    PacketType.ESTABLISH_CONNECTION: SECTION_ESTABLISH,
    PacketType.CONNECTION_PARAMETERS: SECTION_PARAMETERS,
}

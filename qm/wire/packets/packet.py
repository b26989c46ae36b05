"""Any packet of a session: bytes to its value, and back [MS-MQQB 3.1.5.1.1]."""

from enum import Enum
from typing import Final

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError
from qm.wire.headers.base_header import FLAG_IN, FLAGS_OFFSET, parse_base_header
from qm.wire.packets.ack import (
    FinalAck,
    OrderAck,
    acknowledgment_in,
    write_final_ack,
    write_order_ack,
)
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    PacketType,
    SessionAck,
    parse_connection_parameters,
    parse_establish_connection,
    parse_internal_type,
    parse_session_ack,
    write_connection_parameters,
    write_establish_connection,
    write_session_ack,
)
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message

Packet = EstablishConnection | ConnectionParameters | SessionAck | OrderAck | FinalAck | UserMessage


class PacketKind(Enum):
    """What the first headers tell about a packet."""

    ESTABLISH_CONNECTION = "EstablishConnection"
    CONNECTION_PARAMETERS = "ConnectionParameters"
    SESSION_ACK = "SessionAck"
    MESSAGE = "UserMessage"
    """UserMessage, OrderAck or FinalAck: label and class tell them apart."""


def packet_kind(buffer: Buffer, offset: int, end: int) -> PacketKind:
    """Read as much of the packet at `offset` as determines its kind; the rest is not checked."""
    at = offset + FLAGS_OFFSET
    if at < end and not buffer[at] & FLAG_IN:
        return PacketKind.MESSAGE
    try:
        parse_base_header(buffer, offset, end)
        packet_type, _ = parse_internal_type(buffer, offset, end)
    except ProtocolError as error:
        raise error.counted_from(offset) from None
    return _KINDS[packet_type]


def parse_packet(buffer: Buffer, offset: int, end: int) -> tuple[Packet, int]:
    """Read and check the packet at `offset`; errors count their offset from there.

    The next offset is after a UserMessage's SessionHeader (QB-A17). `end` is at most
    `len(buffer)`; a packet that extends beyond it is an error: use a `Framer` to wait for it.
    """
    kind = packet_kind(buffer, offset, end)
    if kind is PacketKind.MESSAGE:
        message, after = parse_user_message(buffer, offset, end)
        # QB-A39: everything that is neither OrderAck nor FinalAck is a message, whatever its class.
        return acknowledgment_in(message) or message, after
    if kind is PacketKind.SESSION_ACK:
        return parse_session_ack(buffer, offset, end)
    if kind is PacketKind.ESTABLISH_CONNECTION:
        return parse_establish_connection(buffer, offset, end)
    return parse_connection_parameters(buffer, offset, end)


def write_packet(packet: Packet) -> bytes:
    """Return the bytes of any packet, a UserMessage's SessionHeader included."""
    match packet:
        case UserMessage():
            return write_user_message(packet)
        case SessionAck():
            return write_session_ack(packet)
        case OrderAck():
            return write_order_ack(packet)
        case FinalAck():
            return write_final_ack(packet)
        case EstablishConnection():
            return write_establish_connection(packet)
        case ConnectionParameters():
            return write_connection_parameters(packet)


_KINDS: Final = {
    PacketType.SESSION_ACK: PacketKind.SESSION_ACK,
    PacketType.ESTABLISH_CONNECTION: PacketKind.ESTABLISH_CONNECTION,
    PacketType.CONNECTION_PARAMETERS: PacketKind.CONNECTION_PARAMETERS,
}

"""OrderAck and FinalAck: end-to-end acknowledgments of transactional messages.

Sections: OrderAck [MS-MQQB 2.2.4], FinalAck [2.2.5].

On the wire each is a message to the private queue order_queue$ with a fixed label and a body of 36
bytes, by which section 3.1.5.1.1 recognizes them. Whether that queue is the local one is for the
reader to decide: a router forwards them.
"""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.headers.message_properties import (
    MESSAGE_PROPERTIES_MIN_BYTES,
    MessagePropertiesHeader,
    write_message_properties_header,
)
from qm.wire.headers.user_header import UserHeader
from qm.wire.limits import (
    ACK_BODY_SIZE_BYTES,
    PREVIOUS_TX_SEQUENCE_NUMBER_MAX,
    TIME_INFINITE_S,
    U16_MAX,
)
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.packing import guid_bytes, pack_fields
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
    QueueName,
)
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES

SECTION_ORDER: Final = "MS-MQQB 2.2.4"
SECTION_ORDER_BODY: Final = "MS-MQQB 2.2.4.1"
SECTION_FINAL: Final = "MS-MQQB 2.2.5"
SECTION_FINAL_BODY: Final = "MS-MQQB 2.2.5.1"

ACK_LABEL: Final = "QM Ordering Ack"
ORDER_QUEUE_ID: Final = 4
ORDER_QUEUE_SUFFIX: Final = "\\PRIVATE$\\order_queue$"
ORDER_QUEUE: Final = PrivateQueueFormatNameId(QueueHost.DESTINATION, ORDER_QUEUE_ID)
"""The destination of acknowledgments to a queue manager whose GUID is known."""
FINAL_ACK_CLASS_MIN: Final = MessageClass.ACK_RECEIVE

# What MS-MQQB 4.1.7 shows in a packet that is neither signed nor encrypted.
_HASH_ALGORITHM: Final = 0x0000_8004
_ENCRYPTION_ALGORITHM: Final = 0x0000_6801
_BODY: Final = Struct("<IIII16sI")
_ORDER_BODY_RESERVED: Final = bytes(16)


class SequenceAck(msgspec.Struct, frozen=True, gc=False):
    """The common content of both acknowledgments of a sequence; other header fields are ignored."""

    source_queue_manager: Guid
    """The acknowledging queue manager, 16 raw bytes."""
    queue_manager_address: Guid
    """The queue manager that is informed, 16 raw bytes; zeros for a direct destination."""
    destination_queue: QueueName
    """`ORDER_QUEUE`, or `order_queue_at` an address."""
    sent_time: int
    """Seconds since 1970 UTC."""
    message_id: int
    """MessageID of this packet, u32."""
    tx_sequence_id: TxSequenceId
    """The acknowledged sequence, or that of the message."""
    tx_sequence_number: int
    """The acknowledged number, or that of the message, 1..0xFFFFFFFF."""
    tx_previous_sequence_number: int
    """The number before it, at most 0xFFFFFFFE."""


class OrderAck(SequenceAck, frozen=True, gc=False):
    """Tells the sender of a sequence how far it has arrived."""

    time_to_be_received: int = TIME_INFINITE_S
    """Seconds."""
    hop_count: int = 0
    """Routing servers passed."""
    is_recoverable: bool = False
    """QB-A23: clear when sent; either value is accepted."""
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


class FinalAck(SequenceAck, frozen=True, gc=False):
    """Tells the sender the outcome for one message."""

    message_class: int
    """The outcome, 0x4000..0xFFFF (QB-A40: the full set of classes)."""
    acknowledged_source: Guid
    """SourceGUID: the message's source queue manager, 16 raw bytes."""
    acknowledged_message_id: int
    """MessageID of the message, u32."""
    time_to_be_received: int = TIME_INFINITE_S
    """Seconds."""
    hop_count: int = 0
    """Routing servers passed."""
    is_recoverable: bool = True
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


def order_queue_at(address: str) -> DirectQueueFormatName:
    """Return the order queue of the queue manager at an IPv4 or IPv6 address."""
    return DirectQueueFormatName(f"TCP:{address}{ORDER_QUEUE_SUFFIX}")


def is_order_queue(name: QueueName | None) -> bool:
    """Tell whether a destination is some queue manager's order_queue$."""
    if isinstance(name, DirectQueueFormatName):
        return name.direct_format_name.upper().endswith(ORDER_QUEUE_SUFFIX.upper())
    return name == ORDER_QUEUE


def acknowledgment_in(message: UserMessage) -> OrderAck | FinalAck | None:
    """Return the acknowledgment that a message is, or None (MS-MQQB 3.1.5.1.1).

    Raises `ProtocolError` when it is one and its body cannot be read.
    """
    properties = message.properties
    if (
        properties.label != ACK_LABEL
        or message.priority
        or message.transaction is not None
        or message.debug is not None
        or message.session is not None
        or not is_order_queue(message.user_header.destination_queue)
    ):
        return None
    if properties.message_class >= FINAL_ACK_CLASS_MIN:
        return _final_ack(message)
    is_order_ack = (
        properties.message_class == MessageClass.ORDER_ACK
        and len(properties.message_body) == ACK_BODY_SIZE_BYTES
    )
    return _order_ack(message) if is_order_ack else None


def parse_order_ack(buffer: Buffer, offset: int, end: int) -> tuple[OrderAck, int]:
    """Read and check an OrderAck packet; errors count their offset from the packet's start."""
    message, after = parse_user_message(buffer, offset, end)
    packet = acknowledgment_in(message)
    if not isinstance(packet, OrderAck):
        raise ProtocolError(0, "OrderAck", SECTION_ORDER, "another kind of message")
    return packet, after


def parse_final_ack(buffer: Buffer, offset: int, end: int) -> tuple[FinalAck, int]:
    """Read and check a FinalAck packet; errors count their offset from the packet's start."""
    message, after = parse_user_message(buffer, offset, end)
    packet = acknowledgment_in(message)
    if not isinstance(packet, FinalAck):
        raise ProtocolError(0, "FinalAck", SECTION_FINAL, "another kind of message")
    return packet, after


def write_order_ack(packet: OrderAck) -> bytes:
    """Return the packet; its reserved body bytes are zero."""
    body = _write_body(packet, SECTION_ORDER_BODY, _ORDER_BODY_RESERVED, 0)
    return _write(packet, MessageClass.ORDER_ACK, body, SECTION_ORDER)


def write_final_ack(packet: FinalAck) -> bytes:
    """Return the packet."""
    if not FINAL_ACK_CLASS_MIN <= packet.message_class <= U16_MAX:
        raise ValueOutOfRange(
            "MessagePropertiesHeader.MessageClass",
            SECTION_FINAL,
            f"0x{packet.message_class:04X} is below 0x{FINAL_ACK_CLASS_MIN:04X}",
        )
    source = guid_bytes(packet.acknowledged_source, "FinalAck.SourceGUID", SECTION_FINAL_BODY)
    body = _write_body(packet, SECTION_FINAL_BODY, source, packet.acknowledged_message_id)
    return _write(packet, packet.message_class, body, SECTION_FINAL)


def _order_ack(message: UserMessage) -> OrderAck:
    ordinal, time_stamp, number, previous, _, _ = _parse_body(message, SECTION_ORDER_BODY)
    header = message.user_header
    return OrderAck(
        *_common_fields(header, TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)),
        number,
        previous,
        header.time_to_be_received,
        header.hop_count,
        header.is_recoverable,
        message.base_reserved,
    )


def _final_ack(message: UserMessage) -> FinalAck:
    ordinal, time_stamp, number, previous, source, message_id = _parse_body(
        message, SECTION_FINAL_BODY
    )
    header = message.user_header
    return FinalAck(
        *_common_fields(header, TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)),
        number,
        previous,
        message.properties.message_class,
        source,
        message_id,
        header.time_to_be_received,
        header.hop_count,
        header.is_recoverable,
        message.base_reserved,
    )


def _common_fields(
    header: UserHeader, sequence: TxSequenceId
) -> tuple[Guid, Guid, QueueName, int, int, TxSequenceId]:
    """Return the first fields of a SequenceAck."""
    assert header.destination_queue is not None
    return (
        header.source_queue_manager,
        header.queue_manager_address,
        header.destination_queue,
        header.sent_time,
        header.message_id,
        sequence,
    )


def _parse_body(message: UserMessage, section: str) -> tuple[int, int, int, int, Guid, int]:
    body = message.properties.message_body
    if len(body) != ACK_BODY_SIZE_BYTES:
        raise ProtocolError(
            _properties_offset(message) + 32,
            "MessagePropertiesHeader.MessageSize",
            section,
            f"{len(body)} bytes instead of {ACK_BODY_SIZE_BYTES}",
        )
    fields = _BODY.unpack(body)
    misfit = _number_misfit(fields[2], fields[3])
    if misfit is not None:
        at, field, reason = misfit
        label = (len(ACK_LABEL) + 1) * WCHAR_SIZE_BYTES
        body_offset = MESSAGE_PROPERTIES_MIN_BYTES + label + len(message.properties.extension_data)
        raise ProtocolError(_properties_offset(message) + body_offset + at, field, section, reason)
    return fields


def _properties_offset(message: UserMessage) -> int:
    """Return the offset of MessagePropertiesHeader in the packet that was read; for errors only."""
    bare = msgspec.structs.replace(
        message, debug=None, soap=None, multi_queue_format=None, session=None, is_traced=False
    )
    properties_size = len(write_message_properties_header(message.properties))
    return len(write_user_message(bare)) - properties_size


def _write_body(packet: OrderAck | FinalAck, section: str, guid: bytes, message_id: int) -> bytes:
    misfit = _number_misfit(packet.tx_sequence_number, packet.tx_previous_sequence_number)
    if misfit is not None:
        _, field, reason = misfit
        raise ValueOutOfRange(field, section, reason)
    return pack_fields(
        _BODY,
        type(packet).__name__,
        section,
        packet.tx_sequence_id.ordinal,
        packet.tx_sequence_id.time_stamp,
        packet.tx_sequence_number,
        packet.tx_previous_sequence_number,
        guid,
        message_id,
    )


def _number_misfit(number: int, previous: int) -> tuple[int, str, str] | None:
    """Return offset in the body, field and reason of the first number outside its range."""
    if number < 1:
        return 8, "MessageBody.TxSequenceNumber", f"{number}, numbers start at 1"
    if previous > PREVIOUS_TX_SEQUENCE_NUMBER_MAX:
        reason = f"{previous}, at most {PREVIOUS_TX_SEQUENCE_NUMBER_MAX}"
        return 12, "MessageBody.TxPreviousSequenceNumber", reason
    return None


def _write(packet: OrderAck | FinalAck, message_class: int, body: bytes, section: str) -> bytes:
    if not is_order_queue(packet.destination_queue):
        raise ValueOutOfRange(
            "UserHeader.DestinationQueue", section, "must be a queue manager's order_queue$"
        )
    header = UserHeader(
        packet.source_queue_manager,
        packet.destination_queue,
        packet.queue_manager_address,
        packet.time_to_be_received,
        packet.sent_time,
        packet.message_id,
        hop_count=packet.hop_count,
        is_recoverable=packet.is_recoverable,
    )
    properties = MessagePropertiesHeader(
        body,
        ACK_LABEL,
        message_class,
        hash_algorithm=_HASH_ALGORITHM,
        encryption_algorithm=_ENCRYPTION_ALGORITHM,
    )
    return write_user_message(
        UserMessage(header, properties, priority=0, base_reserved=packet.base_reserved)
    )

"""The packets to be sent: stored messages completed, order and final acknowledgements.

No number is assigned here (QB-A1): MessageID, SentTime, sequence and number of a message, and the
MessageID of a final acknowledgement, were committed before.
"""

from typing import Final

import msgspec

from qm.model.state.addressing import destination_of
from qm.model.values.records import FinalAckRow, OutboxRow, OutgoingPosition, decode
from qm.model.values.rows import SEQUENCE_IN_ROW, Position, PositionFlag
from qm.names.format_name import FormatName
from qm.session.outgoing import Numbers, own_packet
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import FLAG_AH, UserHeader
from qm.wire.packets.ack import (
    ORDER_QUEUE,
    FinalAck,
    OrderAck,
    order_queue_at,
    write_final_ack,
    write_order_ack,
)
from qm.wire.packets.peek import peek_destination, peek_head
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, QueueName

_SOURCE: Final = slice(16, 32)
"""UserHeader.SourceQueueManager in a packet."""


class Addressing:
    """Source and destination: what every packet of one outgoing queue has in its UserHeader."""

    def __init__(self, name: FormatName, own_guid: Guid) -> None:
        destination = destination_of(name)
        if destination is None:
            raise ValueError(f"no packet can carry {name!r}")
        self._name, self._address = destination
        self._own_guid = own_guid
        header = UserHeader(own_guid, self._name, self._address, sent_time=0, message_id=1)
        probe = write_user_message(UserMessage(header, MessagePropertiesHeader(b"")))
        self._key = peek_destination(probe, 0, peek_head(probe, 0))

    def addressed(self, packet: bytes) -> bytes:
        """Return a stored packet with this destination; copies of one send share the stored one."""
        head = peek_head(packet, 0)
        is_right = (
            head.queue_manager_address == self._address
            and peek_destination(packet, 0, head) == self._key
            and not head.user_flags & FLAG_AH  # a new header omits that
        )
        if is_right and packet[_SOURCE] == self._own_guid:
            return packet
        message, _ = parse_user_message(packet, 0, len(packet))
        header = msgspec.structs.replace(
            message.user_header,
            source_queue_manager=self._own_guid,
            destination_queue=self._named(message),
            queue_manager_address=self._address,
        )
        return write_user_message(msgspec.structs.replace(message, user_header=header))

    def _named(self, message: UserMessage) -> QueueName:
        """Return the name that a packet leaves with: this one, byte for byte, since receivers know
        a sequence by it. What is signed and in no sequence keeps its own letters, small or capital,
        which the signature covers.
        """
        own, security = message.user_header.destination_queue, message.security
        is_kept = (
            security is not None
            and bool(security.signature)
            and message.transaction is None
            and isinstance(own, DirectQueueFormatName)
            and isinstance(self._name, DirectQueueFormatName)
            and own.direct_format_name.lower() == self._name.direct_format_name.lower()
        )
        return own if is_kept and own is not None else self._name


def plain_packet(stored: bytes, position: Position) -> bytes:
    """Return a message that is not transactional, ready to be offered."""
    return own_packet(stored, position.message_ordinal, position.arrival_time)


def transactional_packet(
    stored: bytes, position: Position, row: OutgoingPosition, previous_number: int
) -> bytes:
    """Return a transactional message, ready to be offered."""
    numbers = Numbers(
        TxSequenceId.from_int(row.sequence_identifier),
        row.sequence_number,
        previous_number,
        row.transaction_tag,
        bool(position.flags & PositionFlag.FIRST_IN_TRANSACTION),
        bool(position.flags & PositionFlag.LAST_IN_TRANSACTION),
    )
    return own_packet(stored, position.message_ordinal, position.arrival_time, numbers)


def order_queue(guid: Guid, address: str, *, is_direct: bool) -> tuple[QueueName, Guid]:
    """Return DestinationQueue and QueueManagerAddress of an acknowledgement (QB-A22)."""
    if is_direct and address:
        return order_queue_at(address), GUID_NULL
    return ORDER_QUEUE, guid


def final_ack_packet(own_guid: Guid, row: OutboxRow) -> bytes:
    """Return the FinalAck that an outbox row owes; the same bytes each time."""
    final = decode(FinalAckRow, row.payload)
    queue, address = order_queue(row.queue_manager, row.address, is_direct=final.is_direct)
    return write_final_ack(
        FinalAck(
            own_guid,
            address,
            queue,
            row.since_ms // 1000,
            final.message_id,
            TxSequenceId.from_int(final.sequence_identifier),
            final.sequence_number,
            final.previous_sequence_number,
            final.message_class,
            final.acknowledged_source,
            final.acknowledged_message_id,
        )
    )


def order_ack_packet(
    own_guid: Guid,
    destination: tuple[QueueName, Guid],
    sequence_row: bytes,
    message_id: int,
    sent_time_s: int,
) -> bytes | None:
    """Return the OrderAck of an incoming sequence's row; None while nothing was accepted (QB-A9).

    It is express and repeated on demand (QB-A23), each time with another MessageID.
    """
    identifier, number, _, _ = SEQUENCE_IN_ROW.unpack(sequence_row)
    if not number:
        return None
    queue, address = destination
    return write_order_ack(
        OrderAck(
            own_guid,
            address,
            queue,
            sent_time_s,
            message_id,
            TxSequenceId.from_int(identifier),
            number,
            number - 1,
        )
    )

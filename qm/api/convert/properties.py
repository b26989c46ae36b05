"""Attributes of stored messages for readers: packet in, `Properties` out."""

from typing import Final

from qm.model.messages.message import DeliveryGuarantee, Message
from qm.model.messages.packets import deserialize_message_from_buffer, verified_level
from qm.model.values.records import GUID_NULL
from qm.pb import data_pb2
from qm.wire.errors import ProtocolError
from qm.wire.structures.identifiers import (
    MessageIdentifier,
    write_message_identifier,
    write_object_id,
)

_NO_CORRELATION: Final = bytes(20)
_DELIVERIES: Final = {
    DeliveryGuarantee.EXPRESS: data_pb2.EXPRESS,
    DeliveryGuarantee.RECOVERABLE: data_pb2.RECOVERABLE,
}


def properties_of(
    packet: bytes, lookup_identifier: int, arrived_time_s: int, flags: int, *, with_body: bool
) -> data_pb2.Properties:
    """Return the attributes of a packet that is in a queue; `flags`: PositionFlag of its place.

    A packet that apply accepted but that cannot be read has only its place.
    """
    level = verified_level(packet, flags)
    try:
        message = deserialize_message_from_buffer(packet, authentication_level=level)
    except ProtocolError:
        return data_pb2.Properties(
            lookup_identifier=lookup_identifier, arrived_time_s=arrived_time_s
        )
    properties = data_pb2.Properties(
        body=message.body if with_body else b"",
        body_type=message.body_type,
        label=_text(message.label),
        priority=message.priority,
        delivery=_DELIVERIES[message.delivery_guarantee],
        time_to_reach_queue_s=message.time_to_reach_queue,
        time_to_be_received_s=message.time_to_be_received,
        application_tag=message.application_tag,
        response_queue=_text(message.response_queue_format_name),
        administration_queue=_text(message.administration_queue_format_name),
        acknowledgements=message.acknowledgements_requested,
        dead_letter=message.negative_journaling_requested,
        journal=message.positive_journaling_requested,
        extension=message.extension,
        trace=message.tracing_requested,
        tracing_queue=_or_empty(message.tracing_queue_identifier),
        message_class=message.message_class,
        connector_type=_or_empty(message.connector_type_identifier),
        destinations=map(_text, message.destination_multi_queue_format_name),
        administration_queues=map(_text, message.administration_multi_queue_format_name),
        response_queues=map(_text, message.response_multi_queue_format_name),
        privacy_level=message.privacy_level,
        authentication_level=message.authentication_level,
        hash_algorithm=message.hash_algorithm,
        encryption_algorithm=message.encryption_algorithm,
        sender_certificate=message.sender_certificate,
        source_machine=message.source_machine_identifier,
        destination_queue=_text(message.destination_queue_format_name),
        sent_time_s=message.sent_time,
        arrived_time_s=arrived_time_s,
        lookup_identifier=lookup_identifier,
        message_id=message_id(message.identifier.lineage, message.identifier.uniquifier),
    )
    correlation = write_object_id(message.correlation_identifier)
    if correlation != _NO_CORRELATION:
        properties.correlation_id = correlation
    _add_security(properties, message)
    _add_transaction(properties, message)
    properties.soap_header = _text(message.soap_header)
    properties.soap_body = _text(message.soap_body)
    return properties


def message_id(queue_manager: bytes, ordinal: int) -> bytes:
    """Return the 20 bytes of a message's identifier."""
    return write_message_identifier(MessageIdentifier(queue_manager, ordinal))


def _add_security(properties: data_pb2.Properties, message: Message) -> None:
    properties.sender_id = message.sender_identifier
    properties.sender_id_type = message.sender_identifier_type
    properties.signature = message.signature
    properties.destination_symmetric_key = message.symmetric_key
    properties.authentication_provider_type = message.authentication_provider_type
    properties.authentication_provider_name = _text(message.authentication_provider_name)


def _add_transaction(properties: data_pb2.Properties, message: Message) -> None:
    if message.transaction_identifier is None:
        return
    properties.is_first_in_transaction = message.first_in_transaction
    properties.is_last_in_transaction = message.last_in_transaction
    properties.transaction_id = message_id(
        message.source_machine_identifier, message.transaction_identifier
    )
    properties.transaction_status_queue = _text(message.transaction_status_queue_format_name)


def _text(text: str) -> str:
    """Return text that protobuf can carry: half a surrogate pair in a packet is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _or_empty(guid: bytes) -> bytes:
    return b"" if guid == GUID_NULL else guid

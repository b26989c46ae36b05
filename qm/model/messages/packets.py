"""Conversion of a Message (3.1.1.12) to its packet and back: the pure events 3.1.7.1.30 to .32.

Sections without a name are [MS-MQDMPR].
"""

from enum import IntEnum
from typing import Final

import msgspec

from qm.model.messages.message import (
    AUTHENTICATION_LEVELS,
    PROVIDER_BASE,
    PROVIDER_TYPE_DEFAULT,
    AdministrationQueueType,
    AuthenticationLevel,
    DeliveryGuarantee,
    DestinationQueueType,
    Message,
    ResponseQueueType,
    SenderIdentifierType,
)
from qm.model.state.addressing import format_name_of, text_of_guid_name
from qm.model.values.records import GUID_NULL
from qm.model.values.rows import PositionFlag
from qm.names.format_name import (
    DIRECT_PREFIX,
    DistributionListName,
    PrivateName,
    PublicName,
    format_name_text,
    parse_format_name,
)
from qm.wire.enums import PrivacyLevel
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import (
    DistributionQueueFormatName,
    FormatNameElement,
    MultiQueueFormatHeader,
)
from qm.wire.headers.security_header import (
    ProviderInfo,
    SecurityHeader,
    parse_provider_info,
    write_provider_info,
)
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.peek import peek_signature_version
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import ObjectId, TxSequenceId, parse_object_id, write_object_id
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
    write_queue_name,
)

SECTION: Final = "MS-MQDMPR 3.1.1.12"

# Packet to message -------------------------------------------------------------------------


def deserialize_message_from_buffer(
    buffer: bytes | memoryview, *, authentication_level: int = 0
) -> Message:
    """3.1.7.1.31: the message of a whole UserMessage packet; raises ProtocolError.

    `authentication_level` is the code of the receiver's own verification (0, 1, 3, 5): AU and AS
    in the packet prove nothing and are ignored.
    """
    packet, _ = parse_user_message(buffer, 0, len(buffer))
    header, properties = packet.user_header, packet.properties
    destination, administration, response = (
        write_queue_name(name, "UserHeader")[0]
        for name in (header.destination_queue, header.admin_queue, header.response_queue)
    )
    correlation, _ = parse_object_id(properties.correlation_id, 0, len(properties.correlation_id))
    message = Message(
        identifier=ObjectId(header.source_queue_manager, header.message_id),
        message_class=properties.message_class,
        privacy_level=properties.privacy_level,
        delivery_guarantee=DeliveryGuarantee(header.is_recoverable),
        tracing_requested=packet.is_traced,
        priority=packet.priority,
        positive_journaling_requested=header.has_positive_journaling,
        negative_journaling_requested=header.has_negative_journaling,
        response_queue_format_name=format_name_of(header.response_queue, header),
        administration_queue_format_name=format_name_of(header.admin_queue, header),
        destination_queue_format_name=format_name_of(header.destination_queue, header),
        application_tag=properties.application_tag,
        body_type=properties.body_type,
        body=properties.message_body,
        extension=properties.extension_data,
        label=properties.label or "",
        source_machine_identifier=header.source_queue_manager,
        destination_queue_manager_identifier=header.queue_manager_address,
        correlation_identifier=correlation,
        acknowledgements_requested=properties.flags,
        sent_time=header.sent_time,
        time_to_reach_queue=packet.time_to_reach_queue,
        time_to_be_received=header.time_to_be_received,
        hash_algorithm=properties.hash_algorithm,
        encryption_algorithm=properties.encryption_algorithm,
        destination_queue_type=DestinationQueueType(destination) if destination else None,
        administration_queue_type=AdministrationQueueType(administration),
        response_queue_type=ResponseQueueType(response),
        connector_type_identifier=header.connector_type or GUID_NULL,
    )
    return _with_optional_headers(message, packet, authentication_level)


def verified_level(packet: bytes | memoryview, flags: int) -> int:
    """Return `authentication_level` for a stored packet: AS, which counts only if apply said so.

    `flags`: PositionFlag of its position.
    """
    return peek_signature_version(packet) if flags & PositionFlag.AUTHENTICATED else 0


def _with_optional_headers(message: Message, packet: UserMessage, level: int) -> Message:
    """Add attributes from optional headers; those of an absent header are skipped."""
    more: dict[str, object] = {}
    if packet.security is not None:
        more |= _of_security(packet.security)
        more["authentication_level"] = AUTHENTICATION_LEVELS.get(level, AuthenticationLevel.NONE)
    transaction = packet.transaction
    if transaction is not None:
        more |= {
            "transactional_message_sequence_identifier": transaction.tx_sequence_id,
            "transaction_sequence_number": transaction.tx_sequence_number,
            "transaction_previous_sequence_number": transaction.previous_tx_sequence_number,
            "transaction_identifier": transaction.transaction_id,
            "final_ack_required": transaction.is_final_ack_wanted,
            "first_in_transaction": transaction.is_first,
            "last_in_transaction": transaction.is_last,
            "connector_queue_manager_identifier": transaction.connector_qm_guid or GUID_NULL,
        }
    lists = packet.multi_queue_format
    if lists is not None:
        more |= {
            "destination_multi_queue_format_name": tuple(map(_element_text, lists.destination)),
            "administration_multi_queue_format_name": tuple(
                map(_element_text, lists.administration)
            ),
            "response_multi_queue_format_name": tuple(map(_element_text, lists.response)),
            "multiple_destination_signature": lists.signature,
        }
    if packet.debug is not None:
        more["tracing_queue_identifier"] = packet.debug.queue_identifier or GUID_NULL
    if packet.soap is not None:
        more |= {"soap_header": packet.soap.header or "", "soap_body": packet.soap.body or ""}
    return msgspec.structs.replace(message, **more) if more else message


def _of_security(security: SecurityHeader) -> dict[str, object]:
    attributes: dict[str, object] = {
        "sender_identifier_type": SenderIdentifierType(security.sender_id_type),
        "sender_identifier": security.security_id,
        "symmetric_key": security.encryption_key,
        "signature": security.signature,
        "sender_certificate": security.sender_cert,
    }
    raw = security.provider_info
    if raw:
        try:
            info, _ = parse_provider_info(raw, 0, len(raw))
        except ProtocolError:
            # The message is readable without it; verification will not find such a provider.
            info = ProviderInfo(0, "")
        attributes["authentication_provider_type"] = info.provider_type
        attributes["authentication_provider_name"] = info.provider_name
    return attributes


def _element_text(element: FormatNameElement) -> str:
    match element:
        case DirectQueueFormatName():
            return DIRECT_PREFIX + element.direct_format_name
        case PublicQueueFormatName() | PrivateQueueFormatName():
            return text_of_guid_name(element)
        case DistributionQueueFormatName():
            return format_name_text(DistributionListName(element.distribution_list_identifier))


# Message to packet -------------------------------------------------------------------------


def construct_user_message_packet(message: Message) -> UserMessage:
    """3.1.7.1.30: the headers that the message's attributes need.

    Raises ValueOutOfRange or QueueNameError for attributes that no packet can carry.
    """
    header = UserHeader(
        source_queue_manager=message.source_machine_identifier,
        destination_queue=_reference(
            message.destination_queue_type,
            message.destination_queue_format_name,
            "DestinationQueue",
        ),
        queue_manager_address=message.destination_queue_manager_identifier,
        time_to_be_received=message.time_to_be_received,
        sent_time=message.sent_time,
        message_id=message.identifier.uniquifier,
        admin_queue=_reference(
            message.administration_queue_type,
            message.administration_queue_format_name,
            "AdministrationQueue",
        ),
        response_queue=_reference(
            message.response_queue_type, message.response_queue_format_name, "ResponseQueue"
        ),
        connector_type=_or_none(message.connector_type_identifier),
        is_recoverable=message.delivery_guarantee is DeliveryGuarantee.RECOVERABLE,
        has_negative_journaling=message.negative_journaling_requested,
        has_positive_journaling=message.positive_journaling_requested,
    )
    properties = MessagePropertiesHeader(
        message_body=message.body,
        label=message.label or None,
        message_class=message.message_class,
        flags=message.acknowledgements_requested,
        correlation_id=write_object_id(message.correlation_identifier),
        body_type=message.body_type,
        application_tag=message.application_tag,
        privacy_level=message.privacy_level,
        hash_algorithm=message.hash_algorithm,
        encryption_algorithm=message.encryption_algorithm,
        extension_data=message.extension,
    )
    soap = None
    if message.soap_header or message.soap_body:
        soap = SoapHeader(message.soap_header or None, message.soap_body or None)
    transaction = _transaction(message)
    return UserMessage(
        header,
        properties,
        transaction,
        _security(message),
        _debug(message),
        soap,
        _lists(message),
        priority=0 if transaction is not None else message.priority,
        time_to_reach_queue=message.time_to_reach_queue,
        is_traced=message.tracing_requested,
    )


def serialize_message_to_buffer(message: Message) -> bytes:
    """3.1.7.1.32: the packet; PacketSize is the size written. Raises like Construct."""
    return write_user_message(construct_user_message_packet(message))


def _reference(queue_type: IntEnum | None, text: str, field: str) -> QueueName | None:
    """Return a name in the form of its queue type, which also gives a private queue's host."""
    code = int(queue_type) if queue_type is not None else 0
    if code == ResponseQueueType.NONE:
        if text:
            raise ValueOutOfRange(
                f"Message.{field}Type", SECTION, f"none, but the name is {text!r}; set the type"
            )
        return None
    if code == ResponseQueueType.SAME_AS_ADMINISTRATION_QUEUE:
        return SameAsAdminQueue()
    if code == ResponseQueueType.DIRECT_QUEUE:
        return _direct(text)
    name = parse_format_name(text)
    if code == ResponseQueueType.PUBLIC_QUEUE and isinstance(name, PublicName):
        return PublicQueueFormatName(name.guid)
    if code != ResponseQueueType.PUBLIC_QUEUE and isinstance(name, PrivateName):
        if code == ResponseQueueType.PRIVATE_QUEUE_ON_OTHER:
            return PrivateQueueFormatName(name.guid, name.number)
        return PrivateQueueFormatNameId(QueueHost(code), name.number)
    raise ValueOutOfRange(f"Message.{field}Type", SECTION, f"{code} is not the type of {text!r}")


def _direct(text: str) -> DirectQueueFormatName:
    has_prefix = text[: len(DIRECT_PREFIX)].upper() == DIRECT_PREFIX
    return DirectQueueFormatName(text[len(DIRECT_PREFIX) :] if has_prefix else text)


def _transaction(message: Message) -> TransactionHeader | None:
    if message.transaction_identifier is None:
        return None
    return TransactionHeader(
        message.transactional_message_sequence_identifier or TxSequenceId.from_int(0),
        # Numbers start at 1; one that is not yet assigned is patched before it leaves (QB-A1).
        message.transaction_sequence_number or 1,
        message.transaction_previous_sequence_number,
        message.transaction_identifier,
        message.final_ack_required,
        message.first_in_transaction,
        message.last_in_transaction,
        _or_none(message.connector_queue_manager_identifier),
    )


def _security(message: Message) -> SecurityHeader | None:
    """Return the header if AuthenticationLevel or an attribute that only it carries needs it:
    without it a sender's identity or a key would be lost.
    """
    provider = ProviderInfo(
        message.authentication_provider_type, message.authentication_provider_name
    )
    is_own_provider = provider == ProviderInfo(PROVIDER_TYPE_DEFAULT, PROVIDER_BASE)
    has_items = bool(
        message.sender_identifier
        or message.symmetric_key
        or message.signature
        or message.sender_certificate
    )
    is_asked_for = message.authentication_level is not AuthenticationLevel.NONE
    if not is_asked_for and not has_items and is_own_provider:
        return None
    # A header must have an item: the default provider is then named, too.
    info = b"" if is_own_provider and has_items else write_provider_info(provider)
    return SecurityHeader(
        message.sender_identifier_type,
        message.privacy_level != PrivacyLevel.NONE,
        is_own_provider and bool(message.signature),
        message.sender_identifier,
        message.symmetric_key,
        message.signature,
        message.sender_certificate,
        info,
    )


def _debug(message: Message) -> DebugHeader | None:
    """DM-A32: it follows TracingQueueIdentifier; TR alone needs an empty header to be legal."""
    queue = _or_none(message.tracing_queue_identifier)
    return DebugHeader(queue) if queue is not None or message.tracing_requested else None


def _lists(message: Message) -> MultiQueueFormatHeader | None:
    """DestinationMultiQueueFormatName needs the header, which then carries all lists."""
    lists = MultiQueueFormatHeader(
        tuple(map(_element, message.destination_multi_queue_format_name)),
        tuple(map(_element, message.administration_multi_queue_format_name)),
        tuple(map(_element, message.response_multi_queue_format_name)),
        message.multiple_destination_signature,
    )
    return None if lists == MultiQueueFormatHeader() else lists


def _element(text: str) -> FormatNameElement:
    if text[: len(DIRECT_PREFIX)].upper() == DIRECT_PREFIX:
        return _direct(text)
    name = parse_format_name(text)
    if isinstance(name, PublicName):
        return PublicQueueFormatName(name.guid)
    if isinstance(name, PrivateName):
        return PrivateQueueFormatName(name.guid, name.number)
    if isinstance(name, DistributionListName):
        return DistributionQueueFormatName(name.guid)
    raise ValueOutOfRange(
        "Message.DestinationMultiQueueFormatName", SECTION, f"{text!r} has no place in a list"
    )


def _or_none(guid: Guid) -> Guid | None:
    return guid if guid != GUID_NULL else None

"""Message (3.1.1.12) and the enumerations of its attributes.

Sections without a name are [MS-MQDMPR]. The state machine keeps packets, never these values, which
applications set and read. Codes of enumerations are those of the packet; an undefined code passes
through as an integer (DM-A31).
"""

from enum import IntEnum
from typing import Final

import msgspec

from qm.model.values.limits import TIME_TO_LIVE_DEFAULT_S
from qm.model.values.records import GUID_NULL
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from qm.wire.guid import Guid
from qm.wire.limits import PRIORITY_DEFAULT, TIME_INFINITE_S
from qm.wire.message_class import MessageClass
from qm.wire.structures.identifiers import ObjectId, TxSequenceId

PROVIDER_TYPE_DEFAULT: Final = 1
PROVIDER_BASE: Final = "Microsoft Base Cryptographic Provider, v1.0"
PROVIDER_ENHANCED: Final = "Microsoft Enhanced Cryptographic Provider, v1.0"


class UnusedMessageClass(IntEnum):
    """Values of Message.Class in 3.1.1.12 beyond `qm.wire.message_class.MessageClass`.

    No queue manager is known to send them.
    """

    NACK_COULD_NOT_ENCRYPT = 0x8008
    NACK_SOURCE_COMPUTER_GUID_CHANGED = 0x800C
    NACK_RECEIVE_TIMEOUT_AT_SENDER = 0xC003


class AuthenticationLevel(IntEnum):
    """How a message was signed, as its receiver determined."""

    NONE = 0
    SIG10 = 1
    SIG20 = 3
    SIG30 = 5
    XML_SIG = 0x100
    """Only for messages over HTTP; no packet has a code for it."""


AUTHENTICATION_LEVELS: Final[dict[int, AuthenticationLevel]] = {
    code.value: code for code in AuthenticationLevel if code < 0x10
}
"""By the value of SecurityHeader.Flags.AU that a receiver sets."""


class DeliveryGuarantee(IntEnum):
    """UserHeader.Flags.DM."""

    EXPRESS = 0
    RECOVERABLE = 1


class SenderIdentifierType(IntEnum):
    """SecurityHeader.Flags.ST."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER_IDENTIFIER = 2


class DestinationQueueType(IntEnum):
    """UserHeader.Flags.DQ."""

    PRIVATE_QUEUE = 3
    PUBLIC_QUEUE = 5
    DIRECT_QUEUE = 7


class AdministrationQueueType(IntEnum):
    """UserHeader.Flags.AQ."""

    NONE = 0
    PRIVATE_QUEUE_ON_SOURCE = 2
    PRIVATE_QUEUE_ON_DESTINATION = 3
    PUBLIC_QUEUE = 5
    PRIVATE_QUEUE_ON_OTHER = 6
    DIRECT_QUEUE = 7


class ResponseQueueType(IntEnum):
    """UserHeader.Flags.RQ."""

    NONE = 0
    SAME_AS_ADMINISTRATION_QUEUE = 1
    PRIVATE_QUEUE_ON_SOURCE = 2
    PRIVATE_QUEUE_ON_DESTINATION = 3
    PRIVATE_QUEUE_ON_ADMIN = 4
    PUBLIC_QUEUE = 5
    PRIVATE_QUEUE_ON_OTHER = 6
    DIRECT_QUEUE = 7


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message with the attribute names (DM-A33) and defaults of 3.1.1.12.

    Times are seconds, `sent_time` and `arrival_time` since 1970 UTC. GUIDs are 16 raw packet bytes.
    Format names are absolute texts. "" , b"" and GUID_NULL mean that an attribute is absent.
    """

    identifier: ObjectId = ObjectId(GUID_NULL, 0)
    lookup_identifier: int = 0
    message_position_reference: tuple[int, int] | None = None
    """(queue_id, LookupIdentifier) of its position."""
    arrival_time: int = 0
    allow_peek_when_locked: bool = False
    application_deadletter_queue: str = ""
    """A path name."""
    message_class: int = MessageClass.NORMAL
    """Class: predefined, or any u16 of the application."""
    privacy_level: int = PrivacyLevel.NONE
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXPRESS
    tracing_requested: bool = False
    tracing_queue_identifier: Guid = GUID_NULL
    priority: int = PRIORITY_DEFAULT
    positive_journaling_requested: bool = False
    negative_journaling_requested: bool = False
    response_queue_format_name: str = ""
    response_multi_queue_format_name: tuple[str, ...] = ()
    administration_queue_format_name: str = ""
    administration_multi_queue_format_name: tuple[str, ...] = ()
    destination_queue_format_name: str = ""
    destination_multi_queue_format_name: tuple[str, ...] = ()
    multiple_destination_signature: bytes = b""
    signature: bytes = b""
    symmetric_key: bytes = b""
    application_tag: int = 0
    body_type: int = 0
    body: bytes = b""
    extension: bytes = b""
    label: str = ""
    """At most 249 characters."""
    source_machine_identifier: Guid = GUID_NULL
    destination_queue_manager_identifier: Guid = GUID_NULL
    connector_queue_manager_identifier: Guid = GUID_NULL
    correlation_identifier: ObjectId = ObjectId(GUID_NULL, 0)
    acknowledgements_requested: int = 0
    """Bits of `qm.wire.message_class.AcknowledgeFlags`."""
    sent_time: int = 0
    time_to_reach_queue: int = TIME_TO_LIVE_DEFAULT_S
    time_to_be_received: int = TIME_INFINITE_S
    hash_algorithm: int = HashAlgorithm.SHA512
    """DM-A36: the default of current systems."""
    encryption_algorithm: int = EncryptionAlgorithm.RC4
    destination_queue_type: DestinationQueueType | None = None
    administration_queue_type: AdministrationQueueType = AdministrationQueueType.NONE
    response_queue_type: ResponseQueueType = ResponseQueueType.NONE
    sender_identifier: bytes = b""
    sender_identifier_type: SenderIdentifierType = SenderIdentifierType.SID
    sender_certificate: bytes = b""
    connector_type_identifier: Guid = GUID_NULL
    authentication_provider_type: int = PROVIDER_TYPE_DEFAULT
    authentication_provider_name: str = PROVIDER_BASE
    transactional_message_sequence_identifier: TxSequenceId | None = None
    transaction_sequence_number: int = 0
    transaction_previous_sequence_number: int = 0
    transaction_identifier: int | None = None
    """The 20 bits that distinguish a sender's transactions; None = not transactional."""
    final_ack_required: bool = False
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    transaction_status_queue_format_name: str = ""
    soap_envelope: str = ""
    soap_compound_message: str = ""
    soap_body: str = ""
    soap_header: str = ""

"""Values that no message may have, in attributes and in packets that callers bring."""

from typing import Final

from qm.api.gate.errors import InvalidArgument, MsmqError
from qm.model.messages.message import SenderIdentifierType
from qm.model.values.limits import MESSAGE_LABEL_MAX_CHARS
from qm.model.values.records import GUID_NULL
from qm.names.guid import GUID_SIZE_BYTES
from qm.pb import data_pb2
from qm.security.body_encryption import is_privacy_level
from qm.security.sid import SID_SIZE_MAX_BYTES
from qm.wire.codes import ErrorCode
from qm.wire.enums import EncryptionAlgorithm
from qm.wire.limits import SENDER_CERT_MAX_BYTES, U16_MAX
from qm.wire.message_class import (
    MESSAGE_CLASS_CUSTOM_MASK,
    AcknowledgeFlags,
    MessageClass,
    MessageClassRole,
    message_class_role,
)
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.public_key import MODULUS_MAX_BYTES

PRIORITY_MAX: Final = 7
_ACKNOWLEDGEMENTS_MAX: Final = int(
    AcknowledgeFlags.PA | AcknowledgeFlags.PR | AcknowledgeFlags.NA | AcknowledgeFlags.NR
)
_SENDER_TYPES: Final = frozenset(map(int, SenderIdentifierType))
_CIPHERS: Final = frozenset(map(int, EncryptionAlgorithm))


def check_attributes(given: data_pb2.Properties) -> None:
    """Raise InvalidArgument, MsmqError for attributes with values that no message may have."""
    label_chars = len(given.label.encode("utf-16-le", "surrogatepass")) // 2
    if label_chars > MESSAGE_LABEL_MAX_CHARS or "\0" in given.label:
        raise InvalidArgument(
            "label",
            f"{label_chars} UTF-16 code units; {MESSAGE_LABEL_MAX_CHARS} without NUL are allowed",
        )
    if given.priority > PRIORITY_MAX:
        raise InvalidArgument("priority", f"{given.priority}; 0 to {PRIORITY_MAX} are allowed")
    if given.delivery not in (data_pb2.EXPRESS, data_pb2.RECOVERABLE):
        raise InvalidArgument("delivery", f"{given.delivery}; EXPRESS or RECOVERABLE")
    if given.acknowledgements & ~_ACKNOWLEDGEMENTS_MAX:
        raise InvalidArgument("acknowledgements", f"{given.acknowledgements:#x}; bits 1, 2, 4, 8")
    if given.acknowledgements and not given.administration_queue:
        raise InvalidArgument(
            "administration_queue", "acknowledgements need an administration queue"
        )
    for field in ("tracing_queue", "connector_type"):
        value: bytes = getattr(given, field)
        if len(value) not in (0, GUID_SIZE_BYTES):
            raise InvalidArgument(field, f"{len(value)} bytes; a GUID has {GUID_SIZE_BYTES}")
    if given.message_class > U16_MAX:
        raise InvalidArgument("message_class", f"{given.message_class}; at most {U16_MAX}")
    _check_class(given.message_class, given.connector_type)
    _check_security(given)


def check_headers(message: UserMessage) -> None:
    """Raise InvalidArgument for a packet with values that no sender may set ([MS-MQMQ] 2.2.19.3).

    Of what is signed or encrypted its receiver judges the rest.
    """
    properties = message.properties
    try:
        _check_class(properties.message_class, message.user_header.connector_type or GUID_NULL)
        _check_level(properties.privacy_level)
    except InvalidArgument as error:
        raise InvalidArgument("packet", str(error)) from None
    cipher = properties.encryption_algorithm
    if cipher not in _CIPHERS:  # of attributes, one is chosen instead once a body is encrypted
        known = ", ".join(f"{one:#06x}" for one in sorted(_CIPHERS))
        raise InvalidArgument("packet", f"EncryptionAlgorithm: {cipher:#06x}; {known}")


def _check_class(message_class: int, connector_type: bytes) -> None:
    if message_class != MessageClass.NORMAL and not any(connector_type):
        raise InvalidArgument("connector_type", "only connectors choose a message's class")
    if message_class_role(message_class) is MessageClassRole.UNDEFINED:
        raise InvalidArgument(
            "message_class",
            f"{message_class:#06x} is not defined, and an application's own has bits of "
            f"{MESSAGE_CLASS_CUSTOM_MASK:#06x} alone [MS-MQMQ 2.2.18.1.6]",
        )


def _check_level(privacy_level: int) -> None:
    if not is_privacy_level(privacy_level):
        raise InvalidArgument("privacy_level", f"{privacy_level}; 0, 1, 3 or 5")


def _check_security(given: data_pb2.Properties) -> None:
    _check_level(given.privacy_level)
    if given.sender_id_type not in _SENDER_TYPES:
        raise InvalidArgument("sender_id_type", f"{given.sender_id_type}; 0, 1 or 2")
    is_asked_for = bool(given.authentication_level)
    brings_own = given.signature or given.destination_symmetric_key
    if brings_own and not given.connector_type:
        raise MsmqError(
            ErrorCode.MQ_ERROR_MISSING_CONNECTOR_TYPE,
            "only connectors bring a signature or an encrypted body",
        )
    if given.sender_id and not (is_asked_for or given.connector_type):
        raise InvalidArgument("sender_id", "it is proven by a signature: set authentication_level")
    if given.sender_certificate and not (is_asked_for or given.connector_type):
        raise InvalidArgument("sender_certificate", "set authentication_level as well")
    for field, limit in (
        ("sender_id", SID_SIZE_MAX_BYTES),
        ("sender_certificate", SENDER_CERT_MAX_BYTES),
        ("signature", MODULUS_MAX_BYTES),
        ("destination_symmetric_key", MODULUS_MAX_BYTES + GUID_SIZE_BYTES),
    ):
        size = len(getattr(given, field))
        if size > limit:
            raise InvalidArgument(field, f"{size} bytes; at most {limit}")

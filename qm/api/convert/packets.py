"""Converts messages that clients send into packets: checks attributes, makes names absolute.

Apply assigns MessageIDs; sequence numbers follow when a packet leaves; stored packets have zeros in
their places. Callers sign: they get the packet composed, and bring it signed. Bodies are encrypted
when they leave, so that what is stored, journaled or dead here is in clear.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from qm.api.convert.checks import check_attributes, check_headers
from qm.api.convert.names import absolute_text
from qm.api.gate.errors import InvalidArgument, MsmqError
from qm.api.gate.identity import Principal, Role
from qm.model.messages.message import (
    AdministrationQueueType,
    DeliveryGuarantee,
    DestinationQueueType,
    Message,
    ResponseQueueType,
    SenderIdentifierType,
)
from qm.model.messages.packets import construct_user_message_packet
from qm.model.queries import (
    View,
    default_time_to_reach_queue,
    find_by_format_name,
    security_policy,
)
from qm.model.state.addressing import destination_of
from qm.model.values.elements import QueueKind
from qm.model.values.limits import (
    COPIES_PER_SEND_MAX_BYTES,
    PACKET_MAX_BYTES,
    TARGETS_PER_SEND_MAX,
)
from qm.model.values.records import GUID_NULL, QueueManager
from qm.names.direct import AnyDirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    MultipleElementName,
    PrivateName,
    PublicName,
    format_name_text,
    parse_format_name,
)
from qm.pb import data_pb2
from qm.security.body_encryption import ENCRYPTION_MAX_BYTES
from qm.wire.codes import ErrorCode
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.base_header import BASE_HEADER_SIZE_BYTES
from qm.wire.headers.security_header import SENDER_ID_SID
from qm.wire.limits import (
    CORRELATION_ID_SIZE_BYTES,
    MQF_ELEMENTS_MAX,
    PRIORITY_DEFAULT,
    TIME_INFINITE_S,
    TRANSACTION_ID_MAX,
)
from qm.wire.packets.patch import patch_message_id, patch_sent_time
from qm.wire.packets.peek import is_transactional, peek_head
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import ObjectId, parse_object_id

NAMES_IN_HAND_MAX: Final = 4_096
"""Names whose kind is cached from message to message."""
_GUID_BYTES: Final = 16
_NO_CORRELATION: Final = ObjectId(GUID_NULL, 0)


class PacketBuilder:
    """Builds packets for one call: one view, one time, perhaps one transaction."""

    def __init__(self, view: View, now_ms: int, transaction: bytes | None, who: Principal) -> None:
        """`now_ms`: SentTime, cluster time. Raises MsmqError if there is no queue manager yet."""
        manager = view.ledger.manager
        if manager is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        self._view = view
        self._manager: QueueManager = manager
        self._sent_time = now_ms // 1000
        self._time_to_reach_queue_s = default_time_to_reach_queue(view)
        self._transaction = transaction
        self._who = who
        self._copied_bytes = 0
        """Bytes of packets for several targets, so far."""
        self._absolute: dict[str, str] = {}
        """Names seen in this call, most of which its messages share."""

    def absolute(self, text: str, field: str) -> str:
        """Return `absolute_text`."""
        known = self._absolute.get(text)
        if known is None:
            known = self._absolute[text] = absolute_text(self._view, text, field)
        return known

    def targets(self, message: data_pb2.OutgoingMessage) -> tuple[str, ...]:
        """Return the destinations as absolute format names."""
        if not 1 <= len(message.targets) <= TARGETS_PER_SEND_MAX:
            raise InvalidArgument("targets", f"1 to {TARGETS_PER_SEND_MAX} format names")
        return tuple(
            self.absolute(_given(text, f"targets[{place}]"), f"targets[{place}]")
            for place, text in enumerate(message.targets)
        )

    def packets(self, message: data_pb2.OutgoingMessage, targets: Sequence[str]) -> Sequence[bytes]:
        """Return the packet of a message for each of these destinations.

        Each names its own destination, and all of them the list ([MS-MQDMPR] 3.1.7.1.27). Raises
        InvalidArgument, Unsupported.
        """
        kind = message.WhichOneof("content")
        if len(targets) > 1:  # checked before they are made
            self._bound_copies(len(targets) * (len(message.packet) or len(message.properties.body)))
        if kind == "packet":
            packets = self._adopted(message.packet, targets)
        elif kind is None:
            raise InvalidArgument("properties", "give either properties or a packet")
        else:
            for place, target in enumerate(targets):
                _check_target(target, f"targets[{place}]")
            if message.properties.authentication_level and not message.properties.signature:
                raise InvalidArgument(
                    "properties.authentication_level", "sign the packet that Compose returns"
                )
            packets = self._checked(message.properties, targets, self._sender(message.properties))
        if len(targets) > 1:
            self._copied_bytes += sum(map(len, packets))
            self._bound_copies(0)
        return packets

    def _sender(self, given: data_pb2.Properties) -> bytes:
        """Return the SID that an unsigned message names: the caller's, if it asks for that, or what
        a connector application says.

        Raises MsmqError for another's, where receivers are told to believe it (`_check_claim`).
        """
        if not given.sender_id and given.sender_id_type == SenderIdentifierType.SID:
            return self._who.sids[0]
        if not given.signature:
            self._check_claim(given.sender_id)
        return given.sender_id

    def _check_claim(self, sid: bytes) -> None:
        """Raise MsmqError if nobody may be told without proof that this SID sends (QB-A74)."""
        policy = security_policy(self._view)
        is_believed = policy is not None and policy.trusts_sender_id
        if not sid or not is_believed or self._who.role is Role.ADMIN or sid in self._who.sids:
            return
        raise MsmqError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            "an unsigned message may name its caller's SID alone, because msmq.trust_sender_id has"
            " such names believed: sign it",
        )

    def composed(self, message: data_pb2.OutgoingMessage, targets: Sequence[str]) -> bytes:
        """Return the packet of a message for its caller to sign.

        Several destinations share it: their packets differ in what version 3.0 does not sign.
        """
        given = message.properties
        if message.WhichOneof("content") != "properties" or not given.authentication_level:
            raise InvalidArgument(
                "properties.authentication_level", "what is composed is to be signed: say how"
            )
        if not given.sender_certificate:
            raise MsmqError(ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED)
        for place, target in enumerate(targets):
            _check_target(target, f"targets[{place}]")
        is_anonymous = given.HasField("sender_id_type") and not given.sender_id_type
        sender = given.sender_id or (b"" if is_anonymous else self._who.sids[0])
        return self._checked(given, [self._leaving(one) for one in targets], sender)[0]

    def _leaving(self, target: str) -> str:
        """Return the name with which a packet leaves for a destination, since that is signed.

        An outgoing queue has one for all packets: receivers know a sequence by its bytes.
        """
        found = find_by_format_name(self._view, target).queue_id
        queue = self._view.ledger.queue(found) if found > 0 else None
        if queue is None:
            return format_name_text(parse_format_name(target))
        return queue.record.pathname if queue.record.kind is QueueKind.OUTGOING else target

    def _bound_copies(self, more_bytes: int) -> None:
        """Raise InvalidArgument if the copies together would be too long."""
        size = self._copied_bytes + more_bytes
        if size > COPIES_PER_SEND_MAX_BYTES:
            raise InvalidArgument(
                "targets",
                f"with these, packets for several queues have {size} bytes;"
                f" {COPIES_PER_SEND_MAX_BYTES} are allowed in a call: send to fewer at a time",
            )

    def _checked(
        self, given: data_pb2.Properties, targets: Sequence[str], sender: bytes
    ) -> list[bytes]:
        try:
            check_attributes(given)
            packets = self._built(given, targets, sender)
        except InvalidArgument as error:
            raise error.within("properties") from None
        longest = max(map(len, packets)) + (ENCRYPTION_MAX_BYTES if given.privacy_level else 0)
        if longest > PACKET_MAX_BYTES:
            raise InvalidArgument(
                "properties.body",
                f"the packet would have {longest} bytes; {PACKET_MAX_BYTES} are allowed,"
                " headers included",
            )
        return packets

    # Packets that callers bring ----------------------------------------------------------

    def _adopted(self, given: bytes, targets: Sequence[str]) -> list[bytes]:
        """Make a given packet one of this queue manager's. The names in it stay if it is for one
        destination.
        """
        try:
            message, end = parse_user_message(given, 0, len(given))
        except ProtocolError as error:
            raise InvalidArgument("packet", str(error)) from None
        if end != len(given) or end > PACKET_MAX_BYTES:
            raise InvalidArgument("packet", f"{len(given)} bytes; the message in it has {end}")
        if is_transactional(peek_head(given, 0)) != (self._transaction is not None):
            raise InvalidArgument(
                "packet", "all messages of transactions, and no others, have a TransactionHeader"
            )
        check_headers(message)
        security = message.security
        is_claim = security is not None and not _is_signed(message)
        if security is not None and is_claim and security.sender_id_type == SENDER_ID_SID:
            self._check_claim(security.security_id)
        # Written anew, without what no sender sets (AU, AS, AH, unused flags), and without a
        # SessionHeader, which belongs to a session.
        message = msgspec.structs.replace(message, session=None)
        if len(targets) == 1:
            return [self._own(_rewritten(message))]
        own = self._manager.identifier
        return [self._own(_addressed(message, target, own)) for target in targets]

    def _own(self, given: bytes) -> bytes:
        packet = bytearray(given)
        start = BASE_HEADER_SIZE_BYTES
        packet[start : start + _GUID_BYTES] = self._manager.identifier
        patch_message_id(packet, 0, 0)
        patch_sent_time(packet, 0, self._sent_time)
        return bytes(packet)

    # Packets from attributes -------------------------------------------------------------

    def _built(
        self, given: data_pb2.Properties, targets: Sequence[str], sender: bytes
    ) -> list[bytes]:
        try:
            message = self._message(given, targets, sender)
            own = self._manager.identifier
            return [stored_packet(sent_to(message, target, own)) for target in targets]
        except (ValueOutOfRange, QueueNameError) as error:
            raise InvalidArgument(_field_of(error), str(error)) from None

    def _message(
        self, given: data_pb2.Properties, targets: Sequence[str], sender: bytes
    ) -> Message:
        """Return the message, without a destination."""
        own = self._manager.identifier
        destinations = given.destinations or (targets if len(targets) > 1 else ())
        administration = self._reference(given.administration_queue, "administration_queue")
        if not given.acknowledgements:
            administration = ""  # MQ-A6: it is named exactly when an acknowledgement is asked for
        response = self._reference(given.response_queue, "response_queue")
        return Message(
            message_class=given.message_class,
            delivery_guarantee=DeliveryGuarantee(
                given.delivery if self._transaction is None else DeliveryGuarantee.RECOVERABLE
            ),
            tracing_requested=given.trace,
            tracing_queue_identifier=given.tracing_queue or GUID_NULL,
            priority=_priority(given),
            positive_journaling_requested=given.journal,
            negative_journaling_requested=given.dead_letter,
            response_queue_format_name=response,
            response_queue_type=ResponseQueueType(_reference_type(response, own)),
            administration_queue_format_name=administration,
            administration_queue_type=AdministrationQueueType(_reference_type(administration, own)),
            destination_multi_queue_format_name=self._list(destinations, "destinations"),
            administration_multi_queue_format_name=self._list(
                given.administration_queues, "administration_queues"
            ),
            response_multi_queue_format_name=self._list(given.response_queues, "response_queues"),
            application_tag=given.application_tag,
            body_type=given.body_type,
            body=given.body,
            extension=given.extension,
            label=given.label,
            source_machine_identifier=self._manager.identifier,
            correlation_identifier=_correlation(given.correlation_id),
            acknowledgements_requested=given.acknowledgements,
            sent_time=self._sent_time,
            time_to_reach_queue=_time(given, "time_to_reach_queue_s", self._time_to_reach_queue_s),
            time_to_be_received=_time(given, "time_to_be_received_s", TIME_INFINITE_S),
            hash_algorithm=given.hash_algorithm or HashAlgorithm.SHA512,
            encryption_algorithm=given.encryption_algorithm or _any_cipher(given.privacy_level),
            privacy_level=PrivacyLevel(given.privacy_level),
            sender_identifier_type=_sender_type(given, sender),
            sender_identifier=sender,
            sender_certificate=given.sender_certificate,
            signature=given.signature,
            symmetric_key=given.destination_symmetric_key,
            connector_type_identifier=given.connector_type or GUID_NULL,
            transaction_identifier=self._transaction_identifier(),
        )

    def _transaction_identifier(self) -> int | None:
        """Return the 20 bits that group a transaction's messages; others replace them later."""
        if self._transaction is None:
            return None
        return int.from_bytes(self._transaction, "little") & TRANSACTION_ID_MAX

    def _reference(self, text: str, field: str) -> str:
        name = self.absolute(text, field)
        if name and _reference_type(name, self._manager.identifier) == ResponseQueueType.NONE:
            raise InvalidArgument(field, f"{name!r} is not a queue that a message can name")
        return name

    def _list(self, texts: Sequence[str], field: str) -> tuple[str, ...]:
        if len(texts) > MQF_ELEMENTS_MAX:
            raise InvalidArgument(field, f"{len(texts)} names; {MQF_ELEMENTS_MAX} are allowed")
        return tuple(
            self.absolute(_given(text, f"{field}[{place}]"), f"{field}[{place}]")
            for place, text in enumerate(texts)
        )


def stored_packet(message: Message) -> bytes:
    """Return the packet of a message of ours as it is stored: in clear until it leaves, unless a
    connector application encrypted its body. Raises ValueOutOfRange, QueueNameError.
    """
    packet = construct_user_message_packet(message)
    security = packet.security
    if security is None or not security.is_body_encrypted or message.symmetric_key:
        return write_user_message(packet)
    security = msgspec.structs.replace(security, is_body_encrypted=False)
    return write_user_message(msgspec.structs.replace(packet, security=security))


def sent_to(message: Message, destination: str, own: bytes) -> Message:
    """Return the copy of a message for one destination; `own`: the queue manager that sends it."""
    return msgspec.structs.replace(
        message,
        destination_queue_format_name=destination,
        destination_queue_type=_destination_type(destination),
        destination_queue_manager_identifier=_host(destination, own),
    )


def _rewritten(message: UserMessage) -> bytes:
    """Return a packet that was given as this codec writes it. Raises InvalidArgument."""
    try:
        return write_user_message(message)
    except ValueOutOfRange as error:
        raise InvalidArgument("packet", str(error)) from None


def _addressed(message: UserMessage, destination: str, own: bytes) -> bytes:
    """Return the packet of a message with another destination and otherwise unchanged."""
    found = destination_of(parse_format_name(destination))
    if found is None:
        raise MsmqError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"{destination!r} cannot be sent to",
        )
    header = msgspec.structs.replace(
        message.user_header,
        destination_queue=found[0],
        queue_manager_address=_host(destination, own),
    )
    return _rewritten(msgspec.structs.replace(message, user_header=header))


def sent_again(message: Message, destination: str, own: bytes, now_ms: int) -> Message:
    """Return a stored message as a new one of this queue manager, whose GUID is `own`.

    Names stay the same; only how a packet refers to them depends on the sender.
    """
    response = message.response_queue_format_name
    administration = message.administration_queue_format_name
    return msgspec.structs.replace(
        sent_to(message, destination, own),
        identifier=ObjectId(own, 0),
        source_machine_identifier=own,
        symmetric_key=b"",  # it was for us
        sent_time=now_ms // 1000,
        response_queue_type=ResponseQueueType(_reference_type(response, own)),
        administration_queue_type=AdministrationQueueType(_reference_type(administration, own)),
    )


@lru_cache(NAMES_IN_HAND_MAX)
def _host(destination: str, own: bytes) -> bytes:
    """Return QueueManagerAddress. A public queue that can be sent to is one of our own."""
    name = parse_format_name(destination)
    if isinstance(name, PublicName):
        return own
    return name.guid if isinstance(name, PrivateName) else GUID_NULL


@lru_cache(NAMES_IN_HAND_MAX)
def _reference_type(text: str, own: bytes) -> int:
    """Return how a packet refers to a queue, by the codes of RQ and AQ; `own`: its sender."""
    name = parse_format_name(text) if text else None
    if isinstance(name, AnyDirectName):
        return ResponseQueueType.DIRECT_QUEUE
    if isinstance(name, PublicName) and not name.journal:
        return ResponseQueueType.PUBLIC_QUEUE
    if isinstance(name, PrivateName) and not name.journal:
        is_own = name.guid == own
        return (
            ResponseQueueType.PRIVATE_QUEUE_ON_SOURCE
            if is_own
            else ResponseQueueType.PRIVATE_QUEUE_ON_OTHER
        )
    return ResponseQueueType.NONE


def _given(text: str, field: str) -> str:
    if not text:
        raise InvalidArgument(field, "a name is missing")
    return text


def _any_cipher(privacy_level: int) -> EncryptionAlgorithm:
    """Return a cipher that a level does not have: the policy of who sends it chooses one."""
    has_rc4 = privacy_level in (PrivacyLevel.BASE, PrivacyLevel.ENHANCED)
    return EncryptionAlgorithm.AES256 if has_rc4 else EncryptionAlgorithm.RC4


def _is_signed(message: UserMessage) -> bool:
    """Whether a message has a signature, which its receiver then verifies."""
    security, lists = message.security, message.multi_queue_format
    has_own = security is not None and security.signature
    return bool(has_own or (lists is not None and lists.signature))


def _sender_type(given: data_pb2.Properties, sender: bytes) -> SenderIdentifierType:
    if given.sender_id_type:
        return SenderIdentifierType(given.sender_id_type)
    return SenderIdentifierType.SID if sender else SenderIdentifierType.NONE


def _priority(given: data_pb2.Properties) -> int:
    return given.priority if given.HasField("priority") else PRIORITY_DEFAULT


def _time(given: data_pb2.Properties, field: str, default: int) -> int:
    value: int = getattr(given, field)
    return value if given.HasField(field) else default  # type: ignore[arg-type]


def _correlation(raw: bytes) -> ObjectId:
    if not raw:
        return _NO_CORRELATION
    if len(raw) != CORRELATION_ID_SIZE_BYTES:
        raise InvalidArgument(
            "correlation_id", f"{len(raw)} bytes; it has {CORRELATION_ID_SIZE_BYTES}, or none"
        )
    return parse_object_id(raw, 0, len(raw))[0]


@lru_cache(NAMES_IN_HAND_MAX)
def _check_target(destination: str, field: str) -> None:
    if isinstance(parse_format_name(destination), MultipleElementName):
        raise InvalidArgument(
            field, f"{destination!r} names several queues: give each one separately"
        )
    _destination_type(destination)


@lru_cache(NAMES_IN_HAND_MAX)
def _destination_type(destination: str) -> DestinationQueueType:
    name = parse_format_name(destination)
    if isinstance(name, AnyDirectName):
        return DestinationQueueType.DIRECT_QUEUE
    if isinstance(name, PublicName) and not name.journal:
        return DestinationQueueType.PUBLIC_QUEUE
    if isinstance(name, PrivateName) and not name.journal:
        return DestinationQueueType.PRIVATE_QUEUE
    raise MsmqError(
        ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{destination!r} cannot be sent to"
    )


def _field_of(error: ValueOutOfRange | QueueNameError) -> str:
    """Return the API's name of the field that cannot be encoded."""
    field = error.field if isinstance(error, ValueOutOfRange) else ""
    return {
        "MessagePropertiesHeader.Label": "label",
        "MessagePropertiesHeader.ExtensionData": "extension",
        "MessagePropertiesHeader.MessageBody": "body",
        "BaseHeader.PacketSize": "body",
    }.get(field, field or "properties")

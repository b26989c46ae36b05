"""Messages and the packets that carry them."""

from struct import unpack_from
from typing import Any

import msgspec
import pytest
from hypothesis import given

from qm.model.messages.message import (
    AUTHENTICATION_LEVELS,
    PROVIDER_BASE,
    PROVIDER_ENHANCED,
    AdministrationQueueType,
    AuthenticationLevel,
    DeliveryGuarantee,
    DestinationQueueType,
    Message,
    ResponseQueueType,
    SenderIdentifierType,
    UnusedMessageClass,
)
from qm.model.messages.packets import (
    construct_user_message_packet,
    deserialize_message_from_buffer,
    serialize_message_to_buffer,
)
from qm.names.errors import QueueNameError
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.base_header import FLAG_PR
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader, write_security_header
from qm.wire.headers.user_header import FLAG_SH
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import ObjectId, TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    SameAsAdminQueue,
)
from tests.unit.wire.raw import written
from tests.unit.wire.strategies import user_messages

OWN, HERE, THERE = b"O" * 16, b"H" * 16, b"T" * 16
GUID_NULL = bytes(16)


def guid_text(letter: str) -> str:
    pair = f"{ord(letter):02X}"
    return "-".join(pair * n for n in (4, 2, 2, 2, 6))


MESSAGE = Message(
    identifier=ObjectId(OWN, 77),
    source_machine_identifier=OWN,
    destination_queue_manager_identifier=THERE,
    destination_queue_type=DestinationQueueType.DIRECT_QUEUE,
    destination_queue_format_name="DIRECT=OS:far\\q",
    body=b"body",
    sent_time=1_700_000_000,
)


def with_(**attributes: Any) -> Message:
    return msgspec.structs.replace(MESSAGE, **attributes)


def packet_of(message: Message) -> UserMessage:
    raw = serialize_message_to_buffer(message)
    packet, end = parse_user_message(raw, 0, len(raw))
    assert end == len(raw)
    return packet


def none_if_null(guid: bytes | None) -> bytes | None:
    return None if guid == GUID_NULL else guid


def again(message: Message) -> Message:
    return deserialize_message_from_buffer(serialize_message_to_buffer(message))


# Defaults ----------------------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.1.12-03", "DM-3.1.1.12-06", "DM-3.1.1.12-14", "DM-3.1.1.12-18", "DM-3.1.1.12-22"
)
def test_a_fresh_message() -> None:
    message = Message()
    assert message.identifier == ObjectId(GUID_NULL, 0)
    assert not message.allow_peek_when_locked
    assert message.message_class == MessageClass.NORMAL
    assert (message.tracing_requested, message.tracing_queue_identifier) == (False, GUID_NULL)
    assert message.response_queue_format_name == message.administration_queue_format_name == ""
    assert message.response_multi_queue_format_name == ()
    assert message.administration_multi_queue_format_name == ()
    assert (message.application_tag, message.body_type) == (0, 0)
    assert (message.body, message.extension, message.label) == (b"", b"", "")
    custom = with_(message_class=0x2345, application_tag=7, body_type=8, extension=b"e", label="l")
    assert again(custom) == custom
    # What names one queue leaves the others empty.
    name = "DIRECT=OS:far\\other"
    administration = AdministrationQueueType.DIRECT_QUEUE
    for lone in (
        with_(administration_queue_type=administration, administration_queue_format_name=name),
        with_(response_queue_type=ResponseQueueType.DIRECT_QUEUE, response_queue_format_name=name),
        with_(administration_multi_queue_format_name=(name,)),
        with_(response_multi_queue_format_name=(name,)),
    ):
        assert again(lone) == lone


@pytest.mark.spec(
    "DM-3.1.1.12-23", "DM-3.1.1.12-34", "DM-3.1.1.12-35", "DM-3.1.1.12-36", "DM-3.1.1.12-37"
)
def test_defaults_of_identity_time_and_algorithms() -> None:
    message = Message()
    assert message.correlation_identifier == ObjectId(GUID_NULL, 0)
    assert message.time_to_reach_queue == 345_600
    assert message.time_to_be_received == 0xFFFF_FFFF
    assert message.hash_algorithm == HashAlgorithm.SHA512
    hashes = {
        "MD2": 0x8001,
        "MD4": 0x8002,
        "MD5": 0x8003,
        "SHA1": 0x8004,
        "SHA256": 0x800C,
        "SHA512": 0x800E,
    }
    assert {algorithm.name: algorithm.value for algorithm in HashAlgorithm} == hashes
    assert message.encryption_algorithm == EncryptionAlgorithm.RC4
    # Those that have a code on the wire (DM-3.1.7.1.31-12); no packet can carry the others.
    ciphers = {"RC2": 0x6602, "RC4": 0x6801, "AES128": 0x660E, "AES192": 0x660F, "AES256": 0x6610}
    assert {algorithm.name: algorithm.value for algorithm in EncryptionAlgorithm} == ciphers
    for number in (*hashes.values(), *ciphers.values()):
        which = "hash_algorithm" if number in hashes.values() else "encryption_algorithm"
        assert getattr(packet_of(with_(**{which: number})).properties, which) == number
        assert getattr(again(with_(**{which: number})), which) == number
    correlated = with_(correlation_identifier=ObjectId(b"c" * 16, 0xFFFF_FFFF))
    assert again(correlated) == correlated


@pytest.mark.spec("DM-3.1.1.12-43", "DM-3.1.1.12-39", "DM-3.1.1.12-40")
def test_defaults_of_queue_types_and_connector() -> None:
    message = Message()
    assert message.connector_type_identifier == GUID_NULL
    assert message.administration_queue_type is AdministrationQueueType.NONE
    assert message.response_queue_type is ResponseQueueType.NONE
    kinds = {
        "NONE": 0,
        "PRIVATE_QUEUE_ON_SOURCE": 2,
        "PRIVATE_QUEUE_ON_DESTINATION": 3,
        "PUBLIC_QUEUE": 5,
        "PRIVATE_QUEUE_ON_OTHER": 6,
        "DIRECT_QUEUE": 7,
    }
    assert {kind.name: kind.value for kind in AdministrationQueueType} == kinds
    kinds |= {"SAME_AS_ADMINISTRATION_QUEUE": 1, "PRIVATE_QUEUE_ON_ADMIN": 4}
    assert {kind.name: kind.value for kind in ResponseQueueType} == kinds
    connected = with_(connector_type_identifier=b"K" * 16)
    assert again(connected) == connected


@pytest.mark.spec("DM-3.1.1.12-07", "DM-3.1.7.1.31-09", "DM-3.1.7.1.31-10")
def test_classes_and_their_codes() -> None:
    codes = {
        "NORMAL": 0x0000,
        "REPORT": 0x0001,
        "ACK_REACH_QUEUE": 0x0002,
        "ORDER_ACK": 0x00FF,
        "ACK_RECEIVE": 0x4000,
        "NACK_BAD_DEST_QUEUE": 0x8000,
        "NACK_PURGED": 0x8001,
        "NACK_REACH_QUEUE_TIMEOUT": 0x8002,
        "NACK_QUEUE_EXCEED_QUOTA": 0x8003,
        "NACK_ACCESS_DENIED": 0x8004,
        "NACK_HOP_COUNT_EXCEEDED": 0x8005,
        "NACK_BAD_SIGNATURE": 0x8006,
        "NACK_BAD_ENCRYPTION": 0x8007,
        "NACK_COULD_NOT_ENCRYPT": 0x8008,
        "NACK_NOT_TRANSACTIONAL_QUEUE": 0x8009,
        "NACK_NOT_TRANSACTIONAL_MESSAGE": 0x800A,
        "NACK_UNSUPPORTED_CRYPTO_PROVIDER": 0x800B,
        "NACK_SOURCE_COMPUTER_GUID_CHANGED": 0x800C,
        "NACK_QUEUE_DELETED": 0xC000,
        "NACK_QUEUE_PURGED": 0xC001,
        "NACK_RECEIVE_TIMEOUT": 0xC002,
        "NACK_RECEIVE_TIMEOUT_AT_SENDER": 0xC003,
        "NACK_RECEIVE_REJECTED": 0xC004,
    }
    short = {  # as [MS-MQMQ] 2.2.18.1.6 has them
        "NACK_BAD_DEST_QUEUE": "NACK_BAD_DST_Q",
        "NACK_PURGED": "NACK_DELETED",
        "NACK_QUEUE_EXCEED_QUOTA": "NACK_Q_EXCEED_QUOTA",
        "NACK_NOT_TRANSACTIONAL_QUEUE": "NACK_NOT_TRANSACTIONAL_Q",
        "NACK_NOT_TRANSACTIONAL_MESSAGE": "NACK_NOT_TRANSACTIONAL_MSG",
        "NACK_QUEUE_DELETED": "NACK_Q_DELETED",
        "NACK_QUEUE_PURGED": "NACK_Q_PURGED",
    }
    assert {one.name: one.value for one in (*MessageClass, *UnusedMessageClass)} == {
        short.get(name, name): code for name, code in codes.items()
    }
    for code in (*codes.values(), 0x1234, 0x800D):
        message = with_(message_class=code)
        assert packet_of(message).properties.message_class == code
        assert again(message).message_class == code


# Which headers -----------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.30-01", "DM-3.1.7.1.30-04", "DM-3.1.7.1.32-12", "DM-3.1.7.1.31-01")
def test_a_plain_message_has_the_headers_that_every_packet_has() -> None:
    raw = serialize_message_to_buffer(MESSAGE)
    assert unpack_from("<I", raw, 8) == (len(raw),)
    packet = packet_of(MESSAGE)
    optional = ("transaction", "security", "debug", "soap", "multi_queue_format", "session")
    assert [getattr(packet, name) for name in optional] == [None] * 6
    assert packet.properties.message_body == b"body"
    assert write_user_message(construct_user_message_packet(MESSAGE)) == raw
    assert again(MESSAGE) == MESSAGE
    # A level is of a signature, which none of these headers carries.
    for level in AUTHENTICATION_LEVELS:
        assert deserialize_message_from_buffer(raw, authentication_level=level) == MESSAGE


@pytest.mark.spec("DM-3.1.7.1.30-02", "DM-3.1.7.1.32-09", "DM-3.1.7.1.31-05", "DM-3.1.7.1.32-01")
def test_a_transaction_identifier_makes_a_message_transactional() -> None:
    message = with_(
        transaction_identifier=0xABCDE,
        transactional_message_sequence_identifier=TxSequenceId(time_stamp=9, ordinal=3),
        transaction_sequence_number=8,
        transaction_previous_sequence_number=5,
        final_ack_required=True,
        first_in_transaction=True,
        last_in_transaction=True,
        connector_queue_manager_identifier=b"Q" * 16,
        delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
        priority=6,
    )
    packet = packet_of(message)
    header = packet.transaction
    assert header is not None
    assert header.transaction_id == 0xABCDE
    assert header.tx_sequence_id == TxSequenceId(time_stamp=9, ordinal=3)
    assert (header.tx_sequence_number, header.previous_tx_sequence_number) == (8, 5)
    assert (header.is_final_ack_wanted, header.is_first, header.is_last) == (True,) * 3
    assert header.connector_qm_guid == b"Q" * 16
    assert packet.priority == 0
    raw = bytearray(serialize_message_to_buffer(message))
    assert raw[2] & FLAG_PR == 0
    raw[2] |= 5  # what a receiver ignores
    assert parse_user_message(raw, 0, len(raw))[0].priority == 0
    assert deserialize_message_from_buffer(bytes(raw)).priority == 0
    for priority in range(8):
        plain = with_(priority=priority)
        assert serialize_message_to_buffer(plain)[2] & FLAG_PR == priority
        assert again(plain) == plain
    assert again(message) == msgspec.structs.replace(message, priority=0)
    for off in ("final_ack_required", "first_in_transaction", "last_in_transaction"):
        other = msgspec.structs.replace(message, priority=0, **{off: False})
        assert again(other) == other
    unnumbered = with_(transaction_identifier=0, delivery_guarantee=DeliveryGuarantee.RECOVERABLE)
    assert packet_of(unnumbered).transaction is not None


@pytest.mark.spec("DM-3.1.7.1.30-05", "DM-3.1.7.1.32-02", "DM-3.1.7.1.32-11", "DM-3.1.7.1.31-07")
def test_tracing_and_lists_of_queues() -> None:
    traced = with_(tracing_requested=True, tracing_queue_identifier=b"R" * 16)
    packet = packet_of(traced)
    assert (packet.is_traced, packet.debug) == (True, DebugHeader(b"R" * 16))
    untold = packet_of(with_(tracing_queue_identifier=b"R" * 16))
    assert (untold.is_traced, untold.debug) == (False, DebugHeader(b"R" * 16))
    nowhere = packet_of(with_(tracing_requested=True))
    assert (nowhere.is_traced, nowhere.debug) == (True, DebugHeader(None))
    for told, queue_type in ((traced, 1), (with_(tracing_requested=True), 0)):
        fields = written(packet_of(told))["DebugHeader"]
        assert fields["Flags.QT"] == queue_type
        assert fields.get("QueueIdentifier") == ((b"R" * 16).hex() if queue_type else None)
    several = with_(
        destination_multi_queue_format_name=(
            "DIRECT=OS:far\\q",
            f"PUBLIC={guid_text('P')}",
            f"PRIVATE={guid_text('H')}\\0000000C",
            f"DL={guid_text('D')}",
        ),
        administration_multi_queue_format_name=("DIRECT=TCP:10.0.0.1\\a",),
        response_multi_queue_format_name=("DIRECT=OS:h\\r",),
        multiple_destination_signature=b"signed",
        time_to_reach_queue=12,
    )
    lists = packet_of(several).multi_queue_format
    assert lists is not None
    assert (len(lists.destination), lists.signature) == (4, b"signed")
    assert lists.administration == (DirectQueueFormatName("TCP:10.0.0.1\\a"),)
    assert lists.response == (DirectQueueFormatName("OS:h\\r"),)
    assert packet_of(several).time_to_reach_queue == 12
    for message in (traced, several, with_(tracing_requested=True)):
        assert again(message) == message


@pytest.mark.spec("DM-3.1.1.12-21")
def test_a_signature_of_several_destinations_stands_in_the_list_of_them() -> None:
    assert Message().multiple_destination_signature == b""
    name = "DIRECT=OS:far\\q"
    for names in (
        {"destination_multi_queue_format_name": (name, name)},
        {"administration_multi_queue_format_name": (name,)},
        {"response_multi_queue_format_name": (name,)},
    ):
        unsigned = packet_of(with_(**names)).multi_queue_format
        assert unsigned is not None
        assert unsigned.signature == b""
        signed = with_(multiple_destination_signature=b"several", sender_identifier=b"S", **names)
        packet = packet_of(signed)
        assert packet.multi_queue_format is not None
        assert packet.multi_queue_format.signature == b"several"
        assert packet.security is not None
        assert packet.security.signature == b""
        assert again(signed) == signed


@pytest.mark.spec("MQ-2.2.20.6-07")
def test_another_provider_is_named_and_is_not_the_default_one() -> None:
    signed = with_(signature=b"signed", sender_certificate=b"C")
    own = packet_of(signed).security
    assert own is not None
    assert (own.is_default_provider, own.provider_info) == (True, b"")
    for kind, name in ((1, "Another"), (24, PROVIDER_BASE), (24, "Another")):
        foreign = msgspec.structs.replace(
            signed, authentication_provider_type=kind, authentication_provider_name=name
        )
        security = packet_of(foreign).security
        assert security is not None
        assert not security.is_default_provider
        assert security.provider_info == bytes([kind, 0, 0, 0]) + f"{name}\0".encode("utf-16-le")
        assert again(foreign) == foreign


@pytest.mark.spec(
    "DM-3.1.7.1.30-03", "DM-3.1.7.1.32-06", "DM-3.1.7.1.32-08", "DM-3.1.7.1.31-04", "DM-3.1.1.12-45"
)
def test_authentication_needs_the_security_header() -> None:
    for level in AuthenticationLevel:
        raw = serialize_message_to_buffer(with_(authentication_level=level))
        user_flags = unpack_from("<I", raw, 16 + 44)[0]
        assert bool(user_flags & FLAG_SH) is (level is not AuthenticationLevel.NONE)
        security = parse_user_message(raw, 0, len(raw))[0].security
        assert (security is None) is (level is AuthenticationLevel.NONE)
    bare = packet_of(with_(authentication_level=AuthenticationLevel.SIG20)).security
    assert bare is not None
    assert bare.provider_info == b"\1\0\0\0" + (PROVIDER_BASE + "\0").encode("utf-16-le")
    message = with_(
        authentication_level=AuthenticationLevel.SIG30,
        authentication_provider_type=24,
        authentication_provider_name=PROVIDER_ENHANCED,
        sender_identifier=b"sid",
        sender_certificate=b"certificate",
        symmetric_key=b"key",
        signature=b"signature",
    )
    security = packet_of(message).security
    assert security is not None
    assert (security.sender_id_type, security.security_id) == (1, b"sid")
    assert security.sender_cert == b"certificate"
    assert (security.encryption_key, security.signature) == (b"key", b"signature")
    named = (PROVIDER_ENHANCED + "\0").encode("utf-16-le")
    assert security.provider_info == (24).to_bytes(4, "little") + named
    foreign = with_(
        authentication_provider_type=0x8765_4321,
        authentication_provider_name="A connector's own",
    )
    assert again(foreign) == foreign, "it is not interpreted"
    for kind, sender in (
        (SenderIdentifierType.NONE, b""),
        (SenderIdentifierType.SID, b"sid"),
        (SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER, b"Q" * 16),
    ):
        typed = msgspec.structs.replace(
            message, sender_identifier_type=kind, sender_identifier=sender
        )
        assert again(typed) == msgspec.structs.replace(
            typed, authentication_level=AuthenticationLevel.NONE
        )
    default = Message()
    assert default.authentication_provider_type == 1
    assert default.authentication_provider_name == "Microsoft Base Cryptographic Provider, v1.0"
    assert PROVIDER_ENHANCED == "Microsoft Enhanced Cryptographic Provider, v1.0"


@pytest.mark.spec("MQ-2.2.20.6-22")
def test_the_default_provider_is_not_named_beside_what_it_signed() -> None:
    own = packet_of(with_(signature=b"s")).security
    another = packet_of(with_(signature=b"s", authentication_provider_type=7)).security
    unsigned = packet_of(with_(sender_identifier=b"sid")).security
    assert own is not None
    assert another is not None
    assert unsigned is not None
    for security, is_default, size in (
        (own, True, 0),
        (another, False, len(another.provider_info)),
        (unsigned, False, 0),
    ):
        flags, found = unpack_from("<H10xI", write_security_header(security))
        assert (bool(flags & 0x0040), found) == (is_default, size)
    assert another.provider_info == b"\7\0\0\0" + (PROVIDER_BASE + "\0").encode("utf-16-le")


@pytest.mark.spec("DM-3.1.7.1.32-04", "DM-3.1.7.1.32-05", "DM-3.1.7.1.32-07", "DM-3.1.7.1.31-17")
@pytest.mark.spec("MQ-2.2.20.6-03")
def test_flags_of_the_security_header() -> None:
    def flags(**attributes: Any) -> int:
        message = with_(**({"signature": b"s"} | attributes))
        raw = serialize_message_to_buffer(message)
        security = packet_of(message).security
        assert security is not None
        at = raw.index(b"s\0\0\0", 16 + 48) - 16 - len(security.security_id)
        found: int = unpack_from("<H", raw, at)[0]
        return found

    signed = flags(authentication_level=AuthenticationLevel.SIG30)
    assert signed & 0x0F10 == 0  # AU, AS
    assert signed & 0x0020 == 0  # EB
    assert signed & 0x0040  # DE: the queuing system's own provider
    for level in (PrivacyLevel.BASE, PrivacyLevel.ENHANCED, PrivacyLevel.ADVANCED):
        assert flags(privacy_level=level) & 0x0020
    assert not flags(authentication_provider_type=7) & 0x0040
    assert not flags(authentication_provider_name=PROVIDER_ENHANCED) & 0x0040
    assert not flags(authentication_provider_type=24, authentication_provider_name="own") & 0x0040
    assert [kind.name for kind in SenderIdentifierType] == [
        "NONE",
        "SID",
        "QUEUE_MANAGER_IDENTIFIER",
    ]
    for code, kind in enumerate(SenderIdentifierType):
        assert flags(sender_identifier_type=kind) & 0x000F == code
    for attribute in ("positive_journaling_requested", "negative_journaling_requested"):
        assert again(with_(**{attribute: True})) == with_(**{attribute: True})
    header = packet_of(with_(positive_journaling_requested=True)).user_header
    assert (header.has_positive_journaling, header.has_negative_journaling) == (True, False)


@pytest.mark.spec("DM-3.1.7.1.31-08")
@pytest.mark.parametrize(
    ("code", "level"), [(0, "NONE"), (1, "SIG10"), (3, "SIG20"), (5, "SIG30"), (2, "NONE")]
)
def test_authentication_is_what_the_receiver_found(code: int, level: str) -> None:
    raw = bytearray(serialize_message_to_buffer(with_(signature=b"s")))
    at = raw.index(b"s\0\0\0", 16 + 48) - 16
    raw[at] |= 0x10
    raw[at + 1] |= 0x05  # a sender may write AU and AS; they prove nothing
    found = deserialize_message_from_buffer(bytes(raw), authentication_level=code)
    assert found.authentication_level is AuthenticationLevel[level]
    plain = serialize_message_to_buffer(MESSAGE)
    unsigned = deserialize_message_from_buffer(plain, authentication_level=code)
    assert unsigned.authentication_level is AuthenticationLevel.NONE


# Codes and fields --------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.31-11", "DM-3.1.7.1.31-12", "DM-3.1.7.1.31-13", "DM-3.1.7.1.31-03")
def test_codes_of_levels_and_algorithms() -> None:
    assert {k.name: k.value for k in PrivacyLevel} == {
        "NONE": 0,
        "BASE": 1,
        "ENHANCED": 3,
        "ADVANCED": 5,
    }
    assert {k.name: k.value for k in EncryptionAlgorithm} == {
        "RC2": 0x6602,
        "RC4": 0x6801,
        "AES256": 0x6610,
        "AES128": 0x660E,
        "AES192": 0x660F,
    }
    assert {k.name: k.value for k in HashAlgorithm} == {
        "MD2": 0x8001,
        "MD4": 0x8002,
        "MD5": 0x8003,
        "SHA1": 0x8004,
        "SHA256": 0x800C,
        "SHA512": 0x800E,
    }
    message = with_(
        body_type=8,
        encryption_algorithm=EncryptionAlgorithm.AES192,
        hash_algorithm=HashAlgorithm.MD5,
        application_tag=3,
        correlation_identifier=ObjectId(b"c" * 16, 4),
        acknowledgements_requested=0x0E,
        message_class=MessageClass.REPORT,
        extension=b"extension",
        label="a label",
        privacy_level=PrivacyLevel.ENHANCED,
    )
    properties = packet_of(message).properties
    assert (properties.body_type, properties.application_tag) == (8, 3)
    assert (properties.encryption_algorithm, properties.hash_algorithm) == (0x660F, 0x8003)
    assert properties.correlation_id == b"c" * 16 + b"\4\0\0\0"
    assert (properties.flags, properties.message_class) == (0x0E, 1)
    assert (properties.extension_data, properties.label) == (b"extension", "a label")
    assert (properties.privacy_level, properties.message_body) == (3, b"body")
    assert again(message) == message
    for level in PrivacyLevel:
        private = with_(privacy_level=level, body_type=8)
        assert packet_of(private).properties.privacy_level == level
        assert again(private).privacy_level == level


@pytest.mark.spec("DM-3.1.7.1.32-03", "DM-3.1.1.12-24")
def test_lengths_and_the_longest_label() -> None:
    raw = serialize_message_to_buffer(with_(label="abc", extension=b"12345"))
    at = raw.index(b"a\0b\0c\0") - 56
    label_length, message_size, extension_size = (
        raw[at + 1],
        *unpack_from("<I", raw, at + 32),
        *unpack_from("<I", raw, at + 52),
    )
    assert (label_length, message_size, extension_size) == (4, 4, 5)  # the NUL is counted
    longest = with_(label="x" * 249)
    assert again(longest) == longest
    with pytest.raises(ValueOutOfRange):
        serialize_message_to_buffer(with_(label="x" * 250))


@pytest.mark.spec("DM-3.1.7.1.31-06", "DM-3.1.7.1.32-10", "DM-3.1.7.1.31-02")
def test_fields_of_the_user_and_base_headers() -> None:
    message = with_(
        connector_type_identifier=b"K" * 16,
        time_to_be_received=99,
        time_to_reach_queue=11,
        priority=5,
        tracing_requested=True,
        delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
        negative_journaling_requested=True,
        administration_queue_type=AdministrationQueueType.DIRECT_QUEUE,
        administration_queue_format_name="DIRECT=OS:far\\admin",
        response_queue_type=ResponseQueueType.DIRECT_QUEUE,
        response_queue_format_name="DIRECT=OS:far\\answers",
    )
    packet = packet_of(message)
    header = packet.user_header
    assert (header.queue_manager_address, header.source_queue_manager) == (THERE, OWN)
    assert (header.connector_type, header.message_id) == (b"K" * 16, 77)
    assert (header.sent_time, header.time_to_be_received) == (1_700_000_000, 99)
    assert (header.is_recoverable, header.has_negative_journaling) == (True, True)
    assert not header.has_positive_journaling
    assert header.admin_queue == DirectQueueFormatName("OS:far\\admin")
    assert header.response_queue == DirectQueueFormatName("OS:far\\answers")
    assert (packet.priority, packet.is_traced, packet.time_to_reach_queue) == (5, True, 11)
    found = again(message)
    assert found == message
    assert found.identifier == ObjectId(found.source_machine_identifier, 77)
    other = with_(positive_journaling_requested=True)
    assert packet_of(other).user_header.has_positive_journaling
    assert not packet_of(other).user_header.has_negative_journaling
    assert again(other) == other


@pytest.mark.spec("DM-3.1.7.1.31-14", "DM-3.1.1.12-38")
@pytest.mark.parametrize(
    ("kind", "code", "text", "name"),
    [
        (
            DestinationQueueType.PRIVATE_QUEUE,
            3,
            f"PRIVATE={guid_text('T')}\\00000010",
            PrivateQueueFormatNameId(QueueHost.DESTINATION, 16),
        ),
        (
            DestinationQueueType.PUBLIC_QUEUE,
            5,
            f"PUBLIC={guid_text('P')}",
            PublicQueueFormatName(b"P" * 16),
        ),
        (
            DestinationQueueType.DIRECT_QUEUE,
            7,
            "DIRECT=OS:far\\q",
            DirectQueueFormatName("OS:far\\q"),
        ),
    ],
)
def test_destinations(kind: DestinationQueueType, code: int, text: str, name: object) -> None:
    assert len(DestinationQueueType) == 3
    message = with_(destination_queue_type=kind, destination_queue_format_name=text)
    raw = serialize_message_to_buffer(message)
    assert raw[16 + 45] >> 2 & 7 == code  # UserHeader.Flags.DQ
    assert packet_of(message).user_header.destination_queue == name
    assert again(message) == message


QUEUE_NAMES: list[tuple[int, str, str, object]] = [
    (0, "NONE", "", None),
    (
        2,
        "PRIVATE_QUEUE_ON_SOURCE",
        f"PRIVATE={guid_text('O')}\\00000009",
        PrivateQueueFormatNameId(QueueHost.SOURCE, 9),
    ),
    (
        3,
        "PRIVATE_QUEUE_ON_DESTINATION",
        f"PRIVATE={guid_text('T')}\\00000009",
        PrivateQueueFormatNameId(QueueHost.DESTINATION, 9),
    ),
    (5, "PUBLIC_QUEUE", f"PUBLIC={guid_text('P')}", PublicQueueFormatName(b"P" * 16)),
    (
        6,
        "PRIVATE_QUEUE_ON_OTHER",
        f"PRIVATE={guid_text('H')}\\00000009",
        PrivateQueueFormatName(HERE, 9),
    ),
    (7, "DIRECT_QUEUE", "DIRECT=TCP:10.0.0.1\\a", DirectQueueFormatName("TCP:10.0.0.1\\a")),
]


@pytest.mark.spec("DM-3.1.7.1.31-15", "DM-3.1.7.1.32-10", "MQ-2.2.19.2-20", "MQ-2.2.19.2-21")
@pytest.mark.parametrize(("code", "kind", "text", "name"), QUEUE_NAMES)
def test_administration_queues(code: int, kind: str, text: str, name: object) -> None:
    message = with_(
        administration_queue_type=AdministrationQueueType[kind],
        administration_queue_format_name=text,
    )
    raw = serialize_message_to_buffer(message)
    assert unpack_from("<I", raw, 16 + 44)[0] >> 13 & 7 == code
    assert packet_of(message).user_header.admin_queue == name
    assert again(message) == message


@pytest.mark.spec("DM-3.1.7.1.31-16", "DM-3.1.7.1.32-10", "DM-3.1.1.12-40")
@pytest.mark.parametrize(
    ("code", "kind", "text", "name"),
    [
        *QUEUE_NAMES,
        (
            1,
            "SAME_AS_ADMINISTRATION_QUEUE",
            f"PRIVATE={guid_text('H')}\\00000005",
            SameAsAdminQueue(),
        ),
        (
            4,
            "PRIVATE_QUEUE_ON_ADMIN",
            f"PRIVATE={guid_text('H')}\\00000009",
            PrivateQueueFormatNameId(QueueHost.ADMIN, 9),
        ),
    ],
)
def test_response_queues(code: int, kind: str, text: str, name: object) -> None:
    message = with_(
        administration_queue_type=AdministrationQueueType.PRIVATE_QUEUE_ON_OTHER,
        administration_queue_format_name=f"PRIVATE={guid_text('H')}\\00000005",
        response_queue_type=ResponseQueueType[kind],
        response_queue_format_name=text,
    )
    raw = serialize_message_to_buffer(message)
    assert unpack_from("<I", raw, 16 + 44)[0] >> 16 & 7 == code
    assert packet_of(message).user_header.response_queue == name
    assert again(message) == message


# The whole way -----------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.32-13")
@given(user_messages)
def test_a_message_survives_its_packet(packet: UserMessage) -> None:
    raw = write_user_message(packet)
    message = deserialize_message_from_buffer(raw)
    assert again(message) == message
    assert message.body == packet.properties.message_body
    assert message.message_class == packet.properties.message_class
    # What it is written from is what it was read from, apart from what no attribute stands for.
    made = construct_user_message_packet(message)
    replace = msgspec.structs.replace
    header, properties = packet.user_header, packet.properties
    connector = none_if_null(header.connector_type)
    assert made.user_header == replace(header, hop_count=0, connector_type=connector)
    label = properties.label or None
    assert made.properties == replace(properties, label=label, allocation_surplus_bytes=0)
    transaction, lists = packet.transaction, packet.multi_queue_format
    if transaction is not None:
        connector = none_if_null(transaction.connector_qm_guid)
        transaction = replace(transaction, connector_qm_guid=connector)
    assert made.transaction == transaction
    assert made.multi_queue_format == (None if lists == MultiQueueFormatHeader() else lists)
    for name in ("priority", "time_to_reach_queue", "is_traced"):
        assert getattr(made, name) == getattr(packet, name)
    for name in ("sender_id_type", "security_id", "encryption_key", "signature", "sender_cert"):
        assert getattr(made.security, name, None) == getattr(packet.security, name, None)
    tracing, soap = packet.debug, packet.soap
    queue = None if tracing is None else none_if_null(tracing.queue_identifier)
    assert getattr(made.debug, "queue_identifier", None) == queue
    for name in ("header", "body"):
        assert getattr(made.soap, name, None) == (getattr(soap, name, None) or None)


def test_texts_of_messages_over_http_pass_through() -> None:
    message = with_(soap_header="<h/>", soap_body="<b/>")
    assert again(message) == message


@pytest.mark.spec("DM-3.1.1.12-44")
def test_what_the_server_assigns_changes_no_packet() -> None:
    for name in (
        "transaction_status_queue_format_name",
        "soap_envelope",
        "soap_compound_message",
    ):
        assert getattr(MESSAGE, name) == ""
        given = with_(**{name: "DIRECT=OS:h\\q"})
        assert serialize_message_to_buffer(given) == serialize_message_to_buffer(MESSAGE)


def test_an_unreadable_provider_does_not_make_a_message_unreadable() -> None:
    packet = construct_user_message_packet(with_(signature=b"s"))
    for info in (b"\1", b"\1\0\0\0a"):
        bad = msgspec.structs.replace(
            packet, security=SecurityHeader(signature=b"s", provider_info=info)
        )
        found = deserialize_message_from_buffer(write_user_message(bad))
        assert (found.authentication_provider_type, found.authentication_provider_name) == (0, "")
        security = packet_of(found).security
        assert security is not None
        assert security.provider_info[:4] == bytes(4)


@pytest.mark.parametrize(
    "attributes",
    [
        {"destination_queue_type": None},
        {"administration_queue_format_name": "DIRECT=OS:h\\q"},
        {"destination_queue_type": DestinationQueueType.PUBLIC_QUEUE},
        {"destination_multi_queue_format_name": ("MULTICAST=234.1.1.1:8001",)},
    ],
)
def test_names_that_no_packet_can_carry(attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueOutOfRange):
        serialize_message_to_buffer(with_(**attributes))


def test_other_bytes_and_names_are_refused() -> None:
    with pytest.raises(ProtocolError):
        deserialize_message_from_buffer(b"no packet")
    private = with_(
        destination_queue_type=DestinationQueueType.PRIVATE_QUEUE,
        destination_queue_format_name="nonsense",
    )
    with pytest.raises(QueueNameError):
        serialize_message_to_buffer(private)

"""Whole messages and the fields of their packets ([MS-MQDMPR] 3.1.7.1.30 to .32).

In the two messages no attribute has the same value, nor one that it has by default.
"""

from struct import pack
from typing import Any

import msgspec
import pytest

from qm.model.messages.message import (
    PROVIDER_ENHANCED,
    AdministrationQueueType,
    AuthenticationLevel,
    DeliveryGuarantee,
    DestinationQueueType,
    Message,
    ResponseQueueType,
    SenderIdentifierType,
)
from qm.model.messages.packets import (
    construct_user_message_packet,
    deserialize_message_from_buffer,
    serialize_message_to_buffer,
)
from qm.names.format_name import PrivateName, PublicName, format_name_text
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from qm.wire.packets.user_message import write_user_message
from qm.wire.structures.identifiers import ObjectId, TxSequenceId
from tests.decoder.spoken import Flat, flat
from tests.unit.model.messages.test_message import with_
from tests.unit.wire.raw import written

A, B, C, D = (letter * 16 for letter in (b"a", b"b", b"c", b"d"))

ONE = Message(
    identifier=ObjectId(A, 0x0102_0304),
    source_machine_identifier=A,
    destination_queue_manager_identifier=B,
    destination_queue_type=DestinationQueueType.PRIVATE_QUEUE,
    destination_queue_format_name=format_name_text(PrivateName(B, 9)),
    administration_queue_type=AdministrationQueueType.PRIVATE_QUEUE_ON_OTHER,
    administration_queue_format_name=format_name_text(PrivateName(C, 10)),
    response_queue_type=ResponseQueueType.PRIVATE_QUEUE_ON_ADMIN,
    response_queue_format_name=format_name_text(PrivateName(C, 11)),
    connector_type_identifier=D,
    sent_time=12,
    time_to_be_received=13,
    time_to_reach_queue=0,
    priority=0,
    delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
    positive_journaling_requested=True,
    transaction_identifier=0xABCDE,
    transactional_message_sequence_identifier=TxSequenceId(time_stamp=14, ordinal=15),
    transaction_sequence_number=16,
    transaction_previous_sequence_number=7,
    final_ack_required=True,
    last_in_transaction=True,
    connector_queue_manager_identifier=C,
    authentication_provider_name=PROVIDER_ENHANCED,
    sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
    sender_identifier=D,
    sender_certificate=b"certificate of one",
    symmetric_key=b"key of one",
    signature=b"signature of one",
    message_class=0x4000,
    acknowledgements_requested=0x0A,
    correlation_identifier=ObjectId(B, 17),
    body_type=18,
    application_tag=19,
    privacy_level=PrivacyLevel.BASE,
    hash_algorithm=HashAlgorithm.MD5,
    encryption_algorithm=EncryptionAlgorithm.RC2,
    label="one",
    extension=b"extension of one",
    body=b"body of one",
)
TWO = Message(
    identifier=ObjectId(C, 0x1112_1314),
    source_machine_identifier=C,
    destination_queue_manager_identifier=D,
    destination_queue_type=DestinationQueueType.PUBLIC_QUEUE,
    destination_queue_format_name=format_name_text(PublicName(A)),
    administration_queue_type=AdministrationQueueType.DIRECT_QUEUE,
    administration_queue_format_name="DIRECT=OS:two\\admin",
    response_queue_type=ResponseQueueType.PUBLIC_QUEUE,
    response_queue_format_name=format_name_text(PublicName(B)),
    connector_type_identifier=A,
    sent_time=22,
    time_to_be_received=23,
    time_to_reach_queue=21,
    priority=0,
    tracing_requested=True,
    tracing_queue_identifier=D,
    delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
    negative_journaling_requested=True,
    transaction_identifier=0,
    transactional_message_sequence_identifier=TxSequenceId(time_stamp=24, ordinal=25),
    transaction_sequence_number=1,
    transaction_previous_sequence_number=0,
    first_in_transaction=True,
    connector_queue_manager_identifier=B,
    authentication_provider_type=24,
    authentication_provider_name="Another",
    sender_identifier_type=SenderIdentifierType.SID,
    sender_identifier=b"sid of two",
    sender_certificate=b"certificate of two, longer",
    symmetric_key=b"key of two, longer",
    signature=b"signature of two, longer",
    message_class=0x8005,
    acknowledgements_requested=0x05,
    correlation_identifier=ObjectId(D, 27),
    body_type=28,
    application_tag=29,
    privacy_level=PrivacyLevel.ADVANCED,
    hash_algorithm=HashAlgorithm.SHA256,
    encryption_algorithm=EncryptionAlgorithm.AES128,
    label="label of two",
    extension=b"two",
    body=b"two's body",
    destination_multi_queue_format_name=("DIRECT=OS:two\\q",),
)


def text(name: str) -> str:
    """The bytes of a text and its NUL."""
    return (name.encode("utf-16-le") + b"\0\0").hex()


FIELDS: list[tuple[Message, dict[str, dict[str, Any]]]] = [
    (
        ONE,
        {
            "BaseHeader": {"Flags": 0, "TimeToReachQueue": 0},
            "UserHeader": {
                "SourceQueueManager": A.hex(),
                "QueueManagerAddress": B.hex(),
                "TimeToBeReceived": 13,
                "SentTime": 12,
                "MessageID": 0x0102_0304,
                "Flags": 0x0078_0220 | 3 << 10 | 6 << 13 | 4 << 16,
                "DestinationQueue": {"PrivateQueueIdentifier": 9},
                "AdminQueue": {"SourceQueueManager": C.hex(), "PrivateQueueIdentifier": 10},
                "ResponseQueue": {"PrivateQueueIdentifier": 11},
                "ConnectorType": D.hex(),
            },
            "TransactionHeader": {
                "Flags": 0x00AB_CDE0 | 1 | 2 | 8,
                "TxSequenceID": {"Ordinal": 15, "TimeStamp": 14},
                "TxSequenceNumber": 16,
                "PreviousTxSequenceNumber": 7,
                "ConnectorQMGuid": C.hex(),
            },
            "SecurityHeader": {
                "Flags.ST": 2,
                "SecurityID": D.hex(),
                "EncryptionKey": b"key of one".hex(),
                "Signature": b"signature of one".hex(),
                "SenderCert": b"certificate of one".hex(),
                "ProviderInfo": pack("<I", 1).hex() + text(PROVIDER_ENHANCED),
            },
            "MessagePropertiesHeader": {
                "Flags": 0x0A,
                "MessageClass": 0x4000,
                "CorrelationID": B.hex() + "11000000",
                "BodyType": 18,
                "ApplicationTag": 19,
                "PrivacyLevel": 1,
                "HashAlgorithm": 0x8003,
                "EncryptionAlgorithm": 0x6602,
                "Label": "one",
                "ExtensionData": b"extension of one".hex(),
                "MessageBody": b"body of one".hex(),
            },
        },
    ),
    (
        TWO,
        {
            "BaseHeader": {"Flags": 0x0120, "TimeToReachQueue": 21},
            "UserHeader": {
                "SourceQueueManager": C.hex(),
                "QueueManagerAddress": D.hex(),
                "TimeToBeReceived": 23,
                "SentTime": 22,
                "MessageID": 0x1112_1314,
                "Flags": 0x00F8_0120 | 5 << 10 | 7 << 13 | 5 << 16,
                "DestinationQueue": {"PublicQueueIdentifier": A.hex()},
                "AdminQueue": {"DirectFormatName": "OS:two\\admin"},
                "ResponseQueue": {"PublicQueueIdentifier": B.hex()},
                "ConnectorType": A.hex(),
            },
            "TransactionHeader": {
                "Flags": 1 | 4,
                "TxSequenceID": {"Ordinal": 25, "TimeStamp": 24},
                "TxSequenceNumber": 1,
                "PreviousTxSequenceNumber": 0,
                "ConnectorQMGuid": B.hex(),
            },
            "SecurityHeader": {
                "Flags.ST": 1,
                "SecurityID": b"sid of two".hex(),
                "EncryptionKey": b"key of two, longer".hex(),
                "Signature": b"signature of two, longer".hex(),
                "SenderCert": b"certificate of two, longer".hex(),
                "ProviderInfo": pack("<I", 24).hex() + text("Another"),
            },
            "MessagePropertiesHeader": {
                "Flags": 0x05,
                "MessageClass": 0x8005,
                "CorrelationID": D.hex() + "1b000000",
                "BodyType": 28,
                "ApplicationTag": 29,
                "PrivacyLevel": 5,
                "HashAlgorithm": 0x800C,
                "EncryptionAlgorithm": 0x660E,
                "Label": "label of two",
                "ExtensionData": b"two".hex(),
                "MessageBody": b"two's body".hex(),
            },
        },
    ),
]


TRANSACTIONAL = [name for name in Message.__struct_fields__ if "transaction" in name]
TRANSACTIONAL += ["final_ack_required", "connector_queue_manager_identifier"]


def fields_of(message: Message) -> Flat:
    return flat(written(construct_user_message_packet(message)))


def again(message: Message) -> Message:
    return deserialize_message_from_buffer(serialize_message_to_buffer(message))


def stands_in(message: Message, headers: dict[str, dict[str, Any]], *wanted: str) -> None:
    """Hold a message's headers against their fields, and against the message read from them."""
    found = fields_of(message)
    expected = flat({name: headers[name] for name in wanted})
    assert {name: found.get(name) for name in expected} == expected
    assert again(message) == message


@pytest.mark.spec("DM-3.1.7.1.30-01", "DM-3.1.7.1.32-12")
@pytest.mark.parametrize("message", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("length", range(5))
@pytest.mark.parametrize("soap", ["", "envelope"])
def test_all_headers_are_in_the_packet_and_in_its_size(
    message: Message, length: int, soap: str
) -> None:
    whole = msgspec.structs.replace(
        message, body=b"x" * length, soap_header=soap, soap_body=soap and "<body/>"
    )
    raw = serialize_message_to_buffer(whole)
    assert raw == write_user_message(construct_user_message_packet(whole))
    assert int.from_bytes(raw[8:12], "little") == len(raw)
    found = written(construct_user_message_packet(whole))
    assert ("DebugHeader" in found, "MultiQueueFormatHeader" in found) == (message is TWO,) * 2
    assert {"TransactionHeader", "SecurityHeader", "MessagePropertiesHeader"} <= set(found)
    assert ("SoapHeader" in found) == bool(soap)
    assert again(whole) == whole


@pytest.mark.parametrize(("message", "headers"), FIELDS)
@pytest.mark.spec("DM-3.1.7.1.31-06", "DM-3.1.7.1.32-10", "DM-3.1.7.1.32-02", "DM-3.1.7.1.31-02")
def test_the_base_and_user_headers(message: Message, headers: dict[str, dict[str, Any]]) -> None:
    stands_in(message, headers, "BaseHeader", "UserHeader")
    # One of ours that has no number yet, and no connector.
    bare = msgspec.structs.replace(
        message, identifier=ObjectId(bytes(16), 5), connector_type_identifier=bytes(16)
    )
    found = fields_of(bare)
    assert found["UserHeader.SourceQueueManager"] == message.source_machine_identifier.hex()
    assert (found["UserHeader.MessageID"], found["UserHeader.Flags.CQ"]) == (5, 0)
    # Without a transaction the priority, and an express message, are seen too.
    for priority in (0, 6):
        plain = msgspec.structs.replace(
            message,
            **{name: getattr(with_(), name) for name in TRANSACTIONAL},
            delivery_guarantee=DeliveryGuarantee.EXPRESS,
            priority=priority,
            time_to_reach_queue=priority,
            positive_journaling_requested=not message.positive_journaling_requested,
            negative_journaling_requested=not message.negative_journaling_requested,
        )
        found = fields_of(plain)
        assert found["BaseHeader.Flags.PR"] == found["BaseHeader.TimeToReachQueue"] == priority
        assert found["UserHeader.Flags.DM"] == 0
        assert found["UserHeader.Flags.JP"] == message.negative_journaling_requested
        assert found["UserHeader.Flags.JN"] == message.positive_journaling_requested
        assert again(plain) == plain


@pytest.mark.parametrize(("message", "headers"), FIELDS)
@pytest.mark.spec("DM-3.1.7.1.31-05", "DM-3.1.7.1.32-09")
def test_the_transaction_header(message: Message, headers: dict[str, dict[str, Any]]) -> None:
    stands_in(message, headers, "TransactionHeader")
    # One that has no number yet has the first, and none but its own connector.
    bare = msgspec.structs.replace(
        message, transaction_sequence_number=0, connector_queue_manager_identifier=bytes(16)
    )
    found = fields_of(bare)
    assert found["TransactionHeader.TxSequenceNumber"] == 1
    assert found["TransactionHeader.Flags.CG"] == 0
    assert again(bare).connector_queue_manager_identifier == bytes(16)


@pytest.mark.parametrize(("message", "headers"), FIELDS)
@pytest.mark.spec("DM-3.1.7.1.31-04", "DM-3.1.7.1.32-08", "DM-3.1.7.1.31-17")
def test_the_security_header(message: Message, headers: dict[str, dict[str, Any]]) -> None:
    stands_in(message, headers, "SecurityHeader")
    nobody = msgspec.structs.replace(
        message, sender_identifier=b"", sender_identifier_type=SenderIdentifierType.NONE
    )
    assert fields_of(nobody)["SecurityHeader.Flags.ST"] == 0
    assert again(nobody) == nobody


@pytest.mark.parametrize(("message", "headers"), FIELDS)
@pytest.mark.spec(
    "DM-3.1.7.1.31-03",
    "DM-3.1.7.1.31-09",
    "DM-3.1.7.1.31-10",
    "DM-3.1.7.1.31-12",
    "DM-3.1.7.1.31-13",
)
def test_the_message_properties_header(
    message: Message, headers: dict[str, dict[str, Any]]
) -> None:
    stands_in(message, headers, "MessagePropertiesHeader")
    for cipher in EncryptionAlgorithm:
        sealed = msgspec.structs.replace(message, encryption_algorithm=cipher)
        assert fields_of(sealed)["MessagePropertiesHeader.EncryptionAlgorithm"] == cipher
        assert again(sealed) == sealed
    for algorithm in HashAlgorithm:
        hashed = msgspec.structs.replace(message, hash_algorithm=algorithm)
        assert fields_of(hashed)["MessagePropertiesHeader.HashAlgorithm"] == algorithm
        assert again(hashed) == hashed


@pytest.mark.spec("DM-3.1.7.1.30-04", "DM-3.1.7.1.30-05")
def test_each_attribute_by_itself_makes_its_header() -> None:
    for name, field in (
        ("correlation_identifier", "CorrelationID"),
        ("body_type", "BodyType"),
        ("application_tag", "ApplicationTag"),
        ("body", "MessageBody"),
        ("privacy_level", "PrivacyLevel"),
        ("hash_algorithm", "HashAlgorithm"),
        ("encryption_algorithm", "EncryptionAlgorithm"),
        ("extension", "ExtensionData"),
        ("label", "Label"),
    ):
        message = with_(**({"body": b""} | {name: getattr(TWO, name)}))
        found = fields_of(message)
        assert found["UserHeader.Flags.MP"] == 1
        headers = FIELDS[1][1]["MessagePropertiesHeader"]
        assert found[f"MessagePropertiesHeader.{field}"] == headers[field]
        assert again(message) == message
    for name, value, flag, header in (
        ("tracing_queue_identifier", D, "BaseHeader.Flags.DH", "DebugHeader"),
        (
            "destination_multi_queue_format_name",
            ("DIRECT=OS:two\\q",),
            "UserHeader.Flags.MQ",
            "MultiQueueFormatHeader",
        ),
    ):
        assert fields_of(with_())[flag] == 0
        message = with_(**{name: value})
        assert fields_of(message)[flag] == 1
        assert header in written(construct_user_message_packet(message))
        assert again(message) == message


@pytest.mark.spec("DM-3.1.7.1.31-16")
def test_the_administration_queue_may_take_the_response() -> None:
    message = with_(
        administration_queue_type=AdministrationQueueType.DIRECT_QUEUE,
        administration_queue_format_name="DIRECT=OS:far\\admin",
        response_queue_type=ResponseQueueType.SAME_AS_ADMINISTRATION_QUEUE,
    )
    assert fields_of(message)["UserHeader.Flags.RQ"] == 1
    found = again(message)
    assert found.response_queue_type is ResponseQueueType.SAME_AS_ADMINISTRATION_QUEUE
    assert found.response_queue_format_name == "DIRECT=OS:far\\admin"
    assert found.authentication_level is AuthenticationLevel.NONE

"""Signatures of versions 1.0, 2.0 and 3.0 against openssl's, byte for byte."""

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicNumbers,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec.structs import replace

from qm.security.hashes import UnsupportedHash, hash_algorithm
from qm.security.signature_input import SignatureVersion, signature_input
from qm.security.signatures import sign, verified_version
from qm.wire.enums import HashAlgorithm
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.peek import peek_head, properties_offset
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
)

_MADE = json.loads((Path(__file__).parents[2] / "data/security/signatures.json").read_text())
CASES = _MADE["cases"]
ALL_HASHES = frozenset(HashAlgorithm)

MESSAGE = UserMessage(
    UserHeader(
        bytes(range(16)),
        PrivateQueueFormatNameId(QueueHost.DESTINATION, 5),
        admin_queue=PrivateQueueFormatName(bytes(range(16, 32)), 7),
        response_queue=DirectQueueFormatName("OS:here\\answers"),
        connector_type=bytes(range(64, 80)),
        is_recoverable=True,
        has_negative_journaling=True,
        has_positive_journaling=True,
    ),
    MessagePropertiesHeader(
        b"Pay 100 to Bob.",
        "Pay",
        flags=0x0D,
        correlation_id=bytes(range(40, 60)),
        body_type=8,
        application_tag=9,
        extension_data=b"extension",
    ),
    priority=3,
)
"""What openssl_vectors.py concatenates by hand."""


def private_key(bits: int) -> RSAPrivateKey:
    key = load_pem_private_key(_MADE["keys"][str(bits)].encode(), None)
    assert isinstance(key, RSAPrivateKey)
    return key


def hashed_by(message: UserMessage, algorithm: int) -> UserMessage:
    return replace(message, properties=replace(message.properties, hash_algorithm=algorithm))


def with_list(message: UserMessage, signature: bytes = b"") -> UserMessage:
    destinations = (DirectQueueFormatName("OS:a\\q"),)
    return replace(
        message, multi_queue_format=MultiQueueFormatHeader(destinations, signature=signature)
    )


def signed(message: UserMessage, version: SignatureVersion, signature: bytes) -> UserMessage:
    if version is SignatureVersion.MSMQ_3:
        return with_list(message, signature)
    return replace(message, security=SecurityHeader(signature=signature))


def case_name(case: dict[str, Any]) -> str:
    return f"{case['version']}-{case['hash_algorithm']:04x}-{case['key_bits']}"


@pytest.mark.spec("MQ-2.5.1-01", "MQ-2.5.2-01", "MQ-2.5.2-02", "MQ-2.5.2-03", "MQ-2.5.2-04")
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_signatures_are_those_of_openssl(case: dict[str, Any]) -> None:
    version = SignatureVersion(case["version"])
    message = hashed_by(MESSAGE, case["hash_algorithm"])
    if version is SignatureVersion.MSMQ_3:
        message = with_list(message)
    assert b"".join(signature_input(message, version)).hex() == case["input_hex"]
    key, made = private_key(case["key_bits"]), bytes.fromhex(case["signature_hex"])
    assert sign(message, version, key) == made
    for signature in (made, made[::-1]):
        packet = signed(message, version, signature)
        assert verified_version(packet, key.public_key(), ALL_HASHES) is version


@pytest.mark.spec("MQ-2.5.3-01", "MQ-2.5.2-02")
@pytest.mark.parametrize(
    ("negative", "positive", "journal"),
    [(False, False, 0), (True, False, 1), (False, True, 2), (True, True, 3)],
)
def test_version_3_signs_what_version_1_does_and_then_ten_items(
    negative: bool, positive: bool, journal: int
) -> None:
    header = replace(
        MESSAGE.user_header, has_negative_journaling=negative, has_positive_journaling=positive
    )
    message = with_list(replace(MESSAGE, user_header=header))
    first = b"".join(signature_input(message, SignatureVersion.MSMQ_1))
    whole = b"".join(signature_input(message, SignatureVersion.MSMQ_3))
    names = pack("<H", 3) + "OS:a\\q\0".encode("utf-16-le")
    fixed = bytes(range(16)) + bytes([1, 3, journal, 0x0D]) + pack("<HI", 0, 8)
    # Version 2.0 has the byte as well, and nothing else that journaling changes.
    neither = replace(header, has_negative_journaling=False, has_positive_journaling=False)
    plain, asked = (
        b"".join(signature_input(replace(message, user_header=one), SignatureVersion.MSMQ_2))
        for one in (neither, header)
    )
    changes = [(one, other) for one, other in zip(plain, asked, strict=True) if one != other]
    assert changes == [(0, journal)] * (journal > 0)
    # ExtensionData, FormatNameList, source, DM, PR, journal, ack, class, body type, connector;
    # and no DestinationQueue.
    assert whole == first + b"extension" + names + fixed + bytes(range(64, 80))


@pytest.mark.spec("MQ-2.5.1-01", "MQ-2.5.2-01", "MQ-2.5.2-04", "MQ-2.5.3-01")
def test_every_item_is_the_message_s_own() -> None:
    """Nothing in common with the message that openssl signed, and most things absent."""
    header = UserHeader(
        bytes(range(100, 116)),
        PrivateQueueFormatNameId(QueueHost.DESTINATION, 0x0102_0304),
        admin_queue=PrivateQueueFormatName(bytes(range(32, 48)), 0x0506_0708),
        has_positive_journaling=True,
    )
    properties = MessagePropertiesHeader(
        b"another",
        flags=0x02,
        message_class=0x8104,
        correlation_id=bytes(range(60, 80)),
        body_type=0x2011_1213,
        application_tag=0x0A0B_0C0D,
    )
    message = UserMessage(header, properties, priority=6)
    # No label, no response queue.
    first = bytes(range(60, 80)) + pack("<I", 0x0A0B_0C0D) + b"another"
    first += bytes(range(32, 48)) + pack("<I", 0x0506_0708)
    fixed = bytes(range(100, 116)) + bytes([0, 6, 2, 0x02]) + pack("<HI", 0x8104, 0x2011_1213)
    expected = {
        SignatureVersion.MSMQ_1: first,
        SignatureVersion.MSMQ_2: first + fixed + pack("<I", 0x0102_0304),
        SignatureVersion.MSMQ_3: first + fixed,
    }
    for version, octets in expected.items():
        assert b"".join(signature_input(message, version)) == octets
    answered = replace(header, response_queue=header.admin_queue, admin_queue=None)
    answered = replace(answered, connector_type=bytes(range(80, 96)))
    other = UserMessage(answered, replace(properties, label="L"), priority=6)
    labelled = b"".join(signature_input(other, SignatureVersion.MSMQ_2))
    assert labelled.partition(b"another")[2].startswith(b"L\0\0\0" + bytes(range(32, 48)))
    assert labelled.endswith(fixed + bytes(range(80, 96)) + pack("<I", 0x0102_0304))


def _header(**changes: Any) -> Callable[[UserMessage], UserMessage]:
    return lambda message: replace(message, user_header=replace(message.user_header, **changes))


def _properties(**changes: Any) -> Callable[[UserMessage], UserMessage]:
    return lambda message: replace(message, properties=replace(message.properties, **changes))


IN_ALL = {
    "correlation_id": _properties(correlation_id=bytes(20)),
    "application_tag": _properties(application_tag=10),
    "body": _properties(message_body=b"Pay 900 to Bob."),
    "label": _properties(label="pay"),
    "no label": _properties(label=None),
    "response_queue": _header(response_queue=None),
    "admin_queue": _header(admin_queue=PrivateQueueFormatName(bytes(16), 7)),
}
FROM_2_ON = {
    "source": _header(source_queue_manager=bytes(16)),
    "delivery": _header(is_recoverable=False),
    "priority": lambda message: replace(message, priority=4),
    "positive journaling": _header(has_positive_journaling=False),
    "negative journaling": _header(has_negative_journaling=False),
    "acknowledgments": _properties(flags=0),
    "message_class": _properties(message_class=1),
    "body_type": _properties(body_type=0),
    "connector_type": _header(connector_type=None),
}
ONLY_2 = {"destination": _header(destination_queue=DirectQueueFormatName("OS:there\\q"))}
ONLY_3 = {
    "extension": _properties(extension_data=b""),
    "list": lambda message: replace(
        message,
        multi_queue_format=replace(
            message.multi_queue_format, destination=(DirectQueueFormatName("OS:b\\q"),)
        ),
    ),
}
ALTERED = [
    *((SignatureVersion.MSMQ_1, change) for change in IN_ALL.items()),
    *((SignatureVersion.MSMQ_2, change) for change in (IN_ALL | FROM_2_ON | ONLY_2).items()),
    *((SignatureVersion.MSMQ_3, change) for change in (IN_ALL | FROM_2_ON | ONLY_3).items()),
]


@pytest.mark.spec("MQ-2.2.20.6-16", "MQ-2.2.20.3-05")
@pytest.mark.parametrize(
    ("version", "change"), ALTERED, ids=lambda each: each[0] if isinstance(each, tuple) else None
)
def test_a_message_altered_in_a_signed_field_is_not_verified(
    version: SignatureVersion, change: tuple[str, Callable[[UserMessage], UserMessage]]
) -> None:
    key = private_key(1024)
    plain = with_list(MESSAGE) if version is SignatureVersion.MSMQ_3 else MESSAGE
    message = signed(plain, version, sign(plain, version, key))
    assert verified_version(message, key.public_key()) is version
    assert verified_version(change[1](message), key.public_key()) is None


def test_what_a_router_changes_is_not_signed() -> None:
    key = private_key(1024)
    message = signed(MESSAGE, SignatureVersion.MSMQ_2, sign(MESSAGE, SignatureVersion.MSMQ_2, key))
    routed = _header(hop_count=3, queue_manager_address=bytes(range(16)), message_id=77)(message)
    routed = replace(
        routed,
        transaction=TransactionHeader(TxSequenceId(time_stamp=1, ordinal=1), 1, 0),
        time_to_reach_queue=4,
    )
    assert verified_version(routed, key.public_key()) is SignatureVersion.MSMQ_2


def test_direct_names_may_be_signed_with_their_count() -> None:
    key = private_key(1024)
    plain = replace(MESSAGE, user_header=replace(MESSAGE.user_header, admin_queue=None))
    text = b"".join(signature_input(plain, SignatureVersion.MSMQ_1, has_direct_counts=True))
    name = "OS:here\\answers".encode("utf-16-le") + b"\0\0"
    assert text.endswith(len(name).to_bytes(2, "little") + name)
    signature = key.sign(text, padding.PKCS1v15(), hashes.SHA512())[::-1]
    message = signed(plain, SignatureVersion.MSMQ_1, signature)
    assert verified_version(message, key.public_key()) is SignatureVersion.MSMQ_1


@pytest.mark.spec("MQ-2.5.2-03")
@pytest.mark.parametrize("version", [SignatureVersion.MSMQ_2, SignatureVersion.MSMQ_3])
def test_of_the_flags_four_bits_are_signed(version: SignatureVersion) -> None:
    asking_none = replace(MESSAGE, properties=replace(MESSAGE.properties, flags=0))
    none = b"".join(signature_input(asking_none, version))
    flags_at = properties_offset(packet := write_user_message(MESSAGE), 0, peek_head(packet, 0))
    places = set()
    for octet in range(1, 0x100):
        raw = packet[:flags_at] + bytes([octet]) + packet[flags_at + 1 :]
        found = b"".join(signature_input(parse_user_message(raw, 0, len(raw))[0], version))
        differing = [
            at for at, both in enumerate(zip(found, none, strict=True)) if len({*both}) > 1
        ]
        assert [found[at] for at in differing] == [octet & 0x0F] * bool(octet & 0x0F)
        places.update(differing)
    assert len(places) == 1


@pytest.mark.spec("MQ-2.2.19.3-19", "MQ-2.2.20.6-16")
@pytest.mark.parametrize(
    ("number", "algorithm"),
    [
        (0x8003, hashes.MD5()),
        (0x8004, hashes.SHA1()),
        (0x800C, hashes.SHA256()),
        (0x800E, hashes.SHA512()),
    ],
)
def test_each_number_means_its_hash(number: int, algorithm: hashes.HashAlgorithm) -> None:
    key, version = private_key(1024), SignatureVersion.MSMQ_2
    message = hashed_by(MESSAGE, number)
    text = b"".join(signature_input(message, version))
    signature = key.sign(text, padding.PKCS1v15(), algorithm)[::-1]
    assert sign(message, version, key) == signature
    assert verified_version(signed(message, version, signature), key.public_key(), {number})


@pytest.mark.spec("MQ-2.2.20.3-05")
@pytest.mark.parametrize("version", SignatureVersion)
def test_each_version_signs_the_hash_of_its_list_alike(version: SignatureVersion) -> None:
    key = private_key(1024)
    for number, algorithm in (
        (0x8003, hashes.MD5()),
        (0x8004, hashes.SHA1()),
        (0x800C, hashes.SHA256()),
        (0x800E, hashes.SHA512()),
    ):
        message = hashed_by(with_list(MESSAGE), number)
        text = b"".join(signature_input(message, version))
        assert sign(message, version, key) == key.sign(text, padding.PKCS1v15(), algorithm)[::-1]


@pytest.mark.parametrize("number", [HashAlgorithm.MD2, HashAlgorithm.MD4, 0, 0x8009])
def test_broken_and_unknown_hashes_are_refused(number: int) -> None:
    with pytest.raises(UnsupportedHash, match=f"0x{number:04X}"):
        hash_algorithm(number)
    key = private_key(1024)
    message = signed(hashed_by(MESSAGE, number), SignatureVersion.MSMQ_2, bytes(128))
    assert verified_version(message, key.public_key(), {number}) is None


def test_a_hash_that_is_not_accepted_verifies_nothing() -> None:
    key = private_key(1024)
    weak = hashed_by(MESSAGE, HashAlgorithm.MD5)
    message = signed(weak, SignatureVersion.MSMQ_2, sign(weak, SignatureVersion.MSMQ_2, key))
    assert verified_version(message, key.public_key(), {HashAlgorithm.MD5})
    assert verified_version(message, key.public_key()) is None


def test_another_key_and_broken_signatures_verify_nothing() -> None:
    key = private_key(1024)
    made = sign(MESSAGE, SignatureVersion.MSMQ_2, key)
    other = generate_private_key(65537, 1024).public_key()
    assert verified_version(signed(MESSAGE, SignatureVersion.MSMQ_2, made), other) is None
    for signature in (b"", b"\0", made[:-1], made + b"\0", bytes(128), b"\xff" * 128):
        message = signed(MESSAGE, SignatureVersion.MSMQ_2, signature) if signature else MESSAGE
        assert verified_version(message, key.public_key()) is None


@pytest.mark.parametrize(
    ("exponent", "bits"), [(2**40 + 1, 1024), (3, 16384), (65537, 384)], ids=str
)
def test_keys_outside_the_limits_verify_nothing(exponent: int, bits: int) -> None:
    key = RSAPublicNumbers(exponent, (1 << bits - 1) + 1).public_key()
    message = signed(MESSAGE, SignatureVersion.MSMQ_2, b"\1" * (bits // 8))
    assert verified_version(message, key) is None

"""Bodies encrypted as openssl encrypts them, and keys on their way to another queue manager."""

import json
from contextlib import suppress
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateNumbers,
    RSAPublicNumbers,
    generate_private_key,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
    rsa_recover_prime_factors,
)
from msgspec.structs import replace

from qm.security.body_ciphers import (
    DecryptionFailed,
    decrypt_body,
    encrypt_body,
    key_bytes,
    session_key,
)
from qm.security.body_encryption import EncryptionPolicy, algorithm_for, encrypted
from qm.security.session_keys import UnusableKey, public_key, public_key_blob, unwrapped, wrapped
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel, ProviderType
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.public_key import (
    MqdsPublicKey,
    parse_public_key_blob,
    write_mqds_public_key,
)

_DATA = Path(__file__).parents[2] / "data"
CASES = json.loads((_DATA / "security/bodies.json").read_text())["cases"]
OWN = generate_private_key(65537, 1024)
OTHER = generate_private_key(65537, 1024)
PAIRS = [
    (PrivacyLevel.BASE, EncryptionAlgorithm.RC2),
    (PrivacyLevel.BASE, EncryptionAlgorithm.RC4),
    (PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC2),
    (PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC4),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES128),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES192),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256),
]


def vector(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (_DATA / f"vectors/mqqb_made_crypto_{name}.json").read_text()
    )
    return found


@pytest.mark.spec("MQ-2.2.19.3-25")
@pytest.mark.parametrize(
    ("level", "algorithm"), [pair for pair in PAIRS if pair[1] is not EncryptionAlgorithm.RC4]
)
def test_a_body_is_padded_with_bytes_that_say_how_many_they_are(
    level: PrivacyLevel, algorithm: EncryptionAlgorithm
) -> None:
    key = session_key(level, algorithm, bytes(range(key_bytes(level, algorithm))))
    block = 8 if algorithm is EncryptionAlgorithm.RC2 else 16
    for size in range(2 * block + 1):
        body, added = bytes(range(size)), block - size % block
        encrypted = encrypt_body(key, body)
        assert len(encrypted) == size + added
        # Each block depends on those before it alone, so the padded body begins like the body.
        padded = encrypt_body(key, body + bytes([added]) * added)
        assert padded[:-block] == encrypted
        assert decrypt_body(key, encrypted) == body
    # A last block without such an end is no body.
    for wrong in (bytes(block - 1) + b"\0", b"\3" * (block - 2) + b"\2\3"):
        with pytest.raises(DecryptionFailed):
            decrypt_body(key, encrypt_body(key, wrong)[:block])


@pytest.mark.spec("MQ-2.2.19.3-25", "QB-3.1.5.8.3-14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_bodies_are_encrypted_as_by_openssl(case: dict[str, Any]) -> None:
    key = session_key(
        PrivacyLevel(case["privacy_level"]),
        EncryptionAlgorithm(case["algorithm"]),
        bytes.fromhex(case["key_hex"]),
        has_salt=case["has_salt"],
    )
    assert encrypt_body(key, bytes.fromhex(case["clear_hex"])).hex() == case["encrypted_hex"]
    assert decrypt_body(key, bytes.fromhex(case["encrypted_hex"])).hex() == case["clear_hex"]


@pytest.mark.parametrize("name", ["body_aes256_cbc", "body_rc4_128"])
def test_bodies_of_the_published_vectors(name: str) -> None:
    made = vector(name)
    fields = made["fields"]
    algorithm = EncryptionAlgorithm(fields["EncryptionAlgorithm"])
    is_aes = algorithm is EncryptionAlgorithm.AES256
    level = PrivacyLevel.ADVANCED if is_aes else PrivacyLevel.ENHANCED
    key = session_key(level, algorithm, bytes.fromhex(fields["key_hex"]))
    assert encrypt_body(key, bytes.fromhex(fields["plaintext_hex"])).hex() == made["hex"]


@pytest.mark.parametrize(("level", "algorithm"), PAIRS)
def test_any_body_comes_back(level: PrivacyLevel, algorithm: EncryptionAlgorithm) -> None:
    key = session_key(level, algorithm, bytes(range(1, key_bytes(level, algorithm) + 1)))
    for size in (0, 1, 7, 8, 15, 16, 17, 4096):
        body = bytes(size)
        assert decrypt_body(key, encrypt_body(key, body)) == body


def test_a_salted_key_is_another_key() -> None:
    algorithm = EncryptionAlgorithm.RC4
    salted = session_key(PrivacyLevel.BASE, algorithm, b"12345")
    plain = session_key(PrivacyLevel.BASE, algorithm, b"12345", has_salt=False)
    assert encrypt_body(salted, bytes(16)) != encrypt_body(plain, bytes(16))


@pytest.mark.spec("MQ-2.2.19.3-24")
def test_a_level_has_ciphers_of_its_own_alone() -> None:
    """No key of any size makes another cipher one of a level."""
    fitting = set()
    for level in PrivacyLevel:
        for algorithm in EncryptionAlgorithm:
            for size in (5, 16, 24, 32):
                with suppress(ValueError):
                    session_key(level, algorithm, bytes(size))
                    fitting.add((level.value, algorithm.value))
    pairs = {
        *((1, 0x6602), (1, 0x6801), (3, 0x6602), (3, 0x6801)),
        *((5, 0x660E), (5, 0x660F), (5, 0x6610)),
    }
    assert fitting == pairs
    # What a sender names of another level is replaced by the level's own.
    for number in range(0x6600, 0x6900):
        for level in PrivacyLevel:
            if level is not PrivacyLevel.NONE:
                taken = algorithm_for(level, number, EncryptionPolicy()).value
                assert (level.value, taken) in pairs
                assert taken == number or (level.value, number) not in pairs


@pytest.mark.spec("MQ-2.2.20.6-17")
@pytest.mark.parametrize(("level", "algorithm"), PAIRS)
def test_encryption_key_is_the_blob_of_the_key_that_opens_the_body(
    level: PrivacyLevel, algorithm: EncryptionAlgorithm
) -> None:
    raw = bytes(range(1, key_bytes(level, algorithm) + 1))
    key = session_key(level, algorithm, raw)
    properties = MessagePropertiesHeader(
        b"a body", privacy_level=level, encryption_algorithm=algorithm
    )
    clear = UserMessage(UserHeader(bytes(16), None), properties, priority=0)
    packet = write_packet(encrypted(clear, key, wrapped(key, OWN.public_key())))
    message, _ = parse_user_message(packet, 0, len(packet))
    assert message.security is not None
    blob = message.security.encryption_key
    assert blob[:12] == pack("<4sI4s", b"\1\2\0\0", algorithm, bytes.fromhex("00a40000"))
    opened = OWN.decrypt(blob[:11:-1], PKCS1v15())
    assert opened == raw
    assert message.properties.message_body != b"a body"
    again = unwrapped(blob, level, algorithm, OWN)
    assert decrypt_body(again, message.properties.message_body) == b"a body"


@pytest.mark.parametrize(
    ("level", "algorithm", "size"),
    [
        (PrivacyLevel.NONE, EncryptionAlgorithm.RC4, 16),
        (PrivacyLevel.BASE, EncryptionAlgorithm.AES128, 16),
        (PrivacyLevel.BASE, EncryptionAlgorithm.RC4, 16),
        (PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC2, 5),
        (PrivacyLevel.ADVANCED, EncryptionAlgorithm.RC4, 16),
        (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256, 31),
        (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256, 0),
    ],
)
def test_a_key_fits_its_algorithm_and_level(
    level: PrivacyLevel, algorithm: EncryptionAlgorithm, size: int
) -> None:
    with pytest.raises(ValueError, match="bytes are not a key"):
        session_key(level, algorithm, bytes(size))


@pytest.mark.parametrize("ciphertext", [b"", bytes(15), bytes(16), bytes(17), b"\xff" * 32])
@pytest.mark.parametrize("algorithm", [EncryptionAlgorithm.AES256, EncryptionAlgorithm.RC2])
def test_what_cannot_be_decrypted_has_one_answer(
    algorithm: EncryptionAlgorithm, ciphertext: bytes
) -> None:
    is_aes = algorithm is EncryptionAlgorithm.AES256
    level = PrivacyLevel.ADVANCED if is_aes else PrivacyLevel.ENHANCED
    key = session_key(level, algorithm, bytes(key_bytes(level, algorithm)))
    with pytest.raises(DecryptionFailed, match=r"^the body cannot be decrypted$"):
        decrypt_body(key, ciphertext)


def test_the_published_session_key_is_unwrapped() -> None:
    published, made = vector("publickeyblob_1024")["fields"], vector("simpleblob_aes256")
    public = RSAPublicNumbers(published["pubExp"], int(published["modulus_be_hex"], 16))
    exponent = int(published["private_exponent_be_hex"], 16)
    p, q = rsa_recover_prime_factors(public.n, public.e, exponent)
    crt = rsa_crt_dmp1(exponent, p), rsa_crt_dmq1(exponent, q), rsa_crt_iqmp(p, q)
    own = RSAPrivateNumbers(p, q, exponent, *crt, public).private_key()
    key = unwrapped(
        bytes.fromhex(made["hex"]), PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256, own
    )
    assert key.key.hex() == made["fields"]["key_hex"]


@pytest.mark.spec("QB-3.1.7.1.5.2-01")
@pytest.mark.parametrize(("level", "algorithm"), PAIRS)
def test_a_wrapped_key_is_opened_by_its_receiver_alone(
    level: PrivacyLevel, algorithm: EncryptionAlgorithm
) -> None:
    own, other = OWN, OTHER
    # What the directory publishes holds the PUBLICKEYBLOB as it is.
    published = MqdsPublicKey(ProviderType.RSA_AES, "A provider", public_key_blob(own.public_key()))
    blob = write_mqds_public_key(published)[12 + 2 * len("A provider\0") :]
    numbers, bits = own.public_key().public_numbers(), own.key_size
    modulus = numbers.n.to_bytes(bits // 8, "little")
    head = bytes.fromhex("06020000 00a40000 52534131")
    assert blob == head + pack("<II", bits, numbers.e) + modulus
    receiver = public_key(parse_public_key_blob(blob, 0, len(blob))[0])
    key = session_key(level, algorithm, bytes(range(key_bytes(level, algorithm))))
    sent = wrapped(key, receiver)
    assert unwrapped(sent, level, algorithm, own) == key
    for cut in (b"", sent[:12], sent[:-1]):
        with pytest.raises(DecryptionFailed, match=r"^the session key cannot be decrypted$"):
            unwrapped(cut, level, algorithm, own)
    # OpenSSL answers wrong bytes and a wrong key with random ones, which may have the length of a
    # session key.
    for wrong, opener in (
        (sent[:12] + bytes(128), own),
        (sent[:12] + b"\xff" * 128, own),
        (sent, other),
    ):
        with suppress(DecryptionFailed):
            assert unwrapped(wrong, level, algorithm, opener) != key


def test_a_key_for_another_algorithm_is_refused() -> None:
    key = session_key(PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC4, bytes(16))
    sent = wrapped(key, OWN.public_key())
    with pytest.raises(DecryptionFailed):
        unwrapped(sent, PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC2, OWN)


def test_published_keys_outside_the_limits_are_refused() -> None:
    good = public_key_blob(OWN.public_key())
    short = replace(good, bit_length=256, modulus=b"\xff" * 32)
    large = replace(good, bit_length=8192, modulus=b"\xff" * 1024)
    for blob in (short, large, replace(good, public_exponent=0), replace(good, public_exponent=2)):
        with pytest.raises(UnusableKey):
            public_key(blob)

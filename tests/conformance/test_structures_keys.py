"""Published keys and users' certificates (MS-MQMQ 2.2.1, 2.2.2, 2.2.21, 2.2.22)."""

from hashlib import md5
from struct import pack

import pytest

from qm.wire.enums import ProviderType, PublicKeyAlgorithm
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.structures.public_key import (
    PUBLIC_KEYS_MAX,
    MqdsPublicKey,
    PublicKeyBlob,
    parse_mqds_public_key,
    parse_mqds_public_keys,
    write_mqds_public_key,
    write_mqds_public_keys,
    write_public_key_blob,
)
from qm.wire.structures.user_certificate import (
    UserCertificate,
    certificate_digest,
    parse_user_certificate,
    parse_user_certificates,
    write_user_certificate,
    write_user_certificates,
)

NAME = "Provider"
MODULUS = bytes(range(1, 65))
BLOB = bytes.fromhex("06020000 00a40000 52534131 00020000 01000100") + MODULUS
KEY = MqdsPublicKey(
    ProviderType.RSA_AES, NAME, PublicKeyBlob(512, 65537, MODULUS, PublicKeyAlgorithm.RSA_KEYX)
)


def raw_key(
    key_size: int = 84, name_size: int = 18, provider: int = 24, blob: bytes = BLOB
) -> bytes:
    head = b"".join(n.to_bytes(4, "little") for n in (key_size, name_size, provider))
    return head + (NAME + "\0").encode("utf-16-le") + blob


def fault(raw: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse_mqds_public_key(raw, 0, len(raw))
    return caught.value


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """The limits and kinds that the rows share."""
    assert {kind.name: kind.value for kind in PublicKeyAlgorithm} == {
        "RSA_SIGN": 0x2400,
        "RSA_KEYX": 0xA400,
    }
    assert PublicKeyBlob(8, 3, b"\x01") == PublicKeyBlob(8, 3, b"\x01", PublicKeyAlgorithm.RSA_KEYX)
    for length, legal in ((255, True), (256, False)):
        key = MqdsPublicKey(ProviderType.RSA_FULL, "p" * length, KEY.key)
        if legal:
            raw = write_mqds_public_key(key)
            assert parse_mqds_public_key(raw, 0, len(raw)) == (key, len(raw))
            continue
        with pytest.raises(ValueOutOfRange) as refused:
            write_mqds_public_key(key)
        assert refused.value.field == "MQDSPUBLICKEY.sProviderName"
        name = ("p" * length + "\0").encode("utf-16-le")
        raw = b"".join(n.to_bytes(4, "little") for n in (84, len(name), 1)) + name + BLOB
        assert fault(raw).field == "MQDSPUBLICKEY.ulProviderLen"
    for count in (PUBLIC_KEYS_MAX, PUBLIC_KEYS_MAX + 1):
        raw = (8 + count * 114).to_bytes(4, "little") + count.to_bytes(4, "little")
        raw += raw_key() * count
        if count == PUBLIC_KEYS_MAX:
            assert parse_mqds_public_keys(raw, 0, len(raw)) == ((KEY,) * count, len(raw))
            continue
        with pytest.raises(ProtocolError) as caught:
            parse_mqds_public_keys(raw, 0, len(raw))
        assert caught.value.field == "MQDSPUBLICKEYS.cNumofKeys"
        with pytest.raises(ValueOutOfRange):
            write_mqds_public_keys((KEY,) * count)


@pytest.mark.spec("MQ-2.2.1-01", "MQ-2.2.1-02", "MQ-2.2.1-03")
def test_the_layout_and_lengths_of_a_published_key() -> None:
    raw = raw_key()
    assert len(raw) == 12 + 18 + 84
    assert write_mqds_public_key(KEY) == raw
    assert parse_mqds_public_key(b"\xee" + raw + b"\xee", 1, 1 + len(raw)) == (KEY, 1 + len(raw))
    for key_size in (0, 83, 85, 0xFFFF_FFFF):
        fault(raw_key(key_size=key_size))
    for name_size in (0, 1, 16, 17, 19, 20, 0xFFFF_FFFF):
        fault(raw_key(name_size=name_size))
    longer = raw_key(key_size=86, blob=BLOB + b"\0\0")
    assert fault(longer).field == "MQDSPUBLICKEY.aBuf"


@pytest.mark.spec("MQ-2.2.1-04")
def test_the_provider_is_one_of_two_types() -> None:
    assert {kind.name: kind.value for kind in ProviderType} == {"RSA_FULL": 1, "RSA_AES": 24}
    for provider in (1, 24):
        raw = raw_key(provider=provider)
        value, _ = parse_mqds_public_key(raw, 0, len(raw))
        assert value.provider_type == provider
        assert write_mqds_public_key(value) == raw
    for provider in (0, 2, 12, 23, 25, 0x0100_0001, 0x1800_0000):
        assert fault(raw_key(provider=provider)).field == "MQDSPUBLICKEY.ulProviderType"


@pytest.mark.spec("MQ-2.2.1-05")
def test_the_buffer_is_a_key_exchange_key() -> None:
    value, _ = parse_mqds_public_key(raw_key(), 0, len(raw_key()))
    assert value.key.algorithm is PublicKeyAlgorithm.RSA_KEYX
    assert value.key.algorithm.value == 0xA400
    assert (value.key.bit_length, value.key.public_exponent) == (512, 65537)
    assert value.key.modulus == MODULUS
    for offset in range(12):
        broken = bytearray(BLOB)
        broken[offset] ^= 0x01
        assert fault(raw_key(blob=bytes(broken))).field.startswith("PUBLICKEYBLOB")
    for bits in (504, 520, 0, 0xFFFF_FFFF):
        broken = bytearray(BLOB)
        broken[12:16] = bits.to_bytes(4, "little")
        fault(raw_key(blob=bytes(broken)))


@pytest.mark.spec("MQ-2.2.2-01", "MQ-2.2.2-02", "MQ-2.2.2-03")
def test_published_keys_are_packed_behind_their_size_and_number() -> None:
    for count in (0, 1, 3):
        raw = (8 + count * 114).to_bytes(4, "little") + count.to_bytes(4, "little")
        raw += raw_key() * count
        keys = (KEY,) * count
        assert write_mqds_public_keys(keys) == raw
        surrounded = b"\xee" + raw + b"\xee"
        assert parse_mqds_public_keys(surrounded, 1, 1 + len(raw)) == (keys, 1 + len(raw))
        # More bytes may follow the structure; ulLen says where it ends.
        assert parse_mqds_public_keys(surrounded, 1, 2 + len(raw)) == (keys, 1 + len(raw))
    good = (8 + 114).to_bytes(4, "little") + b"\x01\0\0\0" + raw_key()
    wrong_sizes = [
        size.to_bytes(4, "little") + good[4:] for size in (0, 7, 8, 121, 123, 0xFFFFFFFF)
    ]
    wrong_counts = [good[:4] + n.to_bytes(4, "little") + good[8:] for n in (0, 2, 0xFFFF_FFFF)]
    for raw in (*wrong_sizes, *wrong_counts):
        with pytest.raises(ProtocolError) as caught:
            parse_mqds_public_keys(raw, 0, len(raw))
        size = int.from_bytes(raw[:4], "little")
        if not 8 <= size <= len(raw):
            assert (caught.value.field, caught.value.offset) == ("MQDSPUBLICKEYS.ulLen", 0)


@pytest.mark.spec("MQ-2.2.21-01", "MQ-2.2.22-01")
def test_users_certificates() -> None:
    certificate = b"an encoded certificate"
    identifier = bytes(range(0xA0, 0xB0))
    assert certificate_digest(certificate) == md5(certificate).digest()
    one = UserCertificate(certificate_digest(certificate), identifier, certificate)
    raw = md5(certificate).digest() + identifier + b"\x16\0\0\0" + certificate
    assert len(raw) == 36 + len(certificate)
    assert write_user_certificate(one) == raw
    assert parse_user_certificate(b"\xee" + raw + b"\xee", 1, 1 + len(raw)) == (one, 1 + len(raw))
    other = UserCertificate(certificate_digest(b"other"), identifier[::-1], b"other")
    raw_other = md5(b"other").digest() + identifier[::-1] + b"\x05\0\0\0" + b"other"
    for count in (0, 1, 2):
        many = (one, other)[:count]
        packed = count.to_bytes(4, "little") + b"".join((raw, raw_other)[:count])
        assert write_user_certificates(many) == packed
        assert parse_user_certificates(b"\xee" + packed + b"\xee", 1, 2 + len(packed)) == (
            many,
            1 + len(packed),
        )
    two = b"\x02\0\0\0" + raw * 2
    for broken in (two[:3], two[:-1], b"\x03" + two[1:], b"\xff" * 4 + two[4:], two[:36] + b"\x17"):
        with pytest.raises(ProtocolError):
            parse_user_certificates(broken, 0, len(broken))


@pytest.mark.spec("QB-3.1.7.1.5.2-01")
def test_a_published_key_becomes_the_blob_that_session_keys_are_encrypted_for() -> None:
    prefix = bytes.fromhex("06020000 00a40000 52534131")
    for bits, exponent, modulus in (
        (512, 65537, MODULUS),
        (512, 3, b"\xc1" * 64),
        (511, 0x0102_0305, MODULUS),
        (1024, 17, bytes(range(128, 256))),
    ):
        encoded = prefix + pack("<II", bits, exponent) + modulus
        raw = raw_key(key_size=len(encoded), blob=encoded)
        key, _ = parse_mqds_public_key(raw, 0, len(raw))
        assert (key.key.bit_length, key.key.public_exponent, key.key.modulus) == (
            bits,
            exponent,
            modulus,
        )
        assert write_public_key_blob(key.key) == encoded

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.enums import EncryptionAlgorithm, ProviderType, PublicKeyAlgorithm
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.structures.public_key import (
    MODULUS_MAX_BITS,
    MODULUS_MAX_BYTES,
    PUBLIC_KEYS_MAX,
    MqdsPublicKey,
    PublicKeyBlob,
    SimpleBlob,
    parse_mqds_public_key,
    parse_mqds_public_keys,
    parse_public_key_blob,
    parse_simple_blob,
    write_mqds_public_key,
    write_mqds_public_keys,
    write_public_key_blob,
    write_simple_blob,
)
from tests.unit.wire.structures.codec_check import (
    check_codec,
    check_refused,
    check_whole,
    value_or_error,
)

VECTORS = Path(__file__).parents[3] / "data" / "vectors"


def modulus_of(bits: int, seed: int) -> bytes:
    return (seed % (1 << bits)).to_bytes((bits + 7) // 8, "little")


public_key_blobs = st.builds(
    lambda bits, seed, exponent, kind: PublicKeyBlob(bits, exponent, modulus_of(bits, seed), kind),
    st.integers(1, 520),
    st.integers(0, 1 << 520),
    st.integers(0, 0xFFFF_FFFF),
    st.sampled_from(PublicKeyAlgorithm),
)
provider_names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"], max_codepoint=0xFFFF),
    max_size=12,
)
public_keys = st.builds(
    MqdsPublicKey, st.sampled_from(ProviderType), provider_names, public_key_blobs
)
KEY = MqdsPublicKey(
    ProviderType.RSA_AES, "P", PublicKeyBlob(16, 65537, b"\x34\x12", PublicKeyAlgorithm.RSA_KEYX)
)
KEY_RAW = bytes.fromhex(
    "16000000 04000000 18000000 5000000006020000 00a40000 52534131 10000000 01000100 3412"
)


@given(public_key_blobs)
def test_a_public_key_blob_reads_back(key: PublicKeyBlob) -> None:
    check_codec(parse_public_key_blob, write_public_key_blob, key, write_public_key_blob(key))


@given(public_keys)
def test_a_published_key_reads_back(key: MqdsPublicKey) -> None:
    check_codec(parse_mqds_public_key, write_mqds_public_key, key, write_mqds_public_key(key))


@given(st.lists(public_keys, max_size=4).map(tuple))
def test_published_keys_read_back(keys: tuple[MqdsPublicKey, ...]) -> None:
    raw = write_mqds_public_keys(keys)
    assert int.from_bytes(raw[:4], "little") == len(raw)
    check_codec(parse_mqds_public_keys, write_mqds_public_keys, keys, raw)


@given(st.sampled_from(EncryptionAlgorithm), st.binary(min_size=1, max_size=64))
def test_a_simple_blob_reads_back(algorithm: EncryptionAlgorithm, key: bytes) -> None:
    blob = SimpleBlob(algorithm, key)
    check_whole(parse_simple_blob, write_simple_blob, blob, write_simple_blob(blob))


@given(st.binary(max_size=64))
def test_any_bytes_end_in_keys_or_the_protocol_error(raw: bytes) -> None:
    head = KEY_RAW[16:36]
    for data in (raw, head + raw, KEY_RAW[:16] + raw, bytes(4) + raw):
        value_or_error(parse_public_key_blob, data)
        value_or_error(parse_mqds_public_key, data)
        value_or_error(parse_mqds_public_keys, data)
        value_or_error(parse_simple_blob, data)


def test_the_layout_of_a_published_key() -> None:
    check_codec(parse_mqds_public_key, write_mqds_public_key, KEY, KEY_RAW)
    keys: tuple[MqdsPublicKey, ...] = (KEY, KEY)
    raw = bytes.fromhex("54000000 02000000") + KEY_RAW * 2
    check_codec(parse_mqds_public_keys, write_mqds_public_keys, keys, raw)


@pytest.mark.parametrize(
    ("offset", "replacement", "field"),
    [
        (8, "02000000", "MQDSPUBLICKEY.ulProviderType"),
        (8, "00000000", "MQDSPUBLICKEY.ulProviderType"),
        (4, "02020000", "MQDSPUBLICKEY.ulProviderLen"),
        (4, "03000000", "MQDSPUBLICKEY.sProviderName"),
        (4, "00000000", "MQDSPUBLICKEY.sProviderName"),
        (14, "4100", "MQDSPUBLICKEY.sProviderName"),
        (0, "17000000", "MQDSPUBLICKEY"),
        (0, "ffffffff", "MQDSPUBLICKEY"),
        (0, "15000000", "PUBLICKEYBLOB.modulus"),
        (16, "07", "PUBLICKEYBLOB"),
        (18, "01", "PUBLICKEYBLOB"),
        (20, "00220000", "PUBLICKEYBLOB.aiKeyAlg"),
        (24, "52534132", "PUBLICKEYBLOB"),
        (28, "00000000", "PUBLICKEYBLOB.bitLen"),
        (28, "ffffffff", "PUBLICKEYBLOB.bitLen"),
        (28, "0c000000", "PUBLICKEYBLOB.modulus"),
        (28, "08000000", "MQDSPUBLICKEY.aBuf"),
    ],
)
def test_damage_is_named(offset: int, replacement: str, field: str) -> None:
    patch = bytes.fromhex(replacement)
    raw = bytearray(KEY_RAW)
    raw[offset : offset + len(patch)] = patch
    if field == "PUBLICKEYBLOB.modulus" and replacement == "0c000000":
        raw[-1] = 0x92
    assert check_refused(parse_mqds_public_key, bytes(raw)).field == field


@pytest.mark.parametrize("length", [0, 7, 8, 45, 47, 0xFFFF_FFFF])
def test_the_total_length_must_be_exact(length: int) -> None:
    raw = length.to_bytes(4, "little") + b"\1\0\0\0" + KEY_RAW
    check_refused(parse_mqds_public_keys, raw)


def test_the_number_and_size_of_keys_are_limited() -> None:
    many: tuple[MqdsPublicKey, ...] = (KEY,) * PUBLIC_KEYS_MAX
    check_whole(parse_mqds_public_keys, write_mqds_public_keys, many, write_mqds_public_keys(many))
    with pytest.raises(ValueOutOfRange):
        write_mqds_public_keys((*many, KEY))
    raw = bytes.fromhex("08000000 01010000")
    assert check_refused(parse_mqds_public_keys, raw).field == "MQDSPUBLICKEYS.cNumofKeys"
    longest = PublicKeyBlob(MODULUS_MAX_BITS, 3, bytes(MODULUS_MAX_BYTES))
    check_codec(
        parse_public_key_blob, write_public_key_blob, longest, write_public_key_blob(longest)
    )


@pytest.mark.parametrize(
    ("offset", "replacement", "field"),
    [
        (0, "02", "SIMPLEBLOB"),
        (3, "01", "SIMPLEBLOB"),
        (8, "00240000", "SIMPLEBLOB"),
        (4, "0e800000", "SIMPLEBLOB.sessionKeyAlgorithm"),
    ],
)
def test_a_damaged_simple_blob_is_named(offset: int, replacement: str, field: str) -> None:
    patch = bytes.fromhex(replacement)
    raw = bytearray(bytes.fromhex("01020000 10660000 00a40000 aabb"))
    raw[offset : offset + len(patch)] = patch
    assert check_refused(parse_simple_blob, bytes(raw)).field == field


def test_the_size_of_an_encrypted_key_is_limited() -> None:
    head = bytes.fromhex("01020000 10660000 00a40000")
    for size in (0, MODULUS_MAX_BYTES + 1):
        assert check_refused(parse_simple_blob, head + bytes(size)).field.endswith("encryptedKey")
        with pytest.raises(ValueOutOfRange):
            write_simple_blob(SimpleBlob(EncryptionAlgorithm.AES256, bytes(size)))
    check_refused(parse_simple_blob, head[:11])


@pytest.mark.parametrize(
    "key",
    [
        PublicKeyBlob(16, 65537, b"\x01"),
        PublicKeyBlob(12, 65537, b"\x01\x10"),
        PublicKeyBlob(0, 65537, b""),
        PublicKeyBlob(MODULUS_MAX_BITS + 8, 65537, bytes(MODULUS_MAX_BYTES + 1)),
        PublicKeyBlob(16, 2**32, b"\x01\x01"),
    ],
)
def test_a_key_without_an_encoding_is_refused(key: PublicKeyBlob) -> None:
    with pytest.raises(ValueOutOfRange):
        write_public_key_blob(key)


def test_a_provider_name_without_an_encoding_is_refused() -> None:
    for name in ("x" * 256, "a\0b"):
        with pytest.raises(ValueOutOfRange):
            write_mqds_public_key(MqdsPublicKey(ProviderType.RSA_FULL, name, KEY.key))


def test_the_made_vectors() -> None:
    public = json.loads((VECTORS / "mqqb_made_crypto_publickeyblob_1024.json").read_text())
    raw = bytes.fromhex(public["hex"])
    key = value_or_error(parse_public_key_blob, raw)
    assert not isinstance(key, ProtocolError)
    assert (key.bit_length, key.public_exponent) == (1024, 65537)
    assert key.modulus[::-1].hex() == public["fields"]["modulus_be_hex"]
    assert write_public_key_blob(key) == raw
    simple = json.loads((VECTORS / "mqqb_made_crypto_simpleblob_aes256.json").read_text())
    raw = bytes.fromhex(simple["hex"])
    blob = value_or_error(parse_simple_blob, raw)
    assert not isinstance(blob, ProtocolError)
    assert blob.session_key_algorithm is EncryptionAlgorithm.AES256
    assert len(blob.encrypted_key) == simple["fields"]["encryptedKeyLength"]
    assert write_simple_blob(blob) == raw

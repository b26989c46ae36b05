"""Numbers and layouts of security: MS-MQMQ 2.2.3, 2.2.19.3, 2.2.23 to 2.2.27, MS-MQQB 2.4."""

from __future__ import annotations

import json
import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from qm.model.messages.message import Message
from qm.wire.access_mask import (
    ConnectedNetworkAccess,
    EnterpriseAccess,
    MachineAccess,
    QueueAccess,
    SiteAccess,
)
from qm.wire.enums import (
    ALGORITHMS_OF_PRIVACY_LEVEL,
    EncryptionAlgorithm,
    HashAlgorithm,
    PrivacyLevel,
    PublicKeyAlgorithm,
    SecurityInformation,
)
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.structures.public_key import (
    PublicKeyBlob,
    SimpleBlob,
    parse_public_key_blob,
    parse_simple_blob,
    write_public_key_blob,
    write_simple_blob,
)

SPEC = Path(__file__).parents[1] / "data" / "spec"
ROWS: dict[str, str] = {
    row["id"]: row["text"]
    for row in map(json.loads, (SPEC / "mqmq.jsonl").read_text(encoding="utf-8").splitlines())
}
NUMBERED = re.compile(r"\b([A-Z][A-Z0-9_-]*?(?:-\d+)?) (0x[0-9A-F]+)")


def printed(row: str) -> dict[str, int]:
    """Names and numbers of a row; names as members of the enumerations write them."""
    found = {name: int(value, 16) for name, value in NUMBERED.findall(ROWS[row])}
    assert found, row
    return {
        re.sub(r"^(MQSEC_|SEC_)", "", name.replace("-", "")): value for name, value in found.items()
    }


def check(row: str, numbers: type[IntFlag] | type[IntEnum]) -> dict[str, int]:
    """Compare what a row prints with an enumeration."""
    listed = printed(row)
    for name, value in listed.items():
        assert numbers[name].value == value, name
    return listed


@pytest.mark.spec("MQ-2.2.23-01", "MQ-2.2.23-02", "MQ-2.2.23-03")
def test_rights_to_a_queue_manager() -> None:
    single = check("MQ-2.2.23-01", MachineAccess) | check("MQ-2.2.23-02", MachineAccess)
    assert single == {right.name: right.value for right in MachineAccess}
    check("MQ-2.2.23-03", MachineAccess)


@pytest.mark.spec("MQ-2.2.24-01", "MQ-2.2.24-02", "MQ-2.2.24-03")
def test_rights_to_a_queue() -> None:
    single = check("MQ-2.2.24-01", QueueAccess) | check("MQ-2.2.24-02", QueueAccess)
    assert single == {right.name: right.value for right in QueueAccess}
    check("MQ-2.2.24-03", QueueAccess)


@pytest.mark.spec("MQ-2.2.25-01", "MQ-2.2.25-02", "MQ-2.2.26-01", "MQ-2.2.26-02")
def test_rights_to_sites_and_the_enterprise() -> None:
    for row, rights in (("MQ-2.2.25", SiteAccess), ("MQ-2.2.26", EnterpriseAccess)):
        assert check(f"{row}-01", rights) == {right.name: right.value for right in rights}
        check(f"{row}-02", rights)


@pytest.mark.spec("MQ-2.2.27-01", "MQ-2.2.27-02", "MQ-2.2.3-01")
def test_rights_to_networks_and_parts_of_a_descriptor() -> None:
    listed = check("MQ-2.2.27-01", ConnectedNetworkAccess)
    assert listed == {right.name: right.value for right in ConnectedNetworkAccess}
    check("MQ-2.2.27-02", ConnectedNetworkAccess)
    assert check("MQ-2.2.3-01", SecurityInformation) == {
        part.name: part.value for part in SecurityInformation
    }


@pytest.mark.spec("MQ-2.2.19.3-19", "MQ-2.2.19.3-21", "MQ-2.2.19.3-22", "MQ-2.2.19.3-24")
def test_algorithms() -> None:
    assert check("MQ-2.2.19.3-19", HashAlgorithm) == {one.name: one.value for one in HashAlgorithm}
    listed = check("MQ-2.2.19.3-22", EncryptionAlgorithm)
    assert listed == {one.name: one.value for one in EncryptionAlgorithm}
    # What a message names unless its sender chose.
    assert MessagePropertiesHeader(b"").hash_algorithm == 0x800E
    assert Message().hash_algorithm == HashAlgorithm.SHA512
    streams = {EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4}
    blocks = set(EncryptionAlgorithm) - streams
    assert {level.value: ALGORITHMS_OF_PRIVACY_LEVEL[level] for level in PrivacyLevel} == {
        0: set(),
        1: streams,
        3: streams,
        5: blocks,
    }


@pytest.mark.spec("QB-2.4.1-01", "MQ-2.2.20.6-19", "MQ-2.2.20.6-20")
def test_a_public_key_blob() -> None:
    head = bytes.fromhex("06020000 00a40000 52534131 00020000 01000100")
    modulus = bytes(range(1, 65))
    key = PublicKeyBlob(512, 65_537, modulus)
    assert write_public_key_blob(key) == head + modulus
    assert parse_public_key_blob(head + modulus + b"more", 0, 88) == (key, 84)
    signing = PublicKeyBlob(512, 65_537, modulus, PublicKeyAlgorithm.RSA_SIGN)
    assert write_public_key_blob(signing)[4:8] == bytes.fromhex("00240000")
    assert parse_public_key_blob(write_public_key_blob(signing), 0, 84) == (signing, 84)
    for size in (1024, 2048, 4096, 16_384):
        longer = PublicKeyBlob(size, 3, bytes(size // 8 - 1) + b"\x80")
        raw = write_public_key_blob(longer)
        assert (raw[12:16], len(raw)) == (size.to_bytes(4, "little"), 20 + size // 8)
        assert parse_public_key_blob(raw, 0, len(raw)) == (longer, len(raw))
    # Thirteen bits take two bytes, whose three highest bits are zero.
    odd = PublicKeyBlob(13, 3, b"\x34\x12")
    written = write_public_key_blob(odd)
    assert (written[12:16], written[20:]) == (bytes.fromhex("0d000000"), b"\x34\x12")
    for changed, at in ((7, 0), (1, 1), (0x33, 4), (0x32, 11), (0x32, 21)):
        damaged = bytearray(written)
        damaged[at] = changed
        with pytest.raises(ProtocolError):
            parse_public_key_blob(damaged, 0, len(damaged))
    for modulus in (b"\x34", b"\x34\x32", b"\x34\x12\x00"):
        with pytest.raises(ValueOutOfRange):
            write_public_key_blob(PublicKeyBlob(13, 3, modulus))


@pytest.mark.spec("QB-2.4.2-01", "QB-2.4.2-02", "QB-2.4.2-03")
def test_a_simple_blob() -> None:
    """The encrypted key is as long as the receiver's modulus (QB-A26)."""
    for algorithm, code in (
        (EncryptionAlgorithm.AES128, "0e66"),
        (EncryptionAlgorithm.AES192, "0f66"),
        (EncryptionAlgorithm.AES256, "1066"),
        (EncryptionAlgorithm.RC2, "0266"),
        (EncryptionAlgorithm.RC4, "0168"),
    ):
        for size in (64, 128, 256):
            key = bytes(range(256))[:size]
            raw = bytes.fromhex(f"01020000 {code}0000 00a40000") + key
            blob = SimpleBlob(algorithm, key)
            assert write_simple_blob(blob) == raw
            assert parse_simple_blob(raw, 0, len(raw)) == (blob, len(raw))
    for changed, at in ((2, 0), (1, 1), (1, 3), (0x67, 5), (1, 6), (0x24, 9)):
        damaged = bytearray(raw)
        damaged[at] = changed
        with pytest.raises(ProtocolError):
            parse_simple_blob(damaged, 0, len(damaged))
    for at in (*range(4), *range(8, 12)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        with pytest.raises(ProtocolError):
            parse_simple_blob(damaged, 0, len(damaged))
    with pytest.raises(ProtocolError):
        parse_simple_blob(raw[:12], 0, 12)

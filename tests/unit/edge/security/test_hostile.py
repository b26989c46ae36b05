"""Hostile SecurityHeaders: a bounded cost, one fact, and nothing else.

Structure-aware: valid signed and encrypted messages are taken apart, and their parts replaced by
others, lengthened, shortened and exchanged.
"""

import random
import time
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from qm.edge.security.examination import examine
from qm.edge.security.examiner import Examiner
from qm.model.values.commands import Facts, SignatureFact
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.fuzz.security import check_input
from tests.unit.edge.security.people import (
    ALICE,
    Keys,
    Table,
    certificate,
    elliptic_certificate,
    encrypted,
    plain,
    private_key,
    signed,
)
from tests.unit.model.world import PEER

OWN = private_key(1024)
PLAIN = Facts(1, PEER, "10.0.0.7", ())
CPU_MAX_S = 2.0
"""For one message, on a busy machine; the largest take some milliseconds."""
SEEDS = 400


@pytest.fixture
def examiner() -> Examiner:
    table = Table()
    table.register(ALICE, certificate())
    return Examiner(table, Keys(ADVANCED=OWN, ENHANCED=OWN, BASE=OWN))


def facts(examiner: Examiner, message: UserMessage) -> Facts:
    """Examine a message within its bound; what enters the log is sound."""
    raw = write_user_message(message)
    parsed, _ = parse_user_message(raw, 0, len(raw))
    began = time.process_time()
    question = examiner.question(raw, parsed, 0.0)
    finding = examine(question.subject)
    assert time.process_time() - began < CPU_MAX_S
    parse_user_message(finding.raw, 0, len(finding.raw))
    return examiner.facts(question, finding, PLAIN, 0.0, 1_700_000_000)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(encoded))) + encoded + content


def _nested(depth: int) -> bytes:
    made = b""
    for _ in range(depth):
        made = _der(0x30, made)
    return made


def with_key(numbers: Callable[[int, int], tuple[int, int]]) -> bytes:
    """Return Alice's certificate with another public key in its place."""
    own = private_key(2048).public_key().public_numbers()
    exponent, modulus = numbers(own.e, own.n)
    body = _der(0x02, b"\0" + modulus.to_bytes((modulus.bit_length() + 7) // 8, "big"))
    body += _der(0x02, b"\0" + exponent.to_bytes((exponent.bit_length() + 7) // 8 or 1, "big"))
    algorithm = _der(0x30, bytes.fromhex("06092a864886f70d0101010500"))
    other = _der(0x30, algorithm + _der(0x03, b"\0" + _der(0x30, body)))
    public = RSAPublicNumbers(own.e, own.n).public_key()
    known = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    whole = certificate()
    at = whole.index(known)
    # Inner and outer sequences are written again around the exchanged key.
    inner_start = whole.index(b"\x30\x82", 4)
    inner_end = inner_start + 4 + int.from_bytes(whole[inner_start + 2 : inner_start + 4], "big")
    inner = whole[inner_start + 4 : at] + other + whole[at + len(known) : inner_end]
    return _der(0x30, _der(0x30, inner) + whole[inner_end:])


CERTIFICATES: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "noise": lambda: bytes(range(256)) * 255,
    "nested": lambda: _nested(8_000)[:65_000],
    "endless length": lambda: b"\x30\x84\xff\xff\xff\xff" + bytes(100),
    "cut": lambda: certificate()[:-7],
    "longer": lambda: certificate() + b"\0",
    "elliptic": elliptic_certificate,
    "even exponent": lambda: with_key(lambda e, n: (e - 1, n)),
    "exponent 1": lambda: with_key(lambda _, n: (1, n)),
    "huge exponent": lambda: with_key(lambda _, n: (n - 2, n)),
    "even modulus": lambda: with_key(lambda e, n: (e, n - 1)),
    "16 k modulus": lambda: with_key(lambda e, n: (e, n**8 | 1)),
    "tiny modulus": lambda: with_key(lambda e, _: (e, (1 << 255) | 19)),
    "modulus 0": lambda: with_key(lambda e, _: (e, 1)),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_certificates_that_are_none_verify_nothing(examiner: Examiner, case: str) -> None:
    security = SecurityHeader(signature=bytes(256), sender_cert=CERTIFICATES[case]())
    found = facts(examiner, replace(plain(), security=security))
    assert found.signature in (SignatureFact.INVALID, SignatureFact.UNVERIFIED)
    assert found.sender_sids == ()


@pytest.mark.parametrize("size", [1, 127, 128, 129, 255, 257, 4_096, 0xFFFF])
def test_signatures_of_any_length_are_only_invalid(examiner: Examiner, size: int) -> None:
    security = SecurityHeader(signature=b"\xff" * size, sender_cert=certificate())
    assert facts(examiner, replace(plain(), security=security)).signature is SignatureFact.INVALID


@pytest.mark.parametrize("size", [1, 11, 12, 13, 139, 141, 268, 2_060, 0xFFFF])
def test_keys_of_any_length_are_only_undecryptable(examiner: Examiner, size: int) -> None:
    message = encrypted(plain(), OWN)
    assert message.security is not None
    blob = (message.security.encryption_key * 500)[:size]
    security = replace(message.security, encryption_key=blob)
    found = facts(examiner, replace(message, security=security))
    assert found.decryption_failed
    assert not found.was_encrypted


def test_a_large_message_that_matches_nothing_has_a_bounded_cost(examiner: Examiner) -> None:
    large = signed(plain(1, bytes(3 << 20)))
    altered = replace(large, properties=replace(large.properties, application_tag=9))
    assert facts(examiner, altered).signature is SignatureFact.INVALID


def test_parts_of_valid_messages_put_together_anew_prove_nothing_wrong(
    examiner: Examiner,
) -> None:
    """Whatever comes out: only the untouched message is Alice's, and nothing else raises."""
    valid = encrypted(signed(plain()), OWN)
    assert valid.security is not None
    whole = facts(examiner, valid)
    assert whole.sender_sids == (ALICE,)
    other = encrypted(signed(plain(2, b"another body")), OWN)
    assert other.security is not None
    for seed in range(SEEDS):
        made = _mutated(valid, other, random.Random(seed))
        found = facts(examiner, made)
        if found.sender_sids:
            assert found.signature is SignatureFact.VALID
            assert made.properties.correlation_id == valid.properties.correlation_id


def _mutated(valid: UserMessage, other: UserMessage, chance: random.Random) -> UserMessage:
    security, foreign = valid.security, other.security
    assert security is not None
    assert foreign is not None
    fields = ("security_id", "encryption_key", "signature", "sender_cert", "provider_info")
    for name in chance.sample(fields, chance.randint(1, 3)):
        value: bytes = getattr(security, name)
        changed = chance.choice(
            [
                b"",
                getattr(foreign, name),
                value[: chance.randint(0, len(value))],
                value + chance.randbytes(chance.randint(1, 9)),
                chance.randbytes(len(value)),
                _flipped(value, chance),
            ]
        )
        security = replace(security, **{name: changed})
    kind = chance.choice([0, 1, 2])
    if not kind:
        security = replace(security, security_id=b"")
    if not (security.security_id or security.encryption_key or security.signature):
        security = replace(security, signature=b"x")
    security = replace(security, sender_id_type=kind, is_body_encrypted=chance.random() < 0.7)
    properties = replace(
        valid.properties,
        privacy_level=chance.choice([0, 1, 2, 3, 5, 0xFFFF_FFFF]),
        hash_algorithm=chance.choice([0, 0x8001, 0x8003, 0x8004, 0x800C, 0x800E, 0xFFFF_FFFF]),
        encryption_algorithm=chance.choice([0, 0x6602, 0x660E, 0x6610, 0x6801, 0xFFFF_FFFF]),
    )
    return replace(valid, security=security, properties=properties)


def _flipped(value: bytes, chance: random.Random) -> bytes:
    if not value:
        return b"\0"
    at = chance.randrange(len(value))
    return value[:at] + bytes((value[at] ^ 1 << chance.randrange(8),)) + value[at + 1 :]


def test_hostile_fields_inside_of_valid_signatures_prove_nothing() -> None:
    """The same inputs as `make fuzz` has, without its guidance."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        check_input(bytes(chance.choice((0, 1, chance.randrange(256))) for _ in range(40)))

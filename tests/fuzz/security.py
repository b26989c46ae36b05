"""Invariant: whatever stands in a SecurityHeader costs little, and proves what it proves.

Structure-aware: an input is read as choices of fields, the message made of them is signed by Alice
as it then is, and bits of the packet are changed afterwards or not. So signatures match around
hostile fields, and the examination goes all the way. Coverage-guided:
`python -m tests.fuzz.security [libFuzzer options]`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from qm.edge.security.examination import examine
from qm.edge.security.examiner import Examiner
from qm.model.values.commands import Facts, SignatureFact
from qm.security.hashes import SUPPORTED_HASHES
from qm.security.signature_input import SignatureVersion
from qm.security.signatures import sign
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import (
    ProviderInfo,
    SecurityHeader,
    write_provider_info,
)
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.edge.security.people import (
    ALICE,
    BOB,
    Keys,
    Table,
    certificate,
    elliptic_certificate,
    encrypted,
    plain,
    private_key,
)
from tests.unit.model.world import PEER

FOLDER = Path("build") / "fuzz" / "security"
INPUT_MAX_BYTES: Final = 512
DURATION_DEFAULT_S: Final = 60
OWN: Final = private_key(1024)
ALICES: Final = private_key(1024)
NOW_S: Final = 1_700_000_000
CERTIFICATE: Final = certificate(bits=1024)
FACTS: Final = Facts(1, PEER, "10.0.0.7", ())
SIDS: Final = (b"", ALICE, BOB, ALICE[:-1], ALICE + b"\0", PEER)
CERTIFICATES: Final = (
    CERTIFICATE,
    b"",
    certificate("mallory", 1024),
    elliptic_certificate(),
    CERTIFICATE[:-1],
    CERTIFICATE + b"\0",
)
PROVIDERS: Final = (
    b"",
    write_provider_info(ProviderInfo(1, "Microsoft Base Cryptographic Provider v1.0")),
    write_provider_info(ProviderInfo(3, "DSS")),
    b"\1\0\0\0",
)
HASHES: Final = (0x800E, 0x800C, 0x8004, 0x8003, 0x8001, 0x8002, 0, 0xFFFF_FFFF)
LEVELS: Final = (0, 5, 3, 1, 2, 0xFFFF_FFFF)
CIPHERS: Final = (*map(int, EncryptionAlgorithm), 0, 0xFFFF_FFFF)


class Choices:
    """An input, read from its start; what is missing are zeros."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def byte(self) -> int:
        found, self._raw = self._raw[:1], self._raw[1:]
        return found[0] if found else 0

    def of(self, values: tuple[int, ...]) -> int:
        return values[self.byte() % len(values)]

    def bytes_of(self, known: tuple[bytes, ...]) -> bytes:
        """One that is known, or as many bytes as the next one says."""
        place = self.byte()
        if place < 0xC0:
            return known[place % len(known)]
        size = self.byte()
        found, self._raw = self._raw[:size], self._raw[size:]
        return found


def examiner() -> Examiner:
    people = Table()
    people.register(ALICE, CERTIFICATE)
    return Examiner(people, Keys(ADVANCED=OWN, ENHANCED=OWN, BASE=OWN))


def made(choices: Choices) -> tuple[UserMessage, bool]:
    """Return a message, and whether Alice signed all of it."""
    hash_algorithm, version = choices.of(HASHES), choices.of(tuple(SignatureVersion))
    security = SecurityHeader(
        choices.of((1, 0, 2)),
        security_id=choices.bytes_of(SIDS),
        sender_cert=choices.bytes_of(CERTIFICATES),
        provider_info=choices.bytes_of(PROVIDERS),
        is_default_provider=bool(choices.byte() % 2),
    )
    message = plain(1, body=choices.bytes_of((b"body", b"", b"\x08" * 16)))
    message = replace(
        message, properties=replace(message.properties, hash_algorithm=hash_algorithm)
    )
    lists = MultiQueueFormatHeader((DirectQueueFormatName("OS:a\\q"),))
    is_signed = hash_algorithm in SUPPORTED_HASHES and choices.byte() % 8 != 7
    if version is SignatureVersion.MSMQ_3:
        message = replace(message, multi_queue_format=lists)
    if is_signed:
        signature = sign(message, SignatureVersion(version), ALICES)
        if version is SignatureVersion.MSMQ_3:
            message = replace(message, multi_queue_format=replace(lists, signature=signature))
        else:
            security = replace(security, signature=signature)
    return concealed(replace(message, security=security), choices), is_signed


def concealed(message: UserMessage, choices: Choices) -> UserMessage:
    """Encrypt the body as it should be, or say so only."""
    level, algorithm = choices.of(LEVELS), choices.of(CIPHERS)
    way, blob = choices.byte() % 3, choices.bytes_of((b"",))
    if way == 1 and level:
        try:
            return encrypted(message, OWN, PrivacyLevel(level), EncryptionAlgorithm(algorithm))
        except ValueError:  # the two do not go together
            return message
    if way == 2:
        assert message.security is not None
        security = replace(message.security, is_body_encrypted=True, encryption_key=blob)
        properties = replace(
            message.properties, privacy_level=level, encryption_algorithm=algorithm
        )
        return replace(message, properties=properties, security=security)
    return message


def check_input(raw: bytes) -> None:
    """Examine the message of an input."""
    choices, asking = Choices(raw), examiner()
    try:
        message, is_signed = made(choices)
        packet = bytearray(write_user_message(message))
    except ValueOutOfRange:
        return  # no message: a header without items, too long
    is_changed = choices.byte() % 4 == 3
    if is_changed:
        at = choices.byte() << 8 | choices.byte()
        packet[at % len(packet)] ^= 1 << choices.byte() % 8
    try:
        parsed, end = parse_user_message(bytes(packet), 0, len(packet))
    except ProtocolError:
        return
    if end != len(packet) or parsed.security is None:
        return
    for _ in range(2):  # the second time with what was cached
        question = asking.question(bytes(packet), parsed, 0.0)
        finding = examine(question.subject)
        check_facts(asking.facts(question, finding, FACTS, 0.0, NOW_S), parsed, is_signed)
        clear, _ = parse_user_message(finding.raw, 0, len(finding.raw))
        if not finding.decryption_failed:
            assert clear.security is not None
            assert not clear.security.is_body_encrypted


def check_facts(facts: Facts, message: UserMessage, is_signed: bool) -> None:
    """What is proven is what Alice signed with her certificate."""
    security = message.security
    assert security is not None
    if facts.signature_version:
        assert is_signed
        assert facts.signature in (SignatureFact.VALID, SignatureFact.STRANGER)
    if facts.signature is SignatureFact.VALID:
        assert security.sender_cert == CERTIFICATE
        assert facts.hash_algorithm in SUPPORTED_HASHES
    if facts.sender_sids:
        assert facts.sender_sids == (ALICE,)
        assert facts.signature is SignatureFact.VALID
        assert security.security_id == ALICE


def main(arguments: list[str]) -> int:
    """Fuzz until the time is over or an input breaks the invariant."""
    import atheris

    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for version in range(len(SignatureVersion)):
        for way in range(3):
            seed = bytes((0, version, 0, 1, 0, 0, 1, 0, 0, 1, 4, way))
            (corpus / f"version{version}-way{way}").write_bytes(seed)
    atheris.instrument_all()
    options = [
        f"-max_total_time={DURATION_DEFAULT_S}",
        f"-max_len={INPUT_MAX_BYTES}",
        f"-artifact_prefix={FOLDER}/",
    ]
    is_replay = any(not argument.startswith("-") for argument in arguments)
    targets = [] if is_replay else [str(corpus)]
    atheris.Setup([sys.argv[0], *options, *arguments, *targets], check_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

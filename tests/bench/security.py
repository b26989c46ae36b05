"""Cost of signatures and ciphers at the edge: `python -m tests.bench.security`.

Prints JSON and writes it to build/bench-security.json. One core; messages of 1 KiB, certificates
and session keys cached as they are after a sender's first message.

verify_per_s            messages examined whose signature is verified (RSA-1024, RSA-2048)
decrypt_per_s           messages examined whose body is decrypted (AES-256, RC4)
unwrap_per_s            session keys opened with the queue manager's private key (RSA-2048)
sign_per_s              signatures made (RSA-1024, RSA-2048)
seal_per_s, open_per_s  bodies sealed for the disk, and opened again
plain, mixed, signed, encrypted
                        the edge of `tests.bench.edge` with such messages; `mixed` has 10 % signed
                        and 10 % encrypted ones; `loss` is what it loses against plain ones
stored_encrypted        the same with plain messages of which every body is sealed;
                        `share_of_seals` is the part of its time that this takes
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import uvloop
from msgspec.structs import replace

from qm.edge.security.examination import examine
from qm.edge.security.examiner import Examiner
from qm.model.values.commands import Facts
from qm.model.values.elements import SealedBodies
from qm.security.body_seals import BodyOpener, BodySealer
from qm.security.signature_input import SignatureVersion
from qm.security.signatures import sign
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.bench.edge import PACKET_BYTES, WINDOW, throughput
from tests.bench.session import packet
from tests.unit.edge.security.people import (
    ALICE,
    Keys,
    Table,
    certificate,
    encrypted,
    private_key,
    signed,
)

REPEATS = 4_000
PRIVATE_REPEATS = 300
MESSAGES_PER_SESSION = 6_000
OUTPUT = Path("build") / "bench-security.json"
OWN_KEY = private_key(2048)
PLAIN = Facts(1, bytes(16), "127.0.0.1", ())


def per_second(work: Callable[[], object], repeats: int) -> int:
    """Return how often a core does something in a second of CPU."""
    work()
    began = time.process_time()
    for _ in range(repeats):
        work()
    return round(repeats / (time.process_time() - began))


def examining(message: UserMessage, people: Table, keys: Keys) -> Callable[[], object]:
    """Return what the edge does with a message, parsing included."""
    examiner, raw = Examiner(people, keys), write_user_message(message)

    def once() -> Facts:
        parsed, _ = parse_user_message(raw, 0, len(raw))
        question = examiner.question(raw, parsed, 0.0)
        return examiner.facts(question, examine(question.subject), PLAIN, 0.0, 1_700_000_000)

    return once


def alone(message: UserMessage, people: Table, keys: Keys) -> dict[str, int]:
    """Measure what is done to one message."""
    advanced = encrypted(message, OWN_KEY)
    rc4 = encrypted(message, OWN_KEY, PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC4)
    fresh = examining(advanced, people, keys)
    found = {
        f"verify_per_s_{bits}": per_second(
            examining(signed(message, bits=bits), people, keys), REPEATS
        )
        for bits in (1024, 2048)
    }
    found["decrypt_per_s_aes256"] = per_second(examining(advanced, people, keys), REPEATS)
    found["decrypt_per_s_rc4"] = per_second(examining(rc4, people, keys), REPEATS)

    def unwrap() -> object:
        keys.version += 1
        return fresh()

    found["unwrap_per_s"] = per_second(unwrap, PRIVATE_REPEATS)
    for bits in (1024, 2048):
        key = private_key(bits)
        work = lambda key=key: sign(message, SignatureVersion.MSMQ_2, key)  # noqa: E731
        found[f"sign_per_s_{bits}"] = per_second(work, PRIVATE_REPEATS)
    return found


class Sealed:
    """Has every body sealed."""

    which: Final = SealedBodies.ALL

    def __init__(self) -> None:
        self._sealer = BodySealer(bytes(32), 1, os.urandom)

    def sealer(self) -> BodySealer:
        return self._sealer


def sealing(raw: bytes) -> dict[str, int]:
    """Measure what is done to one body at rest."""
    sealer, opener = Sealed().sealer(), BodyOpener(lambda _: bytes(32))
    stored = sealer.sealed(raw)
    return {
        "seal_per_s": per_second(lambda: sealer.sealed(raw), REPEATS),
        "open_per_s": per_second(lambda: opener.opened(stored), REPEATS),
    }


def windows(message: UserMessage) -> dict[str, list[bytes]]:
    """Return the packets of one window by name."""
    plain = write_user_message(message)
    known = write_user_message(signed(message))
    sealed = write_user_message(encrypted(message, OWN_KEY))
    mixed = [known if k % 10 == 3 else sealed if k % 10 == 7 else plain for k in range(WINDOW)]
    return {
        "plain": [plain] * WINDOW,
        "mixed": mixed,
        "signed": [known] * WINDOW,
        "encrypted": [sealed] * WINDOW,
    }


def whole(message: UserMessage, people: Table, keys: Keys) -> dict[str, object]:
    """Measure the edge with each kind of messages."""
    found: dict[str, object] = {}
    rates: dict[str, float] = {}
    for name, packets in windows(message).items():
        measured = uvloop.run(throughput(packets, MESSAGES_PER_SESSION, people, keys))
        rates[name] = measured["cpu_us_per_message"]
        found[f"{name}_messages_per_s"] = measured["messages_per_s"]
        found[f"{name}_cpu_us_per_message"] = measured["cpu_us_per_message"]
    plain = windows(message)["plain"]
    stored = uvloop.run(throughput(plain, MESSAGES_PER_SESSION, sealing=Sealed()))
    found["stored_encrypted_messages_per_s"] = stored["messages_per_s"]
    found["stored_encrypted_cpu_us_per_message"] = stored["cpu_us_per_message"]
    found["share_of_seals"] = round(1 - rates["plain"] / stored["cpu_us_per_message"], 3)
    found["loss"] = round(1 - rates["plain"] / rates["mixed"], 3)
    found["share_of_signed"] = round(1 - rates["plain"] / rates["signed"], 3)
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write."""
    del arguments
    raw = packet(PACKET_BYTES)
    message, _ = parse_user_message(raw, 0, len(raw))
    message = replace(message, properties=replace(message.properties, label=None))
    people, keys = Table(), Keys(ENHANCED=OWN_KEY, ADVANCED=OWN_KEY)
    people.register(ALICE, certificate(), certificate(bits=1024))
    figures: dict[str, object] = dict(alone(message, people, keys))
    figures |= sealing(raw) | whole(message, people, keys)
    text = json.dumps(figures, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

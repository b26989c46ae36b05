"""Two clusters of real processes exchange signed and encrypted messages; both lose their leaders.

Every list of signed fields, every hash that is not refused, every privacy level and cipher, outside
of transactions and inside. Each queue manager knows of the other what `qm directory` and
`qm certificate` have told it.
"""

import asyncio
import itertools
import json
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from qm.client.client import Client
from qm.client.message import Message, ReceivedMessage
from qm.client.signing import AuthenticationLevel, Signer, new_signer
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.security.signature_input import SignatureVersion
from qm.wire.enums import EncryptionAlgorithm as Cipher
from qm.wire.enums import HashAlgorithm, PrivacyLevel
from tests.cluster.harness import run
from tests.cluster.test_processes import client, dev_cluster, leader_of, qm
from tests.unit.edge.security.people import ALICE

ALICE_TEXT = "S-1-5-21-1-2-3-1001"
SETTINGS = """
[msmq]
signature_hashes = ["md5", "sha1", "sha256", "sha512"]
"""
RECEIVE_S = 60.0
WHOLE_S = 400.0
"""Six nodes start three times on two cores: a minute when these are quiet."""
QUEUES = ("sealed", "sealed2", "ordered", "ordered2")
"""The first two for single messages, the others for transactional ones."""
BODIES = (
    (PrivacyLevel.NONE, 0),
    (PrivacyLevel.BASE, Cipher.RC2),
    (PrivacyLevel.BASE, Cipher.RC4),
    (PrivacyLevel.ENHANCED, Cipher.RC2),
    (PrivacyLevel.ENHANCED, Cipher.RC4),
    (PrivacyLevel.ADVANCED, Cipher.AES128),
    (PrivacyLevel.ADVANCED, Cipher.AES192),
    (PrivacyLevel.ADVANCED, Cipher.AES256),
)
SIGNATURES = {
    AuthenticationLevel.NONE: 0,
    AuthenticationLevel.SIG10: SignatureVersion.MSMQ_1,
    AuthenticationLevel.SIG20: SignatureVersion.MSMQ_2,
    AuthenticationLevel.SIG30: SignatureVersion.MSMQ_3,
}
"""What is asked for, and what the receiver must have verified."""
HASHES = (HashAlgorithm.MD5, HashAlgorithm.SHA1, HashAlgorithm.SHA256, HashAlgorithm.SHA512)


class Side:
    """One of the clusters."""

    def __init__(self, name: str, layout: Layout, nodes: list[DevNode]) -> None:
        self.name = name
        self.layout = layout
        self.nodes = nodes
        self.queues: dict[str, str] = {}
        """Name -> format name by which the other side encrypts for it."""

    async def qm(self, *arguments: str) -> str:
        pki = self.layout.pki
        code, said = await qm(
            *arguments,
            *("--endpoint", ",".join(node.api for node in self.nodes)),
            *("--tls-authority", str(pki / "authority.pem")),
            *("--tls-certificate", str(pki / "admin.pem")),
            *("--tls-key", str(pki / "admin.key")),
        )
        assert code == 0, said
        return said

    async def create_queues(self) -> None:
        for name in QUEUES:
            path = f".\\private$\\{name}"
            kind = ["--transactional"] if name.startswith("ordered") else []
            await self.qm("queue", "create", path, *kind)
            shown = json.loads(await self.qm("queue", "show", path, "-o", "json"))
            self.queues[name] = shown["format_name"]

    async def learn_of(self, other: "Side", signer: Signer) -> None:
        """Let it know the other queue manager and the person who sends there."""
        folder = self.layout.folder
        manager, person = folder / "other.yaml", folder / "alice.pem"
        addresses = itertools.chain(*(("--address", node.host) for node in other.nodes))
        await other.qm("directory", "manager", "own", *addresses, "-f", str(manager))
        # `qm dev` calls every cluster QUORATE; a directory has each name once.
        (own,) = yaml.safe_load(manager.read_text())
        own |= {"name": other.name, "dns_name": f"{other.name}.example"}
        manager.write_text(yaml.safe_dump([own]))
        await self.qm("directory", "manager", "import", str(manager))
        signer.write(person)
        await self.qm("certificate", "register", str(person), "--sid", ALICE_TEXT)

    def client(self) -> Client:
        return client(self.layout, self.nodes)

    async def lose_leader(self) -> None:
        leader = await leader_of(self.nodes)
        assert pids.send(self.layout.pid(leader.name), signal.SIGKILL)


def messages(signer: Signer) -> list[Message]:
    """Return one message of each kind."""
    kinds = itertools.product(SIGNATURES, BODIES)
    return [
        Message(
            body=b"message %d" % number,
            label=f"{level.name} {privacy.name}",
            authentication_level=level,
            signer=signer if level else None,
            sender_id=ALICE if level else b"",
            hash_algorithm=HASHES[number % len(HASHES)],
            privacy_level=privacy,
            encryption_algorithm=cipher,
        )
        for number, (level, (privacy, cipher)) in enumerate(kinds)
    ]


def targets(message: Message, here: Sequence[str]) -> list[str]:
    """Return where a message goes: a signature of version 3.0 is that of one to several queues."""
    return list(here[: 2 if message.authentication_level == AuthenticationLevel.SIG30 else 1])


async def send_all(sender: Client, to: Side, sent: Sequence[Message]) -> None:
    """Send each message twice: by itself, and in a transaction."""
    single, ordered = ([to.queues[name] for name in names] for names in (QUEUES[:2], QUEUES[2:]))
    for message in sent:
        await sender.send(targets(message, single), message)
        async with sender.transaction() as transaction:
            await transaction.send(targets(message, ordered), message)


def check(found: ReceivedMessage, sent: Message, signer: Signer) -> None:
    said = f"{sent.label} {sent.body!r}"
    assert found.body == sent.body, said
    assert found.authentication_level == SIGNATURES[AuthenticationLevel(sent.authentication_level)]
    assert found.was_encrypted == (sent.privacy_level != PrivacyLevel.NONE), said
    if sent.authentication_level:
        assert found.sender_certificate == signer.certificate, said
        assert found.sender_id == ALICE, said
    if sent.privacy_level:
        wire = found.wire.properties
        assert (wire.privacy_level, wire.encryption_algorithm) == (
            sent.privacy_level,
            sent.encryption_algorithm,
        ), said


async def receive_all(
    receiver: Client, name: str, expected: Sequence[Message], signer: Signer
) -> None:
    """Receive what was sent to a queue: each message once, those of transactions in order."""
    queue = await receiver.open_queue(f".\\private$\\{name}")
    found: list[ReceivedMessage] = []
    while len(found) < len(expected):
        message = await queue.receive(timeout_s=RECEIVE_S)
        assert message is not None, (name, [one.body for one in found])
        found.append(message)
    assert await queue.receive(timeout_s=0) is None
    if not name.startswith("ordered"):  # single messages may come again in another order
        found.sort(key=lambda one: int(one.body.split()[1]))
    for one, sent in zip(found, expected, strict=True):
        check(one, sent, signer)


@pytest.mark.timeout(500)
def test_every_kind_of_signature_and_cipher_arrives_while_both_lose_their_leaders(
    tmp_path: Path,
) -> None:
    signer = new_signer("alice", 2048, 30)
    sent = messages(signer)
    half = len(sent) // 2

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            sides = [
                Side(name, *await stack.enter_async_context(dev_cluster(tmp_path / name, SETTINGS)))
                for name in ("near", "far")
            ]
            pairs = [(sides[0], sides[1]), (sides[1], sides[0])]
            await asyncio.gather(*(side.create_queues() for side in sides))
            await asyncio.gather(*(to.learn_of(side, signer) for side, to in pairs))
            clients = [await stack.enter_async_context(side.client()) for side in sides]
            for part in (sent[:half], sent[half:]):
                sending = [
                    asyncio.create_task(send_all(sender, to, part))
                    for sender, (_, to) in zip(clients, pairs, strict=True)
                ]
                await sides[0].lose_leader()
                await sides[1].lose_leader()
                await asyncio.gather(*sending)
            several = [one for one in sent if len(targets(one, ["", ""])) > 1]
            expected = dict(zip(QUEUES, (sent, several, sent, several), strict=True))
            for receiver in clients:
                for name, those in expected.items():
                    await receive_all(receiver, name, those, signer)

    run(scenario(), WHOLE_S)

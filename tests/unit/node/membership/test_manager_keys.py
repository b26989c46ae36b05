"""A node unseals the queue manager's keys, and the leader publishes and replaces them."""

import asyncio
from collections.abc import Sequence
from math import gcd, lcm
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from qm.api.gate.operations import NotOffered
from qm.model.queries import View, manager_keys
from qm.model.values import commands
from qm.model.values.effects import Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.node.config.loading import parse
from qm.node.config.schema import NodeConfig
from qm.node.leader.key_publication import KeyPublication
from qm.node.membership.birth import PRIVATE_KEYS_LABEL, keep_sealing_key, provision
from qm.node.membership.manager_keys import NodeKeys
from qm.security.providers import Provider
from qm.store.sealing import SealingError, seal
from qm.wire.structures.public_key import parse_mqds_public_keys
from tests.unit.edge.security.people import private_key
from tests.unit.model.world import NOW_MS, World
from tests.unit.node.config.test_loading import SOUND

KEY = bytes(range(32))
BIRTH = provision("QUORATE", "quorate.example", (), KEY)


class Node:
    """A `Cluster` of one state, born by a command, and the node's configuration."""

    def __init__(
        self, folder: Path, birth: commands.Provision = BIRTH, *, version: int = APPLY_VERSION
    ) -> None:
        self.world = World(birth)
        self.world.one(commands.RaiseApplyVersion(version))
        self.config = self._config(folder)
        self.keys = NodeKeys(self.config, self)  # type: ignore[arg-type]
        self.publication = KeyPublication(self.keys, self)  # type: ignore[arg-type]

    def _config(self, folder: Path) -> NodeConfig:
        return replace(parse(SOUND, Path("/nowhere")), data=folder)

    @property
    def view(self) -> View:
        return View.of(self.world.state)

    def now_ms(self) -> int:
        return self.world.now_ms

    async def propose(self, *given: commands.Command) -> Sequence[Outcome]:
        return self.world.apply(*given).outcomes

    def is_sealed(self) -> bool:
        return self.keys.is_sealed

    def give_key(self, key: bytes = KEY) -> None:
        keep_sealing_key(self.config.storage, self.config.data, key)

    def look(self) -> None:
        async def both() -> None:
            await self.keys.look()
            await self.publication.look()
            await self.keys.look()

        asyncio.run(both())


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file of the configuration exist."""
    monkeypatch.setattr(Path, "is_file", lambda _: True)


@pytest.mark.spec("DM-3.1.3-07", "DM-3.1.3-08", "DM-5.1-01", "MQ-2.2.20.6-21", "QB-3.1.5.8.3-11")
def test_each_provider_has_a_key_of_its_own_for_each_purpose(tmp_path: Path) -> None:
    """QB-A60: 1,024 bits for Base and 2,048 for the others, where the text has 512 and 1,024."""
    node = Node(tmp_path)
    node.give_key()
    assert node.is_sealed()
    node.look()
    assert not node.is_sealed()
    moduli: list[list[int]] = [[], []]
    for provider in Provider:
        (exchange,) = node.keys.exchange_keys(provider)
        signing = node.keys.signing_key(provider)
        assert signing is not None
        bits = 1024 if provider is Provider.BASE else 2048
        for kind, key in zip(moduli, (exchange, signing), strict=True):
            assert key.key_size == bits
            kind.append(key.public_key().public_numbers().n)
    assert len({*moduli[0], *moduli[1]}) == 6
    manager = node.view.ledger.manager
    assert manager is not None
    lists = (manager.public_encryption_key_list, manager.public_signing_key_list)
    # Keys for exchange, and keys for signatures.
    for encoded, own, algorithm in zip(lists, moduli, (0xA400, 0x2400), strict=True):
        published, _ = parse_mqds_public_keys(encoded, 0, len(encoded))
        assert [one.key.algorithm.value for one in published] == [algorithm] * 3
        assert [int.from_bytes(one.key.modulus, "little") for one in published] == own
        assert [(one.provider_type, one.provider_name) for one in published] == [
            (1, "Microsoft Base Cryptographic Provider v1.0"),
            (1, "Microsoft Enhanced Cryptographic Provider v1.0"),
            (24, "Microsoft Enhanced RSA and AES Cryptographic Provider"),
        ]
    assert manager_keys(node.view).generation == 1


@pytest.mark.spec("DM-3.1.3-09")
def test_each_key_that_is_made_is_valid_and_named_with_a_nul(tmp_path: Path) -> None:
    """RFC 8017 3.1 and 3.2: n is a product of odd primes, e and d undo each other modulo it."""
    node = Node(tmp_path)
    node.give_key()
    node.look()
    manager = node.view.ledger.manager
    assert manager is not None
    for provider in Provider:
        (exchange,) = node.keys.exchange_keys(provider)
        signing = node.keys.signing_key(provider)
        assert signing is not None
        for key in (exchange, signing):
            numbers = key.private_numbers()
            p, q, d = numbers.p, numbers.q, numbers.d
            n, e = numbers.public_numbers.n, numbers.public_numbers.e
            assert (n, p % 2, q % 2, p != q) == (p * q, 1, 1, True)
            assert 3 <= e < n
            period = lcm(p - 1, q - 1)
            assert (gcd(e, period), e * d % period) == (1, 1)
            for witness in (2, 3, 5, 7):
                assert pow(witness, p - 1, p) == pow(witness, q - 1, q) == 1, "a prime"
        name = (provider.provider_name + "\0").encode("utf-16-le")
        assert name in manager.public_encryption_key_list
        assert name in manager.public_signing_key_list


def test_replaced_keys_open_until_their_time_is_over(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.give_key()
    node.look()
    version = node.keys.version
    (old,) = node.keys.exchange_keys(Provider.ENHANCED)
    new = asyncio.run(node.keys.next_keys())
    command = commands.SetManagerKeys(
        commands.Request("", 0, 0),
        new.sealed_private_keys,
        new.exchange_keys,
        new.signing_keys,
        new.generation,
        60_000,
        (),
    )
    assert node.world.one(command).status == 0
    assert node.is_sealed()
    node.look()
    assert not node.is_sealed()
    assert node.keys.version > version
    present, before = node.keys.exchange_keys(Provider.ENHANCED)
    assert before.private_numbers() == old.private_numbers()
    assert present.private_numbers() != old.private_numbers()
    node.world.now_ms = NOW_MS + 60_001
    assert len(node.keys.exchange_keys(Provider.ENHANCED)) == 1


def test_a_queue_manager_of_an_older_release_gets_keys_and_keeps_its_own(tmp_path: Path) -> None:
    own = private_key(2048)
    secret = own.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    born = replace_sealed(seal(KEY, bytes(12), secret, PRIVATE_KEYS_LABEL))
    node = Node(tmp_path, born)
    node.give_key()
    node.look()
    assert manager_keys(node.view).generation == 2
    keys = node.keys.exchange_keys(Provider.ADVANCED)
    assert [key.private_numbers() == own.private_numbers() for key in keys] == [False, True]
    assert len(node.keys.exchange_keys(Provider.BASE)) == 1


def replace_sealed(sealed: bytes) -> commands.Provision:
    return replace(BIRTH, sealed_private_keys=sealed)


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_without_the_sealing_key_a_node_says_so_and_offers_nothing(
    tmp_path: Path, key: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    if key is not None:
        node.give_key(key)
    node.look()
    assert node.is_sealed()
    assert node.keys.exchange_keys(Provider.ENHANCED) == []
    assert node.keys.signing_key(Provider.ENHANCED) is None
    with pytest.raises(NotOffered):
        asyncio.run(node.keys.next_keys())
    assert "cannot decrypt messages" in caplog.text


def test_other_secrets_are_opened_by_their_label_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(NotOffered, match="cannot seal"):
        asyncio.run(node.keys.sealed(b"secret", b"label"))
    node.give_key()
    held = asyncio.run(node.keys.sealed(b"secret", b"label"))
    assert b"secret" not in held
    assert node.keys.opened(held, b"label") == b"secret"
    with pytest.raises(SealingError):
        node.keys.opened(held, b"other")

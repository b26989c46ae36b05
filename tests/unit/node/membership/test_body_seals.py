"""What a node does to bodies before it proposes them, and what it makes of stored ones."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from zlib_ng.zlib_ng import crc32

from qm.cluster.cluster import Unavailable
from qm.model.queries import View
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Facts, Request, Send
from qm.model.values.elements import SealedBodies
from qm.model.values.limits import APPLY_VERSION, VERSION_OF_SEALED_BODIES
from qm.model.values.records import SecurityPolicy, encode
from qm.node.membership import manager_keys
from qm.node.membership.body_seals import LOOK_EVERY_S, BodySeals
from qm.node.membership.manager_keys import NodeKeys
from qm.observe.metrics import Metrics
from qm.security.body_seals import is_sealed
from qm.store.bodies.body_places import BodyDamaged, BodyUnopened
from qm.wire.enums import PrivacyLevel
from tests.unit.model.world import packet
from tests.unit.node.membership.test_manager_keys import Node, files

__all__ = ["files"]

SECRET = b"the launch code is 0000"
PLAIN = packet(0, body=SECRET)
TO_ENCRYPT = packet(0, body=SECRET, properties={"privacy_level": PrivacyLevel.ADVANCED})


class SealingNode(Node):
    """A node with its seals, and a clock that a test turns."""

    def __init__(self, folder: Path, *, version: int = APPLY_VERSION) -> None:
        self.is_readable = True
        super().__init__(folder, version=version)
        self.now = 1_000.0
        self.seals = self.new_seals()

    def new_seals(self) -> BodySeals:
        self.registry = CollectorRegistry()
        return BodySeals(
            self.keys,
            self,  # type: ignore[arg-type]
            Metrics(self.registry),
            lambda: self.now,
        )

    @property
    def view(self) -> View:
        if not self.is_readable:
            raise Unavailable("its state is being replaced")
        return View.of(self.world.state)

    def which(self) -> SealedBodies:
        return self.seals.which

    def set(self, which: SealedBodies) -> None:
        command = commands.SetSecurityPolicy(False, (), False, False, False, which)
        assert self.world.one(command).status == 0
        self.now += LOOK_EVERY_S

    def unopened(self, reason: str) -> float | None:
        return self.registry.get_sample_value("quorate_bodies_unopened_total", {"reason": reason})

    def sent(self, *packets: bytes, **fields: Any) -> Send:
        command = Send.of(
            Request("c", 1, 0), [("DIRECT=OS:a\\b", raw) for raw in packets], **fields
        )
        made = self.seals.sealed(command)
        assert isinstance(made, Send)
        return made


@pytest.fixture
def node(tmp_path: Path) -> SealingNode:
    made = SealingNode(tmp_path)
    made.give_key()
    made.look()
    return made


def packets_of(send: Send) -> list[bytes]:
    found, begin = [], 0
    for target in send.targets:
        found.append(bytes(send.packets[begin : begin + target.packet_bytes]))
        begin += target.packet_bytes
    assert begin == len(send.packets)
    assert [target.checksum for target in send.targets] == list(map(crc32, found))
    assert [target.is_sealed for target in send.targets] == list(map(is_sealed, found))
    return found


@pytest.mark.parametrize(
    ("which", "are_sealed"),
    [
        (SealedBodies.NONE, [False, False]),
        (SealedBodies.ENCRYPTED, [False, True]),
        (SealedBodies.ALL, [True, True]),
    ],
)
def test_the_policy_says_which_bodies_of_a_client_are_sealed(
    node: SealingNode, which: SealedBodies, are_sealed: list[bool]
) -> None:
    node.set(which)
    stored = packets_of(node.sent(PLAIN, TO_ENCRYPT))
    assert [SECRET not in each for each in stored] == are_sealed
    assert [node.seals.opened(each) for each in stored] == [PLAIN, TO_ENCRYPT]


def test_what_arrived_encrypted_by_a_client_is_sealed(node: SealingNode) -> None:
    node.set(SealedBodies.ENCRYPTED)
    facts = Facts(0, b"", "", ())
    made = node.sent(PLAIN, PLAIN, facts=(replace(facts, was_encrypted=True), facts))
    assert [target.is_sealed for target in made.targets] == [True, False]


def test_other_commands_stay_as_they_are(node: SealingNode) -> None:
    node.set(SealedBodies.ALL)
    command = commands.ClockTick(1)
    assert node.seals.sealed(command) is command


def test_without_a_policy_nothing_is_sealed(node: SealingNode) -> None:
    assert node.which() is SealedBodies.NONE
    node.set(SealedBodies.ALL)
    assert node.which() is SealedBodies.ALL


def test_a_cluster_of_an_older_version_seals_nothing(tmp_path: Path) -> None:
    older = SealingNode(tmp_path, version=VERSION_OF_SEALED_BODIES - 1)
    policy = SecurityPolicy(sealed_bodies=SealedBodies.ALL)
    older.world.state.put(Table.META, b"security", encode(policy))
    assert older.which() is SealedBodies.NONE


def test_a_change_counts_after_a_moment_and_survives_a_state_that_is_replaced(
    node: SealingNode,
) -> None:
    assert node.which() is SealedBodies.NONE
    node.set(SealedBodies.ALL)
    node.now -= 2 * LOOK_EVERY_S
    assert node.which() is SealedBodies.NONE
    node.now += 3 * LOOK_EVERY_S
    assert node.which() is SealedBodies.ALL
    node.is_readable = False
    node.now += 2 * LOOK_EVERY_S
    assert node.which() is SealedBodies.ALL
    with pytest.raises(Unavailable):
        _ = node.new_seals().which


def test_new_keys_seal_and_old_ones_open(node: SealingNode) -> None:
    node.set(SealedBodies.ALL)
    (old,) = packets_of(node.sent(PLAIN))
    assert node.seals.sealer().generation == 1
    new_keys = asyncio.run(node.keys.next_keys())
    command = commands.SetManagerKeys(
        Request("", 0, 0),
        new_keys.sealed_private_keys,
        new_keys.exchange_keys,
        new_keys.signing_keys,
        new_keys.generation,
        0,
        (),
    )
    assert node.world.one(command).status == 0
    node.now += LOOK_EVERY_S
    (new,) = packets_of(node.sent(PLAIN))
    assert node.seals.sealer().generation == 2
    for seals in (node.seals, node.new_seals()):
        assert seals.opened(old) == seals.opened(new) == PLAIN


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_nothing_is_stored_plain_where_the_key_is_not_the_clusters(
    tmp_path: Path, key: bytes | None
) -> None:
    """A wrong key would seal what no other node can open."""
    node = SealingNode(tmp_path)
    if key is not None:
        node.give_key(key)
    node.look()
    node.set(SealedBodies.ALL)
    with pytest.raises(Unavailable, match="cannot seal"):
        node.sent(PLAIN)


def test_a_body_that_does_not_open_is_damage(
    node: SealingNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.set(SealedBodies.ALL)
    (stored,) = packets_of(node.sent(PLAIN))
    altered = bytearray(stored)
    altered[PLAIN.index(SECRET)] ^= 1
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(BodyDamaged, match="altered"):
                node.seals.opened(bytes(altered))
    assert node.unopened("broken") == 3
    assert len(caplog.records) == 1


def test_a_node_without_the_key_sends_readers_elsewhere(node: SealingNode, tmp_path: Path) -> None:
    node.set(SealedBodies.ALL)
    (stored,) = packets_of(node.sent(PLAIN))
    other = SealingNode(tmp_path / "other")
    for _ in range(2):
        with pytest.raises(BodyUnopened, match="sealing_key_file"):
            other.seals.opened(stored)
    assert other.unopened("no_key") == 2
    assert other.seals.opened(PLAIN) == PLAIN


def test_reading_and_sealing_ask_nobody_for_the_key(
    node: SealingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run on the event loop; a command that gives the key may take seconds."""
    node.set(SealedBodies.ALL)
    (stored,) = packets_of(node.sent(PLAIN))

    def ask(*_: object) -> bytes:
        raise AssertionError("the key was asked for")

    monkeypatch.setattr(manager_keys, "sealing_key", ask)
    unasked = NodeKeys(node.config, node)  # type: ignore[arg-type]
    monkeypatch.setattr(node, "keys", unasked)
    with pytest.raises(BodyUnopened, match="sealing_key_file"):
        node.new_seals().opened(stored)
    with pytest.raises(Unavailable, match="cannot seal"):
        node.new_seals().sealed(Send.of(Request("c", 2, 0), [("DIRECT=OS:a\\b", PLAIN)]))

"""The policy on signatures and ciphers follows the leader's configuration."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from qm.model.queries import View, security_policy
from qm.model.values import commands
from qm.model.values.effects import Outcome
from qm.model.values.elements import SealedBodies
from qm.model.values.limits import (
    APPLY_VERSION,
    VERSION_OF_MESSAGE_SECURITY,
    VERSION_OF_SEALED_BODIES,
)
from qm.model.values.records import SecurityPolicy
from qm.node.config.schema import MsmqSection, StorageSection
from qm.node.leader.message_policy import MessagePolicy
from qm.wire.enums import HashAlgorithm
from tests.unit.model.world import World


class OneState:
    """A `Cluster` of one state."""

    def __init__(self) -> None:
        self.world = World()
        self.proposed: list[commands.Command] = []

    @property
    def view(self) -> View:
        return View.of(self.world.state)

    async def propose(self, *given: commands.Command) -> Sequence[Outcome]:
        self.proposed += given
        return self.world.apply(*given).outcomes

    def look(self, encrypt_bodies: Any = "none", **msmq: Any) -> SecurityPolicy | None:
        """Let the leader look; return the policy in force."""
        storage = StorageSection(encrypt_bodies=encrypt_bodies)
        asyncio.run(MessagePolicy(MsmqSection(**msmq), storage, self).look())  # type: ignore[arg-type]
        return security_policy(self.view)


@pytest.fixture
def one() -> OneState:
    state = OneState()
    state.world.one(commands.RaiseApplyVersion(APPLY_VERSION))
    return state


def test_a_policy_is_proposed_once_and_when_it_changes(one: OneState) -> None:
    assert one.look() == SecurityPolicy()
    one.look()
    assert len(one.proposed) == 1
    changed = one.look(
        trust_sender_id=True,
        signature_hashes=("sha512", "sha1"),
        accept_unknown_certificates=True,
        reject_reduced_rc2=True,
        accept_expired_certificates=True,
    )
    hashes = (int(HashAlgorithm.SHA1), int(HashAlgorithm.SHA512))
    assert changed == SecurityPolicy(True, hashes, True, True, True)


@pytest.mark.spec("QB-6-01")
@pytest.mark.parametrize(
    ("name", "number"), [("md5", 0x8003), ("sha1", 0x8004), ("sha256", 0x800C), ("sha512", 0x800E)]
)
def test_each_hash_counts_when_it_is_configured(one: OneState, name: str, number: int) -> None:
    assert one.look(signature_hashes=(name,)) == SecurityPolicy(hash_algorithms=(number,))


def test_a_cluster_of_an_older_version_is_not_asked() -> None:
    one = OneState()
    one.world.version = VERSION_OF_MESSAGE_SECURITY - 1
    one.world.one(commands.RaiseApplyVersion(VERSION_OF_MESSAGE_SECURITY - 1))
    assert one.look() is None
    assert not one.proposed


@pytest.mark.parametrize(
    ("said", "which"), [("encrypted", SealedBodies.ENCRYPTED), ("all", SealedBodies.ALL)]
)
def test_bodies_are_stored_as_the_leader_says(
    one: OneState, said: str, which: SealedBodies
) -> None:
    assert one.look(said) == SecurityPolicy(sealed_bodies=which)
    assert one.look() == SecurityPolicy()


def test_an_older_cluster_is_not_asked_again_and_again_for_seals() -> None:
    one = OneState()
    one.world.version = VERSION_OF_SEALED_BODIES - 1
    one.world.one(commands.RaiseApplyVersion(VERSION_OF_SEALED_BODIES - 1))
    assert one.look("all") == SecurityPolicy()
    one.look("all")
    assert len(one.proposed) == 1

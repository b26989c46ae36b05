"""The rules of bindings follow the leader's configuration, names looked up."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qm.model.queries import View, binding_policy
from qm.model.values import commands
from qm.model.values.effects import Outcome
from qm.model.values.elements import BindingMode
from qm.model.values.limits import APPLY_VERSION, VERSION_OF_BINDINGS
from qm.node.config.loading import parse
from qm.node.config.schema import NodeConfig
from qm.node.leader.peer_bindings import PeerBindings
from tests.unit.model.world import World
from tests.unit.node.config.test_loading import SOUND

GUID = "00000000-0000-0000-0000-0000000000A7"
OTHER = "00000000-0000-0000-0000-0000000000B8"


class OneState:
    """A `Cluster` of one state, and a resolver that knows what a test tells it."""

    def __init__(self) -> None:
        self.world = World()
        self.world.one(commands.RaiseApplyVersion(APPLY_VERSION))
        self.proposed: list[commands.Command] = []
        self.known: dict[str, list[str]] = {}

    @property
    def view(self) -> View:
        return View.of(self.world.state)

    async def propose(self, *given: commands.Command) -> Sequence[Outcome]:
        self.proposed += given
        return self.world.apply(*given).outcomes

    async def addresses(self, host: str) -> Sequence[str]:
        if host not in self.known:
            raise OSError(f"nobody knows {host}")
        return self.known[host]

    def look(self, config: NodeConfig) -> tuple[str, ...]:
        """Let the leader look; return the pins in force."""
        bindings = PeerBindings(config, self, self)  # type: ignore[arg-type]
        asyncio.run(bindings.look())
        policy = binding_policy(self.view)
        return () if policy is None else policy.pins


@pytest.fixture
def one() -> OneState:
    return OneState()


def config(**fields: Any) -> NodeConfig:
    made = parse(SOUND, Path("/nowhere"))
    peers = fields.pop("peers", {})
    msmq = msgspec.structs.replace(made.msmq, **fields)
    return msgspec.structs.replace(made, msmq=msmq, peers=peers)


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file of the configuration exist."""
    monkeypatch.setattr(Path, "is_file", lambda _: True)


def test_rules_are_proposed_once_and_when_they_change(one: OneState) -> None:
    one.look(config())
    one.look(config())
    policy = binding_policy(one.view)
    assert policy is not None
    assert (policy.mode, policy.silence_ms) == (BindingMode.BIND, 300_000)
    one.look(config(binding="strict", binding_shared=("10.0.1.0/24", "10.0.0.0/24")))
    policy = binding_policy(one.view)
    assert policy is not None
    assert (policy.mode, policy.shared) == (BindingMode.STRICT, ("10.0.0.0/24", "10.0.1.0/24"))
    assert len(one.proposed) == 2


def test_pins_are_networks_and_what_names_mean(one: OneState) -> None:
    one.known = {"far": ["10.0.0.7", "fe80::1%eth0"]}
    peers: dict[str, str | tuple[str, ...]] = {GUID: "far", OTHER: ("10.0.0.9", "10.2.0.0/16")}
    pins = {
        f"{GUID} 10.0.0.7/32",
        f"{GUID} fe80::1/128",
        f"{OTHER} 10.0.0.9/32",
        f"{OTHER} 10.2.0.0/16",
    }
    assert set(one.look(config(peers=peers))) == pins
    one.known = {}
    assert set(one.look(config(peers=peers))) == pins, "no answer: what it was stays"
    assert one.look(config()) == ()


def test_nothing_is_proposed_before_every_member_knows_it(one: OneState) -> None:
    one.world = World()
    one.world.version = VERSION_OF_BINDINGS - 1
    one.look(config())
    assert not one.proposed


def test_without_bindings_there_are_no_rules(one: OneState) -> None:
    one.look(config(binding="off"))
    assert not one.proposed
    one.look(config())
    one.look(config(binding="off"))
    policy = binding_policy(one.view)
    assert policy is not None
    assert policy.mode is BindingMode.OFF

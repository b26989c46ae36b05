"""The scenarios: what goes wrong, in order, while clients send and receive."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from qm.drill.target import Ability, Target

PAUSE_S: Final = 3.0
"""Longer than an election takes from silence."""
ISOLATED_S: Final = 4.0


class Stage(Protocol):
    """What a scenario acts on; every fault is marked in the history."""

    target: Target
    chance: random.Random

    async def leader(self) -> str:
        """Return who leads, waiting for somebody."""

    async def followers(self) -> list[str]:
        """Return the others, in a stable order."""

    def fault(self, text: str, *struck: str) -> None:
        """A fault begins now. Senders whose session is at a `struck` node must reconnect, or wait
        with it; what the others feel is the gap that counts.
        """

    def healed(self, text: str) -> None:
        """It is over."""

    async def heal(self) -> None:
        """Have every node serve again."""

    async def transfer(self, to: str) -> None:
        """Hand leadership over."""

    async def drain(self, node: str) -> None:
        """Have a node hand over leadership and take no new sessions."""


Act = Callable[[Stage], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    """One drill."""

    name: str
    text: str
    act: Act
    needs: frozenset[Ability] = frozenset({Ability.PROCESSES})
    is_short: bool = False
    """Belongs to the short list that every test run makes."""


async def _kill_leader(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"SIGKILL of {leader}, the leader", leader)
    await stage.target.kill(leader)
    await asyncio.sleep(1)
    await stage.heal()


async def _kill_follower(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    stage.fault(f"SIGKILL of {follower}, a follower", follower)
    await stage.target.kill(follower)
    await asyncio.sleep(1)
    await stage.heal()


async def _kill_majority(stage: Stage) -> None:
    leader, (one, _) = await stage.leader(), await stage.followers()
    stage.fault(f"SIGKILL of {leader}, the leader, and {one}", leader, one)
    await stage.target.kill(leader, one)
    await asyncio.sleep(2)
    await stage.heal()


async def _restart_all(stage: Stage) -> None:
    names = [node.name for node in stage.target.nodes]
    stage.fault("SIGKILL of every node", *names)
    await stage.target.kill(*names)
    await stage.heal()


async def _pause_leader(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"SIGSTOP of {leader}, the leader, for {PAUSE_S:.0f} s", leader)
    await stage.target.pause(leader)
    await asyncio.sleep(PAUSE_S)
    await stage.heal()


async def _rolling_restart(stage: Stage) -> None:
    for node in stage.target.nodes:
        stage.fault(f"SIGTERM of {node.name}", node.name)
        await stage.target.stop(node.name)
        await stage.heal()
        stage.healed(f"{node.name} serves again")


async def _transfer(stage: Stage) -> None:
    for _ in range(3):
        heir = stage.chance.choice(await stage.followers())
        stage.fault(f"leadership goes to {heir}")
        await stage.transfer(heir)
        await asyncio.sleep(1)


async def _drain(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"{leader}, the leader, is drained and stopped", leader)
    await stage.drain(leader)
    await stage.target.stop(leader)
    await asyncio.sleep(1)
    await stage.heal()


async def _lost_disk(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    stage.fault(f"{follower} dies and loses its disk", follower)
    await stage.target.kill(follower)
    await stage.target.lose_disk(follower)
    await stage.target.start(follower)
    await stage.target.rejoin(follower)
    await stage.heal()


async def _partition_leader(stage: Stage) -> None:
    leader, others = await stage.leader(), await stage.followers()
    stage.fault(f"{leader}, the leader, is parted from the others", leader)
    await stage.target.partition([leader], others)
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _one_way(stage: Stage) -> None:
    leader, others = await stage.leader(), await stage.followers()
    stage.fault(f"{leader}, the leader, hears nothing from the others", leader)
    await stage.target.cut([leader], others)
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _clients_from_leader(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"clients are parted from {leader}, the leader, alone", leader)
    await stage.target.cut([leader], ["clients"])
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _isolate_follower(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    others = [node.name for node in stage.target.nodes if node.name != follower]
    stage.fault(f"{follower} is alone, while a backlog grows", follower)
    await stage.target.partition([follower], others)
    await asyncio.sleep(2 * ISOLATED_S)
    await stage.heal()


_NETWORK: Final = frozenset({Ability.PROCESSES, Ability.NETWORK})
_DISKS: Final = frozenset({Ability.PROCESSES, Ability.DISKS})

SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("kill-leader", "The leader's process dies", _kill_leader, is_short=True),
        Scenario("kill-follower", "A follower's process dies", _kill_follower),
        Scenario("kill-majority", "Two of three die and come back", _kill_majority),
        Scenario("restart-all", "All die at once and come back", _restart_all),
        Scenario("pause-leader", "The leader stands still, then goes on", _pause_leader),
        Scenario("rolling-restart", "Each is stopped and started in turn", _rolling_restart),
        Scenario(
            "leader-transfer", "Leadership is handed over on purpose", _transfer, is_short=True
        ),
        Scenario("drain", "The leader is drained and stopped", _drain),
        Scenario("lost-disk", "A follower loses its disk and rejoins", _lost_disk, _DISKS),
        Scenario("partition-leader", "The leader is cut off", _partition_leader, _NETWORK),
        Scenario("one-way", "The leader can speak and not hear", _one_way, _NETWORK),
        Scenario(
            "clients-from-leader", "Clients cannot reach the leader", _clients_from_leader, _NETWORK
        ),
        Scenario(
            "isolate-follower", "A follower is alone, then catches up", _isolate_follower, _NETWORK
        ),
    )
}
"""By name, in the order of `qm drill list`."""

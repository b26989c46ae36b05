"""Scenarios of the network: which nodes and clients cannot reach each other."""

import asyncio
from typing import Final

from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability
from qm.drill.targets.target import CLIENTS

ISOLATED_S: Final = 4.0
_NEEDS: Final = frozenset({Ability.PROCESSES, Ability.NETWORK})


async def _partition_leader(stage: Stage) -> None:
    leader, others = await stage.leader(), await stage.followers()
    stage.fault(f"{leader}, the leader, is partitioned from the others", leader)
    await stage.target.partition([leader], others)
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _one_way(stage: Stage) -> None:
    leader, others = await stage.leader(), await stage.followers()
    stage.fault(f"{leader}, the leader, receives nothing from the others", leader)
    await stage.target.cut([leader], others)
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _clients_from_leader(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"only clients are cut off from {leader}, the leader", leader)
    await stage.target.cut([leader], [CLIENTS])
    await asyncio.sleep(ISOLATED_S)
    await stage.heal()


async def _isolate_follower(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    others = [node.name for node in stage.target.nodes if node.name != follower]
    stage.fault(f"{follower} is cut off while a backlog grows", follower)
    await stage.target.partition([follower], others)
    await asyncio.sleep(2 * ISOLATED_S)
    await stage.heal()


NETWORK: Final = (
    Scenario("partition-leader", "The leader is cut off", _partition_leader, _NEEDS),
    Scenario("one-way", "The leader can send but not receive", _one_way, _NEEDS),
    Scenario(
        "clients-from-leader", "Clients cannot reach the leader", _clients_from_leader, _NEEDS
    ),
    Scenario(
        "isolate-follower", "A follower is cut off, then catches up", _isolate_follower, _NEEDS
    ),
)

"""Scenarios with peers that know one address: it moves, or a proxy behind it picks another node."""

import asyncio
from typing import Final

from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability

AWAY_S: Final = 4.0
"""Longer than an address needs to move."""


async def _vip_move(stage: Stage) -> None:
    """Kill the node that has the address; every node in turn if the holder is unknown."""
    holder = await stage.target.holder()
    for node in [holder] if holder else [node.name for node in stage.target.nodes]:
        what = "which has the virtual address" if holder else "which may have the virtual address"
        stage.fault(f"SIGKILL of {node}, {what}", node)
        await stage.target.kill(node)
        await asyncio.sleep(AWAY_S)
        await stage.heal()


async def _vip_machine(stage: Stage) -> None:
    holder = await stage.target.holder()
    stage.fault(f"{holder}, which has the virtual address, is unplugged", holder)
    await stage.target.unplug(holder)
    await asyncio.sleep(AWAY_S)
    await stage.heal()


async def _proxy(stage: Stage) -> None:
    """Kill each node in turn, since it is unknown which one the proxy chose for a session."""
    for node in [node.name for node in stage.target.nodes]:
        stage.fault(f"SIGKILL of {node}, behind the proxy", node)
        await stage.target.kill(node)
        await asyncio.sleep(AWAY_S)
        await stage.heal()


_ADDRESS: Final = frozenset({Ability.PROCESSES, Ability.VIRTUAL_ADDRESS})

FRONTS: Final = (
    Scenario(
        "vip-move",
        "The node with the virtual address dies",
        _vip_move,
        _ADDRESS,
        through=Ability.VIRTUAL_ADDRESS,
    ),
    Scenario(
        "vip-machine-lost",
        "The machine with the virtual address loses its network",
        _vip_machine,
        _ADDRESS | {Ability.UNPLUG},
        through=Ability.VIRTUAL_ADDRESS,
    ),
    Scenario(
        "proxy",
        "Each node behind a proxy dies in turn",
        _proxy,
        frozenset({Ability.PROCESSES, Ability.PROXY}),
        through=Ability.PROXY,
    ),
)

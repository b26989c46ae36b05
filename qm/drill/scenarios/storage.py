"""Scenarios of storage and clocks: faults of a node's disk or wall clock.

Most need nodes that were started so that their disks and clocks can be tampered with; that is done
before the load (`prepare`), and lasts until the cluster is recreated.
"""

import asyncio
from typing import Final

from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability
from qm.drill.targets.tampering import CLOCK_LOOK_S
from qm.drill.targets.target import Target

SLOW_S: Final = (0.3, 1.5)
"""Extra time of each sync on a slow disk: a little, and more than a leader can tolerate."""
SLOW_FOR_S: Final = 4.0
BEFORE_POWER_FAILURE_S: Final = 0.2
"""Time without a sync before the power fails."""
CLOCK_STEP_S: Final = 600
FULL_FOR_S: Final = 6.0
FULL_LONG_S: Final = 90.0
RECOVERS_S: Final = 10.0
"""How soon space that came back is used."""
LOOK_EVERY_S: Final = 0.1
LOG_FILE: Final = ".segment"
STATE_FILE: Final = ".sst"
ENDS_S: Final = 15.0
"""How soon a node that writes meets an error of its log's disk; its state is written less often."""
SET_BACK_S: Final = 5.0
"""Age of the copy that a folder is set back to."""


async def _tamperable(target: Target, *, with_clock: bool = False) -> None:
    """Restart every node so that its disk, and optionally its clock, can be tampered with."""
    for node in target.nodes:
        if not target.tampering.is_enabled(node.name, with_clock=with_clock):
            await target.stop(node.name)
            target.tampering.enable(node.name, with_clock=with_clock)
            await target.heal()


async def _with_clocks(target: Target) -> None:
    await _tamperable(target, with_clock=True)


async def _on_small_disks(target: Target) -> None:
    """Put every node's data on a disk that can be filled."""
    for node in target.nodes:
        if not target.tampering.has_small_disk(node.name):
            await target.stop(node.name)
            target.tampering.shrink_disk(node.name)
            await target.heal()


async def _lost_disk(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    stage.fault(f"{follower} dies and loses its disk", follower)
    await stage.target.kill(follower)
    await stage.target.lose_disk(follower)
    await stage.target.start(follower)
    await stage.target.rejoin(follower)
    await stage.heal()


async def _slow_disk(stage: Stage) -> None:
    for delay_s in SLOW_S:
        leader = await stage.leader()
        stage.fault(f"each sync of {leader}, the leader, takes {delay_s} s longer", leader)
        stage.target.tampering.slow_syncs(leader, delay_s)
        await asyncio.sleep(SLOW_FOR_S)
        await stage.heal()


async def _torn_write(stage: Stage) -> None:
    node = stage.chance.choice([node.name for node in stage.target.nodes])
    await _lose_power(stage, f"the power of {node} fails in the middle of a write", node)


async def _power_failure(stage: Stage) -> None:
    names = [node.name for node in stage.target.nodes]
    await _lose_power(stage, "the power of every node fails in the middle of a write", *names)


async def _lose_power(stage: Stage, text: str, *nodes: str) -> None:
    tampering = stage.target.tampering
    stage.fault(text, *nodes)
    tampering.hold_syncs(*nodes)
    await asyncio.sleep(BEFORE_POWER_FAILURE_S)
    await stage.target.kill(*nodes)
    for node in nodes:
        torn = tampering.tear(node, stage.chance)
        stage.healed(f"{node}: {torn.lost_bytes} of {torn.unsynced_bytes} unsynced bytes are lost")
    await asyncio.sleep(1)
    await stage.heal()


async def _clock_step(stage: Stage) -> None:
    leader, (follower, _) = await stage.leader(), await stage.followers()
    for node, step_s in ((leader, CLOCK_STEP_S), (follower, -CLOCK_STEP_S)):
        stage.fault(f"the clock of {node} is shifted by {step_s:+d} s")
        stage.target.tampering.set_clock(node, step_s)
        await asyncio.sleep(3 * CLOCK_LOOK_S)
    await stage.transfer(follower)
    stage.fault(f"{follower}, whose clock is behind, leads now")
    await asyncio.sleep(1)
    await stage.heal()


async def _full_disk(stage: Stage) -> None:
    leader = await stage.leader()
    stage.fault(f"the disk of {leader}, the leader, is full", leader)
    stage.target.tampering.fill_disk(leader)
    await asyncio.sleep(FULL_FOR_S)
    await stage.heal()


async def _full_disks(stage: Stage) -> None:
    names = [node.name for node in stage.target.nodes]
    stage.fault("every disk is full", *names)
    for name in names:
        stage.target.tampering.fill_disk(name)
    await asyncio.sleep(FULL_FOR_S)
    await stage.heal()


async def _full_disks_long(stage: Stage) -> None:
    names = [node.name for node in stage.target.nodes]
    stage.fault(f"every disk is full for {FULL_LONG_S:.0f} s", *names)
    for name in names:
        stage.target.tampering.fill_disk(name)
    await asyncio.sleep(FULL_LONG_S)
    before = stage.acknowledged
    stage.target.tampering.relieve()
    end = asyncio.get_running_loop().time() + RECOVERS_S
    while stage.acknowledged == before:
        if asyncio.get_running_loop().time() > end:
            stage.wrong(f"{RECOVERS_S:.0f} s after there is space again nothing is acknowledged")
            break
        await asyncio.sleep(LOOK_EVERY_S)
    await stage.heal()


async def _disk_errors(stage: Stage) -> None:
    target = stage.target
    names = [node.name for node in target.nodes]
    victim = stage.chance.choice(names)
    stage.fault(f"a sync of the log of {victim} fails", victim)
    target.tampering.fail_syncs(victim, LOG_FILE)
    if not await target.ended(victim, ENDS_S):
        stage.wrong(f"{victim} goes on after a sync of its log failed")
    await stage.heal()
    victim = stage.chance.choice(names)
    stage.fault(f"{victim} cannot write its state", victim)
    target.tampering.fail_writes(victim, STATE_FILE)
    # It ends, or opens its state again from what is durable.
    await target.ended(victim, ENDS_S)
    stage.healed(f"{target.tampering.errors(victim)} writes failed")
    await stage.heal()


async def _rolled_back(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    stage.fault(f"{follower} is stopped, and its folder is copied", follower)
    await stage.target.stop(follower)
    stage.target.tampering.copy_folder(follower)
    await stage.heal()
    await asyncio.sleep(SET_BACK_S)
    if await stage.leader() == follower:
        await stage.transfer(stage.chance.choice(await stage.followers()))
    stage.fault(f"{follower} dies, and its folder is set back to the copy", follower)
    await stage.target.kill(follower)
    stage.target.tampering.set_folder_back(follower)
    await stage.heal()


_DISKS: Final = frozenset({Ability.PROCESSES, Ability.DISKS})
_SYNCS: Final = frozenset({Ability.PROCESSES, Ability.SYNCS})
_CLOCKS: Final = frozenset({Ability.PROCESSES, Ability.CLOCKS})
_ERRORS: Final = frozenset({Ability.PROCESSES, Ability.DISK_ERRORS})
_FOLDERS: Final = frozenset({Ability.PROCESSES, Ability.FOLDERS})
_SMALL: Final = frozenset({Ability.PROCESSES, Ability.SMALL_DISKS})

STORAGE: Final = (
    Scenario("lost-disk", "A follower loses its disk and rejoins", _lost_disk, _DISKS),
    Scenario("slow-disk", "The leader's disk syncs slowly", _slow_disk, _SYNCS, _tamperable),
    Scenario("torn-write", "A node's power fails", _torn_write, _SYNCS, _tamperable),
    Scenario("power-failure", "Every node's power fails", _power_failure, _SYNCS, _tamperable),
    Scenario("clock-step", "Wall clocks are shifted by 10 min", _clock_step, _CLOCKS, _with_clocks),
    Scenario("full-disk", "The leader's disk is full", _full_disk, _SMALL, _on_small_disks),
    Scenario("full-disks", "Every disk is full", _full_disks, _SMALL, _on_small_disks),
    Scenario(
        "full-disks-long",
        "Every disk is full for 90 s, which ends by itself",
        _full_disks_long,
        _SMALL,
        _on_small_disks,
    ),
    Scenario("disk-errors", "Syncs and writes of a node fail", _disk_errors, _ERRORS, _tamperable),
    Scenario("rolled-back", "A folder is set back to an old copy", _rolled_back, _FOLDERS),
)

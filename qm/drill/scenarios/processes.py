"""Scenarios of processes: they die, hang, are stopped, or hand over leadership."""

import asyncio
import time
from typing import Final

from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability

PAUSE_S: Final = 3.0
"""Longer than an election takes, including its timeout."""
OUTAGES: Final = 3
OUTAGE_S: Final = 8.0
"""Shorter than any lease, and much longer than an election."""
TIME_ERROR_MAX_MS: Final = 250.0
TIME_WAIT_S: Final = 2.0
"""From the end of an outage until cluster time is as near to the clocks as that."""
USED_WAIT_S: Final = 15.0
"""Longer than a client pauses between attempts, and notices that a node is another process."""
LOOK_EVERY_S: Final = 0.05
_PAUSE: Final = frozenset({Ability.PROCESSES, Ability.PAUSE})


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
    leader, followers = await stage.leader(), await stage.followers()
    others = followers[: len(stage.target.nodes) // 2]
    stage.fault(f"SIGKILL of {leader}, the leader, and {', '.join(others)}", leader, *others)
    await stage.target.kill(leader, *others)
    await asyncio.sleep(2)
    await stage.heal()


async def _outages(stage: Stage) -> None:
    for _ in range(OUTAGES):
        leader, followers = await stage.leader(), await stage.followers()
        dead = [leader, *followers[: len(stage.target.nodes) // 2]]
        stage.fault(f"SIGKILL of {', '.join(dead)} for {OUTAGE_S:.0f} s", *dead)
        await stage.target.kill(*dead)
        await asyncio.sleep(OUTAGE_S)
        await stage.heal()
        await _tell_time(stage)
        await _until_used(stage)


async def _until_used(stage: Stage) -> None:
    """Wait until clients send and receive again: for them it would be one outage otherwise, and
    longer than they are patient.
    """
    sent, received = stage.acknowledged, stage.received
    end = time.monotonic() + USED_WAIT_S
    while stage.acknowledged == sent or stage.received == received:
        if time.monotonic() > end:
            stage.wrong(f"nothing was sent and received in {USED_WAIT_S:.0f} s after an outage")
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _tell_time(stage: Stage) -> None:
    """Compare cluster time with the clock that all nodes have."""
    end = time.monotonic() + TIME_WAIT_S
    while True:
        before_ms = time.time() * 1_000
        now_ms = await stage.now_ms()
        error_ms = max(before_ms - now_ms, now_ms - time.time() * 1_000)
        if error_ms <= TIME_ERROR_MAX_MS:
            return
        if time.monotonic() > end:
            stage.wrong(
                f"cluster time is {error_ms:.0f} ms off {TIME_WAIT_S:.0f} s after an outage"
            )
            return
        await asyncio.sleep(LOOK_EVERY_S)


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


PROCESSES: Final = (
    Scenario("kill-leader", "The leader's process dies", _kill_leader, is_short=True),
    Scenario("kill-follower", "A follower's process dies", _kill_follower),
    Scenario("kill-majority", "A majority dies and comes back", _kill_majority),
    Scenario("outages", "A majority is away for 8 s, three times", _outages),
    Scenario("restart-all", "All die at once and come back", _restart_all),
    Scenario("pause-leader", "The leader is paused, then resumes", _pause_leader, _PAUSE),
    Scenario("rolling-restart", "Each is stopped and started in turn", _rolling_restart),
    Scenario(
        "leader-transfer",
        "Leadership is handed over on purpose",
        _transfer,
        frozenset(),
        is_short=True,
    ),
    Scenario("drain", "The leader is drained and stopped", _drain),
)

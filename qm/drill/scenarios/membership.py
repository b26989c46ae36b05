"""Scenarios of membership: members join, leave and change their build."""

import asyncio
from typing import Final

from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability
from qm.drill.targets.target import Target, TargetFailed

GROWS_BY: Final = 2
GROWN_FOR_S: Final = 2.0
MIXED_FOR_S: Final = 3.0
"""Longer than a leader takes to check whether it may raise the apply version."""
RAISE_WAIT_S: Final = 20.0
POLL_S: Final = 0.2


async def _room_to_grow(target: Target) -> None:
    """Look before anything is changed."""
    await target.check_room(GROWS_BY)


async def _grow_and_shrink(stage: Stage) -> None:
    joined: list[str] = []
    for _ in range(GROWS_BY):
        stage.fault("one more node joins")
        joined.append(await stage.target.grow())
        stage.healed(f"{joined[-1]} votes")
    # The newest leaves first, the only order that a StatefulSet supports, and while it leads.
    stage.fault(f"leadership goes to {joined[-1]}")
    await stage.transfer(joined[-1])
    await asyncio.sleep(GROWN_FOR_S)
    for node in reversed(joined):
        stage.fault(f"{node} leaves for good", node)
        await stage.target.shrink(node)
        stage.healed(f"{node} is gone")
    await stage.heal()


async def _replace_member(stage: Stage) -> None:
    lost = stage.chance.choice(await stage.followers())
    stage.fault(f"{lost} dies and will not come back", lost)
    await stage.target.kill(lost)
    await asyncio.sleep(1)
    await stage.target.shrink(lost)
    stage.healed(f"{lost} is no member any more")
    stage.healed(f"{await stage.target.grow()} votes in its place")
    await stage.heal()


async def _on_this_build(target: Target) -> None:
    """Begin with a cluster that has not been upgraded: an apply version is never lowered."""
    await target.up()


async def _rolling_upgrade(stage: Stage) -> None:
    first, *others = [node.name for node in stage.target.nodes]
    before = await stage.apply_version()
    await _run_build(stage, first, is_other=True)
    await _stays_at(stage, before)
    # A member may go back as long as one member has not been upgraded.
    await _run_build(stage, first, is_other=False)
    for node in (first, *others):
        await _stays_at(stage, before)
        await _run_build(stage, node, is_other=True)
    end = asyncio.get_running_loop().time() + RAISE_WAIT_S
    while (version := await stage.apply_version()) != (known := await stage.known_version()):
        if asyncio.get_running_loop().time() > end:
            raise TargetFailed(
                f"every member knows apply version {known}, but it stays at {version}"
            )
        await asyncio.sleep(POLL_S)
    stage.healed(f"apply version {version} is in force, previously {before}")
    await asyncio.sleep(1)


async def _run_build(stage: Stage, node: str, *, is_other: bool) -> None:
    stage.fault(
        f"{node} is stopped and starts with {'the other' if is_other else 'this'} build", node
    )
    await stage.target.stop(node)
    await stage.target.change_build(node, is_other=is_other)
    await stage.heal()


async def _stays_at(stage: Stage, version: int) -> None:
    """Check that the state behaves as its oldest member's build. Raises TargetFailed."""
    await asyncio.sleep(MIXED_FOR_S)
    found = await stage.apply_version()
    if found != version:
        raise TargetFailed(f"apply version {found} is in force while a member knows only {version}")


MEMBERSHIP: Final = (
    Scenario(
        "grow-and-shrink",
        "Two nodes join, lead, and leave again",
        _grow_and_shrink,
        frozenset({Ability.SCALE}),
        prepare=_room_to_grow,
    ),
    Scenario(
        "replace-member",
        "A member is dead for good; another machine takes its place",
        _replace_member,
        frozenset({Ability.PROCESSES, Ability.REPLACE}),
    ),
    Scenario(
        "rolling-upgrade",
        "Each runs another build in turn, one of them there and back",
        _rolling_upgrade,
        frozenset({Ability.PROCESSES, Ability.BUILDS}),
        prepare=_on_this_build,
    ),
)

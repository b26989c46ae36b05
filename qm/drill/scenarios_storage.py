"""Scenarios of storage and clocks: what disks and wall clocks do to a node."""

from typing import Final

from qm.drill.scenario import Scenario, Stage
from qm.drill.target import Ability

_DISKS: Final = frozenset({Ability.PROCESSES, Ability.DISKS})


async def _lost_disk(stage: Stage) -> None:
    follower = stage.chance.choice(await stage.followers())
    stage.fault(f"{follower} dies and loses its disk", follower)
    await stage.target.kill(follower)
    await stage.target.lose_disk(follower)
    await stage.target.start(follower)
    await stage.target.rejoin(follower)
    await stage.heal()


STORAGE: Final = (
    Scenario("lost-disk", "A follower loses its disk and rejoins", _lost_disk, _DISKS),
)

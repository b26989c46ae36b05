"""Random scenarios for a given time: the same seed chooses the same ones."""

import random
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from qm.drill.scenarios.scenario import Scenario


class Turn(msgspec.Struct, frozen=True):
    """One round to run."""

    scenario: Scenario
    seed: int


def random_turns(
    scenarios: Sequence[Scenario],
    seed: int,
    duration_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Turn]:
    """Yield turns until the time is over, which is checked before each turn.

    Each has its own seed, so that no two rounds share queues.
    """
    chance = random.Random(f"soak/{seed}")
    end = clock() + duration_s
    number = 0
    while clock() < end:
        number += 1
        yield Turn(chance.choice(scenarios), seed * 1_000 + number)

"""Timers that are due together do not hold the event loop."""

import asyncio

from typing_extensions import override

from qm.edge.outgoing.limits import TIMERS_PER_TURN_MAX
from qm.edge.outgoing.link.timers import TimerOwner, TimerQueue

OWNERS = 10 * TIMERS_PER_TURN_MAX


class Owner(TimerOwner):
    def __init__(self, fired: list[int]) -> None:
        self.fired = fired
        self.at: float | None = 1.0

    @override
    def next_timer(self) -> float | None:
        return self.at

    @override
    def handle_timer(self, now: float) -> None:
        self.at = None
        self.fired[-1] += 1


def test_timers_that_are_due_together_share_the_loop_with_others() -> None:
    async def scenario() -> None:
        fired, now = [0], 0.0
        timers = TimerQueue(lambda: now)
        owners = [Owner(fired) for _ in range(OWNERS)]
        for owner in owners:
            timers.watch(owner)
        now = 2.0
        timers.watch(Owner(fired))  # the loop's own clock has not come so far: it arms anew
        while sum(fired) <= OWNERS:
            fired.append(0)
            await asyncio.sleep(0)
        assert max(fired) == TIMERS_PER_TURN_MAX
        assert not [owner for owner in owners if owner.at is not None]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_by_hand_all_fire_at_once() -> None:
    async def scenario() -> None:
        fired, now = [0], 0.0
        timers = TimerQueue(lambda: now)
        for _ in range(OWNERS):
            timers.watch(Owner(fired))
        now = 2.0
        timers.run()
        assert fired == [OWNERS]

    asyncio.run(scenario())


def test_one_that_is_due_sooner_does_not_wait_for_the_others() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        timers = TimerQueue(loop.time)
        late, soon = Owner([0]), Owner([0])
        late.at = loop.time() + 30
        timers.watch(late)
        soon.at = loop.time() + 0.05
        timers.watch(soon)
        while not soon.fired[0]:
            await asyncio.sleep(0.01)
        assert not late.fired[0]
        timers.stop()

    asyncio.run(asyncio.wait_for(scenario(), 10))

"""One timer for many waiters."""

from __future__ import annotations

import asyncio
from math import inf

from qm.edge.tcp.deadlines import Deadlines
from tests.unit.edge.world import run, until


class Waiter:
    """Notes when it was woken, and asks again for what it was given."""

    def __init__(self, deadlines: Deadlines, *again: float) -> None:
        self.deadline = inf
        self.woken = 0
        self._deadlines = deadlines
        self._again = list(again)

    def on_deadline(self, now: float) -> None:
        self.woken += 1
        if self._again:
            self._deadlines.expect(self, now + self._again.pop(0))


def test_waiters_are_woken_in_order_and_not_before_their_time() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        now = loop.time()
        early, late, gone = (Waiter(deadlines) for _ in range(3))
        deadlines.expect(late, now + 0.3)
        deadlines.expect(gone, now + 0.02)
        deadlines.expect(early, now + 0.2)
        deadlines.expect(early, now + 0.05)  # sooner counts
        deadlines.expect(late, now + 9.0)  # later does not
        deadlines.forget(gone)
        await until(lambda: early.woken)
        assert loop.time() >= now + 0.05
        assert not late.woken
        await until(lambda: late.woken)
        assert loop.time() >= now + 0.3
        assert (early.woken, late.woken, gone.woken) == (1, 1, 0)

    run(scenario())


def test_a_waiter_may_ask_again_while_it_is_woken() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        waiter = Waiter(deadlines, 0.01, 0.0, 0.01)
        deadlines.expect(waiter, loop.time())
        await until(lambda: waiter.woken == 4)
        assert waiter.deadline == inf

    run(scenario())


def test_after_the_end_nobody_is_woken() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        waiter, late = Waiter(deadlines), Waiter(deadlines)
        deadlines.expect(waiter, loop.time() + 0.02)
        deadlines.stop()
        assert len(deadlines) == 0
        deadlines.expect(late, loop.time() + 0.01)
        await asyncio.sleep(0.1)
        assert waiter.woken == 0

    run(scenario())


def test_the_heap_does_not_grow_with_those_that_went() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        stayed = Waiter(deadlines)
        deadlines.expect(stayed, loop.time() + 0.2)
        for _ in range(10_000):
            waiter = Waiter(deadlines)
            deadlines.expect(waiter, loop.time() + 60)
            deadlines.forget(waiter)
        assert len(deadlines) < 200
        await until(lambda: stayed.woken)

    run(scenario())

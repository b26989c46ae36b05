"""Decides who connects next: attempts are bounded, and shared so that silent hosts block no others.

An attempt may take as long as the network allows while no others wait. When others do, one that has
been tried for a moment loses its slot and counts as failed. Addresses that were reached before go
first; then those that are tried for the first time, the newest and the oldest alternately; of those
that failed before, one at intervals.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

PATIENCE_S: Final = 0.25
"""For an attempt, while others wait that were reached before or are tried for the first time."""
FAILED_PATIENCE_S: Final = 2.0
"""For an attempt at an address that failed before; such a one ends no younger attempt either."""
FAILED_SHARE: Final = 0.75
"""Of the slots, for addresses that failed before: the others are free for new ones at any time."""
FAILED_EVERY_COUNT: Final = 4
"""One of so many starts goes to addresses that failed before, while others wait."""
WAITING_MAX: Final = 16_384
"""Attempts that wait; beyond that, the oldest of those that failed before is given up."""

ItemT = TypeVar("ItemT")


class Standing(IntEnum):
    """What is known of an address."""

    REACHED = 0
    FRESH = 1
    FAILED = 2


class Slots(Generic[ItemT]):
    """The slots for one kind of user."""

    def __init__(
        self,
        count: int,
        attempt: Callable[[ItemT], Coroutine[Any, Any, None]],
        give_up: Callable[[ItemT], None],
    ) -> None:
        """`attempt` connects; if it is cancelled, `was_pushed` tells whether that was to
        make room. `give_up` is called for one that never began.
        """
        self._count = count
        self._attempt = attempt
        self._give_up = give_up
        self._waiting: dict[Standing, dict[ItemT, None]] = {each: {} for each in Standing}
        self._running: dict[ItemT, tuple[float, Standing, asyncio.Task[None]]] = {}
        self._pushed: set[ItemT] = set()
        self._starts = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    @property
    def running(self) -> int:
        """Number of attempts in progress."""
        return len(self._running)

    def ask(self, item: ItemT, standing: Standing) -> None:
        """Make an attempt as soon as its turn comes."""
        if self._is_stopped:
            return
        self._waiting[standing][item] = None
        if sum(map(len, self._waiting.values())) > WAITING_MAX:
            worst = next(each for each in reversed(Standing) if self._waiting[each])
            oldest = next(iter(self._waiting[worst]))
            del self._waiting[worst][oldest]
            self._give_up(oldest)
        self._go_on()

    def was_pushed(self, item: ItemT) -> bool:
        """Return whether an attempt was cancelled to make room."""
        return item in self._pushed

    def stop(self) -> None:
        """End all attempts."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting.values():
            waiting.clear()
        for _, _, task in list(self._running.values()):
            task.cancel()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._running) < self._count:
            taken = self._take()
            if taken is None:
                return
            item, standing = taken
            task = loop.create_task(self._run(item), name="outgoing connect")
            self._running[item] = loop.time(), standing, task
        if any(self._waiting.values()) and self._timer is None:
            self._timer = loop.call_later(PATIENCE_S / 2, self._push)

    def _take(self) -> tuple[ItemT, Standing] | None:
        """Return the next attempt, None if none waits."""
        self._starts += 1
        order = list(Standing)
        if self._starts % FAILED_EVERY_COUNT == 0:
            order = [Standing.FAILED, Standing.REACHED, Standing.FRESH]
        failed = sum(standing is Standing.FAILED for _, standing, _ in self._running.values())
        if failed >= self._count * FAILED_SHARE:
            order.remove(Standing.FAILED)
        for standing in order:
            waiting = self._waiting[standing]
            if waiting:
                is_newest = standing is Standing.FRESH and self._starts % 2
                item = next(reversed(waiting)) if is_newest else next(iter(waiting))
                del waiting[item]
                return item, standing
        return None

    def _push(self) -> None:
        """End attempts that have lasted long enough, to make room for those that wait."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        urgent = len(self._waiting[Standing.REACHED]) + len(self._waiting[Standing.FRESH])
        room = urgent + len(self._waiting[Standing.FAILED])
        for item, (since, standing, task) in list(self._running.items()):
            if room == 0:
                break
            is_short = urgent > 0 and standing is not Standing.FAILED
            if now - since >= (PATIENCE_S if is_short else FAILED_PATIENCE_S):
                self._pushed.add(item)
                task.cancel()
                room -= 1
                urgent -= 1
        self._go_on()

    async def _run(self, item: ItemT) -> None:
        try:
            await self._attempt(item)
        finally:
            self._running.pop(item, None)
            self._pushed.discard(item)
            if not self._is_stopped:
                asyncio.get_running_loop().call_soon(self._go_on)

"""One queue for the timers of links, sessions and schedules.

Most timers are moved later repeatedly and never fire. A heap entry is therefore left where it is
when its timer moves back, and is checked again when its old time comes.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

from qm.edge.outgoing.limits import TIMERS_PER_TURN_MAX


class TimerOwner(Protocol):
    """Has at most one next timer."""

    def next_timer(self) -> float | None:
        """When to call `handle_timer`, on the clock of `TimerQueue`; None: never."""

    def handle_timer(self, now: float) -> None:
        """Do what is due."""


def earliest(*deadlines: float | None) -> float | None:
    """Return the first of several deadlines; None if there is none."""
    return min((at for at in deadlines if at is not None), default=None)


class TimerQueue:
    """Calls `handle_timer` of watched owners, in the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._heap: list[tuple[float, int, TimerOwner]] = []
        self._at: dict[TimerOwner, float] = {}
        self._order = count()
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0

    def watch(self, owner: TimerOwner) -> None:
        """`owner`'s next timer is new or changed."""
        at = owner.next_timer()
        if at is None:
            return
        known = self._at.get(owner)
        if known is not None and known <= at:
            return
        self._at[owner] = at
        heappush(self._heap, (at, next(self._order), owner))
        self._arm()

    def forget(self, owner: TimerOwner) -> None:
        """Never call `owner` again."""
        self._at.pop(owner, None)

    def run(self, count_max: float = inf) -> None:
        """Call the owners that are due now; those beyond `count_max` are left for the next turn of
        the loop.
        """
        now = self._clock()
        while self._heap and self._heap[0][0] <= now and count_max > 0:
            at, _, owner = heappop(self._heap)
            if self._at.get(owner) != at:
                continue
            del self._at[owner]
            count_max -= 1
            due = owner.next_timer()
            if due is not None and due <= now:
                owner.handle_timer(now)
            self.watch(owner)
        self._arm()

    def stop(self) -> None:
        """Forget all owners."""
        self._at.clear()
        self._heap.clear()
        self._disarm()

    def _arm(self) -> None:
        if not self._heap:
            self._disarm()
            return
        at = self._heap[0][0]
        if self._handle is not None and self._handle_at <= at:
            return
        self._disarm()
        self._handle_at = at
        delay = max(0.0, at - self._clock())
        self._handle = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._handle = None
        self.run(TIMERS_PER_TURN_MAX)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

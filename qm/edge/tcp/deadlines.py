"""One timer for all sessions: a heap of deadlines.

A session's next timer moves with almost every chunk that it reads, usually to later. So a waiter is
woken at the earliest deadline that it ever asked for, and asks again; only an earlier one costs a
push. Outdated heap entries are skipped, and removed before they outnumber the others.
"""

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final, Protocol

_SWEEP_MIN_COUNT: Final = 64


class Waiter(Protocol):
    """An object that waits for a deadline."""

    deadline: float
    """Used by `Deadlines`; initially infinity."""

    def on_deadline(self, now: float) -> None:
        """The time has come, or nearly; call `Deadlines.expect` for the next."""


class Deadlines:
    """A heap of deadlines behind one timer; times are those of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Waiter]] = []
        self._order = count()
        self._stale = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_at = inf

    def __len__(self) -> int:
        """Number of heap entries, outdated ones included."""
        return len(self._heap)

    def expect(self, waiter: Waiter, at: float) -> None:
        """Wake a waiter at `at` or before."""
        if at >= waiter.deadline:
            return
        self._outdate(waiter)
        waiter.deadline = at
        heappush(self._heap, (at, next(self._order), waiter))
        self._arm()

    def forget(self, waiter: Waiter) -> None:
        """Do not wake it any more."""
        self._outdate(waiter)
        waiter.deadline = inf
        if self._stale > _SWEEP_MIN_COUNT and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].deadline]
            heapify(self._heap)
            self._stale = 0

    def stop(self) -> None:
        """Wake no waiter any more."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _outdate(self, waiter: Waiter) -> None:
        if waiter.deadline != inf:
            self._stale += 1

    def _arm(self) -> None:
        if self._heap and self._heap[0][0] < self._armed_at:
            if self._handle is not None:
                self._handle.cancel()
            self._armed_at = self._heap[0][0]
            self._handle = self._loop.call_at(self._armed_at, self._fire)

    def _fire(self) -> None:
        self._armed_at = inf
        self._handle = None
        now = self._loop.time()
        try:
            while self._heap and self._heap[0][0] <= now:
                at, _, waiter = heappop(self._heap)
                if at != waiter.deadline:
                    self._stale -= 1
                    continue
                waiter.deadline = inf
                waiter.on_deadline(now)
        finally:  # one waiter's failure does not stop the timer for all others
            self._arm()

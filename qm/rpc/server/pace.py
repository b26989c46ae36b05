"""How much of the event loop's time RPC clients have together.

A PDU takes some microseconds, and a client may send thousands in what one read returns. The loop
is also the cluster's, so RPC has a part of each short while, and connections have it in turns.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import Final, Protocol

WINDOW_S: Final = 0.02
WORK_MAX_S: Final = 0.008
"""Of each window, for what RPC clients sent; a single slice may exceed it."""
SLICE_BYTES: Final = 8_192
"""What a connection has of its turn."""


class Paced(Protocol):
    """A connection that has received something."""

    __slots__ = ()

    def take_slice(self) -> bool:
        """Do what the next SLICE_BYTES ask for; return whether more is there."""


class Pace:
    """Of all RPC connections of a node. Create and use it in its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        self._work_s = 0.0
        self._waiting: deque[Paced] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def offer(self, connection: Paced) -> None:
        """Let a connection work now, or later in turn."""
        now = perf_counter()
        if now - self._began_s >= WINDOW_S:
            self._began_s, self._work_s = now, 0.0
        if self._waiting or self._work_s >= WORK_MAX_S:
            self._wait(connection)
        else:
            self._work(connection)

    def _work(self, connection: Paced) -> None:
        began_s = perf_counter()
        has_more = connection.take_slice()
        self._work_s += perf_counter() - began_s
        if has_more:
            self._wait(connection)

    def _wait(self, connection: Paced) -> None:
        self._waiting.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._left_s(), self._turn)

    def _left_s(self) -> float:
        """Return the seconds until there may be work again."""
        if self._work_s < WORK_MAX_S:
            return 0.0
        return max(self._began_s + WINDOW_S - perf_counter(), 0.0)

    def _turn(self) -> None:
        self._began_s, self._work_s = perf_counter(), 0.0
        while self._waiting and self._work_s < WORK_MAX_S:
            self._work(self._waiting.popleft())  # the timer that has come keeps others from arming
        self._timer = self._loop.call_later(self._left_s(), self._turn) if self._waiting else None

    def stop(self) -> None:
        """Let nobody work any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

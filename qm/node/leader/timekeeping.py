"""Steers cluster time by the members' wall clocks while this node leads."""

import asyncio
import logging
import time
from typing import Final

from qm.node.membership.peers import Peers
from qm.node.replica.clock import ClusterClock
from qm.observe.metrics import Metrics

logger = logging.getLogger(__name__)

STEER_EVERY_S: Final = 10.0
GAP_MS: Final = 10_000
"""Without a stamp for this long, more than it takes to notice a lease, time may jump."""
STEP_MS: Final = 500
"""A wall clock that moved by more than this against the monotonic clock was set."""
ASK_TIMES_MAX: Final = 3
"""How long a new leader waits for a majority's wall clocks."""


class Timekeeper:
    """The leader's part in cluster time; on every node, the check of the wall clock."""

    def __init__(self, clock: ClusterClock, peers: Peers, metrics: Metrics) -> None:
        self._clock = clock
        self._peers = peers
        self._offset = metrics.gauge("quorate_clock_offset_seconds")
        self._steps = metrics.counter("quorate_clock_steps_total")
        self._difference_ms = wall_ms() - _monotonic_ms()

    async def before_leading(self) -> None:
        """Jump forward if nothing was stamped for long; else do nothing."""
        if self._clock.silence_ms() < GAP_MS:
            return
        walls: list[int] = []
        for _ in range(ASK_TIMES_MAX):
            walls = await self._walls()
            if len(walls) >= self._peers.majority():
                break
        if len(walls) < self._peers.majority():
            if self._clock.now_ms() > walls[0]:
                return
            logger.warning("cluster time begins with %d of the wall clocks", len(walls))
        gap = self._clock.jump(walls)
        logger.info("cluster time jumps forward by %d ms after a gap without leader", gap)

    async def steer(self) -> None:
        """Ask the members for their wall clocks and aim at the median."""
        walls = await self._walls()
        if len(walls) >= self._peers.majority():
            self._clock.steer(walls)

    async def _walls(self) -> list[int]:
        """Return the members' wall clocks, corrected for the time since they answered."""
        asked_at = _monotonic_ms()
        replies = await self._peers.inspect_all()
        late = (_monotonic_ms() - asked_at) // 2
        return [reply.wall_clock_ms + late for reply in replies.values()] or [wall_ms()]

    async def watch(self) -> None:
        """Notice steps of this node's wall clock; they only matter to operators."""
        difference = wall_ms() - _monotonic_ms()
        step, self._difference_ms = difference - self._difference_ms, difference
        if abs(step) > STEP_MS:
            self._steps.inc()
            logger.warning("the wall clock was set by %d ms: cluster time ignores it", step)
        self._offset.set((wall_ms() - self._clock.now_ms()) / 1000)
        await asyncio.sleep(0)


def wall_ms() -> int:
    """Return the machine's time, UTC."""
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000

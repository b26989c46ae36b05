"""Steers cluster time by the members' wall clocks while this node leads.

Each term begins at the median of a majority's wall clocks. A follower therefore reads them all the
time, so that a failover need not wait for answers; a node that could not ask lately (it was down or
cut off) asks when it is elected.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from qm.node.membership.peers import ClockReading, Peers
from qm.node.replica.clock import ClusterClock
from qm.observe.metrics import Metrics

logger = logging.getLogger(__name__)

STEER_EVERY_S: Final = 10.0
WATCH_EVERY_S: Final = 1.0
READ_EVERY_MS: Final = 1_500
"""`watch` asks the other members in every second of its rounds: each call wakes two nodes up."""
READING_MAX_AGE_MS: Final = 3_000
"""More than two rounds of `watch`: a term begins at what the clocks showed lately, not long ago."""
ROUND_TRIP_MAX_MS: Final = 400
"""An answer that took longer is not used: the clock was read at any moment of that time, so half of
it bounds the error."""
ASK_MAX_S: Final = 1.5
"""How long a new leader waits for a majority's wall clocks."""
ASK_PAUSE_S: Final = 0.05
STEP_MS: Final = 500
"""A wall clock that moved by more than this against the monotonic clock was set."""
BEHIND_MS: Final = 250
"""A term that begins with a larger jump is worth a line in the log."""


class Timekeeper:
    """The leader's part in cluster time; on every node, the check of wall clocks."""

    def __init__(
        self,
        clock: ClusterClock,
        peers: Peers,
        metrics: Metrics,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        on_step: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`on_step` is told that this node's wall clock was set."""
        self._clock = clock
        self._peers = peers
        self._monotonic_ns = monotonic_ns
        self._on_step = on_step
        self._offset = metrics.gauge("quorate_clock_offset_seconds")
        self._steps = metrics.counter("quorate_clock_steps_total")
        self._jumped = metrics.counter("quorate_clock_jumped_seconds_total")
        self._unread = metrics.counter("quorate_clock_unread_terms_total")
        self._readings: dict[str, ClockReading] = {}
        """The last useful answer of each member."""
        self._read_at_ms = self._monotonic_ms()
        self._difference_ms = wall_ms() - self._monotonic_ms()

    async def before_leading(self) -> None:
        """Put cluster time forward to the median of a majority's wall clocks, never back."""
        walls = await self._majority()
        if not walls:
            self._unread.inc()
            logger.warning(
                "no majority told its wall clocks within %.1f s: cluster time continues from the"
                " last stamp",
                ASK_MAX_S,
            )
            if self._clock.has_begun:
                return
            walls = [wall_ms()]
        gap_ms = self._clock.jump(walls)
        self._jumped.inc(gap_ms / 1000)
        if gap_ms > BEHIND_MS:
            logger.info("cluster time goes forward by %d ms as this node begins to lead", gap_ms)

    async def _majority(self) -> list[int]:
        """Return the wall clocks of a majority or more, as of now; none if it does not answer."""
        majority = self._peers.majority()
        loop = asyncio.get_running_loop()
        end = loop.time() + ASK_MAX_S
        while len(walls := self._walls()) < majority:
            try:
                async with asyncio.timeout_at(end):
                    await self._read(majority)
                    if len(self._walls()) < majority:
                        await asyncio.sleep(ASK_PAUSE_S)
            except TimeoutError:
                return []
        return walls

    async def steer(self) -> None:
        """Ask the members for their wall clocks and aim at the median."""
        await self._read(self._peers.count())
        walls = self._walls()
        if len(walls) >= self._peers.majority():
            self._clock.steer(walls)

    async def _read(self, enough: int) -> None:
        self._read_at_ms = self._monotonic_ms()
        readings = await self._peers.read_clocks(enough)
        self._readings |= {
            name: reading
            for name, reading in readings.items()
            if reading.answered_ms - reading.asked_ms <= ROUND_TRIP_MAX_MS
        }

    def _walls(self) -> list[int]:
        """Return what the wall clocks that were read lately show now; forget the others."""
        now_ms = self._monotonic_ms()
        self._readings = {
            name: reading
            for name, reading in self._readings.items()
            if now_ms - reading.answered_ms <= READING_MAX_AGE_MS
        }
        return [
            reading.wall_ms + now_ms - (reading.asked_ms + reading.answered_ms) // 2
            for reading in self._readings.values()
        ]

    async def watch(self) -> None:
        """Read the members' wall clocks, and notice steps of this node's own: they only matter to
        operators.
        """
        difference = wall_ms() - self._monotonic_ms()
        step, self._difference_ms = difference - self._difference_ms, difference
        if abs(step) > STEP_MS:
            self._steps.inc()
            text = f"the wall clock was set by {step} ms: cluster time ignores it"
            logger.warning("%s", text)
            self._on_step(text)
        self._offset.set((wall_ms() - self._clock.now_ms()) / 1000)
        now_ms = self._monotonic_ms()
        if now_ms - self._read_at_ms >= READ_EVERY_MS or len(self._walls()) < self._peers.count():
            await self._read(self._peers.count())

    def _monotonic_ms(self) -> int:
        return self._monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the machine's time, UTC."""
    return time.time_ns() // 1_000_000

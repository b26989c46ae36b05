"""Work that a node repeats: every so often, whatever one round of it came to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import Counter

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.observe.logs import LimitedLog

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.5
"""Before the next round, after one that failed."""


class Rounds:
    """Tasks that each repeat one piece of work until they are stopped."""

    def __init__(self, failures: Counter) -> None:
        """`failures`: labelled by the work that failed."""
        self._failures = failures
        self._log = LimitedLog(logger, asyncio.get_running_loop().time)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self,
        name: str,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        *,
        first_after_s: float = 0.0,
    ) -> None:
        """Do `work` every `period_s` seconds, counted from its end."""
        repeated = self._repeat(name, period_s, work, first_after_s)
        self._tasks.append(asyncio.create_task(repeated, name=name))

    async def _repeat(
        self,
        name: str,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        first_after_s: float,
    ) -> None:
        await asyncio.sleep(first_after_s)
        while True:
            try:
                await work()
            except (Unavailable, OutcomeUnknown) as error:
                # The leader changes, or is busy: the next round sees what is left to do.
                self._failures.labels(work=name).inc()
                logger.debug("%s: %s", name, error)
                await asyncio.sleep(PATIENCE_S)
            except Exception as error:
                self._failures.labels(work=name).inc()
                self._log.warning(name, f"{name} failed and is tried again", error=repr(error))
                await asyncio.sleep(PATIENCE_S)
            await asyncio.sleep(period_s)

    def cancel(self) -> None:
        """End them all, soon."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    async def stop(self) -> None:
        """End them all; return when they are over."""
        tasks = self._tasks
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

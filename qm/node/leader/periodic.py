"""Work that a node repeats at intervals, whether or not the last run succeeded."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import Counter

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.observe.logs import LimitedLog
from raft.cancellation import raise_if_cancelled
from raft.driver import end_process
from raft.log.files import FatalDiskError
from raft.log.segment import is_disk_full, may_pass

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.5
"""Pause before the next run, after one that failed."""


class Rounds:
    """Tasks that each repeat one piece of work until they are stopped."""

    def __init__(
        self,
        failures: Counter,
        die: Callable[[str], None] = end_process,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """`failures` is labelled by the work that failed. `die` ends the process; `on_full` is
        called when durable work found no space.
        """
        self._failures = failures
        self._die = die
        self._on_full = on_full
        self._log = LimitedLog(logger, asyncio.get_running_loop().time)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self,
        name: str,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        *,
        first_after_s: float = 0.0,
        is_durable: bool = False,
    ) -> None:
        """Do `work` every `period_s` seconds, counted from its end.

        `is_durable`: it writes what must survive a crash. Then only a lack of space or of
        descriptors is tried again: any other error ends the process, since what is in memory may
        not be on the disk.
        """
        repeated = self._repeat(name, period_s, work, first_after_s, is_durable=is_durable)
        task = asyncio.create_task(repeated, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("%s failed", task.get_name(), exc_info=error)
            self._die(f"{task.get_name()} failed: {error!r}")

    async def _repeat(
        self,
        name: str,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        first_after_s: float,
        *,
        is_durable: bool,
    ) -> None:
        await asyncio.sleep(first_after_s)
        while True:
            try:
                await work()
            except (Unavailable, OutcomeUnknown) as error:
                # The leader changes, or is busy: the next run does what is left.
                self._failures.labels(work=name).inc()
                logger.debug("%s: %s", name, error)
                await asyncio.sleep(PATIENCE_S)
            except FatalDiskError:
                raise
            except OSError as error:
                if is_durable and not may_pass(error):
                    raise
                self._failed(name, error)
                if is_durable and is_disk_full(error):
                    self._on_full()
                await asyncio.sleep(PATIENCE_S)
            except (Exception, asyncio.CancelledError) as error:
                # A call whose channel was closed raises CancelledError, too.
                raise_if_cancelled()
                if is_durable and isinstance(error, asyncio.CancelledError):
                    raise RuntimeError("durable work broke off") from error
                if is_durable:
                    raise
                self._failed(name, error)
                await asyncio.sleep(PATIENCE_S)
            await asyncio.sleep(period_s)

    def _failed(self, name: str, error: BaseException) -> None:
        self._failures.labels(work=name).inc()
        self._log.warning(name, f"{name} failed and is tried again", error=repr(error))

    def cancel(self) -> None:
        """Ask them all to stop."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    async def stop(self) -> None:
        """Stop them all; return when they have ended."""
        tasks = self._tasks
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

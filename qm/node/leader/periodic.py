"""Work that a node repeats at intervals, whether or not the last run succeeded."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import floor
from typing import Final

from prometheus_client import Counter
from typing_extensions import override

from qm.cluster.cluster import ClusterListener, Leadership, OutcomeUnknown, Unavailable
from qm.model.values.effects import Applied
from qm.observe.logs import LimitedLog
from raft.cancellation import raise_if_cancelled
from raft.driver import end_process
from raft.log.files import FatalDiskError
from raft.log.segment import is_disk_full, may_pass

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.5
"""Pause before the next run, after one that failed."""
DOZE_S: Final = 1.0
"""Period of work that has nothing to do."""
DOZE_MAX_S: Final = 1.5 * DOZE_S


class Rounds(ClusterListener):
    """Tasks that each repeat one piece of work until they are stopped.

    What is due at about the same time begins together, so that an idle process seldom wakes up.
    """

    def __init__(
        self,
        failures: Counter,
        die: Callable[[str], None] = end_process,
        on_full: Callable[[], None] = lambda: None,
        phase_s: float = 0.0,
    ) -> None:
        """`failures` is labelled by the work that failed. `die` ends the process; `on_full` is
        called when durable work found no space. Loop times at which something begins are whole
        periods after `phase_s`.
        """
        self._failures = failures
        self._die = die
        self._on_full = on_full
        self._phase_s = phase_s
        self._loop = asyncio.get_running_loop()
        self._log = LimitedLog(logger, self._loop.time)
        self._dozing: set[asyncio.Future[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self,
        name: str,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        *,
        first_after_s: float = 0.0,
        is_durable: bool = False,
        is_idle: Callable[[], bool] | None = None,
    ) -> None:
        """Do `work` every `period_s` seconds, not sooner than half of that after its end.

        `is_idle` is asked after each run: if there will be nothing to do within DOZE_MAX_S unless
        an entry is applied, the next run waits for one, or for about DOZE_S. `is_durable`: it
        writes what must survive a crash. Then only a lack of space or of descriptors is tried
        again: any other error ends the process, since what is in memory may not be on the disk.
        """
        repeated = self._repeat(
            name, period_s, work, first_after_s, is_durable=is_durable, is_idle=is_idle
        )
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
        is_idle: Callable[[], bool] | None,
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
            if is_idle is not None and is_idle():
                if not await self._doze():
                    continue
                await asyncio.sleep(self._left_s(period_s))
            else:
                await asyncio.sleep(self._left_s(period_s, period_s / 2))

    def _left_s(self, period_s: float, least_s: float = 0.0) -> float:
        """Return how long it is, `least_s` at least, until whole periods will have passed."""
        passed_s = self._loop.time() - self._phase_s
        return (floor((passed_s + least_s) / period_s) + 1) * period_s - passed_s

    async def _doze(self) -> bool:
        """Wait until it is time, or there may be something to do; return whether it is that."""
        doze = self._loop.create_future()
        self._dozing.add(doze)
        try:
            await asyncio.wait((doze,), timeout=self._left_s(DOZE_S, DOZE_S / 2))
        finally:
            self._dozing.discard(doze)
        return doze.done()

    def wake(self) -> None:
        """There may be something to do for what was idle."""
        for doze in self._dozing:
            if not doze.done():
                doze.set_result(None)

    # ClusterListener

    @override
    def on_applied(self, applied: Applied) -> None:
        del applied
        if self._dozing:
            self.wake()

    @override
    def on_restored(self, index: int) -> None:
        del index
        self.wake()

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        pass

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

"""What every node does for its own disk: flushes, sparse blob files, the reserve, certificates."""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from qm.node.replica.state_machine import AppliedStore
from qm.node.upkeep.pki import PkiRefused, ends_at
from qm.observe.metrics import Metrics
from qm.store.reserve import DiskLevel, DiskReserve
from raft.log.files import Directory
from raft.log.log import LogConfig
from raft.replica import StartRefused

logger = logging.getLogger(__name__)

LOG_SEGMENT_BYTES: Final = LogConfig(1, 0).segment_bytes

FLUSH_EVERY_S: Final = 60.0
FLUSH_BYTES: Final = 32 << 20
"""Of entries applied since the last flush; what is not flushed is replayed at a restart. A flush
takes processor and disk from the loop, so several short ones are better than a long one."""
FLUSH_ROWS_BYTES: Final = 8 << 20
"""Of rows changed since the last flush: entries that receive are small, and change as many."""
MOVE_AHEAD_BYTES: Final = 128 << 20
"""So much before the log drops them bodies are moved, without haste."""
MOVED_AT_FLUSH_BYTES: Final = 64 << 20
"""More than is applied from one flush to the next at any rate that a node reaches: a flush waits
until what the log may drop before the next one is moved."""
MOVE_EVERY_S: Final = 0.1
MOVE_PAUSE_S: Final = 0.018
"""Between two steps: a segment's bodies at once would hold up the loop, and their sync the log's,
by tens of milliseconds."""
MOVE_STEPS_PER_SYNC: Final = 64
"""The disk begins with each step at once. A sync for each would keep the file system's journal
busy, for which the log's may wait."""
LOOK_EVERY_S: Final = 1.0
REOPEN_FREE_BYTES: Final = 4 << 20
"""With less the state is not opened again after it found no space: that takes some itself, and what
is in memory is read as long as it is not tried."""
SPARSE_EVERY_S: Final = 10.0
CERTIFICATES_EVERY_S: Final = 3_600.0
CERTIFICATE_WARNING_S: Final = 30 * 24 * 3600


LOG_FILES_MIN: Final = 2
"""The segment that is written, and the one that is kept ready."""


def refuse_small_disk(data: Path, reserve_bytes: int) -> None:
    """Raise StartRefused if the reserve can never be kept beside a log on the disk of a folder."""
    place = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    log_bytes = LOG_FILES_MIN * LOG_SEGMENT_BYTES
    total, wanted = shutil.disk_usage(place).total, 2 * reserve_bytes + log_bytes
    if total < wanted:
        raise StartRefused(
            f"the disk under {data} has {total >> 20} MiB: too few for a reserve of"
            f" {reserve_bytes >> 20} MiB (storage.reserve_mb), as much again in which new messages"
            f" are refused, and {log_bytes >> 20} MiB of log; enlarge it to more than"
            f" {wanted >> 20} MiB, or set reserve_mb to at most"
            f" {max(0, total - log_bytes) // 2 >> 20}"
        )


class DiskWatch:
    """Says whether new messages are admitted, and keeps the reserve (DESIGN section 6)."""

    def __init__(
        self, data: Path, directory: Directory, reserve_bytes: int, metrics: Metrics
    ) -> None:
        """`data`: the folder that `directory` is."""
        self._data = data
        self._directory = directory
        self._reserve = DiskReserve(directory, reserve_bytes)
        self._free = metrics.gauge("quorate_disk_free_bytes")
        self._alarms = metrics.counter("quorate_alarms_total")
        self.level = self._reserve.level()

    @property
    def admits_messages(self) -> bool:
        """Whether there is room beyond the reserve."""
        return self.level is DiskLevel.ROOM

    async def look(self) -> None:
        """Measure how full the disk is."""
        self._free.set(self.free_bytes())
        if self.level is DiskLevel.EXHAUSTED:
            self._reserve.hold()
        self._change(self._reserve.level())
        await asyncio.sleep(0)

    @property
    def has_room_to_reopen(self) -> bool:
        """Whether a database that found no space has a chance now."""
        return self.free_bytes() >= REOPEN_FREE_BYTES

    def full(self) -> None:
        """The log or the state could not be written: give up the reserve, so that they can."""
        self._reserve.give_up()
        self._change(self._reserve.level())

    def free_bytes(self) -> int:
        """Return what is free under the data folder."""
        return self._directory.free_bytes()

    def _change(self, level: DiskLevel) -> None:
        before, self.level = self.level, level
        if level is before:
            return
        if level is DiskLevel.ROOM:
            logger.info("the disk has room again: new messages are accepted")
            return
        self._alarms.labels(alarm=f"disk_{level.name.lower()}").inc()
        logger.error(
            "the disk under %s is nearly full: new messages are refused until there is room;"
            " receive or purge messages, or enlarge it",
            self._data,
        )


class Housekeeping:
    """Keeps the store durable and compact."""

    def __init__(self, machine: AppliedStore, droppable_soon: Callable[[int], int]) -> None:
        """`droppable_soon`: `raft.driver.Driver.droppable_soon`."""
        self._machine = machine
        self._droppable_soon = droppable_soon
        self._flushed_at = time.monotonic()
        self._moving = asyncio.Lock()
        self._is_flush_due = False

    async def flush(self) -> None:
        """Make the state durable when it is time, in a thread; the log may then be shortened."""
        machine = self._machine
        if not self._is_time_to_flush():
            return
        self._flushed_at = time.monotonic()
        machine.applied_bytes = 0
        if machine.applied_index() > machine.durable_index():
            self._is_flush_due = True
            try:
                await self._move(MOVED_AT_FLUSH_BYTES)
            finally:
                self._is_flush_due = False
            await asyncio.to_thread(machine.flush)
            await self._remove_empty()

    def _is_time_to_flush(self) -> bool:
        machine = self._machine
        if machine.is_installing:
            return False
        return (
            machine.applied_bytes >= FLUSH_BYTES
            or time.monotonic() - self._flushed_at >= FLUSH_EVERY_S
            or machine.store.unflushed_bytes() >= FLUSH_ROWS_BYTES
        )

    async def move_ahead(self) -> None:
        """Copy bodies that the log may drop soon, in small steps, and make a few steps durable at
        a time: dropping them then takes no time.
        """
        await self._move(MOVE_AHEAD_BYTES)

    async def _move(self, ahead_bytes: int) -> None:
        is_hasty = self._is_flush_due
        async with self._moving:
            upto, has_more, steps = self._droppable_soon(ahead_bytes), True, 0
            while has_more and not self._machine.is_installing:
                if self._is_flush_due and not is_hasty:
                    break  # The flush does not wait for what has time.
                has_more = self._machine.store.bodies.move_ahead(upto)
                steps += 1
                if has_more and steps % MOVE_STEPS_PER_SYNC == 0:
                    await self._sync_moved()
                if has_more:
                    await asyncio.sleep(0 if is_hasty else MOVE_PAUSE_S)
            await self._sync_moved()

    async def _sync_moved(self) -> None:
        machine, bodies = self._machine, self._machine.store.bodies
        if machine.is_installing:
            return
        sync = bodies.begin_sync()
        if sync.files:
            await asyncio.to_thread(machine.work_on, bodies, sync)
        if not machine.is_installing and machine.store.bodies is bodies:
            bodies.end_sync(sync)

    async def _remove_empty(self) -> None:
        machine, bodies = self._machine, self._machine.store.bodies
        removal = bodies.begin_removal()
        if removal.files:
            await asyncio.to_thread(machine.work_on, bodies, removal)

    async def empty_sparse(self) -> None:
        """Empty blob files of which little is alive, a bounded step per round of the loop."""
        async with self._moving:
            while not self._machine.is_installing and self._machine.store.bodies.empty_sparse():
                await self._sync_moved()
                await asyncio.sleep(MOVE_PAUSE_S)


class Certificates:
    """Warns before certificates end."""

    def __init__(self, files: tuple[Path, ...], metrics: Metrics) -> None:
        self._files = files
        self._expiry = metrics.gauge("quorate_certificate_expiry_seconds")

    async def look(self) -> None:
        """Read when each ends."""
        for file in self._files:
            try:
                left = ends_at(file).timestamp() - time.time()
            except PkiRefused as error:
                logger.warning("%s", error)
                continue
            self._expiry.labels(file=file.name).set(left)
            if left < CERTIFICATE_WARNING_S:
                days = int(left / 86_400)
                logger.warning("%s ends in %d days: `qm pki renew` it", file, days)
        await asyncio.sleep(0)

"""What every node does for its disk: flushes, sparse blob files, the reserve, certificates."""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from qm.node.replica.state_machine import AppliedStore
from qm.node.upkeep.pki import PkiRefused, ends_at
from qm.observe.metrics import Metrics
from qm.store.reserve import DiskLevel, DiskReserve
from raft.log.files import Directory
from raft.log.log import LogConfig
from raft.log.retention import Retention
from raft.replica import StartRefused

logger = logging.getLogger(__name__)

LOG_SEGMENT_BYTES: Final = LogConfig(1, 0).segment_bytes

FLUSH_EVERY_S: Final = 60.0
FLUSH_BYTES: Final = 32 << 20
"""Bytes of entries applied since the last flush; a restart replays what is not flushed. A flush
takes processor and disk from the event loop, so several short ones are better than a long one."""
FLUSH_ROWS_BYTES: Final = 8 << 20
"""Bytes of rows changed since the last flush: receives are small entries that change many."""
MOVE_AHEAD_BYTES: Final = 128 << 20
"""Bodies are moved in small steps while the log is still this far from dropping them."""
MOVED_AT_FLUSH_BYTES: Final = 64 << 20
"""More than any node applies from one flush to the next: before a flush, everything that the log
may drop before the next one is moved."""
MOVE_EVERY_S: Final = 0.1
MOVE_PAUSE_S: Final = 0.018
"""Between two steps: moving a segment's bodies at once would delay the event loop, and their sync
the log's, by tens of milliseconds."""
MOVE_STEPS_PER_SYNC: Final = 64
"""The disk starts to write each step at once. A sync after each would keep the file system's
journal busy and delay the log's sync."""
LOOK_EVERY_S: Final = 1.0
REOPEN_FREE_BYTES: Final = 4 << 20
"""With less the state is not opened again after it found no space: opening needs some itself, and
until it is tried the state can be read from memory."""
SPARSE_EVERY_S: Final = 10.0
CERTIFICATES_EVERY_S: Final = 30.0
CERTIFICATE_WARNING_S: Final = 30 * 24 * 3600


SHORTEN_EVERY_S: Final = 3.0
LOG_SHORTENED_RESERVES: Final = 2
"""With less free than this many reserves the log is shortened; with less than one, new messages are
refused."""
LOG_FULL_LENGTH_RESERVES: Final = 4
"""With so much free it may grow to its full length again."""
LOG_FILES_MIN: Final = 2
"""The segment being written, and the one that is kept ready."""


def refuse_small_disk(data: Path, reserve_bytes: int) -> None:
    """Raise StartRefused if a folder's disk is too small for the reserve and a log."""
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
    """Decides whether new messages are admitted, and keeps the reserve (DESIGN section 6)."""

    def __init__(
        self, data: Path, directory: Directory, reserve_bytes: int, metrics: Metrics
    ) -> None:
        """`data`: the path of `directory`."""
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
        """Whether a database that found no space may succeed now."""
        return self.free_bytes() >= REOPEN_FREE_BYTES

    def full(self) -> None:
        """The log or the state could not be written: release the reserve for them."""
        self._reserve.give_up()
        self._change(self._reserve.level())

    def free_bytes(self) -> int:
        """Return the free bytes under the data folder."""
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
        self._moved_upto = -1
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

    def has_moved_ahead(self) -> bool:
        """Return whether there is nothing to copy ahead before more is applied."""
        return self._moved_upto == self._droppable_soon(MOVE_AHEAD_BYTES)

    async def _move(self, ahead_bytes: int) -> None:
        is_hasty = self._is_flush_due
        async with self._moving:
            upto, has_more, steps = self._droppable_soon(ahead_bytes), True, 0
            self._moved_upto = -1
            while has_more and not self._machine.is_installing:
                if self._is_flush_due and not is_hasty:
                    break  # The flush does not wait for moves that are not urgent.
                has_more = self._machine.store.bodies.move_ahead(upto)
                steps += 1
                if has_more and steps % MOVE_STEPS_PER_SYNC == 0:
                    await self._sync_moved()
                if has_more:
                    await asyncio.sleep(0 if is_hasty else MOVE_PAUSE_S)
            await self._sync_moved()
            if not has_more:
                self._moved_upto = upto

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

    async def restore(self, index: int, packets: Mapping[int, bytes]) -> bool:
        """Write bodies of an entry in place of damaged copies; return whether it was done: see
        `Bodies.restore`. The copies are durable then, their places after a flush.
        """
        async with self._moving:
            if self._machine.is_installing:
                return False
            is_restored = self._machine.store.bodies.restore(index, packets)
            await self._sync_moved()
            return is_restored

    async def flush_now(self) -> None:
        """Make the state durable as it is now, in a thread. Raises DatabaseFull."""
        if not self._machine.is_installing:
            await asyncio.to_thread(self._machine.flush)
            await self._remove_empty()

    async def shorten_log(self, retention: Retention, free_bytes: int, reserve_bytes: int) -> None:
        """Keep less of the log for followers that lag while the disk is short, a segment at a time:
        new messages are refused for want of space only when nothing else could go.
        """
        if free_bytes >= LOG_FULL_LENGTH_RESERVES * reserve_bytes:
            if retention.is_shortened:
                logger.info("the log keeps what `raft.log_retain_mb` says again")
            retention.restore()
        elif free_bytes < LOG_SHORTENED_RESERVES * reserve_bytes:
            if not retention.is_shortened:
                logger.warning(
                    "the disk is short of space: the log keeps less than `raft.log_retain_mb` says;"
                    " a node that was away longer than it reaches back gets a snapshot"
                )
            if retention.shorten(LOG_SEGMENT_BYTES):
                # Only what is durable in the state may leave the log.
                await self.flush_now()

    async def empty_sparse(self) -> None:
        """Empty blob files with few live bodies, a bounded step per iteration of the event loop."""
        async with self._moving:
            while not self._machine.is_installing and self._machine.store.bodies.empty_sparse():
                await self._sync_moved()
                await asyncio.sleep(MOVE_PAUSE_S)


class Certificates:
    """Warns before certificates end."""

    def __init__(self, files: tuple[Path, ...], metrics: Metrics) -> None:
        self._files = files
        self._expiry = metrics.gauge("quorate_certificate_expiry_seconds")
        self._warned: dict[Path, int] = {}
        """Days that were left when it was said last, once a day."""

    async def look(self) -> None:
        """Read when each ends."""
        for file in self._files:
            try:
                left = ends_at(file).timestamp() - time.time()
            except PkiRefused as error:
                logger.warning("%s", error)
                continue
            self._expiry.labels(file=file.name).set(left)
            days = int(left / 86_400)
            if left < CERTIFICATE_WARNING_S and self._warned.get(file) != days:
                self._warned[file] = days
                logger.warning("%s ends in %d days: `qm pki renew` it", file, days)
        await asyncio.sleep(0)

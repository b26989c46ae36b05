"""Reads every live record of the log and every live body back once in a period, and has what is
damaged restored.

A round reads the log first, then the bodies in blob files, in the order of the messages. How far it
is, is kept in a file, so that a restart does not begin it again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from qm.api.gate.operations import ScrubState
from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep.healer import (
    NAMED_MAX,
    BodyDamage,
    Damage,
    Healer,
    RangeDamage,
    RecordDamage,
)
from qm.node.upkeep.scrub_pace import ASKED_STEP_BYTES, Pace
from qm.observe.metrics import Metrics
from qm.store.bodies.body_places import BodyPlace
from qm.store.bodies.body_scan import START, Copy, CopyCheck, Cursor, page
from raft.log.checked_file import read_checked, replace_checked
from raft.log.files import Directory

logger = logging.getLogger(__name__)

STEP_EVERY_S: Final = 1.0
SAVE_EVERY_S: Final = 600.0
BUSY_ENTRIES_PER_S: Final = 50
"""A node that applies more is busy."""
PAGE_ROWS: Final = 256
_FILE: Final = "scrub"
_MAGIC: Final = b"qscrub\x01"
_FILE_MAX_BYTES: Final = 4_096
DAY_S: Final = 86_400.0


class Progress(msgspec.Struct):
    """How far a round is."""

    pace: Pace
    log_position: int = 0
    """Up to where the log was read."""
    cursor: Cursor | None = None
    """The next rows whose bodies are read; None while the log is read."""
    is_asked: bool = False
    """Whether somebody waits for it: it has no rests."""
    ended_s: float = 0.0
    """When the round before it ended, Unix time; 0: there was none."""


class Scrubber:
    """Runs one round after the other."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        healer: Healer,
        folder: Directory,
        period_s: float,
        metrics: Metrics,
        wall_s: Callable[[], float],
    ) -> None:
        """`folder`: where the progress is kept; `wall_s`: Unix time."""
        self._replicated = replicated
        self.healer: Final = healer
        self._folder = folder
        self._period_s = period_s
        self._bytes = metrics.counter("quorate_scrubbed_bytes_total")
        self._ended = metrics.gauge("quorate_scrub_ended_timestamp_seconds")
        self._wall_s = wall_s
        self._clock = asyncio.get_running_loop().time
        self._stepped_at = self._saved_at = self._clock()
        self._applied = 0
        self.rounds = 0
        """Rounds that ended since this node started."""
        self._progress = self._kept()
        self._ended.set(self._progress.ended_s)
        self._step = asyncio.Lock()

    def _kept(self) -> Progress:
        """Return the progress that an earlier process kept; a new one if there is none."""
        try:
            body = read_checked(self._folder, _FILE, _MAGIC, _FILE_MAX_BYTES)
            return Progress(Pace()) if body is None else msgspec.json.decode(body, type=Progress)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Progress(Pace())

    async def step(self) -> None:
        """Restore what is known to be damaged, and read on if it is time to."""
        if self._replicated.machine.is_installing:
            return
        async with self._step:
            self.healer.take_suspects()
            await self.healer.heal()
            await self._read_due(self._due_bytes())
            await self.healer.heal()
            if self._clock() - self._saved_at >= SAVE_EVERY_S:
                await self._save()

    async def _read_due(self, due_bytes: int) -> None:
        rounds = self.rounds
        while (
            due_bytes > 0 and rounds == self.rounds and not self._replicated.machine.is_installing
        ):
            due_bytes -= await self._read(due_bytes)

    def ask(self) -> None:
        """Begin a round now, without rests: it reads ASKED_STEP_BYTES a second."""
        self._progress = Progress(Pace(), is_asked=True, ended_s=self._progress.ended_s)
        self._saved_at = self._clock() - SAVE_EVERY_S

    def state(self) -> ScrubState:
        """Return how far it is."""
        progress, healer = self._progress, self.healer
        return ScrubState(
            self._live_bytes(),
            progress.pace.done_bytes,
            progress.is_asked,
            self.rounds,
            int(progress.ended_s * 1_000),
            healer.found_count,
            len(healer.known),
            tuple(healer.known[:NAMED_MAX]),
        )

    def _live_bytes(self) -> int:
        if self._replicated.machine.is_installing:
            return 0
        in_log = self._replicated.driver.scrub.live_bytes()
        return in_log + self._replicated.machine.store.bodies.live_bytes

    def _due_bytes(self) -> int:
        now, applied = self._clock(), self._replicated.machine.applied_index()
        passed_s, self._stepped_at = now - self._stepped_at, now
        entries, self._applied = applied - self._applied, applied
        if self._progress.is_asked:
            return ASKED_STEP_BYTES
        is_busy = entries > BUSY_ENTRIES_PER_S * max(passed_s, STEP_EVERY_S)
        pace = self._progress.pace
        return pace.due_bytes(passed_s, self._live_bytes(), self._period_s, is_busy=is_busy)

    async def _read(self, bytes_max: int) -> int:
        progress = self._progress
        if progress.cursor is None:
            size, found = await self._read_log(bytes_max)
        else:
            size, found = await self._read_bodies(progress.cursor, bytes_max)
        progress.pace.done_bytes += size
        self._bytes.inc(size)
        self.healer.found(found)
        return size

    async def _read_log(self, bytes_max: int) -> tuple[int, list[Damage]]:
        progress, scrub = self._progress, self._replicated.driver.scrub
        stretch = scrub.stretch(progress.log_position)
        if stretch is None:
            progress.cursor = START
            return 0, []
        position, ranges = await asyncio.to_thread(stretch.read, bytes_max)
        begin = stretch.segment.header.base_position + stretch.begin
        progress.log_position = position
        found: list[Damage] = []
        for one in ranges:
            entries = scrub.damaged_entries(one)
            found += map(RecordDamage, entries)
            if not entries and scrub.holds(one):
                found.append(RangeDamage(one))
        return position - begin, found

    async def _read_bodies(self, cursor: Cursor, bytes_max: int) -> tuple[int, list[Damage]]:
        machine, size = self._replicated.machine, 0
        following: Cursor | None = cursor
        copies: list[Copy] = []
        suspects: list[BodyPlace] = []
        bodies = machine.store.bodies
        while following is not None and size < bytes_max:
            following, known = page(machine.store.state, following, PAGE_ROWS)
            for place in dict.fromkeys(body.place for body in known):
                where = bodies.copy_place(place)
                if where is not None:
                    copies.append(Copy(*where, place))
                elif not bodies.is_logged(place.index):
                    suspects.append(place)
                size += place.length if where is not None else 0
        suspects += await asyncio.to_thread(CopyCheck(bodies.blob_directory, copies).run)
        if machine.is_installing or machine.store.bodies is not bodies:
            return 0, []
        # A body may have moved, or have been received, since its place was looked up.
        found: list[Damage] = [
            BodyDamage(place.index, place.ordinal, place)
            for place in suspects
            if bodies.is_damaged(place)
        ]
        if following is None:
            self._end_round()
        else:
            self._progress.cursor = following
        return size, found

    def _end_round(self) -> None:
        self.rounds += 1
        self._progress = Progress(Pace(), ended_s=self._wall_s())
        self._ended.set(self._progress.ended_s)
        self._saved_at = self._clock() - SAVE_EVERY_S

    async def _save(self) -> None:
        self._saved_at = self._clock()
        body = msgspec.json.encode(self._progress)
        save = replace_checked
        await asyncio.to_thread(
            self._replicated.machine.make_durable, lambda: save(self._folder, _FILE, _MAGIC, body)
        )

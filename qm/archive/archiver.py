"""Exports what this node applied, range by range, without making the node wait (design.md).

One round at a time runs in the node's loop and decides; a worker thread reads, packs and writes.
The rows of a range are deleted, and its log is released, only when its manifest is durable. When
the archive lags by more than the hold allows, the oldest entries are given up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from qm.archive.beginning import NO_LIMIT_BYTES, BeginningTurns, find_beginning
from qm.archive.bodies import DataTurns, Span
from qm.archive.checkpoints import Checkpoint, CheckpointExport, CheckpointTurns, find_newest
from qm.archive.columns import MarkReport
from qm.archive.contention import core_wanted_s
from qm.archive.destination import (
    Destination,
    DestinationError,
    SignedDestination,
    open_destination,
)
from qm.archive.exported import find_exported
from qm.archive.limits import (
    ACK_MARKS_WAITING_MAX,
    HELD_BEFORE_WAITING_ENDS,
    OTHERS_ASKED_EVERY_S,
    REPORT_WAIT_S,
    RETRY_MAX_S,
    RETRY_MIN_S,
    ROWS_PER_READ,
    STOP_WAIT_S,
)
from qm.archive.load_gate import LoadGate
from qm.archive.ranges import (
    AckRow,
    ExportStopped,
    Identity,
    Policy,
    RangeDone,
    RangeExport,
    RangePlan,
)
from qm.archive.source import ArchiveSource, LogGone, LogHold
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.store.effects.effects_log import (
    EffectsLog,
    Exported,
    chain_before,
    place_of,
    total_bytes_of,
)
from qm.store.signing import Signer

logger = logging.getLogger(__name__)

ALARM_LAG: Final = "archive_lag"
_Done = TypeVar("_Done")
AskOthers = Callable[[], Awaitable[Mapping[str, Span]]]
_GIVEN_UP_TO: Final = 0.9
"""Share of the hold that is kept when giving up, so that it happens rarely, not at every entry."""


class ArchiverConfig(msgspec.Struct, frozen=True):
    """What to export, and where."""

    url: str
    policy: Policy
    range_entries: int
    """A range closes at this number of entries,"""
    range_bytes: int
    """or at this many bytes of them,"""
    range_s: float
    """or when its first entry reaches this age, in seconds."""
    hold_bytes: int
    """Bytes of log kept for entries that are not exported yet."""
    checkpoint_bytes: int = 0
    """Bytes of entries between two checkpoints; 0 writes none."""
    busy_wait_s: float = 0.0
    """Longest additional wait while the node is busy, in seconds."""
    has_data_once: bool = False
    """With policy FULL: True puts entries' data into the ranges of one node, if it is in time;
    False into those of every node.
    """


async def _nobody() -> Mapping[str, Span]:
    """Report nothing about other nodes."""
    return {}


class Archiver:
    """The archiver of one node. Created and used in one loop; call `step` repeatedly."""

    def __init__(
        self,
        config: ArchiverConfig,
        identity: Identity,
        source: ArchiveSource,
        take_acks: Callable[[], Sequence[AckRow]],
        on_alarm: Callable[[str, str], None],
        metrics: Metrics,
        turn: Callable[[], int] = lambda: 0,
        ask_others: AskOthers = _nobody,
        wanted_s: Callable[[], float] = core_wanted_s,
        signer: Callable[[], Signer | None] = lambda: None,
    ) -> None:
        """`take_acks`: the acknowledgements that this node's edge sent since the last call;
        `on_alarm`: takes name and text of a condition that an operator must act on; `turn`: see
        CheckpointTurns and DataTurns; `ask_others`: returns `data_span` of the members that answer;
        `wanted_s`: see LoadGate; `signer`: signs manifests, called in a thread.
        """
        self._config = config
        self._identity = identity
        self._source = source
        self._take_acks = take_acks
        self._on_alarm = on_alarm
        self._loop = asyncio.get_running_loop()
        self._log = LimitedLog(logger, self._loop.time)
        self._log_of_thread = LimitedLog(logger, self._loop.time)
        self._destination: Destination | None = None
        self._keeper: EffectsLog | None = None
        self._hold: LogHold | None = None
        self._exported_total = 0
        """EffectsRow.total_bytes where the archive ends."""
        self._behind_since = self._loop.time()
        self._reports: dict[int, MarkReport] = {}
        self._waiting_marks: dict[int, float] = {}
        """Indexes of audit marks without a report, and since when they wait."""
        self._acks: deque[AckRow] = deque(maxlen=ACK_MARKS_WAITING_MAX)
        self._retry_at = 0.0
        self._retry_s = RETRY_MIN_S
        self._is_stopping = False
        # Always the same thread: each one has its own heap, whose fresh pages must be faulted in.
        self._thread = ThreadPoolExecutor(1, "archive")
        self._work: asyncio.Future[Any] | None = None
        is_full = config.policy is Policy.FULL
        self._turns = CheckpointTurns(config.checkpoint_bytes if is_full else 0, turn)
        self._beginning = BeginningTurns(self._loop.time, turn)
        self._has_begun = not is_full
        """Whether it is known what the archive begins with."""
        self._begins_after = 0
        """Index of the checkpoint that it begins with."""
        self._ask_others = ask_others
        self._signer = signer
        self._ask_at = 0.0
        held_max = int(config.hold_bytes * HELD_BEFORE_WAITING_ENDS)
        self._quiet = LoadGate(self._loop.time, wanted_s, config.busy_wait_s, held_max)
        self._data = DataTurns(
            turn,
            config.range_s + config.busy_wait_s,
            held_max,
            is_once=is_full and config.has_data_once,
        )
        self._lag_entries = metrics.gauge("quorate_archive_lag_entries")
        self._lag_seconds = metrics.gauge("quorate_archive_lag_seconds")
        self._ranges = metrics.counter("quorate_archive_ranges_total")
        self._bytes = metrics.counter("quorate_archive_bytes_total")
        self._checkpoints = metrics.counter("quorate_archive_checkpoints_total")
        self._failures = metrics.counter("quorate_archive_failures_total")
        self._given_up = metrics.counter("quorate_archive_given_up_entries_total")

    @property
    def data_span(self) -> Span | None:
        """The entries whose data this node last wrote durably, for the other nodes."""
        return self._data.own

    # Calls of the node

    def report(self, index: int, report: MarkReport) -> None:
        """Take this node's report of its state at the audit mark with that index."""
        self._waiting_marks.pop(index, None)
        self._reports[index] = report

    def begin(self) -> None:
        """Hold the log before any of it is dropped; call before the node takes part."""
        self._look()

    async def stop(self) -> None:
        """Finish the current file only; a range without a manifest is written again.

        A thread that the archive blocks for more than STOP_WAIT_S ends by itself: neither rows nor
        log are read once the node has closed them.
        log are read once the node has closed them.
        """
        self._is_stopping = True
        if self._work is not None:
            await asyncio.wait([self._work], timeout=STOP_WAIT_S)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._let_go()

    # A round

    async def step(self) -> None:
        """Export all ranges that are due. Errors of the archive are not raised."""
        keeper = self._look()
        if keeper is None:
            return
        self._collect_acks()
        self._quiet.look()
        try:
            await self._keep_within_hold(keeper)
            self._measure(keeper)
            if self._loop.time() < self._retry_at:
                return
            while not self._is_stopping and await self._export_due(keeper):
                self._measure(keeper)
                self._quiet.look()
            await self._checkpoint_if_due(keeper)
        except ExportStopped:
            return
        except DestinationError as error:
            self._failed("destination", str(error))
            self._destination = None  # it may have some or all of what failed
        except LogGone as error:
            if self._source.keeper() is keeper:
                self._failed("log_gone", str(error))
                self._keeper = None  # the next round finds out where the log begins
        except (OSError, ValueError) as error:
            self._failed("unreadable", f"the log or the state cannot be read: {error}")
        else:
            self._retry_s = RETRY_MIN_S

    def _failed(self, reason: str, text: str) -> None:
        self._failures.labels(reason=reason).inc()
        self._log.warning(reason, "the archive does not go on", reason=text)
        self._retry_at = self._loop.time() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _look(self) -> EffectsLog | None:
        """Return the keeper of the rows; hold the log for it."""
        keeper = self._source.keeper()
        if keeper is None or keeper is self._keeper:
            return keeper
        self._let_go()
        self._waiting_marks.clear()
        self._reports.clear()
        self._destination = None  # asked again how far this node's ranges go
        while True:
            row = self._source.next_row(keeper.exported.upto)
            try:
                self._hold = self._source.hold(keeper.newest_index + 1 if row is None else row[0])
                break
            except LogGone:
                assert row is not None, "the log begins above what is applied"
                self._give_up(keeper, [row[0]])
        if row is None:
            self._exported_total = keeper.total_bytes
            if keeper.exported.upto < keeper.newest_index:  # nothing was archived until now
                keeper.move(structs.replace(keeper.exported, upto=keeper.newest_index), [])
        else:
            self._exported_total = total_bytes_of(row[1]) - place_of(*row)[1]
        self._behind_since = self._loop.time()
        self._turns.begin(self._exported_total)
        self._keeper = keeper
        return keeper

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _measure(self, keeper: EffectsLog) -> None:
        lag = keeper.newest_index - keeper.exported.upto
        if lag <= 0:
            self._behind_since = self._loop.time()
        self._lag_entries.set(max(lag, 0))
        self._lag_seconds.set(self._loop.time() - self._behind_since)

    def _collect_acks(self) -> None:
        acks = self._take_acks()
        over = len(self._acks) + len(acks) - ACK_MARKS_WAITING_MAX
        if over > 0:
            self._failures.labels(reason="ack_marks_dropped").inc(over)
        self._acks.extend(acks)

    # Exporting

    async def _export_due(self, keeper: EffectsLog) -> bool:
        """Export a range if one is due; return whether another may be due."""
        if self._destination is None:
            self._destination = await self._resume(keeper)
        if not await self._begin_archive(keeper, self._destination):
            return False
        self._take_marks(keeper)
        upto = self._upto(keeper)
        if not self._is_due(keeper, upto):
            self._quiet.nothing_due()
            return False
        if self._quiet.is_awaited(keeper.total_bytes - self._exported_total):
            return False
        upto, policy = await self._with_data_or_without(keeper, upto)
        if upto <= keeper.exported.upto:
            return False
        config = self._config
        plan = RangePlan(
            keeper.exported,
            upto,
            config.range_entries,
            config.range_bytes,
            policy,
            self._reports.copy(),
            tuple(self._acks),
        )
        export = RangeExport(
            plan, self._identity, self._source, self._destination, lambda: self._is_stopping
        )
        began = self._loop.time()
        done = await self._in_thread(export.run)
        if done is None or self._source.keeper() is not keeper:
            return False  # a snapshot was installed: the next range begins after it
        await self._take(keeper, done, began)
        return True

    async def _begin_archive(self, keeper: EffectsLog, destination: Destination) -> bool:
        """Have an archive that begins after the cluster's birth begin with a whole state (see
        qm.archive.beginning); return whether this node's next range may be written.
        """
        if not self._has_begun:
            row = self._source.next_row(keeper.exported.upto)
            if row is None:
                return False
            self._has_begun = place_of(*row)[0] == 0 or await self._has_first_state(destination)
        if not self._has_begun or self._source.keeper() is not keeper:
            return False
        if self._begins_after > keeper.exported.upto:
            return await self._begin_after(keeper, self._begins_after)
        return True

    async def _has_first_state(self, destination: Destination) -> bool:
        """Return whether there is what the archive begins with; write it in this node's turn."""
        found = await self._in_thread(partial(find_beginning, destination, self._identity))
        if found.has_ranges:
            return True
        if found.checkpoint is not None:
            self._begins_after = found.checkpoint
            return True
        if self._beginning.is_own():
            checkpoint = await self._write_checkpoint(destination, NO_LIMIT_BYTES)
            if checkpoint is not None:
                self._begins_after = checkpoint.index
                logger.info("the archive begins with the state at entry %d", checkpoint.index)
        return bool(self._begins_after)

    async def _begin_after(self, keeper: EffectsLog, index: int) -> bool:
        """Drop the rows up to there, which that state has; return whether others are left."""
        async for rows in self._rows_from(keeper, index):
            first, row = rows[0]
            self._begins_after = 0
            previous_index, data_bytes = place_of(first, row)
            if previous_index == index:  # else this node archives only since then
                going = [old async for old in self._indexes_upto(keeper, index)]
                keeper.move(Exported(index, chain_before(first, row)), going)
                self._exported_total = total_bytes_of(row) - data_bytes
                self._hold_from(index + 1)
            return True
        return False

    async def _indexes_upto(self, keeper: EffectsLog, upto: int) -> AsyncIterator[int]:
        async for rows in self._rows_from(keeper, keeper.exported.upto):
            for index, _ in rows:
                if index > upto:
                    return
                yield index

    async def _with_data_or_without(self, keeper: EffectsLog, upto: int) -> tuple[int, Policy]:
        """Return how far to export, and with which policy: nothing yet while another node, whose
        turn it is, may still export the data.
        """
        turns, policy = self._data, self._config.policy
        if policy is not Policy.FULL or turns.is_first:
            return upto, policy
        now = self._loop.time()
        if now >= self._ask_at:
            turns.heard(await self._ask_others())
            self._ask_at = self._loop.time() + OTHERS_ASKED_EVERY_S
        row = self._source.next_row(keeper.exported.upto)
        if row is None or self._source.keeper() is not keeper:
            return keeper.exported.upto, policy
        covered = turns.covered(row[0])
        if covered >= row[0]:
            turns.went_on()
            return min(upto, covered), Policy.NONE
        if turns.is_over(now, keeper.total_bytes - self._exported_total):
            return upto, policy
        return keeper.exported.upto, policy

    async def _in_thread(self, work: Callable[[], _Done]) -> _Done:
        """Run in a thread that outlives a cancelled round, so that `stop` can wait for it.

        Raises ExportStopped once the archiver is stopping.
        """
        if self._is_stopping:
            raise ExportStopped
        future = self._loop.run_in_executor(self._thread, work)
        future.add_done_callback(_retrieve)
        self._work = future
        return await asyncio.shield(future)

    async def _take(self, keeper: EffectsLog, done: RangeDone, began: float) -> None:
        """Delete the rows and release the log of a range that is in the archive."""
        manifest = done.manifest
        keeper.move(done.exported, done.indexes)
        self._exported_total = done.total_bytes
        if manifest.has_data:
            self._data.wrote(manifest.first, manifest.last)
        self._behind_since = began
        self._hold_from(manifest.last + 1)
        for index in [index for index in self._reports if index <= manifest.last]:
            del self._reports[index]
        self._acks = deque((ack for ack in self._acks if ack[3] > manifest.last), self._acks.maxlen)
        self._ranges.inc()
        self._bytes.inc(done.written_bytes)
        logger.debug("exported %d to %d", manifest.first, manifest.last)
        await asyncio.sleep(0)

    async def _checkpoint_if_due(self, keeper: EffectsLog) -> None:
        """Write the whole state too, unless another node has done so or it is too large."""
        destination, turns = self._destination, self._turns
        if (
            destination is None
            or self._is_stopping
            or not turns.is_due(keeper.total_bytes, is_busy=self._quiet.is_busy)
        ):
            return
        newest = await self._in_thread(partial(find_newest, destination, self._identity))
        if turns.heard(newest, keeper.total_bytes):
            return
        await self._write_checkpoint(destination, turns.log_bytes(keeper.total_bytes))

    async def _write_checkpoint(
        self, destination: Destination, log_bytes: int
    ) -> Checkpoint | None:
        """Write the state as it is now, unless it is large compared with `log_bytes`, or is
        replaced meanwhile.
        """
        keeper, turns = self._source.keeper(), self._turns
        await self._in_thread(self._source.flush)
        if self._is_stopping or keeper is None or self._source.keeper() is not keeper:
            return None
        pinned, total_bytes = self._source.pin(), keeper.total_bytes
        export = CheckpointExport(
            pinned, self._identity, destination, log_bytes, lambda: self._is_stopping
        )
        checkpoint = await self._in_thread(export.run)
        if checkpoint is None:
            turns.refused(export.stream_bytes)
        else:
            turns.wrote(checkpoint, total_bytes)
            self._checkpoints.inc()
            logger.debug("wrote a checkpoint at %d", checkpoint.index)
        return checkpoint

    def _hold_from(self, index: int) -> None:
        held = self._hold
        self._hold = self._source.hold(index)
        if held is not None:
            held.release()

    async def _resume(self, keeper: EffectsLog) -> Destination:
        """Ask the archive how far this node's ranges go; delete the rows that it has."""
        identity, known = self._identity, keeper.exported

        def ask() -> tuple[Destination, Exported]:
            below = open_destination(self._config.url)
            destination = SignedDestination(below, self._signer, self._told_of_unsigned)
            return destination, find_exported(destination, identity, known)

        destination, found = await self._in_thread(ask)
        async for rows in self._rows_from(keeper, 0):
            indexes = [index for index, _ in rows if index <= found.upto]
            if not indexes:
                break
            keeper.move(found, indexes)
            self._exported_total = total_bytes_of(rows[len(indexes) - 1][1])
        if found != keeper.exported:
            keeper.move(found, [])
        self._hold_from(found.upto + 1)
        return destination

    def _told_of_unsigned(self, text: str) -> None:
        """Say that a file is not the cluster's. Called in threads."""
        self._failures.labels(reason="unsigned").inc()
        self._log_of_thread.warning("unsigned", "a file of the archive does not count", reason=text)

    async def _rows_from(
        self, keeper: EffectsLog, above: int
    ) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Yield rows in order, in chunks. Raises LogGone when the state was replaced."""
        while True:
            rows = await self._in_thread(partial(self._source.rows, above, ROWS_PER_READ))
            if self._source.keeper() is not keeper:
                raise LogGone("the state was replaced")
            if not rows:
                return
            yield rows
            above = rows[-1][0]

    # Timing

    def _take_marks(self, keeper: EffectsLog) -> None:
        now = self._loop.time()
        while keeper.marks:
            index = keeper.marks.pop(0)
            if index not in self._reports:
                self._waiting_marks[index] = now
        for index, since in list(self._waiting_marks.items()):
            if index <= keeper.exported.upto or now - since > REPORT_WAIT_S:
                del self._waiting_marks[index]

    def _upto(self, keeper: EffectsLog) -> int:
        """Return the last entry that may be exported: a mark's report belongs in its range."""
        if self._waiting_marks:
            return min(keeper.newest_index, min(self._waiting_marks) - 1)
        return keeper.newest_index

    def _is_due(self, keeper: EffectsLog, upto: int) -> bool:
        if upto <= keeper.exported.upto:
            return False
        config = self._config
        return (
            upto - keeper.exported.upto >= config.range_entries
            or keeper.total_bytes - self._exported_total >= config.range_bytes
            or self._loop.time() - self._behind_since >= config.range_s
        )

    # Giving up

    async def _keep_within_hold(self, keeper: EffectsLog) -> None:
        """Give up the oldest entries when the archive lags by more than the hold allows."""
        if keeper.total_bytes - self._exported_total <= self._config.hold_bytes:
            return
        target = keeper.total_bytes - int(self._config.hold_bytes * _GIVEN_UP_TO)
        count = 0
        async for rows in self._rows_from(keeper, keeper.exported.upto):
            going = [index for index, row in rows if total_bytes_of(row) <= target]
            if not going:
                break
            self._exported_total = total_bytes_of(rows[len(going) - 1][1])
            self._give_up(keeper, going)
            count += len(going)
        if count:
            self._hold_from(keeper.exported.upto + 1)
            self._on_alarm(
                ALARM_LAG,
                f"the archive lags: {count} entries up to {keeper.exported.upto} left the log"
                " before this node exported them; other nodes may have them",
            )

    def _give_up(self, keeper: EffectsLog, indexes: list[int]) -> None:
        keeper.move(Exported(indexes[-1], keeper.exported.chain), indexes)
        self._given_up.inc(len(indexes))


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception, in case the caller that waited for it is gone."""
    if not future.cancelled():
        future.exception()

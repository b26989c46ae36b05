"""The replicated log of one group on disk: append-only, preallocated, recycled segment files.

One owner (a replica) calls everything here from one thread, except `Sync.run`, which may run
in any other thread, and `Log.read` and `Log.read_entry` under a `Hold`. Appending only writes to
the page cache; nothing is durable until a `Sync` that began afterwards was run and ended. The
format and the rules of recovery are in docs/log.md.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import msgspec
from typing_extensions import override

from raft.log.appender import Placed, Record, Tail
from raft.log.contents import Contents
from raft.log.files import Directory, FatalDiskError
from raft.log.group_commit import Sync
from raft.log.hold import Hold
from raft.log.record import Floor, RecordKind, encode_floor, encode_hard_state, record_bytes
from raft.log.recovery import LogDamaged, Recovered, recover
from raft.log.scrub import LogScrub
from raft.log.segment import (
    SEGMENT_MAX_BYTES,
    SEGMENT_MIN_BYTES,
    Segment,
    is_disk_full,
    make_first_segment,
    make_spare,
    may_pass,
    segment_numbers,
)
from raft.log.spares import SparePool
from raft.log_view import Compacted
from raft.machine import LogReader
from raft.types import Entry, GroupId, HardState, SnapshotMeta

__all__ = [
    "Log",
    "LogConfig",
    "LogDamaged",
    "LogFull",
    "Sync",
    "has_log",
]

CONTROL_RESERVE_MAX_BYTES = 64 * 1024
"""Space at the end of each segment for records that are not entries, so that a full disk stops
neither votes nor compaction. An eighth of smaller segments."""


class LogConfig(msgspec.Struct, frozen=True):
    """Sizes of one group's log."""

    group: GroupId
    salt: int
    """64 random bits, used when the log is created and kept in it: without knowing them no peer can
    send a body that recovery would take for a record (raft.log.record)."""
    segment_bytes: int = 64 * 1024 * 1024
    """Length of a segment file. A larger entry gets a segment of its own."""
    spare_segments: int = 1
    """Segments allocated ahead of need, so that a full disk is noticed before it stops writes."""
    recycled_segments_max: int = 4
    """Retired segment files kept for reuse; more are deleted."""

    def __post_init__(self) -> None:
        if not SEGMENT_MIN_BYTES <= self.segment_bytes <= SEGMENT_MAX_BYTES:
            raise ValueError(f"segment_bytes must be {SEGMENT_MIN_BYTES} to {SEGMENT_MAX_BYTES}")
        if not 0 <= self.spare_segments <= self.recycled_segments_max:
            raise ValueError("spare_segments must be 0 to recycled_segments_max")

    @property
    def control_reserve_bytes(self) -> int:
        """Space in each segment that is kept for records that are not entries."""
        return min(CONTROL_RESERVE_MAX_BYTES, self.segment_bytes // 8)


class LogFull(OSError):
    """There is no space on the disk for these records, or no descriptor to open their segment;
    `errno` tells which. Nothing was appended and the log is unchanged.

    Stop acknowledging, raise an alarm, and call again later: the call succeeds once there is space.
    """

    def __init__(self, text: str, cause: OSError) -> None:
        what = "free space on the log's disk" if is_disk_full(cause) else "too many files are open"
        super().__init__(cause.errno, f"{text}; {what}")


class Log(LogReader):
    """The log of one group. Implements `raft.log_view.LogView` and `raft.machine.LogReader`."""

    def __init__(
        self, directory: Directory, config: LogConfig, spares: SparePool, found: Recovered
    ) -> None:
        """Use `open` instead."""
        self._directory = directory
        self._config = config
        self._spares = spares
        self._contents = Contents(found)
        newest = found.segments[-1]
        self._tail = Tail(
            directory,
            spares,
            newest,
            found.checksum,
            max([newest.header.incarnation, *found.discarded]) + 1,
            config.control_reserve_bytes,
        )
        self.scrub = LogScrub(directory, self._contents, lambda: self._tail.checksum)
        """Reads records back, and repairs them."""
        self._hard_state = found.hard_state
        self._durable_index = found.synced_index
        self._synced_position = found.synced_position
        self._unsynced = [s for s in found.segments if s.end_position > found.synced_position]
        self._has_new_names = bool(found.discarded)
        self._sync: Sync | None = None
        self._marked = newest.header.incarnation if _is_marked(found.segments) else 0
        """The newest segment that is durably marked as successor in the one before it."""
        self._marking = 0
        """The value of `_marked` after the outstanding sync."""
        self._holds: set[Hold] = set()
        self._retire_callbacks: list[Callable[[int, int], None]] = []
        self._retired: list[tuple[int, Segment]] = []
        """Segments whose files can be reused once the position is synced."""
        self._is_short_of_space = False
        self._is_marked = False
        self._is_failed = False
        self._is_closed = False

    @classmethod
    def open(cls, directory: Directory, config: LogConfig) -> "Log":
        """Recover the log in `directory`, or create an empty one. Everything found is durable.

        Cuts a torn tail. Raises LogDamaged for damage in what is known to have been synced, LogFull
        when the disk has no space for the first segment, FatalDiskError.
        """
        spares = SparePool(directory, config.segment_bytes, config.recycled_segments_max)
        try:
            incarnations = segment_numbers(directory) or _first_segment(directory, config, spares)
            found = recover(directory, incarnations, config.group)
        except (OSError, LogDamaged):
            spares.close()
            directory.close()
            raise
        log = cls(directory, config, spares, found)
        try:
            for incarnation in found.discarded:
                spares.recycle_file(incarnation)
            log._write([(RecordKind.OPENED, log.last_term, log.last_index(), b"")])
            log._sync_now()
            log._top_up_spares()
        except OSError:
            log.abandon()
            raise
        return log

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """What the state machine has without the log: the meta of the last `reset`, or `compact`
        that dropped anything. None when there was none.
        """
        return self._contents.floor.meta

    @property
    def hard_state(self) -> HardState:
        """The hard state last appended (after `open`: as found on disk)."""
        return self._hard_state

    @property
    def durable_index(self) -> int:
        """Last index that is synced here."""
        return self._durable_index

    @property
    def last_term(self) -> int:
        """Term of `last_index()`."""
        return self._contents.last_term

    @property
    def has_unsynced(self) -> bool:
        """Whether a sync would have anything to make durable."""
        return bool(self._unsynced)

    @property
    def is_short_of_space(self) -> bool:
        """Whether the next segment could not be allocated: appending works until this one is full.
        Each `begin_sync` tries again.
        """
        return self._is_short_of_space

    def first_index(self) -> int:
        """Return the index of the oldest entry; `last_index() + 1` when there is none."""
        return self._contents.first_index

    def last_index(self) -> int:
        """Return the index of the newest entry, or of the snapshot before the log's start."""
        return self._contents.last_index

    def term(self, index: int) -> int:
        """Return the term of an entry, also of `first_index() - 1`.

        Raises Compacted below that, Unavailable above `last_index()`.
        """
        return self._contents.term(index)

    def config_entries(self) -> Sequence[Entry]:
        """Return the CONFIG entries that are in the log, oldest first.

        With `snapshot_meta` they tell the configuration at any later index, without disk access.
        """
        return tuple(self._contents.configuration_entries)

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries of [low, high): at least one, more while their data fits `max_bytes`; none
        when `low` is `high`.

        Raises Compacted, Unavailable; LogDamaged when the disk returns other bytes than written.
        """
        return self._contents.entries(low, high, max_bytes)

    @override
    def read(self, index: int, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` of an entry's data, reading nothing else.

        No checksum is checked (the whole entry has one, not its parts): callers have their own. May
        be called from any thread while the index is held. Raises Compacted, Unavailable,
        LogDamaged, and ValueError for a range outside the entry.
        """
        return self._contents.read(index, offset, length)

    @override
    def read_entry(self, index: int) -> memoryview:
        """Return an entry's data, checked against its checksum.

        May be called from any thread while the index is held. Raises Compacted, Unavailable,
        LogDamaged.
        """
        return self._contents.read_entry(index)

    def append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Write the hard state, then the entries, whose indexes are contiguous. When the first is
        at or below the last index, a truncation record is written before them.

        Raises LogFull (nothing happened), FatalDiskError.
        """
        records: list[Record] = []
        if hard_state is not None and hard_state != self._hard_state:
            data = encode_hard_state(hard_state)
            records.append((RecordKind.HARD_STATE, hard_state.term, self.last_index(), data))
        if entries:
            last_index = entries[0].index - 1
            meta = self.snapshot_meta
            if not (meta.index if meta else 0) <= last_index <= self.last_index():
                raise ValueError(
                    f"entry {entries[0].index} is neither the next one of a log that ends at "
                    f"{self.last_index()}, nor one that may be replaced"
                )
            if last_index < self.last_index():
                records.append((RecordKind.TRUNCATE, self.term(last_index), last_index, b""))
            for entry in entries:
                last_index += 1
                if entry.index != last_index:
                    raise ValueError(f"entry {entry.index} is in the place of {last_index}")
                records.append((entry.kind, entry.term, entry.index, entry.data))
        if records:
            self._write(records, hard_state=hard_state)

    def _write(
        self,
        records: Sequence[Record],
        *,
        hard_state: HardState | None = None,
        floor: Floor | None = None,
    ) -> None:
        """Write records and, once all are written, note what they contain."""
        self._check_disk()
        hard_state = hard_state or self._hard_state

        # The rest of a segment's contents that must outlive its entries is written again when the
        # segment is dropped.
        checkpoint = (
            RecordKind.HARD_STATE,
            hard_state.term,
            self.last_index(),
            encode_hard_state(hard_state),
        )
        self._note_unsynced(self._tail.segment)
        synced = (self._durable_index, self._synced_position)
        try:
            placed = self._tail.write(records, synced, checkpoint)
        except OSError as error:
            raise self._failed("the log cannot be written", error) from error
        self._hard_state = hard_state
        self._contents.floor = floor or self._contents.floor
        for item in placed:
            self._take(item)

    def _take(self, item: Placed) -> None:
        """Note a record that was written."""
        contents = self._contents
        if item.segment is not contents.segments[-1]:
            self._note_unsynced(item.segment)
            self._has_new_names = True
        contents.take(item)
        if item.kind in (RecordKind.TRUNCATE, RecordKind.RESET):
            self._durable_index = min(self._durable_index, contents.last_index)
            if self._sync is not None:
                self._sync.index = min(self._sync.index, contents.last_index)

    def _note_unsynced(self, segment: Segment) -> None:
        """Include a segment, the newest one, in the next sync."""
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def _failed(self, text: str, error: OSError) -> OSError:
        """Return the error to raise for one of the disk; after a fatal one nothing is accepted."""
        result = _disk_error(text, error)
        self._is_failed = self._is_failed or isinstance(result, FatalDiskError)
        return result

    def begin_sync(self) -> Sync:
        """Return a token for everything appended so far; at most one is outstanding.

        Appending may go on while it runs.
        """
        if self._sync is not None:
            raise ValueError("the last sync has not ended")
        self._check_disk()
        prepare = None
        if len(self._spares) < self._config.spare_segments and (
            not self._is_short_of_space
            or self._directory.free_bytes() >= self._config.segment_bytes
        ):
            name = self._spares.new_name()
            prepare = partial(make_spare, self._directory, name, self._config.segment_bytes)
        mark = None
        self._marking = self._tail.segment.header.incarnation
        if self._marking != self._marked and len(self._contents.segments) > 1:
            mark = partial(self._contents.segments[-2].mark_successor, self._marking)
        # A SYNCED mark at the end is not covered by this sync, unless more records follow it.
        position = self._tail.segment.end_position if self._unsynced else self._synced_position
        self._sync = Sync(
            self.last_index(),
            position,
            [segment.file for segment in self._unsynced],
            self._directory if self._has_new_names else None,
            prepare,
            mark,
        )
        if self._unsynced:
            # The disk works while the sync thread wakes up. Only once for each sync: with a stuck
            # disk, a full queue of requests would block the caller.
            self._unsynced[-1].file.write_out()
        self._unsynced = []
        self._has_new_names = False
        return self._sync

    def end_sync(self, sync: Sync) -> int:
        """Note that `sync.run()` has returned; return `durable_index`."""
        self._check_disk()
        if sync is not self._sync or not sync.has_run:
            raise ValueError("this sync is not outstanding, or has not run")
        self._sync = None
        self._durable_index = max(self._durable_index, sync.index)
        self._synced_position = max(self._synced_position, sync.position)
        if sync.is_marked:
            self._marked = self._marking
        if sync.spare is not None:
            self._spares.put(sync.spare)
        if sync.spare is not None or sync.is_spare_missing:
            self._is_short_of_space = sync.is_spare_missing
        self._free_retired()
        self._is_marked = False
        return self._durable_index

    def _check_disk(self) -> None:
        """Refuse to continue after a fatal error of the disk. Raises FatalDiskError."""
        if self._is_failed or (self._sync is not None and self._sync.has_failed):
            raise FatalDiskError("the log's disk has failed before; stop the process")

    def mark_synced(self) -> None:
        """Record behind the last record that it is synced; call it when the owner is idle.

        Each record carries what was synced when it was written. Damage to the records of the last
        sync looks like a torn write until another record follows them, such as this one. It is not
        synced at once. Does nothing when it is there already, or appends or a sync are under way.
        """
        if self._is_marked or self._unsynced or self._sync is not None:
            return
        self._check_disk()
        self._is_marked = True
        segment = self._tail.segment
        if segment.end + record_bytes(0) > segment.header.size_bytes:
            return
        record = (RecordKind.SYNCED, self.last_term, self.last_index(), b"")
        try:
            self._tail.write([record], (self._durable_index, self._synced_position), record)
        except OSError as error:
            failure = self._failed("the log cannot be written", error)
            if isinstance(failure, FatalDiskError):
                raise failure from error

    def _sync_now(self) -> None:
        """Make everything durable before returning. Raises FatalDiskError."""
        try:
            segments = self._contents.segments
            for segment in segments:
                # A killed process may have left the mark of the newest one in the page cache.
                is_before_newest = segment is not segments[-1] and segment is segments[-2]
                if segment.end_position > self._synced_position or is_before_newest:
                    segment.file.fdatasync()
            self._directory.sync()
        except OSError as error:
            self._is_failed = True
            raise FatalDiskError(f"the log cannot be synced: {error}") from error
        self._unsynced = []
        self._has_new_names = False
        self._durable_index = self.last_index()
        self._synced_position = self._tail.segment.end_position
        self._is_marked = False
        if self._sync is not None:
            self._sync.index = self.last_index()

    def _top_up_spares(self) -> None:
        """Create the missing spares, if there is space."""
        try:
            while len(self._spares) < self._config.spare_segments:
                name = self._spares.new_name()
                self._spares.put(make_spare(self._directory, name, self._config.segment_bytes))
        except OSError as error:
            failure = self._failed("a spare segment cannot be made", error)
            if isinstance(failure, FatalDiskError):
                raise failure from error
            self._is_short_of_space = True

    @override
    def hold(self, index: int) -> Hold:
        """Keep the entry `index` and all later ones until released.

        Raises Compacted when it has been dropped already. A `reset` drops them nevertheless.
        """
        if index < self.first_index():
            raise Compacted(
                f"entry {index} has been dropped; the log begins at {self.first_index()}"
            )
        return Hold(index, self._holds)

    @override
    def retirable(self, index: int) -> int:
        count = self._droppable(self._droppable_upto(index))
        leaving = [s.table.last_index for s in self._contents.segments[:count] if len(s.table)]
        return leaving[-1] if leaving else self.first_index() - 1

    @override
    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        """Have `callback(first_index, last_index)` called before those entries are dropped.

        It is called within `compact`, oldest segment first; whatever is needed of the entries must
        be durable elsewhere when it returns. If it raises, nothing is dropped; `compact` raises it,
        unless it is LogDamaged.
        The same entries may be announced again, after a crash or when the disk was full.
        """
        self._retire_callbacks.append(callback)

    def compact(self, meta: SnapshotMeta, *, is_careful: bool = False) -> None:
        """Drop whole segments of entries at or below `meta.index` that are not held; if careful,
        only the oldest: what is copied out of it takes space before its own is free.

        The state machine must have them durably without the log, and `meta` must describe it. Call
        it again after holds were released. The files can be reused, and `meta` is durable, after
        the next sync; when nothing can be dropped, nothing is noted. Raises LogFull (nothing was
        dropped), ValueError when the log does not hold that entry durably.
        """
        if meta.index > self._durable_index or self.term(meta.index) != meta.term:
            raise ValueError(f"entry {meta.index} of term {meta.term} is not durable here")
        count = self._droppable(self._droppable_upto(meta.index))
        if is_careful:
            count = min(count, 1)
        if count == 0:
            return
        segments, floor = self._contents.segments, self._contents.floor
        leaving = [segment for segment in segments[:count] if len(segment.table)]
        base_index = leaving[-1].table.last_index if leaving else floor.base_index
        try:
            for segment in leaving:
                for callback in self._retire_callbacks:
                    callback(segment.table.first_index, segment.table.last_index)
        except LogDamaged:
            return  # what is needed of an entry is damaged: keep it until it is repaired
        if floor.meta is not None and floor.meta.index > meta.index:
            meta = floor.meta
        retired_below = segments[count].header.incarnation
        floor = Floor(retired_below, base_index, self.term(base_index), meta)
        record = (RecordKind.FLOOR, floor.base_term, self.last_index(), encode_floor(floor))
        self._write([record], floor=floor)
        self._retire(count)

    def oldest_end(self) -> int:
        """Return the last index in the oldest segment; 0 if no other could take its place."""
        oldest, *others = self._contents.segments
        return oldest.table.last_index if others and len(oldest.table) else 0

    def _droppable_upto(self, index: int) -> int:
        return min([index, *(hold.index - 1 for hold in tuple(self._holds))])

    def _droppable(self, limit: int) -> int:
        """Return how many of the oldest segments hold nothing above `limit`.

        They, even without entries, and the beginning of the next one must be synced: recovery takes
        a break in a segment below a floor for reuse, never for a torn write.
        """
        count = 0
        for segment, following in pairwise(self._contents.segments):
            if segment.table.last_index > limit and len(segment.table):
                break
            if self._synced_position <= following.header.base_position:
                break
            count += 1
        return count

    def _retire(self, count: int) -> None:
        """Drop the oldest segments; their files can be reused once the floor is synced."""
        position = self._tail.segment.end_position
        self._retired += [(position, segment) for segment in self._contents.drop_oldest(count)]

    def _free_retired(self) -> None:
        """Recycle the files of retired segments whose retirement is durable."""
        try:
            while self._retired and self._retired[0][0] <= self._synced_position:
                self._spares.recycle(self._retired.pop(0)[1])
        except OSError as error:
            self._is_failed = True
            raise FatalDiskError(f"a retired segment cannot be recycled: {error}") from error

    def reset(self, meta: SnapshotMeta) -> None:
        """Drop every entry and begin behind `meta`, whose snapshot is installed. Durable on return.

        Blocks for the disk. The retire hook is not called. Raises LogFull (nothing happened),
        FatalDiskError.
        """
        segments = self._contents.segments
        floor = Floor(segments[-1].header.incarnation, meta.index, meta.term, meta)
        record = (RecordKind.RESET, meta.term, meta.index, encode_floor(floor))
        self._write([record], floor=floor)
        self._retire(len(segments) - 1)
        self._sync_now()
        if self._sync is None:  # a running one may still be about to sync their files
            self._free_retired()

    def close(self) -> None:
        """Sync what is left, mark it as synced, and close the files.

        While a sync is outstanding, or after an error of the disk, nothing is written: what was
        not synced is as after a crash. A second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._sync is None and not self._is_failed:
            self._sync_now()
            self.mark_synced()
            self._tail.segment.file.fdatasync()
        self.abandon()

    def abandon(self) -> None:
        """Close the files without syncing: what was not synced is as after a crash."""
        self._is_closed = True
        for segment in [*self._contents.segments, *(segment for _, segment in self._retired)]:
            segment.file.close()
        self._spares.close()
        self._directory.close()


def _is_marked(segments: Sequence[Segment]) -> bool:
    return len(segments) > 1 and segments[-2].header.successor != 0


def has_log(directory: Directory) -> bool:
    """Return whether `directory` has any segment (spare files do not count)."""
    return bool(segment_numbers(directory))


def _first_segment(directory: Directory, config: LogConfig, spares: SparePool) -> list[int]:
    """Create a log; return the incarnations of its segments."""
    try:
        spare = spares.take(config.segment_bytes)
        make_first_segment(directory, spare, config.group, config.salt)
    except OSError as error:
        raise _disk_error("the first segment of the log cannot be made", error) from error
    return segment_numbers(directory)


def _disk_error(text: str, error: OSError) -> OSError:
    """Return the log's error for an error of the disk: LogFull or FatalDiskError."""
    if isinstance(error, FatalDiskError):
        return error
    return LogFull(text, error) if may_pass(error) else FatalDiskError(f"{text}: {error}")

"""The replicated log of one group on disk: append-only, preallocated, recycled segment files.

One owner (a replica) calls everything here from one thread, except `Sync.run`, which may run
in any other thread, and `Log.read` under a `Hold`. Appending only writes to the page cache;
nothing is promised before a `Sync` that began afterwards was run and ended. The format and
the rules of recovery are in docs/log.md.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from types import TracebackType
from zlib import crc32

import msgspec

from raft.appender import Placed, Record, Tail
from raft.files import Directory, FatalDiskError, File
from raft.log_view import Compacted, Unavailable
from raft.record import (
    LAST_ENTRY_KIND,
    RECORD_HEADER_BYTES,
    Floor,
    RecordKind,
    encode_floor,
    encode_hard_state,
    parse_header,
    record_bytes,
)
from raft.recovery import LogDamaged, Recovered, drop_above, recover
from raft.segment import (
    SEGMENT_BYTES_MAX,
    Segment,
    Spare,
    is_disk_full,
    make_first_segment,
    make_spare,
    segment_numbers,
)
from raft.spares import SparePool
from raft.types import Entry, EntryKind, GroupId, HardState, SnapshotMeta

__all__ = [
    "Hold",
    "Log",
    "LogConfig",
    "LogDamaged",
    "LogFull",
    "Sync",
    "has_log",
]

SEGMENT_BYTES_MIN = 4096
CONTROL_RESERVE_BYTES_MAX = 64 * 1024
"""At the end of each segment for what is no entry: a full disk stops neither votes nor
compaction. A sixteenth of smaller segments."""


class LogConfig(msgspec.Struct, frozen=True):
    """Sizes of one group's log."""

    group: GroupId
    salt: int
    """64 random bits, used when the log is made and kept in it: without knowing them no peer can
    send a body that recovery would take for a record (raft.record)."""
    segment_bytes: int = 64 * 1024 * 1024
    """Length of a segment file. An entry that is larger gets a segment of its own."""
    spare_segments: int = 1
    """Kept allocated ahead of need, so that a full disk is noticed before it hurts."""
    recycled_segments_max: int = 4
    """Retired segment files kept for reuse; more are deleted."""

    def __post_init__(self) -> None:
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes must be {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}")
        if not 0 <= self.spare_segments <= self.recycled_segments_max:
            raise ValueError("spare_segments must be 0 to recycled_segments_max")

    @property
    def control_reserve_bytes(self) -> int:
        """Of each segment, kept for records that are no entries."""
        return min(CONTROL_RESERVE_BYTES_MAX, self.segment_bytes // 16)


class LogFull(OSError):
    """No space on the disk for these records; nothing was appended and the log is as before.

    Stop acknowledging, say so, and call again later: the same call succeeds once there is space.
    """

    def __init__(self, text: str) -> None:
        super().__init__(errno.ENOSPC, f"{text}; free space on the log's disk")


class Sync:
    """One group commit: everything appended before `begin_sync`."""

    def __init__(
        self,
        index: int,
        position: int,
        files: Sequence[File],
        directory: Directory | None,
        prepare: Callable[[], Spare] | None,
    ) -> None:
        self.index = index
        """Last index that is durable once `run` has returned, unless it is truncated meanwhile."""
        self.position = position
        self.spare: Spare | None = None
        self.is_disk_full = False
        self.has_run = False
        self.has_failed = False
        self._files = files
        self._directory = directory
        self._prepare = prepare

    def run(self) -> None:
        """Make it durable; one fdatasync, plus preparation of the next segment when it nears.

        Blocks; call it from any one thread, once. Raises FatalDiskError: stop the process.
        """
        self.has_failed = True
        for file in self._files:
            file.fdatasync()
        if self._directory is not None:
            self._directory.sync()
        if self._prepare is not None:
            try:
                self.spare = self._prepare()
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self.is_disk_full = True
        self.has_failed = False
        self.has_run = True


class Hold:
    """Keeps the segments of one entry and of all later ones. Also a context manager."""

    def __init__(self, index: int, holds: "set[Hold]") -> None:
        self.index = index
        self._holds = holds
        holds.add(self)

    def release(self) -> None:
        """Let them go (at the next `compact`). Repeating it does nothing."""
        self._holds.discard(self)

    def __enter__(self) -> "Hold":
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release."""
        self.release()


_FIRST_INDEX = attrgetter("table.first_index")


class Log:
    """The log of one group. Implements `raft.log_view.DurableLog` and `raft.machine.LogReader`."""

    def __init__(
        self, directory: Directory, config: LogConfig, spares: SparePool, found: Recovered
    ) -> None:
        """Use `open`."""
        self._directory = directory
        self._config = config
        self._spares = spares
        self._segments = found.segments
        """Replaced, never changed: `read` runs in other threads."""
        newest = found.segments[-1]
        self._tail = Tail(
            directory,
            spares,
            newest,
            found.checksum,
            max([newest.header.incarnation, *found.discarded]) + 1,
            config.control_reserve_bytes,
        )
        self._hard_state = found.hard_state
        self._floor = found.floor
        self._configuration_entries = found.configuration_entries
        self._last_index = found.last_index
        self._last_term = found.last_term
        self._durable_index = found.synced_index
        self._synced_position = found.synced_position
        self._unsynced = [s for s in found.segments if s.end_position > found.synced_position]
        self._has_new_names = bool(found.discarded)
        self._sync: Sync | None = None
        self._holds: set[Hold] = set()
        self._retire_callbacks: list[Callable[[int, int], None]] = []
        self._retired: list[tuple[int, Segment]] = []
        """Segments whose files are free once the position is synced."""
        self._is_short_of_space = False
        self._is_failed = False

    @classmethod
    def open(cls, directory: Directory, config: LogConfig) -> "Log":
        """Recover the log in `directory`, or make an empty one. Everything found is durable.

        Cuts a torn tail. Raises LogDamaged for damage at or below what is known to have been
        synced, LogFull when the disk has no space for the first segment, FatalDiskError.
        """
        spares = SparePool(directory, config.segment_bytes, config.recycled_segments_max)
        incarnations = segment_numbers(directory)
        if not incarnations:
            try:
                spare = spares.take(config.segment_bytes)
                make_first_segment(directory, spare, config.group, config.salt)
            except OSError as error:
                raise _disk_error("the first segment of the log cannot be made", error) from error
            incarnations = segment_numbers(directory)
        found = recover(directory, incarnations, config.group)
        for incarnation in found.discarded:
            spares.recycle_file(incarnation)
        log = cls(directory, config, spares, found)
        log._write([(RecordKind.OPENED, log._last_term, log._last_index, b"")])
        log._sync_now()
        log._top_up_spares()
        return log

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """What the state machine has without the log: of the last `compact` that dropped
        anything, or `reset`. None when there was none.
        """
        return self._floor.meta

    @property
    def hard_state(self) -> HardState:
        """As last appended (after `open`: as found on disk)."""
        return self._hard_state

    @property
    def durable_index(self) -> int:
        """Last index that is fsynced here."""
        return self._durable_index

    @property
    def last_term(self) -> int:
        """Term of `last_index()`."""
        return self._last_term

    @property
    def has_unsynced(self) -> bool:
        """Whether a sync would have anything to make durable."""
        return bool(self._unsynced)

    @property
    def is_short_of_space(self) -> bool:
        """Whether the next segment could not be allocated: appending goes on until this one is
        full. Each `begin_sync` looks again.
        """
        return self._is_short_of_space

    def first_index(self) -> int:
        """Return the first index whose entry is here; `last_index() + 1` when none is."""
        return self._floor.base_index + 1

    def last_index(self) -> int:
        """Return the index of the newest entry, or of the snapshot that the log starts behind."""
        return self._last_index

    def term(self, index: int) -> int:
        """Return the term of an entry, also of `first_index() - 1`.

        Raises Compacted below that, Unavailable above `last_index()`.
        """
        if index == self._last_index:
            return self._last_term
        if index == self._floor.base_index:
            return self._floor.base_term
        return self._segment_of(index).table.term(index)

    def config_entries(self) -> Sequence[Entry]:
        """Return the CONFIG entries that are in the log, oldest first.

        With `snapshot_meta` they tell the configuration at any later index, without a disk.
        """
        return tuple(self._configuration_entries)

    def _segment_of(self, index: int) -> Segment:
        """Return the segment that holds an entry."""
        if index <= self._floor.base_index:
            raise Compacted(f"entry {index} is gone; the log begins at {self.first_index()}")
        if index > self._last_index:
            raise Unavailable(f"entry {index} is not here; the log ends at {self._last_index}")
        segments = self._segments
        return segments[bisect_right(segments, index, key=_FIRST_INDEX) - 1]

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries from `low` to below `high`, at least one, then while their data fits
        `max_bytes`; none when `low` is `high`.

        Raises Compacted, Unavailable; LogDamaged when the disk gives back other bytes.
        """
        if low > high:
            raise ValueError(f"{low} to {high} is no range")
        entries: list[Entry] = []
        if low < high:
            self._segment_of(high - 1)
        while low < high:
            segment = self._segment_of(low)
            table = segment.table
            end = min(high, table.last_index + 1)
            count = 0
            while low + count < end:
                max_bytes -= table.place(low + count)[1]
                if max_bytes < 0 and (entries or count):
                    break
                count += 1
            if count:
                entries += self._read_entries(segment, low, low + count)
                low += count
            if low < end:
                break
        return tuple(entries)

    def _read_entries(self, segment: Segment, low: int, high: int) -> list[Entry]:
        """Read and check entries that stand in one segment."""
        start, _ = segment.table.place(low)
        last, length = segment.table.place(high - 1)
        data = self._pread(segment, start, last + RECORD_HEADER_BYTES + length - start, low)
        entries = []
        for index in range(low, high):
            offset, length = segment.table.place(index)
            at = offset - start
            header = parse_header(data, at, segment.keys)
            body = data[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + length]
            if header is None or header.index != index or crc32(body) != header.data_checksum:
                reason = "the record is no longer what was written"
                raise LogDamaged(segment.name, offset, index, reason)
            entries.append(Entry(index, header.term, EntryKind(header.kind), body))
        return entries

    def _pread(self, segment: Segment, offset: int, length: int, index: int) -> bytes:
        """Read from a segment. Raises LogDamaged when the disk cannot."""
        try:
            return segment.file.pread(length, offset)
        except OSError as error:
            raise LogDamaged(segment.name, offset, index, f"it cannot be read: {error}") from error

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` of an entry's data, without reading the segment.

        Checks no checksum (the whole entry has one, not its parts): the caller has its own.
        Callable from any thread while the index is held. Raises Compacted, Unavailable,
        LogDamaged, and ValueError when the range leaves the entry.
        """
        segment = self._segment_of(index)
        start, entry_bytes = segment.table.place(index)
        if offset < 0 or length < 0 or offset + length > entry_bytes:
            raise ValueError(
                f"entry {index} has {entry_bytes} bytes, not {length} from byte {offset} on"
            )
        return self._pread(segment, start + RECORD_HEADER_BYTES + offset, length, index)

    def append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Write records, in this order. Contiguous indexes; when `entries[0].index` lies at or
        below the last index, a record of truncation is written first.

        Raises LogFull (nothing happened), FatalDiskError.
        """
        records: list[Record] = []
        if hard_state is not None and hard_state != self._hard_state:
            data = encode_hard_state(hard_state)
            records.append((RecordKind.HARD_STATE, hard_state.term, self._last_index, data))
        if entries:
            last_index = entries[0].index - 1
            if not self._floor.base_index <= last_index <= self._last_index:
                raise ValueError(
                    f"entry {entries[0].index} cannot be appended to a log of "
                    f"{self.first_index()} to {self._last_index}"
                )
            if last_index < self._last_index:
                term = self.term(last_index)
                records.append((RecordKind.TRUNCATE, term, last_index, b""))
            for entry in entries:
                last_index += 1
                if entry.index != last_index:
                    raise ValueError(f"entry {entry.index} stands where {last_index} should")
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
        """Write records and, once all are written, take note of what they say."""
        self._check_disk()
        hard_state = hard_state or self._hard_state

        def checkpoint() -> list[Record]:
            return self._checkpoint(hard_state)

        self._note_unsynced(self._tail.segment)
        synced = (self._durable_index, self._synced_position)
        try:
            placed = self._tail.write(records, synced, checkpoint)
        except OSError as error:
            raise self._failed("the log cannot be written", error) from error
        self._hard_state = hard_state
        self._floor = floor or self._floor
        for item in placed:
            self._take(item)

    def _checkpoint(self, hard_state: HardState) -> list[Record]:
        """Return what each segment begins with."""
        records: list[Record] = []
        if self._floor != Floor():
            data = encode_floor(self._floor)
            records.append((RecordKind.FLOOR, self._floor.base_term, self._last_index, data))
        data = encode_hard_state(hard_state)
        records.append((RecordKind.HARD_STATE, hard_state.term, self._last_index, data))
        return records

    def _take(self, item: Placed) -> None:
        """Take note of a record that was written."""
        segment, kind, index = item.segment, item.kind, item.index
        if segment is not self._segments[-1]:
            segment.table.first_index = self._last_index + 1
            self._segments = [*self._segments, segment]
            self._note_unsynced(segment)
            self._has_new_names = True
        if kind <= LAST_ENTRY_KIND:
            segment.table.append(index, item.term, item.offset, len(item.data))
            self._last_index, self._last_term = index, item.term
            if kind == RecordKind.CONFIG:
                entry = Entry(index, item.term, EntryKind.CONFIG, item.data)
                self._configuration_entries.append(entry)
        elif kind in (RecordKind.TRUNCATE, RecordKind.RESET):
            keep = index if kind == RecordKind.TRUNCATE else 0
            for earlier in self._segments:
                earlier.table.truncate(keep)
            drop_above(self._configuration_entries, keep)
            self._last_index, self._last_term = index, item.term
            self._durable_index = min(self._durable_index, keep)
            if self._sync is not None:
                self._sync.index = min(self._sync.index, keep)

    def _note_unsynced(self, segment: Segment) -> None:
        """Have the next sync include a segment; it is the newest one."""
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def _failed(self, text: str, error: OSError) -> OSError:
        """Return what to raise for an error of the disk; after a fatal one nothing is accepted."""
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
        self._sync = Sync(
            self._last_index,
            self._tail.segment.end_position,
            [segment.file for segment in self._unsynced],
            self._directory if self._has_new_names else None,
            prepare,
        )
        self._unsynced = []
        self._has_new_names = False
        return self._sync

    def end_sync(self, sync: Sync) -> int:
        """Take note that `sync.run()` has returned; return `durable_index`."""
        self._check_disk()
        if sync is not self._sync or not sync.has_run:
            raise ValueError("this sync is not outstanding, or has not run")
        self._sync = None
        self._durable_index = max(self._durable_index, sync.index)
        self._synced_position = max(self._synced_position, sync.position)
        if sync.spare is not None:
            self._spares.put(sync.spare)
        if sync.spare is not None or sync.is_disk_full:
            self._is_short_of_space = sync.is_disk_full
        self._free_retired()
        if not self._unsynced:
            self._mark_synced()
        return self._durable_index

    def _check_disk(self) -> None:
        """Accept nothing after an error of the disk. Raises FatalDiskError."""
        if self._is_failed or (self._sync is not None and self._sync.has_failed):
            raise FatalDiskError("the log's disk has failed before; stop the process")

    def _mark_synced(self) -> None:
        """Note behind the last record that it is synced.

        The log is idle now; without the note, damage to what was synced last would pass for a torn
        write. It becomes durable by the way: nobody waits for it, and the next sync has it.
        """
        segment = self._tail.segment
        if segment.end + record_bytes(0) > segment.header.size_bytes:
            return
        record = (RecordKind.SYNCED, self._last_term, self._last_index, b"")
        try:
            self._tail.write([record], (self._durable_index, self._synced_position), list)
        except OSError as error:
            failure = self._failed("the log cannot be written", error)
            if isinstance(failure, FatalDiskError):
                raise failure from error

    def _sync_now(self) -> None:
        """Make everything durable before returning. Raises FatalDiskError."""
        try:
            for segment in self._segments:
                if segment.end_position > self._synced_position:
                    segment.file.fdatasync()
            self._directory.sync()
        except OSError as error:
            self._is_failed = True
            raise FatalDiskError(f"the log cannot be synced: {error}") from error
        self._unsynced = []
        self._has_new_names = False
        self._durable_index = self._last_index
        self._synced_position = self._tail.segment.end_position
        if self._sync is not None:
            self._sync.index = self._last_index

    def _top_up_spares(self) -> None:
        """Make the spares that are missing, if there is space."""
        try:
            while len(self._spares) < self._config.spare_segments:
                name = self._spares.new_name()
                self._spares.put(make_spare(self._directory, name, self._config.segment_bytes))
        except OSError as error:
            failure = self._failed("a spare segment cannot be made", error)
            if isinstance(failure, FatalDiskError):
                raise failure from error
            self._is_short_of_space = True

    def hold(self, index: int) -> Hold:
        """Keep the entry `index` and all later ones from being dropped until released.

        Raises Compacted when it is gone already. A `reset` drops them all the same.
        """
        if index <= self._floor.base_index:
            raise Compacted(f"entry {index} is gone; the log begins at {self.first_index()}")
        return Hold(index, self._holds)

    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        """Have `callback(first_index, last_index)` called before those entries are dropped.

        Called within `compact`, oldest segment first; whatever is needed of them must be durable
        elsewhere when it returns. If it raises, nothing is dropped and `compact` raises. The same
        entries may be announced again, after a crash or when the disk was full.
        """
        self._retire_callbacks.append(callback)

    def compact(self, meta: SnapshotMeta) -> None:
        """Drop whole segments of entries at or below `meta.index` that nobody holds.

        The state machine must have them durably without the log, and `meta` must describe it. Call
        it again after holds were released. The files are free, and `meta` is durable, after the
        next sync; when nothing can be dropped, nothing is noted. Raises LogFull (nothing was
        dropped), ValueError when the log never held that entry.
        """
        if self.term(meta.index) != meta.term:
            raise ValueError(
                f"entry {meta.index} has term {self.term(meta.index)}, not {meta.term}"
            )
        limit = min([meta.index, self._durable_index, *(hold.index - 1 for hold in self._holds)])
        count = self._droppable(limit)
        if count == 0:
            return
        leaving, staying = self._segments[:count], self._segments[count:]
        base_index = max(
            (segment.table.last_index for segment in leaving if len(segment.table)),
            default=self._floor.base_index,
        )
        for segment in leaving:
            if len(segment.table):
                for callback in self._retire_callbacks:
                    callback(segment.table.first_index, segment.table.last_index)
        retired_below = staying[0].header.incarnation
        if self._floor.meta is not None and self._floor.meta.index > meta.index:
            meta = self._floor.meta
        floor = Floor(retired_below, base_index, self.term(base_index), meta)
        record = (RecordKind.FLOOR, floor.base_term, self._last_index, encode_floor(floor))
        self._write([record], floor=floor)
        self._configuration_entries = [
            entry for entry in self._configuration_entries if entry.index > base_index
        ]
        self._retire(count)

    def _droppable(self, limit: int) -> int:
        """Return how many of the oldest segments hold nothing above `limit`.

        They, and the beginning of the one behind them, are synced: recovery relies on it.
        """
        count = 0
        for segment, following in pairwise(self._segments):
            if segment.table.last_index > limit and len(segment.table):
                break
            if self._synced_position <= following.header.base_position:
                break
            count += 1
        return count

    def _retire(self, count: int) -> None:
        """Forget the oldest segments; their files are free once the floor is synced."""
        position = self._tail.segment.end_position
        self._retired += [(position, segment) for segment in self._segments[:count]]
        self._segments = self._segments[count:]

    def _free_retired(self) -> None:
        """Recycle the files of retired segments whose retirement is durable."""
        try:
            while self._retired and self._retired[0][0] <= self._synced_position:
                self._spares.recycle(self._retired.pop(0)[1])
        except OSError as error:
            self._is_failed = True
            raise FatalDiskError(f"a retired segment cannot be recycled: {error}") from error

    def reset(self, meta: SnapshotMeta) -> None:
        """Drop every entry and begin behind `meta`, whose snapshot is installed; durably.

        Blocks for the disk. The retire hook is not called. Raises LogFull (nothing happened),
        FatalDiskError.
        """
        segments = self._segments
        floor = Floor(segments[-1].header.incarnation, meta.index, meta.term, meta)
        record = (RecordKind.RESET, meta.term, meta.index, encode_floor(floor))
        self._write([record], floor=floor)
        self._retire(len(segments) - 1)
        self._sync_now()
        self._free_retired()

    def close(self) -> None:
        """Sync what is left, mark it as synced, and close the files.

        While a sync is outstanding, or after an error of the disk, nothing is written: what was
        not synced is as after a crash.
        """
        if self._sync is None and not self._is_failed:
            self._sync_now()
            self._mark_synced()
            self._tail.segment.file.fdatasync()
        for segment in [*self._segments, *(segment for _, segment in self._retired)]:
            segment.file.close()
        self._spares.close()


def has_log(directory: Directory) -> bool:
    """Return whether `directory` holds any segment (spare files do not count)."""
    return bool(segment_numbers(directory))


def _disk_error(text: str, error: OSError) -> OSError:
    """Return the error of the log for one of the disk: LogFull or FatalDiskError."""
    if isinstance(error, FatalDiskError):
        return error
    return LogFull(text) if is_disk_full(error) else FatalDiskError(f"{text}: {error}")

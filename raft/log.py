"""The replicated log of one group on disk: append-only, preallocated, recycled segment files.

One owner (a replica) calls everything here from one thread, except `Sync.run`, which may run
in any other thread, and `Log.read` under a `Hold`. Appending only writes to the page cache;
nothing is promised before a `Sync` that began afterwards was run and ended. The format and
the rules of recovery are in docs/log.md.
"""

from collections.abc import Callable, Sequence

import msgspec

from raft.files import Directory
from raft.types import Entry, GroupId, HardState, SnapshotMeta


class LogConfig(msgspec.Struct, frozen=True):
    """Sizes of one group's log."""

    group: GroupId
    segment_bytes: int = 64 * 1024 * 1024
    """Length of a segment file. An entry that is larger gets a segment of its own."""
    spare_segments: int = 1
    """Kept allocated ahead of need, so that a full disk is noticed before it hurts."""
    recycled_segments_max: int = 4
    """Retired segment files kept for reuse; more are deleted."""
    cache_bytes: int = 16 * 1024 * 1024
    """Newest entries kept in memory for followers that keep up."""


class LogDamaged(Exception):
    """Bytes that were once durable are not what was written.

    The node must not vote or acknowledge with this log: it rejoins under its next incarnation
    (raft.identity) and fetches everything from its peers.
    """

    def __init__(self, file: str, offset: int, index: int, reason: str) -> None:
        super().__init__(
            f"{file}: damaged at byte {offset} (entry {index}): {reason}; move this log away and "
            "rejoin under the next incarnation"
        )
        self.file = file
        """Name within the log's directory."""
        self.offset = offset
        """First byte of the damaged record."""
        self.index = index
        """Of the first entry that can no longer be trusted."""
        self.reason = reason


class LogFull(Exception):
    """No space on the disk for these records; nothing was appended and the log is as before.

    Stop acknowledging, say so, and call again later: the same call succeeds once there is space.
    """


class Sync:
    """One group commit: everything appended before `begin_sync`."""

    index: int
    """Last index that is durable once `run` has returned, unless it is truncated meanwhile."""

    def run(self) -> None:
        """Make it durable; one fdatasync, plus preparation of the next segment when it nears.

        Blocks; call it from any one thread, once. Raises FatalDiskError: stop the process.
        """
        raise NotImplementedError


class Hold:
    """Keeps the segments of one entry and of all later ones. Also a context manager."""

    index: int

    def release(self) -> None:
        """Let them go (at the next `compact`). Repeating it does nothing."""
        raise NotImplementedError


class Log:
    """The log of one group. Implements `raft.log_view.LogView`."""

    @classmethod
    def open(cls, directory: Directory, config: LogConfig) -> "Log":
        """Recover the log in `directory`, or make an empty one. Everything found is durable.

        Cuts a torn tail. Raises LogDamaged for damage at or below what is known to have been
        synced, LogFull when the disk has no space for the first segment, FatalDiskError.
        """
        raise NotImplementedError

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """The prefix that the state machine has durably: the last `compact` or `reset`."""
        raise NotImplementedError

    @property
    def hard_state(self) -> HardState:
        """As last appended (after `open`: as found on disk)."""
        raise NotImplementedError

    @property
    def durable_index(self) -> int:
        """Last index that is fsynced here."""
        raise NotImplementedError

    @property
    def last_term(self) -> int:
        """Term of `last_index()`."""
        raise NotImplementedError

    @property
    def has_unsynced(self) -> bool:
        """Whether `begin_sync` would have anything to make durable."""
        raise NotImplementedError

    def first_index(self) -> int:
        """Return the first index whose entry is here; `last_index() + 1` when none is.

        It may lie below `snapshot_meta.index`: segments go whole, and not while they are held.
        """
        raise NotImplementedError

    def last_index(self) -> int:
        """Return the index of the newest entry, or of the snapshot that the log starts behind."""
        raise NotImplementedError

    def term(self, index: int) -> int:
        """Return the term of an entry, also of `first_index() - 1`.

        Raises Compacted below that, Unavailable above `last_index()`.
        """
        raise NotImplementedError

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries from `low` to below `high`, at least one, then while their data fits
        `max_bytes`.

        Raises Compacted, Unavailable; LogDamaged when the disk gives back other bytes.
        """
        raise NotImplementedError

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` of an entry's data, without reading the segment.

        Checks no checksum (the whole entry has one, not its parts): the caller has its own.
        Callable from any thread while the index is held. Raises Compacted, Unavailable, and
        ValueError when the range leaves the entry.
        """
        raise NotImplementedError

    def append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Write records, in this order. Contiguous indexes; when `entries[0].index` lies at or
        below the last index, a record of truncation is written first.

        Raises LogFull (nothing happened), FatalDiskError.
        """
        raise NotImplementedError

    def begin_sync(self) -> Sync:
        """Return a token for everything appended so far; at most one is outstanding.

        Appending may go on while it runs.
        """
        raise NotImplementedError

    def end_sync(self, sync: Sync) -> int:
        """Take note that `sync.run()` has returned; return `durable_index`."""
        raise NotImplementedError

    def hold(self, index: int) -> Hold:
        """Keep the entry `index` and all later ones from being dropped until released.

        Raises Compacted when it is gone already.
        """
        raise NotImplementedError

    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        """Have `callback(first_index, last_index)` called before those entries are dropped.

        Called within `compact`, oldest segment first; whatever is needed of them must be durable
        elsewhere when it returns. If it raises, the segment stays and `compact` raises.
        """
        raise NotImplementedError

    def compact(self, meta: SnapshotMeta) -> None:
        """Note that the state machine is durable up to `meta.index` without the log, and drop
        whole segments at or below it that nobody holds.

        Call it again with the same meta after holds were released. Files go, and `meta` is
        durable, after the next sync. Raises LogFull (nothing happened).
        """
        raise NotImplementedError

    def reset(self, meta: SnapshotMeta) -> None:
        """Drop every entry and begin behind `meta`, whose snapshot is installed durably.

        Durable after the next sync; the retire hook is not called. Raises LogFull.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Sync what is left, mark it as synced and close the files."""
        raise NotImplementedError


def has_log(directory: Directory) -> bool:
    """Return whether `directory` holds any segment (spare files do not count)."""
    raise NotImplementedError

"""The log as the core and the replica see it, and the two errors that readers must expect.

`LogView` is what the core reads: `raft.log.log.Log` (files) and `raft.log.memory_log.MemoryLog`
(tests of the core) satisfy it. `DurableLog` is the log as the replica writes it.
"""

from collections.abc import Sequence
from typing import Protocol

from raft.types import Entry, HardState, SnapshotMeta


class LogViewError(Exception):
    """The log has nothing at that index."""


class Compacted(LogViewError):
    """The index lies before the log: only a snapshot still covers it."""


class Unavailable(LogViewError):
    """The index lies behind the end of the log."""


class LogView(Protocol):
    """Read access to a log. Values that it returned are never changed afterwards."""

    def first_index(self) -> int:
        """Return the index of the first entry that can be read; last_index() + 1 if none can."""

    def last_index(self) -> int:
        """Return the index of the last entry written, durable or not; 0 for a new log."""

    def term(self, index: int) -> int:
        """Return the term of the entry at `index`, without disk access.

        Answers for first_index() - 1 as well (0 has term 0). Raises Compacted below that,
        Unavailable behind the end.
        """

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries of [low, high), as many as fit `max_bytes` of data, at least one.

        Raises Compacted if `low` is before the log, Unavailable if `high` - 1 is behind it.
        """


class SyncToken(Protocol):
    """One fdatasync of everything written before the token was made."""

    def run(self) -> None:
        """Make that durable; may run in another thread. An OSError ends the process."""


class DurableLog(LogView, Protocol):
    """What the replica needs of its log besides reading."""

    @property
    def hard_state(self) -> HardState:
        """The newest hard state written."""

    @property
    def durable_index(self) -> int:
        """The last index known to be synced. After opening it is `last_index()`: opening syncs."""

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """What the last `reset` was given; None for a log that was never reset."""

    def config_entries(self) -> Sequence[Entry]:
        """Return the CONFIG entries in the log, oldest first, without disk access.

        The newest one that compaction dropped stays in front of them, so that the
        configuration at any index of the log is known after a restart.
        """

    def append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Write; readable at once, durable after a sync. If `entries[0].index` is at or below
        `last_index()`, the log is truncated there first.

        Raises OSError with ENOSPC when the disk is full; the log is then unchanged.
        """

    def begin_sync(self) -> SyncToken:
        """Return the token for everything written so far. At most one is outstanding."""

    def end_sync(self, sync: SyncToken) -> int:
        """Note that `sync` ran; return the index up to which the log is durable."""

    def compact(self, upto: int) -> None:
        """Drop entries at or below `upto`, in whole segments, as far as holds allow."""

    def reset(self, meta: SnapshotMeta) -> None:
        """Drop every entry and restart behind an installed snapshot, durably."""

    def close(self) -> None:
        """Close the files without making anything durable."""

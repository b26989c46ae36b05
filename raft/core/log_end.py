"""The end of the log as the core sees it: entries not yet handed out, recent ones, `LogView`.

The driver writes what `Ready` hands out before it calls the core again (raft.types.Ready, steps
1 and 2), so an entry is either pending here or readable in the log, never in between.
"""

from collections.abc import Sequence

from raft.log_view import Compacted, LogView
from raft.types import Entry

BACKTRACK_MAX_ENTRIES = 4096
"""How far one search for a common place of two logs goes; a longer one takes more rounds."""
RECENT_ENTRIES_MAX = 4096
"""Recent entries kept in memory, however small they are."""


class LogEnd:
    """Last position, durable position, entries to be written, and a cache of recent ones."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_entries",
        "_first",
        "_floor",
        "_log",
        "_pending_first",
        "durable_index",
        "last_index",
        "last_term",
    )

    def __init__(self, log: LogView, recent_bytes_max: int) -> None:
        """All of `log` is durable. `recent_bytes_max` bounds the entries kept in memory for
        followers and apply, besides those that wait to be written.
        """
        self._log = log
        self._bytes_max = recent_bytes_max
        self.last_index = log.last_index()
        self.last_term = log.term(self.last_index)
        self.durable_index = self.last_index
        self._entries: list[Entry] = []
        self._bytes = 0
        self._first = self.last_index + 1
        """Index of `_entries[0]`, or of the next one."""
        self._pending_first = self.last_index + 1
        self._floor: tuple[int, int] | None = None  # a snapshot behind which the log restarts

    @property
    def has_pending(self) -> bool:
        """Whether entries wait to be written."""
        return self._pending_first <= self.last_index

    def term(self, index: int) -> int:
        """Return the term at `index`. Raises Compacted, Unavailable."""
        if index == self.last_index:
            return self.last_term
        if self._first <= index < self.last_index:
            return self._entries[index - self._first].term
        if self._floor is not None and index <= self._floor[0]:
            if index < self._floor[0]:
                raise Compacted(index)
            return self._floor[1]
        return self._log.term(index)

    def matches(self, index: int, term: int) -> bool:
        """Return whether the log has an entry (index, term), or begins right after it."""
        if index > self.last_index:
            return False
        try:
            return self.term(index) == term
        except Compacted:
            return False

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Return whether a log with this end is at least as up to date as this (Raft 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def common_place(self, index: int, term: int) -> tuple[int, int]:
        """Return the last (index, term) at or below `index` whose term is at most `term`.

        Both sides of a failed Append search in this way: two logs with different terms agree after
        one round per term, not per entry.
        """
        index = min(index, self.last_index)
        lowest = max(index - BACKTRACK_MAX_ENTRIES, 0)
        try:
            while index > lowest:
                found = self.term(index)
                if found <= term:
                    return index, found
                index -= 1
            return index, self.term(index)
        except Compacted:
            # Everything below is committed; the leader decides between probe and snapshot.
            return index, 0

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries of [low, high), at least one, within `max_bytes`. Raises Compacted."""
        if low < self._first:
            if self._floor is not None:
                raise Compacted(low)
            return self._log.entries(low, min(high, self._first), max_bytes)
        start = low - self._first
        count = 0
        for entry in self._entries[start : high - self._first]:
            max_bytes -= len(entry.data)
            if max_bytes < 0 and count:
                break
            count += 1
        return tuple(self._entries[start : start + count])

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries; those at or above the first index are replaced."""
        first = entries[0].index
        if first <= self.last_index:
            self.durable_index = min(self.durable_index, first - 1)
            self._truncate(first)
        self._entries.extend(entries)
        self._bytes += sum([len(entry.data) for entry in entries])
        self.last_index = entries[-1].index
        self.last_term = entries[-1].term

    def _truncate(self, first: int) -> None:
        cut = max(first - self._first, 0)
        self._bytes -= sum([len(entry.data) for entry in self._entries[cut:]])
        del self._entries[cut:]
        self._first = min(self._first, first)
        self._pending_first = min(self._pending_first, first)

    def restore(self, index: int, term: int) -> None:
        """Restart behind a snapshot; the driver resets the log when it has taken the Ready."""
        self._entries.clear()
        self._bytes = 0
        self._first = self._pending_first = index + 1
        self._floor = (index, term)
        self.last_index, self.last_term = index, term
        self.durable_index = min(self.durable_index, index)

    def take(self) -> tuple[Entry, ...]:
        """Return the pending entries; from now on they are in the log as well."""
        pending = tuple(self._entries[self._pending_first - self._first :])
        self._pending_first = self.last_index + 1
        self._floor = None
        if self._bytes > self._bytes_max or len(self._entries) > RECENT_ENTRIES_MAX:
            self._shrink()
        return pending

    def _shrink(self) -> None:
        """Drop the older half, or more, of the written entries from memory."""
        drop = 0
        while self._bytes > self._bytes_max // 2 or len(self._entries) - drop > (
            RECENT_ENTRIES_MAX // 2
        ):
            self._bytes -= len(self._entries[drop].data)
            drop += 1
        del self._entries[:drop]
        self._first += drop

    def put_back(self, floor: tuple[int, int] | None, entries: tuple[Entry, ...]) -> None:
        """Undo the last `take`, whose entries were not written."""
        self._floor = floor
        if not entries:
            return
        self._pending_first = entries[0].index
        if self._first > self._pending_first:
            self._entries[:0] = entries[: self._first - self._pending_first]
            self._bytes = sum([len(entry.data) for entry in self._entries])
            self._first = self._pending_first

    def stable(self, index: int, term: int) -> None:
        """Note that all up to (index, term) is durable; a truncated place is ignored."""
        if self.durable_index < index < self._pending_first and self.matches(index, term):
            self.durable_index = index

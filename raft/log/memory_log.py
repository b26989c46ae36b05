"""A log in memory: the simplest implementation of `LogView`, for tests of the core."""

from collections.abc import Sequence

from raft.log_view import Compacted, Unavailable
from raft.types import Entry


class MemoryLog:
    """The entries after (base_index, base_term). Nothing here is durable."""

    def __init__(self, base_index: int = 0, base_term: int = 0) -> None:
        self._base_index = base_index
        self._base_term = base_term
        self._entries: list[Entry] = []

    def first_index(self) -> int:
        """Return the index of the first entry that can be read."""
        return self._base_index + 1

    def last_index(self) -> int:
        """Return the index of the last entry."""
        return self._base_index + len(self._entries)

    def term(self, index: int) -> int:
        """Return the term at `index`. Raises Compacted, Unavailable."""
        if index == self._base_index:
            return self._base_term
        self._check(index)
        return self._entries[index - self._base_index - 1].term

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries of [low, high) within `max_bytes`, at least one."""
        self._check(low)
        self._check(high - 1)
        taken: list[Entry] = []
        room = max_bytes
        for entry in self._entries[low - self._base_index - 1 : high - self._base_index - 1]:
            room -= len(entry.data)
            if taken and room < 0:
                break
            taken.append(entry)
        return tuple(taken)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries; those at or above the first index are truncated before."""
        if entries:
            self._check_gap(entries[0].index)
            del self._entries[entries[0].index - self._base_index - 1 :]
            self._entries.extend(entries)

    def compact(self, upto: int) -> None:
        """Drop entries at or below `upto`."""
        base_term = self.term(upto)
        del self._entries[: upto - self._base_index]
        self._base_index, self._base_term = upto, base_term

    def reset(self, index: int, term: int) -> None:
        """Drop everything and restart behind (index, term)."""
        self._base_index, self._base_term = index, term
        self._entries.clear()

    def _check(self, index: int) -> None:
        if index <= self._base_index:
            raise Compacted(index)
        if index > self.last_index():
            raise Unavailable(index)

    def _check_gap(self, index: int) -> None:
        if index <= self._base_index:
            raise Compacted(index)
        if index > self.last_index() + 1:
            raise Unavailable(index)

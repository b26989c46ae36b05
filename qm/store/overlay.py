"""The changes that entries made to one table since the last commit, in the order of keys.

Writers only fill dictionaries: keys are sorted when a scan needs them, and only those that share
their first bytes, since positions are scanned one queue at a time.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_GROUP_BYTES: Final = 4
"""Keys are grouped by so many leading bytes: by queue_id where a key begins with one."""
_RUN_KEYS_MIN: Final = 16
_RUNS_MAX: Final = 64
"""Long ascending runs are searched as they are, as long as they are few."""


class Changes:
    """Changed rows of one table, keys without the table byte."""

    __slots__ = ("_groups", "_pending", "_runs", "_unsorted", "fresh", "rows")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        """New values of rows that the database may have; None: deleted."""
        self.fresh: dict[bytes, bytes] = {}
        """Rows that the database does not have."""
        self._pending: list[bytes] = []
        self._runs: list[Sequence[bytes]] = []
        self._groups: dict[bytes, list[bytes]] = {}
        self._unsorted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.rows) + len(self.fresh)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a row."""
        if key in self.fresh:
            self.fresh[key] = value
            return
        rows = self.rows
        if key not in rows:
            self._pending.append(key)
        rows[key] = value

    def add(self, rows: Mapping[bytes, bytes]) -> None:
        """Add rows whose keys the state does not have."""
        # Some may have been deleted since the last commit.
        if self.rows and not self.rows.keys().isdisjoint(rows):
            for key, value in rows.items():
                self.put(key, value)
            return
        self.fresh.update(rows)
        self._pending.extend(rows)

    def delete(self, key: bytes) -> None:
        """Delete a row; one that was added since the last commit leaves no trace."""
        if self.fresh.pop(key, None) is None:
            rows = self.rows
            if key not in rows:
                self._pending.append(key)
            rows[key] = None

    def delete_all(self, keys: Sequence[bytes]) -> None:
        """Delete rows that exist; keys ascending."""
        if self.fresh:
            for key in keys:
                self.delete(key)
            return
        self.rows.update(dict.fromkeys(keys))
        if len(keys) >= _RUN_KEYS_MIN and len(self._runs) < _RUNS_MAX:
            self._runs.append(keys)
        else:
            self._pending.extend(keys)

    def between(self, low: bytes, high: bytes) -> list[bytes]:
        """Return the changed keys with low <= key < high, in any order, perhaps with repetitions.

        They may include keys without a change: those of fresh rows that were deleted.
        """
        if self._pending:
            self._group()
        found: list[bytes] = []
        for run in self._runs:
            if run[0] < high and run[-1] >= low:
                found += run[bisect_left(run, low) : bisect_left(run, high)]
        first, last = low[:_GROUP_BYTES], high[:_GROUP_BYTES]
        if first == last:
            found += self._slice(first, low, high)
        else:
            for group in self._groups:
                if first <= group <= last:
                    found += self._slice(group, low, high)
        return found

    def _group(self) -> None:
        groups, unsorted = self._groups, self._unsorted
        for key in self._pending:
            group = key[:_GROUP_BYTES]
            keys = groups.get(group)
            if keys is None:
                groups[group] = [key]
            else:
                keys.append(key)
                unsorted.add(group)
        self._pending.clear()

    def _slice(self, group: bytes, low: bytes, high: bytes) -> list[bytes]:
        keys = self._groups.get(group)
        if keys is None:
            return []
        if group in self._unsorted:
            self._unsorted.discard(group)
            keys.sort()  # in place: they are mostly ascending runs, and then remain sorted
        return keys[bisect_left(keys, low) : bisect_left(keys, high)]

    def values(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each of these changed keys with its value; None: no row."""
        rows, fresh = self.rows, self.fresh
        for key in keys:
            value = fresh.get(key)
            yield key, rows.get(key) if value is None else value

    def clear(self) -> None:
        """Forget the changes, which are in the database now."""
        self.rows.clear()
        self.fresh.clear()
        self._pending.clear()
        self._runs.clear()
        self._groups.clear()
        self._unsorted.clear()

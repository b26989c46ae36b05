"""Finds a queue's first Available positions without scanning removed rows.

Derived from rows, never replicated: dropping a window changes no outcome. A scan over rows deleted
one by one is slow, so a window remembers a key below which only the positions it holds are
Available.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from qm.model.state.tables import State, Table
from qm.model.values.rows import POSITION_KEY, PositionState

WINDOW_KEYS_MAX: Final = 1_024
"""Per queue and priority level; the rest is found by a scan."""
_AVAILABLE: Final = int(PositionState.AVAILABLE)
_SCAN_ROWS: Final = 32
"""Read ahead for readers that take one position at a time."""


class Window:
    """Available keys of one priority level of one queue, ascending.

    Invariant: every Available key below `_scan_from` is held. Held keys may have ceased to be
    Available; they are dropped at their turn. Arrivals lie above everything ever scanned, so a
    window need not be told of them.
    """

    __slots__ = ("_keys", "_level_end", "_queue_id", "_scan_from")

    def __init__(self, queue_id: int, level: int) -> None:
        self._queue_id = queue_id
        self._keys: list[int] = []
        self._scan_from = level << 56
        self._level_end = (level + 1) << 56

    def became_available(self, key: int) -> None:
        """Note that a position was unlocked, or arrived."""
        if key >= self._scan_from:
            return
        keys = self._keys
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:  # a key that was locked meanwhile is still held
            return
        keys.insert(at, key)
        if len(keys) > WINDOW_KEYS_MAX:
            self._scan_from = keys.pop()

    def hide_upto(self, key: int) -> None:
        """Nothing of this level at or below `key` is visible any more."""
        del self._keys[: bisect_left(self._keys, key + 1)]
        self._scan_from = max(self._scan_from, min(key + 1, self._level_end))

    def first(self, state: State) -> tuple[int, bytes] | None:
        """Return key and row of the first Available position, or None."""
        keys = self._keys
        while True:
            while keys:
                row = state.get(Table.POSITION, POSITION_KEY.pack(self._queue_id, keys[0]))
                if row is not None and row[0] == _AVAILABLE:
                    return keys[0], row
                del keys[0]
            rows, is_end = self._scan(state, _SCAN_ROWS)
            keys += keys_of([row_key for row_key, _ in rows])
            if is_end and not keys:
                return None

    def take(self, state: State, limit: int) -> list[tuple[bytes, bytes]]:
        """Return POSITION key and row of up to `limit` first Available positions; drop them here.

        A caller that leaves some of them Available returns those with `give_back`.
        """
        found: list[tuple[bytes, bytes]] = []
        is_end = False
        while len(found) < limit and not is_end:
            wanted = limit - len(found)
            if self._keys:
                held, self._keys = self._keys[:wanted], self._keys[wanted:]
                row_keys = [POSITION_KEY.pack(self._queue_id, key) for key in held]
                found += [
                    (row_key, row)
                    for row_key, row in zip(
                        row_keys, state.get_rows(Table.POSITION, row_keys), strict=True
                    )
                    if row is not None and row[0] == _AVAILABLE
                ]
            else:
                rows, is_end = self._scan(state, wanted)
                found += rows
        return found

    def give_back(self, keys: Sequence[int]) -> None:
        """Hold these keys again, which `take` returned last and which are still Available."""
        self._keys[:0] = keys

    def _scan(self, state: State, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return Available positions behind the held ones, and whether these are all."""
        rows = state.scan(
            Table.POSITION,
            POSITION_KEY.pack(self._queue_id, self._scan_from),
            POSITION_KEY.pack(self._queue_id, self._level_end),
            limit,
        )
        if rows:
            self._scan_from = POSITION_KEY.unpack(rows[-1][0])[1] + 1
        is_end = len(rows) < limit
        return [found for found in rows if found[1][0] == _AVAILABLE], is_end


def keys_of(row_keys: Sequence[bytes]) -> list[int]:
    """Return the LookupIdentifiers of POSITION keys."""
    return [key for _, key in POSITION_KEY.iter_unpack(b"".join(row_keys))]

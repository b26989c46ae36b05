"""Where the first Available positions of a queue are, without scanning what was emptied.

Derived from rows, never replicated: dropping a window changes no outcome. A scan over a range in
which rows were deleted one by one is slow, so a window remembers below which key nothing is
Available but what it holds.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

from qm.model.rows import POSITION_KEY, PositionState
from qm.model.state import State, Table

WINDOW_KEYS_MAX: Final = 1_024
"""Per queue and priority level; the rest is found by a scan."""
_SCAN_ROWS: Final = 256


class Window:
    """Available keys of one priority level of one queue, ascending.

    Invariant: every Available key below `_scan_from` is held. Held keys may have ceased to be
    Available; `first` drops them.
    """

    __slots__ = ("_keys", "_level_end", "_queue_id", "_scan_from")

    def __init__(self, queue_id: int, level: int) -> None:
        self._queue_id = queue_id
        self._keys: deque[int] = deque()
        self._scan_from = level << 56
        self._level_end = (level + 1) << 56

    def became_available(self, key: int) -> None:
        """A position arrived, or was unlocked."""
        if key >= self._scan_from:
            return
        keys = self._keys
        if len(keys) >= WINDOW_KEYS_MAX:
            if key > keys[-1]:
                self._scan_from = key
            else:
                self._scan_from = min(key, keys[0])
                keys.clear()
        elif not keys or key > keys[-1]:
            keys.append(key)
        else:
            at = bisect_left(keys, key)
            if keys[at] != key:  # a key that was locked meanwhile is still held
                keys.insert(at, key)

    def hide_upto(self, key: int) -> None:
        """Nothing of this level at or below `key` is visible any more."""
        while self._keys and self._keys[0] <= key:
            self._keys.popleft()
        self._scan_from = max(self._scan_from, min(key + 1, self._level_end))

    def first(self, state: State) -> tuple[int, bytes] | None:
        """Return key and row of the first Available position, or None."""
        keys = self._keys
        while True:
            while keys:
                key = keys[0]
                row = state.get(Table.POSITION, POSITION_KEY.pack(self._queue_id, key))
                if row is not None and row[0] == PositionState.AVAILABLE:
                    return key, row
                keys.popleft()
            if self._scan_from >= self._level_end:
                return None
            self._scan(state)

    def take_first(self) -> None:
        """The position that `first` returned ceases to be Available."""
        self._keys.popleft()

    def _scan(self, state: State) -> None:
        rows = state.scan(
            Table.POSITION,
            POSITION_KEY.pack(self._queue_id, self._scan_from),
            POSITION_KEY.pack(self._queue_id, self._level_end),
            _SCAN_ROWS,
        )
        self._keys.extend(
            POSITION_KEY.unpack(key)[1] for key, row in rows if row[0] == PositionState.AVAILABLE
        )
        if len(rows) < _SCAN_ROWS:
            self._scan_from = self._level_end
        else:
            self._scan_from = POSITION_KEY.unpack(rows[-1][0])[1] + 1

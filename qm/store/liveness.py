"""Which bodies of which entries are still referred to: node-local rows beside the state.

Per entry a bitmap of ordinals; a body with more than one reference has a row of its own for the
others. Messages of one entry mostly go together, so a receive costs a bit, not a row.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from qm.model.rows import BODY_KEY
from qm.model.state import Table

if TYPE_CHECKING:
    from qm.store.rocks import RocksState

_ENTRY_KEY: Final = Struct(">Q")
_COUNT: Final = Struct("<I")
BITMAPS_IN_HAND_MAX: Final = 16_384


class Liveness:
    """References to bodies."""

    def __init__(self, state: "RocksState") -> None:
        self._state = state
        self._bitmaps: dict[int, int] = {}
        self._dirty: set[int] = set()
        self.on_dead: Callable[[int, int], None] | None = None
        """Hears of each body to which nothing refers any more."""

    def retain(self, index: int, ordinals: Sequence[int]) -> None:
        """One more reference to each."""
        bitmap = self._bitmap(index)
        mask = 0
        for ordinal in ordinals:
            bit = 1 << ordinal
            if (bitmap | mask) & bit:
                self._count(index, ordinal, 1)
            else:
                mask |= bit
        self._bitmaps[index] = bitmap | mask
        self._dirty.add(index)

    def release(self, index: int, ordinal: int) -> None:
        """One reference less."""
        bit = 1 << ordinal
        bitmap = self._bitmap(index)
        assert bitmap & bit, f"body {ordinal} of entry {index} is released twice"
        if self._count(index, ordinal, -1):
            return
        self._bitmaps[index] = bitmap & ~bit
        self._dirty.add(index)
        if self.on_dead is not None:
            self.on_dead(index, ordinal)

    def live(self, first: int, last: int) -> Iterator[tuple[int, list[int]]]:
        """Yield (index, ordinals) of entries in [first, last] with live bodies."""
        low, high = _ENTRY_KEY.pack(first), _ENTRY_KEY.pack(last + 1)
        while True:
            rows = self._state.scan(Table.BODY_LIVE, low, high, 256)
            for key, row in rows:
                (index,) = _ENTRY_KEY.unpack(key)
                yield index, ordinals_of(int.from_bytes(row, "little"))
            if len(rows) < 256:
                return
            low = rows[-1][0] + b"\0"

    def is_live(self, index: int, ordinal: int) -> bool:
        """Whether anything refers to a body."""
        return bool(self._bitmap(index) >> ordinal & 1)

    def _bitmap(self, index: int) -> int:
        bitmap = self._bitmaps.get(index)
        if bitmap is None:
            row = self._state.get(Table.BODY_LIVE, _ENTRY_KEY.pack(index))
            bitmap = self._bitmaps[index] = int.from_bytes(row, "little") if row else 0
        return bitmap

    def _count(self, index: int, ordinal: int, change: int) -> bool:
        """Change the count of further references; False if there was none to take away."""
        key = BODY_KEY.pack(index, ordinal)
        row = self._state.get(Table.BODY_SHARED, key)
        count = (_COUNT.unpack(row)[0] if row else 0) + change
        if count < 0:
            return False
        if count:
            self._state.put(Table.BODY_SHARED, key, _COUNT.pack(count))
        else:
            self._state.delete(Table.BODY_SHARED, key)
        return True

    def flush(self) -> None:
        """Put changed bitmaps into the batch."""
        for index in self._dirty:
            bitmap = self._bitmaps[index]
            key = _ENTRY_KEY.pack(index)
            if bitmap:
                size = (bitmap.bit_length() + 7) // 8
                self._state.put(Table.BODY_LIVE, key, bitmap.to_bytes(size, "little"))
            else:
                self._state.delete(Table.BODY_LIVE, key)
        self._dirty.clear()
        if len(self._bitmaps) > BITMAPS_IN_HAND_MAX:
            self._bitmaps.clear()


def ordinals_of(bitmap: int) -> list[int]:
    """Return the positions of the set bits, ascending."""
    ordinals = []
    while bitmap:
        lowest = bitmap & -bitmap
        ordinals.append(lowest.bit_length() - 1)
        bitmap ^= lowest
    return ordinals

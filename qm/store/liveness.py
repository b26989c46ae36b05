"""Which bodies of which entries are still referred to: node-local rows beside the state.

Per entry a bitmap of ordinals, and one of those with more than one reference, whose number has a
row of its own. Messages of one entry mostly go together, so a receive costs a bit, not a row.
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
_LENGTH: Final = Struct("<H")
BITMAPS_IN_HAND_MAX: Final = 16_384


class Liveness:
    """References to bodies."""

    def __init__(self, state: "RocksState") -> None:
        self._state = state
        self._live: dict[int, int] = {}
        self._shared: dict[int, int] = {}
        self._dirty: set[int] = set()
        self.on_dead: Callable[[int, Sequence[int]], None] | None = None
        """Hears, by entry, of bodies to which nothing refers any more, up to `dead_upto`."""
        self.dead_upto = 0
        """Highest index of which `on_dead` wants to hear."""

    def retain(self, index: int, ordinals: Sequence[int]) -> None:
        """One more reference to each."""
        live = self._load(index)
        mask = 0
        for ordinal in ordinals:
            bit = 1 << ordinal
            if (live | mask) & bit:
                self._count(index, ordinal, 1)
            else:
                mask |= bit
        self._live[index] = live | mask
        self._dirty.add(index)

    def release(self, index: int, ordinals: Sequence[int]) -> None:
        """One reference less to each."""
        live = self._load(index)
        shared = self._shared[index]
        dead: list[int] = []
        for ordinal in ordinals:
            bit = 1 << ordinal
            assert live & bit, f"body {ordinal} of entry {index} is released twice"
            if shared & bit:
                self._count(index, ordinal, -1)
                shared = self._shared[index]
                continue
            live ^= bit
            dead.append(ordinal)
        if dead and index <= self.dead_upto and self.on_dead is not None:
            self.on_dead(index, dead)
        self._live[index] = live
        self._dirty.add(index)

    def live(self, first: int, last: int) -> Iterator[tuple[int, list[int]]]:
        """Yield (index, ordinals) of entries in [first, last] with live bodies."""
        low, high = _ENTRY_KEY.pack(first), _ENTRY_KEY.pack(last + 1)
        while True:
            rows = self._state.scan(Table.BODY_LIVE, low, high, 256)
            for key, row in rows:
                (index,) = _ENTRY_KEY.unpack(key)
                yield index, ordinals_of(_unpack(row)[0])
            if len(rows) < 256:
                return
            low = rows[-1][0] + b"\0"

    def is_live(self, index: int, ordinal: int) -> bool:
        """Whether anything refers to a body."""
        return bool(self._load(index) >> ordinal & 1)

    def _load(self, index: int) -> int:
        live = self._live.get(index)
        if live is None:
            row = self._state.get(Table.BODY_LIVE, _ENTRY_KEY.pack(index))
            live, self._shared[index] = _unpack(row) if row else (0, 0)
            self._live[index] = live
        return live

    def _count(self, index: int, ordinal: int, change: int) -> None:
        """Count references beyond the first."""
        key = BODY_KEY.pack(index, ordinal)
        row = self._state.get(Table.BODY_SHARED, key)
        count = (_COUNT.unpack(row)[0] if row else 0) + change
        bit = 1 << ordinal
        if count:
            self._state.put(Table.BODY_SHARED, key, _COUNT.pack(count))
            self._shared[index] |= bit
        else:
            self._state.delete(Table.BODY_SHARED, key)
            self._shared[index] &= ~bit

    def flush(self) -> None:
        """Put changed bitmaps into the batch."""
        for index in self._dirty:
            key = _ENTRY_KEY.pack(index)
            if self._live[index]:
                row = _pack(self._live[index], self._shared[index])
                self._state.put(Table.BODY_LIVE, key, row)
            else:
                self._state.delete(Table.BODY_LIVE, key)
        self._dirty.clear()
        if len(self._live) > BITMAPS_IN_HAND_MAX:
            self._live.clear()
            self._shared.clear()


def _pack(live: int, shared: int) -> bytes:
    """Return a BODY_LIVE row: length of the first bitmap u16, both bitmaps little-endian."""
    size = (live.bit_length() + 7) // 8
    tail = shared.to_bytes((shared.bit_length() + 7) // 8, "little") if shared else b""
    return _LENGTH.pack(size) + live.to_bytes(size, "little") + tail


def _unpack(row: bytes) -> tuple[int, int]:
    end = _LENGTH.size + _LENGTH.unpack_from(row)[0]
    return int.from_bytes(row[_LENGTH.size : end], "little"), int.from_bytes(row[end:], "little")


def ordinals_of(bitmap: int) -> list[int]:
    """Return the positions of the set bits, ascending."""
    ordinals = []
    while bitmap:
        lowest = bitmap & -bitmap
        ordinals.append(lowest.bit_length() - 1)
        bitmap ^= lowest
    return ordinals

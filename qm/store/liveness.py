"""Which bodies of which entries are still referenced: node-local rows beside the state.

Each entry has a bitmap of ordinals, and one of those with several references, whose number has a
row of its own. Messages of one entry are mostly removed together, so a receive costs a bit, not a
row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, Protocol

from qm.model.state.tables import Table
from qm.model.values.rows import BODY_KEY

ENTRY_KEY: Final = Struct(">Q")
"""index u64: the key of BODY_LIVE and BLOB."""
_COUNT: Final = Struct("<I")
_LENGTH: Final = Struct("<H")
_SCAN_ROWS: Final = 256
BITMAPS_IN_HAND_MAX: Final = 16_384


class LastEntry(Protocol):
    """An entry of the log."""

    @property
    def index(self) -> int:
        """Index of the entry."""


class LocalRows(Protocol):
    """The node's rows, as `Liveness` reads and writes them."""

    @property
    def applied(self) -> LastEntry:
        """The last entry whose rows are committed."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return a row."""

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set a row."""

    def delete(self, table: Table, key: bytes) -> None:
        """Delete a row."""

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int
    ) -> Sequence[tuple[bytes, bytes]]:
        """Return rows with keys in [low, high)."""


class Liveness:
    """References to bodies."""

    def __init__(self, state: LocalRows) -> None:
        self._state = state
        self._live: dict[int, int] = {}
        self._shared: dict[int, int] = {}
        """Second bitmap of entries in `_live`, where it is not 0."""
        self._dirty: set[int] = set()
        self._dead: dict[int, list[int]] = {}
        self.on_dead: Callable[[Mapping[int, Sequence[int]]], None] | None = None
        """Called before every commit with the bodies that are no longer referenced, as index ->
        ordinals.
        """

    def retain(self, index: int, ordinals: Sequence[int]) -> None:
        """Add a reference to each; ordinals ascending."""
        live = self._load(index)
        mask = 0
        if not live and len(ordinals) == ordinals[-1] - ordinals[0] + 1:
            mask = (1 << len(ordinals)) - 1 << ordinals[0]
            ordinals = ()
        for ordinal in ordinals:
            bit = 1 << ordinal
            if (live | mask) & bit:
                self._count(index, ordinal, 1)
            else:
                mask |= bit
        self._live[index] = live | mask
        self._dirty.add(index)
        if index in self._dead:  # a body that was released and retained again is not dead
            self._dead[index] = [o for o in self._dead[index] if not mask >> o & 1]

    def release(self, bodies: Iterable[tuple[int, int]]) -> None:
        """Remove a reference to each (index, ordinal)."""
        live_of, shared_of, dead_of = self._live, self._shared, self._dead
        for index, ordinal in bodies:
            live = live_of.get(index)
            if live is None:
                live = self._load(index)
            bit = 1 << ordinal
            assert live & bit, f"body {ordinal} of entry {index} is released twice"
            if index in shared_of and shared_of[index] & bit:
                self._count(index, ordinal, -1)
                self._dirty.add(index)
                continue
            live_of[index] = live ^ bit
            dead = dead_of.get(index)
            if dead is None:
                dead_of[index] = [ordinal]
            else:
                dead.append(ordinal)

    def live(self, first: int, last: int) -> Iterator[tuple[int, list[int]]]:
        """Yield (index, ordinals) of entries in [first, last] with live bodies, as committed."""
        low, high = ENTRY_KEY.pack(first), ENTRY_KEY.pack(last + 1)
        while True:
            rows = self._state.scan(Table.BODY_LIVE, low, high, _SCAN_ROWS)
            for key, row in rows:
                (index,) = ENTRY_KEY.unpack(key)
                yield index, ordinals_of(_unpack(row)[0])
            if len(rows) < _SCAN_ROWS:
                return
            low = rows[-1][0] + b"\0"

    def is_any_live(self, index: int) -> bool:
        """Whether any body of an entry is referenced."""
        return bool(self._load(index))

    def live_ordinals(self, index: int) -> list[int]:
        """Return the ordinals of the referenced bodies of an entry."""
        return ordinals_of(self._load(index))

    def _load(self, index: int) -> int:
        live = self._live.get(index)
        if live is None:
            if index > self._state.applied.index:  # an entry of this run has no row yet
                self._live[index] = 0
                return 0
            row = self._state.get(Table.BODY_LIVE, ENTRY_KEY.pack(index))
            live, shared = _unpack(row) if row else (0, 0)
            self._live[index] = live
            if shared:
                self._shared[index] = shared
        return live

    def _count(self, index: int, ordinal: int, change: int) -> None:
        """Count references beyond the first."""
        key = BODY_KEY.pack(index, ordinal)
        row = self._state.get(Table.BODY_SHARED, key)
        count = (_COUNT.unpack(row)[0] if row else 0) + change
        bit = 1 << ordinal
        shared = self._shared.get(index, 0)
        if count:
            self._state.put(Table.BODY_SHARED, key, _COUNT.pack(count))
            self._shared[index] = shared | bit
            return
        self._state.delete(Table.BODY_SHARED, key)
        shared &= ~bit
        if shared:
            self._shared[index] = shared
        else:
            self._shared.pop(index, None)

    def flush(self) -> None:
        """Put changed bitmaps into the batch."""
        if self._dead and self.on_dead is not None:
            self.on_dead(self._dead)
        for index in self._dirty.union(self._dead):
            key, live = ENTRY_KEY.pack(index), self._live[index]
            if live:
                row = _pack(live, self._shared.get(index, 0))
                self._state.put(Table.BODY_LIVE, key, row)
            else:
                self._state.delete(Table.BODY_LIVE, key)
        self._dirty.clear()
        self._dead.clear()
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
    # Scan the digits of its text: bit arithmetic would copy the whole number each time.
    return [at for at, digit in enumerate(bin(bitmap)[:1:-1]) if digit == "1"]

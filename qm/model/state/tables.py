"""The replicated state as apply sees it: ordered tables of bytes, one canonical encoding each.

`qm.store` keeps them in RocksDB; `MemoryState` keeps them in a sorted list for tests and the
audit's replay. Both pass the same tests. Only apply writes, and the writes of one entry become
visible outside together.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from typing_extensions import override

BODY_ORDINAL_SYNTHETIC_FIRST = 0x8000
"""Ordinals from here on denote packets made by apply (Table.SYNTHETIC)."""


class Table(IntEnum):
    """The byte before every key. Keys are big-endian, so that byte order is the order of values.

    Everything below LOCAL_FIRST is logical state: identical on every replica and part of the
    digest. Key layouts are in design.md, row layouts in `rows` and `records`.
    """

    META = 0x01
    QUEUE = 0x02
    QUEUE_NAME = 0x03
    QUEUE_STATS = 0x04
    POSITION = 0x05
    LOCK = 0x06
    OBLIGATION = 0x07
    DEADLINE = 0x08
    TRANSACTION = 0x09
    OPERATION = 0x0A
    CLIENT = 0x0B
    RESULT = 0x0C
    LEASE = 0x0D
    STREAM = 0x0E
    HISTORY = 0x0F
    HISTORY_BUCKET = 0x10
    SEQUENCE_IN = 0x11
    SEQUENCE_OUT = 0x12
    OUTGOING = 0x13
    AWAITING_FINAL_ACK = 0x14
    OUTBOX = 0x15
    OPEN = 0x16
    DIRECTORY = 0x17
    DIRECTORY_INDEX = 0x18
    SYNTHETIC = 0x19
    PURGE = 0x1A
    READ = 0x1B
    EVENT = 0x1C

    LOCAL_FIRST = 0x80
    """From here on: derived or node-local, never in the digest."""
    BODY_LIVE = 0x81
    BODY_SHARED = 0x82
    BLOB = 0x83
    BLOB_FILE = 0x84
    APPLIED = 0x85
    EFFECTS = 0x86
    EXPORTED = 0x87


class State(Protocol):
    """Tables of bytes. Reads see the writes made before them in the same entry."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value, or None."""

    def get_rows(self, table: Table, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None."""

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set the value."""

    def put_rows(self, table: Table, rows: Mapping[bytes, bytes]) -> None:
        """Add many rows whose keys are new."""

    def delete(self, table: Table, key: bytes) -> None:
        """Remove the key; an absent key is no error."""

    def delete_rows(self, table: Table, keys: Sequence[bytes]) -> None:
        """Remove many rows that exist, keys ascending."""

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with low <= key < high, ascending, or from the end backward.

        Keys come without the table byte. Pass the tightest known bounds: a scan over a range that
        was emptied row by row is slow (DESIGN section 3, traps).
        """

    def retain_body(self, index: int, ordinal: int) -> None:
        """Count one more position, operation, result or outbox row that refers to this body."""

    def retain_bodies(self, index: int, ordinals: Sequence[int]) -> None:
        """Count one more row for each of these bodies of one entry."""

    def release_body(self, index: int, ordinal: int) -> None:
        """Count one reference fewer; without any the body may be forgotten."""

    def release_bodies(self, bodies: Iterable[tuple[int, int]]) -> None:
        """Count one reference fewer for each of these (index, ordinal)."""


class MemoryState(State):
    """State in memory: simple rather than fast."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._references: dict[tuple[int, int], int] = {}

    @override
    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._values.get(bytes((table,)) + key)

    @override
    def get_rows(self, table: Table, keys: Iterable[bytes]) -> list[bytes | None]:
        return [self.get(table, key) for key in keys]

    @override
    def put(self, table: Table, key: bytes, value: bytes) -> None:
        full = bytes((table,)) + key
        if full not in self._values:
            insort(self._keys, full)
        self._values[full] = value

    @override
    def put_rows(self, table: Table, rows: Mapping[bytes, bytes]) -> None:
        for key, value in rows.items():
            self.put(table, key, value)

    @override
    def delete(self, table: Table, key: bytes) -> None:
        full = bytes((table,)) + key
        if self._values.pop(full, None) is not None:
            del self._keys[bisect_left(self._keys, full)]

    @override
    def delete_rows(self, table: Table, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.delete(table, key)

    @override
    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool = False
    ) -> list[tuple[bytes, bytes]]:
        prefix = bytes((table,))
        first = bisect_left(self._keys, prefix + low)
        last = bisect_left(self._keys, prefix + high)
        if backward:
            chosen = self._keys[max(first, last - limit) : last][::-1]
        else:
            chosen = self._keys[first : min(last, first + limit)]
        return [(key[1:], self._values[key]) for key in chosen]

    @override
    def retain_body(self, index: int, ordinal: int) -> None:
        self._references[index, ordinal] = self._references.get((index, ordinal), 0) + 1

    @override
    def retain_bodies(self, index: int, ordinals: Sequence[int]) -> None:
        for ordinal in ordinals:
            self.retain_body(index, ordinal)

    @override
    def release_body(self, index: int, ordinal: int) -> None:
        left = self._references[index, ordinal] - 1
        if left:
            self._references[index, ordinal] = left
        else:
            del self._references[index, ordinal]

    @override
    def release_bodies(self, bodies: Iterable[tuple[int, int]]) -> None:
        for index, ordinal in bodies:
            self.release_body(index, ordinal)

    def references(self) -> dict[tuple[int, int], int]:
        """Return how often each body is referred to, for checkers."""
        return dict(self._references)

    def rows(self) -> Iterator[tuple[Table, bytes, bytes]]:
        """Yield every row in key order, for digests and comparisons."""
        for full in self._keys:
            yield Table(full[0]), full[1:], self._values[full]

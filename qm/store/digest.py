"""The digest of a state: what makes replicas comparable (qm/model/design.md, Digest).

`sum over rows of h(table, key, value) mod 2**128`. Addition commutes, so a change costs its old and
its new row and the order of rows does not matter; Spark sums it from 32-bit parts, with the
`xxhash64` that it has built in (seed 42).
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from xxhash import xxh64_intdigest

DIGEST_BYTES: Final = 16
MODULUS: Final = 1 << 128
_SEED: Final = 42
_HEAD: Final = Struct("<BH")
_SECOND: Final = b"\x01"


def row_hash(full_key: bytes, value: bytes) -> int:
    """Return h of one row, u128; `full_key` is the table byte and the key."""
    row = _HEAD.pack(full_key[0], len(full_key) - 1) + full_key[1:] + value
    return xxh64_intdigest(row, _SEED) | xxh64_intdigest(row + _SECOND, _SEED) << 64


class RowSum:
    """Sums h over many rows; both halves apart, since carries can wait."""

    __slots__ = ("_high", "_low")

    def __init__(self) -> None:
        self._low = 0
        self._high = 0

    def add_rows(self, table: int, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Add rows of one table, given as (key without the table byte, value; None: no row)."""
        low, high = self._low, self._high
        head, length = b"", -1
        for key, value in rows:
            if value is None:
                continue
            if len(key) != length:
                length = len(key)
                head = _HEAD.pack(table, length)
            row = head + key + value
            low += xxh64_intdigest(row, _SEED)
            high += xxh64_intdigest(row + _SECOND, _SEED)
        self._low, self._high = low, high

    def total(self) -> int:
        """Return the sum, not reduced."""
        return self._low + (self._high << 64)


def digest_bytes(digest: int) -> bytes:
    """Return the 16 little-endian bytes that snapshots and audit marks carry."""
    return digest.to_bytes(DIGEST_BYTES, "little")

"""The digest of a state, by which replicas are compared (qm/model/design.md, Digest).

`sum over rows of h(table, key, value) mod 2**128`. Addition commutes, so the order of rows does not
matter, and a change costs two hashes, of the old and the new row.
"""

from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_128_intdigest

DIGEST_BYTES: Final = 16
MODULUS: Final = 1 << 128
_TABLE_SHIFT: Final = 16
"""Keys are shorter than 64 KiB: table and length of the key together are the seed, so that rows of
other tables, or with another boundary of key and value, hash differently."""


def row_hash(full_key: bytes, value: bytes) -> int:
    """Return h of one row, u128; `full_key` is the table byte and the key."""
    return xxh3_128_intdigest(full_key[1:] + value, full_key[0] << _TABLE_SHIFT | len(full_key) - 1)


def rows_sum(table: int, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Return the sum of h over rows of one table, not reduced.

    `rows`: (key without the table byte, value; None: no row).
    """
    seed = table << _TABLE_SHIFT
    return sum(
        [xxh3_128_intdigest(key + row, seed | len(key)) for key, row in rows if row is not None]
    )


def digest_bytes(digest: int) -> bytes:
    """Return the 16 little-endian bytes that snapshots and audit marks carry."""
    return digest.to_bytes(DIGEST_BYTES, "little")

"""The hash chain over entries: an edited or missing one is evident (design.md, Chain)."""

from hashlib import sha256
from struct import Struct
from typing import Final

HASH_BYTES: Final = 32
CHAIN_START: Final = bytes(HASH_BYTES)
"""Before the first DATA entry."""
_PLACE: Final = Struct(">QQ")


def chained(before: bytes, index: int, term: int, data_sha256: bytes) -> bytes:
    """Return the chain's value at an entry, from the value before it and the entry's hash."""
    return sha256(before + _PLACE.pack(index, term) + data_sha256).digest()

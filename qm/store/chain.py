"""The hash chain over entries: an edited or missing one is evident (qm/archive/design.md, Chain).

It is replicated state, so that every replica vouches for the same history, also one that came by a
snapshot; and it needs an entry's bytes and term, so the store keeps it and not the machine.
"""

from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec

from qm.model.state import State, Table

HASH_BYTES: Final = 32
CHAIN_START: Final = bytes(HASH_BYTES)
"""Before the first DATA entry."""
META_CHAIN: Final = b"chain"
_PLACE: Final = Struct(">QQ")
_ROW: Final = Struct(f">Q{HASH_BYTES}s")
"""index of the last DATA entry u64, chain value there."""


def chained(before: bytes, index: int, term: int, data_sha256: bytes) -> bytes:
    """Return the chain's value at an entry, from the value before it and the entry's hash."""
    return sha256(before + _PLACE.pack(index, term) + data_sha256).digest()


class Link(msgspec.Struct, frozen=True, gc=False):
    """Where an entry hangs in the chain."""

    previous_index: int
    """Of the DATA entry before it, 0 for the first."""
    before: bytes
    data_sha256: bytes


class EntryChain:
    """META `chain`: the last DATA entry and the chain's value there."""

    def __init__(self, state: State) -> None:
        self._state = state
        row = state.get(Table.META, META_CHAIN)
        self._index, self._value = (0, CHAIN_START) if row is None else _ROW.unpack(row)

    @property
    def end(self) -> tuple[int, bytes]:
        """Index of the last DATA entry and the chain's value there."""
        return self._index, self._value

    def advance(self, index: int, term: int, data: bytes) -> Link:
        """Append the next DATA entry; `settle` writes it down."""
        link = Link(self._index, self._value, sha256(data).digest())
        self._index, self._value = index, chained(link.before, index, term, link.data_sha256)
        return link

    def settle(self) -> None:
        """Write the row, once for a run of entries."""
        if self._index:
            self._state.put(Table.META, META_CHAIN, _ROW.pack(self._index, self._value))

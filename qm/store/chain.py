"""The hash chain over entries: an edited or missing one is evident (qm/archive/design.md, Chain).

It is replicated state, so that every replica vouches for the same history, also one that came by a
snapshot; and it needs an entry's bytes and term, so the store keeps it and not the machine. Hashing
costs a tenth of apply: the machine begins the chain (LeaderActivated) where somebody archives.
"""

from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec

from qm.model.ledger import META_CHAIN
from qm.model.rows import CHAIN_ROW, CHAIN_START
from qm.model.state import State, Table

__all__ = ["CHAIN_START", "HASH_BYTES", "META_CHAIN", "EntryChain", "Link", "chained"]

HASH_BYTES: Final = len(CHAIN_START)
_PLACE: Final = Struct(">QQ")


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
        self._is_kept = False
        self._index, self._value = 0, CHAIN_START
        self._look()

    def _look(self) -> None:
        row = self._state.get(Table.META, META_CHAIN)
        if row is not None:
            self._is_kept = True
            self._index, self._value = CHAIN_ROW.unpack(row)

    @property
    def end(self) -> tuple[int, bytes]:
        """Index of the last DATA entry and the chain's value there; 0 and the chain's start while
        none is kept.
        """
        return self._index, self._value

    def advance(self, index: int, term: int, data: bytes) -> Link | None:
        """Append the DATA entry that was applied just now; `settle` writes it down. None while no
        chain is kept.
        """
        if not self._is_kept:
            self._look()
            if not self._is_kept:
                return None
        link = Link(self._index, self._value, sha256(data).digest())
        self._index, self._value = index, chained(link.before, index, term, link.data_sha256)
        return link

    def settle(self) -> None:
        """Write the row, once for a run of entries."""
        if self._is_kept:
            self._state.put(Table.META, META_CHAIN, CHAIN_ROW.pack(self._index, self._value))

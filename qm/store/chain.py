"""The hash chain over entries: an edited or missing one is evident (qm/archive/design.md, Chain).

It is replicated state, so that every replica vouches for the same history, also one that came by a
snapshot; and it needs an entry's bytes and term, so the store keeps it and not the machine. Hashing
is not for nothing: the machine begins the chain (LeaderActivated) where somebody archives.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec
from blake3 import blake3
from google.protobuf.message import DecodeError

from qm.model.commands import CommandBatch
from qm.model.ledger import META_CHAIN
from qm.model.limits import VERSION_OF_BLAKE3
from qm.model.rows import CHAIN_ROW, CHAIN_START
from qm.model.state import State, Table
from qm.pb.command_pb2 import Stamp
from raft import batch

__all__ = [
    "CHAIN_START",
    "HASH_BYTES",
    "META_CHAIN",
    "EntryChain",
    "Link",
    "chained",
    "hash_of",
    "hash_of_payloads",
]

HASH_BYTES: Final = len(CHAIN_START)
SAID_BYTES_MIN: Final = 16 * 1024
"""Hashing less than that costs every node no more than being told."""
_PLACE: Final = Struct(">QQ")
_NOTHING_HASHED: Final = sha256()


def hash_of(data: bytes | memoryview, *, is_blake3: bool) -> bytes:
    """Return the hash of an entry's data: SHA-256, or BLAKE3, which takes a quarter of the time. Of
    data whose stamp says the hash of the payloads behind it, and rightly, it is that of what comes
    before them, and so vouches for all; otherwise it is of all.
    """
    if not is_blake3:
        return sha256(data).digest()
    view = memoryview(data)
    try:
        begin, length = batch.locate(view, 0)
        said = Stamp.FromString(bytes(view[begin : begin + length])).payloads_hash
    except (batch.BatchError, DecodeError):
        return blake3(view).digest()
    is_said = said and said == blake3(view[begin + length :]).digest()
    return blake3(view[: begin + length] if is_said else view).digest()


def hash_of_payloads(payloads: Sequence[bytes | memoryview]) -> bytes:
    """Return what a stamp says of the payloads behind it: nothing, b"", of few bytes."""
    if sum(map(len, payloads)) < SAID_BYTES_MIN:
        return b""
    return blake3(payloads[0] if len(payloads) == 1 else b"".join(payloads)).digest()


def _hash_as_said(data: bytes, entry: CommandBatch) -> bytes:
    """Return `hash_of` an entry's data; its stamp is believed."""
    stamp = entry.stamp
    if stamp.payloads_hash:
        return blake3(data[: entry.commands_offset]).digest()
    return blake3(data).digest() if stamp.version >= VERSION_OF_BLAKE3 else sha256(data).digest()


def chained(before: bytes, index: int, term: int, hash_of_data: bytes) -> bytes:
    """Return the chain's value at an entry, from the value before it and the hash of its data."""
    # A copy is half as dear as a new one, for which the library looks up what it is to do.
    link = _NOTHING_HASHED.copy()
    link.update(before + _PLACE.pack(index, term) + hash_of_data)
    return link.digest()


class Link(msgspec.Struct, frozen=True, gc=False):
    """Where an entry hangs in the chain."""

    previous_index: int
    """Of the DATA entry before it, 0 for the first."""
    before: bytes
    data_hash: bytes
    is_blake3: bool


class EntryChain:
    """META `chain`: the last DATA entry and the chain's value there."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._is_kept = False
        self._index, self._value = 0, CHAIN_START
        self._ahead = b""
        """Hash of the entry that is applied next, b"" while there is none."""
        self._look()

    def _look(self) -> bool:
        row = self._state.get(Table.META, META_CHAIN)
        if row is not None:
            self._is_kept = True
            self._index, self._value = CHAIN_ROW.unpack(row)
        return self._is_kept

    @property
    def end(self) -> tuple[int, bytes]:
        """Index of the last DATA entry and the chain's value there; 0 and the chain's start while
        none is kept.
        """
        return self._index, self._value

    @property
    def is_kept(self) -> bool:
        """Whether entries are chained."""
        return self._is_kept

    def hash_ahead(self, data: bytes, entry: CommandBatch) -> None:
        """Hash the entry that is applied next: it is then in the processor's caches, and what apply
        makes of it is not driven out of them. `entry`: as decoded.
        """
        if self._is_kept:
            self._ahead = _hash_as_said(data, entry)

    def advance(
        self, term: int, data: bytes, entry: CommandBatch, *, may_begin: bool = True
    ) -> Link | None:
        """Append the DATA entry that was applied just now; `settle` writes it down. None while no
        chain is kept. `entry`: as decoded; `may_begin`: a leader was activated in it.
        """
        if not self._is_kept and not (may_begin and self._look()):
            return None
        if not self._ahead:
            self.hash_ahead(data, entry)
        hash_of_data, self._ahead = self._ahead, b""
        link = Link(
            self._index, self._value, hash_of_data, entry.stamp.version >= VERSION_OF_BLAKE3
        )
        self._value = chained(link.before, entry.index, term, hash_of_data)
        self._index = entry.index
        return link

    def settle(self) -> None:
        """Write the row, once for a run of entries."""
        if self._is_kept:
            self._state.put(Table.META, META_CHAIN, CHAIN_ROW.pack(self._index, self._value))

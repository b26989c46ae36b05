"""The hash chain over entries, which shows edited and missing ones (qm/archive/design.md, Chain).

It is replicated state, so that all replicas attest to the same history, even one that came by a
snapshot; and it needs an entry's bytes and term, so the store keeps it and not the machine. Hashing
takes time, so the machine begins the chain (LeaderActivated) only where entries are archived.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec
from blake3 import blake3
from google.protobuf.message import DecodeError

from qm.model.state.ledger import META_CHAIN
from qm.model.state.tables import State, Table
from qm.model.values.commands import CommandBatch, Stamp
from qm.model.values.limits import VERSION_OF_BLAKE3
from qm.model.values.rows import CHAIN_ROW, CHAIN_START
from qm.pb import command_pb2
from qm.store.codec import HASH_BYTES, encode_stamp
from raft import batch

__all__ = [
    "CHAIN_START",
    "META_CHAIN",
    "EntryChain",
    "Link",
    "chained",
    "hash_of",
    "hashed",
]

_NO_HASH: Final = bytes(HASH_BYTES)
_PLACE: Final = Struct(">QQ")
_NOTHING_HASHED: Final = sha256()


def hash_of(data: bytes | memoryview, *, is_blake3: bool) -> bytes:
    """Return the hash of an entry's data: SHA-256, or BLAKE3, which takes a quarter of the time. A
    hash in the stamp of the data is returned if it is correct.
    """
    if not is_blake3:
        return sha256(data).digest()
    view = memoryview(data).cast("B")  # Arrow's views have signed bytes, which equal no others
    try:
        begin, length = batch.locate(view, 0)
        said = command_pb2.Stamp.FromString(bytes(view[begin : begin + length])).entry_hash
    except (batch.BatchError, DecodeError):
        said = b""
    if said:
        end = begin + length
        blank = b"".join((view[: end - HASH_BYTES], _NO_HASH, view[end:]))
        if view[end - HASH_BYTES : end] == said == blake3(blank).digest():
            return said
    return blake3(view).digest()


def hashed(stamp: Stamp, payloads: Sequence[bytes | memoryview]) -> bytes:
    """Return the encoded stamp of an entry with these payloads; it contains the entry's hash."""
    blank = encode_stamp(msgspec.structs.replace(stamp, entry_hash=_NO_HASH))
    entry_hash = blake3(batch.joined((blank, *payloads))).digest()
    return blank[:-HASH_BYTES] + entry_hash


def _hash_as_said(data: bytes, stamp: Stamp) -> bytes:
    """Return `hash_of` an entry's data, taking a hash in its stamp without verifying it."""
    if stamp.entry_hash:
        return stamp.entry_hash
    return blake3(data).digest() if stamp.version >= VERSION_OF_BLAKE3 else sha256(data).digest()


def chained(before: bytes, index: int, term: int, hash_of_data: bytes) -> bytes:
    """Return the chain's value at an entry, from the value before it and the hash of its data."""
    # Copying a hash object takes half the time of a new one, which looks up its algorithm.
    link = _NOTHING_HASHED.copy()
    link.update(before + _PLACE.pack(index, term) + hash_of_data)
    return link.digest()


class Link(msgspec.Struct, frozen=True, gc=False):
    """The place of an entry in the chain."""

    previous_index: int
    """Index of the DATA entry before it, 0 for the first."""
    before: bytes
    data_hash: bytes
    is_blake3: bool


class EntryChain:
    """META `chain`: the last DATA entry and the chain's value there."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._is_kept = False
        self._index, self._value = 0, CHAIN_START
        self._look()

    def _look(self) -> bool:
        row = self._state.get(Table.META, META_CHAIN)
        if row is not None:
            self._is_kept = True
            self._index, self._value = CHAIN_ROW.unpack(row)
        return self._is_kept

    @property
    def end(self) -> tuple[int, bytes]:
        """Index of the last DATA entry and the chain's value there; 0 and the start value while no
        chain is kept.
        """
        return self._index, self._value

    @property
    def is_kept(self) -> bool:
        """Whether entries are chained."""
        return self._is_kept

    @property
    def is_in_state(self) -> bool:
        """Whether the state, as it is now, has a chain."""
        return self._state.get(Table.META, META_CHAIN) is not None

    def advance(
        self, term: int, data: bytes, entry: CommandBatch, *, may_begin: bool = True
    ) -> Link | None:
        """Append the DATA entry that was just applied, decoded as `entry`; `settle` writes the row.
        None while no chain is kept. `may_begin`: the entry activated a leader, and right after it
        the state had a chain.
        """
        if not self._is_kept and not (may_begin and self._look()):
            return None
        stamp = entry.stamp
        data_hash = _hash_as_said(data, stamp)
        link = Link(self._index, self._value, data_hash, stamp.version >= VERSION_OF_BLAKE3)
        self._value = chained(link.before, entry.index, term, data_hash)
        self._index = entry.index
        return link

    def settle(self) -> None:
        """Write the row; called once for a run of entries."""
        if self._is_kept:
            self._state.put(Table.META, META_CHAIN, CHAIN_ROW.pack(self._index, self._value))

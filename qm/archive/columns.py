"""Rows of a range gathered in columns, and turned into Arrow tables a row group at a time.

What effects have in packed columns stays packed: bytes are appended per entry and handed to Arrow
as buffers, so that nothing here is done per message but for transactional ones.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from qm.archive.facts import EntryFacts
from qm.archive.limits import ROW_GROUP_BYTES, ROW_GROUP_OPERATIONS
from qm.archive.schema import SCHEMAS, Part
from qm.model.effects import EffectKind
from qm.store.audit import QueueContents
from qm.store.chain import chained
from qm.store.kept import KeptEntry

_NAMES: Final = pa.array(["", *(kind.name.lower() for kind in EffectKind)])
"""By value of EffectKind, which count from 1."""
assert [kind.value for kind in EffectKind] == list(range(1, len(EffectKind) + 1))
_ORDINALS: Final = array("i", range(4_096)).tobytes()
_ORDINAL_BYTES: Final = 4
_GUID: Final = pa.binary(16)
_HASH: Final = pa.binary(32)
Sparse = dict[int, Any]
"""Values by row; other rows have none."""


class MarkReport(msgspec.Struct, frozen=True, gc=False):
    """What this node reports at an audit mark."""

    number: int
    digest: bytes
    """Of its state, 16 bytes."""
    queues: Sequence[QueueContents]


class Columns:
    """Entries and operations of a range that are not written yet."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._clear()

    def _clear(self) -> None:
        self.data_bytes = 0
        self.operations = 0
        self._entries: list[tuple[Any, ...]] = []
        self._effects: dict[str, bytearray] = {name: bytearray() for name in _PACKED}
        self._ordinals = bytearray()
        self._queue_names: dict[int, str] = {}
        self._sparse: dict[str, Sparse] = {name: {} for name in _SPARSE}

    @property
    def is_full(self) -> bool:
        """Whether it is time to write a row group."""
        return self.data_bytes >= ROW_GROUP_BYTES or self.operations >= ROW_GROUP_OPERATIONS

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._entries

    def add(
        self,
        kept: KeptEntry,
        data: bytes | memoryview | None,
        facts: EntryFacts | None,
        digests: dict[int, bytes],
        report: MarkReport | None,
    ) -> bytes:
        """Append an entry with its effects; return the chain's value behind it."""
        chain = chained(kept.chain_before, kept.index, kept.term, kept.data_sha256)
        self._entries.append(
            (
                kept.index,
                kept.previous_index,
                kept.term,
                kept.time_ms,
                kept.leader,
                kept.data_bytes,
                data,
                kept.data_sha256,
                kept.chain_before,
                chain,
                kept.count,
                kept.commands,
                None if facts is None else facts.audit_mark,
                None if report is None else report.digest,
            )
        )
        for name, column in self._effects.items():
            column += getattr(kept, name)
        self._queue_names |= kept.names
        self._add_sparse(facts, digests)
        size = _ORDINAL_BYTES * kept.count
        longer = array("i", range(kept.count)).tobytes() if size > len(_ORDINALS) else _ORDINALS
        self._ordinals += longer[:size]
        self.operations += kept.count
        self.data_bytes += len(data or b"")
        return chain

    def _add_sparse(self, facts: EntryFacts | None, digests: dict[int, bytes]) -> None:
        first, sparse = self.operations, self._sparse
        for k, digest in digests.items():
            sparse["body_sha256"][first + k] = digest
        if facts is None:
            return
        for k, transaction in facts.transactions.items():
            sparse["transaction"][first + k] = transaction
        for k, sender in facts.senders.items():
            sparse["destination"][first + k] = sender.destination
            sparse["sender_sequence_id"][first + k] = _signed(sender.sequence_id)
            sparse["sender_sequence"][first + k] = sender.sequence
            sparse["sender_previous"][first + k] = sender.previous

    def take(self) -> tuple[pa.Table, pa.Table]:
        """Return (entries, operations) gathered so far, and begin anew."""
        columns = dict(zip(_ENTRY_COLUMNS, zip(*self._entries, strict=True), strict=True))
        entries = pa.table(
            {
                "group": _repeated(self._group, len(self._entries)),
                "data": _joined(columns.pop("data")),
                **{
                    name: pa.array(values, SCHEMAS[Part.ENTRIES].field(name).type)
                    for name, values in columns.items()
                },
            },
            schema=SCHEMAS[Part.ENTRIES],
        )
        operations = self._operations(columns)
        self._clear()
        return entries, operations

    def _operations(self, entries: dict[str, tuple[Any, ...]]) -> pa.Table:
        rows = self.operations
        packed = {
            name: pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(self._effects[name])])
            for name, kind in _PACKED.items()
        }
        ids, names = list(self._queue_names), list(self._queue_names.values())
        places = pc.index_in(packed["queue_ids"], value_set=pa.array(ids, pa.uint32()))
        ordinals = pa.py_buffer(self._ordinals)
        columns = {
            "group": _repeated(self._group, rows),
            **_expanded(entries, "operations", ("index", "term", "time_ms")),
            "ordinal": pa.Array.from_buffers(pa.int32(), rows, [None, ordinals]),
            "operation": _NAMES.take(packed["kinds"]),
            "queue_id": packed["queue_ids"].cast(pa.int64()),
            "queue": pa.array(names, pa.string()).take(places),
            "lookup_identifier": packed["lookup_identifiers"],
            "source_queue_manager": packed["source_queue_managers"],
            "message_ordinal": packed["message_ordinals"].cast(pa.int64()),
            "reason": packed["reasons"].cast(pa.int32()),
            "size_bytes": packed["sizes_bytes"].cast(pa.int64()),
            "body_index": packed["body_indexes"],
            "body_ordinal": packed["body_ordinals"].cast(pa.int32()),
            **{name: _spread(self._sparse[name], kind, rows) for name, kind in _SPARSE.items()},
        }
        return pa.table(columns, schema=SCHEMAS[Part.OPERATIONS])


_ENTRY_COLUMNS: Final = (
    "index", "previous_index", "term", "time_ms", "leader", "data_bytes", "data", "data_sha256",
    "chain_before", "chain", "operations", "commands", "audit_mark", "digest",
)  # fmt: skip
_PACKED: Final = {
    "kinds": pa.uint8(),
    "queue_ids": pa.uint32(),
    "lookup_identifiers": pa.int64(),
    "reasons": pa.uint16(),
    "message_ordinals": pa.uint32(),
    "source_queue_managers": _GUID,
    "sizes_bytes": pa.uint32(),
    "body_indexes": pa.int64(),
    "body_ordinals": pa.uint16(),
}
"""Of a KeptEntry; 64-bit ones as the archive has them, in two's complement."""
_SPARSE: Final = {
    "sender_sequence_id": pa.int64(),
    "sender_sequence": pa.int64(),
    "sender_previous": pa.int64(),
    "destination": pa.string(),
    "transaction": _GUID,
    "body_sha256": _HASH,
}


def _signed(value: int) -> int:
    """Return a u64 in two's complement."""
    return value - (1 << 64) if value >> 63 else value


def _repeated(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), count)


def _joined(values: Sequence[bytes | memoryview | None]) -> pa.Array:
    """Return entries' data, all or none of which are there; copied once, for they are much."""
    if values[0] is None:
        return pa.nulls(len(values), pa.binary())
    whole = cast(Sequence[bytes | memoryview], values)
    ends = array("i", accumulate(map(len, whole), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(whole))]
    return pa.Array.from_buffers(pa.binary(), len(whole), buffers)


def _expanded(
    entries: dict[str, tuple[Any, ...]], counts: str, names: Sequence[str]
) -> dict[str, pa.Array]:
    """Return columns of entries, each value as often as `counts` says."""
    ends, total, wanted = [], 0, []
    for k, count in enumerate(entries[counts]):
        if count:
            total += count
            ends.append(total)
            wanted.append(k)
    run_ends = pa.array(ends, pa.int32())
    found = {}
    for name in names:
        values = pa.array([entries[name][k] for k in wanted], pa.int64())
        runs = pa.RunEndEncodedArray.from_arrays(run_ends, values)
        found[name] = pc.run_end_decode(runs)
    return found


def _spread(values: Sparse, kind: pa.DataType, rows: int) -> pa.Array:
    if not values:
        return pa.nulls(rows, kind)
    column: list[Any] = [None] * rows
    for row, value in values.items():
        column[row] = value
    return pa.array(column, kind)

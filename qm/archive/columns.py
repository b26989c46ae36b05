"""Rows of a range collected in columns and turned into Arrow tables, one row group at a time.

Packed columns of effects stay packed: bytes are appended per entry and passed to Arrow as buffers,
so that only transactional messages cost work per message.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from qm.archive.entry_facts import EntryFacts
from qm.archive.limits import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from qm.archive.schema import SCHEMAS, TABLES, Part
from qm.model.values.effects import EffectKind
from qm.model.values.rows import PositionFlag
from qm.store.audit import QueueContents
from qm.store.effects.chain import chained
from qm.store.effects.effects_row import EffectsRow

_NAMES: Final = pa.array(["", *(kind.name.lower() for kind in EffectKind)])
"""Names by value of EffectKind, which starts at 1."""
assert [kind.value for kind in EffectKind] == list(range(1, len(EffectKind) + 1))
_ORDINALS: Final = array("i", range(4_096)).tobytes()
_ORDINAL_BYTES: Final = 4
_GUID: Final = pa.binary(16)
_HASH: Final = pa.binary(32)
Sparse = dict[int, Any]
"""Values by row; the other rows have none."""


class MarkReport(msgspec.Struct, frozen=True, gc=False):
    """What this node reports at an audit mark."""

    number: int
    digest: bytes
    """Digest of its state, 16 bytes."""
    queues: Sequence[QueueContents]


class EntryColumns:
    """Entries of a range that are not written yet."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._rows: list[tuple[Any, ...]] = []
        self._data = memoryview(bytearray())
        """The data of the rows, one after the other. The buffer is reused: allocating this much
        memory costs more than copying it."""
        self._data_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to write a row group."""
        return self._data_bytes >= ROW_GROUP_BYTES or len(self._rows) >= ROW_GROUP_ROWS

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._rows

    def add(
        self,
        kept: EffectsRow,
        data: bytes | memoryview | None,
        facts: EntryFacts | None,
        report: MarkReport | None,
    ) -> bytes:
        """Append an entry; return the chain value after it."""
        chain = chained(kept.chain_before, kept.index, kept.term, kept.data_hash)
        self._rows.append(
            (
                kept.index,
                kept.previous_index,
                kept.term,
                kept.time_ms,
                kept.leader,
                kept.data_bytes,
                None if kept.is_blake3 else kept.data_hash,
                kept.chain_before,
                chain,
                kept.count,
                kept.commands,
                None if facts is None else facts.audit_mark,
                None if report is None else report.digest,
                kept.data_hash if kept.is_blake3 else None,
            )
        )
        if data is not None:
            self._append(data)
        return chain

    def _append(self, data: bytes | memoryview) -> None:
        begin, end = self._data_bytes, self._data_bytes + len(data)
        if end > len(self._data):
            larger = memoryview(bytearray(max(ROW_GROUP_BYTES, 2 * end)))
            larger[:begin] = self._data[:begin]
            self._data = larger
        self._data[begin:end] = data
        self._data_bytes = end

    def take(self) -> pa.Table:
        """Return what was collected so far, valid until the next `add`, and start again."""
        schema = SCHEMAS[Part.ENTRIES]
        columns = dict(zip(_ENTRY_COLUMNS, zip(*self._rows, strict=True), strict=True))
        arrays = {
            "group": _repeated(self._group, len(self._rows)),
            "data": self._data_array(columns["data_bytes"]),
            **{name: pa.array(values, schema.field(name).type) for name, values in columns.items()},
        }
        self._rows, self._data_bytes = [], 0
        return pa.table(arrays, schema=schema)

    def _data_array(self, lengths: Sequence[int]) -> pa.Array:
        if not self._data_bytes:
            return pa.nulls(len(lengths), pa.binary())
        ends = array("i", accumulate(lengths, initial=0))
        whole = pa.py_buffer(self._data[: self._data_bytes])
        return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), whole])


class OperationColumns:
    """Operations of a range that are not written yet."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._entries: list[tuple[int, int, int, int]] = []
        """index, term, time and the number of operations up to it, for entries that had any."""
        self._packed: dict[str, list[memoryview]] = {name: [] for name in _PACKED}
        self._ordinals: list[bytes] = []
        self._queue_names: dict[int, str] = {}
        self._sparse: dict[str, Sparse] = {name: {} for name in _SPARSE}

    @property
    def is_full(self) -> bool:
        """Whether it is time to write a row group."""
        return self._rows >= ROW_GROUP_ROWS

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._rows

    def add(self, kept: EffectsRow, facts: EntryFacts | None, digests: dict[int, bytes]) -> None:
        """Append the effects of an entry."""
        if not kept.count:
            return
        for name, parts in self._packed.items():
            parts.append(getattr(kept, name))
        self._queue_names |= kept.names
        self._add_sparse(facts, digests)
        size = _ORDINAL_BYTES * kept.count
        longer = array("i", range(kept.count)).tobytes() if size > len(_ORDINALS) else _ORDINALS
        self._ordinals.append(longer[:size])
        self._rows += kept.count
        self._entries.append((kept.index, kept.term, kept.time_ms, self._rows))

    def _add_sparse(self, facts: EntryFacts | None, digests: dict[int, bytes]) -> None:
        first, sparse = self._rows, self._sparse
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

    def take(self) -> pa.Table:
        """Return what was collected so far, and start again."""
        rows = self._rows
        indexes, terms, times, ends = zip(*self._entries, strict=True)
        packed = {name: _packed(parts, _PACKED[name], rows) for name, parts in self._packed.items()}
        ids, names = list(self._queue_names), list(self._queue_names.values())
        places = pc.index_in(packed["queue_ids"], value_set=pa.array(ids, pa.uint32()))
        columns = {
            "group": _repeated(self._group, rows),
            "index": _expanded(indexes, ends),
            "term": _expanded(terms, ends),
            "time_ms": _expanded(times, ends),
            "ordinal": _packed(self._ordinals, pa.int32(), rows),
            "operation": pa.DictionaryArray.from_arrays(packed["kinds"], _NAMES),
            "queue_id": packed["queue_ids"].cast(pa.int64()),
            "queue": pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string())),
            "lookup_identifier": packed["lookup_identifiers"],
            "source_queue_manager": packed["source_queue_managers"],
            "message_ordinal": packed["message_ordinals"].cast(pa.int64()),
            "reason": packed["reasons"].cast(pa.int32()),
            "size_bytes": packed["sizes_bytes"].cast(pa.int64()),
            "body_index": packed["body_indexes"],
            "body_ordinal": packed["body_ordinals"].cast(pa.int32()),
            "is_authenticated": _has(packed["flags"], PositionFlag.AUTHENTICATED),
            "was_encrypted": _has(packed["flags"], PositionFlag.WAS_ENCRYPTED),
            **{name: _spread(self._sparse[name], kind, rows) for name, kind in _SPARSE.items()},
        }
        self._clear()
        return pa.table(columns, schema=TABLES[Part.OPERATIONS])


_ENTRY_COLUMNS: Final = (
    "index", "previous_index", "term", "time_ms", "leader", "data_bytes", "data_sha256",
    "chain_before", "chain", "operations", "commands", "audit_mark", "digest",
    "data_blake3",
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
    "flags": pa.uint16(),
}
"""Columns of an EffectsRow; the archive has 64-bit values in two's complement."""
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


def _has(flags: pa.Array, flag: PositionFlag) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(flags, pa.scalar(int(flag), pa.uint16())), 0)


def _repeated(value: int, count: int) -> pa.Array:
    whole = value.to_bytes(4, "little") * count
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(whole)])


def _packed(parts: Sequence[bytes | memoryview], kind: pa.DataType, rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(b"".join(parts))])


def _expanded(values: Sequence[int], ends: Sequence[int]) -> pa.Array:
    """Return each value up to the row where it ends."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values))
    return pc.run_end_decode(runs)


def _spread(values: Sparse, kind: pa.DataType, rows: int) -> pa.Array:
    if not values:
        return pa.nulls(rows, kind)
    column: list[Any] = [None] * rows
    for row, value in values.items():
        column[row] = value
    return pa.array(column, kind)

"""Writes one range: its Parquet files, then its manifest, which makes it exist.

Runs in a worker thread. The same entries give the same names, so that files without a manifest are
overwritten after a crash; nothing else in this node's folder is touched.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from qm.archive.columns import EntryColumns, MarkReport, OperationColumns
from qm.archive.destination import Destination, DestinationError, Output
from qm.archive.entry_facts import body_digests, entry_facts
from qm.archive.limits import ROWS_PER_READ
from qm.archive.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    encode_manifest,
    range_folder,
)
from qm.archive.schema import (
    METADATA_CLUSTER,
    METADATA_GROUP,
    METADATA_NODE,
    METADATA_SCHEMA,
    SCHEMA_VERSION,
    SCHEMAS,
    TABLES,
    Part,
)
from qm.archive.source import ArchiveSource
from qm.store.effects.effects_log import Exported, place_of
from qm.store.effects.effects_row import EffectsRow, unpack_kept

_DICTIONARY_COLUMNS: Final = {
    Part.ENTRIES: ["group", "term", "leader"],
    Part.OPERATIONS: [
        "group", "index", "term", "time_ms", "operation", "queue_id", "queue",
        "source_queue_manager", "destination", "transaction", "reason", "size_bytes", "body_index",
    ],
    Part.QUEUES: ["group", "index", "audit_mark", "queue"],
    Part.ACKS: ["group", "edge"],
}  # fmt: skip
"""Columns whose values repeat; looking for repetitions in the others only costs CPU."""
_COUNTING_COLUMNS: Final = ["ordinal", "lookup_identifier", "message_ordinal", "body_ordinal"]
"""Columns of operations whose values mostly rise by one; only the differences are written."""
_COMPRESSION: Final = "snappy"
"""zstd halves bodies for three times the CPU, and gains little on the rest (design.md)."""
_OPTIONS: Final[dict[Part, dict[str, Any]]] = {
    # One page per 1 MiB of entries: with one per entry, or one per row group, Arrow takes up to 1.8
    # times the CPU.
    Part.ENTRIES: {"write_batch_size": 8, "data_page_size": 1 << 20},
    Part.OPERATIONS: {"column_encoding": dict.fromkeys(_COUNTING_COLUMNS, "DELTA_BINARY_PACKED")},
}
_BUFFERED_BYTES: Final = 1 << 20
_STATISTICS: Final = ["index", "previous_index", "time_ms", "message_ordinal", "depends_on_index"]
"""Columns by whose bounds a reader skips row groups."""


class Policy(Enum):
    """How much of messages' bodies goes into the archive."""

    NONE = "none"
    """Nothing: only each entry's hash, which covers them."""
    DIGEST = "digest"
    """A SHA-256 of each packet."""
    FULL = "full"
    """The entries themselves, from at least one node: needed for compaction and restore."""


class Identity(msgspec.Struct, frozen=True):
    """Which cluster, node and group an archive belongs to."""

    cluster: str
    """Hexadecimal."""
    node: str
    """name.incarnation."""
    group: int

    def metadata(self) -> dict[bytes, bytes]:
        """Return the Parquet metadata of every file."""
        return {
            METADATA_SCHEMA: str(SCHEMA_VERSION).encode(),
            METADATA_CLUSTER: self.cluster.encode(),
            METADATA_NODE: self.node.encode(),
            METADATA_GROUP: str(self.group).encode(),
        }


AckRow = tuple[str, int, int, int, int]
"""edge, session, position, depends_on_index, commit_index_known."""


class RangePlan(msgspec.Struct, frozen=True):
    """What to export: entries above `after`, up to `upto`, until a limit is reached."""

    after: Exported
    upto: int
    entries_max: int
    bytes_max: int
    """Bytes of entries' data."""
    policy: Policy
    reports: dict[int, MarkReport]
    """Reports by index of the audit mark."""
    acks: Sequence[AckRow]


class RangeDone(msgspec.Struct, frozen=True):
    """What was exported."""

    manifest: Manifest
    exported: Exported
    indexes: list[int]
    total_bytes: int
    """EffectsRow.total_bytes of the last entry."""
    operations: int
    written_bytes: int


class ExportStopped(Exception):
    """The node is stopping: no manifest was written."""


class RangeExport:
    """Export of one range. Call `run` once."""

    def __init__(
        self,
        plan: RangePlan,
        identity: Identity,
        source: ArchiveSource,
        destination: Destination,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._identity = identity
        self._source = source
        self._destination = destination
        self._is_stopping = is_stopping
        self._entries = EntryColumns(identity.group)
        self._effects = OperationColumns(identity.group)
        self._folder = ""
        self._files = ExitStack()
        self._parts: dict[Part, _PartFile] = {}
        self._operations = 0

    def run(self) -> RangeDone | None:
        """Export; None when there is nothing above `after`.

        Raises DestinationError, LogGone, OSError, ExportStopped.
        """
        indexes = [index for index, _ in self._rows()]
        if not indexes:
            return None
        first = unpack_kept(*next(iter(self._rows())))
        identity, after = self._identity, self._plan.after
        begin = max(after.upto, first.previous_index) + 1
        self._folder = range_folder(identity.cluster, identity.node, begin, indexes[-1])
        with self._files:
            chain, total_bytes, files = self._write(indexes)
        manifest = Manifest(
            schema=SCHEMA_VERSION,
            cluster=identity.cluster,
            node=identity.node,
            group=identity.group,
            first=begin,
            last=indexes[-1],
            previous_index=first.previous_index,
            chain_before=first.chain_before.hex(),
            chain_after=chain.hex(),
            files=files,
            is_gap_before=not after.restored_at and first.chain_before != after.chain,
            restored_at=after.restored_at,
            has_data=self._plan.policy is Policy.FULL,
        )
        self._destination.write(f"{self._folder}/{MANIFEST_NAME}", encode_manifest(manifest))
        exported = Exported(indexes[-1], chain)
        written = sum(file.size_bytes for file in files)
        return RangeDone(manifest, exported, indexes, total_bytes, self._operations, written)

    def _write(self, indexes: Sequence[int]) -> tuple[bytes, int, tuple[ManifestFile, ...]]:
        """Write the parts, which get their names when `_files` is closed. Return the chain value
        and EffectsRow.total_bytes at the end, and the files for the manifest.
        """
        chain, total_bytes = b"", 0
        for index, row in self._rows():
            if index > indexes[-1]:
                break
            kept = unpack_kept(index, row)
            chain, total_bytes = self._add(kept), kept.total_bytes
        self._flush()
        self._add_reports(indexes)
        self._add_acks(indexes[-1])
        files = tuple(file.finish() for file in self._parts.values())
        if self._is_stopping():
            raise ExportStopped
        return chain, total_bytes, files

    def _rows(self) -> Iterable[tuple[int, bytes]]:
        """Yield indexes and rows of the range, up to a limit or a break in the chain."""
        plan, index = self._plan, self._plan.after.upto
        left_entries, left_bytes = plan.entries_max, plan.bytes_max
        previous: int | None = None
        while True:
            rows = self._source.rows(index, min(ROWS_PER_READ, left_entries))
            for index, row in rows:
                if index > plan.upto:
                    return
                previous_index, data_bytes = place_of(index, row)
                if previous is not None and previous_index != previous:
                    return
                previous = index
                yield index, row
                left_entries -= 1
                left_bytes -= data_bytes
                if left_entries <= 0 or left_bytes <= 0:
                    return
            if not rows:
                return

    def _add(self, kept: EffectsRow) -> bytes:
        if self._is_stopping():
            raise ExportStopped
        policy = self._plan.policy
        is_full = policy is Policy.FULL
        wants_digests = policy is Policy.DIGEST and kept.index in kept.body_indexes.cast("Q")
        data = None
        if is_full or wants_digests or kept.needs_commands:
            data = self._source.entry(kept.index)
        facts, digests = None, {}
        if data is not None and (kept.needs_commands or wants_digests):
            whole = bytes(data)
            facts = entry_facts(kept, whole) if kept.needs_commands else None
            digests = body_digests(kept, whole) if wants_digests else {}
        report = self._plan.reports.get(kept.index)
        chain = self._entries.add(kept, data if is_full else None, facts, report)
        self._effects.add(kept, facts, digests)
        self._operations += kept.count
        if self._entries.is_full:
            self._part(Part.ENTRIES).write(self._entries.take())
        if self._effects.is_full:
            self._part(Part.OPERATIONS).write(self._effects.take())
        return chain

    def _flush(self) -> None:
        """Write what is left, and one file of each of both parts even without rows."""
        for part, columns in ((Part.ENTRIES, self._entries), (Part.OPERATIONS, self._effects)):
            file = self._part(part)
            if not columns.is_empty:
                file.write(columns.take())

    def _part(self, part: Part) -> "_PartFile":
        file = self._parts.get(part)
        if file is None:
            name = f"{part.value}.parquet"
            output = self._files.enter_context(self._destination.create(f"{self._folder}/{name}"))
            file = _PartFile(part, name, output, self._identity.metadata())
            self._files.callback(file.abandon)
            self._parts[part] = file
        return file

    def _add_reports(self, indexes: Sequence[int]) -> None:
        group = self._identity.group
        rows = [
            (group, index, report.number, *queue)
            for index, report in sorted(self._plan.reports.items())
            if indexes[0] <= index <= indexes[-1]
            for queue in report.queues
        ]
        self._add_rows(Part.QUEUES, rows)

    def _add_acks(self, last: int) -> None:
        group = self._identity.group
        self._add_rows(Part.ACKS, [(group, *ack) for ack in self._plan.acks if ack[3] <= last])

    def _add_rows(self, part: Part, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            schema = SCHEMAS[part]
            columns = zip(zip(*rows, strict=True), schema, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            self._part(part).write(pa.Table.from_arrays(arrays, schema=schema))


class _Hashed:
    """The file that pyarrow writes to, hashed on the way."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.blake3 = blake3()
        self.size_bytes = 0
        self.closed = False

    def write(self, data: bytes | memoryview) -> None:
        self.blake3.update(data)
        self._output.write(data)
        self.size_bytes += len(data)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: flushing is done when the file gets its name."""

    def close(self) -> None:
        self.closed = True


class _PartFile:
    """A Parquet file being written."""

    def __init__(self, part: Part, name: str, output: Output, metadata: dict[bytes, bytes]) -> None:
        self._part = part
        self._name = name
        self._sink = _Hashed(output)
        self._rows = 0
        # Each call into Python takes the interpreter lock away from the loop.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, "w"), _BUFFERED_BYTES)
        self._writer = pq.ParquetWriter(
            self._stream,
            TABLES[part],
            compression=_COMPRESSION,
            use_dictionary=_DICTIONARY_COLUMNS[part],
            write_statistics=[name for name in SCHEMAS[part].names if name in _STATISTICS],
            store_schema=False,  # the file has its own; TABLES is internal
            **_OPTIONS.get(part, {}),
        )
        self._writer.add_key_value_metadata(metadata)

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        self._rows += table.num_rows
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def abandon(self) -> None:
        """Close an unfinished writer while its file still exists: it would write the file's end
        when it is garbage-collected.
        """
        with suppress(DestinationError):
            self._close()

    def _close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._stream.close()

    def finish(self) -> ManifestFile:
        """Write the file's end; return its row in the manifest."""
        self._close()
        sink = self._sink
        return ManifestFile(
            part=self._part.value,
            name=self._name,
            size_bytes=sink.size_bytes,
            rows=self._rows,
            blake3=sink.blake3.hexdigest(),
        )

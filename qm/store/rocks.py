"""The state in RocksDB: an overlay of what entries changed, written as one batch.

The log is the write-ahead log: batches go to the memtable without a sync of their own, and the
applied index inside them says from where to replay. There is one column family, so that what
survives of it is always one prefix of the batches.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from qm.model.state import Table
from qm.store.digest import MODULUS, row_hash
from qm.store.liveness import Liveness

BLOCK_CACHE_BYTES: Final = 256 * 1024 * 1024
WRITE_BUFFER_BYTES: Final = 64 * 1024 * 1024
WRITE_BUFFERS: Final = 3
_BLOCK_BYTES: Final = 16 * 1024
_BLOOM_BITS_PER_KEY: Final = 10
_PREFIX: Final = tuple(bytes((table,)) for table in range(256))
_APPLIED: Final = Struct("<QQ16s")
"""index u64, term u64, digest u128 little-endian."""
_APPLIED_KEY: Final = bytes((Table.APPLIED,))
_ABSENT: Final = object()
_HOT_TABLES: Final = frozenset(
    {
        Table.META,
        Table.QUEUE_STATS,
        Table.CLIENT,
        Table.STREAM,
        Table.HISTORY,
        Table.HISTORY_BUCKET,
        Table.SEQUENCE_IN,
        Table.BODY_LIVE,
    }
)
"""Rows that the next batches change again: kept from one commit to the next."""
HOT_ROWS_MAX: Final = 65_536


class AppliedPoint(msgspec.Struct, frozen=True, gc=False):
    """How far a state has come."""

    index: int = 0
    term: int = 0
    digest: int = 0
    """u128 over all logical rows."""


def open_database(path: Path, *, cache_bytes: int = BLOCK_CACHE_BYTES) -> Rdict:
    """Open or create the database in a folder."""
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, block_based=False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_paranoid_checks(True)
    options.set_keep_log_file_num(2)
    return Rdict(str(path), options, access_type=AccessType.read_write())


class RocksState:
    """`qm.model.state.State` over a database."""

    def __init__(self, database: Rdict) -> None:
        self._database = database
        self._overlay: dict[bytes, bytes | None] = {}
        self._read: dict[bytes, bytes | None] = {}
        self._recent: dict[bytes, bytes] = {}
        self._fresh: set[bytes] = set()
        self._sorted: dict[int, list[bytes]] = {}
        self._tables: dict[int, set[bytes]] = {}
        self._no_wal = WriteOptions()
        # The stub calls this property a method.
        self._no_wal.disable_wal = True  # type: ignore[method-assign, assignment]
        row = database.get(_APPLIED_KEY)
        if row is None:
            self.applied = AppliedPoint()
        else:
            index, term, digest = _APPLIED.unpack(row)
            self.applied = AppliedPoint(index, term, int.from_bytes(digest, "little"))
        self.liveness = Liveness(self)

    # qm.model.state.State ----------------------------------------------------------------

    def get(self, table: Table, key: bytes) -> bytes | None:
        """See State.get."""
        full = _PREFIX[table] + key
        value = self._overlay.get(full, _ABSENT)
        if value is not _ABSENT:
            return value  # type: ignore[return-value]
        value = self._read.get(full, _ABSENT)
        if value is not _ABSENT:
            return value  # type: ignore[return-value]
        found = self._recent.get(full)
        if found is None:
            found = self._database.get(full)
        self._read[full] = found
        return found

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """See State.put."""
        self._note(table, _PREFIX[table] + key, value)

    def put_rows(self, table: Table, rows: Mapping[bytes, bytes]) -> None:
        """See State.put_rows."""
        prefix = _PREFIX[table]
        full = {prefix + key: value for key, value in rows.items()}
        self._overlay.update(full)
        self._fresh.update(full)
        self._tables.setdefault(table, set()).update(full)
        self._sorted.pop(table, None)

    def delete(self, table: Table, key: bytes) -> None:
        """See State.delete."""
        self._note(table, _PREFIX[table] + key, None)

    def delete_rows(self, table: Table, keys: Sequence[bytes]) -> None:
        """See State.delete_rows."""
        prefix = _PREFIX[table]
        full = [prefix + key for key in keys]
        self._overlay.update(dict.fromkeys(full))
        self._tables.setdefault(table, set()).update(full)
        self._sorted.pop(table, None)

    def _note(self, table: int, full: bytes, value: bytes | None) -> None:
        overlay = self._overlay
        if full not in overlay:
            self._tables.setdefault(table, set()).add(full)
            self._sorted.pop(table, None)
        overlay[full] = value

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """See State.scan."""
        prefix = _PREFIX[table]
        low, high = prefix + low, prefix + high
        changed = self._changed(table, low, high)
        # Rows that the overlay deletes may stand before those that are wanted.
        stored = self._stored(low, high, limit + len(changed), backward=backward)
        overlay = self._overlay
        rows = dict(stored)
        for full in changed:
            value = overlay[full]
            if value is None:
                rows.pop(full, None)
            else:
                rows[full] = value
        keys = sorted(rows, reverse=backward)[:limit] if changed else list(rows)[:limit]
        return [(full[1:], rows[full]) for full in keys]

    def _changed(self, table: int, low: bytes, high: bytes) -> list[bytes]:
        keys = self._tables.get(table)
        if not keys:
            return []
        ordered = self._sorted.get(table)
        if ordered is None:
            ordered = self._sorted[table] = sorted(keys)
        return ordered[bisect_left(ordered, low) : bisect_left(ordered, high)]

    def _stored(
        self, low: bytes, high: bytes, limit: int, *, backward: bool
    ) -> list[tuple[bytes, bytes]]:
        iterator = self._database.iter()
        rows: list[tuple[bytes, bytes]] = []
        if backward:
            iterator.seek_for_prev(high)
            step = iterator.prev
        else:
            iterator.seek(low)
            step = iterator.next
        while len(rows) < limit and iterator.valid():
            key = iterator.key()
            if key >= high:
                if not backward:
                    break
            elif key < low:
                break
            else:
                rows.append((key, iterator.value()))
            step()
        return rows

    def retain_body(self, index: int, ordinal: int) -> None:
        """See State.retain_body."""
        self.liveness.retain(index, (ordinal,))

    def retain_bodies(self, index: int, ordinals: Sequence[int]) -> None:
        """See State.retain_bodies."""
        self.liveness.retain(index, ordinals)

    def release_body(self, index: int, ordinal: int) -> None:
        """See State.release_body."""
        self.liveness.release(index, (ordinal,))

    def release_bodies(self, index: int, ordinals: Sequence[int]) -> None:
        """See State.release_bodies."""
        self.liveness.release(index, ordinals)

    # Batches -----------------------------------------------------------------------------

    def commit(self, index: int, term: int) -> None:
        """Write everything since the last commit, with the applied point, as one batch."""
        self.liveness.flush()
        batch = WriteBatch(raw_mode=True)
        digest = self.applied.digest
        for full, value in self._overlay.items():
            if full[0] < Table.LOCAL_FIRST:
                digest += self._digest_change(full, value)
            if value is None:
                batch.delete(full)
                self._recent.pop(full, None)
            else:
                batch.put(full, value)
                if full[0] in _HOT_TABLES:
                    self._recent[full] = value
        if len(self._recent) > HOT_ROWS_MAX:
            self._recent.clear()
        digest %= MODULUS
        batch.put(_APPLIED_KEY, _APPLIED.pack(index, term, digest.to_bytes(16, "little")))
        self._database.write(batch, self._no_wal)
        self.applied = AppliedPoint(index, term, digest)
        self._overlay.clear()
        self._read.clear()
        self._fresh.clear()
        self._sorted.clear()
        self._tables.clear()

    def _digest_change(self, full: bytes, value: bytes | None) -> int:
        change = 0 if value is None else row_hash(full, value)
        if full not in self._fresh:
            old = self._read.get(full, _ABSENT)
            if old is _ABSENT:
                old = self._recent.get(full)
                if old is None:
                    old = self._database.get(full)
            if old is not None:
                change -= row_hash(full, old)  # type: ignore[arg-type]
        return change

    def flush(self) -> None:
        """Make everything committed survive a power loss."""
        self._database.flush()

    # Whole states ------------------------------------------------------------------------

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (full key, value) of every committed row, local ones included."""
        iterator = self._database.iter()
        iterator.seek_to_first()
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()

    def computed_digest(self) -> int:
        """Return the digest from all rows; equals `applied.digest` unless a row was damaged."""
        digest = 0
        for full, value in self.rows():
            if full[0] >= Table.LOCAL_FIRST:
                break
            digest += row_hash(full, value)
        return digest % MODULUS

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the database in a new folder, by hard links."""
        Checkpoint(self._database).create_checkpoint(str(path))

    def close(self) -> None:
        """Close the database."""
        self._database.close()

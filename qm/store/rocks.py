"""The state in RocksDB: an overlay of what entries changed, written as one batch.

The log is the write-ahead log: batches go to the memtable without a sync of their own, and the
applied index in them says from where to replay. There is one column family, so that a prefix of
the batches survives a crash.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)
from typing_extensions import override

from qm.model.state.tables import State, Table
from qm.store.database import Database, Rows, database_error
from qm.store.digest import MODULUS, row_hash, rows_sum
from qm.store.liveness import Liveness
from qm.store.overlay import Changes

BLOCK_CACHE_BYTES: Final = 256 * 1024 * 1024
WRITE_BUFFER_BYTES: Final = 64 * 1024 * 1024
WRITE_BUFFERS: Final = 3
BYTES_PER_SYNC: Final = 512 * 1024
"""After so many bytes of a new file the kernel begins to write it out."""
_RUNS: Final = 12
"""Sorted runs before some are merged: merging then costs as much as flushing, seeking little."""
_BLOCK_BYTES: Final = 16 * 1024
_BLOOM_BITS_PER_KEY: Final = 10
_PREFIX: Final = tuple(bytes((table,)) for table in range(256))
_UNFLUSHED: Final = "rocksdb.cur-size-all-mem-tables"
_APPLIED: Final = Struct("<QQ16s")
"""index u64, term u64, digest u128 little-endian."""
_APPLIED_KEY: Final = bytes((Table.APPLIED,))
_ABSENT: Final = object()
_HOT_TABLES: Final = frozenset(
    {
        Table.META,
        Table.QUEUE_STATS,
        Table.CLIENT,
        Table.RESULT,
        Table.STREAM,
        Table.HISTORY,
        Table.HISTORY_BUCKET,
        Table.SEQUENCE_IN,
    }
)
"""Tables whose rows the next batches read or change again: cached across commits."""
_SCANNED_AHEAD: Final = frozenset({Table.POSITION})
"""Tables whose rows are mostly read one by one after a scan found them: scans cache them."""
ROW_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Size of the row cache; beyond this all rows are dropped and read again."""
_ROW_OVERHEAD_BYTES: Final = 160
"""Memory of a cached row besides its value: objects, hash table, key."""


class AppliedPoint(msgspec.Struct, frozen=True, gc=False):
    """The last entry that a state contains."""

    index: int = 0
    term: int = 0
    digest: int = 0
    """u128, over all replicated rows."""


def open_database(
    path: Path, *, cache_bytes: int = BLOCK_CACHE_BYTES, is_read_only: bool = False
) -> Database:
    """Open or create the database in a folder.

    Raises DatabaseFull, FatalDiskError, DatabaseInUse, DatabaseDamaged (qm.store.database).
    """
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
    # Positions of all queues are in every flushed file, so levels would be rewritten as a whole.
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_level_zero_file_num_compaction_trigger(_RUNS)
    options.set_level_zero_slowdown_writes_trigger(3 * _RUNS)
    options.set_level_zero_stop_writes_trigger(5 * _RUNS)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_paranoid_checks(True)
    # One sync at the end of a file would delay those of the log, which shares the disk.
    options.set_bytes_per_sync(BYTES_PER_SYNC)
    options.set_keep_log_file_num(2)
    access = AccessType.read_only() if is_read_only else AccessType.read_write()
    try:
        return Database(Rdict(str(path), options, access_type=access))
    except Exception as error:  # the library has no exception type of its own
        raise database_error(error) from error


class PinnedRows:
    """Committed rows as they were when this was made, unaffected by later writes.

    Cheap to make; for one thread at a time, until `release`. The database's files stay open until
    then.
    """

    def __init__(self, database: Database) -> None:
        self._rows: Rows | None = database.iterate()

    def rows(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key without the table byte, value) of a table, ascending."""
        rows, prefix = self._rows, _PREFIX[table]
        assert rows is not None, "rows that were released"
        for full, value in rows.from_key(prefix):
            if full[:1] != prefix:
                break
            yield full[1:], value

    @property
    def is_released(self) -> bool:
        """Whether `release` was called, so that nothing can be read."""
        return self._rows is None

    def release(self) -> None:
        """Release the database. A second call does nothing."""
        self._rows = None


class RocksState(State):
    """`qm.model.state.tables.State` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: dict[int, Changes] = {table: Changes() for table in Table}
        self._cache: dict[bytes, bytes] = {}
        """Rows as in the database, by full key."""
        self._cached_bytes = 0
        self._missing: set[bytes] = set()
        """Full keys that were read since the last commit and have no row there."""
        self._no_wal = WriteOptions()
        # The stub declares this property as a method.
        self._no_wal.disable_wal = True  # type: ignore[method-assign, assignment]
        row = database.get(_APPLIED_KEY)
        if row is None:
            self.applied = AppliedPoint()
        else:
            index, term, digest = _APPLIED.unpack(row)
            self.applied = AppliedPoint(index, term, int.from_bytes(digest, "little"))
        self.liveness = Liveness(self)

    # qm.model.state.tables.State ----------------------------------------------------------------

    @override
    def get(self, table: Table, key: bytes) -> bytes | None:
        changes = self._changes[table]
        value = changes.rows.get(key, _ABSENT)
        if value is not _ABSENT:
            return value  # type: ignore[return-value]
        if changes.fresh:
            fresh = changes.fresh.get(key)
            if fresh is not None:
                return fresh
        return self._committed(_PREFIX[table] + key)

    @override
    def get_rows(self, table: Table, keys: Iterable[bytes]) -> list[bytes | None]:
        if self._changes[table]:
            return [self.get(table, key) for key in keys]
        return self._committed_rows(table, keys)

    def _committed_rows(self, table: int, keys: Iterable[bytes]) -> list[bytes | None]:
        committed, cached = self._committed, self._cache.get
        return [cached(full) or committed(full) for full in map(_PREFIX[table].__add__, keys)]

    def _committed(self, full: bytes) -> bytes | None:
        """Return a row as of the last commit."""
        value = self._cache.get(full)
        if value is None and full not in self._missing:
            value = self._database.get(full)
            if value is None:
                self._missing.add(full)
                self._cached_bytes += _ROW_OVERHEAD_BYTES
            else:
                self._keep(full, value)
            self._bound_cache()
        return value

    def _keep(self, full: bytes, value: bytes) -> None:
        self._cache[full] = value
        self._cached_bytes += _ROW_OVERHEAD_BYTES + len(value)

    def _bound_cache(self) -> None:
        """Drop all cached rows when there are too many; may be called at any time."""
        if self._cached_bytes > ROW_CACHE_BYTES:
            self._cache.clear()
            self._missing.clear()
            self._cached_bytes = 0

    @override
    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self._changes[table].put(key, value)

    @override
    def put_rows(self, table: Table, rows: Mapping[bytes, bytes]) -> None:
        self._changes[table].add(rows)

    @override
    def delete(self, table: Table, key: bytes) -> None:
        self._changes[table].delete(key)

    @override
    def delete_rows(self, table: Table, keys: Sequence[bytes]) -> None:
        self._changes[table].delete_all(keys)

    @override
    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool = False
    ) -> list[tuple[bytes, bytes]]:
        changes = self._changes[table]
        changed = dict(changes.values(changes.between(low, high))) if changes else {}
        # Rows that the overlay deletes may precede those that are wanted.
        wanted = limit + sum(value is None for value in changed.values())
        stored = self._stored(table, low, high, wanted, backward=backward)
        if not changed:
            return stored
        rows = dict(stored)
        if len(stored) == wanted:
            # Changes beyond the last row that was read do not belong to the result.
            last = stored[-1][0]
            changed = {
                key: value
                for key, value in changed.items()
                if (key >= last if backward else key <= last)
            }
        for key, value in changed.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return sorted(rows.items(), reverse=backward)[:limit]

    def _stored(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return rows as of the last commit; keys without the table byte."""
        full_low, full_high = _PREFIX[table] + low, _PREFIX[table] + high
        if full_low >= full_high:
            return []
        if backward:
            rows = self._database.descending(full_low, full_high, limit)
        else:
            # A bound keeps the iterator from walking through deleted rows outside the range.
            options = ReadOptions()
            options.set_iterate_upper_bound(full_high)
            rows = self._database.ascending(full_low, options, limit)
        if table in _SCANNED_AHEAD:
            self._cache.update(rows)
            self._cached_bytes += sum(map(len, map(itemgetter(1), rows)))
            self._cached_bytes += _ROW_OVERHEAD_BYTES * len(rows)
            self._bound_cache()
        return [(key[1:], value) for key, value in rows]

    def scan_committed(
        self, table: Table, low: bytes, high: bytes, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """As `scan`, as of the last commit. For any thread, and tables that scans do not cache."""
        assert table not in _SCANNED_AHEAD
        return self._stored(table, low, high, limit, backward=False)

    @override
    def retain_body(self, index: int, ordinal: int) -> None:
        self.liveness.retain(index, (ordinal,))

    @override
    def retain_bodies(self, index: int, ordinals: Sequence[int]) -> None:
        self.liveness.retain(index, ordinals)

    @override
    def release_body(self, index: int, ordinal: int) -> None:
        self.liveness.release(((index, ordinal),))

    @override
    def release_bodies(self, bodies: Iterable[tuple[int, int]]) -> None:
        self.liveness.release(bodies)

    # Batches -----------------------------------------------------------------------------

    def commit(self, index: int, term: int) -> None:
        """Write everything since the last commit, with the applied point, as one batch.

        Raises DatabaseFull, FatalDiskError: nothing was written, and readers see no difference.
        """
        self.liveness.flush()
        batch = WriteBatch(raw_mode=True)
        changed = [(table, changes) for table, changes in self._changes.items() if changes]
        change = 0
        for table, changes in changed:
            if table < Table.LOCAL_FIRST:
                change += self._digest_change(table, changes)
            _batch_changes(table, changes, batch)
        digest = (self.applied.digest + change) % MODULUS
        batch.put(_APPLIED_KEY, _APPLIED.pack(index, term, digest.to_bytes(16, "little")))
        self._database.write(batch, self._no_wal)
        self.applied = AppliedPoint(index, term, digest)
        for table, changes in changed:
            self._cache_changes(table, changes)
            changes.clear()
        self._missing.clear()
        self._bound_cache()

    def _digest_change(self, table: int, changes: Changes) -> int:
        """Return what the changes of one table add to the digest, unreduced."""
        rows = changes.rows
        replaced = zip(rows, self._committed_rows(table, rows), strict=True)
        added = rows_sum(table, changes.fresh.items()) + rows_sum(table, rows.items())
        return added - rows_sum(table, replaced)

    def _cache_changes(self, table: int, changes: Changes) -> None:
        """Update the cache with what was just written to the database."""
        prefix, cache = _PREFIX[table], self._cache
        is_hot = table in _HOT_TABLES
        if is_hot:
            for key, value in changes.fresh.items():
                self._keep(prefix + key, value)
        for key, changed in changes.rows.items():
            if changed is None or not is_hot:
                cache.pop(prefix + key, None)
            else:
                self._keep(prefix + key, changed)

    def flush(self) -> None:
        """Make everything committed survive a power loss."""
        self._database.flush()

    @property
    def is_refusing(self) -> bool:
        """Whether the database takes no writes until it is opened again."""
        return self._database.is_refusing

    @property
    def lack(self) -> int:
        """What the database lacked when it last refused a write: `errno` of DatabaseFull."""
        return self._database.lack

    def unflushed_bytes(self) -> int:
        """Return about how much a flush must process, including overwritten and deleted rows."""
        return self._database.number(_UNFLUSHED)

    # Whole states ------------------------------------------------------------------------

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Return (full key, value) of every committed row, local ones included."""
        return self._database.iterate().from_key(b"")

    def computed_digest(self) -> int:
        """Return the digest of all rows; it equals `applied.digest` unless a row is damaged."""
        digest = 0
        for full, value in self.rows():
            if full[0] >= Table.LOCAL_FIRST:
                break
            digest += row_hash(full, value)
        return digest % MODULUS

    def drop_table(self, table: Table) -> None:
        """Remove all committed rows of a local table; it must have no cached or changed rows."""
        assert table >= Table.LOCAL_FIRST
        self._database.delete_range(_PREFIX[table], _PREFIX[table + 1], self._no_wal)

    def compact(self) -> None:
        """Rewrite the database without deleted and replaced rows; not for a serving node."""
        self._database.compact()

    def pin(self) -> PinnedRows:
        """Pin the committed rows as they are now."""
        return PinnedRows(self._database)

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the database in a new folder, by hard links.

        Flushes what was not flushed, and holds the interpreter lock meanwhile in any thread: call
        `flush`, which does not hold it, before if other threads must run.
        """
        self._database.checkpoint(path)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _batch_changes(table: int, changes: Changes, batch: WriteBatch) -> None:
    prefix, put, delete = _PREFIX[table], batch.put, batch.delete
    # Neighbours in key order cost the memtable a third.
    fresh, rows = changes.fresh, changes.rows
    if fresh:
        keys = sorted(fresh)
        deque(map(put, map(prefix.__add__, keys), map(fresh.__getitem__, keys)), maxlen=0)
    for key in sorted(rows):
        changed = rows[key]
        if changed is None:
            delete(prefix + key)
        else:
            put(prefix + key, changed)

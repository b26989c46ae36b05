"""RocksDB with typed errors.

The library raises bare exceptions whose text is RocksDB's status; only this module interprets it.
All access to a database goes through `Database`, even reading: an iterator that meets a damaged
block ends as if it had reached the last row, and only its status tells the difference.
"""

import errno
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from rocksdict import Checkpoint, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from raft.log.files import FatalDiskError

_NO_SPACE: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "Max allowed space was reached",
)
_NO_DESCRIPTOR: Final = "Too many open files"
_SYNCS: Final = ("While fdatasync", "While fsync", "While sync", "While range sync")
_GONE: Final = ("No such file or directory",)
_LOCKED: Final = ("lock hold by current process", "While lock file")


class DatabaseError(Exception):
    """The database cannot do what was asked; the text is RocksDB's."""


class DatabaseDamaged(DatabaseError):
    """The database reads other bytes than it wrote: nothing in it can be trusted."""


class DatabaseInUse(DatabaseError):
    """The database is open in another process, or was not closed in this one."""


class DatabaseFull(OSError):
    """The database has no space to write (`errno` is ENOSPC), or no descriptor to open a file with
    (EMFILE).

    From then on it accepts no write, even if space is freed, until it is opened again. Batches that
    were committed and not flushed are then lost, and are replayed from the log.
    """

    def __init__(self, text: str, number: int = errno.ENOSPC) -> None:
        super().__init__(number, f"the state cannot be written: {text}")


def database_error(error: Exception) -> Exception:
    """Return the exception to raise for an error of the library."""
    text = str(error)
    if any(words in text for words in _NO_SPACE):
        if any(words in text for words in _SYNCS):
            return FatalDiskError(f"the state cannot be synced: {text}")
        return DatabaseFull(text)
    if _NO_DESCRIPTOR in text:
        return DatabaseFull(text, errno.EMFILE)
    if any(words in text for words in _LOCKED):
        return DatabaseInUse(text)
    if any(words in text for words in _GONE) or "Corruption" in text:
        return DatabaseDamaged(text)
    if "IO error" in text:
        return FatalDiskError(f"the state's disk failed: {text}")
    return DatabaseError(text)


class Rows:
    """An iterator over the rows as they were when it was made. For one thread."""

    def __init__(self, iterator: RdictIter) -> None:
        self._iterator = iterator

    def from_key(self, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from a key on, ascending. Raises FatalDiskError, DatabaseDamaged."""
        iterator = self._iterator
        iterator.seek(first)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        self._check()

    def _check(self) -> None:
        try:
            self._iterator.status()
        except Exception as error:
            raise database_error(error) from error


class Database:
    """One open database. Every call raises DatabaseFull, FatalDiskError and DatabaseError."""

    def __init__(self, rocks: Rdict) -> None:
        self._rocks = rocks
        self.is_refusing = False
        """Whether it ran out of space and accepts no writes; see DatabaseFull."""
        self.lack = errno.ENOSPC
        """The `errno` of DatabaseFull."""

    def _error(self, error: Exception) -> Exception:
        named = database_error(error)
        if isinstance(named, DatabaseFull):
            self.is_refusing = True
            self.lack = named.errno or errno.ENOSPC
        return named

    def get(self, key: bytes) -> bytes | None:
        """Return a row."""
        try:
            return self._rocks.get(key)
        except Exception as error:
            raise self._error(error) from error

    def write(self, batch: WriteBatch, options: WriteOptions) -> None:
        """Write all of a batch or nothing; the batch cannot be used again in either case."""
        try:
            self._rocks.write(batch, options)
            self.is_refusing = False
        except Exception as error:
            raise self._error(error) from error

    def flush(self) -> None:
        """Make everything written survive a power loss."""
        try:
            self._rocks.flush()
        except Exception as error:
            raise self._error(error) from error

    def ascending(self, low: bytes, options: ReadOptions, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows from a key on, up to the bound of the options."""
        try:
            items: Iterator[tuple[bytes, bytes]] = self._rocks.items(  # type: ignore[assignment]
                from_key=low, read_opt=options
            )
            rows = [*islice(items, limit)]
            if len(rows) < limit:
                # It reached the last row, or could not continue.
                iterator = self._rocks.iter(options)
                iterator.seek(rows[-1][0] if rows else low)
                if rows and iterator.valid():
                    iterator.next()
                iterator.status()
        except Exception as error:
            raise self._error(error) from error
        return rows

    def descending(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows in [low, high), from the highest key down."""
        rows: list[tuple[bytes, bytes]] = []
        try:
            iterator = self._rocks.iter()
            iterator.seek_for_prev(high)
            while len(rows) < limit and iterator.valid() and (key := iterator.key()) >= low:
                if key != high:
                    rows.append((key, iterator.value()))
                iterator.prev()
            iterator.status()
        except Exception as error:
            raise self._error(error) from error
        return rows

    def iterate(self) -> Rows:
        """Return an iterator over the rows as they are now."""
        try:
            return Rows(self._rocks.iter())
        except Exception as error:
            raise self._error(error) from error

    def delete_range(self, low: bytes, high: bytes, options: WriteOptions) -> None:
        """Remove all rows of a range at once."""
        try:
            self._rocks.delete_range(low, high, options)
        except Exception as error:
            raise self._error(error) from error

    def compact(self) -> None:
        """Rewrite the whole database."""
        try:
            self._rocks.compact_range(None, None)
        except Exception as error:
            raise self._error(error) from error

    def number(self, name: str) -> int:
        """Return a property of RocksDB; 0 if there is none of that name."""
        try:
            return self._rocks.property_int_value(name) or 0
        except Exception as error:
            raise self._error(error) from error

    def checkpoint(self, path: Path) -> None:
        """Flush, then make a copy in a new folder by hard links."""
        try:
            Checkpoint(self._rocks).create_checkpoint(str(path))
        except Exception as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Flush what it can and close; closed even after an error."""
        try:
            self._rocks.close()
        except Exception as error:
            raise self._error(error) from error

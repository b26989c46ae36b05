"""RocksDB with errors that say what happened.

The library raises bare exceptions whose text is RocksDB's status; it is read here and nowhere else.
Whatever touches a database goes through `Database`, also reading: an iterator that comes upon a
damaged block ends like one that has seen all, and only its status tells the difference.
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
    """The database cannot do what was asked of it; the text is RocksDB's."""


class DatabaseDamaged(DatabaseError):
    """What the database reads is not what it wrote: nothing in it can be trusted."""


class DatabaseInUse(DatabaseError):
    """Another process, or something here that was not closed, has the database open."""


class DatabaseFull(OSError):
    """There is no space for what the database must write (`errno` is ENOSPC), or no descriptor to
    open its file with (EMFILE).

    After that it takes no write at all, whatever space comes back, until it is opened again. What
    was committed and not flushed is then gone, and comes again out of the log.
    """

    def __init__(self, text: str, number: int = errno.ENOSPC) -> None:
        super().__init__(number, f"the state cannot be written: {text}")


def database_error(error: Exception) -> Exception:
    """Return what to raise for an error of the library."""
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
    """An iterator over rows as they were when it was made. For one thread."""

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
        """It found no space for something, and takes no writes; see DatabaseFull."""
        self.lack = errno.ENOSPC
        """The `errno` of that."""

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
        """Write all of a batch or nothing; it is used up either way."""
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
                # It has seen all that there is, or could not go on.
                iterator = self._rocks.iter(options)
                iterator.seek(rows[-1][0] if rows else low)
                if rows and iterator.valid():
                    iterator.next()
                iterator.status()
        except Exception as error:
            raise self._error(error) from error
        return rows

    def descending(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows from below a key down to another."""
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
        """Return what reads the rows as they are now."""
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
        """Rewrite all of it."""
        try:
            self._rocks.compact_range(None, None)
        except Exception as error:
            raise self._error(error) from error

    def number(self, name: str) -> int:
        """Return a property of RocksDB's; 0 if it has none of that name."""
        try:
            return self._rocks.property_int_value(name) or 0
        except Exception as error:
            raise self._error(error) from error

    def checkpoint(self, path: Path) -> None:
        """Make a copy in a new folder, by hard links; flushes before."""
        try:
            Checkpoint(self._rocks).create_checkpoint(str(path))
        except Exception as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close; it flushes what it can. After an error it is closed as well."""
        try:
            self._rocks.close()
        except Exception as error:
            raise self._error(error) from error

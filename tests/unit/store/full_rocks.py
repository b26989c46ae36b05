"""A RocksDB whose disk is full, or fails: what the library says and does then, without a disk of
that kind. It refuses flushes and, after one, every write; closing it loses what was not flushed.
"""

import shutil
from pathlib import Path
from typing import Any, Final

from qm.store.database import Database
from qm.store.store import Store

NO_SPACE: Final = (
    "IO error: No space left on device: While appending to file: /d/000009.sst: No space left on"
    " device"
)
NO_SYNC: Final = "IO error: While fdatasync: /d/000009.sst: Input/output error"


class FullRocks:
    """Wraps the library's object."""

    def __init__(self, rocks: Any, path: Path, text: str = NO_SPACE) -> None:
        self._rocks = rocks
        self._path = path
        self._text = text
        self._copy = path.parent / (path.name + ".as-flushed")
        self.is_full = True
        self._is_broken = False

    def flush(self) -> None:
        """Refuse it."""
        if self.is_full and not self._is_broken:
            shutil.copytree(self._path, self._copy)
            self._is_broken = True
        if self._is_broken:
            raise Exception(self._text)
        self._rocks.flush()

    def write(self, batch: Any, options: Any) -> None:
        """Refuse it after a flush was refused, whatever space there is since then."""
        if self._is_broken:
            raise Exception(self._text)
        self._rocks.write(batch, options)

    def close(self) -> None:
        """Close it; what was never flushed is lost."""
        self._rocks.close()
        if self._is_broken:
            shutil.rmtree(self._path)
            self._copy.rename(self._path)
            raise Exception(self._text)

    def heal(self) -> None:
        """Let it be closed like any other: a test goes on where a process would have ended."""
        self.is_full = self._is_broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rocks, name)


def fill(store: Store, text: str = NO_SPACE) -> FullRocks:
    """Have the database of a store find no space from now on, until it is opened again."""
    database = store.state._database
    assert isinstance(database, Database)
    path = next(iter(store._path.glob("g-*"))) / "state"
    full = FullRocks(database._rocks, path, text)
    database._rocks = full  # type: ignore[assignment]
    return full

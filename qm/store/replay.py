"""A state rebuilt outside of any node, from a snapshot stream and committed entries.

Audits and compaction of the archive use it (DESIGN section 5). There is no log: entries are kept
in memory until there are too many; then the live bodies of the oldest move to blob files, as they
do when a node's log drops a segment. Bodies received before that are never written.
"""

import shutil
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import override

from qm.model.state.tables import Table
from qm.model.values.rows import POSITION_ROW
from qm.store.audit import Mark
from qm.store.bodies.body_places import BodyPlaces
from qm.store.rocks import AppliedPoint, RocksState
from qm.store.store import Store
from raft.log_view import Compacted, Unavailable
from raft.machine import Hold, LogReader, SnapshotSource
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta

RETAINED_BYTES: Final = 64 * 1024 * 1024
"""Entries in memory; beyond this the older half is dropped."""
ALIVE_SHARE_MIN: Final = 0.9
"""Least live share of each blob file after `Replay.compact`."""
_SCAN_ROWS: Final = 1024
_BODY_FIELDS: Final = slice(3, 8)
"""The fields of POSITION_ROW that BodyPlaces has as columns."""
_KEY_END: Final = b"\xff" * 24


class ReplayedMark(msgspec.Struct, frozen=True, gc=False):
    """An audit mark among the entries applied."""

    number: int
    index: int
    digest: bytes
    """Digest of the rebuilt state at the mark, 16 bytes."""


class Replay:
    """A store without a replica, to which the caller feeds entries."""

    def __init__(self, path: Path, *, retained_bytes: int = RETAINED_BYTES) -> None:
        """`path`: a folder that does not exist yet; `close` removes it."""
        self._path = path
        self._retained_bytes = retained_bytes
        self._entries = _RecentEntries()
        self._store = Store(path, self._entries)

    def install(self, stream: Path, index: int, term: int) -> None:
        """Start from a snapshot stream. Raises SnapshotDamaged."""
        self._store.install(stream, SnapshotMeta(index, term, Configuration(()), 0))
        self._entries.last = index

    @property
    def applied(self) -> AppliedPoint:
        """The last entry applied."""
        return self._store.applied

    @property
    def state(self) -> RocksState:
        """The rows of the state."""
        return self._store.state

    def apply(self, entries: Sequence[tuple[int, int, bytes]]) -> list[ReplayedMark]:
        """Apply (index, term, data) of DATA entries in order; return the marks among them.

        Raises UnknownCommand, and Diverged when an AuditResult among the entries shows that the
        majority's state was different.
        """
        whole = [Entry(index, term, EntryKind.DATA, data) for index, term, data in entries]
        self._entries.append(whole)
        self._store.apply(whole)
        if self._entries.size_bytes > self._retained_bytes:
            self._entries.drop(self._retained_bytes // 2)
        marks, self._store.marks = self._store.marks, []
        return [self._passed(mark) for mark in marks]

    def _passed(self, mark: Mark) -> ReplayedMark:
        self._store.let_go(mark)
        return ReplayedMark(mark.number, mark.index, mark.kept)

    def compact(self) -> None:
        """Leave only live rows on disk, and blob files of which nearly all is alive."""
        self._entries.drop(0)
        self._store.bodies.empty_all_sparse(ALIVE_SHARE_MIN)
        self._store.bodies.settle()
        self._store.flush()
        self._store.state.compact()

    def verify_bodies(self) -> int:
        """Read the body of every position; return how many there are. Raises BodyDamaged."""
        count, low = 0, b""
        while True:
            rows = self.state.scan(Table.POSITION, low, _KEY_END, _SCAN_ROWS)
            self._store.bodies.read_all(_places([row for _, row in rows]))
            count += len(rows)
            if len(rows) < _SCAN_ROWS:
                return count
            low = rows[-1][0] + b"\0"

    def snapshot(self) -> SnapshotSource:
        """Return the state as a stream."""
        return self._store.snapshot(self._store.applied.index)

    def close(self) -> None:
        """Close and remove the folder."""
        self._store.close()
        shutil.rmtree(self._path, ignore_errors=True)


def _places(rows: Sequence[bytes]) -> BodyPlaces:
    fields = [POSITION_ROW.unpack(row)[_BODY_FIELDS] for row in rows]
    return BodyPlaces(*zip(*fields, strict=True)) if fields else BodyPlaces((), (), (), (), ())


class _Nothing:
    """A hold that does nothing; implements `raft.machine.Hold`."""

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _RecentEntries(LogReader):
    """The newest entries, in memory; implements `raft.machine.LogReader`.

    Only `drop` removes entries, between calls of the store, so holds need not do anything.
    """

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._data: dict[int, bytes] = {}
        self._on_retire: list[Callable[[int, int], None]] = []
        self.size_bytes = 0
        self.last = 0

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, indexes ascending."""
        for entry in entries:
            self._order.append(entry.index)
            self._data[entry.index] = entry.data
            self.size_bytes += len(entry.data)
            self.last = entry.index

    def drop(self, keep_bytes: int) -> None:
        """Drop the oldest entries until the others have at most `keep_bytes`."""
        left, going = self.size_bytes, []
        for index in self._order:
            if left <= keep_bytes:
                break
            left -= len(self._data[index])
            going.append(index)
        if not going:
            return
        for retire in self._on_retire:
            retire(going[0], going[-1])
        for index in going:
            self._order.popleft()
            del self._data[index]
        self.size_bytes = left

    @override
    def read(self, index: int, offset: int, length: int) -> bytes:
        data = self.read_entry(index)
        if offset + length > len(data):
            raise ValueError(f"entry {index} has {len(data)} bytes, not {offset + length}")
        return data[offset : offset + length]

    @override
    def read_entry(self, index: int) -> bytes:
        data = self._data.get(index)
        if data is None:
            raise Compacted(f"entry {index}") if index <= self.last else Unavailable(f"{index}")
        return data

    @override
    def hold(self, index: int) -> Hold:
        del index
        return _Nothing()

    @override
    def retirable(self, index: int) -> int:
        """Return the index below the oldest entry: only `drop` removes entries."""
        return min(index, self._order[0] - 1 if self._order else self.last)

    @override
    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        self._on_retire.append(callback)

"""The state machine that consensus drives: entries in, `Applied` out, everything on disk.

What is durable when: the log has an entry before it is applied. `apply` changes the state, which
readers see at once. `settle` writes one batch with the applied index for each call of `apply`,
unsynced: it may wait until callers have their results, but every other operation here calls it
first. `flush` makes the state durable, and only then `durable_index` rises, up to which the log may
drop entries; their live bodies were copied and synced before (qm.store.bodies.body_places). After
a crash the state is some prefix of the batches, and the log replays the rest.
"""

import contextlib
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from typing_extensions import override

from qm.model.machine import Machine
from qm.model.queries import View
from qm.model.state.tables import Table
from qm.model.values.commands import AuditMark, AuditResult, CommandBatch, LeaderActivated
from qm.model.values.effects import Applied
from qm.model.values.limits import ALARM_DIVERGED, APPLY_VERSION
from qm.store.audit import Mark, MarkCopy, MarkGone, copied
from qm.store.bodies.body_places import Bodies
from qm.store.codec import decode_entry
from qm.store.database import Database, DatabaseFull
from qm.store.digest import digest_bytes
from qm.store.effects.chain import EntryChain
from qm.store.effects.effects_log import INDEX_END, INDEX_KEY, EffectsLog
from qm.store.generation import (
    BLOB_FOLDER,
    STATE_FOLDER,
    current_generation,
    folder,
    remove_others,
    switch_to,
)
from qm.store.rocks import BLOCK_CACHE_BYTES, AppliedPoint, RocksState, open_database
from qm.store.snapshot import Pinned, StoreSnapshot, unpack
from raft.log.disk import DiskDirectory
from raft.log.files import DirectoryTree, FatalDiskError
from raft.machine import Hold, LogReader, SnapshotSink, SnapshotSource
from raft.replica import StartRefused
from raft.types import Entry, EntryKind, SnapshotMeta

logger = logging.getLogger(__name__)

_PINNED_FOLDER: Final = "pinned"
_AUDIT_FOLDER: Final = "audit"
_INCOMING: Final = "incoming"
_AUDITS: Final = frozenset({AuditMark, AuditResult})


class _Unkept(NamedTuple):
    """An entry that was applied and not yet settled."""

    entry: Entry
    batch: CommandBatch
    kinds: Set[type]
    """Types of its commands."""
    applied: Applied
    may_begin: bool
    """Right after the entry the state has a chain, which may have begun with it."""


REPLAYED_TOGETHER_MAX: Final = 64
"""Entries between two writes when a reopened state is brought up to date."""
MARKS_KEPT_MAX: Final = 64
"""Own digests kept until the results of their marks arrive."""


class _Applied(msgspec.Struct, gc=False):
    """A range of DATA entries of one term without a gap."""

    first: int
    last: int
    term: int


class Diverged(Exception):
    """This node's state differs from the majority's: it stops, and rejoins from its peers."""


class Store:
    """Implements `raft.machine.StateMachine`, except that `snapshot` blocks
    (qm.node.replica.snapshot_source makes pictures beside the loop).
    """

    def __init__(
        self,
        path: Path,
        log: LogReader,
        *,
        cache_bytes: int = BLOCK_CACHE_BYTES,
        keeps_effects: bool = False,
        directory: Callable[[Path], DirectoryTree] = DiskDirectory,
    ) -> None:
        """`path`: a folder of its own, created if absent. `keeps_effects`: keep effects for an
        archiver (`kept`); otherwise those of an earlier process are dropped. Raises StartRefused
        for the state of a newer build.
        """
        self._path = path
        self._open_directory = directory
        path.mkdir(parents=True, exist_ok=True)
        self._directory = directory(path)
        self._log = log
        self._cache_bytes = cache_bytes
        self._keeps_effects = keeps_effects
        self.marks: list[Mark] = []
        """Marks that were applied, until the auditor takes them to report their digests."""
        self._own_marks: dict[int, bytes] = {}
        self._pinned: dict[int, Mark] = {}
        self._snapshots = 0
        self._unflushed: deque[_Applied] = deque()
        """Entries that were applied and are not known to be on disk, ascending."""
        self._is_open = False
        log.on_retire(self._retire)
        for leftover in (_PINNED_FOLDER, _AUDIT_FOLDER):
            shutil.rmtree(path / leftover, ignore_errors=True)
        try:
            self._open()
        except BaseException:
            self._directory.close()
            raise

    def _open(self) -> None:
        """Open the current generation."""
        self._generation = current_generation(self._directory)
        remove_others(self._directory, self._generation)
        here = folder(self._path, self._generation)
        self._begin(open_database(here / STATE_FOLDER, cache_bytes=self._cache_bytes))

    def _begin(self, database: Database) -> None:
        """Use an open database of the current generation; closes it after an error."""
        try:
            self._use(database)
        except OSError:
            database.close()
            raise
        self._is_open = True

    def _use(self, database: Database) -> None:
        self._state = RocksState(database)
        self._unsettled: Entry | None = None
        """The last entry that was applied, until its batch is written."""
        self._unkept: list[_Unkept] = []
        self._durable_index = self._state.applied.index
        self._refuse_newer()
        self._machine = Machine(self._state)
        self._chain = EntryChain(self._state)
        self.kept: EffectsLog | None = None
        """Effects of entries for the archive; another object after an install."""
        if self._keeps_effects:
            self.kept = EffectsLog(self._state)
        else:
            self._state.drop_table(Table.EFFECTS)
        self._kept_flushed_bytes = 0
        here = folder(self._path, self._generation)
        blobs = self._open_directory(here).subdirectory(BLOB_FOLDER)
        try:
            self.bodies = Bodies(self._state, self._log, blobs, self.settle)
        except OSError:
            blobs.close()
            raise

    def _refuse_newer(self) -> None:
        version = View.of(self._state).counters().apply_version
        if version > APPLY_VERSION:
            self._state.close()
            raise StartRefused(
                f"the state is at apply version {version}, this build knows up to {APPLY_VERSION}:"
                " start the build that wrote it, or a newer one"
            )

    def _retire(self, first: int, last: int) -> None:
        """Copy bodies before the log drops entries; `bodies` is replaced by an install."""
        self._check_open()
        self.bodies.retire(first, last)

    # raft.machine.StateMachine -----------------------------------------------------------

    def applied_index(self) -> int:
        """Return the last index that the state contains."""
        return self.applied.index

    @property
    def applied(self) -> AppliedPoint:
        """Index, term and digest of the state."""
        with contextlib.suppress(DatabaseFull):  # `apply` reports a full disk
            self.settle()
        return self._state.applied

    @property
    def is_chained(self) -> bool:
        """Whether entries are chained: a member archives, or has archived."""
        return self._chain.is_kept

    @property
    def view(self) -> View:
        """The state for queries, between calls of `apply`; another object after `install`."""
        return self._machine.view

    @property
    def state(self) -> RocksState:
        """The state for readers between entries; another object after an install."""
        return self._state

    def durable_index(self) -> int:
        """Return the index up to which the state survives a power loss without the log."""
        return self._durable_index

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        """Apply entries. Raises UnknownCommand, Diverged: the node must stop; and DatabaseFull,
        having applied nothing: see `reopen`.
        """
        results = self._apply(entries)
        self._note_unflushed(entries)
        return results

    def _note_unflushed(self, entries: Sequence[Entry]) -> None:
        noted = self._unflushed
        while noted and noted[0].last <= self._durable_index:
            noted.popleft()
        for entry in entries:
            if noted and (entry.index, entry.term) == (noted[-1].last + 1, noted[-1].term):
                noted[-1].last = entry.index
            else:
                noted.append(_Applied(entry.index, entry.index, entry.term))

    def _apply(self, entries: Sequence[Entry]) -> list[Applied]:
        self.settle()
        results: list[Applied] = []
        unkept: list[_Unkept] = []
        for entry in entries:
            batch = decode_entry(entry.index, entry.data)
            applied = self._machine.apply(batch, settle=False)
            results.append(applied)
            kinds = {*map(type, batch.commands)}
            # Ask now, since a later entry of the run may begin the chain.
            may_begin = LeaderActivated in kinds and self._chain.is_in_state
            unkept.append(_Unkept(entry, batch, kinds, applied, may_begin))
            if not kinds.isdisjoint(_AUDITS):
                self._put_off(unkept)
                unkept = []
                self._audit(entry, batch, applied)
        self._put_off(unkept)
        return results

    def _put_off(self, unkept: list[_Unkept]) -> None:
        if unkept:
            self._machine.settle()
            self._unkept += unkept
            self._unsettled = unkept[-1][0]

    def settle(self) -> None:
        """Write what was applied, in the thread that applies.

        Raises DatabaseFull: readers still see what was applied, but it is not in the database.
        """
        if self._unsettled is None:
            return
        unkept, self._unkept = self._unkept, []
        if self.kept is not None:
            self.kept.begin_run([one.applied.removed_queue_names for one in unkept])
        for entry, batch, kinds, applied, may_begin in unkept:
            link = self._chain.advance(entry.term, entry.data, batch, may_begin=may_begin)
            if self.kept is not None and link is not None:
                self.kept.keep(entry, batch, kinds, applied, link)
        self._chain.settle()
        self._state.commit(self._unsettled.index, self._unsettled.term)
        self._unsettled = None

    def _audit(self, entry: Entry, batch: CommandBatch, applied: Applied) -> None:
        for command in batch.commands:
            if isinstance(command, AuditMark):
                self._mark(command, entry)
            elif isinstance(command, AuditResult):
                self._compare(command)
                if len(set(command.digests.values())) > 1:
                    applied.alarms.append(ALARM_DIVERGED)  # another node diverged; tell operators

    def snapshot(self, meta_index: int) -> SnapshotSource:
        """Return a picture of the state, whose applied index must be `meta_index`."""
        self.settle()
        assert meta_index == self._state.applied.index, "a snapshot of another index"
        return StoreSnapshot.at_once(*self._to_pin())

    def pin(self) -> Pinned:
        """Pin the state as it is now; its stream can be made in another thread."""
        return Pinned(*self._to_pin())

    def _to_pin(self) -> tuple[RocksState, Path, LogReader, Path]:
        self._check_open()
        self.settle()
        self._snapshots += 1
        blobs = folder(self._path, self._generation) / BLOB_FOLDER
        pinned = self._path / _PINNED_FOLDER / f"{self._snapshots}"
        return self._state, blobs, self._log, pinned

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        """Begin, or resume, receiving the snapshot that `meta` names."""
        return _Sink(self, self._path, self._directory, meta)

    def install(self, stream: Path, meta: SnapshotMeta) -> None:
        """Replace the state by a received stream; if it raises SnapshotDamaged, nothing changed."""
        fresh = self._generation + 1
        target = folder(self._path, fresh)
        try:
            with stream.open("rb") as file:
                unpack(file, self._directory, target, meta.index, meta.term)
            database = open_database(target / STATE_FOLDER, cache_bytes=self._cache_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                self._directory.remove_tree(target.name)  # free its space: it did not fit
            raise
        try:
            switch_to(self._directory, fresh)
        except OSError:
            database.close()
            raise
        # From here on the old state cannot be restored.
        self.close()
        self._unflushed.clear()  # the log restarts behind the snapshot
        self._generation = fresh
        try:
            self._begin(database)
            remove_others(self._directory, fresh)
        except OSError as error:
            raise FatalDiskError(f"a state that was received cannot be used: {error}") from error

    # Disks without space ------------------------------------------------------------------

    @property
    def needs_reopening(self) -> bool:
        """Whether the database ran out of space and refuses writes until it is opened again."""
        return not self._is_open or self._state.is_refusing

    @property
    def lack(self) -> int:
        """What the database lacked: the `errno` of DatabaseFull."""
        return self._state.lack

    def _check_open(self) -> None:
        if not self._is_open:
            raise DatabaseFull("it could not be opened again yet", self.lack)

    def reopen(self) -> None:
        """Open the state again as it is on disk, and replay the log up to where it was.

        Call it in a thread while the state is not in use, and again after DatabaseFull: until it
        returns, nothing can be read. Raises FatalDiskError, DatabaseDamaged.
        """
        self.close()
        self._open()
        index = self._state.applied.index
        logger.warning("the state is opened again at %d", index)
        self.marks.clear()  # the replay adds those that it passes again
        with self._log.hold(index + 1):
            entries = self._entries_above(index)
            while run := [*islice(entries, REPLAYED_TOGETHER_MAX)]:
                self._apply(run)
                self.settle()

    def _entries_above(self, index: int) -> Iterator[Entry]:
        for applied in tuple(self._unflushed):
            for k in range(max(applied.first, index + 1), applied.last + 1):
                data = bytes(self._log.read_entry(k))
                yield Entry(k, applied.term, EntryKind.DATA, data)

    # For the archive ----------------------------------------------------------------------

    def hold_log(self, index: int) -> Hold:
        """Keep an entry and all later ones in the log. Raises Compacted if it has been dropped."""
        return self._log.hold(index)

    def read_entry(self, index: int) -> bytes | memoryview:
        """Return a held entry's data. Raises Compacted, Unavailable, LogDamaged."""
        return self._log.read_entry(index)

    def kept_rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        """Return (index, EFFECTS row) of the next kept entries as of the last commit. May be called
        from any thread while the state is open.
        """
        self._check_open()
        low = INDEX_KEY.pack(above + 1)
        rows = self._state.scan_committed(Table.EFFECTS, low, INDEX_END, limit)
        return [(int.from_bytes(key, "big"), row) for key, row in rows]

    # Audit marks -------------------------------------------------------------------------

    def _mark(self, command: AuditMark, entry: Entry) -> None:
        """Note the digest at exactly this entry, and pin the rows for `copy_at`."""
        try:
            self.settle()
        except DatabaseFull:
            # The entries of this run that were applied before cannot be undone. The mark is applied
            # again when the state is reopened.
            return
        kept = digest_bytes(self._state.applied.digest)
        mark = Mark(command.number, entry.index, kept, self._state.pin())
        self.marks.append(mark)
        self._pinned[mark.number] = mark
        self._own_marks[command.number] = kept
        if self.kept is not None:
            self.kept.marks.append(entry.index)
        while len(self._own_marks) > MARKS_KEPT_MAX:
            del self._own_marks[next(iter(self._own_marks))]

    def copy_at(self, mark: Mark) -> MarkCopy:
        """Copy the state as it is now, for the proof of a mark that was applied to it; once.

        May be called from any thread while the state is not closed or replaced. Raises MarkGone,
        DatabaseFull: then there is no proof of this mark.
        """
        if mark.pinned.is_released:
            raise MarkGone(f"audit mark {mark.number}: its state was closed")
        folder = self._path / _AUDIT_FOLDER / f"{mark.number}"
        folder.parent.mkdir(exist_ok=True)
        try:
            # Flush here, beside other threads: the checkpoint, which stops them, has less to do.
            self.flush()
            self._state.checkpoint(folder)
            return copied(mark, folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self.let_go(mark)

    def let_go(self, mark: Mark) -> None:
        """Release a mark whose proof is not wanted. A second call does nothing."""
        self._pinned.pop(mark.number, None)
        mark.pinned.release()

    def _compare(self, command: AuditResult) -> None:
        """Stop if in the minority; without a majority all stop (DESIGN section 4, Digests)."""
        mine = self._own_marks.get(command.number)
        if mine is None:
            return  # a snapshot brought this node past the mark
        counts = sorted(
            (list(command.digests.values()).count(digest), digest)
            for digest in set(command.digests.values())
        )
        count, majority = counts[-1] if counts else (0, b"")
        if 2 * count <= len(command.digests):
            raise Diverged(
                f"audit mark {command.number}: no digest has a majority of"
                f" {len(command.digests)} members; stop the cluster and restore from a backup"
            )
        if mine != majority:
            raise Diverged(
                f"audit mark {command.number}: this node's state differs from the majority's;"
                " remove its data and let it rejoin"
            )

    def verify(self) -> bool:
        """Read every row and return whether they give the running digest."""
        self.settle()
        return self._state.computed_digest() == self._state.applied.digest

    # Durability --------------------------------------------------------------------------

    def flush(self) -> None:
        """Make the state durable as it is now; the log may then drop the entries up to it.

        Raises DatabaseFull, FatalDiskError.
        """
        self._check_open()
        index, recorded = self._state.applied.index, self.bodies.recorded
        kept_bytes = self._kept_bytes()
        self._state.flush()
        self._durable_index = index
        self._kept_flushed_bytes = kept_bytes
        self.bodies.flushed(recorded)

    def unflushed_bytes(self) -> int:
        """Return about how much a flush must process, without the rows for the archive, which are
        one for each entry and take little time.
        """
        return self._state.unflushed_bytes() - self._kept_bytes() + self._kept_flushed_bytes

    def _kept_bytes(self) -> int:
        return 0 if self.kept is None else self.kept.written_bytes

    def close(self) -> None:
        """Close; changes that were not flushed are replayed from the log."""
        for mark in list(self._pinned.values()):
            self.let_go(mark)
        if self._is_open:
            self.bodies.close()
            self._close_state()
        self._directory.close()

    def _close_state(self) -> None:
        self._is_open = False
        try:
            self._state.close()
        except DatabaseFull as error:
            logger.warning("unflushed changes will be replayed from the log: %s", error)


class _Sink(SnapshotSink):
    """Writes a stream to a file; implements `raft.machine.SnapshotSink`."""

    def __init__(
        self, store: Store, path: Path, directory: DirectoryTree, meta: SnapshotMeta
    ) -> None:
        """`path`: the folder of `directory`. It may have a part of the same stream, or of another
        one, which is removed.
        """
        self._store = store
        self._path = path
        self._directory = directory
        self._name = f"{_INCOMING}-{meta.index}-{meta.term}-{meta.identity.hex()}"
        self._meta = meta
        for other in directory.names():
            # Without an identity a stream cannot be recognized as the same.
            is_same = other == self._name and meta.identity
            if other.startswith(f"{_INCOMING}-") and not is_same:
                directory.unlink(other)
        file = directory.open(self._name, create=True)
        self._size = file.size()
        file.close()

    @override
    def offset(self) -> int:
        return self._size

    @override
    def write(self, chunk: bytes) -> None:
        """Write at the chunk's offset: a part that a full disk took is written again."""
        file = self._directory.open(self._name, create=True)
        try:
            file.pwrite(chunk, self._size)
        finally:
            file.close()
        self._size += len(chunk)

    @override
    def finish(self) -> None:
        try:
            self._store.install(self._path / self._name, self._meta)
        finally:
            self.abandon()

    @override
    def abandon(self) -> None:
        if self._name in self._directory.names():
            self._directory.unlink(self._name)
        self._size = 0

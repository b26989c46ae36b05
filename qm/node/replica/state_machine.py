"""The store as Raft drives it: outcomes for proposers, effects for listeners."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import override

from qm.model.values.effects import Applied, Outcome
from qm.node.platform import Workers
from qm.node.replica.skipped_entries import SkippedEntries, explained
from qm.node.replica.snapshot_source import Pictures
from qm.store.audit import Mark, MarkCopy
from qm.store.bodies.blobs import BlobRemoval, BlobSync
from qm.store.bodies.body_places import Bodies
from qm.store.codec import UnknownCommand
from qm.store.database import DatabaseFull
from qm.store.snapshot import Pinned
from qm.store.store import Diverged, Store
from raft.driver import end_process
from raft.log.files import FatalDiskError
from raft.machine import SnapshotSink, SnapshotSource, StateMachine
from raft.types import Entry, SnapshotMeta


class AppliedStore(StateMachine[Sequence[Outcome]]):
    """Implements `raft.machine.StateMachine` with one Outcome for each command of an entry."""

    def __init__(
        self,
        store: Store,
        on_applied: Callable[[Sequence[Applied]], None],
        on_installed: Callable[[], None],
        on_diverged: Callable[[str], None],
        die: Callable[[str], None] = end_process,
        skipped: SkippedEntries | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`on_applied` is called for every run of entries when it is in the state; `on_installed`
        for a snapshot that replaced the state, in the thread that installs; `on_diverged` before
        the error of a state that differs from the majority's ends this process. `die` ends it when
        the disk failed in work other than Raft's. `skipped`: entries that do nothing.
        """
        self.store = store
        self._is_replaced = False
        self._is_reopened = False
        self.applied_bytes = 0
        """Bytes of entries applied; a flush resets it."""
        self.files = threading.Lock()
        """Held while a thread opens, closes, flushes or scans the state."""
        self.is_closed = False
        self._pictures = Pictures(workers=workers)
        self._on_applied = on_applied
        self._on_installed = on_installed
        self._on_diverged = on_diverged
        self._die = die
        self._skipped = skipped

    @property
    def is_installing(self) -> bool:
        """Whether another thread replaces the state by a snapshot, or opens it again: it must not
        be read.
        """
        return self._is_replaced or self._is_reopened

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """End the process on an error that a waiting caller might survive but the node must not."""
        try:
            yield
        except FatalDiskError as error:
            self._die(str(error))
            raise

    @override
    def applied_index(self) -> int:
        return self.store.applied_index()

    @override
    def durable_index(self) -> int:
        return self.store.durable_index()

    @override
    def apply(self, entries: Sequence[Entry]) -> Sequence[Sequence[Outcome]]:
        """Raises DatabaseFull until the state was opened again."""
        self._check_open()
        if self._skipped is not None:
            entries = self._skipped.without(entries)
        try:
            run = self.store.apply(entries)
        except UnknownCommand as error:
            raise explained(entries, error) from error
        except Diverged as error:
            self._on_diverged(str(error))
            raise
        self.applied_bytes += sum(len(entry.data) for entry in entries)
        self._on_applied(run)
        return [applied.outcomes for applied in run]

    @override
    def settle(self) -> None:
        """Raises DatabaseFull."""
        self._check_open()
        self.store.settle()

    def _check_open(self) -> None:
        if self._is_reopened:
            raise DatabaseFull("it is being opened again", self.store.lack)

    def flush(self) -> None:
        """Make the state durable; may run beside everything else."""
        with self._fatal(), self.files:
            if not self.is_closed:
                self.store.flush()

    def pin(self) -> Pinned:
        """Pin the state as it is now. Raises DatabaseFull while it is opened again."""
        self._check_open()
        with self._fatal():
            return self.store.pin()

    # Disks without space

    def begin_reopening(self) -> bool:
        """Return whether the state must be opened again: then call `reopen` in a thread, and do not
        read the state until it has returned.
        """
        self._is_reopened = self.store.needs_reopening and not self._is_replaced
        return self._is_reopened

    def reopen(self) -> None:
        """Open the state again. Raises DatabaseFull: try again, and read nothing before."""
        with self._fatal(), self.files:
            # A snapshot may have come in the meantime, or this node may be closing.
            if not self.is_closed and self.store.needs_reopening:
                self.store.reopen()
        self._is_reopened = False

    # In threads

    def copy_at(self, mark: Mark) -> MarkCopy:
        """Copy the state for a mark's proof; may run beside everything else. Raises MarkGone."""
        with self._fatal(), self.files:
            return self.store.copy_at(mark)

    def work_on(self, bodies: Bodies, work: BlobSync | BlobRemoval) -> None:
        """Make copies of bodies durable, or remove empty files; may run beside everything else."""
        with self._fatal(), self.files:
            if self.store.bodies is bodies:
                work.run()

    def make_durable(self, work: Callable[[], None]) -> None:
        """Do work beside the state whose sync must not fail; in any thread."""
        with self._fatal():
            work()

    def close(self) -> None:
        """Close the state, once no flush is running."""
        self._pictures.drop()
        with self.files:
            self.is_closed = True
            self.store.close()

    def install(self, sink: SnapshotSink) -> None:
        """Let a received snapshot replace the state."""
        self._is_replaced = True
        try:
            # It is of a state that is gone, and of a log that no longer continues it.
            self._pictures.drop()
            with self.files:
                sink.finish()
        finally:
            self._is_replaced = False
        self._on_installed()

    @override
    def snapshot(self, meta_index: int) -> tuple[int, SnapshotSource] | None:
        """Pin the snapshot at once, and list it in a thread."""
        self._check_open()
        return self._pictures.ask(self.store)

    @override
    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        return _Sink(self, self.store.receive_snapshot(meta))


class _Sink:
    """Marks the time during which its snapshot is being installed."""

    def __init__(self, owner: AppliedStore, sink: SnapshotSink) -> None:
        self._owner = owner
        self._sink = sink
        self.offset = sink.offset
        self.write = sink.write
        self.abandon = sink.abandon

    def finish(self) -> None:
        """Install the snapshot."""
        self._owner.install(self._sink)

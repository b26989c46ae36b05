"""The state machine that consensus drives: entries in, `Applied` out, everything on disk.

What is durable when: the log holds an entry before it is applied. `apply` writes one batch per call
with the applied index inside, unsynced. `flush` makes the state durable, and only then
`durable_index` rises, below which the log may drop entries; their live bodies were copied and
synced before (qm.store.bodies). After a crash the state is some prefix of the batches, and the log
replays the rest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from qm.model.commands import AuditMark, AuditResult
from qm.model.effects import Applied
from qm.model.machine import Machine
from qm.store.bodies import Bodies
from qm.store.codec import decode_entry
from qm.store.digest import digest_bytes
from qm.store.rocks import BLOCK_CACHE_BYTES, RocksState, open_database
from raft.files import Directory
from raft.machine import LogReader
from raft.types import Entry

DATABASE_FOLDER: Final = "state"
BLOB_FOLDER: Final = "blobs"
MARKS_KEPT_MAX: Final = 64
"""Own digests kept for results that are still to come."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """This node's digest at an AuditMark entry; to be told to all members."""

    number: int
    index: int
    digest: bytes


class Diverged(Exception):
    """This node's state is not the majority's: it stops, and rejoins from its peers."""


class Store:
    """Implements `raft.machine.StateMachine`."""

    def __init__(
        self,
        path: Path,
        directory: Directory,
        log: LogReader,
        *,
        cache_bytes: int = BLOCK_CACHE_BYTES,
    ) -> None:
        """`path` and `directory` are one folder, for RocksDB and for blob files."""
        self._path = path
        self._directory = directory
        self._log = log
        database = open_database(path / DATABASE_FOLDER, cache_bytes=cache_bytes)
        self._state = RocksState(database)
        self._durable_index = self._state.applied.index
        self._machine = Machine(self._state)
        self.bodies = Bodies(self._state, log, directory.subdirectory(BLOB_FOLDER))
        self.marks: list[Mark] = []
        """Marks that were applied and not yet told; whoever tells them takes them."""
        self._own_marks: dict[int, bytes] = {}

    # raft.machine.StateMachine -----------------------------------------------------------

    def applied_index(self) -> int:
        """See StateMachine.applied_index."""
        return self._state.applied.index

    def durable_index(self) -> int:
        """See StateMachine.durable_index."""
        return self._durable_index

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        """See StateMachine.apply. Raises UnknownCommand, Diverged: the node must stop."""
        results = []
        for entry in entries:
            batch = decode_entry(entry.index, entry.data)
            results.append(self._machine.apply(batch))
            for command in batch.commands:
                if isinstance(command, AuditMark):
                    self._mark(command, entry)
                elif isinstance(command, AuditResult):
                    self._compare(command)
        if entries:
            self._state.commit(entries[-1].index, entries[-1].term)
        return results

    # Audit marks -------------------------------------------------------------------------

    def _mark(self, command: AuditMark, entry: Entry) -> None:
        """The digest at exactly this entry, from the rows as they are on this disk."""
        self._state.commit(entry.index, entry.term)
        mark = Mark(command.number, entry.index, digest_bytes(self._state.applied.digest))
        self.marks.append(mark)
        self._own_marks[command.number] = mark.digest
        while len(self._own_marks) > MARKS_KEPT_MAX:
            del self._own_marks[next(iter(self._own_marks))]

    def _compare(self, command: AuditResult) -> None:
        """A minority stops itself; without a majority all stop (DESIGN section 4, Digests)."""
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
        """Read every row and compare with the digest that was kept along the way."""
        return self._state.computed_digest() == self._state.applied.digest

    # Durability --------------------------------------------------------------------------

    def flush(self) -> None:
        """Make the state durable as it is now; the log may then drop what lies before."""
        index = self._state.applied.index
        self._state.flush()
        self._durable_index = index

    def close(self) -> None:
        """Close; what was not flushed is replayed from the log."""
        self.bodies.close()
        self._state.close()

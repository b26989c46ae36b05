"""Receiving and installing a snapshot so that a crash at any point leaves one whole state.

The state machine's sink holds the bytes; here stand the rules: which snapshot is received,
where a broken transfer resumes, and the order of installing:

1. note `meta` durably in the file `install` (from here a restart finishes or forgets it);
2. the sink verifies the bytes and makes the state durable at `meta.index`;
3. the log restarts behind `meta`, synced;
4. the note goes.
"""

from raft.files import Directory
from raft.log import Log
from raft.machine import StateMachine
from raft.types import NodeId, SnapshotMeta


class SnapshotReceiver:
    """At most one snapshot on its way in. Owner's thread only, except `finish`."""

    def __init__(self, directory: Directory, machine: StateMachine[object]) -> None:
        raise NotImplementedError

    @property
    def meta(self) -> SnapshotMeta | None:
        """Of the snapshot on its way, or None."""
        raise NotImplementedError

    def receive(self, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes) -> int:
        """Take a chunk; return the offset wanted next (`meta.size_bytes`: it is whole).

        A chunk at another offset than the wanted one, or one that overruns the size, changes
        nothing. A newer snapshot, or the same one from another sender, replaces what is held;
        an older one is answered with its size, which ends the transfer.
        """
        raise NotImplementedError

    def is_whole(self) -> bool:
        """Return whether all bytes are here and `finish` may be called."""
        raise NotImplementedError

    def finish(self) -> SnapshotMeta:
        """Steps 1 and 2; blocks, may run in another thread while nothing else is called here.

        Then the owner does `log.reset(meta)`, a sync, and `installed()`. Raises ValueError when
        the bytes do not prove themselves: all of them are forgotten, the transfer starts again.
        """
        raise NotImplementedError

    def installed(self) -> None:
        """Step 4, after the log's sync."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Forget what was received (a newer leader appends instead)."""
        raise NotImplementedError


def recover(directory: Directory, log: Log, machine: StateMachine[object]) -> None:
    """After a restart: finish an installation that passed step 2, forget one that did not.

    Call it before the log and the state machine are used. Blocks. Raises LogFull,
    FatalDiskError.
    """
    raise NotImplementedError

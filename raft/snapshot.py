"""Receiving and installing a snapshot so that a crash at any point leaves one whole state.

The state machine's sink holds the bytes; this module has the rules: which snapshot is received,
where a broken transfer resumes, and the order of installing:

1. note `meta` durably in the file `install` (from here on a restart finishes or discards it);
2. the sink verifies the bytes and makes the state durable at `meta.index`;
3. the log restarts behind `meta`, synced;
4. the note is removed.
"""

from raft.log.checked_file import read_checked, remove_checked, replace_checked
from raft.log.files import Directory
from raft.log.log import Log
from raft.log.record import decode_meta, encode_meta
from raft.log.segment import may_pass
from raft.machine import SnapshotSink, StateMachine
from raft.types import SNAPSHOT_REFUSED, NodeId, SnapshotMeta

INSTALL_FILE = "install"
NOTE_MAX_BYTES = 1 << 20

_MAGIC = b"qrinst\0\x01"
"""The last byte is the version of the format."""


class SnapshotReceiver:
    """Receives at most one snapshot at a time. Owner's thread only, except `finish`."""

    def __init__(self, directory: Directory, machine: StateMachine[object]) -> None:
        self._directory = directory
        self._machine = machine
        self._sender: NodeId | None = None
        self._meta: SnapshotMeta | None = None
        self._sink: SnapshotSink | None = None

    @property
    def meta(self) -> SnapshotMeta | None:
        """The snapshot that is being received, or None."""
        return self._meta

    def receive(self, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes) -> int:
        """Take a chunk; return the offset wanted next (`meta.size_bytes`: it is whole).

        A chunk at another offset than the wanted one, or one that overruns the size, changes
        nothing. A newer snapshot, one of the same index with another identity, or one from another
        sender replaces what is held. Returns `SNAPSHOT_REFUSED` for one that is older than what is
        held, and for one that the disk has no space for: the sender tries again later.
        """
        if self._meta is not None and meta.index < self._meta.index:
            return SNAPSHOT_REFUSED
        try:
            sink = self._sink_for(sender, meta)
            held = sink.offset()
            if offset == held and chunk and held + len(chunk) <= meta.size_bytes:
                sink.write(chunk)
        except OSError as error:
            if not may_pass(error):
                raise
            return SNAPSHOT_REFUSED
        return sink.offset()

    def _sink_for(self, sender: NodeId, meta: SnapshotMeta) -> SnapshotSink:
        """Return the sink for these bytes."""
        if self._sink is not None and (sender, meta) == (self._sender, self._meta):
            return self._sink
        self.abandon()
        sink = self._machine.receive_snapshot(meta)
        # The sink may have bytes of this very stream from before a restart.
        if sink.offset() > meta.size_bytes:
            sink.abandon()
            sink = self._machine.receive_snapshot(meta)
        self._sender, self._meta, self._sink = sender, meta, sink
        return sink

    def is_whole(self) -> bool:
        """Return whether all bytes have arrived and `finish` may be called."""
        meta, sink = self._meta, self._sink
        return meta is not None and sink is not None and sink.offset() == meta.size_bytes

    def finish(self) -> SnapshotMeta:
        """Do steps 1 and 2; blocks. May run in another thread if no other method is called then.

        Afterwards the owner calls `log.reset(meta)` and `installed()`. Raises ValueError when the
        bytes fail the verification, or when there is no space to install them: they are discarded,
        and the transfer starts again.
        """
        if self._meta is None or self._sink is None or not self.is_whole():
            raise ValueError("the snapshot is not whole")
        try:
            _write_note(self._directory, self._meta)
            self._sink.finish()
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and not may_pass(error):
                raise
            self.abandon()
            remove_checked(self._directory, INSTALL_FILE)
            raise ValueError(f"the snapshot cannot be installed: {error}") from error
        return self._meta

    def installed(self) -> None:
        """Do step 4, after the log's reset."""
        self._sender = self._meta = self._sink = None
        remove_checked(self._directory, INSTALL_FILE)

    def abandon(self) -> None:
        """Discard what was received (a newer leader appends instead)."""
        if self._sink is not None:
            self._sink.abandon()
        self._sender = self._meta = self._sink = None


def recover(directory: Directory, log: Log, machine: StateMachine[object]) -> None:
    """Finish, after a restart, an installation that passed step 2, or discard one that did not.

    Call it before the log and the state machine are used. Blocks. Raises LogFull, FatalDiskError.
    """
    if INSTALL_FILE not in directory.names():
        return
    meta = _read_note(directory)
    # A note that cannot be read was not needed, or else state and log contradict each other and
    # the replica refuses to start.
    if meta is not None and machine.applied_index() == meta.index and not _has(log, meta):
        log.reset(meta)
    remove_checked(directory, INSTALL_FILE)


def _has(log: Log, meta: SnapshotMeta) -> bool:
    """Return whether the log continues the state of a snapshot."""
    if meta.index < log.first_index():
        return meta.index < log.first_index() - 1 or log.term(meta.index) == meta.term
    return meta.index <= log.last_index() and log.term(meta.index) == meta.term


def _write_note(directory: Directory, meta: SnapshotMeta) -> None:
    """Note durably that `meta` is about to be installed. Raises OSError."""
    replace_checked(directory, INSTALL_FILE, _MAGIC, encode_meta(meta))


def _read_note(directory: Directory) -> SnapshotMeta | None:
    """Return the note, or None when it is damaged."""
    body = read_checked(directory, INSTALL_FILE, _MAGIC, NOTE_MAX_BYTES)
    return None if body is None else decode_meta(body)

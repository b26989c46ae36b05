"""What consensus requires of the state machine that it drives (DESIGN section 9, contract 2)."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from raft.types import Entry, SnapshotMeta

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Hold(Protocol):
    """Keeps an entry of the log, and all later ones, readable. Also a context manager."""

    def release(self) -> None:
        """Allow the log to drop them. A second call does nothing."""

    def __enter__(self) -> "Hold":
        """Return this hold."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the entries."""


class LogReader(Protocol):
    """The log as the state machine may use it: bodies stay where they were written (DESIGN
    section 3, Bodies are generational). `raft.log.log.Log` implements it.
    """

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` of an entry's data, reading nothing else.

        The checksum is not checked: callers have their own. May be called from any thread while the
        index is held. Raises Compacted, Unavailable, and ValueError for a range outside the entry.
        """

    def read_entry(self, index: int) -> bytes | memoryview:
        """Return an entry's data, checked against its checksum.

        May be called from any thread while the index is held. Raises Compacted, Unavailable, and
        LogDamaged when the disk returns other bytes than were written.
        """

    def hold(self, index: int) -> Hold:
        """Keep the entry and all later ones. Raises Compacted if it has been dropped already."""

    def retirable(self, index: int) -> int:
        """Return the last index that would be dropped if nothing at or below `index` were needed.

        Only whole segments are dropped; returns `first_index() - 1` when none would be.
        """

    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        """Have `callback(first_index, last_index)` called before those entries are dropped.

        Calls come oldest range first, in the owner's thread. When the callback returns, whatever is
        needed of the entries must be durable elsewhere; after a crash or on a full disk the same
        range is announced again. If it raises, the entries stay.
        """


class SnapshotSource(Protocol):
    """A consistent picture of the state at one index, pinned until `close`."""

    def size_bytes(self) -> int:
        """Return the length of the stream; the same on every call."""

    def identity(self) -> bytes:
        """Return up to SNAPSHOT_IDENTITY_MAX_BYTES that no stream of other bytes has: a broken
        transfer resumes only with the same stream.
        """

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; b"" only at the end.

        Any offset may be read again: a transfer resumes where it broke.
        """

    def close(self) -> None:
        """Release what the picture holds (log segments, blobs, checkpoints)."""


class SnapshotSink(Protocol):
    """Receives a snapshot beside the live state; nothing is visible before `finish`."""

    def offset(self) -> int:
        """Return how many bytes have been received; a broken transfer resumes here."""

    def write(self, chunk: bytes) -> None:
        """Append a chunk."""

    def finish(self) -> None:
        """Verify the whole stream and make it durable; the state machine is then at its index.
        Raises ValueError when the bytes fail the verification.
        """

    def abandon(self) -> None:
        """Discard what was received."""


class StateMachine(Protocol[ResultT_co]):
    """Deterministic: the same entries in the same order give the same state everywhere."""

    def applied_index(self) -> int:
        """Return the last index that the state contains (after recovery: as found on disk)."""

    def durable_index(self) -> int:
        """Return the index up to which the state survives a power loss without the log.

        The log keeps every entry above it.
        """

    def apply(self, entries: Sequence[Entry]) -> Sequence[ResultT_co]:
        """Apply DATA entries in order and return one result for each of them.

        Never raises for what an entry contains; any exception here stops the replica, except
        OSError for lack of space (ENOSPC): then nothing was applied, and it is called again.
        """

    def settle(self) -> None:
        """Do the work that `apply` put off so that its results are handed out first; any other
        call does that work first, too. It is always called before a snapshot is installed. Raises
        OSError for lack of space (ENOSPC): then it is called again.
        """

    def snapshot(self, meta_index: int) -> tuple[int, SnapshotSource] | None:
        """Return a picture of the state and the index that it was taken at.

        `meta_index` is `applied_index()`. A machine that needs time returns None and holds the log
        from that index on; a later call returns the picture at the index of the first call. Raises
        OSError for lack of space; it may be called again.
        """

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        """Begin, or resume, receiving the snapshot that `meta` names."""

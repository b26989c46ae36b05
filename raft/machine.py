"""What consensus asks of the state machine that it drives (DESIGN section 9, contract 2)."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from raft.types import Entry, SnapshotMeta

ResultT_co = TypeVar("ResultT_co", covariant=True)


class SnapshotSource(Protocol):
    """A consistent picture of the state at one index, pinned until `close`."""

    def size_bytes(self) -> int:
        """Return the length of the stream; the same on every call."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; b"" only at the end.

        Any offset may be asked for again: a transfer resumes where it broke.
        """

    def close(self) -> None:
        """Release what the picture pins (log segments, blobs, checkpoints)."""


class SnapshotSink(Protocol):
    """Receives a snapshot beside the live state; nothing is visible before `finish`."""

    def offset(self) -> int:
        """Return how many bytes are held; a broken transfer resumes here."""

    def write(self, chunk: bytes) -> None:
        """Append a chunk."""

    def finish(self) -> None:
        """Verify the whole stream and make it durable; the state machine now stands at its
        index. Raises ValueError when the bytes do not prove themselves.
        """

    def abandon(self) -> None:
        """Forget what was received."""


class StateMachine(Protocol[ResultT_co]):
    """Deterministic: the same entries in the same order give the same state everywhere."""

    def applied_index(self) -> int:
        """Return the last index whose effect the state contains (after recovery: found on disk)."""

    def durable_index(self) -> int:
        """Return the index up to which the state survives a power loss without the log.

        The log keeps every entry above it.
        """

    def apply(self, entries: Sequence[Entry]) -> Sequence[ResultT_co]:
        """Apply DATA entries in order and return one result for each of them.

        Never raises for what an entry contains; an exception here stops the replica.
        """

    def snapshot(self, meta_index: int) -> SnapshotSource:
        """Return a picture of the state at `applied_index()`, which is `meta_index`."""

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        """Begin, or resume, receiving the snapshot that `meta` names."""

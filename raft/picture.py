"""A picture of the state, from which snapshots are sent to all followers that need one.

A broken transfer resumes with the same picture, so it is kept for a while after its last use,
together with the log that follows it, which the followers need next.
"""

import msgspec

from raft.machine import Hold, SnapshotSource
from raft.types import NodeId, SnapshotMeta


class SnapshotSend(msgspec.Struct, frozen=True):
    """Stream `source` to a follower, close it, then call `Replica.snapshot_done`."""

    to: NodeId
    meta: SnapshotMeta
    source: SnapshotSource


class Picture:
    """A snapshot source with several users."""

    __slots__ = ("_hold", "_is_dropped", "_source", "_users", "idle_ticks", "meta")

    def __init__(self, meta: SnapshotMeta, source: SnapshotSource, hold: Hold) -> None:
        self.meta = meta
        self._source = source
        self._hold = hold
        self._users = 0
        self._is_dropped = False
        self.idle_ticks = 0

    def open(self) -> SnapshotSource:
        """Return a source for one more transfer."""
        self._users += 1
        return _PictureSource(self)

    def tick(self, count: int) -> None:
        """Count how long the picture has been unused."""
        self.idle_ticks = 0 if self._users else self.idle_ticks + count

    def drop(self) -> None:
        """Let no more transfers begin; close the source with the last one that runs."""
        if not self._is_dropped:
            self._is_dropped = True
            self._hold.release()
            self._close_if_unused()

    def read(self, offset: int, length: int) -> bytes:
        """As SnapshotSource.read."""
        return self._source.read(offset, length)

    def leave(self) -> None:
        """Note that a transfer ended."""
        self._users -= 1
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_dropped and self._users == 0:
            self._source.close()


class _PictureSource:
    """The source of one transfer; closing it leaves the others open."""

    __slots__ = ("_is_open", "_picture")

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._is_open = True

    def size_bytes(self) -> int:
        """Return the length of the stream."""
        return self._picture.meta.size_bytes

    def identity(self) -> bytes:
        """As SnapshotSource.identity."""
        return self._picture.meta.identity

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; b"" only at the end."""
        return self._picture.read(offset, length)

    def close(self) -> None:
        """End this transfer."""
        if self._is_open:
            self._is_open = False
            self._picture.leave()

"""What the archiver needs of the node that it runs on."""

from typing import Protocol

from qm.store.effects.effects_log import EffectsLog
from qm.store.rocks import AppliedPoint


class LogGone(Exception):
    """An entry left the log, or the state, before it was exported."""


class LogHold(Protocol):
    """Keeps entries of the log readable."""

    def release(self) -> None:
        """Let them go."""


class StateStream(Protocol):
    """A state as bytes (`qm.store.snapshot`)."""

    def size_bytes(self) -> int:
        """Return the length of the stream; the same on every call."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; b"" only at the end."""


class PinnedState(Protocol):
    """A state as it was at one entry, kept by whatever it needs; in a thread but for its making."""

    @property
    def applied(self) -> AppliedPoint:
        """Which entry that is, and the digest there."""

    def source(self) -> StateStream:
        """Return its stream. Once."""

    def close(self) -> None:
        """Let go of everything, the stream included. Repeating it does nothing."""


class ArchiveSource(Protocol):
    """Kept rows and the log of one node. In the node's loop but for what says otherwise."""

    def keeper(self) -> EffectsLog | None:
        """Return who keeps rows now; None while a snapshot replaces the state, another one after
        that.
        """

    def hold(self, index: int) -> LogHold:
        """Keep an entry and all later ones in the log. Raises LogGone."""

    def next_row(self, above: int) -> tuple[int, bytes] | None:
        """Return (index, kept row) of the next entry, in the loop; None when there is none."""

    def rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        """Return (index, kept row) of the next entries, in a thread: it may wait for the disk.

        Raises LogGone when the state was replaced or closed.
        """

    def flush(self) -> None:
        """Have the state on disk, in a thread, so that `pin` is done at once.

        Raises LogGone when it was closed.
        """

    def pin(self) -> PinnedState:
        """Keep the state as it is now, in the loop."""

    def entry(self, index: int) -> bytes | memoryview:
        """Return an entry's data, from any thread while it is held. Raises LogGone, and OSError
        when the disk gives back other bytes.
        """

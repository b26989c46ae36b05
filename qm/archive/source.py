"""What the archiver needs of the node that it runs on."""

from typing import Protocol

from qm.store.effects.effects_log import EffectsLog
from qm.store.rocks import AppliedPoint


class LogGone(Exception):
    """An entry left the log, or the state, before it was exported."""


class LogHold(Protocol):
    """Keeps entries of the log readable."""

    def release(self) -> None:
        """Release them."""


class StateStream(Protocol):
    """A state as bytes (`qm.store.snapshot`)."""

    def size_bytes(self) -> int:
        """Return the length of the stream; the same on every call."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; b"" only at the end."""


class PinnedState(Protocol):
    """The state at one entry, kept readable. Create it in the loop; use it in a thread."""

    @property
    def applied(self) -> AppliedPoint:
        """Return that entry and the digest there."""

    def source(self) -> StateStream:
        """Return its stream. Call once."""

    def close(self) -> None:
        """Release everything, the stream included. Repeating it does nothing."""


class ArchiveSource(Protocol):
    """Kept rows and the log of one node. Call in the node's loop, except where noted."""

    def keeper(self) -> EffectsLog | None:
        """Return the current keeper of rows; None while a snapshot replaces the state, and a
        different one afterwards.
        """

    def hold(self, index: int) -> LogHold:
        """Keep an entry and all later ones in the log. Raises LogGone."""

    def next_row(self, above: int) -> tuple[int, bytes] | None:
        """Return (index, kept row) of the next entry, None when there is none. Call in the loop."""

    def rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        """Return (index, kept row) of the next entries. Call in a thread: it may wait for the disk.

        Raises LogGone when the state was replaced or closed.
        """

    def flush(self) -> None:
        """Write the state to disk, in a thread, so that `pin` is immediate.

        Raises LogGone when it was closed.
        """

    def pin(self) -> PinnedState:
        """Keep the state as it is now. Call in the loop."""

    def entry(self, index: int) -> bytes | memoryview:
        """Return an entry's data, from any thread while it is held. Raises LogGone, and OSError
        when the disk returns different bytes.
        """

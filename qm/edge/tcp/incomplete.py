"""What all connections of a listener hold of messages that are not complete, oldest first.

Reading no more would not help, since nothing is completed without reading. So where too much is
held, the connection ends whose message has been incomplete for longest: who sends parts and then
nothing gives way to those who send on.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

OwnerT = TypeVar("OwnerT")


class Incomplete(Generic[OwnerT]):
    """How much is held, and whose is the oldest."""

    def __init__(self, bytes_max: int, end: Callable[[OwnerT], object]) -> None:
        """`end`: ends a connection that gives way."""
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._end = end
        self._held: dict[OwnerT, int] = {}
        """Bytes by connection, those of the oldest messages first."""

    def hold(self, connection: OwnerT, size_bytes: int, *, is_new: bool) -> None:
        """Note what a connection holds now, 0 when all is complete or it has ended.

        `is_new`: it is a part of another message than before.
        """
        before = self._held.get(connection, 0)
        if is_new or not size_bytes:
            self._held.pop(connection, None)
        if size_bytes:
            self._held[connection] = size_bytes
        self.size_bytes += size_bytes - before
        while self.size_bytes > self._bytes_max:
            oldest = next(iter(self._held))
            self.size_bytes -= self._held.pop(oldest)
            self._end(oldest)

"""Counts the bytes of entries that wait for something, by index."""

from collections import deque


class Backlog:
    """Sizes of entries in the order of their indexes."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: deque[tuple[int, int]] = deque()
        self.size_bytes = 0

    def add(self, index: int, size: int) -> None:
        """Add entries that end at `index` and have `size` bytes."""
        self._sizes.append((index, size))
        self.size_bytes += size

    def release(self, upto: int) -> None:
        """Remove what ends at or below `upto`: it no longer waits."""
        sizes = self._sizes
        while sizes and sizes[0][0] <= upto:
            self.size_bytes -= sizes.popleft()[1]

    def truncate(self, first: int) -> None:
        """Remove what ends at or above `first`: it was truncated."""
        sizes = self._sizes
        while sizes and sizes[-1][0] >= first:
            self.size_bytes -= sizes.pop()[1]

"""How much of the log is kept for followers that lag, measured in bytes."""

from collections import deque
from collections.abc import Sequence

from raft.types import Entry

MARK_BYTES = 1 << 20
"""Distance between two marks, which is the precision."""


class Retention:
    """Remembers how many bytes ago each index was appended. After a restart it knows nothing, and
    keeps everything until `keep_bytes` have been appended.
    """

    __slots__ = ("_keep_bytes", "_marks", "_total")

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._marks: deque[tuple[int, int]] = deque()
        """(index, bytes appended up to it)"""
        self._total = 0

    def appended(self, entries: Sequence[Entry]) -> None:
        """Note that entries were appended, perhaps in the place of others."""
        if not entries:
            return
        marks = self._marks
        while marks and marks[-1][0] >= entries[0].index:
            marks.pop()
        self._total += sum([len(entry.data) for entry in entries])
        if not marks or self._total - marks[-1][1] >= min(MARK_BYTES, self._keep_bytes):
            marks.append((entries[-1].index, self._total))

    def clear(self) -> None:
        """Forget all marks: the log restarted behind a snapshot."""
        self._marks.clear()

    def droppable(self, given_up: int = 0) -> int:
        """Return the last index after which `keep_bytes` were appended; 0 if none. `given_up`: what
        is not kept at or below it.
        """
        marks = self._marks
        while len(marks) > 1 and self._total - marks[1][1] >= self._keep_bytes:
            marks.popleft()
        return max(self.droppable_soon(0), given_up)

    def droppable_soon(self, ahead_bytes: int) -> int:
        """Return the least that `droppable` will return once `ahead_bytes` more are appended."""
        index = 0
        for mark, total in self._marks:
            if self._total + ahead_bytes - total < self._keep_bytes:
                break
            index = mark
        return index

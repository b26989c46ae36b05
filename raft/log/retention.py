"""How much of the log is kept for followers that lag, measured in bytes."""

from collections import deque
from collections.abc import Sequence

from raft.types import Entry

MARK_BYTES = 1 << 20
"""Distance between two marks, which is the precision."""


class Retention:
    """Remembers how many bytes ago each index was appended. After a restart it knows of the whole
    log only where it ended, and keeps it until `keep_bytes` have been appended, or it is shortened.
    """

    __slots__ = ("_configured_bytes", "_keep_bytes", "_marks", "_total")

    def __init__(self, keep_bytes: int, last_index: int = 0) -> None:
        """`last_index`: the last one of the log as it was found."""
        self._configured_bytes = self._keep_bytes = keep_bytes
        self._marks: deque[tuple[int, int]] = deque([(last_index, 0)] if last_index else ())
        """(index, bytes appended up to it)"""
        self._total = 0

    @property
    def is_shortened(self) -> bool:
        """Whether less is kept than was configured."""
        return self._keep_bytes < self._configured_bytes

    @property
    def kept_bytes(self) -> int:
        """How many bytes of entries stay, as far as is known."""
        return min(self._keep_bytes, self._total - self._marks[0][1] if self._marks else 0)

    def shorten(self, by_bytes: int) -> bool:
        """Keep this much less than there is; return whether anything more may go."""
        had_any = self._keep_bytes > 0
        self._keep_bytes = max(0, self.kept_bytes - by_bytes)
        return had_any

    def restore(self) -> None:
        """Keep as much as was configured again, from what is appended on."""
        self._keep_bytes = self._configured_bytes

    def appended(self, entries: Sequence[Entry]) -> None:
        """Note that entries were appended, perhaps in the place of others."""
        if not entries:
            return
        marks = self._marks
        while marks and marks[-1][0] >= entries[0].index:
            marks.pop()
        self._total += sum([len(entry.data) for entry in entries])
        if not marks or self._total - marks[-1][1] >= min(MARK_BYTES, self._configured_bytes):
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
        """Return the least that `droppable` will return once `ahead_bytes` more are appended. While
        it is shortened the same as now: what is copied ahead would take the space that is short.
        """
        if self.is_shortened:
            ahead_bytes = 0
        index = 0
        for mark, total in self._marks:
            if self._total + ahead_bytes - total < self._keep_bytes:
                break
            index = mark
        return index

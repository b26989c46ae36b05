"""Which node's range has the data of entries: one is enough (design.md, Data once)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Span(NamedTuple):
    """Indexes, both ends included, whose entries are in one node's ranges with their data."""

    first: int
    last: int


class DataTurns:
    """Whether this node's next range has data or waits for another's. Used in the archiver's loop.

    What nodes say about their ranges stays true, so it is remembered while this process runs.
    """

    def __init__(
        self, turn: Callable[[], int], wait_s: float, held_max: int, *, is_once: bool
    ) -> None:
        """`turn`: how many members write data before this node, and so how many times it waits
        `wait_s`, unless it holds more than `held_max` bytes; `is_once`: False if every node writes
        all data.
        """
        self._turn = turn
        self._wait_s = wait_s
        self._held_max = held_max
        self._is_once = is_once
        self._others: dict[str, Span] = {}
        self._waits_since: float | None = None
        self.own: Span | None = None
        """This node's last ranges with data, as far back as they have no gap."""

    @property
    def is_first(self) -> bool:
        """Whether this node waits for no other."""
        return not self._is_once or self._turn() == 0

    def heard(self, others: Mapping[str, Span]) -> None:
        """Take the spans of the other nodes."""
        self._others |= others

    def wrote(self, first: int, last: int) -> None:
        """A range with data is durable."""
        own = self.own
        self.own = Span(own.first if own is not None and own.last + 1 == first else first, last)

    def covered(self, index: int) -> int:
        """Return the last entry that others have, without a gap from `index` on; `index` - 1 if
        they do not have `index`.
        """
        upto = index - 1
        while True:
            joins = [span.last for span in self._others.values() if span.first <= upto + 1]
            farthest = max(joins, default=0)
            if farthest <= upto:
                return upto
            upto = farthest

    def is_over(self, now: float, held_bytes: int) -> bool:
        """Whether this node waited long enough, or holds too much, and writes the data itself."""
        if self._waits_since is None:
            self._waits_since = now
        return now - self._waits_since >= self._turn() * self._wait_s or held_bytes > self._held_max

    def went_on(self) -> None:
        """Another node wrote what this one waited for."""
        self._waits_since = None

"""Where to cut a replay into pieces, so that all slots stay busy until the end.

Nodes write checkpoints when their states allow it, so one stretch of log between two may be twice
as long as another. More pieces than slots compensate for that, but each costs loading the state
that it begins with.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heapreplace, nsmallest
from itertools import pairwise
from typing import Final

from qm.archive.checkpoints import Checkpoint

PIECES_PER_SLOT: Final = 4
"""Maximum."""
STATE_PER_LOG: Final = 8
"""Bytes of state that load in the time in which one byte of log is replayed."""
_JOINS_TRIED: Final = 8
"""Pairs of neighbours that are tried, the shortest ones."""


class Cutting:
    """Divides the log up to an index among some slots. Costs are in bytes of log."""

    def __init__(self, bytes_upto: Callable[[int], float], upto: int, slots: int) -> None:
        """`bytes_upto`: bytes of log from the start of the replay up to an index."""
        self._bytes_upto = bytes_upto
        self._total = bytes_upto(upto)
        self._slots = slots

    def choose(self, inside: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the checkpoints, ascending, at which to cut to finish soonest, as far as a greedy
        search finds them; of equals, the fewest.
        """
        chosen = self._spread(inside) if self._slots > 1 else []
        span = self.span(chosen)
        while chosen:
            costs = self._costs(chosen)
            short = nsmallest(
                _JOINS_TRIED, range(len(chosen)), key=lambda k: costs[k] + costs[k + 1]
            )
            fewer = [[*chosen[:k], *chosen[k + 1 :]] for k in short]
            joined = min(fewer, key=self.span)
            if self.span(joined) > span:
                break
            chosen, span = joined, self.span(joined)
        return chosen

    def span(self, cuts: Sequence[Checkpoint]) -> float:
        """Return the cost of the slot that finishes last, if each takes the longest piece left."""
        costs = self._costs(cuts)
        busy = [0.0] * self._slots
        for k in self.order(cuts):
            heapreplace(busy, busy[0] + costs[k])
        return max(busy)

    def order(self, cuts: Sequence[Checkpoint]) -> list[int]:
        """Return the numbers of the pieces in the order in which to start them: longest first."""
        costs = self._costs(cuts)
        return sorted(range(len(costs)), key=lambda k: -costs[k])

    def _costs(self, cuts: Sequence[Checkpoint]) -> list[float]:
        places = [0.0, *self._places(cuts), self._total]
        states = [0, *(one.stream_bytes for one in cuts)]
        return [
            end - begin + state / STATE_PER_LOG
            for (begin, end), state in zip(pairwise(places), states, strict=True)
        ]

    def _spread(self, inside: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return all, or the permitted number, of checkpoints with pieces of similar length."""
        most = self._slots * PIECES_PER_SLOT
        if len(inside) < most:
            return list(inside)
        places = list(self._places(inside))
        behind = (bisect_left(places, k * self._total / most) for k in range(1, most))
        return [inside[n] for n in sorted({min(n, len(inside) - 1) for n in behind})]

    def _places(self, cuts: Iterable[Checkpoint]) -> Iterable[float]:
        return (self._bytes_upto(one.index) for one in cuts)

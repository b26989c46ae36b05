"""Where a replay is cut into pieces, so that they keep all slots busy until the end.

Nodes write checkpoints when their states allow it: of the log between two, one stretch may have
twice as much as another. More pieces than slots even that out, but each costs the state that it
begins with.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heapreplace, nsmallest
from itertools import pairwise
from typing import Final

from qm.archive.checkpoints import Checkpoint

PIECES_PER_SLOT: Final = 4
"""At most."""
STATE_PER_LOG: Final = 8
"""Bytes of a state that are loaded in the time in which one of log is replayed."""
_JOINS_TRIED: Final = 8
"""Pairs of neighbours, the shortest ones."""


class Cutting:
    """The log up to an index, to be replayed on some slots. Costs are in bytes of log."""

    def __init__(self, bytes_upto: Callable[[int], float], upto: int, slots: int) -> None:
        """`bytes_upto`: of log from where the replay begins, up to an index."""
        self._bytes_upto = bytes_upto
        self._total = bytes_upto(upto)
        self._slots = slots

    def choose(self, inside: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return at which of the checkpoints, ascending, to cut so that all is done soonest, as far
        as a greedy search finds; of equals, the fewest.
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
        """Return what the slot costs that is done last, if each takes the longest piece left."""
        costs = self._costs(cuts)
        busy = [0.0] * self._slots
        for k in self.order(cuts):
            heapreplace(busy, busy[0] + costs[k])
        return max(busy)

    def order(self, cuts: Sequence[Checkpoint]) -> list[int]:
        """Return the numbers of the pieces, longest first: so they should begin."""
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
        """Return all, or as many as may be considered, of pieces about as long as each other."""
        most = self._slots * PIECES_PER_SLOT
        if len(inside) < most:
            return list(inside)
        places = list(self._places(inside))
        behind = (bisect_left(places, k * self._total / most) for k in range(1, most))
        return [inside[n] for n in sorted({min(n, len(inside) - 1) for n in behind})]

    def _places(self, cuts: Iterable[Checkpoint]) -> Iterable[float]:
        return (self._bytes_upto(one.index) for one in cuts)

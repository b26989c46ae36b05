"""Request numbers of one session: assigned in order, confirmed as one rising number."""

from heapq import heappop, heappush


class Numbers:
    """Which numbers are used, and up to which one the client holds every result."""

    __slots__ = ("_finished", "_next", "confirmed_upto")

    def __init__(self, confirmed_upto: int, highest: int) -> None:
        """Continue above `highest`, the last number known to be used."""
        self.confirmed_upto = confirmed_upto
        """The client holds the results of all numbers up to here."""
        self._next = max(confirmed_upto, highest) + 1
        self._finished: list[tuple[int, int]] = []

    @property
    def next(self) -> int:
        """The number that `take` assigns next."""
        return self._next

    @property
    def open_count(self) -> int:
        """How many numbers above `confirmed_upto` were assigned."""
        return self._next - 1 - self.confirmed_upto

    def take(self, count: int = 1) -> int:
        """Assign consecutive numbers; return the first."""
        first = self._next
        self._next += count
        return first

    def finish(self, first: int, count: int = 1) -> None:
        """Mark numbers whose results the client holds, or that will have none."""
        heappush(self._finished, (first, first + count - 1))
        while self._finished and self._finished[0][0] <= self.confirmed_upto + 1:
            _, last = heappop(self._finished)
            self.confirmed_upto = max(self.confirmed_upto, last)


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as (first, count) of their consecutive runs."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][0] + found[-1][1] == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found


def in_parts(found: list[tuple[int, int]], count_max: int) -> list[tuple[int, int]]:
    """Return runs (first, count) cut into runs of at most `count_max`."""
    return [
        (first + at, min(count - at, count_max))
        for first, count in found
        for at in range(0, count, count_max)
    ]

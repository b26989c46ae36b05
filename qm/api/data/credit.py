"""Credit of a stream: request numbers that were granted and have no result yet."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from qm.api.gate.errors import InvalidArgument, LimitReached
from qm.model.values.limits import UNCONFIRMED_RESULTS_PER_CLIENT_MAX

CREDIT_MAX: Final = UNCONFIRMED_RESULTS_PER_CLIENT_MAX
"""Numbers without a result; more could not be confirmed in time."""
RANGES_MAX: Final = 1_024
_U64_MAX: Final = (1 << 64) - 1


class Credit:
    """Ranges of numbers, in the order in which they were granted."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[int, int]] = deque()
        """(first, last)."""
        self.count = 0
        """Numbers in all ranges."""
        self.most = 0
        """Maximum of `count` so far: what the client has open when it has received all results."""

    def grant(self, first: int, count: int) -> None:
        """Add numbers. Raises InvalidArgument, LimitReached."""
        if count < 1 or not 1 <= first <= _U64_MAX - count:
            raise InvalidArgument(
                "credit", "numbers start at 1, and a grant has at least one number"
            )
        if self.count + count > CREDIT_MAX or len(self._ranges) >= RANGES_MAX:
            raise LimitReached(
                f"{self.count} numbers in {len(self._ranges)} ranges are open; {CREDIT_MAX} in"
                f" {RANGES_MAX} are allowed: grant more when messages have come"
            )
        self.count += count
        self.most = max(self.most, self.count)
        last = first + count - 1
        if self._ranges and self._ranges[-1][1] + 1 == first:
            first, _ = self._ranges.pop()
        self._ranges.append((first, last))

    def head(self, count_max: int) -> tuple[int, int]:
        """Return (first, count) of the next numbers to use, (0, 0) if there are none."""
        if not self._ranges:
            return 0, 0
        first, last = self._ranges[0]
        return first, min(last - first + 1, count_max)

    def answered(self, numbers: Sequence[int]) -> None:
        """Remove numbers of the head that have results; ascending."""
        if not numbers:
            return
        first, last = self._ranges.popleft()
        left: list[tuple[int, int]] = []
        for number in numbers:
            if first < number:
                left.append((first, number - 1))
            first = number + 1
        if first <= last:
            left.append((first, last))
        self._ranges.extendleft(reversed(left))
        self.count -= len(numbers)

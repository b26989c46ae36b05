"""Cluster time: stamped by the leader and estimated by every node (DESIGN section 4, Time).

It is the last stamp plus the time that has passed since, by the leader's monotonic clock. Wall
clocks only steer it: slowly, towards the median of the members', and by one jump forward to the
median of a majority's when a leader begins; leases get their full time from then. So one wall clock
that steps expires no message and no lease.
"""

from collections.abc import Callable, Sequence
from statistics import median_low
from typing import Final

SLEW_SHARE: Final = 200
"""At most this fraction of passing time is added or removed: 5 ms in a second."""
BIRTH_MS: Final = 365 * 24 * 3600 * 1000
"""No stamp of a leader lies before: the clock of a cluster without entries counts from 0."""
_NS_PER_MS: Final = 1_000_000


class ClusterClock:
    """One node's clock. Times are UTC milliseconds."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        """`monotonic_ns`: nanoseconds that never go back and never step."""
        self._monotonic_ns = monotonic_ns
        self._time_ns = 0
        self._read_at_ns = monotonic_ns()
        self._owed_ns = 0
        self._told_ms = 0
        self._leads = False

    def now_ms(self) -> int:
        """Return cluster time; it never goes back."""
        self._pass_time()
        self._told_ms = max(self._told_ms, self._time_ns // _NS_PER_MS)
        return self._told_ms

    def _pass_time(self) -> None:
        now = self._monotonic_ns()
        passed = now - self._read_at_ns
        self._read_at_ns = now
        most = passed // SLEW_SHARE
        slewed = max(-most, min(most, self._owed_ns))
        self._owed_ns -= slewed
        self._time_ns += passed + slewed

    def observe(self, stamp_ms: int) -> None:
        """An entry with this stamp was applied here. A leader ignores its own stamps, which lie
        behind it; an older leader's may lie ahead, if it was applied only now.
        """
        if not self._leads or stamp_ms > self.now_ms():
            self._set(stamp_ms)

    def begin_at(self, stamp_ms: int) -> None:
        """This process starts from a state with this stamp, however old it is."""
        self._set(stamp_ms)

    @property
    def has_begun(self) -> bool:
        """Whether there was ever a stamp."""
        return self.now_ms() >= BIRTH_MS

    def lead(self) -> None:
        """This node stamps from now on, never with less than it told or observed before."""
        self._set(self.now_ms())
        self._leads = True

    def follow(self) -> None:
        """Another node stamps."""
        self._owed_ns = 0
        self._leads = False

    def steer(self, wall_clocks_ms: Sequence[int]) -> None:
        """Aim at the median of the members' wall clocks, just read, while leading."""
        if self._leads and wall_clocks_ms:
            self._pass_time()
            self._owed_ns = median_low(wall_clocks_ms) * _NS_PER_MS - self._time_ns

    def jump(self, wall_clocks_ms: Sequence[int]) -> int:
        """Jump forward to the median as a leader begins; return by how much, in ms.

        Of an even number the lower middle one counts: it is better to be late than early.
        """
        gap = median_low(wall_clocks_ms) - self.now_ms() if wall_clocks_ms else 0
        if gap <= 0:
            return 0
        self._told_ms += gap
        self._set(self._told_ms)
        return gap

    def _set(self, time_ms: int) -> None:
        self._time_ns = time_ms * _NS_PER_MS
        self._read_at_ns = self._monotonic_ns()
        self._owed_ns = 0

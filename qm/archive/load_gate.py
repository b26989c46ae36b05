"""Whether the node is too busy to export: the archive can wait for a while."""

from collections.abc import Callable

from qm.archive.limits import BUSY_SHARE, LOOK_EVERY_S, QUIET_S


class LoadGate:
    """Makes ranges that are due wait for a quiet node. Used in the archiver's loop.

    A range is cheap while a core is free, and costs throughput otherwise. A range that has waited
    for the longest permitted time is exported regardless of load, until nothing is due any more.
    """

    def __init__(
        self, now: Callable[[], float], wanted_s: Callable[[], float], wait_s: float, held_max: int
    ) -> None:
        """`wanted_s`: seconds that the loop's thread ran or waited for a core; `held_max`: bytes
        that may wait.
        """
        self._now = now
        self._wanted_s = wanted_s
        self._wait_s = wait_s
        self._held_max = held_max
        self._looked_at, self._looked_wanted_s = now(), wanted_s()
        self._busy_at: float | None = None
        """Time of the last measurement that found it busy."""
        self._due_since: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it was busy at the last measurement or shortly before."""
        return self._busy_at is not None and self._looked_at - self._busy_at < QUIET_S

    def look(self) -> None:
        """Measure what this node did since the last measurement."""
        now, wanted_s = self._now(), self._wanted_s()
        if now - self._looked_at >= LOOK_EVERY_S:
            share = (wanted_s - self._looked_wanted_s) / (now - self._looked_at)
            if share >= BUSY_SHARE:
                self._busy_at = now
            self._looked_at, self._looked_wanted_s = now, wanted_s

    def nothing_due(self) -> None:
        """Everything due is in the archive."""
        self._due_since = None

    def is_awaited(self, held_bytes: int) -> bool:
        """Whether what is due should wait."""
        now = self._now()
        if self._due_since is None:
            self._due_since = now
        if not self.is_busy or held_bytes > self._held_max:
            return False
        return now - self._due_since < self._wait_s

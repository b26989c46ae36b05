"""What the disk of one replica refuses, since when, and what operators hear of it."""

from enum import IntEnum

from raft.log.segment import is_disk_full
from raft.step import Alarm, AlarmKind

FULL_RETRY_TICKS = 20
"""Between two tries to write to a full disk."""


class Work(IntEnum):
    """What a full disk can stop."""

    WRITE = 0
    APPLY = 1
    COMPACT = 2


class Alarms:
    """Alarms until somebody takes them."""

    def __init__(self) -> None:
        self._waiting: list[Alarm] = []
        self._told: set[AlarmKind] = set()

    def __bool__(self) -> bool:
        """Tell whether any waits."""
        return bool(self._waiting)

    def tell(self, kind: AlarmKind, text: str) -> None:
        """Raise an alarm."""
        self._waiting.append(Alarm(kind, text))

    def tell_once(self, kind: AlarmKind, text: str) -> None:
        """Raise an alarm unless it was raised here before, and not forgotten since."""
        if kind not in self._told:
            self._told.add(kind)
            self.tell(kind, text)

    def forget(self, kind: AlarmKind) -> None:
        """Its reason is gone: the next time it is news again."""
        self._told.discard(kind)

    def take(self) -> tuple[Alarm, ...]:
        """Return what waits."""
        alarms, self._waiting = tuple(self._waiting), []
        return alarms


class DiskWatch:
    """Of one replica. `now` counts its ticks."""

    def __init__(self, alarms: Alarms, stuck_ticks: int) -> None:
        """A disk that does not take something for `stuck_ticks` is stuck."""
        self._alarms = alarms
        self._stuck_ticks = stuck_ticks
        self._full: dict[Work, int] = {}
        """What waits for space, and since when."""
        self._retry_at = 0
        self._is_short = False

    @property
    def is_full(self) -> bool:
        """Whether anything waits for space."""
        return bool(self._full)

    @property
    def is_short(self) -> bool:
        """Whether the log's next segment has none."""
        return self._is_short

    def note_full(self, work: Work, error: OSError, now: int) -> None:
        """There was no space for `work`, or no descriptor; it is tried again after
        FULL_RETRY_TICKS.
        """
        self._retry_at = now + FULL_RETRY_TICKS
        kind = AlarmKind.DISK_FULL if is_disk_full(error) else AlarmKind.DESCRIPTORS_SHORT
        self._alarms.tell_once(kind, str(error))
        self._full.setdefault(work, now)

    def note_room(self, work: Work) -> None:
        """`work` was done."""
        if self._full.pop(work, None) is not None and not self._full:
            self._alarms.forget(AlarmKind.DISK_FULL)
            self._alarms.forget(AlarmKind.DESCRIPTORS_SHORT)
            self._alarms.tell(AlarmKind.DISK_ROOM, "there is space on the disk again")

    def note_short(self, is_short: bool) -> None:
        """The log has, or has not, found space for its next segment."""
        if is_short == self._is_short:
            return
        self._is_short = is_short
        if is_short:
            text = "no space, or no descriptor, for the log's next segment: it is needed soon"
            self._alarms.tell(AlarmKind.DISK_SHORT, text)
        else:
            text = "there is space for the log's next segment again"
            self._alarms.tell(AlarmKind.DISK_ROOM, text)

    def retry_at_once(self, now: int) -> None:
        """Space may have returned."""
        self._retry_at = now

    def is_put_off(self, work: Work, now: int) -> bool:
        """Return whether `work` waits for its next try."""
        return work in self._full and now < self._retry_at

    def is_retry_due(self, now: int) -> bool:
        """Return whether something should be tried again."""
        return bool(self._full) and now >= self._retry_at

    def ticks_until_retry(self, now: int) -> int:
        """Return after how many ticks that is so, while `is_full`."""
        return self._retry_at - now

    def is_stuck(self, sync_since: int | None, now: int) -> bool:
        """Return whether writing, applying, or the sync that runs since then, takes too long."""
        waiting = [since for work, since in self._full.items() if work is not Work.COMPACT]
        if sync_since is not None:
            waiting.append(sync_since)
        if not waiting:
            self._alarms.forget(AlarmKind.STUCK)
            return False
        return now - min(waiting) >= self._stuck_ticks

    def tell_stuck(self) -> None:
        """Say what follows from it."""
        text = "the disk does not take what must be written; another must lead"
        self._alarms.tell_once(AlarmKind.STUCK, text)

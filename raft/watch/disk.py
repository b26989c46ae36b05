"""What the disk of one replica refuses, since when, and the alarms about it."""

from enum import IntEnum

from raft.log.segment import is_disk_full
from raft.step import Alarm, AlarmKind

FULL_RETRY_TICKS = 20
"""Time between two attempts to write to a full disk."""


class Work(IntEnum):
    """Work that a full disk can stop."""

    WRITE = 0
    APPLY = 1
    COMPACT = 2


class Alarms:
    """Alarms that wait to be handed out."""

    def __init__(self) -> None:
        self._waiting: list[Alarm] = []
        self._told: set[AlarmKind] = set()

    def __bool__(self) -> bool:
        """Return whether any waits."""
        return bool(self._waiting)

    def tell(self, kind: AlarmKind, text: str) -> None:
        """Raise an alarm."""
        self._waiting.append(Alarm(kind, text))

    def tell_once(self, kind: AlarmKind, text: str) -> None:
        """Raise an alarm unless this kind was raised here before and not forgotten since."""
        if kind not in self._told:
            self._told.add(kind)
            self.tell(kind, text)

    def forget(self, kind: AlarmKind) -> None:
        """Let the alarm be raised again: its reason is gone."""
        self._told.discard(kind)

    def take(self) -> tuple[Alarm, ...]:
        """Return the alarms that wait, and remove them."""
        alarms, self._waiting = tuple(self._waiting), []
        return alarms


class DiskWatch:
    """Watches the disk of one replica. `now` is the replica's count of ticks."""

    def __init__(self, alarms: Alarms, stuck_ticks: int) -> None:
        """The disk is stuck when something has waited for it for `stuck_ticks`."""
        self._alarms = alarms
        self._stuck_ticks = stuck_ticks
        self._full: dict[Work, int] = {}
        """The work that waits for space, and since when."""
        self._retry_at = 0
        self._is_short = False

    @property
    def is_full(self) -> bool:
        """Whether anything waits for space."""
        return bool(self._full)

    @property
    def is_short(self) -> bool:
        """Whether there is no space for the log's next segment."""
        return self._is_short

    def note_full(self, work: Work, error: OSError, now: int) -> None:
        """Note that there was no space, or no descriptor, for `work`; it is retried after
        FULL_RETRY_TICKS.
        """
        self._retry_at = now + FULL_RETRY_TICKS
        kind = AlarmKind.DISK_FULL if is_disk_full(error) else AlarmKind.DESCRIPTORS_SHORT
        self._alarms.tell_once(kind, str(error))
        self._full.setdefault(work, now)

    def note_room(self, work: Work) -> None:
        """Note that `work` was done."""
        if self._full.pop(work, None) is not None and not self._full:
            self._alarms.forget(AlarmKind.DISK_FULL)
            self._alarms.forget(AlarmKind.DESCRIPTORS_SHORT)
            self._alarms.tell(AlarmKind.DISK_ROOM, "there is space on the disk again")

    def note_short(self, is_short: bool) -> None:
        """Note whether the log has found space for its next segment."""
        if is_short == self._is_short:
            return
        self._is_short = is_short
        if is_short:
            text = "no space or file descriptor for the log's next segment, which is needed soon"
            self._alarms.tell(AlarmKind.DISK_SHORT, text)
        else:
            text = "there is space for the log's next segment again"
            self._alarms.tell(AlarmKind.DISK_ROOM, text)

    def retry_at_once(self, now: int) -> None:
        """Allow a retry now: space may have been freed."""
        self._retry_at = now

    def is_put_off(self, work: Work, now: int) -> bool:
        """Return whether `work` waits for its next attempt."""
        return work in self._full and now < self._retry_at

    def is_retry_due(self, now: int) -> bool:
        """Return whether something should be retried now."""
        return bool(self._full) and now >= self._retry_at

    def ticks_until_retry(self, now: int) -> int:
        """Return how many ticks remain until the next retry; valid while `is_full`."""
        return self._retry_at - now

    def is_stuck(self, sync_since: int | None, now: int) -> bool:
        """Return whether writing, applying, or a sync running since `sync_since` takes too long."""
        waiting = [since for work, since in self._full.items() if work is not Work.COMPACT]
        if sync_since is not None:
            waiting.append(sync_since)
        if not waiting:
            self._alarms.forget(AlarmKind.STUCK)
            return False
        return now - min(waiting) >= self._stuck_ticks

    def tell_stuck(self) -> None:
        """Raise the alarm STUCK, once."""
        text = "the disk does not complete writes or syncs; another node must lead"
        self._alarms.tell_once(AlarmKind.STUCK, text)

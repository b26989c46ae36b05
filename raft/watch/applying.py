"""Whether one replica applies in time what is committed."""

from raft.step import AlarmKind
from raft.watch.disk import Alarms


class ApplyWatch:
    """Watches how long a replica has lagged. `now` is the replica's count of ticks."""

    def __init__(self, alarms: Alarms, late_ticks: int) -> None:
        """A replica is late when it has lagged for `late_ticks`."""
        self._alarms = alarms
        self._late_ticks = late_ticks
        self._since: int | None = None
        self.is_late = False

    def look(self, lags: bool, now: int) -> None:
        """Note whether the replica lags now."""
        if not lags:
            self._since = None
            self.is_late = False
            self._alarms.forget(AlarmKind.APPLY_LAGS)
            return
        if self._since is None:
            self._since = now
        if now - self._since >= self._late_ticks:
            self.is_late = True
            text = (
                "far more is committed than this node has applied: its disk or its processor is too"
                " slow. It leaves leading to the others and is not ready until it has caught up"
            )
            self._alarms.tell_once(AlarmKind.APPLY_LAGS, text)

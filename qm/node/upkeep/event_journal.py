"""Records changes of the cluster, as this node sees them, in its event log."""

from prometheus_client import Counter
from typing_extensions import override

from qm.api.gate.events import EventLog
from qm.cluster.cluster import ClusterListener, Leadership
from qm.model.values.effects import Applied


class Journal(ClusterListener):
    """Keeps events that operators may ask about later."""

    def __init__(self, events: EventLog, alarms: Counter) -> None:
        """`alarms`: quorate_alarms_total."""
        self._events = events
        self._alarms = alarms
        self._leadership = Leadership(None, 0, False)

    @override
    def on_applied(self, applied: Applied) -> None:
        """Keep alarms that apply raised."""
        for alarm in applied.alarms:
            self.alarm(alarm, f"{alarm} in entry {applied.index}")

    @override
    def on_restored(self, index: int) -> None:
        self._events.add("member", "restored", f"a snapshot brought this node to entry {index}")

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        before, self._leadership = self._leadership, leadership
        if leadership.node is None:
            text = f"no leader in term {leadership.term}"
        elif (leadership.node, leadership.term) == (before.node, before.term):
            return
        else:
            text = f"{leadership.node} leads in term {leadership.term}"
        self._events.add(
            "leadership",
            "leader",
            text,
            details={"node": leadership.node or "", "term": str(leadership.term)},
        )

    def alarm(self, name: str, text: str) -> None:
        """Count and keep an alarm."""
        self._alarms.labels(alarm=name).inc()
        self._events.add("alarm", name, text)

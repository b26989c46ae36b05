"""What the cluster does by itself, as events: changes of leader, snapshots, alarms."""

from qm.api.events import EventLog
from qm.model.effects import Applied
from qm.store.cluster import Cluster, Leadership


class ClusterWatch:
    """Listens to the cluster for an event log."""

    def __init__(self, cluster: Cluster, events: EventLog) -> None:
        self._events = events
        self._stop = cluster.listen(self)

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    def on_applied(self, applied: Applied) -> None:
        """See ClusterListener."""
        for alarm in dict.fromkeys(applied.alarms):
            self._events.add("alarm", alarm, f"{alarm} at log index {applied.index}")

    def on_restored(self, index: int) -> None:
        """See ClusterListener."""
        self._events.add(
            "member", "snapshot_installed", f"the state was replaced by a snapshot at {index}"
        )

    def on_leadership(self, leadership: Leadership) -> None:
        """See ClusterListener."""
        leader = leadership.node or "nobody"
        self._events.add(
            "leadership",
            "leader_changed" if leadership.node else "leader_lost",
            f"{leader} leads in term {leadership.term}",
            details={"leader": leadership.node or "", "term": str(leadership.term)},
        )

"""What hinders this node in taking part in consensus, for operators and load balancers."""

from raft.replica import ReplicaStatus
from raft.step import AlarmKind


def consensus_alarms(status: ReplicaStatus) -> tuple[str, ...]:
    """Return the names of the alarms whose reasons last."""
    lasting = {
        AlarmKind.APPLY_LAGS: status.applies_late,
        AlarmKind.ROLLED_BACK: bool(status.owed),
        AlarmKind.PEER_ROLLED_BACK: bool(status.owing_followers),
    }
    return tuple(kind.name.lower() for kind, lasts in lasting.items() if lasts)


def not_ready_reason(name: str, status: ReplicaStatus) -> str | None:
    """Return why node `name` should not be used now; None when consensus does not hinder it."""
    if status.owed:
        return (
            f"this node's data is an older copy: it acknowledged entries up to {status.owed} and"
            f" holds entries up to {status.last_index}. It gets them from the leader; if there is"
            " none that has them, start the nodes that do, or empty this node's folder and have it"
            f" join again: `qm cluster replace {name}`, `qm node join`"
        )
    if status.applies_late:
        return (
            "this node applies more slowly than the cluster commits: look at its disk and its"
            " processor"
        )
    return None

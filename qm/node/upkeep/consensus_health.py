"""What hinders this node in taking part in consensus, for operators and load balancers."""

from typing import Any

from raft.driver import Driver
from raft.step import AlarmKind


def consensus_alarms(driver: Driver[Any]) -> tuple[str, ...]:
    """Return the names of the alarms that last."""
    return (AlarmKind.APPLY_LAGS.name.lower(),) if driver.applies_late else ()


def not_ready_reason(driver: Driver[Any]) -> str | None:
    """Return why this node should not be used now; None when consensus does not hinder it."""
    if driver.applies_late:
        return (
            "this node applies more slowly than the cluster commits: look at its disk and its"
            " processor"
        )
    return None

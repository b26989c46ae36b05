"""What `qm check` judges: conditions of a cluster, with limits for a warning and an alert. Pure.

The texts and performance data are those of the Nagios plugin guidelines: one line that says the
worst, then a line for each check; exit codes 0, 1 and 2.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

_DAY_S: Final = 86_400
_PERCENT: Final = 100
CERTIFICATE_METRIC: Final = "quorate_certificate_expiry_seconds"
METRICS: Final = (
    CERTIFICATE_METRIC,
    "quorate_queue_quota_ratio",
    "quorate_deadletter_messages",
    "quorate_queue_oldest_seconds",
    "quorate_archive_lag_seconds",
)
"""Read of every node's metrics; a value for each combination of labels."""


class Level(IntEnum):
    """Exit codes of a Nagios plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


class Limits(msgspec.Struct, frozen=True):
    """Values from which on a condition is a warning, or critical."""

    warning: float
    critical: float
    is_floor: bool = False
    """Whether low values are bad, not high ones."""

    def level(self, value: float) -> Level:
        """Return the level of a value."""
        sign = -1 if self.is_floor else 1
        if sign * value >= sign * self.critical:
            return Level.CRITICAL
        return Level.WARNING if sign * value >= sign * self.warning else Level.OK


LIMITS: Final[Mapping[str, Limits]] = {
    "disk": Limits(20, 10, is_floor=True),
    "certificate": Limits(30, 7, is_floor=True),
    "quota": Limits(80, 95),
    "dead_letters": Limits(1, 1_000),
    "oldest_message": Limits(3_600, _DAY_S),
    "outgoing": Limits(1, 1_000),
    "archive": Limits(300, 3_600),
    "replica_lag": Limits(1_024, 65_536),
}
"""disk: percent free; certificate: days left; quota: percent used; dead_letters and outgoing:
messages; oldest_message and archive: seconds; replica_lag: entries."""
CHECKS: Final = ("quorum", *LIMITS)


class NodeFacts(msgspec.Struct, frozen=True):
    """What one endpoint said."""

    endpoint: str
    problem: str = ""
    """Why it said nothing; "" if it answered."""
    status: Any = None
    """Its ClusterStatus."""
    metrics: Mapping[str, Mapping[str, float]] = {}
    """Values of METRICS, by the text of their labels."""


class Facts(msgspec.Struct, frozen=True):
    """What is known of a cluster."""

    nodes: tuple[NodeFacts, ...]
    outgoing: tuple[Any, ...] = ()
    """Its OutgoingQueues."""

    @property
    def answers(self) -> list[NodeFacts]:
        """The nodes that answered."""
        return [node for node in self.nodes if node.status is not None]

    def of_cluster(self) -> Any:
        """The status of the leader if it answered, else of a node that knows one."""
        ordered = sorted(
            (node.status for node in self.answers),
            key=lambda status: (status.node == status.leader, bool(status.leader)),
        )
        return ordered[-1] if ordered else None

    def values(self, metric: str) -> dict[str, float]:
        """A metric's values at all nodes; of equal labels the highest."""
        found: dict[str, float] = {}
        for node in self.answers:
            for labels, value in node.metrics.get(metric, {}).items():
                found[labels] = max(value, found.get(labels, value))
        return found


class Finding(msgspec.Struct, frozen=True):
    """What came of one check."""

    check: str
    level: Level
    text: str
    value: float | None = None
    unit: str = ""
    limits: Limits | None = None


def judged(
    facts: Facts, checks: Iterable[str] = CHECKS, limits: Mapping[str, Limits] = LIMITS
) -> list[Finding]:
    """Judge these conditions, in their order."""
    if facts.of_cluster() is None:
        text = "; ".join(node.problem for node in facts.nodes)
        return [Finding("quorum", Level.CRITICAL, text)]
    return [
        _quorum(facts) if check == "quorum" else _JUDGES[check](facts, check, limits[check])
        for check in checks
    ]


def nagios_text(computer_name: str, findings: list[Finding]) -> list[str]:
    """Return the lines of a Nagios plugin: the worst first, with performance data."""
    worst = max((one.level for one in findings), default=Level.OK)
    bad = [f"{one.check}: {one.text}" for one in findings if one.level]
    said = "; ".join(bad) or f"{len(findings)} checks"
    head = f"QUORATE {worst.name} - {computer_name or 'cluster'}: {said}"
    data = " ".join(_performance(one) for one in findings if one.value is not None)
    details = [f"[{one.level.name}] {one.check}: {one.text}" for one in findings]
    return [f"{head} | {data}" if data else head, *details]


def _performance(one: Finding) -> str:
    shown = f"{one.check}={one.value:g}{one.unit}"
    if one.limits is None:
        return shown
    # A range of Nagios ends with its last good value; "N:" is bad below N.
    colon = ":" if one.limits.is_floor else ""
    return f"{shown};{one.limits.warning:g}{colon};{one.limits.critical:g}{colon}"


def _quorum(facts: Facts) -> Finding:
    status = facts.of_cluster()
    voters = [member for member in status.members if member.role == _VOTER]
    reachable = sum(member.is_reachable for member in voters)
    missing = [member.name for member in status.members if not member.is_reachable]
    problems = [f"{node.endpoint}: {node.problem}" for node in facts.nodes if node.problem]
    problems += [f"{name} is not reachable" for name in missing]
    problems += [f"{node.status.node} drains" for node in facts.answers if node.status.is_draining]
    problems += sorted({alarm for node in facts.answers for alarm in node.status.alarms})
    text = f"{reachable} of {len(voters)} voters are reachable"
    level = Level.WARNING if problems else Level.OK
    if not status.leader:
        level, problems = Level.CRITICAL, ["no node leads", *problems]
    text = f"{text}, {status.leader or 'nobody'} leads"
    return Finding("quorum", level, "; ".join([*problems, text]), float(reachable))


_VOTER: Final = 2
"""MemberRole.VOTER."""


def _disk(facts: Facts, check: str, limits: Limits) -> Finding:
    free = {
        node.status.node: node.status.disk_free_bytes * _PERCENT / node.status.disk_total_bytes
        for node in facts.answers
        if node.status.disk_total_bytes
    }
    return _least(check, free, limits, "{value:.0f}% free at {name}", "%")


def _certificate(facts: Facts, check: str, limits: Limits) -> Finding:
    left = {
        f"{labels} of {node.status.node}": seconds / _DAY_S
        for node in facts.answers
        for labels, seconds in node.metrics.get(CERTIFICATE_METRIC, {}).items()
    }
    return _least(check, left, limits, "{name} ends in {value:.0f} days", "")


def _least(
    check: str, values: Mapping[str, float], limits: Limits, words: str, unit: str
) -> Finding:
    if not values:
        return Finding(check, Level.OK, "not measured")
    name, value = min(values.items(), key=lambda item: item[1])
    text = words.format(name=name, value=value)
    return Finding(check, limits.level(value), text, round(value, 1), unit, limits)


def _most_of(
    metric: str, words: str, unit: str, factor: float = 1
) -> Callable[[Facts, str, Limits], Finding]:
    """Return the judge of a metric's highest value; `words` name the place of it."""

    def judge(facts: Facts, check: str, limits: Limits) -> Finding:
        values = facts.values(metric)
        if not values:
            return Finding(check, Level.OK, "nothing to measure", 0.0, unit, limits)
        name, value = max(values.items(), key=lambda item: item[1])
        value = round(value * factor, 1)
        text = words.format(name=name or "the cluster", value=value)
        return Finding(check, limits.level(value), text, value, unit, limits)

    return judge


def _dead_letters(facts: Facts, check: str, limits: Limits) -> Finding:
    count = sum(facts.values("quorate_deadletter_messages").values())
    return Finding(check, limits.level(count), f"{count:.0f} messages", count, "", limits)


def _outgoing(facts: Facts, check: str, limits: Limits) -> Finding:
    stuck = [
        queue
        for queue in facts.outgoing
        if queue.message_count and queue.state not in (_CONNECTED, _ON_HOLD)
    ]
    count = sum(queue.message_count for queue in stuck)
    names = ", ".join(queue.format_name for queue in stuck[:3]) + (", ..." if stuck[3:] else "")
    text = f"{count} messages wait for {names}" if stuck else "nothing waits for a connection"
    return Finding(check, limits.level(count), text, float(count), "", limits)


_CONNECTED: Final = 4
"""OutgoingState.CONNECTED."""
_ON_HOLD: Final = 7
"""OutgoingState.ON_HOLD: an operator wanted it."""


def _replica_lag(facts: Facts, check: str, limits: Limits) -> Finding:
    status = facts.of_cluster()
    behind = {
        member.name: float(max(0, status.commit_index - member.applied_index))
        for member in status.members
        if member.is_reachable
    }
    if not behind:
        return Finding(check, Level.OK, "not measured")
    name, entries = max(behind.items(), key=lambda item: item[1])
    text = f"{name} is {entries:.0f} entries behind"
    return Finding(check, limits.level(entries), text, entries, "", limits)


_JUDGES: Final[Mapping[str, Callable[[Facts, str, Limits], Finding]]] = {
    "disk": _disk,
    "certificate": _certificate,
    "quota": _most_of("quorate_queue_quota_ratio", "{value:.0f}% used of {name}", "%", _PERCENT),
    "dead_letters": _dead_letters,
    "oldest_message": _most_of("quorate_queue_oldest_seconds", "{value:.0f} s old in {name}", "s"),
    "outgoing": _outgoing,
    "archive": _most_of("quorate_archive_lag_seconds", "{value:.0f} s behind", "s"),
    "replica_lag": _replica_lag,
}

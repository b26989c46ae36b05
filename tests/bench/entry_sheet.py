"""The cost sheet of an entry: what spans and marks of three nodes say about one case.

Processor time is that within a step, without the steps inside it, divided by the messages of the
case. The path follows each entry from the first chunk that was read for it, over the follower that
a commit waits for (the front), to its last SessionAck; each part is the median of all entries.
"""

from bisect import bisect_left
from collections.abc import Mapping
from statistics import median
from typing import Final

import msgspec

from tests.bench.spans import STEPS, Report

PATH: Final = (
    ("message read, until its entry is proposed", "leader", "proposed"),
    ("frame encoded for the front", "leader", "append_sent {front}"),
    ("written, under way, the front wakes up", "front", "append_received {leader}"),
    ("front: consensus, log append", "front", "written"),
    ("front: waits for the thread that syncs", "front", "sync_began"),
    ("front: fdatasync", "front", "sync_ended"),
    ("front: waits for the event loop", "front", "sync_noticed"),
    ("front: consensus, reply encoded", "front", "reply_sent {leader}"),
    ("written, under way, the leader wakes up", "leader", "reply_received {front}"),
    ("leader: commit, until apply begins", "leader", "apply_began"),
    ("leader: apply", "leader", "apply_ended"),
    ("leader: outcome on its way to the edge", "leader", "outcome"),
    ("leader: SessionAcks written", "leader", "acknowledged"),
)
"""The parts of the path: what they are, on which node and at which mark they end."""


class Sheet(msgspec.Struct):
    """The sheet of one case; times are in microseconds."""

    messages: int
    entries: int
    roles: dict[str, str]
    """Node by role."""
    cpu_us: dict[str, dict[str, float]]
    """Per message, by step and role."""
    wait_us: dict[str, float]
    """By part of the path."""

    def figures(self) -> dict[str, float]:
        """Return it with flat names."""
        found: dict[str, float] = {"messages_per_entry": self.messages / max(self.entries, 1)}
        for step, by_role in self.cpu_us.items():
            found |= {f"{_flat(step)}_{role}_cpu_us": us for role, us in by_role.items()}
        for number, (part, us) in enumerate(self.wait_us.items(), 1):
            found[f"path_{number:02}_{_flat(part)}_wall_us"] = us
        found["path_wall_us"] = sum(self.wait_us.values())
        return found

    def table(self) -> str:
        """Return it as text."""
        lines = [f"{self.messages} messages in {self.entries} entries", _row("CPU us per message")]
        lines[-1] += "".join(f"{role:>10}" for role in self.roles)
        for step, by_role in self.cpu_us.items():
            if any(by_role.values()):
                cells = "".join(f"{by_role[role]:10.1f}" for role in self.roles)
                lines.append(_row(step) + cells)
        lines += ["", _row("the way of an entry, median us") + f"{'part':>10}{'since':>10}"]
        since = 0.0
        for part, us in self.wait_us.items():
            since += us
            lines.append(_row(part) + f"{us:10.0f}{since:10.0f}")
        return "\n".join(lines)


def sheet(
    reports: Mapping[str, Report], leader: str, cpu_s: Mapping[str, float], messages: int
) -> Sheet:
    """`reports` and `cpu_s` (of the whole process): by node."""
    followers = sorted(
        (node for node in reports if node != leader),
        key=lambda node: -reports[node].spans["frames: decoded"][0],
    )
    roles = dict(zip(("leader", "front", "rear"), (leader, *followers), strict=True))
    per_message = 1 / messages
    cpu_us = {
        step: {
            role: reports[node].spans[step][1] / 1_000 * per_message for role, node in roles.items()
        }
        for step, _, _ in STEPS
    }
    total_us = {role: cpu_s[node] * 1e6 * per_message for role, node in roles.items()}
    cpu_us["event loop, futures, gRPC, all else"] = {
        role: total_us[role] - sum(by_role[role] for by_role in cpu_us.values()) for role in roles
    }
    cpu_us["the process"] = total_us
    entries = len({index for index, _ in reports[leader].marks.get("read", [])})
    return Sheet(messages, entries, roles, cpu_us, _path(reports, roles))


class _Points:
    """The marks of a name, in order."""

    def __init__(self, marks: list[tuple[int, int]]) -> None:
        self._indexes = [index for index, _ in marks]
        self._times = [at for _, at in marks]

    def after(self, index: int, since_ns: int) -> int | None:
        """Return when this entry or a later one reached the point first, not before `since_ns`."""
        at = bisect_left(self._indexes, index)
        while at < len(self._times) and self._times[at] < since_ns:
            at += 1
        return self._times[at] if at < len(self._times) else None


def _path(reports: Mapping[str, Report], roles: Mapping[str, str]) -> dict[str, float]:
    ids = {node: _raft_id(reports, node) for node in roles.values()}
    names = {role: ids[node] for role, node in roles.items()}
    points = [
        _Points(reports[roles[role]].marks.get(mark.format(**names), [])) for _, role, mark in PATH
    ]
    waits: list[list[float]] = [[] for _ in PATH]
    for index, read_ns in reports[roles["leader"]].marks.get("read", []):
        times = [read_ns]
        for point in points:
            at = point.after(index, times[-1])
            if at is None:
                break
            times.append(at)
        if len(times) == len(PATH) + 1:
            for number, wait in enumerate(waits):
                wait.append((times[number + 1] - times[number]) / 1_000)
    return {
        part: median(wait) if wait else 0.0 for (part, _, _), wait in zip(PATH, waits, strict=True)
    }


def _raft_id(reports: Mapping[str, Report], node: str) -> str:
    """Return a node's id in the log, by which the others' marks name it."""
    for report in reports.values():
        for mark in report.marks:
            _, _, peer = mark.partition(" ")
            if peer.rpartition(".")[0] == node:
                return peer
    return node


def _row(text: str) -> str:
    return text.ljust(44)


def _flat(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "_".join(words)

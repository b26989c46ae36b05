"""What `qm check` finds of a cluster, and how it says it."""

from __future__ import annotations

from typing import Any

import pytest

from qm.cli.cluster.conditions import (
    CHECKS,
    LIMITS,
    Facts,
    Finding,
    Level,
    Limits,
    NodeFacts,
    judged,
    nagios_text,
)
from qm.pb import control_pb2 as pb

DAY_S = 86_400


def status(node: str = "n1", **changes: Any) -> pb.ClusterStatus:
    members = [
        pb.Member(name=f"n{k}", role=pb.VOTER, is_reachable=True, applied_index=100)
        for k in (1, 2, 3)
    ]
    made = pb.ClusterStatus(
        node=node, leader="n1", commit_index=100, computer_name="QUORATE", members=members,
        disk_free_bytes=50, disk_total_bytes=100,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def facts(
    *others: NodeFacts, outgoing: tuple[Any, ...] = (), metrics: Any = None, **changes: Any
) -> Facts:
    first = NodeFacts("n1:1811", "", status(**changes), metrics or {})
    return Facts((first, *others), outgoing)


def one(found: Facts, check: str) -> Finding:
    (finding,) = judged(found, (check,))
    return finding


def test_a_sound_cluster_is_ok() -> None:
    found = judged(facts())
    assert [each.check for each in found] == list(CHECKS)
    assert {each.level for each in found} == {Level.OK}
    lines = nagios_text("QUORATE", found)
    head, _, data = lines[0].partition(" | ")
    assert head == "QUORATE OK - QUORATE: 9 checks"
    assert "quorum=3" in data
    assert "disk=50%;20:;10:" in data
    assert "dead_letters=0;1;1000" in data
    assert len(lines) == 10


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({}, Level.OK, "3 of 3 voters are reachable, n1 leads"),
        ({"lost": 1}, Level.WARNING, "n3 is not reachable"),
        ({"leader": "", "lost": 2}, Level.CRITICAL, "no node leads"),
        ({"is_draining": True}, Level.WARNING, "n1 drains"),
        ({"alarm": "apply_lags"}, Level.WARNING, "apply_lags"),
    ],
)
def test_quorum(change: dict[str, Any], level: Level, said: str) -> None:
    lost, alarm = change.pop("lost", 0), change.pop("alarm", "")
    found = facts(**change)
    seen = found.nodes[0].status
    for member in list(seen.members)[3 - lost :]:
        member.is_reachable = False
    if alarm:
        seen.alarms.append(alarm)
    finding = one(found, "quorum")
    assert finding.level is level
    assert said in finding.text


def test_a_node_that_does_not_answer_is_a_warning_and_none_is_critical() -> None:
    silent = NodeFacts("n2:1811", "n2 port 1811: connection refused")
    finding = one(facts(silent), "quorum")
    assert (finding.level, "connection refused" in finding.text) == (Level.WARNING, True)
    (dead,) = judged(Facts((silent,)))
    assert (dead.level, dead.text) == (Level.CRITICAL, "n2 port 1811: connection refused")


def test_the_leader_s_word_counts_and_of_metrics_the_worst() -> None:
    stale = NodeFacts("n2:1811", "", status("n2", leader="", commit_index=7), {"m": {"q": 2.0}})
    found = facts(stale, metrics={"m": {"q": 1.0}})
    assert found.of_cluster().node == "n1"
    assert found.values("m") == {"q": 2.0}


@pytest.mark.parametrize(
    ("check", "metrics", "level", "said"),
    [
        ("certificate", {"quorate_certificate_expiry_seconds": {"a.pem": 31 * DAY_S}}, 0, "31"),
        ("certificate", {"quorate_certificate_expiry_seconds": {"a.pem": 30 * DAY_S}}, 1, "a.pem"),
        ("certificate", {"quorate_certificate_expiry_seconds": {"a.pem": -DAY_S}}, 2, "-1 days"),
        ("quota", {"quorate_queue_quota_ratio": {"x": 0.5, "y": 0.8}}, 1, "80% used of y"),
        ("quota", {"quorate_queue_quota_ratio": {"x": 0.95}}, 2, "95% used of x"),
        ("dead_letters", {"quorate_deadletter_messages": {"a": 0, "b": 0}}, 0, "0 messages"),
        ("dead_letters", {"quorate_deadletter_messages": {"a": 1, "b": 2}}, 1, "3 messages"),
        ("dead_letters", {"quorate_deadletter_messages": {"a": 1000}}, 2, "1000 messages"),
        ("oldest_message", {"quorate_queue_oldest_seconds": {"x": 3_599}}, 0, "in x"),
        ("oldest_message", {"quorate_queue_oldest_seconds": {"x": DAY_S, "y": 1}}, 2, "in x"),
        ("archive", {"quorate_archive_lag_seconds": {"": 300.0}}, 1, "300 s behind"),
        ("archive", {}, 0, "nothing to measure"),
    ],
)
def test_metrics_have_limits(check: str, metrics: Any, level: int, said: str) -> None:
    finding = one(facts(metrics=metrics), check)
    assert (finding.level, said in finding.text) == (level, True), finding.text


def test_disk_replicas_and_outgoing_queues() -> None:
    assert one(facts(disk_free_bytes=20), "disk").level is Level.WARNING
    assert one(facts(disk_free_bytes=9), "disk").text == "9% free at n1"
    assert one(facts(disk_total_bytes=0), "disk").text == "not measured"
    behind = facts(commit_index=100 + 1_024)
    assert one(behind, "replica_lag").level is Level.WARNING
    waiting = [
        pb.OutgoingQueue(format_name=f"q{state}", state=state, message_count=count)
        for state, count in ((pb.CONNECTED, 9), (pb.ON_HOLD, 9), (pb.WAITING, 2), (pb.WAITING, 0))
    ]
    finding = one(facts(outgoing=tuple(waiting)), "outgoing")
    assert (finding.level, finding.value) == (Level.WARNING, 2.0)
    assert finding.text == "2 messages wait for q3"


def test_limits_can_be_others() -> None:
    metrics = {"quorate_deadletter_messages": {"a": 50}}
    limits = dict(LIMITS) | {"dead_letters": Limits(100, 200)}
    (finding,) = judged(facts(metrics=metrics), ("dead_letters",), limits)
    assert finding.level is Level.OK
    bad = judged(facts(metrics=metrics, disk_free_bytes=1))
    lines = nagios_text("", bad)
    said = "QUORATE CRITICAL - cluster: disk: 1% free at n1; dead_letters: 50 messages | "
    assert lines[0].startswith(said)
    assert "[WARNING] dead_letters: 50 messages" in lines

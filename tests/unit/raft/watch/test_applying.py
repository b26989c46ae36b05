"""A replica that applies too slowly says so, and a leader hands over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.step import AlarmKind
from raft.types import Role
from raft.watch.applying import ApplyWatch
from raft.watch.disk import Alarms
from tests.unit.raft.nodes import Cluster

LATE_TICKS = 50


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that are late soon; nothing else counts as stuck."""
    made = Cluster(
        tmp_path,
        late_ticks=LATE_TICKS,
        stuck_ticks=1 << 20,
        core_apply_lag_entries_max=4,
        core_apply_lead_entries_max=16,
    )
    yield made
    made.close()


def test_an_alarm_is_raised_once_for_each_time_that_it_is_late() -> None:
    """Operators need not read it again and again."""
    alarms = Alarms()
    watch = ApplyWatch(alarms, LATE_TICKS)
    told = []
    for lags, now in ((True, 0), (True, 49), (False, 50), (True, 60), (True, 110), (True, 200)):
        watch.look(lags, now)
        told.append((watch.is_late, [alarm.kind for alarm in alarms.take()]))
    late = AlarmKind.APPLY_LAGS
    assert told == [(False, []), *[(False, [])] * 3, (True, [late]), (True, [])]
    watch.look(False, 210)
    assert not watch.is_late
    watch.look(True, 220)
    watch.look(True, 270)
    assert [alarm.kind for alarm in alarms.take()] == [late]


def test_a_follower_that_does_not_apply_is_late_until_it_has_caught_up(cluster: Cluster) -> None:
    """It can be neither read from nor lead; operators learn why."""
    cluster.elect("a")
    slow = cluster["c"]
    slow.machine.is_full = True
    for number in range(10):
        cluster.propose(str(number))
    cluster.tick(LATE_TICKS)
    assert not slow.replica.status().applies_late
    cluster.tick(20)
    assert slow.replica.status().applies_late
    assert AlarmKind.APPLY_LAGS in [alarm.kind for alarm in slow.alarms]
    slow.machine.is_full = False
    cluster.tick(30)
    assert not slow.replica.status().applies_late
    assert slow.machine.data() == cluster["a"].machine.data()


def test_a_leader_that_does_not_apply_hands_over_to_one_that_does(cluster: Cluster) -> None:
    """Nothing would be acknowledged as long as it led."""
    slow = cluster.elect("a")
    cluster.propose("first")
    slow.machine.is_full = True
    for number in range(8):
        slow.replica.propose(str(number).encode())
    cluster.tick(2 * LATE_TICKS)
    assert slow.replica.role is Role.FOLLOWER
    leader = cluster.leader()
    assert leader.node in ("b.1", "c.1")
    cluster.propose("afterwards")
    slow.machine.is_full = False
    cluster.tick(30)
    assert slow.machine.data() == leader.machine.data()
    assert slow.machine.data()[-1] == "afterwards"


def test_a_leader_that_does_not_apply_stays_when_no_other_does(cluster: Cluster) -> None:
    """An election would not help."""
    slow = cluster.elect("a")
    for node in cluster.nodes.values():
        node.machine.is_full = True
    for number in range(8):
        slow.replica.propose(str(number).encode())
    term = slow.replica.term
    cluster.tick(2 * LATE_TICKS)
    assert (slow.replica.role, slow.replica.term) == (Role.LEADER, term)

"""What a leader does by its clock alone, and what it writes besides entries."""

import pytest

from raft.core.core import CoreConfig
from raft.types import Heartbeat, PeerState, Role
from tests.unit.raft.core.group import ELECTION_TICKS, HEARTBEAT_TICKS, Group

CONFIG = CoreConfig("a.1", 1)
IDLE_TICKS = CONFIG.idle_heartbeat_ticks


def rounds_in(group: Group, ticks: int) -> int:
    """Return how often the leader sends heartbeats to a follower that hears them."""
    group.log.clear()
    group.tick(ticks)
    return sum(isinstance(one.body, Heartbeat) and one.to == "c.1" for one in group.log)


def rested() -> Group:
    group = Group("abc")
    group.elect("a")
    group.propose(b"x")
    group.tick(4 * HEARTBEAT_TICKS)
    return group


def test_heartbeats_are_fewer_while_there_is_nothing_to_say() -> None:
    group = rested()
    assert rounds_in(group, 10 * IDLE_TICKS) == 10
    assert [member.core.role for member in group.members.values()].count(Role.FOLLOWER) == 2


@pytest.mark.parametrize("event", ["proposal", "silence", "connection", "lag"])
def test_heartbeats_are_frequent_while_anything_is_not_as_it_should_be(event: str) -> None:
    group = rested()
    if event == "proposal":
        group.drops = lambda envelope: (
            envelope.to == "b.1" and not isinstance(envelope.body, Heartbeat)
        )
        group.propose(b"y")
    elif event == "silence":
        group.isolate("b")
        group.tick(2 * IDLE_TICKS)
    elif event == "connection":
        group.isolate("b")
        group.core("a").peer("b.1", PeerState.LOST)
    else:
        group["b"].applies = False
        group.propose(b"y")
    assert rounds_in(group, 4 * HEARTBEAT_TICKS) >= 4


def test_idle_followers_need_not_wake_up_between_heartbeats() -> None:
    group = rested()
    asleep = min(group.core("c").ticks_until_due(), CONFIG.ticks_at_once_max)
    assert asleep > IDLE_TICKS


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    group = Group("abc")
    leader = group.elect("a")
    for _ in range(3 * ELECTION_TICKS):
        leader.tick()
    assert leader.role is not Role.LEADER


def test_the_commit_index_is_written_once_in_a_stride() -> None:
    stride, entries = 4, 20
    group = Group("a", commit_stride_entries=stride)
    leader = group.elect("a")
    written = 0
    for number in range(entries):
        leader.propose(b"%d" % number)
        while leader.has_ready():
            written += group["a"].ready().hard_state is not None
    assert entries // (2 * stride) <= written <= entries // stride + 1

"""Replicas that sync but do not apply: how far they are led, and who leads then."""

import pytest

from raft.core.core import Busy
from raft.core.membership import PromoteLearner
from raft.types import AppendReply, PeerState, Role, TimeoutNow
from tests.unit.raft.core.group import ELECTION_TICKS, HEARTBEAT_TICKS, Group, bodies, envelope

LAG = 4
LEAD = 16


def new_group(voters: str = "abc", learners: str = "") -> Group:
    """Return a group with small limits."""
    return Group(voters, learners, apply_lag_entries_max=LAG, apply_lead_entries_max=LEAD)


def propose(group: Group, count: int) -> None:
    """Propose as many entries as the leader takes, up to `count`."""
    for _ in range(count):
        try:
            group.propose(b"x")
        except Busy:
            group.tick(HEARTBEAT_TICKS)


def test_a_follower_that_never_applies_is_sent_a_bounded_number_of_entries() -> None:
    """Its log would otherwise grow without bound ahead of its state."""
    group = new_group()
    leader = group.elect("a")
    group["c"].applies = False
    stands_at = group["c"].applied
    propose(group, 10 * LEAD)
    group.tick(4 * HEARTBEAT_TICKS)
    assert leader.commit > 9 * LEAD
    assert group.core("c").last_index == stands_at + LEAD
    group["c"].applies = True
    group["c"].apply()
    group.tick(40 * HEARTBEAT_TICKS)
    assert group["c"].applied == leader.commit


def test_a_replica_lags_from_one_entry_more_than_it_may() -> None:
    group = new_group()
    leader = group.elect("a")
    group["c"].applies = False
    stands_at = group["c"].applied
    while leader.commit < stands_at + LAG:
        propose(group, 1)
        group.tick(2 * HEARTBEAT_TICKS)
    assert group.core("c").commit == stands_at + LAG
    assert not group.core("c").lags
    propose(group, 1)
    group.tick(2 * HEARTBEAT_TICKS)
    assert group.core("c").commit == stands_at + LAG + 1
    assert group.core("c").lags


def test_a_follower_that_starts_again_is_led_from_what_it_has_applied() -> None:
    """Its state may be older than what the process before it had told."""
    group = new_group()
    leader = group.elect("a")
    propose(group, 3 * LEAD)
    group.tick(4 * HEARTBEAT_TICKS)
    c = group["c"]
    c.applied = 2
    c.restart()
    c.applies = False
    for state in (PeerState.LOST, PeerState.CONNECTED):
        leader.peer("c.1", state)
    group.settle()
    group.tick(2 * HEARTBEAT_TICKS)
    before = c.core.last_index
    propose(group, 3 * LEAD)
    group.tick(4 * HEARTBEAT_TICKS)
    assert c.core.last_index <= before + 1


def test_a_leader_that_never_applies_commits_a_bounded_number_of_entries() -> None:
    """Followers would otherwise apply without bound ahead of it."""
    group = new_group()
    leader = group.elect("a")
    a = group["a"]
    a.applies = False
    stands_at = a.applied
    for _ in range(10 * LEAD):
        try:
            leader.propose(b"x")  # without waiting for the commit of those before
        except Busy:
            break
    group.tick(4 * HEARTBEAT_TICKS)
    with pytest.raises(Busy, match="this leader applies too slowly"):
        leader.propose(b"x")
    assert leader.commit == stands_at + LEAD
    a.applies = True
    a.apply()
    group.tick(20 * HEARTBEAT_TICKS)
    assert leader.commit == leader.last_index
    leader.propose(b"x")


def test_a_long_uncommitted_end_does_not_stop_its_next_leader() -> None:
    """Nothing of it can be applied before the no-op of the new term is committed."""
    group = new_group("abcde")
    leader = group.elect("a")
    group.isolate("c")
    group.isolate("d")
    group.isolate("e")
    for _ in range(2 * LEAD):
        leader.propose(b"x")
    group.settle()
    assert group.core("b").last_index == group["b"].applied + LEAD
    group.heal()
    group.isolate("a")
    successor = group.elect("b")
    group.tick(4 * HEARTBEAT_TICKS)
    assert successor.commit == successor.last_index > LEAD
    assert group["e"].applied == successor.commit


def lagging(group: Group, name: str) -> None:
    """Have a follower sync what is committed and not apply it."""
    group[name].applies = False
    propose(group, 2 * LAG)
    group.tick(2 * HEARTBEAT_TICKS)
    assert group.core(name).lags


def test_a_follower_that_lags_leaves_the_election_to_another() -> None:
    """It would lead without being able to serve."""
    group = new_group()
    group.elect("a")
    lagging(group, "b")
    group["b"].jitter, group["c"].jitter = 0, 79
    group.isolate("a")
    group.tick(2 * ELECTION_TICKS + 1)
    assert group.core("c").role is Role.LEADER
    assert group.core("b").counters.campaigns == 0


def test_a_follower_that_lags_leads_when_nobody_else_can() -> None:
    """Only its log has everything."""
    group = new_group()
    group.elect("a")
    group.isolate("c")
    lagging(group, "b")
    group.heal()
    group.isolate("a")
    group.tick(3 * ELECTION_TICKS)
    assert group.core("b").role is Role.LEADER


def test_a_follower_that_stands_back_leads_when_no_other_campaigns() -> None:
    """The others may be voters whose disks are full."""
    group = new_group()
    group.elect("a")
    group.core("b").stand_back(True)
    group.core("c").writable(False)
    group.isolate("a")
    group.tick(4 * ELECTION_TICKS, "b", "c")
    assert group.core("b").counters.campaigns > 0
    group.core("c").writable(True)
    group.tick(2 * ELECTION_TICKS)
    assert group.core("b").role is Role.LEADER or group.core("c").role is Role.LEADER


def test_a_follower_that_stands_back_is_last_in_early_campaigns() -> None:
    """Its rank would be the first."""
    group = new_group()
    group.elect("c")
    group.core("a").stand_back(True)
    group.isolate("c")
    group.lose("c", "a", "b")
    group.tick(20, "a", "b")
    assert group.core("b").role is Role.LEADER
    assert group.core("a").counters.early_campaigns == 0


def test_a_replica_that_stands_back_no_more_campaigns_as_before() -> None:
    """An operator lets it serve again."""
    group = new_group()
    group.elect("a")
    group.core("b").stand_back(True)
    group.core("b").stand_back(False)
    group["b"].jitter, group["c"].jitter = 0, 79
    group.isolate("a")
    group.tick(2 * ELECTION_TICKS)
    assert group.core("b").role is Role.LEADER


def test_leadership_is_not_handed_to_a_follower_that_lags() -> None:
    """Neither on request nor by a leader that gives up."""
    group = new_group()
    leader = group.elect("a")
    lagging(group, "c")
    with pytest.raises(Busy, match="has not applied what is committed"):
        leader.transfer("c.1")
    leader.resign()
    group["a"].pump()
    sent = group["a"].take_outbox()
    assert [e.to for e in sent if isinstance(e.body, TimeoutNow)] == ["b.1"]
    assert bodies(sent, TimeoutNow) == [TimeoutNow()]


def test_a_learner_that_lags_does_not_become_a_voter() -> None:
    """The group would count on it."""
    group = new_group("abc", "d")
    leader = group.elect("a")
    lagging(group, "d")
    with pytest.raises(Busy, match="caught up"):
        leader.change_members(PromoteLearner("d.1"))
    group["d"].applies = True
    group["d"].apply()
    group.tick(4 * HEARTBEAT_TICKS)
    leader.change_members(PromoteLearner("d.1"))


def test_answers_that_overtake_each_other_lower_no_applied_index() -> None:
    """Only another process may have applied less."""
    group = new_group()
    leader = group.elect("a")
    propose(group, 3)
    applied = {f.node: f.applied for f in leader.followers()}["b.1"]
    group["a"].core.receive(envelope("b", "a", leader.term, AppendReply(2, False, 0, 0, 1)))
    assert {f.node: f.applied for f in leader.followers()}["b.1"] == applied

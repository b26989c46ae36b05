"""Linearizable reads by read index (Raft thesis 6.4)."""

import pytest

from raft.core.core import Busy
from raft.types import Heartbeat, HeartbeatReply, ReadReply, ReadRequest, ReadState, Role
from tests.unit.raft.core.group import ELECTION_TICKS, HEARTBEAT_TICKS, Group, bodies, envelope


def test_a_read_is_served_after_a_majority_confirmed_the_leader() -> None:
    """Thesis 6.4: the commit index is noted, then a round of heartbeats."""
    group = Group("abc")
    leader = group.elect("a")
    leader.read(5)
    group["a"].pump()
    assert group["a"].reads == []
    group.settle()
    assert group["a"].reads == [ReadState(5, leader.commit)]


def test_a_read_waits_for_an_entry_of_the_own_term() -> None:
    """Thesis 6.4: before its no-op is committed a leader does not know what is."""
    group = Group("abc")
    group.elect("b")
    group.propose(b"x")
    group.drops = lambda e: (
        not isinstance(e.body, Heartbeat | HeartbeatReply) and (group.core("a").role is Role.LEADER)
    )
    leader = group.elect("a")
    leader.read(1)
    group.tick(3 * HEARTBEAT_TICKS)
    assert group["a"].reads == []
    group.heal()
    group.tick(3 * HEARTBEAT_TICKS)
    assert group["a"].reads == [ReadState(1, leader.commit)]
    assert leader.commit == 3


def test_a_deposed_leader_serves_no_read() -> None:
    """Thesis 6.4: it cannot reach a majority, so it cannot serve stale data."""
    group = Group("abc")
    group.elect("a")
    group.isolate("a")
    group["a"].core.read(1)
    group.tick(HEARTBEAT_TICKS, "a")
    group.elect("b")
    group.propose(b"x")
    assert group["a"].reads == []
    group.heal()
    group.tick(2 * ELECTION_TICKS)
    assert group["a"].reads == [ReadState(1, 3)], "asked again, of the new leader"


def test_followers_and_learners_read_through_the_leader() -> None:
    """Thesis 6.4: they ask for the index and serve from their own state."""
    group = Group("abc", learners="d")
    leader = group.elect("a")
    group.propose(b"x")
    for name in "bd":
        group.core(name).read(9)
        group.settle()
        assert group[name].reads == [ReadState(9, leader.commit)]


def test_a_learner_confirms_nothing() -> None:
    """Thesis 4.2.1, 6.4: only voters make a majority."""
    group = Group("abc", learners="d")
    group.elect("a")
    group.isolate("b")
    group.isolate("c")
    group.core("a").read(1)
    group.tick(2 * HEARTBEAT_TICKS)
    assert group["a"].reads == []


def test_reads_of_one_moment_share_a_round() -> None:
    """Cost follows batches: one heartbeat per follower for any number of reads."""
    group = Group("abc")
    leader = group.elect("a")
    group.log.clear()
    for request in range(100):
        leader.read(request)
    group.settle()
    assert len(group["a"].reads) == 100
    assert len([e for e in group.log if isinstance(e.body, Heartbeat)]) == 2


def test_a_lost_round_is_repeated_by_the_next_heartbeat() -> None:
    """The newest barrier travels in every heartbeat."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: isinstance(e.body, HeartbeatReply)
    leader.read(1)
    group.settle()
    assert group["a"].reads == []
    group.heal()
    group.tick(HEARTBEAT_TICKS)
    assert group["a"].reads == [ReadState(1, 1)]


def test_a_lost_request_is_asked_again_and_answered_once() -> None:
    """A follower repeats its question; a repeated answer is no second one."""
    group = Group("abc")
    group.elect("a")
    group.drops = lambda e: isinstance(e.body, ReadRequest)
    group.core("b").read(1)
    group.settle()
    group.heal()
    group.tick(HEARTBEAT_TICKS)
    assert group["b"].reads == [ReadState(1, 1)]
    group.core("b").receive(envelope("a", "b", 1, ReadReply(1, 1)))
    group["b"].pump()
    assert len(group["b"].reads) == 1


def test_a_read_waits_for_a_leader() -> None:
    """Without one it is not refused: the next one is asked."""
    group = Group("abc")
    group.core("b").read(1)
    group.settle()
    group.elect("a")
    group.tick(HEARTBEAT_TICKS)
    assert [state.request for state in group["b"].reads] == [1]


def test_who_does_not_lead_says_ask_again() -> None:
    """ReadReply with index 0; the asker keeps the request."""
    group = Group("abc")
    group.elect("a")
    group.core("b").receive(envelope("c", "b", 1, ReadRequest(4)))
    group["b"].pump()
    assert bodies(group["b"].take_outbox(), ReadReply) == [ReadReply(4, 0)]
    group.core("c").read(4)
    group.core("c").receive(envelope("a", "c", 1, ReadReply(4, 0)))
    group.settle()
    assert group["c"].reads == [ReadState(4, 1)]


def test_a_cancelled_read_is_not_answered() -> None:
    """Neither here nor when its answer arrives."""
    group = Group("abc")
    group.elect("a")
    group.core("a").read(1)
    group.core("a").cancel_read(1)
    group.core("b").read(2)
    group.core("b").cancel_read(2)
    group.settle()
    assert group["a"].reads == group["b"].reads == []


def test_waiting_reads_are_bounded_here_and_for_each_asker() -> None:
    """reads_pending_max: Busy at home, `ask again` for others."""
    group = Group("abc", reads_pending_max=3)
    leader = group.elect("a")
    group.isolate("a")
    for request in range(3):
        leader.read(request)
    with pytest.raises(Busy, match="reads_pending_max"):
        leader.read(3)
    for request in range(5):
        leader.receive(envelope("b", "a", 1, ReadRequest(request)))
    group["a"].pump()
    assert bodies(group["a"].take_outbox(), ReadReply) == [ReadReply(3, 0), ReadReply(4, 0)]


def test_a_stranger_gets_no_read_index() -> None:
    """Only members ask; anything else would let memory grow by names."""
    group = Group("abc")
    leader = group.elect("a")
    leader.receive(envelope("x", "a", 1, ReadRequest(1)))
    group["a"].pump()
    assert bodies(group["a"].take_outbox(), ReadReply) == []


def test_a_made_up_echo_confirms_nothing() -> None:
    """A barrier that was never sent cannot have been seen."""
    group = Group("abc")
    leader = group.elect("a")
    leader.read(1)
    leader.receive(envelope("b", "a", 1, HeartbeatReply(77, 0)))
    group["a"].pump()
    assert group["a"].reads == []
    assert leader.counters.malformed == 1


def test_an_echo_of_an_older_barrier_confirms_only_that() -> None:
    """Each barrier needs a majority that answered after it was made."""
    group = Group("abc")
    leader = group.elect("a")
    leader.read(1)
    group["a"].pump()
    leader.read(2)
    group["a"].pump()
    leader.receive(envelope("b", "a", 1, HeartbeatReply(1, 0)))
    group["a"].pump()
    assert [state.request for state in group["a"].reads] == [1]


def test_a_single_voter_confirms_itself() -> None:
    """A majority of one."""
    group = Group("a")
    group.elect("a").read(1)
    group["a"].pump()
    assert group["a"].reads == [ReadState(1, 1)]


def test_a_read_continues_when_its_leader_is_replaced() -> None:
    """The asker repeats it at once, not after a timeout."""
    group = Group("abc")
    group.elect("a")
    group.drops = lambda e: isinstance(e.body, ReadReply)
    group.core("c").read(1)
    group.settle()
    group.heal()
    group.elect("b")
    assert [state.request for state in group["c"].reads] == [1]

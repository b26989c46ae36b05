"""Leader transfer (Raft thesis 3.10)."""

import pytest

from raft.core.core import Busy, NotLeader
from raft.core.membership import BadChange, RemoveMember
from raft.types import Append, Heartbeat, Role, TimeoutNow, Vote
from tests.unit.raft.core.group import ELECTION_TICKS, Group, bodies, envelope


@pytest.mark.parametrize("heir", ["b", "c"])
def test_leadership_moves_to_a_follower_that_has_everything(heir: str) -> None:
    """Thesis 3.10: TimeoutNow, a campaign at once, within the lease of the old leader."""
    group = Group("abc")
    leader = group.elect("a")
    leader.transfer(f"{heir}.1")
    group.settle()
    assert (group.core(heir).role, leader.role) == (Role.LEADER, Role.FOLLOWER)
    assert group.core(heir).term == 2
    group.core(heir).transfer("a.1")
    group.settle()
    assert leader.role is Role.LEADER


def test_the_heir_is_brought_up_to_date_first() -> None:
    """Thesis 3.10, step 2."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: e.to == "b.1" and isinstance(e.body, Append)
    group.propose(b"x")
    leader.transfer("b.1")
    group.settle()
    assert not bodies(group.log, TimeoutNow)
    group.heal()
    group.tick(30)
    assert group.core("b").role is Role.LEADER
    assert group["b"].data() == [b"x"]


def test_no_proposals_meanwhile() -> None:
    """Thesis 3.10, step 1: else the heir might never catch up."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("b")
    leader.transfer("b.1")
    with pytest.raises(Busy, match=r"handed to b\.1"):
        leader.propose(b"x")
    with pytest.raises(Busy, match=r"handed to b\.1"):
        leader.change_members(RemoveMember("c.1"))


def test_a_transfer_ends_after_an_election_timeout() -> None:
    """Thesis 3.10: then the leader continues as if nothing had happened."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("b")
    leader.transfer("b.1")
    group.tick(ELECTION_TICKS, "a", "c")
    group.propose(b"x")
    assert (leader.role, leader.term) == (Role.LEADER, 1)
    assert group["c"].data() == [b"x"]


def test_a_lost_order_is_repeated() -> None:
    """With the answers to heartbeats."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: isinstance(e.body, TimeoutNow)
    leader.transfer("b.1")
    group.settle()
    group.heal()
    group.tick(20)
    assert group.core("b").role is Role.LEADER


@pytest.mark.parametrize("to", ["d.1", "x.1"])
def test_only_voters_can_lead(to: str) -> None:
    """Neither learners nor strangers."""
    group = Group("abc", learners="d")
    leader = group.elect("a")
    with pytest.raises(BadChange, match="not a voter"):
        leader.transfer(to)
    leader.propose(b"x")


def test_a_transfer_to_itself_is_done() -> None:
    """Nothing changes, nothing waits."""
    group = Group("abc")
    leader = group.elect("a")
    leader.transfer("a.1")
    group.propose(b"x")
    assert leader.role is Role.LEADER


def test_one_transfer_at_a_time() -> None:
    """The same again is no other; another one waits for the end of the first."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("b")
    leader.transfer("b.1")
    leader.transfer("b.1")
    with pytest.raises(Busy, match=r"handed to b\.1"):
        leader.transfer("c.1")
    group.tick(ELECTION_TICKS, "a", "c")
    leader.transfer("c.1")
    group.settle()
    assert group.core("c").role is Role.LEADER


def test_who_does_not_answer_cannot_take_over() -> None:
    """Known before proposals are refused for it."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("b")
    group.tick(ELECTION_TICKS + 10, "a", "c")
    with pytest.raises(Busy, match="does not answer"):
        leader.transfer("b.1")


def test_only_the_leader_transfers() -> None:
    """The error names the leader."""
    group = Group("abc")
    group.elect("a")
    with pytest.raises(NotLeader, match=r"a\.1"):
        group.core("b").transfer("c.1")


def test_an_order_from_anybody_else_is_dropped() -> None:
    """Only the leader of the term may say so, and only to a voter."""
    group = Group("abc", learners="d")
    group.elect("a")
    group.core("b").receive(envelope("c", "b", 1, TimeoutNow()))
    group.core("d").receive(envelope("a", "d", 1, TimeoutNow()))
    assert group.core("b").role is Role.FOLLOWER
    assert group.core("d").role is Role.FOLLOWER
    assert group.core("b").counters.unexpected == 1


def test_the_campaign_of_a_transfer_says_so() -> None:
    """Voters in the lease of the old leader must let it pass; no other message may do so."""
    group = Group("abc")
    leader = group.elect("a")
    leader.transfer("b.1")
    group.settle()
    assert {body.is_transfer for body in bodies(group.log, Vote)[-2:] if isinstance(body, Vote)}
    group.elect("c")
    last = bodies(group.log, Vote)[-1]
    assert isinstance(last, Vote)
    assert not last.is_transfer


def test_a_greater_term_ends_a_transfer() -> None:
    """With the leadership it was part of."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("b")
    leader.transfer("b.1")
    leader.receive(envelope("c", "a", 9, Heartbeat(0, 0)))
    assert (leader.role, leader.term) == (Role.FOLLOWER, 9)


def test_a_removed_heir_ends_the_transfer() -> None:
    """It cannot lead any more."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: isinstance(e.body, TimeoutNow)
    leader.change_members(RemoveMember("b.1"))
    with pytest.raises(BadChange, match="not a voter"):
        leader.transfer("b.1")
    group.settle()
    leader.propose(b"x")


def test_resigning_hands_over_to_who_knows_most() -> None:
    """It needs no timeout."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: e.to == "b.1" and isinstance(e.body, Append)
    group.propose(b"x")
    leader.resign()
    assert leader.role is Role.FOLLOWER
    group.settle()
    assert group.core("c").role is Role.LEADER


def test_an_heir_that_needs_a_snapshot_takes_over_after_it() -> None:
    """The transfer waits for the match, however it comes about, within its time."""
    group = Group("abc", recent_bytes_max=0)
    leader = group.elect("a")
    group.isolate("c")
    for _ in range(3):
        group.propose(b"x")
    group["a"].compact(group["a"].applied)
    group.heal()
    group.tick(20)
    leader.transfer("c.1")
    meta = group["a"].snapshot_meta()
    leader.offer_snapshot("c.1", meta)
    assert group.core("c").begin_install(meta)
    group.core("c").end_install(meta)
    leader.snapshot_done("c.1", True)
    group.settle()
    assert group.core("c").role is Role.LEADER

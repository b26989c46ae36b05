"""Early campaigns by evidence of death (DESIGN section 3, raft/design.md, Elections)."""

import pytest

from raft.types import Append, Heartbeat, PeerState, PreVote, PreVoteReply, Role
from tests.unit.raft.core.group import ELECTION_TICKS, Group, bodies, envelope

EARLY_DELAY_TICKS = 3
EARLY_WINDOW_TICKS = 10


def dead_leader(voters: str = "abc") -> Group:
    """A group whose leader `a` was killed; no member has noticed."""
    group = Group(voters)
    group.elect("a")
    group.propose(b"x")
    group.isolate("a")
    return group


def test_a_killed_leader_is_replaced_in_the_same_tick() -> None:
    """A lost stream and a refused reconnect at all survivors: no timeout is waited for."""
    group = dead_leader()
    group.lose("a", "b", "c")
    group.settle()
    assert group.core("b").role is Role.LEADER
    assert group.core("b").term == 2
    assert group.core("b").commit == 3


def test_a_lost_connection_alone_is_no_evidence() -> None:
    """A live leader that suffers resets keeps leading."""
    group = Group("abc")
    group.elect("a")
    for _ in range(5):
        group.lose("a", "b", "c", state=PeerState.LOST)
        group.settle()
        group.tick(3)
        group.lose("a", "b", "c", state=PeerState.CONNECTED)
        group.tick(3)
    assert group.core("a").role is Role.LEADER
    assert {group.core(name).counters.early_campaigns for name in "abc"} == {0}


def test_one_survivor_with_evidence_does_not_depose_a_live_leader() -> None:
    """A grant needs that the voter's own connection is gone too."""
    group = Group("abc")
    group.elect("a")
    group.lose("a", "b")
    group.settle()
    assert group.core("b").counters.early_campaigns == 1
    group.tick(2 * ELECTION_TICKS)
    assert [group.core(name).role for name in "abc"] == [
        Role.LEADER,
        Role.FOLLOWER,
        Role.FOLLOWER,
    ]
    assert {group.core(name).term for name in "abc"} == {1}


@pytest.mark.parametrize("state", [PeerState.LOST, PeerState.REFUSED])
def test_a_denial_is_looked_at_again_when_the_voter_notices(state: PeerState) -> None:
    """Within 50 ms: kernels do not tell all survivors in the same instant."""
    group = dead_leader()
    group.lose("a", "b")
    group.settle()
    group.tick(EARLY_WINDOW_TICKS - 1)
    assert group.core("b").role is Role.PRE_CANDIDATE
    group.lose("a", "c", state=state)
    group.settle()
    assert group.core("b").role is Role.LEADER


def test_after_the_window_the_denial_stands() -> None:
    """The asker gets an answer; a voter that notices later has forgotten the question."""
    group = dead_leader()
    group.lose("a", "b")
    group.settle()
    group.tick(EARLY_WINDOW_TICKS)
    assert PreVoteReply(False, True) in bodies(group.log, PreVoteReply)
    group.lose("a", "c", state=PeerState.LOST)
    group.settle()
    assert group.core("b").role is not Role.LEADER


def test_the_survivors_wait_by_rank() -> None:
    """Rank x 15 ms, by id among the voters that seem alive, so that votes do not split."""
    group = dead_leader("abcde")
    group.cuts |= {(x, y) for x in group.members for y in group.members}
    group.lose("a", "b", "c", "d", "e")
    begun: dict[str, int] = {}
    for tick in range(4 * EARLY_DELAY_TICKS):
        for name in "bcde":
            if group.core(name).counters.early_campaigns and name not in begun:
                begun[name] = tick
        group.tick(1, settle=False)
    assert begun == {"b": 0, "c": 3, "d": 6, "e": 9}


def test_a_voter_that_is_down_has_no_rank() -> None:
    """Its turn would only be a wait."""
    group = dead_leader("abcde")
    group.isolate("b")
    group.lose("b", "c", "d", "e")
    group.lose("a", "c", "d", "e")
    group.settle()
    assert group.core("c").role is Role.LEADER


def test_a_longer_log_takes_over_the_first_rank() -> None:
    """Rank goes by last log position: who denies for that reason campaigns at the next tick."""
    group = Group("abc")
    group.elect("a")
    group.drops = lambda e: e.to == "b.1" and isinstance(e.body, Append)
    group.propose(b"x")
    group.heal()
    group.isolate("a")
    group.lose("a", "c", "b")
    group.settle()
    assert group.core("b").role is not Role.LEADER
    group.tick(1)
    assert group.core("c").role is Role.LEADER
    assert group["b"].data() == [b"x"]


def test_a_granted_asker_goes_first() -> None:
    """The voter's own campaign waits as long as a campaign takes."""
    group = dead_leader("abc")
    group.lose("a", "b", "c")
    group.collect()
    pre_votes = [e for e in group.wire if isinstance(e.body, PreVote) and e.to == "c.1"]
    for asked in pre_votes:
        group.deliver(asked)
    for _ in range(2 * EARLY_DELAY_TICKS):
        group.core("c").tick()
    assert group.core("c").counters.early_campaigns == 0
    for _ in range(20):
        group.core("c").tick()
    assert group.core("c").counters.early_campaigns == 1


def test_what_waited_in_a_buffer_does_not_stop_the_campaign() -> None:
    """The dead leader's last messages may be read after its death was noticed."""
    group = dead_leader()
    b = group.core("b")
    roles = []
    group.lose("a", "b")
    roles.append(b.role)
    b.receive(envelope("a", "b", 1, Heartbeat(2, 0)))
    roles.append(b.role)
    group.tick(1)
    roles.append(b.role)
    group.lose("a", "c")
    group.settle()
    roles.append(b.role)
    assert roles == [Role.PRE_CANDIDATE, Role.FOLLOWER, Role.PRE_CANDIDATE, Role.LEADER]


def test_a_leader_that_speaks_later_lives() -> None:
    """Evidence is forgotten when its object talks after the window."""
    group = Group("abc")
    group.elect("a")
    group.lose("a", "c")
    group.tick(EARLY_WINDOW_TICKS + 1)
    group.tick(2 * ELECTION_TICKS)
    c = group.core("c")
    before = c.counters.early_campaigns
    asked = PreVote(9, 9, True)
    c.receive(envelope("b", "c", 2, asked))
    group["c"].pump()
    assert PreVoteReply(True, True) not in bodies(group["c"].take_outbox())
    group.tick(2 * ELECTION_TICKS)
    assert c.counters.early_campaigns == before
    assert group.core("a").role is Role.LEADER


def test_a_leader_that_comes_back_in_time_is_no_dead_one() -> None:
    """A connection that is back ends the countdown."""
    group = Group("abc")
    group.elect("a")
    group.lose("a", "c")
    group.lose("a", "c", state=PeerState.CONNECTED)
    group.tick(2 * EARLY_DELAY_TICKS)
    assert group.core("c").counters.early_campaigns == 0


def test_a_leader_denies_an_early_pre_vote() -> None:
    """It knows better."""
    group = Group("abc")
    leader = group.elect("a")
    leader.receive(envelope("b", "a", 2, PreVote(9, 1, True)))
    group["a"].pump()
    assert bodies(group["a"].take_outbox()) == [PreVoteReply(False, True)]


def test_held_questions_are_bounded_by_the_members() -> None:
    """A stranger's question is not heard, a member's newer one replaces its older one."""
    group = Group("abc")
    group.elect("a")
    c = group["c"]
    for term in range(2, 50):
        c.core.receive(envelope("b", "c", term, PreVote(9, 1, True)))
    c.core.receive(envelope("x", "c", 2, PreVote(9, 1, True)))
    c.pump()
    assert [e.to for e in c.take_outbox()] == []
    for _ in range(EARLY_WINDOW_TICKS):
        c.core.tick()
    c.pump()
    assert [(e.to, e.body) for e in c.take_outbox()] == [("b.1", PreVoteReply(False, True))]


def test_an_early_campaign_that_fails_leaves_the_timer_alone() -> None:
    """The normal election comes when it would have come."""
    group = dead_leader()
    group.lose("a", "b")
    group.settle()
    group.tick(2 * ELECTION_TICKS)
    assert {group.core(name).leader for name in "bc"} <= {"b.1", "c.1"}
    assert group.leader().node in ("b.1", "c.1")


def test_a_learner_does_not_campaign_early() -> None:
    """Evidence or not."""
    group = Group("ab", learners="c")
    group.elect("a")
    group.lose("a", "c")
    group.tick(EARLY_DELAY_TICKS + 1)
    assert group.core("c").counters.early_campaigns == 0

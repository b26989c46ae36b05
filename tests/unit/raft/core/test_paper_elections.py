"""One test per rule of the paper and the thesis: elections, terms, votes."""

import pytest

from raft.core.core import Core, CoreConfig
from raft.log.memory_log import MemoryLog
from raft.types import (
    Append,
    AppendReply,
    Body,
    Configuration,
    Envelope,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PeerState,
    PreVote,
    PreVoteReply,
    Role,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.unit.raft.core.group import (
    ELECTION_TICKS,
    GROUP,
    HEARTBEAT_TICKS,
    Group,
    Member,
    bodies,
    envelope,
    log_of,
)

ABC = Configuration(("a.1", "b.1", "c.1"))


def follower_of(leader: str, term: int = 1, **options: int) -> Member:
    """A member `b` that hears a leader."""
    member = Member("b.1", ABC, config=options)
    member.core.receive(envelope(leader, "b", term, Heartbeat(0, 0)))
    member.pump()
    member.take_outbox()
    return member


def in_role(role: Role) -> tuple[Group, Member]:
    """A group whose member `a` has the role, in a term above 0."""
    group = Group("abc")
    group.elect("b" if role is Role.FOLLOWER else "a")
    a = group["a"]
    if role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        group.isolate("a")
        group.elect("b")
        group.tick(4 * ELECTION_TICKS, "a")
        if role is Role.CANDIDATE:
            for voter in "bc":
                reply = PreVoteReply(True, False)
                a.core.receive(envelope(voter, "a", a.core.term + 1, reply))
            a.pump()
        group.heal()
    assert a.core.role is role
    a.take_outbox()
    return group, a


ALL_ROLES = [Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER]


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_greater_term_makes_a_follower(role: Role) -> None:
    """Raft 5.1: a server whose term is smaller takes the larger one and follows."""
    _, a = in_role(role)
    term = a.core.term + 5
    a.core.receive(envelope("c", "a", term, Append(0, 0, 0, ())))
    assert (a.core.role, a.core.term, a.core.leader) == (Role.FOLLOWER, term, "c.1")


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_message_of_an_older_term_changes_nothing(role: Role) -> None:
    """Raft 5.1: requests of a stale term are refused."""
    _, a = in_role(role)
    before = (a.core.role, a.core.term, a.core.commit, a.core.last_index)
    stale = a.core.term - 1
    for body in (
        Append(0, 0, 9, log_of(1)),
        Heartbeat(1, 0),
        Vote(99, stale, False),
        VoteReply(True),
        AppendReply(99, False, 0, 0, 0),
        HeartbeatReply(0, 0),
        TimeoutNow(),
    ):
        a.core.receive(envelope("c", "a", stale, body))
    assert (a.core.role, a.core.term, a.core.commit, a.core.last_index) == before
    assert a.core.counters.stale_term + a.core.counters.malformed >= 6


def test_a_replica_starts_as_follower() -> None:
    """Raft 5.2: servers start up as followers."""
    member = Member("b.1", ABC)
    assert member.core.role is Role.FOLLOWER
    assert member.core.leader is None


def test_the_leader_sends_heartbeats() -> None:
    """Raft 5.2: leaders send periodic heartbeats to all followers."""
    group = Group("abc")
    leader = group.elect("a")
    for _ in range(HEARTBEAT_TICKS):
        leader.tick()
    group["a"].pump()
    sent = [e.to for e in group["a"].take_outbox() if isinstance(e.body, Heartbeat)]
    assert sorted(sent) == ["b.1", "c.1"]


def test_a_follower_without_a_leader_campaigns() -> None:
    """Raft 5.2, thesis 9.6: after an election timeout it asks, without raising its term."""
    b = follower_of("a")
    term = b.core.term
    for _ in range(2 * ELECTION_TICKS):
        b.core.tick()
    b.pump()
    assert b.core.role is Role.PRE_CANDIDATE
    assert b.core.term == term
    asked = b.take_outbox()
    assert {e.to for e in asked if isinstance(e.body, PreVote)} == {"a.1", "c.1"}
    assert {e.term for e in asked} == {term + 1}


def test_a_campaign_raises_the_term_votes_for_itself_and_asks_all() -> None:
    """Raft 5.2: increments its term, votes for itself, sends RequestVote to all others."""
    _, a = in_role(Role.PRE_CANDIDATE)
    term = a.core.term
    a.core.receive(envelope("b", "a", term + 1, PreVoteReply(True, False)))
    a.pump()
    assert (a.core.role, a.core.term) == (Role.CANDIDATE, term + 1)
    assert (a.hard_state.term, a.hard_state.vote) == (term + 1, "a.1")
    votes = [e for e in a.take_outbox() if isinstance(e.body, Vote)]
    assert {e.to for e in votes} == {"b.1", "c.1"}
    assert {e.term for e in votes} == {term + 1}


def test_votes_are_asked_for_only_after_the_own_vote_is_durable() -> None:
    """Raft figure 2: persistent state is on stable storage before other servers learn of it."""
    _, a = in_role(Role.PRE_CANDIDATE)
    a.auto_sync = False
    a.core.receive(envelope("b", "a", a.core.term + 1, PreVoteReply(True, False)))
    a.pump()
    assert not bodies(a.take_outbox(), Vote)
    a.sync()
    assert len(bodies(a.take_outbox(), Vote)) == 2


@pytest.mark.parametrize(
    ("voters", "grants", "denials", "role"),
    [
        ("a", 0, 0, Role.LEADER),
        ("abc", 1, 0, Role.LEADER),
        ("abc", 0, 1, Role.CANDIDATE),
        ("abc", 0, 2, Role.FOLLOWER),
        ("abcde", 1, 0, Role.CANDIDATE),
        ("abcde", 2, 0, Role.LEADER),
        ("abcde", 2, 2, Role.LEADER),
        ("abcde", 1, 3, Role.FOLLOWER),
        ("abcd", 1, 0, Role.CANDIDATE),
        ("abcd", 2, 0, Role.LEADER),
        ("abcd", 1, 2, Role.FOLLOWER),
    ],
)
def test_an_election_in_one_round(voters: str, grants: int, denials: int, role: Role) -> None:
    """Raft 5.2: a majority of the votes of the full cluster wins, a majority against loses."""
    group = Group(voters)
    a = group["a"]
    a.core.tick(1)
    for _ in range(4 * ELECTION_TICKS):
        if a.core.role is not Role.FOLLOWER:
            break
        a.core.tick()
    for voter in voters[1:]:
        if a.core.role is Role.PRE_CANDIDATE:
            a.core.receive(envelope(voter, "a", 1, PreVoteReply(True, False)))
    for number, voter in enumerate(voters[1:]):
        if number < grants + denials:
            a.core.receive(envelope(voter, "a", 1, VoteReply(number < grants)))
    assert a.core.role is role


def test_a_vote_that_is_repeated_counts_once() -> None:
    """Raft 5.2: each server votes once; a duplicate of its reply is no second vote."""
    group = Group("abcde")
    a = group["a"]
    for _ in range(2 * ELECTION_TICKS):
        a.core.tick()
    for voter in "bc":
        a.core.receive(envelope(voter, "a", 1, PreVoteReply(True, False)))
    for _ in range(3):
        a.core.receive(envelope("b", "a", 1, VoteReply(True)))
    assert a.core.role is Role.CANDIDATE


def test_one_vote_per_term_first_come_first_served() -> None:
    """Raft 5.2: each server votes for at most one candidate in a term, even after a crash."""
    b = Member("b.1", ABC)
    b.core.receive(envelope("a", "b", 3, Vote(0, 0, False)))
    b.core.receive(envelope("c", "b", 3, Vote(0, 0, False)))
    b.pump()
    granted = {e.to: e.body.granted for e in b.take_outbox() if isinstance(e.body, VoteReply)}
    assert granted == {"a.1": True, "c.1": False}
    b.restart()
    b.core.receive(envelope("c", "b", 3, Vote(0, 0, False)))
    b.core.receive(envelope("a", "b", 3, Vote(0, 0, False)))
    b.pump()
    granted = {e.to: e.body.granted for e in b.take_outbox() if isinstance(e.body, VoteReply)}
    assert granted == {"a.1": True, "c.1": False}


def test_a_vote_leaves_after_it_is_durable() -> None:
    """Raft 5.2, figure 2: votedFor is on stable storage before the reply."""
    b = Member("b.1", ABC)
    b.auto_sync = False
    b.core.receive(envelope("a", "b", 3, Vote(0, 0, False)))
    b.pump()
    assert b.take_outbox() == []
    b.sync()
    assert bodies(b.take_outbox(), VoteReply) == [VoteReply(True)]


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
@pytest.mark.parametrize("body", [Heartbeat(0, 0), Append(0, 0, 0, ())])
def test_a_candidate_falls_back_to_a_leader_of_its_term(role: Role, body: Body) -> None:
    """Raft 5.2: a candidate that hears a leader of at least its term follows it."""
    _, a = in_role(role)
    a.core.receive(envelope("c", "a", a.core.term, body))
    assert (a.core.role, a.core.leader) == (Role.FOLLOWER, "c.1")


def _timeouts(core: Core, count: int) -> set[int]:
    """How many ticks pass until each of `count` campaigns."""
    found = set()
    for _ in range(count):
        core.receive(envelope("a", "b", core.term + 1, Heartbeat(0, 0)))
        ticks = 0
        while core.role is Role.FOLLOWER:
            core.tick()
            ticks += 1
        found.add(ticks)
    return found


def test_election_timeouts_are_random() -> None:
    """Raft 5.2: drawn from a fixed interval, here election_ticks to twice that."""
    numbers = iter([0, 3, 79, 41, 17] * 40)
    b = Member("b.1", ABC, random=lambda n: next(numbers) % n)
    found = _timeouts(b.core, 50)
    assert len(found) > 3
    assert min(found) >= ELECTION_TICKS
    assert max(found) < 2 * ELECTION_TICKS


def test_a_campaign_that_fails_is_repeated_sooner_then_slower() -> None:
    """Raft 5.2: a split vote times out and is repeated; the interval doubles to the normal."""
    b = Member("b.1", ABC, jitter=0)
    intervals = []
    for _ in range(5):
        ticks, before = 0, len(b.outbox)
        while len(b.outbox) == before:
            b.core.tick()
            b.pump()
            ticks += 1
        intervals.append(ticks)
    assert intervals == [80, 20, 40, 80, 80]


def test_different_timeouts_let_one_candidate_win() -> None:
    """Raft 5.2: the first to time out wins before the others do."""
    group = Group("abc")
    for jitter, name in enumerate("abc"):
        group[name].jitter = 20 * jitter
        group[name].core.receive(envelope("a" if name == "c" else "c", name, 1, VoteReply(False)))
    group.elect("a")
    assert [group.core(name).role for name in "abc"] == [
        Role.LEADER,
        Role.FOLLOWER,
        Role.FOLLOWER,
    ]
    assert {group.core(name).term for name in "abc"} == {2}


@pytest.mark.parametrize(
    ("terms", "last_term", "last_index", "granted"),
    [
        ((1,), 1, 1, True),
        ((1,), 1, 2, True),
        ((1, 1), 1, 1, False),
        ((1,), 2, 1, True),
        ((1,), 2, 2, True),
        ((1, 1), 2, 1, True),
        ((2,), 1, 1, False),
        ((2,), 1, 2, False),
        ((2, 2), 1, 3, False),
    ],
)
def test_a_vote_goes_only_to_a_log_that_is_up_to_date(
    terms: tuple[int, ...], last_term: int, last_index: int, granted: bool
) -> None:
    """Raft 5.4.1: the last entry with the later term, or the longer log, wins."""
    b = Member("b.1", ABC, entries=log_of(*terms))
    b.core.receive(envelope("a", "b", 3, Vote(last_index, last_term, False)))
    b.pump()
    assert bodies(b.take_outbox(), VoteReply) == [VoteReply(granted)]
    b.core.receive(envelope("c", "b", 4, PreVote(last_index, last_term, False)))
    b.pump()
    assert bodies(b.take_outbox(), PreVoteReply) == [PreVoteReply(granted, False)]


def test_asking_for_a_vote_tells_the_last_entry() -> None:
    """Raft 5.4.1: RequestVote includes information about the candidate's log."""
    a = Member("a.1", ABC, entries=log_of(1, 2, 2), hard_state=HardState(2))
    for _ in range(2 * ELECTION_TICKS):
        a.core.tick()
    a.core.receive(envelope("b", "a", 3, PreVoteReply(True, False)))
    a.pump()
    sent = a.take_outbox()
    assert set(bodies(sent, PreVote)) == {PreVote(3, 2, False)}
    assert set(bodies(sent, Vote)) == {Vote(3, 2, False)}


# Pre-vote (thesis 9.6) and check-quorum (thesis 6.2, 4.2.3)


def test_a_pre_vote_changes_no_term_and_no_vote() -> None:
    """Thesis 9.6: the voter promises nothing, so it may say yes to several."""
    b = Member("b.1", ABC)
    for asker in "ac":
        b.core.receive(envelope(asker, "b", 9, PreVote(0, 0, False)))
    b.pump()
    assert (b.core.term, b.hard_state.vote) == (0, None)
    assert bodies(b.take_outbox()) == [PreVoteReply(True, False)] * 2


def test_two_that_time_out_together_do_not_split_the_vote() -> None:
    """Raft 5.2 accepts a split vote and a new timeout; here one gives way to the other."""
    group = Group("abc")
    group.elect("c")
    group.isolate("c")
    group.tick(ELECTION_TICKS + 40)
    assert [group.core(name).role for name in "ab"] == [Role.LEADER, Role.FOLLOWER]
    assert group.core("a").term == 2


def test_of_two_that_ask_together_the_longer_log_goes_first() -> None:
    """By last log position, then by id."""
    group = Group("abc")
    group.elect("c")
    group.drops = lambda e: e.to == "a.1" and isinstance(e.body, Append)
    group.propose(b"x")
    group.heal()
    group.isolate("c")
    group.tick(ELECTION_TICKS + 40)
    assert [group.core(name).role for name in "ab"] == [Role.FOLLOWER, Role.LEADER]


def test_a_pre_vote_is_denied_while_the_leader_is_heard() -> None:
    """Thesis 9.6: yes only without a heartbeat for an election timeout."""
    b = follower_of("a")
    b.core.receive(envelope("c", "b", 2, PreVote(9, 1, False)))
    b.pump()
    assert bodies(b.take_outbox(), PreVoteReply) == [PreVoteReply(False, False)]
    for _ in range(ELECTION_TICKS):
        b.core.tick()
    b.core.receive(envelope("c", "b", 2, PreVote(9, 1, False)))
    b.pump()
    assert bodies(b.take_outbox(), PreVoteReply) == [PreVoteReply(True, False)]


def test_a_denied_pre_candidate_learns_the_greater_term() -> None:
    """Thesis 9.6: so a replica that was away for long can take part again."""
    group = Group("abc")
    group.elect("b")
    group.isolate("a")
    group.elect("c")
    group.elect("b")
    term = group.core("b").term
    group.tick(2 * ELECTION_TICKS, "a")
    assert group.core("a").term < term
    group.heal()
    group.tick(ELECTION_TICKS, "a")
    assert group.core("a").term == term
    assert group.core("b").role is Role.LEADER


def test_a_partitioned_replica_does_not_disturb_when_it_returns() -> None:
    """Thesis 9.6: its term did not grow, so the leader keeps leading."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("c")
    for _ in range(10):
        group.tick(ELECTION_TICKS)
    assert group.core("c").role is Role.PRE_CANDIDATE
    group.heal()
    group.tick(2 * ELECTION_TICKS)
    assert (leader.role, leader.term) == (Role.LEADER, 1)
    assert group.core("c").leader == "a.1"


def test_a_vote_is_ignored_while_the_leader_is_heard() -> None:
    """Thesis 4.2.3: a removed server's RequestVote does not raise terms in the lease."""
    b = follower_of("a")
    b.core.receive(envelope("c", "b", 9, Vote(9, 1, False)))
    b.pump()
    assert (b.core.term, b.core.counters.in_lease) == (1, 1)
    assert b.take_outbox() == []


def test_a_vote_may_break_the_lease_after_a_granted_pre_vote() -> None:
    """Thesis 9.6: a heartbeat between the two questions must not strand the candidate."""
    b = follower_of("a")
    for _ in range(ELECTION_TICKS):
        b.core.tick()
    b.core.receive(envelope("c", "b", 2, PreVote(9, 1, False)))
    b.core.receive(envelope("a", "b", 1, Heartbeat(0, 0)))
    b.core.receive(envelope("c", "b", 2, Vote(9, 1, False)))
    b.pump()
    assert VoteReply(True) in bodies(b.take_outbox())


def test_a_leader_without_a_majority_steps_down() -> None:
    """Thesis 6.2: within an election timeout, so that clients do not wait at it."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("a")
    for _ in range(ELECTION_TICKS + HEARTBEAT_TICKS):
        leader.tick()
        group["a"].pump()
    assert leader.role is Role.FOLLOWER
    assert leader.leader is None


def test_a_leader_with_a_majority_stays() -> None:
    """Thesis 6.2: one follower of two is enough."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("c")
    for _ in range(5):
        group.tick(ELECTION_TICKS, "a", "b")
    assert (leader.role, leader.term) == (Role.LEADER, 1)


def test_a_stuck_greater_term_is_freed() -> None:
    """A candidate that cannot win refuses the leader by its greater term: the leader learns of
    it, steps down, and the group elects in a term that all accept.
    """
    group = Group("abc")
    group.elect("a")
    c = group["c"]
    c.hard_state = HardState(9, "c.1", c.hard_state.commit)
    c.sync()
    c.restart()
    group.tick(4 * ELECTION_TICKS)
    assert group.leader().core.term > 9
    assert len({member.core.term for member in group.members.values()}) == 1


@pytest.mark.parametrize("name", ["c", "d"])
def test_who_is_no_voter_does_not_campaign(name: str) -> None:
    """Thesis 4.2.1: learners do not start elections, nor does who is in no configuration."""
    group = Group("ab", learners="c")
    group.add(Member("d.1", Configuration(())))
    group.elect("a")
    group.tick(5 * ELECTION_TICKS, name, settle=False)
    assert group.core(name).role is Role.FOLLOWER
    group[name].pump()
    assert group[name].take_outbox() == []


def test_a_learner_answers_a_vote() -> None:
    """Thesis 4.2.1: it may be a voter in a configuration that it has not seen yet."""
    configuration = Configuration(("a.1", "b.1"), ("c.1",))
    c = Member("c.1", configuration)
    c.core.receive(envelope("a", "c", 2, Vote(0, 0, False)))
    c.pump()
    assert bodies(c.take_outbox(), VoteReply) == [VoteReply(True)]


def test_a_replica_that_no_configuration_names_does_not_vote() -> None:
    """raft/design.md, Identity: an empty log must not vote under any id."""
    d = Member("d.1", Configuration(()))
    d.core.receive(envelope("a", "d", 2, PreVote(0, 0, False)))
    d.core.receive(envelope("a", "d", 2, Vote(0, 0, False)))
    d.pump()
    assert bodies(d.take_outbox()) == [PreVoteReply(False, False), VoteReply(False)]


def test_a_single_voter_leads_at_once() -> None:
    """Raft 5.2: a majority of one needs no other vote, and no timeout."""
    group = Group("a")
    group.tick(2)
    assert group.core("a").role is Role.LEADER
    assert group.core("a").commit == 1


def test_a_single_voter_sends_nothing_before_its_vote_is_durable() -> None:
    """Raft 5.2: else, after a crash, it could win the same term again and refill it."""
    group = Group("a", learners="b")
    a = group["a"]
    a.auto_sync = False
    group.tick(1, "a")
    assert a.core.role is Role.LEADER
    assert not bodies(group.log, Append)
    a.sync()
    group.settle()
    assert bodies(group.log, Append)
    assert group["b"].terms() == [1]


def test_every_member_can_lead_in_turn() -> None:
    """Raft 5.2: leadership moves, terms only grow."""
    group = Group("abc")
    terms = [group.elect(name).term for name in "abcabc"]
    assert terms == sorted(set(terms))


def test_a_late_caller_does_not_outvote_what_waits_in_its_sockets() -> None:
    """DESIGN 3: one tick call advances an election by a heartbeat interval at most."""
    b = follower_of("a")
    b.core.tick(100 * ELECTION_TICKS)
    assert b.core.role is Role.FOLLOWER


def test_ticks_until_due_never_oversleeps() -> None:
    """Sleeping as long as the core allows changes nothing of what happens when."""
    fine, coarse = Member("b.1", ABC), Member("b.1", ABC)
    for _ in range(20):
        step = coarse.core.ticks_until_due()
        assert step >= 1
        for _ in range(step - 1):
            fine.core.tick()
            assert fine.core.role is coarse.core.role
        fine.core.tick()
        left = step
        while left > 0:
            coarse.core.tick(min(left, HEARTBEAT_TICKS))
            left -= HEARTBEAT_TICKS
        fine.pump()
        coarse.pump()
        assert fine.take_outbox() == coarse.take_outbox()


def test_the_configured_group_is_the_one_that_is_sent() -> None:
    """Every envelope names its group (DESIGN 3)."""
    core = Core(CoreConfig("a.1", GROUP), MemoryLog(), HardState(), ABC, 0, lambda n: 0)
    for _ in range(2 * ELECTION_TICKS):
        core.tick()
    sent: tuple[Envelope, ...] = core.ready().messages
    assert {e.group for e in sent} == {GROUP}
    assert {e.sender for e in sent} == {"a.1"}


def test_a_lost_connection_of_somebody_else_means_nothing() -> None:
    """DESIGN 3, Early campaigns: only the leader's death matters."""
    b = follower_of("a")
    b.core.peer("c.1", PeerState.REFUSED)
    for _ in range(20):
        b.core.tick()
    assert b.core.role is Role.FOLLOWER


def test_a_node_of_a_smaller_term_completes_an_election() -> None:
    """Thesis 9.6: who was cut off, and did not raise its term, can still be elected."""
    group = Group("abc")
    group.elect("a")
    group.isolate("c")
    group.elect("b")
    group.elect("a")
    assert group.core("c").term < group.core("a").term
    group.heal()
    group.tick(2 * HEARTBEAT_TICKS)
    group.isolate("a")
    group.elect("c")
    assert group.core("c").term > group.core("a").term


def test_a_leader_and_a_candidate_ignore_an_order_to_campaign() -> None:
    """TimeoutNow is for followers: a leader keeps leading, a campaign continues."""
    for role in (Role.LEADER, Role.PRE_CANDIDATE):
        _, a = in_role(role)
        term = a.core.term
        a.core.receive(envelope("c", "a", term, TimeoutNow()))
        assert (a.core.role, a.core.term) == (role, term)

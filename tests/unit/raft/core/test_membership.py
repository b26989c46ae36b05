"""Membership changes one at a time, learners, identity (Raft thesis 4, raft/design.md)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.core.core import Busy
from raft.core.leader import PROMOTE_LAG_MAX_ENTRIES
from raft.core.membership import (
    MEMBERS_MAX,
    AddLearner,
    BadChange,
    MemberChange,
    Members,
    PromoteLearner,
    RemoveMember,
    ReplaceMember,
    changed,
    decode_configuration,
    encode_configuration,
    is_retired,
    name_and_incarnation,
)
from raft.core.quorum import majority
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    Role,
    Vote,
    VoteReply,
)
from tests.unit.raft.core.group import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    Group,
    Member,
    bodies,
    entry,
    envelope,
)

AB = Configuration(("a.1", "b.1"))
ABC = Configuration(("a.1", "b.1", "c.1"))


# Arithmetic


def test_a_learner_is_added_promoted_and_removed() -> None:
    """Thesis 4.2.1: a new server is a non-voting member first."""
    learner = changed(AB, AddLearner("c.1"))
    assert learner == Configuration(("a.1", "b.1"), ("c.1",))
    voter = changed(learner, PromoteLearner("c.1"))
    assert voter == ABC
    assert changed(voter, RemoveMember("a.1")) == Configuration(("b.1", "c.1"), (), ("a.1",))


def test_a_lost_node_is_replaced_in_one_change() -> None:
    """DESIGN 3, Identity: the old id leaves as the new one enters, as a learner."""
    after = changed(ABC, ReplaceMember("c.1", "c.2"))
    assert after == Configuration(("a.1", "b.1"), ("c.2",), ("c.1",))
    again = changed(after, ReplaceMember("c.2", "c.5"))
    assert again == Configuration(("a.1", "b.1"), ("c.5",), ("c.2",))
    assert is_retired(again, "c.1")
    assert is_retired(again, "c.2")
    assert not is_retired(again, "c.5")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AddLearner("b.1"), "member already"),
        (AddLearner("c.1"), "higher incarnation"),
        (AddLearner("c.2"), "higher incarnation"),
        (AddLearner("b.2"), "replace it"),
        (AddLearner("nameless"), "name.incarnation"),
        (AddLearner(".1"), "name.incarnation"),
        (AddLearner("x.-1"), "name.incarnation"),
        (AddLearner("x.²"), "name.incarnation"),
        (PromoteLearner("a.1"), "not a learner"),
        (RemoveMember("x.1"), "not a member"),
        (ReplaceMember("b.1", "d.1"), "has another name than"),
        (ReplaceMember("b.1", "b.1"), "higher incarnation"),
        (ReplaceMember("b.2", "b.3"), "not a member"),
    ],
)
def test_what_is_no_change(change: MemberChange, reason: str) -> None:
    """The text says why, and what to do."""
    configuration = Configuration(("a.1", "b.1"), (), ("c.2",))
    with pytest.raises(BadChange, match=reason):
        changed(configuration, change)


def test_the_last_voter_stays() -> None:
    """A group without voters could never change again."""
    single = Configuration(("a.1",), ("b.1",))
    with pytest.raises(BadChange, match="last voter"):
        changed(single, RemoveMember("a.1"))
    with pytest.raises(BadChange, match="last voter"):
        changed(single, ReplaceMember("a.1", "a.2"))


def test_members_are_bounded() -> None:
    """MEMBERS_MAX voters and learners."""
    configuration = Configuration(("a.1",))
    for number in range(MEMBERS_MAX - 1):
        configuration = changed(configuration, AddLearner(f"n{number}.1"))
    with pytest.raises(BadChange, match=str(MEMBERS_MAX)):
        changed(configuration, AddLearner("z.1"))


NODES = st.sampled_from([f"{name}.{number}" for name in "abcd" for number in range(1, 4)])
CHANGES = st.one_of(
    st.builds(AddLearner, NODES),
    st.builds(PromoteLearner, NODES),
    st.builds(RemoveMember, NODES),
    st.builds(ReplaceMember, NODES, NODES),
)


@given(st.lists(CHANGES, max_size=40))
def test_any_history_of_changes_is_safe(changes: list[MemberChange]) -> None:
    """Thesis 4.1: majorities of neighbours overlap; who left never returns."""
    history = [Configuration(("a.1", "b.1", "c.1"))]
    gone: set[str] = set()
    for change in changes:
        try:
            after = changed(history[-1], change)
        except BadChange:
            continue
        members = set(after.voters) | set(after.learners)
        gone |= (set(history[-1].voters) | set(history[-1].learners)) - members
        assert not members & gone
        assert all(is_retired(after, node) for node in gone)
        assert decode_configuration(encode_configuration(after)) == after
        history.append(after)
    for old, new in pairwise(history):
        union = set(old.voters) | set(new.voters)
        assert majority(len(old.voters)) + majority(len(new.voters)) > len(union)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"voters": 3}',
        b'{"voters": ["a.1"], "learners": ["a.1"]}',
        b'{"voters": ["b.1", "a.1"]}',
        b'{"voters": ["a.1", "a.2"]}',
        b'{"voters": ["a.1"], "retired": ["a.1"]}',
        b'{"voters": ["a.1"], "retired": ["a.7"]}',
        b'{"voters": ["a"]}',
        b'{"voters": [1]}',
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"voters": ["' + b"x" * 70_000 + b'.1"]}',
    ],
)
def test_hostile_configurations_raise_one_error(data: bytes) -> None:
    """DESIGN 1.7."""
    with pytest.raises(ValueError):
        decode_configuration(data)


def test_ids_are_names_with_incarnations() -> None:
    """Names may contain dots."""
    assert name_and_incarnation("n1.example.3") == ("n1.example", 3)


def test_the_history_follows_the_log() -> None:
    """A configuration is in force from its append on, and gone with its entry."""
    members = Members(AB, ((5, ABC),))
    with_learner = changed(ABC, AddLearner("d.1"))
    members.append(9, with_learner)
    assert (members.index, members.current) == (9, with_learner)
    assert [members.at(index) for index in (4, 5, 8, 9)] == [AB, ABC, ABC, with_learner]
    members.truncate(9)
    assert (members.index, members.current) == (5, ABC)
    members.forget(7)
    assert (members.at(7), members.index) == (ABC, 5)
    members.reset(20, AB)
    assert (members.current, members.index) == (AB, 20)


# In a group


def joined(group: Group, name: str) -> Member:
    """Add a learner with an empty log."""
    member = group.add(Member(f"{name}.1", Configuration(()), config=group["a"].options))
    group.leader().core.change_members(AddLearner(member.node))
    group.settle()
    return member


def test_a_new_node_learns_everything_then_votes() -> None:
    """Thesis 4.2.1: learner, caught up, voter."""
    group = Group("abc")
    leader = group.elect("a")
    group.propose(b"x")
    member = joined(group, "d")
    assert member.data() == [b"x"]
    assert member.core.configuration.learners == ("d.1",)
    leader.change_members(PromoteLearner("d.1"))
    group.settle()
    assert {group.core(name).configuration for name in "abcd"} == {
        Configuration(("a.1", "b.1", "c.1", "d.1"))
    }
    group.elect("d")
    assert group.core("d").role is Role.LEADER


def test_a_learner_is_fed_but_does_not_count() -> None:
    """Thesis 4.2.1: neither for elections nor for commit."""
    group = Group("abc", learners="d")
    leader = group.elect("a")
    group.isolate("b")
    group.isolate("c")
    leader.propose(b"x")
    group.settle()
    assert group["d"].terms() == [1, 1]
    assert leader.commit == 1


def test_a_configuration_holds_from_its_append_on() -> None:
    """Thesis 4.1: not from its commit; the new majority commits it."""
    group = Group("ab")
    leader = group.elect("a")
    joined(group, "c")
    group.isolate("b")
    leader.change_members(PromoteLearner("c.1"))
    assert leader.configuration.voters == ("a.1", "b.1", "c.1")
    group.settle()
    assert leader.commit == leader.last_index, "a and c are a majority of three"


def test_one_change_at_a_time() -> None:
    """Thesis 4.1: overlap holds between neighbours only."""
    group = Group("abc")
    leader = group.elect("a")
    leader.change_members(AddLearner("d.1"))
    with pytest.raises(Busy, match="not committed"):
        leader.change_members(AddLearner("e.1"))
    group.settle()
    leader.change_members(AddLearner("e.1"))


def test_no_change_before_the_leader_committed_in_its_term() -> None:
    """The correction of the thesis of 2015: else two configurations could both commit."""
    group = Group("abc")
    group.drops = lambda e: isinstance(e.body, AppendReply)
    leader = group.elect("a")
    with pytest.raises(Busy, match="of its term"):
        leader.change_members(AddLearner("d.1"))


def test_a_learner_that_lags_is_not_promoted() -> None:
    """Thesis 4.2.1: it would cost availability. A few entries are no lag but load."""
    group = Group("abc", learners="d")
    leader = group.elect("a")
    group.isolate("d")
    for _ in range(PROMOTE_LAG_MAX_ENTRIES + 1):
        group.propose(b"x")
    with pytest.raises(Busy, match="caught up"):
        leader.change_members(PromoteLearner("d.1"))
    group.heal()
    group.tick(2 * HEARTBEAT_TICKS)
    group.isolate("d")
    for _ in range(PROMOTE_LAG_MAX_ENTRIES):
        group.propose(b"x")
    leader.change_members(PromoteLearner("d.1"))


def test_a_learner_that_does_not_know_it_is_one_is_not_promoted() -> None:
    """raft/design.md, Identity: it would take itself for a reused id."""
    group = Group("abc")
    leader = group.elect("a")
    joined(group, "d")
    group.isolate("d")
    leader.change_members(AddLearner("e.1"))
    group.settle()
    with pytest.raises(Busy, match="caught up"):
        leader.change_members(PromoteLearner("d.1"))


def test_a_change_that_would_lose_the_majority_is_refused() -> None:
    """A majority of the voters after it must answer now."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("c")
    group.tick(ELECTION_TICKS)
    with pytest.raises(Busy, match="too few"):
        leader.change_members(RemoveMember("b.1"))
    leader.change_members(ReplaceMember("c.1", "c.2"))
    group.settle()
    assert leader.configuration == Configuration(("a.1", "b.1"), ("c.2",), ("c.1",))
    assert leader.commit == leader.last_index


def test_an_uncommitted_change_dies_with_its_leader() -> None:
    """Thesis 4.1: truncation brings the configuration before it back into force."""
    group = Group("abc")
    group.elect("a")
    group.isolate("a")
    group.core("a").change_members(RemoveMember("b.1"))
    assert group.core("a").configuration.voters == ("a.1", "c.1")
    group.elect("b")
    group.propose(b"x")
    group.heal()
    group.tick(2 * ELECTION_TICKS)
    assert {group.core(name).configuration for name in "abc"} == {ABC}


def test_a_removed_leader_leads_until_it_is_committed_and_hands_over() -> None:
    """Thesis 4.2.2: it does not count itself, and steps down with the commit."""
    group = Group("abc")
    leader = group.elect("a")
    group["a"].auto_sync = False
    leader.change_members(RemoveMember("a.1"))
    roles = [leader.role]
    group.settle()
    roles.append(leader.role)
    assert roles == [Role.LEADER, Role.FOLLOWER]
    assert group.leader().node in ("b.1", "c.1"), "by TimeoutNow, without a timeout"
    group.tick(5 * ELECTION_TICKS)
    assert leader.counters.campaigns == 1


def test_a_removed_leader_that_crashed_brings_its_removal_about() -> None:
    """Thesis 4.2.2, figure 4.6: no other may lead, since its log is the longest."""
    group = Group("ab")
    group.elect("a")
    group.isolate("a")
    group.core("a").change_members(RemoveMember("a.1"))
    group.settle()
    group["a"].restart()
    group.heal()
    assert group.core("a").configuration.voters == ("b.1",)
    group.tick(6 * ELECTION_TICKS)
    assert group.core("b").role is Role.LEADER
    assert group.core("b").configuration.voters == ("b.1",)
    assert group.core("b").commit == group.core("b").last_index


def test_who_removed_itself_in_vain_still_votes() -> None:
    """Found by simulator seed 6086: its uncommitted removal must not deny others a majority."""
    group = Group("abc")
    group.elect("b")
    group.isolate("b")
    group.core("b").change_members(RemoveMember("b.1"))
    group.settle()
    group["b"].restart()
    group.elect("c")
    group.core("c").change_members(ReplaceMember("b.1", "b.2"))
    group.settle()
    group["c"].restart()
    group.isolate("a")
    group.cuts -= {("b.1", "c.1"), ("c.1", "b.1")}
    before = group.core("b").configuration
    assert "b.1" not in before.voters
    group.core("b").receive(envelope("a", "b", 9, Vote(99, 8, True)))
    group["b"].pump()
    assert bodies(group["b"].take_outbox(), VoteReply) == [VoteReply(True)]


def test_removing_a_voter_may_commit_what_waited() -> None:
    """Thesis 4.1: the smaller majority counts at once."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("c")
    group.propose(b"x")
    leader.change_members(RemoveMember("c.1"))
    group.settle()
    assert leader.commit == 3
    group.isolate("b")
    assert group.leader().core.configuration.voters == ("a.1", "b.1")


def test_a_retired_id_is_not_heard() -> None:
    """DESIGN 3, Identity: once that is committed, whichever node uses it."""
    group = Group("abc")
    leader = group.elect("a")
    leader.change_members(RemoveMember("c.1"))
    group.settle()
    term = leader.term
    for body in (Vote(99, term, True), Append(0, 0, 0, ()), Heartbeat(0, 0)):
        group.core("b").receive(envelope("c", "b", term + 1, body))
    assert group.core("b").term == term
    assert group.core("b").counters.retired_sender == 3


def test_a_removed_node_that_was_not_told_disturbs_nobody() -> None:
    """Thesis 4.2.3: it asks before it raises its term, and is not answered."""
    group = Group("abc")
    leader = group.elect("a")
    group.isolate("c")
    leader.change_members(RemoveMember("c.1"))
    group.settle()
    group.heal()
    group.tick(6 * ELECTION_TICKS)
    assert (leader.role, leader.term) == (Role.LEADER, 1)


def test_a_new_log_under_a_voters_id_is_found_out() -> None:
    """raft/design.md, Identity: a joining node is a learner first, so this id had a log."""
    wiped = Member("c.1", Configuration(()))
    data = encode_configuration(ABC)
    founding = Entry(1, 1, EntryKind.CONFIG, data)
    wiped.core.receive(envelope("a", "c", 2, Append(0, 0, 1, (founding, entry(2, 1)))))
    wiped.pump()
    assert wiped.core.last_index == 0
    assert bodies(wiped.take_outbox(), AppendReply) == []
    assert wiped.core.counters.id_reused == 1
    wiped.core.receive(envelope("b", "c", 3, Vote(9, 2, True)))
    wiped.pump()
    assert wiped.hard_state.vote is None


def test_a_hostile_configuration_entry_is_not_appended() -> None:
    """DESIGN 1.7: nothing enters the log unchecked."""
    b = Member("b.1", ABC)
    bad = Entry(1, 1, EntryKind.CONFIG, b"nonsense")
    b.core.receive(envelope("a", "b", 1, Append(0, 0, 1, (bad,))))
    assert b.core.last_index == 0
    assert b.core.counters.malformed == 1


def test_a_restart_finds_its_configuration_in_the_log() -> None:
    """Committed or not, the last one in the log is in force."""
    group = Group("abc")
    leader = group.elect("a")
    leader.change_members(AddLearner("d.1"))
    group.settle()
    group["b"].restart()
    assert group.core("b").configuration.learners == ("d.1",)
    group.elect("c")
    group.tick(HEARTBEAT_TICKS)
    assert group.core("b").configuration.learners == ("d.1",)

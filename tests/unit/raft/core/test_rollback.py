"""A replica whose disk was set back to an older copy: who notices, and what it may do then."""

from itertools import pairwise

import msgspec
import pytest

from raft.core.membership import encode_configuration
from raft.core.state import RolledBack
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
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
    HEARTBEAT_TICKS,
    Group,
    Member,
    bodies,
    entry,
    envelope,
)

ENTRIES = 10
ABC = Configuration(("a.1", "b.1", "c.1"))


def copy_of(member: Member) -> tuple[object, ...]:
    """Return what a copy of the disk holds."""
    return member.synced_base, member.synced_entries, member.synced_state, member.applied


def set_back(group: Group, name: str, copy: tuple[object, ...]) -> Member:
    """Start a member on a copy of its disk; the others notice that its process was another."""
    member = group[name]
    member.synced_base, member.synced_entries, member.synced_state, member.applied = copy  # type: ignore[assignment]
    del member.applied_entries[member.applied :]
    member.restart()
    for other in group.members.values():
        if other is not member:
            for state in (PeerState.LOST, PeerState.CONNECTED):
                other.core.peer(member.node, state)
    return member


def grown(group: Group, name: str) -> tuple[object, ...]:
    """Have a leader commit entries; return a copy of a member's disk from before."""
    group.propose(b"before")
    group.tick(2 * HEARTBEAT_TICKS)
    copy = copy_of(group[name])
    for number in range(ENTRIES):
        group.propose(b"%d" % number)
    group.tick(2 * HEARTBEAT_TICKS)
    return copy


def test_a_follower_that_was_set_back_is_found_and_healed() -> None:
    """It used to refuse everything from then on, since the leader counted on what it had."""
    group = Group("abc")
    leader = group.elect("a")
    copy = grown(group, "c")
    held = leader.last_index
    c = set_back(group, "c", copy)
    holds = c.core.last_index
    group.tick(4 * HEARTBEAT_TICKS)
    assert c.core.last_index == leader.last_index == held
    assert c.data() == group["a"].data()
    assert leader.take_rolled_back() == (RolledBack("c.1", held, holds),)
    assert c.core.take_rolled_back() == (RolledBack("c.1", held, holds),)
    assert (c.core.owed, leader.owing_followers) == (0, ())


@pytest.mark.parametrize("own", [1, 2, ENTRIES + 5])
@pytest.mark.parametrize("leaders", ["a", "aba"])
def test_entries_that_never_counted_are_not_committed_on_a_copy(own: int, leaders: str) -> None:
    """The copy ends with entries of a leader that lost them; the log that it was followed by has
    others in their place. It used to commit its own: found by seed 53702 of whole nodes.
    """
    group = Group("abc")
    group.elect("c")
    group.propose(b"before")
    group.tick(2 * HEARTBEAT_TICKS)
    group.isolate("c")
    for number in range(own):
        group.core("c").propose(b"never %d" % number)
        group.settle()
    copy = copy_of(group["c"])
    group.elect("a")
    group.heal()
    for number in range(ENTRIES):
        group.propose(b"%d" % number)
    group.tick(4 * HEARTBEAT_TICKS)
    assert group["c"].data() == group["a"].data()
    group.isolate("c")
    for before, name in pairwise(leaders):
        group.core(before).transfer(f"{name}.1")
        group.settle()
    c = set_back(group, "c", copy)
    group.heal()
    group.tick(8 * HEARTBEAT_TICKS)
    leader = group.core("a")
    assert leader.role is Role.LEADER
    assert c.data() == group["a"].data()
    assert c.core.last_index == leader.last_index == c.core.commit
    for core in (leader, c.core):
        assert [found.node for found in core.take_rolled_back()] == ["c.1"]
    assert (c.core.owed, leader.owing_followers, c.core.counters.contradicted) == (0, (), 0)


def test_a_heartbeat_commits_what_was_compared_since_the_process_began() -> None:
    """A leader names what an earlier process acknowledged; the disk may have been set back."""
    group = Group("abc")
    leader = group.elect("a")
    grown(group, "c")
    c = group["c"]
    c.synced_state, before = HardState(leader.term, "a.1", 0), leader.last_index
    c.applied = 0
    c.applied_entries.clear()
    c.restart()
    c.core.receive(envelope("b", "c", leader.term + 1, Heartbeat(before, 0)))
    assert (c.core.commit, c.core.owed) == (0, 0)
    c.core.receive(envelope("b", "c", leader.term + 1, Append(before, leader.term, 0, ())))
    c.core.receive(envelope("b", "c", leader.term + 1, Heartbeat(before, 0)))
    assert (c.core.commit, c.core.owed) == (before, 0)


def test_entries_of_the_leaders_own_term_need_no_comparing() -> None:
    """Raft 5.3: two logs with an entry of one term agree up to it."""
    group = Group("abc")
    leader = group.elect("a")
    grown(group, "c")
    c = group["c"]
    c.synced_state, c.applied = HardState(leader.term, "a.1", 0), 0
    c.applied_entries.clear()
    c.restart()
    c.core.receive(envelope("a", "c", leader.term, Heartbeat(leader.last_index, 0)))
    assert c.core.commit == leader.last_index


def test_it_is_healed_by_a_snapshot_where_the_log_no_longer_reaches() -> None:
    group = Group("abc", recent_bytes_max=0)
    leader = group.elect("a")
    copy = grown(group, "c")
    group["a"].compact(leader.commit - 1)
    c = set_back(group, "c", copy)
    group.tick(2 * HEARTBEAT_TICKS)
    assert group["a"].wanted == ["c.1"]
    assert c.core.owed == leader.commit
    assert leader.owing_followers == ("c.1",)
    meta = group["a"].snapshot_meta()
    leader.offer_snapshot("c.1", meta)
    group.settle()
    assert c.core.begin_install(meta)
    c.core.end_install(meta)
    group.tick(2 * HEARTBEAT_TICKS)
    assert (c.core.owed, c.core.last_index) == (0, leader.last_index)


def test_a_leader_that_led_before_finds_it_in_a_later_term_as_well() -> None:
    """Its progress is new, and the follower's log a beginning of its own."""
    group = Group("abc")
    group.elect("a")
    copy = grown(group, "c")
    group.isolate("c")
    group.core("a").transfer("b.1")
    group.settle()
    group.core("b").transfer("a.1")
    group.settle()
    leader = group.core("a")
    assert leader.role is Role.LEADER
    held = leader.last_index - 2  # the no-ops of two terms came later
    c = set_back(group, "c", copy)
    holds = c.core.last_index
    group.heal()
    group.tick(4 * HEARTBEAT_TICKS)
    assert c.core.take_rolled_back() == (RolledBack("c.1", held, holds),)
    assert [found.node for found in leader.take_rolled_back()] == ["c.1"]
    assert c.core.last_index == leader.last_index


def test_one_refusal_may_be_an_old_frame_two_are_not() -> None:
    group = Group("abc")
    leader = group.elect("a")
    grown(group, "c")
    for state in (PeerState.LOST, PeerState.CONNECTED):
        leader.peer("c.1", state)
    term, match = leader.term, leader.last_index
    refusal = AppendReply(0, True, 1, term, 1, rejected_index=match)
    leader.receive(envelope("c", "a", term, refusal))
    assert leader.take_rolled_back() == ()
    leader.receive(envelope("c", "a", term, refusal))
    assert leader.take_rolled_back() == (RolledBack("c.1", match, 1),)


def test_until_it_is_healed_it_neither_votes_nor_campaigns() -> None:
    """With its vote a candidate could win that lacks what is committed."""
    group = Group("abc")
    leader = group.elect("a")
    copy = grown(group, "c")
    c = set_back(group, "c", copy)
    c.core.receive(envelope("a", "c", leader.term, Heartbeat(leader.commit, 0)))
    c.pump()
    c.take_outbox()
    owed, term, last = leader.commit, leader.term, c.core.last_index
    assert c.core.owed == owed
    group.isolate("c")
    group.tick(5 * ELECTION_TICKS, "c")
    assert (c.core.counters.campaigns, c.core.role) == (0, Role.FOLLOWER)
    c.core.receive(envelope("b", "c", term + 1, PreVote(last, term, is_early=False)))
    c.core.receive(envelope("b", "c", term + 1, Vote(last, term, is_transfer=False)))
    c.core.receive(envelope("a", "c", term + 1, TimeoutNow()))
    c.pump()
    sent = c.take_outbox()
    assert bodies(sent, PreVoteReply) == [PreVoteReply(False, False)]
    assert bodies(sent, VoteReply) == [VoteReply(False)]
    assert c.core.role is Role.FOLLOWER


def test_an_empty_log_under_an_old_id_votes_no_sooner() -> None:
    """It learns from its log that it is a voter, before it has what it acknowledged (seed 8554)."""
    wiped = Member("c.1", Configuration(()))
    wiped.core.receive(envelope("a", "c", 2, Heartbeat(4, 0)))
    founding = Configuration(("a.1", "b.1"))
    joined = msgspec.structs.replace(founding, learners=("c.1",))
    log = (
        Entry(1, 1, EntryKind.CONFIG, encode_configuration(founding)),
        Entry(2, 1, EntryKind.CONFIG, encode_configuration(joined)),
        Entry(3, 1, EntryKind.CONFIG, encode_configuration(ABC)),
        entry(4, 2),
    )
    wiped.core.receive(envelope("a", "c", 2, Append(0, 0, 3, log[:3])))
    wiped.pump()
    assert wiped.core.configuration == ABC
    wiped.core.receive(envelope("b", "c", 3, Vote(9, 2, True)))
    wiped.pump()
    assert (wiped.hard_state.vote, wiped.core.owed) == (None, 4)
    assert (wiped.core.counters.id_reused, wiped.core.take_rolled_back()) == (1, ())
    wiped.core.receive(envelope("a", "c", 3, Append(3, 1, 4, log[3:])))
    wiped.pump()
    wiped.core.receive(envelope("b", "c", 4, Vote(9, 3, True)))
    wiped.pump()
    assert (wiped.hard_state.vote, wiped.core.owed) == ("b.1", 0)


def test_it_confirms_no_reads_until_it_is_healed() -> None:
    """It may have forgotten a vote for a newer leader."""
    group = Group("abc")
    leader = group.elect("a")
    c = set_back(group, "c", grown(group, "c"))
    for body in (Heartbeat(leader.commit, 7), Append(leader.last_index, leader.term, 0, (), 7)):
        c.core.receive(envelope("a", "c", leader.term, body))
    c.pump()
    answers = bodies(c.take_outbox(), HeartbeatReply) + bodies(c.take_outbox(), AppendReply)
    assert [getattr(answer, "read_context") for answer in answers] == [0]  # noqa: B009


def test_an_earlier_process_remembers_what_it_owes() -> None:
    """The leader that knows of it may be gone when it starts again."""
    group = Group("abc")
    leader = group.elect("a")
    c = set_back(group, "c", grown(group, "c"))
    c.core.owe(leader.commit)
    assert c.core.owed == leader.commit
    group.isolate("a")
    group.tick(5 * ELECTION_TICKS, "b", "c")
    assert group.core("b").role is not Role.LEADER  # with this vote it would be, lacking nothing
    group.heal()
    group.tick(5 * ELECTION_TICKS)
    assert c.core.owed == 0


def test_one_late_refusal_proves_nothing() -> None:
    """Frames of a broken connection may arrive after those of the next one."""
    group = Group("abc")
    leader = group.elect("a")
    grown(group, "c")
    match = leader.last_index
    for state in (PeerState.LOST, PeerState.CONNECTED):
        leader.peer("c.1", state)
    late = AppendReply(0, True, 1, 1, 1, rejected_index=match)
    group["a"].core.receive(envelope("c", "a", leader.term, late))
    group.settle()
    assert leader.take_rolled_back() == ()
    assert {f.node: f.match for f in leader.followers()}["c.1"] == match
    assert group.core("c").owed == 0


def test_what_was_acknowledged_and_not_committed_is_not_counted_after_it_was_lost() -> None:
    """The leader must not commit it with the word of a process that is gone."""
    group = Group("abc")
    leader = group.elect("a")
    group.propose(b"before")
    group.tick(2 * HEARTBEAT_TICKS)
    copy = copy_of(group["c"])
    group.isolate("b")
    group["a"].auto_sync = False  # so that the entry lacks the leader's own disk
    index = leader.propose(b"x")
    group.settle()
    assert {f.node: f.match for f in leader.followers()}["c.1"] == index
    group.drops = lambda e: isinstance(e.body, Append) and bool(e.body.entries)
    set_back(group, "c", copy)
    group.tick(HEARTBEAT_TICKS)
    assert {f.node: f.match for f in leader.followers()}["c.1"] == index - 1
    group["a"].sync()
    group.settle()
    assert leader.commit == index - 1
    group.heal()
    group.tick(2 * HEARTBEAT_TICKS)
    assert leader.commit == index


@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_follower_that_was_only_away_is_not_taken_for_one(is_set_back: bool) -> None:
    """It lacks entries that it never had."""
    group = Group("abc")
    leader = group.elect("a")
    group.propose(b"before")
    group.tick(2 * HEARTBEAT_TICKS)
    copy = copy_of(group["c"])
    group.isolate("c")
    for number in range(ENTRIES):
        group.propose(b"%d" % number)
    if is_set_back:
        set_back(group, "c", copy)  # to a copy that has all that it ever acknowledged
    group.heal()
    group.tick(4 * HEARTBEAT_TICKS)
    assert group.core("c").last_index == leader.last_index
    assert leader.take_rolled_back() == group.core("c").take_rolled_back() == ()

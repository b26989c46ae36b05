"""One test per rule of the paper and the thesis: replication and commit."""

import pytest

from raft.core.core import CoreConfig
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
)
from tests.unit.raft.core.group import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    Group,
    Member,
    bodies,
    entry,
    envelope,
    log_of,
)

ABC = Configuration(("a.1", "b.1", "c.1"))


def follower(*terms: int, **options: int) -> Member:
    """Member `b` with a log of these terms."""
    b = Member("b.1", ABC, entries=log_of(*terms), config=options)
    b.pump()
    return b


def tell(b: Member, term: int, body: Append | Heartbeat) -> list[object]:
    """Let the leader `a` say something to `b`; return the answers."""
    b.core.receive(envelope("a", "b", term, body))
    b.pump()
    return list(bodies(b.take_outbox()))


def test_a_leader_begins_its_term_with_a_no_op() -> None:
    """Raft 8: to learn which entries are committed."""
    group = Group("abc")
    leader = group.elect("a")
    assert [e.kind for e in group["b"].applied_entries] == [EntryKind.NOOP]
    assert leader.commit == 1


def test_a_proposal_goes_to_all_followers_behind_the_entry_before_it() -> None:
    """Raft 5.3: appends to its log, then issues AppendEntries in parallel."""
    group = Group("abc")
    leader = group.elect("a")
    index = leader.propose(b"x")
    group["a"].pump()
    sent = [e for e in group["a"].take_outbox() if isinstance(e.body, Append)]
    assert [e.to for e in sent] == ["b.1", "c.1"]
    assert {e.body for e in sent} == {Append(1, 1, 1, (Entry(index, 1, EntryKind.DATA, b"x"),))}


def test_followers_share_the_value_of_an_append() -> None:
    """The transport may encode it once (contract of issue 3: cost per batch, not per peer)."""
    group = Group("abc")
    group.elect("a").propose(b"x")
    group["a"].pump()
    first, second = (e.body for e in group["a"].take_outbox() if isinstance(e.body, Append))
    assert first is second


def test_an_entry_is_committed_by_a_majority() -> None:
    """Raft 5.3: once it is replicated on a majority; followers learn it next."""
    group = Group("abcde")
    leader = group.elect("a")
    for name in "de":
        group.isolate(name)
    assert group.propose(b"x") == 2
    assert leader.commit == 2
    assert [group[name].data() for name in "abcde"] == [[b"x"]] * 3 + [[]] * 2
    group.isolate("c")
    assert group.propose(b"y") == 3
    assert leader.commit == 2


@pytest.mark.parametrize(
    ("voters", "acknowledging", "is_committed"),
    [
        ("a", "", True),
        ("abc", "", False),
        ("abc", "b", True),
        ("abc", "bc", True),
        ("abcd", "b", False),
        ("abcd", "bc", True),
        ("abcde", "b", False),
        ("abcde", "bc", True),
        ("abcde", "ce", True),
    ],
)
def test_commit_needs_a_majority_of_acknowledgements(
    voters: str, acknowledging: str, is_committed: bool
) -> None:
    """Raft 5.3: the leader counts itself and who acknowledged."""
    group = Group(voters)
    group.elect("a")
    leader = group["a"]
    index = leader.core.propose(b"x")
    leader.pump()
    for name in acknowledging:
        reply = AppendReply(index, False, 0, 0, 0)
        leader.core.receive(envelope(name, "a", leader.core.term, reply))
    assert (leader.core.commit == index) is is_committed


def test_the_leader_counts_itself_only_when_durable() -> None:
    """Thesis 10.2.1: it writes in parallel with its followers; a majority may be without it."""
    group = Group("abc")
    leader = group.elect("a")
    group["a"].auto_sync = False
    leader.propose(b"x")
    group["a"].pump()
    leader.receive(envelope("b", "a", 1, AppendReply(2, False, 0, 0, 0)))
    assert leader.commit == 1
    group["a"].sync()
    assert leader.commit == 2


def test_followers_may_commit_before_the_leader_is_durable() -> None:
    """Thesis 10.2.1: but nothing is applied before it is durable at the place it is applied."""
    group = Group("abc")
    leader = group.elect("a")
    group["a"].auto_sync = False
    leader.propose(b"x")
    group.settle()
    assert leader.commit == 2
    assert group["b"].data() == [b"x"]
    assert group["a"].data() == []
    group["a"].sync()
    assert group["a"].data() == [b"x"]


def test_an_acknowledgement_leaves_after_the_entries_are_durable() -> None:
    """Raft figure 2: a follower that crashes must still have what it acknowledged."""
    b = follower()
    b.auto_sync = False
    assert tell(b, 1, Append(0, 0, 0, log_of(1))) == []
    b.sync()
    assert bodies(b.take_outbox()) == [AppendReply(1, False, 0, 0, 0)]


def test_an_acknowledgement_of_known_entries_waits_for_their_sync() -> None:
    """A repeated Append must not be acknowledged before the first copy is durable."""
    b = follower()
    b.auto_sync = False
    tell(b, 1, Append(0, 0, 0, log_of(1)))
    assert tell(b, 1, Append(0, 0, 0, log_of(1))) == []
    b.sync()
    assert bodies(b.take_outbox(), AppendReply)[-1] == AppendReply(1, False, 0, 0, 0)


def test_preceding_entries_of_older_terms_are_committed_with_the_first_own() -> None:
    """Raft 5.4.2: only through an entry of its own term does a leader commit older ones."""
    group = Group("abc")
    for name in "abc":
        terms = (1, 2) if name != "c" else ()
        old = group[name]
        group.add(Member(old.node, ABC, entries=log_of(*terms), hard_state=HardState(2)))
    leader = group.elect("a")
    assert leader.term == 3
    assert [e.term for e in group["c"].applied_entries] == [1, 2, 3]


def test_entries_of_older_terms_are_not_committed_by_counting() -> None:
    """Raft 5.4.2, figure 8: a majority may hold it and it may still be overwritten."""
    group = Group("abc")
    for name in "abc":
        terms = (1, 2) if name == "a" else (1,)
        group.add(Member(f"{name}.1", ABC, entries=log_of(*terms), hard_state=HardState(2)))
    group.drops = lambda e: isinstance(e.body, Append) and any(i.term == 3 for i in e.body.entries)
    group.elect("a")
    a = group["a"]
    a.core.receive(envelope("b", "a", 3, AppendReply(2, False, 0, 0, 0)))
    a.core.receive(envelope("c", "a", 3, AppendReply(2, False, 0, 0, 0)))
    assert a.core.commit == 0
    a.core.receive(envelope("b", "a", 3, AppendReply(3, False, 0, 0, 0)))
    assert a.core.commit == 3


def test_a_follower_applies_in_order_what_the_leader_says_is_committed() -> None:
    """Raft 5.3: up to the leader's commit index, of what it holds."""
    b = follower()
    tell(b, 1, Append(0, 0, 0, log_of(1, 1, 1)))
    for commit, applied in ((1, 1), (3, 3), (2, 3)):
        tell(b, 1, Heartbeat(commit, 0))
        assert [e.index for e in b.applied_entries] == list(range(1, applied + 1))


def test_a_follower_commits_no_further_than_it_matches() -> None:
    """Raft figure 2: commitIndex = min(leaderCommit, index of last new entry)."""
    b = follower(1, 1, 1)
    tell(b, 2, Append(1, 1, 3, ()))
    assert b.core.commit == 1


@pytest.mark.parametrize(
    ("prev_index", "prev_term", "is_rejected"),
    [(0, 0, False), (1, 1, False), (2, 2, False), (1, 2, True), (3, 3, True)],
)
def test_the_consistency_check(prev_index: int, prev_term: int, is_rejected: bool) -> None:
    """Raft 5.3: refused unless the log has an entry with prevLogIndex and prevLogTerm."""
    b = follower(1, 2)
    (reply,) = tell(b, 3, Append(prev_index, prev_term, 0, ()))
    assert isinstance(reply, AppendReply)
    assert reply.is_rejected is is_rejected
    assert b.core.commit == 0
    assert reply.match_index == (0 if is_rejected else prev_index)


@pytest.mark.parametrize(
    ("prev", "sent", "result"),
    [
        ((2, 2), [(3, 3)], [1, 2, 3]),
        ((1, 1), [(2, 3), (3, 4)], [1, 3, 4]),
        ((0, 0), [(1, 1)], [1, 2]),
        ((0, 0), [(1, 3)], [3]),
        ((0, 0), [(1, 1), (2, 2), (3, 3)], [1, 2, 3]),
        ((1, 1), [], [1, 2]),
    ],
)
def test_a_conflict_is_overwritten_and_a_prefix_is_kept(
    prev: tuple[int, int], sent: list[tuple[int, int]], result: list[int]
) -> None:
    """Raft 5.3: delete a conflicting entry and all after it; never entries merely not sent."""
    b = follower(1, 2)
    entries = tuple(entry(index, term) for index, term in sent)
    tell(b, 4, Append(*prev, 0, entries))
    assert b.terms() == result


def test_a_late_duplicate_erases_nothing() -> None:
    """Raft 5.3: an Append that was overtaken by longer ones is no conflict."""
    b = follower()
    tell(b, 1, Append(0, 0, 0, log_of(1, 1, 1)))
    replies = tell(b, 1, Append(0, 0, 0, log_of(1)))
    assert b.terms() == [1, 1, 1]
    assert replies == [AppendReply(1, False, 0, 0, 0)]


def test_what_is_committed_is_never_truncated() -> None:
    """Raft 5.4.3: leader completeness; a message that says otherwise is ignored."""
    b = follower()
    tell(b, 1, Append(0, 0, 2, log_of(1, 1, 1)))
    tell(b, 2, Append(0, 0, 0, (entry(1, 2), entry(2, 2))))
    assert b.terms()[:2] == [1, 1]
    assert b.core.commit == 2


FIGURE_7 = [
    (1, 1, 1, 4, 4, 5, 5, 6, 6),
    (1, 1, 1, 4),
    (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    (1, 1, 1, 4, 4, 4, 4),
    (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
]


@pytest.mark.parametrize("terms", FIGURE_7)
def test_a_leader_brings_any_log_into_line(terms: tuple[int, ...]) -> None:
    """Raft figure 7: missing entries, extra entries, both."""
    lead = log_of(1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    group = Group("abc")
    group.add(Member("a.1", ABC, entries=lead, hard_state=HardState(7)))
    group.add(Member("b.1", ABC, entries=log_of(*terms), hard_state=HardState(7)))
    group.add(Member("c.1", ABC, hard_state=HardState(7)))
    group.elect("a")
    expected = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8]
    assert group["a"].terms() == expected
    assert group["b"].terms() == expected
    assert group["c"].terms() == expected


def test_backtracking_needs_one_round_per_term() -> None:
    """Raft 5.3: a refusal says where the logs may still agree, so that terms are skipped."""
    group = Group("abc")
    mine = log_of(*[1] * 20, *[4] * 300)
    theirs = log_of(*[1] * 20, *[2] * 100, *[3] * 100)
    group.add(Member("a.1", ABC, entries=mine, hard_state=HardState(4)))
    group.add(Member("b.1", ABC, entries=theirs, hard_state=HardState(4)))
    group.add(Member("c.1", ABC, hard_state=HardState(4)))
    group.elect("a")
    assert group["b"].terms() == group["a"].terms()
    refusals = [
        e
        for e in group.log
        if e.sender == "b.1" and isinstance(e.body, AppendReply) and e.body.is_rejected
    ]
    assert len(refusals) <= 2


def test_lost_appends_are_repeated_without_new_proposals() -> None:
    """Raft 5.3: retried indefinitely, also when the lost one was the last."""
    group = Group("abc")
    group.elect("a")
    group.drops = lambda e: isinstance(e.body, Append)
    group.propose(b"x")
    group.propose(b"y")
    group.drops = lambda e: False
    assert group["b"].data() == []
    group.tick(4 * HEARTBEAT_TICKS)
    assert [group[name].data() for name in "abc"] == [[b"x", b"y"]] * 3


def test_lost_acknowledgements_are_repeated() -> None:
    """Raft 5.3: AppendEntries are idempotent, so it does not matter which way was lost."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: isinstance(e.body, AppendReply)
    group.propose(b"x")
    assert leader.commit == 1
    group.drops = lambda e: False
    group.tick(4 * HEARTBEAT_TICKS)
    assert leader.commit == 2
    assert group["b"].terms() == [1, 1]


def test_reordered_appends_end_in_the_same_log() -> None:
    """Raft 5.3: messages may overtake each other."""
    group = Group("abc")
    leader = group.elect("a")
    for number in range(20):
        leader.propose(bytes([number]))
        group["a"].pump()
    sent = group["a"].take_outbox()
    group.wire.extend(reversed(sent))
    group.settle()
    group.tick(4 * HEARTBEAT_TICKS)
    assert [group[name].data() for name in "abc"] == [[bytes([n]) for n in range(20)]] * 3


def test_an_uncommitted_entry_survives_by_a_leader_that_holds_it() -> None:
    """Raft 5.4.3: what a majority holds durably, the next leader holds."""
    group = Group("abc")
    group.elect("a")
    group.drops = lambda e: isinstance(e.body, AppendReply)
    group.propose(b"x")
    group.drops = lambda e: False
    group.isolate("a")
    group.elect("b")
    assert group["b"].data() == [b"x"]
    assert group["c"].data() == [b"x"]


def test_an_entry_of_a_minority_gives_way() -> None:
    """Raft 5.3: the new leader's log wins, and the old leader is brought into line."""
    group = Group("abc")
    group.elect("a")
    group.isolate("a")
    group["a"].core.propose(b"lost")
    group["a"].pump()
    group.elect("b")
    group.propose(b"kept")
    group.heal()
    group.tick(2 * ELECTION_TICKS)
    assert [group[name].data() for name in "abc"] == [[b"kept"]] * 3


def test_a_restart_continues_from_what_is_durable() -> None:
    """Raft figure 2: term, vote and log come back, the rest is learned again."""
    group = Group("abc")
    group.elect("a")
    group.propose(b"x")
    group["b"].restart()
    b = group.core("b")
    assert (b.term, b.last_index, b.leader) == (1, 2, None)
    group.propose(b"y")
    group.tick(2 * HEARTBEAT_TICKS)
    assert group["b"].data() == [b"x", b"y"]


def test_unsynced_entries_may_vanish_without_harm() -> None:
    """Raft figure 2: what was not acknowledged was not promised."""
    group = Group("abc")
    group.elect("a")
    group["b"].auto_sync = False
    group.propose(b"x")
    group["b"].restart()
    assert group.core("b").last_index == 1
    group["b"].auto_sync = True
    group.tick(4 * HEARTBEAT_TICKS)
    assert group["b"].data() == [b"x"]


def test_an_acknowledgement_of_an_older_copy_does_not_cover_a_newer_one() -> None:
    """A sync that began before a truncation says nothing of what was written after it."""
    b = follower()
    b.auto_sync = False
    tell(b, 1, Append(0, 0, 0, log_of(1, 1)))
    tell(b, 2, Append(0, 0, 0, (entry(1, 2),)))
    b.core.stable(2, 1)
    assert b.core.durable_index == 0
    b.core.stable(1, 1)
    assert b.core.durable_index == 0
    b.core.stable(1, 2)
    assert b.core.durable_index == 1


def test_the_hard_state_is_written_when_it_must_be() -> None:
    """Raft figure 2: term and vote force a sync; the commit index rides along with entries."""
    b = follower()
    b.core.receive(envelope("a", "b", 1, Append(0, 0, 0, log_of(1))))
    first = b.ready()
    assert (first.hard_state, first.must_sync) == (HardState(1, None, 0), True)
    b.core.receive(envelope("a", "b", 1, Heartbeat(1, 0)))
    second = b.ready()
    assert (second.hard_state, second.must_sync, second.commit) == (None, False, 1)
    b.core.receive(envelope("a", "b", 1, Append(1, 1, 1, (entry(2, 1),))))
    third = b.ready()
    assert (third.hard_state, third.must_sync) == (None, True), "not for every batch"
    last = 2 + CoreConfig("b.1", 1).commit_stride_entries
    entries = tuple(entry(index, 1) for index in range(3, last + 1))
    b.core.receive(envelope("a", "b", 1, Append(2, 1, last, entries)))
    fourth = b.ready()
    assert (fourth.hard_state, fourth.must_sync) == (None, True), "nor of the batch's own entries"
    b.core.receive(envelope("a", "b", 1, Append(last, 1, last, (entry(last + 1, 1),))))
    fifth = b.ready()
    assert (fifth.hard_state, fifth.must_sync) == (HardState(1, None, last), True)


def test_the_commit_index_on_disk_holds_without_the_entries_written_behind_it() -> None:
    """A crash may keep the hard state of a batch and lose its entries: found by seed 233."""
    b = follower()
    b.core.receive(envelope("a", "b", 1, Append(0, 0, 1, log_of(1, 1, 1))))
    b.ready()
    b.core.receive(envelope("c", "b", 3, Append(1, 1, 3, (entry(2, 3), entry(3, 3)))))
    ready = b.ready()
    assert [entry.index for entry in ready.entries] == [2, 3]
    assert ready.commit == 3
    assert ready.hard_state == HardState(3, None, 1), "2 and 3 of term 1 are not committed"


def test_a_heartbeat_reply_carries_what_is_applied() -> None:
    """DESIGN 4, Bounded steps: followers report their applied index."""
    b = follower()
    tell(b, 1, Append(0, 0, 1, log_of(1, 1)))
    assert tell(b, 1, Heartbeat(2, 0)) == [HeartbeatReply(0, 1)]
    assert tell(b, 1, Heartbeat(2, 0)) == [HeartbeatReply(0, 2)]


def test_a_broken_connection_is_fed_again_at_once() -> None:
    """What was on its way is probably lost: no wait for a heartbeat."""
    group = Group("abc")
    leader = group.elect("a")
    group.drops = lambda e: e.to == "b.1"
    group.propose(b"x")
    group.drops = lambda e: False
    leader.peer("b.1", PeerState.LOST)
    leader.peer("b.1", PeerState.CONNECTED)
    group.settle()
    assert group["b"].data() == [b"x"]


@pytest.mark.parametrize(
    "body",
    [
        Append(2, 2, 4, (entry(3, 2),)),
        Append(1, 1, 4, (entry(2, 2), entry(3, 2), entry(4, 2))),
        Append(2, 1, 4, (entry(3, 2), entry(4, 2))),
    ],
)
def test_a_leader_with_other_committed_entries_is_not_followed(body: Append) -> None:
    """Raft 5.4.3: its entries are not here, and an acknowledgement would count for them."""
    b = follower(1, 1, 1)
    assert tell(b, 3, Append(3, 1, 3, ())) != []
    assert b.core.commit == 3
    assert tell(b, 3, body) == []
    assert (b.core.last_index, b.core.commit) == (3, 3)
    assert b.core.counters.contradicted == 1
    assert tell(b, 3, Append(1, 1, 3, (entry(2, 1), entry(3, 1), entry(4, 3)))) != []
    assert b.core.last_index == 4

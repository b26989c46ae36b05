"""Malformed, stale, foreign and hostile input is counted and dropped (DESIGN 1.7)."""

import random

import pytest

from raft.core.core import Core
from raft.types import (
    Append,
    AppendReply,
    Body,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PeerState,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    Role,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.unit.raft.core.group import GROUP, Group, Member, entry, envelope, log_of

ABC = Configuration(("a.1", "b.1", "c.1"))
HUGE = 1 << 63


def state(core: Core) -> tuple[object, ...]:
    """Everything that bad input must not change."""
    return (core.role, core.term, core.leader, core.commit, core.last_index, core.configuration)


def test_foreign_groups_are_dropped() -> None:
    """Every envelope names its group; another one's is not heard."""
    b = Member("b.1", ABC)
    before = state(b.core)
    b.core.receive(envelope("a", "b", 5, Heartbeat(0, 0), group=GROUP + 1))
    assert state(b.core) == before
    assert b.core.counters.foreign_group == 1


@pytest.mark.parametrize(("sender", "to"), [("a.1", "c.1"), ("b.1", "b.1"), ("a.1", "b.2")])
def test_misaddressed_envelopes_are_dropped(sender: str, to: str) -> None:
    """Envelopes for another node, another incarnation, or from itself."""
    b = Member("b.1", ABC)
    before = state(b.core)
    b.core.receive(Envelope(GROUP, sender, to, 5, Heartbeat(0, 0)))
    assert state(b.core) == before
    assert b.core.counters.misaddressed == 1


META = SnapshotMeta(3, 1, ABC, 10)
MALFORMED: list[tuple[int, Body]] = [
    (-1, Heartbeat(0, 0)),
    (0, Heartbeat(0, 0)),
    (0, Vote(0, 0, False)),
    (0, TimeoutNow()),
    (HUGE, Heartbeat(0, 0)),
    (2, Heartbeat(-1, 0)),
    (2, Heartbeat(HUGE, 0)),
    (2, Heartbeat(0, -1)),
    (2, HeartbeatReply(0, HUGE)),
    (2, Append(-1, 1, 0, ())),
    (2, Append(HUGE, 1, 0, ())),
    (2, Append(0, 1, 0, ())),
    (2, Append(1, 0, 0, ())),
    (2, Append(1, 3, 0, ())),
    (2, Append(0, 0, -1, ())),
    (2, Append(0, 0, 0, (entry(2, 1),))),
    (2, Append(0, 0, 0, (entry(1, 0),))),
    (2, Append(0, 0, 0, (entry(1, 3),))),
    (2, Append(0, 0, 0, (entry(1, 2), entry(2, 1)))),
    (2, Append(0, 0, 0, (entry(1, 1), entry(3, 1)))),
    (2, Append(1, 2, 0, (entry(2, 1),))),
    (2, Append(0, 0, 0, (Entry(1, 1, 7, b""),))),  # type: ignore[arg-type]
    (2, Append(0, 0, 0, (Entry(1, 1, EntryKind.CONFIG, b"{}"),))),
    (2, AppendReply(-1, False, 0, 0, 0)),
    (2, AppendReply(0, True, HUGE, 0, 0)),
    (2, AppendReply(0, True, 0, 0, 0, rejected_index=-4)),
    (2, PreVote(-1, 0, False)),
    (2, PreVote(0, 1, False)),
    (2, PreVote(1, 3, False)),
    (2, Vote(1, 0, False)),
    (2, Vote(HUGE, 1, True)),
    (2, InstallSnapshot(SnapshotMeta(0, 0, ABC, 10))),
    (2, InstallSnapshot(SnapshotMeta(3, 3, ABC, 10))),
    (2, InstallSnapshot(SnapshotMeta(3, 1, ABC, -1))),
    (2, SnapshotReply(-1, True)),
    (2, ReadRequest(-1)),
    (2, ReadReply(1, HUGE)),
]


@pytest.mark.parametrize(("term", "body"), MALFORMED)
def test_malformed_envelopes_are_dropped(term: int, body: Body) -> None:
    """Numbers that cannot belong together change neither log nor commit."""
    b = Member("b.1", ABC)
    b.core.receive(envelope("a", "b", term, body))
    assert b.core.counters.malformed == 1
    assert (b.core.commit, b.core.last_index) == (0, 0)
    b.pump()


def test_a_leader_believes_no_impossible_answers() -> None:
    """Matches, applied indexes and snapshots behind the end of its log."""
    group = Group("abc")
    leader = group.elect("a")
    leader.propose(b"x")
    impossible: list[Body] = [
        AppendReply(99, False, 0, 0, 0),
        AppendReply(1, False, 0, 0, 99),
        HeartbeatReply(0, 99),
        HeartbeatReply(99, 0),
        SnapshotReply(99, True),
    ]
    for body in impossible:
        leader.receive(envelope("b", "a", 1, body))
    assert leader.counters.malformed == len(impossible)
    assert leader.commit == 1


def test_a_second_leader_of_one_term_is_not_believed() -> None:
    """Election safety (Raft 5.2): there is none, so a member is faulty."""
    group = Group("abc")
    group.elect("a")
    for name in "ab":
        core = group.core(name)
        before = state(core)
        core.receive(envelope("c", name, 1, Append(1, 1, 1, (entry(2, 1),))))
        core.receive(envelope("c", name, 1, Heartbeat(1, 0)))
        assert state(core) == before
        assert core.counters.malformed == 2


def test_answers_to_nobody_are_counted() -> None:
    """Replies without a question, orders without an office, from strangers."""
    group = Group("abc")
    group.elect("a")
    b = group.core("b")
    late: list[Body] = [
        AppendReply(1, False, 0, 0, 0),
        HeartbeatReply(0, 0),
        SnapshotReply(1, True),
        VoteReply(True),
        PreVoteReply(True, False),
        TimeoutNow(),
    ]
    before = state(b)
    for body in late:
        b.receive(envelope("c", "b", 1, body))
    assert b.counters.unexpected == len(late)
    assert state(b) == before
    leader = group.core("a")
    leader.receive(envelope("x", "a", 1, AppendReply(1, False, 0, 0, 0)))
    assert leader.counters.unexpected >= 1


def test_a_stale_leader_is_told() -> None:
    """A sender in an older term learns of the newer one."""
    b = Member("b.1", ABC)
    b.core.receive(envelope("a", "b", 5, Heartbeat(0, 0)))
    b.pump()
    b.take_outbox()
    stale: list[Body] = [
        Append(0, 0, 0, ()),
        Heartbeat(0, 0),
        InstallSnapshot(META),
        Vote(0, 0, False),
        PreVote(0, 0, False),
        ReadRequest(3),
    ]
    for body in stale:
        b.core.receive(envelope("c", "b", 3, body))
    b.pump()
    assert [e.term for e in b.take_outbox()] == [5] * len(stale)
    assert b.core.leader == "a.1"


BODIES: list[Body] = [
    Append(1, 1, 3, (entry(2, 1), entry(3, 2))),
    Append(0, 0, 2, log_of(1, 1)),
    AppendReply(2, False, 0, 0, 1),
    AppendReply(0, True, 1, 1, 0, rejected_index=2),
    Heartbeat(1, 0),
    HeartbeatReply(1, 1),
    PreVote(3, 2, True),
    PreVote(3, 2, False),
    PreVoteReply(True, False),
    PreVoteReply(False, True),
    Vote(3, 2, False),
    Vote(3, 2, True),
    VoteReply(True),
    VoteReply(False),
    InstallSnapshot(META),
    SnapshotReply(3, True),
    SnapshotReply(3, False),
    TimeoutNow(),
    ReadRequest(1),
    ReadReply(1, 2),
    ReadReply(1, 0),
]


@pytest.mark.parametrize("seed", range(30))
def test_any_sequence_of_input_is_survived(seed: int) -> None:
    """No message, in any state and any order, raises; terms and commit never fall."""
    chance = random.Random(seed)
    b = Member("b.1", ABC, random=chance.randrange)
    term = commit = 0
    for _ in range(600):
        choice = chance.random()
        if choice < 0.7:
            body = chance.choice([*BODIES, *(body for _, body in MALFORMED)])
            sender = chance.choice("acx")
            near = max(b.core.term + chance.randint(-1, 1), 0)
            b.core.receive(envelope(sender, "b", near, body))
        elif choice < 0.85:
            b.core.tick(chance.randint(1, 50))
        elif choice < 0.9:
            b.core.peer(chance.choice(["a.1", "c.1"]), chance.choice(list(PeerState)))
        elif choice < 0.95 and b.core.role is Role.LEADER:
            b.core.propose(b"x")
        if chance.random() < 0.5:
            b.pump()
        b.take_outbox()
        assert b.core.term >= term
        assert b.core.commit >= commit
        assert b.core.commit <= b.core.last_index
        term, commit = b.core.term, b.core.commit


STRANGER = "mallory.1"
ANSWERS: list[Body] = [
    AppendReply(9, False, 0, 0, 9),
    HeartbeatReply(0, 9),
    SnapshotReply(9, True),
    PreVoteReply(True, False),
    VoteReply(True),
    ReadRequest(1),
    ReadReply(1, 9),
    TimeoutNow(),
]
ORDERS: list[Body] = [
    Append(0, 0, 0, ()),
    Append(0, 0, 1, (entry(1, 9),)),
    Heartbeat(0, 0),
    InstallSnapshot(META),
    PreVote(99, 9, False),
    Vote(99, 9, True),
]


@pytest.mark.parametrize("body", ANSWERS + ORDERS, ids=lambda body: type(body).__name__)
@pytest.mark.parametrize("who", ["a", "b"])
def test_a_stranger_is_not_heard_while_a_leader_lives(who: str, body: Body) -> None:
    """Neither by the leader nor by its followers, whatever term it claims."""
    group = Group("abc")
    group.elect("a")
    group.propose(b"x")
    core = group.core(who)
    before = state(core)
    core.receive(Envelope(GROUP, STRANGER, f"{who}.1", core.term + 9, body))
    assert state(core) == before
    assert core.counters.stranger == 1
    assert not core.has_ready()


@pytest.mark.parametrize("body", ANSWERS, ids=lambda body: type(body).__name__)
def test_a_stranger_answers_nobody(body: Body) -> None:
    """Whoever was not asked has nothing to answer, with or without a leader."""
    b = Member("b.1", ABC)
    before = state(b.core)
    b.core.receive(Envelope(GROUP, STRANGER, "b.1", 9, body))
    assert state(b.core) == before
    assert b.core.counters.stranger == 1


def test_a_stranger_sends_no_snapshot_while_a_leader_lives() -> None:
    """A snapshot is taken from any member in any term, and from nobody else."""
    group = Group("abc")
    group.elect("a")
    meta = SnapshotMeta(99, 9, ABC, 10)
    assert not group.core("b").wants_snapshot(STRANGER, meta)
    assert group.core("b").counters.stranger == 1
    assert group.core("b").wants_snapshot("c.1", meta)


def test_a_leader_of_a_newer_configuration_is_heard_by_who_has_none() -> None:
    """Thesis 4.1: who missed the entry that made its leader a member must follow it too."""
    b = Member("b.1", ABC)
    b.core.receive(Envelope(GROUP, "d.1", "b.1", 9, Heartbeat(0, 0)))
    assert (b.core.term, b.core.leader) == (9, "d.1")
    b.core.receive(Envelope(GROUP, "e.1", "b.1", 10, Heartbeat(0, 0)))
    assert (b.core.term, b.core.leader) == (9, "d.1")
    for _ in range(40):
        b.core.tick(10)
    b.core.receive(Envelope(GROUP, "e.1", "b.1", 100, Heartbeat(0, 0)))
    assert b.core.leader == "e.1"


def test_a_learner_that_knows_no_configuration_hears_whoever_leads() -> None:
    """Its log is empty: the first leader tells it who is a member."""
    d = Member("d.1", Configuration(()))
    d.core.receive(Envelope(GROUP, "a.1", "d.1", 2, Heartbeat(0, 0)))
    assert d.core.leader == "a.1"
    d.core.receive(Envelope(GROUP, "b.1", "d.1", 3, Heartbeat(0, 0)))
    assert d.core.leader == "b.1"

"""Flow control: what a leader sends to whom, and when it refuses more."""

import pytest

from raft.core.core import Busy, NotLeader
from raft.core.progress import Progress, ProgressState
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PeerState,
    Vote,
    VoteReply,
)
from tests.unit.raft.core.group import (
    HEARTBEAT_TICKS,
    Group,
    Member,
    bodies,
    entry,
    envelope,
    log_of,
)

ABC = Configuration(("a.1", "b.1", "c.1"))


def appends_to(member: Member, to: str) -> list[Append]:
    """Pump a leader and return what it sends to one follower."""
    member.pump()
    return [
        e.body for e in member.take_outbox() if e.to == f"{to}.1" and isinstance(e.body, Append)
    ]


def state_of(member: Member, name: str) -> ProgressState:
    """How the leader feeds a follower."""
    (found,) = [f.state for f in member.core.followers() if f.node == f"{name}.1"]
    return found


def test_a_new_leader_probes_then_replicates() -> None:
    """One Append until the place where the logs agree is known, then as many as fit."""
    group = Group("abc")
    group.drops = lambda e: isinstance(e.body, AppendReply)
    leader = group.elect("a")
    a = group["a"]
    assert state_of(a, "b") is ProgressState.PROBE
    leader.propose(b"x")
    assert appends_to(a, "b") == []
    a.core.receive(envelope("b", "a", 1, AppendReply(1, False, 0, 0, 0)))
    assert [body.prev_index for body in appends_to(a, "b")] == [1]
    assert state_of(a, "b") is ProgressState.REPLICATE
    leader.propose(b"y")
    leader.propose(b"z")
    assert [len(body.entries) for body in appends_to(a, "b")] == [2]


def test_the_window_is_bounded_in_messages() -> None:
    """inflight_messages_max Appends are out at most; an acknowledgement frees their places."""
    group = Group("abc", inflight_messages_max=3)
    leader = group.elect("a")
    a = group["a"]
    sent = []
    for _ in range(6):
        leader.propose(b"x")
        sent += appends_to(a, "b")
    assert [body.entries[0].index for body in sent] == [2, 3, 4]
    a.core.receive(envelope("b", "a", 1, AppendReply(3, False, 0, 0, 0)))
    assert [len(body.entries) for body in appends_to(a, "b")] == [3]


def test_the_window_is_bounded_in_bytes() -> None:
    """A further Append leaves while less than inflight_bytes_max are out."""
    group = Group("abc", inflight_bytes_max=100, append_bytes_max=60)
    leader = group.elect("a")
    a = group["a"]
    for _ in range(6):
        leader.propose(bytes(50))
    sent = appends_to(a, "b")
    assert [len(body.entries) for body in sent] == [1, 1]
    (status,) = [f for f in leader.followers() if f.node == "b.1"]
    assert status.inflight_bytes == 100
    a.core.receive(envelope("b", "a", 1, AppendReply(2, False, 0, 0, 0)))
    assert [body.entries[0].index for body in appends_to(a, "b")] == [4]


def test_appends_are_cut_at_their_size_but_never_empty() -> None:
    """append_bytes_max is soft: an entry that exceeds it travels alone."""
    group = Group("abc", append_bytes_max=100)
    leader = group.elect("a")
    for size in (40, 40, 40, 500, 10):
        leader.propose(bytes(size))
    sizes = [[len(e.data) for e in body.entries] for body in appends_to(group["a"], "b")]
    assert sizes == [[40, 40], [40], [500], [10]]


def test_a_backlog_is_sent_in_portions_per_ready() -> None:
    """No other waits for a follower that reads a long log from disk; nothing is forgotten."""
    group = Group("abc", append_bytes_max=10, inflight_messages_max=1000)
    leader = group.elect("a")
    a = group["a"]
    for _ in range(20):
        leader.propose(bytes(10))
    counts = []
    while a.core.has_ready():
        a.ready()
        counts.append(sum(1 for e in a.take_outbox() if e.to == "b.1"))
    assert max(counts) <= 4
    assert sum(counts) == 20


def test_a_refusal_in_full_flow_starts_a_probe_at_the_match() -> None:
    """What is known durable stays known: the probe never goes below it."""
    group = Group("abc")
    leader = group.elect("a")
    a = group["a"]
    group.propose(b"x")
    leader.propose(b"y")
    appends_to(a, "b")
    a.core.receive(envelope("b", "a", 1, AppendReply(0, True, 0, 0, 0, rejected_index=2)))
    assert state_of(a, "b") is ProgressState.REPLICATE, "it refuses what it acknowledged"
    leader.propose(b"z")
    appends_to(a, "b")
    a.core.receive(envelope("b", "a", 1, AppendReply(0, True, 2, 1, 0, rejected_index=3)))
    assert state_of(a, "b") is ProgressState.PROBE
    assert [body.prev_index for body in appends_to(a, "b")] == [2]


def test_a_late_refusal_does_not_move_a_probe() -> None:
    """Only the answer to the outstanding probe counts."""
    group = Group("abc")
    lead = log_of(1, 1, 1)
    for name in "abc":
        terms = lead if name == "a" else ()
        group.add(Member(f"{name}.1", ABC, entries=terms, hard_state=HardState(1)))
    group.drops = lambda e: isinstance(e.body, Append | AppendReply)
    group.elect("a")
    a = group["a"]
    before = a.core.counters.unexpected
    a.core.receive(envelope("b", "a", 2, AppendReply(0, True, 0, 0, 0, rejected_index=1)))
    assert appends_to(a, "b") == []
    assert a.core.counters.unexpected == before + 1
    a.core.receive(envelope("b", "a", 2, AppendReply(0, True, 0, 0, 0, rejected_index=3)))
    assert [body.prev_index for body in appends_to(a, "b")] == [0]


def test_a_heartbeat_answer_lets_a_probe_be_repeated() -> None:
    """Otherwise a lost probe would stall its follower forever."""
    group = Group("abc")
    group.drops = lambda e: isinstance(e.body, Append)
    group.elect("a")
    a = group["a"]
    assert appends_to(a, "b") == []
    a.core.receive(envelope("b", "a", 1, HeartbeatReply(0, 0)))
    assert [body.prev_index for body in appends_to(a, "b")] == [0]


def test_a_stalled_window_is_tested_by_an_empty_append() -> None:
    """A slow disk is not fed everything again; a loss is found out within heartbeats."""
    group = Group("abc")
    leader = group.elect("a")
    a = group["a"]
    leader.propose(b"x")
    appends_to(a, "b")
    a.core.receive(envelope("b", "a", 1, HeartbeatReply(0, 0)))
    assert appends_to(a, "b") == [], "it is not late yet"
    for _ in range(HEARTBEAT_TICKS):
        a.core.tick()
    a.core.receive(envelope("b", "a", 1, HeartbeatReply(0, 0)))
    assert [(body.prev_index, body.entries) for body in appends_to(a, "b")] == [(2, ())]
    a.core.receive(envelope("b", "a", 1, HeartbeatReply(0, 0)))
    assert appends_to(a, "b") == []


def test_news_of_a_commit_needs_no_append() -> None:
    """A heartbeat tells followers what they may apply, within what they have matched."""
    group = Group("abc")
    leader = group.elect("a")
    a = group["a"]
    leader.propose(b"x")
    appends_to(a, "b")
    a.core.receive(envelope("b", "a", 1, AppendReply(2, False, 0, 0, 0)))
    a.pump()
    told = {e.to: e.body for e in a.take_outbox() if isinstance(e.body, Heartbeat)}
    assert told == {"b.1": Heartbeat(2, 0)}, "c.1 has not matched it"


def test_a_lost_connection_pauses_and_a_new_one_resumes() -> None:
    """No bytes for a peer that cannot take them; the first connection starts a probe."""
    group = Group("abc")
    leader = group.elect("a")
    a = group["a"]
    leader.peer("b.1", PeerState.LOST)
    leader.propose(b"x")
    assert appends_to(a, "b") == []
    assert state_of(a, "b") is ProgressState.PROBE
    leader.peer("b.1", PeerState.CONNECTED)
    assert [body.prev_index for body in appends_to(a, "b")] == [1]


def test_proposals_need_the_leader() -> None:
    """The error names who leads."""
    group = Group("abc")
    with pytest.raises(NotLeader) as unknown:
        group.core("b").propose(b"x")
    assert unknown.value.leader is None
    group.elect("a")
    with pytest.raises(NotLeader) as known:
        group.core("b").propose(b"x")
    assert known.value.leader == "a.1"


def test_a_proposal_has_a_size_limit() -> None:
    """entry_bytes_max is the caller's mistake, not a matter of patience."""
    group = Group("a", entry_bytes_max=10)
    group.elect("a").propose(bytes(10))
    with pytest.raises(ValueError, match="entry_bytes_max"):
        group.core("a").propose(bytes(11))


def test_the_backlog_of_proposals_is_bounded() -> None:
    """Without a quorum a leader does not collect forever; room returns with apply."""
    group = Group("abc", backlog_bytes_max=100)
    leader = group.elect("a")
    group.isolate("a")
    for _ in range(2):
        leader.propose(bytes(50))
    with pytest.raises(Busy, match="backlog_bytes_max"):
        leader.propose(b"")
    group.heal()
    group.settle()
    group.tick(3 * HEARTBEAT_TICKS)
    leader.propose(b"x")


def test_a_majority_that_applies_slowly_throttles_the_leader() -> None:
    """DESIGN 4, Bounded steps: by the applied index that followers report."""
    group = Group("abc", apply_lag_entries_max=5)
    leader = group.elect("a")
    a = group["a"]
    group.propose(b"x")
    for index in range(3, 9):
        leader.propose(b"x")
        a.pump()
        for name in "bc":
            a.core.receive(envelope(name, "a", 1, AppendReply(index, False, 0, 0, 2)))
        a.pump()
    with pytest.raises(Busy, match="apply_lag_entries_max"):
        leader.propose(b"x")
    a.core.receive(envelope("b", "a", 1, HeartbeatReply(0, 8)))
    leader.propose(b"x")


def test_a_follower_whose_disk_lags_takes_no_more() -> None:
    """unsynced_bytes_max bounds memory even under a leader that ignores its window."""
    b = Member("b.1", ABC, config={"unsynced_bytes_max": 100})
    b.auto_sync = False
    for index in range(1, 5):
        body = Append(index - 1, min(index - 1, 1), 0, (entry(index, 1, bytes(60)),))
        b.core.receive(envelope("a", "b", 1, body))
        b.pump()
    assert b.core.last_index == 2
    assert b.core.counters.overload == 2
    b.sync()
    b.core.receive(envelope("a", "b", 1, Append(2, 1, 0, (entry(3, 1),))))
    assert b.core.last_index == 3


def test_acknowledgements_that_wait_for_one_sync_are_one() -> None:
    """The furthest says it all."""
    b = Member("b.1", ABC)
    b.auto_sync = False
    for index in range(1, 9):
        body = Append(index - 1, min(index - 1, 1), 0, (entry(index, 1),))
        b.core.receive(envelope("a", "b", 1, body))
    b.pump()
    b.sync()
    assert bodies(b.take_outbox(), AppendReply) == [AppendReply(8, False, 0, 0, 0)]


def test_progress_never_forgets_what_is_durable() -> None:
    """A probe starts above the match, an old acknowledgement is no news."""
    progress = Progress(5, 0)
    assert progress.accepted(7, 0)
    assert not progress.accepted(3, 0)
    progress.probe(2)
    assert (progress.match, progress.next) == (7, 8)


def test_progress_counts_what_is_out() -> None:
    """Acknowledging frees every Append that ends at or below."""
    progress = Progress(1, 0)
    progress.accepted(0, 0)
    progress.replicate()
    for last in (1, 2, 3):
        progress.sent(last, 10, 0)
    assert progress.inflight_bytes == 30
    assert not progress.has_room(3, 100)
    assert not progress.has_room(10, 30)
    progress.accepted(2, 0)
    assert progress.inflight_bytes == 10
    assert progress.has_room(3, 100)
    progress.snapshot()
    assert progress.inflight_bytes == 0
    assert not progress.has_room(3, 100)


def test_a_full_disk_refuses_writes_and_goes_on_after() -> None:
    """Issue 3, Bad input: it stops acknowledging, and recovers when space returns."""
    group = Group("abc")
    group.elect("a")
    b = group["b"]
    b.core.receive(envelope("a", "b", 1, Append(1, 1, 1, (entry(2, 1),))))
    ready = b.core.ready()
    b.core.unwritten(ready)
    assert not b.core.has_ready() or b.core.ready().entries == ()
    b.core.receive(envelope("a", "b", 1, Append(2, 1, 1, (entry(3, 1),))))
    b.core.receive(envelope("c", "b", 9, Append(2, 1, 1, (entry(3, 1),))))
    assert b.core.counters.overload == 2
    b.core.writable(True)
    again = b.ready()
    assert [e.index for e in again.entries] == [2]
    assert again.must_sync
    assert AppendReply(2, False, 0, 0, 1) in bodies(b.take_outbox())


def test_a_leader_with_a_full_disk_refuses_and_hands_over() -> None:
    """DESIGN 6: a leader that cannot append hands over; it does not campaign meanwhile."""
    group = Group("abc")
    leader = group.elect("a")
    leader.writable(False)
    with pytest.raises(Busy, match="disk is full"):
        leader.propose(b"x")
    leader.resign()
    group.settle()
    assert group.leader().node in ("b.1", "c.1")
    group.isolate("b")
    group.isolate("c")
    group.tick(400, "a")
    assert leader.counters.campaigns == 1


def test_a_replica_with_a_full_disk_does_not_vote() -> None:
    """A vote that cannot be remembered must not be given."""
    b = Member("b.1", ABC)
    b.core.writable(False)
    b.core.receive(envelope("a", "b", 1, Vote(0, 0, False)))
    b.pump()
    assert bodies(b.take_outbox(), VoteReply) == [VoteReply(False)]

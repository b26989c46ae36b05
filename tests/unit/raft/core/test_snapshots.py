"""Snapshots in the core: when they are wanted, offered, installed (Raft 7)."""

import pytest

from raft.core.membership import AddLearner, encode_configuration
from raft.core.progress import ProgressState
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    HardState,
    InstallSnapshot,
    PeerState,
    Role,
    SnapshotMeta,
    SnapshotReply,
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


def far_behind(snapshot_wait_ticks: int = 24_000) -> Group:
    """A group whose member `c` needs entries that the leader `a` has dropped."""
    group = Group("abc", recent_bytes_max=0, snapshot_wait_ticks=snapshot_wait_ticks)
    group.elect("a")
    group.isolate("c")
    for number in range(10):
        group.propose(bytes([number]))
    group["a"].compact(8)
    group.heal()
    group.tick(2 * HEARTBEAT_TICKS)
    return group


def state_of(group: Group, name: str) -> ProgressState:
    """How the leader feeds a follower."""
    (found,) = [f.state for f in group.leader().core.followers() if f.node == f"{name}.1"]
    return found


def transfer(group: Group, name: str) -> SnapshotMeta:
    """Do what the replica does: offer, send all bytes, install."""
    leader, follower = group.leader(), group[name]
    meta = leader.snapshot_meta()
    leader.core.offer_snapshot(follower.node, meta)
    group.settle()
    assert follower.core.begin_install(meta)
    leader.core.snapshot_done(follower.node, True)
    follower.core.end_install(meta)
    return meta


def test_a_follower_that_is_too_far_behind_gets_a_snapshot() -> None:
    """Raft 7: when the leader has discarded the next entry that it needs."""
    group = far_behind()
    assert group["a"].wanted == ["c.1"]
    meta = transfer(group, "c")
    group.settle()
    assert group.core("c").commit == meta.index
    assert state_of(group, "c") is ProgressState.REPLICATE
    group.propose(b"next")
    group.tick()
    assert group["c"].data() == [b"next"]
    assert group["c"].log.first_index() == meta.index + 1


def test_the_replica_is_asked_once() -> None:
    """It is not asked at every Ready, nor for followers that do not answer."""
    group = far_behind()
    group.propose(b"x")
    group.tick(ELECTION_TICKS)
    assert group["a"].wanted == ["c.1"]
    gone = far_behind()
    gone["a"].wanted.clear()
    gone.isolate("c")
    gone.core("a").snapshot_done("c.1", False)
    gone.tick(4 * ELECTION_TICKS)
    assert gone["a"].wanted == []


def test_nothing_else_is_sent_meanwhile() -> None:
    """Raft 7: entries would be refused."""
    group = far_behind()
    group.log.clear()
    group.propose(b"x")
    sent = [e for e in group.log if e.to == "c.1" and isinstance(e.body, Append)]
    assert sent == []


def test_a_failed_transfer_is_tried_again_after_a_pause() -> None:
    """A retry at once could meet the same fault."""
    group = far_behind()
    leader = group["a"]
    leader.core.offer_snapshot("c.1", leader.snapshot_meta())
    group.settle()
    leader.core.snapshot_done("c.1", False)
    group.tick(HEARTBEAT_TICKS)
    assert leader.wanted == ["c.1"]
    group.tick(ELECTION_TICKS)
    assert leader.wanted == ["c.1", "c.1"]


def test_a_refused_snapshot_is_tried_again() -> None:
    """The follower says that it did not install it."""
    group = far_behind()
    leader = group["a"]
    leader.core.offer_snapshot("c.1", leader.snapshot_meta())
    leader.core.receive(envelope("c", "a", 1, SnapshotReply(11, False)))
    group.tick(ELECTION_TICKS + HEARTBEAT_TICKS)
    assert leader.wanted == ["c.1", "c.1"]


def test_a_whole_transfer_whose_answer_is_lost_is_found_out() -> None:
    """By the applied index in the follower's answers."""
    group = far_behind()
    group.drops = lambda e: isinstance(e.body, SnapshotReply)
    transfer(group, "c")
    group.settle()
    assert state_of(group, "c") is ProgressState.SNAPSHOT
    group.tick(HEARTBEAT_TICKS)
    assert state_of(group, "c") is ProgressState.REPLICATE


def test_a_follower_that_never_installs_is_tried_again() -> None:
    """snapshot_wait_ticks bounds every stage."""
    group = far_behind(snapshot_wait_ticks=200)
    group.core("a").offer_snapshot("c.1", group["a"].snapshot_meta())
    group.core("a").snapshot_done("c.1", True)
    group.tick(210)
    assert group["a"].wanted == ["c.1", "c.1"]


def test_a_follower_that_crashed_while_installing_is_asked_at_once() -> None:
    """Its new connection tells. If it still installs, the new transfer ends at once: all is there
    (raft.replica, snapshot_chunk).
    """
    group = far_behind()
    leader, c = group["a"], group["c"]
    leader.core.offer_snapshot("c.1", leader.snapshot_meta())
    leader.core.snapshot_done("c.1", True)
    c.restart()
    for state in (PeerState.LOST, PeerState.CONNECTED):
        leader.core.peer("c.1", state)
    group.tick(2 * HEARTBEAT_TICKS)
    assert leader.wanted == ["c.1", "c.1"]


def test_a_request_that_the_replica_forgets_is_repeated() -> None:
    """It is treated as a transfer that takes too long."""
    group = far_behind(snapshot_wait_ticks=200)
    group.tick(210)
    assert group["a"].wanted == ["c.1", "c.1"]


def test_a_follower_may_catch_up_by_entries_after_all() -> None:
    """An acknowledgement that reaches the log of the leader ends the snapshot state."""
    group = far_behind()
    a = group.core("a")
    a.receive(envelope("c", "a", 1, AppendReply(3, False, 0, 0, 0)))
    assert state_of(group, "c") is ProgressState.SNAPSHOT
    a.receive(envelope("c", "a", 1, AppendReply(9, False, 0, 0, 0)))
    assert state_of(group, "c") is ProgressState.REPLICATE


def test_an_offer_of_what_is_known_is_answered_at_once() -> None:
    """Raft 7: a snapshot that covers less than the log is not installed."""
    group = Group("abc")
    group.elect("a")
    group.propose(b"x")
    b = group["b"]
    meta = SnapshotMeta(1, 1, ABC, 10)
    assert not b.core.wants_snapshot("a.1", meta)
    b.core.receive(envelope("a", "b", 1, InstallSnapshot(meta)))
    b.pump()
    assert bodies(b.take_outbox(), SnapshotReply) == [SnapshotReply(2, True)]


def test_a_log_that_reaches_the_snapshot_is_kept() -> None:
    """Raft 7: what comes after it was perhaps acknowledged and must not be dropped."""
    b = Member("b.1", ABC, entries=log_of(1, 1, 1, 1))
    meta = SnapshotMeta(3, 1, ABC, 10)
    assert not b.core.begin_install(meta)
    assert b.core.commit == 3
    assert b.core.last_index == 4


def test_a_log_that_contradicts_the_snapshot_is_replaced() -> None:
    """Raft 7: the whole of it; none of it can have been committed."""
    b = Member("b.1", ABC, entries=log_of(1, 1, 1, 1, 1), hard_state=HardState(3))
    meta = SnapshotMeta(4, 2, Configuration(("a.1", "b.1")), 10)
    assert b.core.begin_install(meta)
    b.core.end_install(meta)
    ready = b.ready()
    assert ready.snapshot == meta
    assert ready.must_sync
    assert (b.core.last_index, b.core.commit) == (4, 4)
    assert b.core.configuration == Configuration(("a.1", "b.1"))
    assert b.log.first_index() == 5


def test_the_log_stands_still_while_a_snapshot_is_installed() -> None:
    """The state is being replaced: neither appends nor campaigns."""
    b = Member("b.1", ABC)
    meta = SnapshotMeta(4, 2, ABC, 10)
    assert b.core.begin_install(meta)
    b.core.receive(envelope("a", "b", 2, Append(0, 0, 0, (entry(1, 2),))))
    for _ in range(3 * ELECTION_TICKS):
        b.core.tick()
    assert b.core.last_index == 0
    assert b.core.role is Role.FOLLOWER
    b.core.end_install(None)
    b.core.receive(envelope("a", "b", 2, Append(0, 0, 0, (entry(1, 2),))))
    assert b.core.last_index == 1


def test_the_answer_to_a_snapshot_waits_for_the_log() -> None:
    """Installed means durable: the log must have restarted after it."""
    group = far_behind()
    transfer(group, "c")
    ready = group.core("c").ready()
    assert ready.snapshot is not None
    assert ready.must_sync
    assert not bodies(ready.messages, SnapshotReply)
    assert bodies(ready.messages_after_sync, SnapshotReply) == [SnapshotReply(11, True)]


def test_a_snapshot_that_was_damaged_on_its_way_is_sent_again_soon() -> None:
    """Its receiver says so: the sender would wait for minutes until it had installed it."""
    group = far_behind()
    leader, follower = group.leader(), group["c"]
    meta = leader.snapshot_meta()
    leader.core.offer_snapshot(follower.node, meta)
    group.settle()
    assert follower.core.begin_install(meta)
    leader.core.snapshot_done(follower.node, True)
    stale = SnapshotReply(meta.index - 1, False)
    leader.core.receive(envelope("c", "a", leader.core.term, stale))
    assert state_of(group, "c") is ProgressState.SNAPSHOT
    follower.core.end_install(None)
    group.settle()
    assert state_of(group, "c") is ProgressState.PROBE
    group.tick(2 * ELECTION_TICKS)
    assert state_of(group, "c") is ProgressState.SNAPSHOT
    transfer(group, "c")
    group.tick(2 * HEARTBEAT_TICKS)
    assert state_of(group, "c") is ProgressState.REPLICATE
    assert follower.core.commit == leader.core.commit


def test_a_disk_that_is_full_while_installing_is_tried_again() -> None:
    """The Ready comes again, whole."""
    b = Member("b.1", ABC)
    meta = SnapshotMeta(4, 2, ABC, 10)
    b.core.begin_install(meta)
    b.core.end_install(meta)
    b.core.unwritten(b.core.ready())
    assert b.core.last_index == 4
    assert b.core.term_at(4) == 2
    b.core.writable(True)
    assert b.ready().snapshot == meta


def test_a_snapshot_carries_the_configuration_of_its_index() -> None:
    """Raft 7: not the newest one."""
    group = Group("abc")
    leader = group.elect("a")
    group.propose(b"x")
    leader.change_members(AddLearner("d.1"))
    assert leader.configuration_at(2) == ABC
    assert leader.configuration_at(3).learners == ("d.1",)
    group.settle()
    group["a"].compact(2)
    assert leader.configuration_at(2) == ABC


def test_a_new_member_is_filled_by_a_snapshot() -> None:
    """Thesis 4.2.1: usually it is."""
    group = far_behind()
    member = group.add(Member("d.1", Configuration(())))
    group.core("a").change_members(AddLearner("d.1"))
    group.tick(HEARTBEAT_TICKS)
    assert group["a"].wanted == ["c.1", "d.1"]
    transfer(group, "d")
    group.tick(2 * HEARTBEAT_TICKS)
    assert member.core.commit == group.core("a").commit
    assert member.core.configuration.learners == ("d.1",)


def test_a_snapshot_that_calls_an_empty_log_a_voter_is_refused() -> None:
    """raft/design.md, Identity: a joining node was a learner first."""
    wiped = Member("c.1", Configuration(()))
    assert not wiped.core.wants_snapshot("a.1", SnapshotMeta(4, 2, ABC, 10))
    assert wiped.core.counters.id_reused == 1


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(("b.1", "a.1")),
        Configuration(("a.1", "a.2")),
        Configuration(("a",)),
        Configuration(("a.1",), (), ("a.1",)),
    ],
)
def test_a_hostile_configuration_is_not_installed(configuration: Configuration) -> None:
    """DESIGN 1.7."""
    b = Member("b.1", ABC)
    assert not b.core.wants_snapshot("a.1", SnapshotMeta(4, 2, configuration, 10))
    assert b.core.counters.malformed == 1


def test_a_snapshot_from_a_former_leader_is_as_good() -> None:
    """It is a committed prefix, whichever node sends it; the answer goes to the current leader."""
    group = far_behind()
    meta = group["a"].snapshot_meta()
    group["b"].compact(8)
    group.elect("b")
    assert group.core("c").begin_install(meta)
    group.core("c").end_install(meta)
    group.tick(2 * HEARTBEAT_TICKS)
    assert group.core("c").commit == group.core("b").commit


def test_a_leader_installs_nothing() -> None:
    """It has everything that is committed."""
    group = Group("abc")
    leader = group.elect("a")
    assert not leader.wants_snapshot("b.1", SnapshotMeta(9, 1, ABC, 10))


def test_a_conflict_below_the_leaders_log_ends_in_a_snapshot() -> None:
    """A follower whose log differs further down than the leader's begins."""
    group = Group("abc")
    for name, terms in (("a", [1] * 5 + [3] * 5), ("b", [1] * 5 + [3] * 5), ("c", [1, 2, 2])):
        group.add(Member(f"{name}.1", ABC, entries=log_of(*terms), hard_state=HardState(3)))
    group.isolate("c")
    group.elect("a")
    group["a"].compact(8)
    group.heal()
    group.tick(2 * HEARTBEAT_TICKS)
    assert group["a"].wanted == ["c.1"]
    transfer(group, "c")
    group.tick(HEARTBEAT_TICKS)
    assert group["c"].log.first_index() == 12
    assert group.core("c").commit == 11


def test_configurations_survive_compaction_and_restart() -> None:
    """The log's base knows the configuration of its place."""
    configuration = Entry(1, 1, EntryKind.CONFIG, encode_configuration(ABC))
    b = Member("b.1", Configuration(()), entries=(configuration, entry(2, 1), entry(3, 1)))
    b.core.receive(envelope("a", "b", 1, Append(3, 1, 3, ())))
    b.pump()
    b.compact(2)
    b.restart()
    assert b.core.configuration == ABC


def test_a_second_snapshot_may_follow_the_first() -> None:
    """The time that the first one had is not waited for when it has arrived."""
    group = far_behind()
    transfer(group, "c")
    group.settle()
    group.isolate("c")
    group.propose(b"x")
    group.propose(b"y")
    group["a"].compact(group["a"].applied)
    group.heal()
    group.tick(4 * HEARTBEAT_TICKS)
    assert group["a"].wanted == ["c.1", "c.1"]


def test_a_full_window_of_entries_that_are_gone_ends_in_a_snapshot() -> None:
    """Found by simulator seed 81: the Append was lost, its entries were compacted, and nothing
    in the window could be asked about any more.
    """
    group = Group("abc", recent_bytes_max=0, inflight_messages_max=1)
    leader = group.elect("a")
    group.drops = lambda e: e.to == "c.1" and isinstance(e.body, Append)
    for number in range(9):
        leader.propose(bytes([number]))
        group.settle()
    group["a"].compact(group["a"].applied)
    group.heal()
    group.tick(4 * HEARTBEAT_TICKS)
    assert group["a"].wanted == ["c.1"]

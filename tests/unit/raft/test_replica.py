"""The replica's step code on real folders: order of writes, syncs, messages and applying."""

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.core.core import Busy, NotLeader
from raft.core.membership import AddLearner, PromoteLearner, RemoveMember, ReplaceMember
from raft.identity import IdentityRefused
from raft.log.files import FatalDiskError
from raft.log.recovery import LogDamaged
from raft.replica import IDLE_TICKS, AlarmKind, AppliedEntry, StartRefused
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    ReadReply,
    Role,
)
from tests.unit.raft.nodes import GROUP, Cluster, Node

ABC = Configuration(("a.1", "b.1", "c.1"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three founders; none leads yet."""
    made = Cluster(tmp_path)
    yield made
    made.close()


# Beginning


def test_founders_begin_with_the_same_entry(cluster: Cluster) -> None:
    """raft/design.md, Identity: the first configuration is entry 1 of the log, committed."""
    cluster.settle()
    for node in cluster.nodes.values():
        status = node.replica.status()
        assert (status.term, status.commit, status.last_index, status.applied) == (1, 1, 1, 1)
        assert node.configurations == [ABC]
        assert node.results == [AppliedEntry(1, 1, EntryKind.CONFIG, None)]


def test_a_folder_is_prepared_once(tmp_path: Path) -> None:
    """A second `create` would make a used id look new."""
    node = Node("a.1", tmp_path / "a").create(ABC)
    with pytest.raises(IdentityRefused, match="just start it"):
        node.create(ABC)


def test_an_unprepared_folder_is_refused(tmp_path: Path) -> None:
    """DESIGN 3, Identity: an empty folder is never taken for a new node."""
    with pytest.raises(IdentityRefused, match="not prepared"):
        Node("a.1", tmp_path / "a").start()


def test_a_wiped_folder_is_refused(tmp_path: Path) -> None:
    """Its id may have voted with the log that is gone."""
    node = Node("a.1", tmp_path / "a").create(ABC)
    for file in (tmp_path / "a" / "raft" / "log").iterdir():
        file.unlink()
    with pytest.raises(IdentityRefused, match="lost its log"):
        node.start()
    with pytest.raises(IdentityRefused):
        node.create(ABC)


def test_a_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    """The message says whose it is."""
    Node("a.1", tmp_path / "a").create(ABC)
    with pytest.raises(IdentityRefused, match="belongs to node a"):
        Node("b.1", tmp_path / "a").start()
    with pytest.raises(IdentityRefused, match=r"belongs to a\.1"):
        Node("a.2", tmp_path / "a").start()


def test_only_founders_found(tmp_path: Path) -> None:
    """Everybody else joins."""
    with pytest.raises(IdentityRefused, match="learner"):
        Node("x.1", tmp_path / "x").create(ABC)


def test_an_interrupted_preparation_is_repeated(tmp_path: Path) -> None:
    """The identity is marked as started last."""
    node = Node("a.1", tmp_path / "a")
    node.full[0] = True
    with pytest.raises(OSError):
        node.create(ABC)
    node.full[0] = False
    node.create(ABC).start()
    assert node.replica.status().last_index == 1
    node.replica.close()


def test_a_state_that_does_not_fit_the_log_is_refused(tmp_path: Path) -> None:
    """Ahead of it, it cannot be this node's."""
    node = Node("a.1", tmp_path / "a").create(ABC)
    (tmp_path / "a" / "state.json").write_text('[[99, "x"]]')
    with pytest.raises(StartRefused, match="rejoin"):
        node.start()
    gc.collect()


# Writing and sending


def test_a_proposal_is_applied_everywhere(cluster: Cluster) -> None:
    """Its result is found by index and term."""
    leader = cluster.elect("a")
    index = cluster.propose("hello")
    assert [node.machine.data() for node in cluster.nodes.values()] == [["hello"]] * 3
    applied = AppliedEntry(index, leader.replica.term, EntryKind.DATA, "HELLO")
    assert leader.results[-1] == applied
    assert [result.index for result in leader.results] == [1, 2, 3]


def test_entries_are_sent_before_the_sync_and_acknowledged_after_it(cluster: Cluster) -> None:
    """Thesis 10.2.1, Raft figure 2."""
    leader, follower = cluster.elect("a"), cluster["b"]
    leader.auto_sync = follower.auto_sync = False
    leader.replica.propose(b"x")
    step = leader.step()
    assert step.sync is not None
    (append,) = [e for e in step.messages if e.to == "b.1"]
    assert isinstance(append.body, Append)
    follower.replica.receive((append,))
    step = follower.step()
    assert step.sync is not None
    assert not [e for e in step.messages if isinstance(e.body, AppendReply)]
    follower.finish_sync()
    step = follower.step()
    (reply,) = [e.body for e in step.messages if isinstance(e.body, AppendReply)]
    assert reply.match_index == 3
    leader.finish_sync()


def test_peers_need_not_wait_for_the_leaders_log(cluster: Cluster, tmp_path: Path) -> None:
    """What was written but not synced may be lost; so entries may leave before they are written."""
    leader = cluster.elect("a")
    segments = list((leader.path / "raft").rglob("*.segment"))
    payload = b"nowhere else"
    leader.replica.propose(payload)
    messages = leader.replica.outgoing()
    assert {e.to for e in messages if isinstance(e.body, Append)} == {"b.1", "c.1"}
    assert not any(payload in segment.read_bytes() for segment in segments)
    assert leader.replica.poll().sync is not None
    assert any(payload in segment.read_bytes() for segment in segments)


def test_a_full_disk_holds_up_no_frame(cluster: Cluster) -> None:
    """A majority that has room commits without the leader's own log."""
    leader = cluster.elect("a")
    leader.full[0] = True
    index = cluster.propose("x")
    assert [cluster[name].machine.data() for name in "abc"] == [[], ["x"], ["x"]]
    assert leader.replica.commit_index == index
    leader.full[0] = False
    leader.replica.retry_after_full()
    cluster.settle()
    assert [cluster[name].machine.data() for name in "abc"] == [["x"]] * 3


def test_a_poll_with_a_sync_to_begin_leaves_applying_to_the_next(cluster: Cluster) -> None:
    """The state machine takes its time while the disk and the peers have theirs."""
    cluster.elect("a")
    b = cluster["b"]
    entry = Entry(3, b.replica.term, EntryKind.DATA, b"x")
    b.replica.receive((_append(b, 2, entry),))
    b.work()
    b.replica.receive((_append(b, 3, Entry(4, b.replica.term, EntryKind.DATA, b"y")),))
    assert b.step().sync is not None
    assert b.machine.data() == []
    assert b.replica.has_work()
    b.step()
    assert b.machine.data() == ["x"]


def test_applying_is_put_off_once_at_a_time(cluster: Cluster) -> None:
    """However much comes: a busy replica still applies."""
    cluster.elect("a")
    b = cluster["b"]
    for index in range(3, 11):
        entry = Entry(index, b.replica.term, EntryKind.DATA, b"x")
        b.replica.receive((_append(b, index - 1, entry),))
        assert b.step().sync is not None
    assert len(b.machine.data()) >= 3


def _append(to: Node, commit: int, entry: Entry) -> Envelope:
    body = Append(entry.index - 1, to.replica.term, commit, (entry,))
    return Envelope(GROUP, "a.1", to.node, to.replica.term, body)


def test_what_comes_during_a_sync_waits_for_the_next(cluster: Cluster) -> None:
    """Group commit: one sync at a time, each for all that was written before it."""
    leader = cluster.elect("a")
    leader.auto_sync = False
    for text in ("one", "two", "three"):
        leader.replica.propose(text.encode())
        leader.work()
    assert len(leader.syncs) == 1
    cluster.settle()
    assert leader.machine.data() == []
    assert cluster["b"].machine.data() == ["one", "two", "three"]
    leader.finish_sync()
    leader.work()
    assert leader.machine.data() == ["one"]
    assert len(leader.syncs) == 1
    leader.finish_sync()
    leader.work()
    assert leader.machine.data() == ["one", "two", "three"]
    assert leader.syncs == []


def test_promises_wait_for_the_sync_that_covers_them(cluster: Cluster) -> None:
    """They wait even if there is nothing new to write: the entries may still be on their way."""
    cluster.elect("a")
    b = cluster["b"]
    b.auto_sync = False
    term = b.replica.term
    entry = Entry(3, term, EntryKind.DATA, b"x")
    append = Envelope(GROUP, "a.1", "b.1", term, Append(2, term, 2, (entry,)))
    for _ in range(3):
        b.replica.receive((append,))
        b.work()
    assert not [e for e in b.outbox if isinstance(e.body, AppendReply)]
    b.finish_sync()
    b.work()
    assert [e.body.match_index for e in b.outbox if isinstance(e.body, AppendReply)] == [3] * 3


def test_a_truncation_during_a_sync_is_not_made_durable_by_it(cluster: Cluster) -> None:
    """The same place may hold the same entry again, which that sync has not seen."""
    cluster.elect("a")
    b = cluster["b"]
    b.auto_sync = False
    term = b.replica.term
    entry = Entry(3, term, EntryKind.DATA, b"x")
    other = Entry(3, term + 1, EntryKind.DATA, b"y")
    for envelope_term, entries in ((term, (entry,)), (term + 1, (other,)), (term + 2, (entry,))):
        body = Append(2, term, 2, entries)
        b.replica.receive((Envelope(GROUP, "a.1", "b.1", envelope_term, body),))
        b.work()
    assert len(b.syncs) == 1
    b.finish_sync()
    assert b.replica.status().durable == 2
    b.work()
    assert not [
        e
        for e in b.outbox
        if isinstance(e.body, AppendReply) and e.body.match_index == 3 and e.term == term + 2
    ]
    b.finish_sync()
    assert b.replica.status().durable == 3


def test_a_sync_is_reported_once(cluster: Cluster) -> None:
    """Only the outstanding one is reported."""
    leader = cluster.elect("a")
    leader.auto_sync = False
    leader.replica.propose(b"x")
    leader.work()
    sync = leader.syncs.pop()
    sync.run()
    leader.replica.sync_done(sync)
    with pytest.raises(ValueError, match="not outstanding"):
        leader.replica.sync_done(sync)


def test_applying_is_bounded_per_poll(tmp_path: Path) -> None:
    """The loop stays responsive while a long log is applied."""
    cluster = Cluster(tmp_path, "a", apply_batch_bytes=10)
    leader = cluster.elect("a")
    leader.auto_sync = False
    for _ in range(8):
        leader.replica.propose(b"12345")
    leader.work()
    leader.finish_sync()
    counts = []
    while leader.replica.has_work():
        counts.append(len(leader.step().results))
    assert max(counts) <= 3
    assert sum(counts) == 8
    cluster.close()


def test_applying_is_bounded_by_entries_too(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "a", apply_batch_entries=3)
    leader = cluster.elect("a")
    leader.auto_sync = False
    for _ in range(8):
        leader.replica.propose(b"")
    leader.work()
    leader.finish_sync()
    counts = []
    while leader.replica.has_work():
        counts.append(len(leader.step().results))
    assert max(counts) == 3
    assert sum(counts) == 8
    cluster.close()


def test_a_restart_applies_what_the_machine_lost(cluster: Cluster) -> None:
    """The log is its write-ahead log."""
    cluster.elect("a")
    cluster.propose("one")
    b = cluster["b"]
    b.machine.flush()
    cluster.propose("two")
    assert b.machine.data() == ["one", "two"]
    b.restart()
    assert b.machine.data() == ["one"]
    cluster.tick(40)
    assert b.machine.data() == ["one", "two"]


def test_a_crash_loses_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    """All of them at once."""
    cluster.elect("a")
    for number in range(20):
        cluster.propose(str(number))
    for node in cluster.nodes.values():
        node.restart()
    cluster.tick(300)
    expected = [str(number) for number in range(20)]
    assert [node.machine.data() for node in cluster.nodes.values()] == [expected] * 3


def test_a_lost_proposal_is_seen_by_its_term(cluster: Cluster) -> None:
    """Every index comes up once, with the entry that won."""
    old = cluster.elect("a")
    cluster.cut.add("a.1")
    index = old.replica.propose(b"lost")
    term = old.replica.term
    cluster.tick(200)
    assert cluster.propose("kept") >= index
    cluster.cut.clear()
    cluster.tick(200)
    found = {result.index: result for result in old.results}
    assert found[index].term > term
    assert old.machine.data() == ["kept"]


def test_only_leaders_take_proposals(cluster: Cluster) -> None:
    """The error comes at once."""
    cluster.elect("a")
    with pytest.raises(NotLeader, match=r"a\.1"):
        cluster["b"].replica.propose(b"x")


# Reading


def test_a_read_is_served_when_its_index_is_applied(cluster: Cluster) -> None:
    """On every replica."""
    cluster.elect("a")
    cluster.propose("x")
    for name in "abc":
        number = cluster[name].replica.read()
        cluster.settle()
        assert cluster[name].reads == [number]


def test_a_read_waits_for_the_own_disk(cluster: Cluster) -> None:
    """Confirmed is not applied."""
    cluster.elect("a")
    b = cluster["b"]
    b.auto_sync = False
    cluster["c"].auto_sync = True
    cluster.propose("x")
    number = b.replica.read()
    cluster.settle()
    assert b.reads == []
    b.finish_sync()
    cluster.settle()
    assert b.reads == [number]
    assert b.machine.data() == ["x"]


def test_reads_that_wait_for_apply_are_bounded(tmp_path: Path) -> None:
    """reads_pending_max, here as well as for those that wait for their index."""
    cluster = Cluster(tmp_path, "abc", core_reads_pending_max=3)
    cluster.elect("a")
    b = cluster["b"]
    b.auto_sync = False
    cluster.propose("x")
    for _ in range(3):
        b.replica.read()
        cluster.settle()
    with pytest.raises(Busy, match="reads_pending_max"):
        b.replica.read()
    b.finish_sync()
    cluster.settle()
    assert len(b.reads) == 3
    b.replica.read()
    cluster.close()


def test_an_answer_to_an_earlier_life_is_no_answer(cluster: Cluster) -> None:
    """Found by simulator seed 10729: a repeated frame answered a read of the process that had
    been there before, and a read with the same number was served stale.
    """
    cluster.elect("a")
    b = cluster["b"]
    earlier = b.replica.read()
    b.jitter = 1000
    b.restart()
    cluster.tick(1)
    cluster.cut.add("a.1")
    later = b.replica.read()
    for request in (earlier, later - 1, later):
        reply = Envelope(GROUP, "a.1", "b.1", b.replica.term, ReadReply(request, 1))
        assert b.reads == []
        b.replica.receive((reply,))
        b.work()
    assert b.reads == [later]


def test_a_cancelled_read_is_not_served(cluster: Cluster) -> None:
    """Its number never comes up."""
    leader = cluster.elect("a")
    leader.replica.cancel_read(leader.replica.read())
    cluster.settle()
    assert leader.reads == []


# Membership


def test_a_node_joins_and_votes(cluster: Cluster) -> None:
    """Learner, then voter; every change of the configuration is reported."""
    leader = cluster.elect("a")
    cluster.propose("x")
    joiner = cluster.join("d.1")
    leader.replica.change_members(AddLearner("d.1"))
    cluster.tick(20)
    assert joiner.machine.data() == ["x"]
    leader.replica.change_members(PromoteLearner("d.1"))
    cluster.settle()
    assert joiner.configurations[-1].voters == ("a.1", "b.1", "c.1", "d.1")
    leader.replica.transfer("d.1")
    cluster.settle()
    assert joiner.replica.role is Role.LEADER


def test_a_lost_disk_returns_as_the_next_incarnation(cluster: Cluster) -> None:
    """DESIGN 3, Identity."""
    leader = cluster.elect("a")
    cluster.propose("x")
    cluster.nodes.pop("c.1").replica.close()
    fresh = cluster.join("c.2")
    leader.replica.change_members(ReplaceMember("c.1", "c.2"))
    cluster.tick(20)
    leader.replica.change_members(PromoteLearner("c.2"))
    cluster.settle()
    assert fresh.machine.data() == ["x"]
    assert fresh.configurations[-1] == Configuration(("a.1", "b.1", "c.2"), (), ("c.1",))


def test_a_wiped_node_under_its_old_id_is_found_out(cluster: Cluster, tmp_path: Path) -> None:
    """The operator prepared an empty folder with it: it neither votes nor acknowledges."""
    cluster.elect("a")
    cluster.propose("x")
    cluster.nodes.pop("c.1").replica.close()
    cluster.path = tmp_path / "wiped"
    cluster.path.mkdir()
    wiped = cluster.join("c.1")
    cluster.tick(30)
    assert [alarm.kind for alarm in wiped.alarms] == [AlarmKind.ID_REUSED]
    assert wiped.replica.status().last_index == 0
    assert wiped.machine.data() == []


def test_a_removed_node_is_told(cluster: Cluster) -> None:
    """If it got the entry: one alarm."""
    leader = cluster.elect("a")
    cluster.drops = lambda e: False
    term = leader.replica.term
    index = leader.replica.change_members(RemoveMember("c.1"))
    cluster.settle()
    entries = leader.replica._core.entries(index, index + 1, 1 << 20)
    for _ in range(2):
        body = Append(index - 1, leader.replica._core.term_at(index - 1), index, entries)
        cluster["c"].replica.receive((Envelope(GROUP, "a.1", "c.1", term, body),))
        cluster.settle()
    assert [alarm.kind for alarm in cluster["c"].alarms] == [AlarmKind.RETIRED]


# Disks


def test_a_full_disk_stops_acknowledging_and_says_so(cluster: Cluster) -> None:
    """Issue 3, Bad input: and the node recovers when space returns."""
    cluster.elect("a")
    b = cluster["b"]
    b.full[0] = True
    cluster.propose("one")
    cluster.propose("two")
    assert cluster["c"].machine.data() == ["one", "two"]
    assert b.machine.data() == []
    assert [alarm.kind for alarm in b.alarms] == [AlarmKind.DISK_FULL]
    cluster.tick(50)
    b.full[0] = False
    cluster.tick(60)
    assert b.machine.data() == ["one", "two"]
    assert [alarm.kind for alarm in b.alarms] == [AlarmKind.DISK_FULL, AlarmKind.DISK_ROOM]


def test_shortage_is_told_before_it_hurts(tmp_path: Path) -> None:
    """While the segment that is written has room: nothing has failed yet."""
    cluster = Cluster(tmp_path, "a", segment_bytes=4096)
    node = cluster.elect("a")
    node.short[0] = True
    written = 0
    while not node.alarms:
        cluster.propose("x" * 100)
        written += 1
    assert [alarm.kind for alarm in node.alarms] == [AlarmKind.DISK_SHORT]
    assert node.replica.status().is_short_of_space
    cluster.propose("still written")
    assert len(node.machine.data()) == written + 1
    node.short[0] = False
    cluster.propose("again")
    assert [alarm.kind for alarm in node.alarms] == [AlarmKind.DISK_SHORT, AlarmKind.DISK_ROOM]
    assert not node.replica.status().is_short_of_space


def test_a_leader_with_a_full_disk_hands_over(cluster: Cluster) -> None:
    """DESIGN 6: after one second; nothing that it acknowledged is lost."""
    leader = cluster.elect("a")
    cluster.propose("kept")
    leader.full[0] = True
    leader.replica.propose(b"sent, not written here")
    cluster.settle()
    with pytest.raises(Busy, match="disk is full"):
        leader.replica.propose(b"x")
    cluster.tick(210)
    assert leader.replica.role is Role.FOLLOWER
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL, AlarmKind.STUCK]
    cluster.propose("afterwards")
    leader.full[0] = False
    cluster.tick(100)
    assert leader.machine.data()[0] == "kept"
    assert leader.machine.data() == cluster["b"].machine.data()
    assert leader.machine.data()[-1] == "afterwards"


def test_retrying_by_hand_is_allowed(cluster: Cluster) -> None:
    """Who watches the disk need not wait for the next try."""
    cluster.elect("a")
    b = cluster["b"]
    b.full[0] = True
    cluster.propose("one")
    b.full[0] = False
    b.replica.retry_after_full()
    cluster.settle()
    assert [alarm.kind for alarm in b.alarms] == [AlarmKind.DISK_FULL, AlarmKind.DISK_ROOM]


def test_a_state_machine_without_space_is_called_again(cluster: Cluster) -> None:
    """It applied nothing; the log continues, a leader hands over after a second."""
    leader = cluster.elect("a")
    cluster.propose("one")
    leader.machine.is_full = True
    cluster.propose("two")
    assert leader.machine.data() == ["one"]
    assert cluster["b"].machine.data() == ["one", "two"]
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL]
    cluster.tick(210)
    assert cluster.leader() is not leader
    leader.machine.is_full = False
    cluster.tick(30)
    assert leader.machine.data() == ["one", "two"]
    kinds = [AlarmKind.DISK_FULL, AlarmKind.STUCK, AlarmKind.DISK_ROOM]
    assert [alarm.kind for alarm in leader.alarms] == kinds


def test_what_a_state_machine_put_off_and_finds_no_space_for_is_tried_again(
    cluster: Cluster,
) -> None:
    leader = cluster.elect("a")
    cluster.propose("one")
    leader.machine.is_full = True
    leader.replica.settle()
    cluster.tick(1)
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL]
    cluster.tick(100)
    leader.machine.is_full = False
    cluster.tick(30)
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL, AlarmKind.DISK_ROOM]
    cluster.propose("two")
    assert leader.machine.data() == ["one", "two"]


def test_bodies_that_cannot_be_moved_keep_the_log(tmp_path: Path) -> None:
    """Found by the simulator's machine: an alarm and a later try, not the end of the process."""
    cluster = Cluster(tmp_path, "a", segment_bytes=4096, log_retain_bytes=0)
    leader = cluster.elect("a")
    for _ in range(30):
        cluster.propose("x" * 500)
    leader.machine.flush()
    leader.machine.is_full = True
    cluster.tick(450)
    assert leader.replica.status().first_index == 1
    assert leader.replica.role is Role.LEADER
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL]
    leader.machine.is_full = False
    cluster.tick(200)
    assert leader.replica.status().first_index > 1
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.DISK_FULL, AlarmKind.DISK_ROOM]
    cluster.close()


def test_other_errors_of_the_machine_are_not_swallowed(cluster: Cluster) -> None:
    """What it cannot do is not done twice."""
    leader = cluster.elect("a")

    def broken(entries: object) -> list[str]:
        raise OSError("anything else")

    leader.machine.apply = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="anything else"):
        cluster.propose("x")


def test_a_leader_whose_sync_hangs_hands_over(cluster: Cluster) -> None:
    """DESIGN 6: a slow disk is not a dead leader, but it is no good one."""
    leader = cluster.elect("a")
    leader.auto_sync = False
    leader.replica.propose(b"x")
    roles = []
    for ticks in (190, 20):
        cluster.tick(ticks)
        roles.append(leader.replica.role)
    assert roles == [Role.LEADER, Role.FOLLOWER]
    assert [alarm.kind for alarm in leader.alarms] == [AlarmKind.STUCK]
    assert cluster.leader().node in ("b.1", "c.1")
    leader.finish_sync()
    cluster.tick(50)
    assert leader.machine.data() == ["x"]


def test_a_pause_is_no_slow_disk(cluster: Cluster) -> None:
    """A sync that ended while the process was stopped is reported after the late tick."""
    leader = cluster.elect("a")
    leader.auto_sync = False
    leader.replica.propose(b"x")
    leader.work()
    leader.replica.tick(5000)
    assert leader.replica.role is Role.LEADER
    leader.finish_sync()


def test_a_sync_that_fails_is_fatal(cluster: Cluster) -> None:
    """DESIGN 3: an fsync error ends the process and is never retried."""
    leader = cluster.elect("a")
    leader.auto_sync = False
    leader.replica.propose(b"x")
    leader.work()
    sync = leader.syncs.pop()

    class Broken:
        def fdatasync(self) -> None:
            raise FatalDiskError("fsync")

    sync._files = [Broken()]  # type: ignore[attr-defined]
    with pytest.raises(FatalDiskError):
        sync.run()
    with pytest.raises((FatalDiskError, ValueError)):
        leader.replica.sync_done(sync)


# The log's length


def test_the_log_is_kept_for_followers_then_given_up(tmp_path: Path) -> None:
    """log_retain_bytes behind the end, and never above what is durable in the machine."""
    cluster = Cluster(tmp_path, "a", segment_bytes=4096, log_retain_bytes=6000)
    leader = cluster.elect("a")
    for _ in range(60):
        cluster.propose("x" * 500)
    cluster.tick(250)
    assert leader.replica.status().first_index == 1, "nothing is durable in the machine"
    leader.machine.flush()
    cluster.tick(250)
    status = leader.replica.status()
    assert 20 < status.first_index < status.last_index - 10
    assert leader.machine.retired[0][0] == 1
    assert leader.machine.retired[-1][1] == status.first_index - 1
    leader.restart()
    cluster.tick(10)
    assert leader.configurations[-1] == Configuration(("a.1",))
    cluster.close()


def test_a_hold_keeps_the_log(tmp_path: Path) -> None:
    """DESIGN 3, Bodies: a machine that still needs bytes of it says so."""
    cluster = Cluster(tmp_path, "a", segment_bytes=4096, log_retain_bytes=0)
    leader = cluster.elect("a")
    for _ in range(30):
        cluster.propose("x" * 500)
    hold = leader.machine.reader.hold(5)
    leader.machine.flush()
    cluster.tick(250)
    assert leader.replica.status().first_index <= 5
    assert leader.machine.reader.read(5, 0, 3) == b"xxx"
    hold.release()
    cluster.tick(250)
    assert leader.replica.status().first_index > 5
    cluster.close()


def test_sleeping_as_long_as_allowed_misses_nothing(cluster: Cluster) -> None:
    """`ticks_until_due` of an idle leader is its heartbeat, of a follower its timeout."""
    leader = cluster.elect("a")
    cluster.tick(1)
    assert 1 <= leader.replica.ticks_until_due() <= 10
    assert cluster["b"].replica.ticks_until_due() > 20


def test_damage_to_what_was_synced_last_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    """DESIGN 3, Recovery: no acknowledged entry passes for a torn write, not even the last."""
    cluster.elect("a")
    cluster.propose("acknowledged")
    cluster.tick(IDLE_TICKS, "b")
    copied = tmp_path / "copy"
    shutil.copytree(tmp_path / "b.1", copied)
    for segment in (copied / "raft" / "log").iterdir():
        data = segment.read_bytes()
        segment.write_bytes(data.replace(b"acknowledged", b"adknowledged"))
    with pytest.raises(LogDamaged):
        Node("b.1", copied).start()

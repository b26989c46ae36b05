"""Snapshots through the replica: pictures, transfers that break, installing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.core.membership import AddLearner
from raft.replica import AlarmKind, SnapshotSend
from raft.types import SNAPSHOT_REFUSED, Role, SnapshotMeta
from tests.unit.raft.nodes import CHUNK_BYTES, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Member `c` is cut off, and the leader `a` has dropped what it needs."""
    made = Cluster(
        tmp_path,
        segment_bytes=4096,
        log_retain_bytes=0,
        core_recent_bytes_max=0,
        core_snapshot_wait_ticks=1000,
    )
    made.elect("a")
    made.propose("first")
    made.cut.add("c.1")
    for _ in range(30):
        made.propose("x" * 500)
    for node in made.nodes.values():
        node.machine.flush()
    made.tick(250, "a", "b")
    assert made["a"].replica.status().first_index > 10
    yield made
    made.close()


def test_a_follower_that_is_far_behind_is_filled_by_a_snapshot(cluster: Cluster) -> None:
    """Raft 7; afterwards it follows by entries, also after a restart."""
    cluster.cut.clear()
    cluster.tick(30)
    c = cluster["c"]
    assert c.machine.data() == cluster["a"].machine.data()
    assert c.restored == [c.machine.applied_index()]
    cluster.propose("next")
    cluster.tick(1)
    assert c.machine.data()[-1] == "next"
    c.restart()
    cluster.propose("after a restart")
    cluster.tick(30)
    assert c.machine.data() == cluster["a"].machine.data()


def test_one_picture_serves_all_and_is_closed_once(cluster: Cluster) -> None:
    """Two followers behind; the sources close, the picture after its idle time."""
    for name in "de":
        cluster.join(f"{name}.1")
        cluster["a"].replica.change_members(AddLearner(f"{name}.1"))
        cluster.tick(30)
        assert cluster[name].machine.data() == cluster["a"].machine.data()
    machine = cluster["a"].machine
    assert len(machine.sources) == 1
    closed = [machine.sources[0].is_closed]
    cluster["a"].replica.tick(6000)
    closed.append(machine.sources[0].is_closed)
    assert closed == [False, True]


def test_the_log_behind_a_picture_is_kept(cluster: Cluster) -> None:
    """Who installs it needs what follows."""
    cluster.cut.clear()
    cluster.tick(30)
    a = cluster["a"]
    (picture,) = a.machine.sources
    assert not picture.is_closed
    index = cluster["c"].restored[0]
    for _ in range(30):
        cluster.propose("y" * 500)
    a.machine.flush()
    cluster.tick(250)
    assert a.replica.status().first_index <= index + 1


def test_an_old_picture_is_not_used_again(cluster: Cluster) -> None:
    """When the log no longer continues it, a new one is made."""
    cluster.cut.clear()
    cluster.tick(30)
    a = cluster["a"]
    a.replica.tick(6000)
    cluster.cut.add("c.1")
    for _ in range(30):
        cluster.propose("y" * 500)
    a.machine.flush()
    cluster.tick(250, "a", "b")
    cluster.cut.clear()
    cluster.tick(100)
    assert len(a.machine.sources) == 2
    assert cluster["c"].machine.data() == a.machine.data()


def next_send(cluster: Cluster, ticks: int = 200) -> SnapshotSend | None:
    """Let time pass until the leader `a` begins a transfer, which stays with the test."""
    cluster.cut.clear()
    a = cluster["a"]
    for _ in range(ticks):
        for node in cluster.nodes.values():
            node.replica.tick()
            node.work()
        for node in cluster.nodes.values():
            outbox, node.outbox = node.outbox, []
            for envelope in outbox:
                cluster.nodes[envelope.to].replica.receive((envelope,))
        if a.snapshots:
            return a.snapshots.pop()
    return None


def test_a_transfer_outlives_the_leadership_that_began_it(cluster: Cluster) -> None:
    """Found by simulator seed 903: a second transfer ended the first one, whose end was taken
    for its own, so that a third was begun, and so on forever.
    """
    a, c = cluster["a"], cluster["c"]
    send = next_send(cluster)
    assert send is not None
    a.replica.transfer("b.1")
    cluster.tick(5)
    cluster["b"].snapshots.clear()
    cluster["b"].replica.transfer("a.1")
    cluster.tick(5)
    assert a.replica.role is Role.LEADER
    assert next_send(cluster, 300) is None, "the one that runs is enough"
    assert len(a.machine.sources) == 1
    cluster.send_snapshot(a, send)
    cluster.tick(30)
    assert c.machine.data() == a.machine.data()


def test_the_end_of_a_replaced_transfer_is_not_the_end_of_its_successor(cluster: Cluster) -> None:
    """A node that began one, and was itself set forward by a snapshot since, begins another."""
    a, c = cluster["a"], cluster["c"]
    older = SnapshotMeta(2, 1, a.configurations[-1], 10)
    a.replica._transfers._running["c.1"] = [(older, 0)]
    second = next_send(cluster)
    assert second is not None
    assert second.meta.index > older.index
    a.replica.snapshot_done("c.1", False)
    assert next_send(cluster, 300) is None
    cluster.send_snapshot(a, second)
    cluster.tick(30)
    assert c.machine.data() == a.machine.data()


def test_a_transfer_that_hangs_is_replaced_in_the_end(cluster: Cluster) -> None:
    """Found by simulator seed 4126: after snapshot_wait_ticks it is begun again, and resumes."""
    a, c = cluster["a"], cluster["c"]
    send = next_send(cluster)
    assert send is not None
    for offset in range(0, 4 * CHUNK_BYTES, CHUNK_BYTES):
        chunk = send.source.read(offset, CHUNK_BYTES)
        c.replica.snapshot_chunk("a.1", send.meta, offset, chunk)
    again = next_send(cluster, cluster.options["core_snapshot_wait_ticks"] + 20)
    assert again is not None
    assert again.meta == send.meta
    assert c.replica.snapshot_chunk("a.1", again.meta, 0, b"") == 4 * CHUNK_BYTES
    send.source.close()
    a.replica.snapshot_done("c.1", False)
    cluster.send_snapshot(a, again)
    cluster.tick(30)
    assert c.machine.data() == a.machine.data()


def test_the_log_is_left_alone_until_it_has_restarted(cluster: Cluster) -> None:
    """Found by simulator seed 4353: a tick came between the install and the next poll."""
    c = cluster["c"]
    c.auto_install = False
    cluster.cut.clear()
    cluster.tick(30)
    c.finish_install()
    for _ in range(250):
        c.replica.tick()
    cluster.tick(30)
    assert c.machine.data() == cluster["a"].machine.data()


def test_a_broken_transfer_resumes_in_the_same_picture(cluster: Cluster) -> None:
    """The bytes that have arrived are not sent again."""
    a, c = cluster["a"], cluster["c"]
    send = next_send(cluster)
    assert send is not None
    wanted = 0
    for _ in range(5):
        chunk = send.source.read(wanted, CHUNK_BYTES)
        wanted = c.replica.snapshot_chunk("a.1", send.meta, wanted, chunk)
    send.source.close()
    a.replica.snapshot_done("c.1", False)
    assert wanted == 5 * CHUNK_BYTES
    assert c.replica.snapshot_chunk("a.1", send.meta, 0, b"") == wanted
    cluster.tick(200)
    assert len(a.machine.sources) == 1
    assert c.machine.data() == a.machine.data()


def test_nothing_is_applied_while_a_snapshot_is_installed(cluster: Cluster) -> None:
    """Installing may take long in a thread; the replica keeps sending."""
    c = cluster["c"]
    c.auto_install = False
    cluster.cut.clear()
    cluster.tick(30)
    assert len(c.installs) == 1
    before = c.machine.data()
    cluster.propose("meanwhile")
    cluster.tick(100)
    assert c.machine.data() == before
    assert c.replica.status().last_index < 10
    meta = c.installs[0].meta
    assert c.replica.snapshot_chunk("a.1", meta, 0, b"") == meta.size_bytes
    c.finish_install()
    cluster.tick(40)
    assert c.machine.data() == cluster["a"].machine.data()


def test_a_damaged_snapshot_is_reported_and_sent_again(cluster: Cluster) -> None:
    """SNAPSHOT_BAD; the state stays as it was."""
    a, c = cluster["a"], cluster["c"]
    before = c.machine.data()
    meta = SnapshotMeta(20, a.replica.term, a.configurations[-1], 5)
    assert c.replica.snapshot_chunk("a.1", meta, 0, b"{bad}") == 5
    c.work()
    assert [alarm.kind for alarm in c.alarms] == [AlarmKind.SNAPSHOT_BAD]
    assert c.machine.data() == before
    cluster.cut.clear()
    cluster.tick(100)
    assert c.machine.data() == a.machine.data()


def test_what_is_not_needed_is_refused(cluster: Cluster) -> None:
    """Refused: a prefix that is here, a hostile configuration, one older than that on its way."""
    a, b = cluster["a"], cluster["b"]
    configuration = a.configurations[-1]
    assert b.replica.snapshot_chunk("a.1", SnapshotMeta(5, 2, configuration, 9), 0, b"") == (
        SNAPSHOT_REFUSED
    )
    c = cluster["c"]
    newer = SnapshotMeta(25, 2, configuration, 9)
    assert c.replica.snapshot_chunk("a.1", newer, 0, b"12") == 2
    older = SnapshotMeta(20, 2, configuration, 9)
    assert c.replica.snapshot_chunk("a.1", older, 0, b"12") == SNAPSHOT_REFUSED
    assert c.replica.snapshot_chunk("a.1", newer, 7, b"12") == 2, "at another place"


def test_two_senders_do_not_undo_each_others_work(cluster: Cluster) -> None:
    """Found by simulator seed 903: a leader and its predecessor sent in turns, forever."""
    a, b, c = (cluster[name] for name in "abc")
    mine = SnapshotMeta(25, 2, a.configurations[-1], 100)
    assert c.replica.snapshot_chunk("b.1", mine, 0, b"12") == 2
    assert c.replica.snapshot_chunk("a.1", mine, 0, b"") == SNAPSHOT_REFUSED
    for _ in range(79):
        c.replica.tick()
    assert c.replica.snapshot_chunk("b.1", mine, 2, b"34") == 4
    for _ in range(79):
        c.replica.tick()
    assert c.replica.snapshot_chunk("b.1", mine, 0, b"") == 4, "it asks, but nothing grows"
    assert c.replica.snapshot_chunk("a.1", mine, 0, b"") == SNAPSHOT_REFUSED
    c.replica.tick()
    assert c.replica.snapshot_chunk("a.1", mine, 0, b"") == 0
    assert c.replica.snapshot_chunk("b.1", mine, 4, b"56") == SNAPSHOT_REFUSED
    assert b.replica.role is Role.FOLLOWER


def test_a_crash_between_state_and_log_is_finished_at_the_start(cluster: Cluster) -> None:
    """raft/snapshot.py: the note says what was being installed."""
    c = cluster["c"]
    c.auto_install = False
    cluster.cut.clear()
    cluster.tick(30)
    c.installs[0].run()
    c.installs.clear()
    c.auto_install = True
    c.restart()
    assert c.replica.status().first_index == c.machine.applied_index() + 1
    cluster.tick(40)
    assert c.machine.data() == cluster["a"].machine.data()


def test_a_disk_that_is_full_when_the_log_restarts_is_tried_again(cluster: Cluster) -> None:
    """The state is installed already; the log follows when it can."""
    c = cluster["c"]
    c.auto_install = False
    cluster.cut.clear()
    cluster.tick(30)
    install = c.installs.pop()
    install.run()
    c.full[0] = True
    c.replica.install_done(install)
    cluster.settle()
    assert [alarm.kind for alarm in c.alarms] == [AlarmKind.DISK_FULL]
    c.full[0] = False
    cluster.tick(60)
    assert c.machine.data() == cluster["a"].machine.data()
    assert c.replica.status().first_index == install.meta.index + 1


def test_reads_wait_for_the_install(cluster: Cluster) -> None:
    """The state is not there while it is replaced."""
    c = cluster["c"]
    c.auto_install = False
    cluster.cut.clear()
    cluster.tick(30)
    number = c.replica.read()
    cluster.tick(20)
    assert c.reads == []
    c.finish_install()
    cluster.tick(20)
    assert c.reads == [number]


def test_a_picture_that_takes_time_is_asked_for_again(cluster: Cluster) -> None:
    """It is of the moment of the first question; what came meanwhile follows by entries."""
    a, c = cluster["a"], cluster["c"]
    a.machine.is_slow = True
    cluster.cut.clear()
    for _ in range(100):
        cluster.tick()
        if a.machine.sources:
            break
    asked_at = a.machine.applied_index()
    assert not c.restored
    cluster.propose("meanwhile")
    cluster.tick(300)
    assert c.restored == [asked_at]
    assert c.machine.data() == a.machine.data()
    assert c.machine.data()[-1] == "meanwhile"


def test_a_leader_without_space_for_a_picture_goes_on_and_makes_it_later(cluster: Cluster) -> None:
    a, c = cluster["a"], cluster["c"]
    a.machine.is_full = True
    cluster.cut.clear()
    cluster.tick(60)
    assert a.replica.role is Role.LEADER
    assert not c.restored
    a.machine.is_full = False
    cluster.tick(300)
    assert c.restored
    assert c.machine.data() == a.machine.data()

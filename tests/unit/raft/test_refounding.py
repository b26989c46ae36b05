"""A group begins again with one voter: behind a state, or with the log of the last member."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raft.core.membership import AddLearner, PromoteLearner
from raft.core.state import CoreConfig
from raft.identity import IdentityRefused, load
from raft.inspection import Inspection, LogDamaged
from raft.log.disk import DiskDirectory
from raft.log.log import LogConfig
from raft.refounding import begin_alone, begin_behind
from raft.replica import Replica, ReplicaConfig
from raft.types import Configuration, EntryKind, Role
from tests.unit.raft.nodes import CLUSTER, GROUP, Cluster, Node

ABC = Configuration(("a.1", "b.1", "c.1"))
NEW_CLUSTER = b"another group id"
SALT = 77


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def log_config(node: Node) -> LogConfig:
    return node.config.log_config(SALT)


def reopened(node: Node, cluster: bytes) -> Replica[str]:
    """Open a folder as a replica of a group."""
    config = ReplicaConfig(CoreConfig(node.node, GROUP), cluster, segment_bytes=1 << 16)
    return Replica(config, node.directory(), node._new_machine, node.random)


def run_alone(node: Node) -> list[str]:
    """Let a replica come to rest by itself; return what it applied."""
    for _ in range(400):
        node.replica.tick()
        node.work()
    assert node.replica.role is Role.LEADER
    return node.machine.data()


def filled(cluster: Cluster) -> Node:
    """Return a follower that has what was committed and one entry that was not; all is closed."""
    cluster.elect("a")
    for text in ("one", "two"):
        cluster.propose(text)
    leader = cluster.leader()
    leader.replica.propose(b"three")
    leader.work()
    for node in cluster.nodes.values():
        node.replica.close()
    cluster.nodes.clear()
    return leader


def test_the_last_member_goes_on_with_everything_in_its_log(cluster: Cluster) -> None:
    node = filled(cluster)
    begin_alone(node.directory(), log_config(node), NEW_CLUSTER, [b"four", b"five"])
    node.replica = reopened(node, NEW_CLUSTER)
    assert run_alone(node) == ["one", "two", "three", "four", "five"]
    status = node.replica.status()
    assert status.configuration == Configuration(("a.1",), (), ("b.1", "c.1"))
    node.replica.close()


def test_it_is_a_stranger_to_its_old_group(cluster: Cluster) -> None:
    node = filled(cluster)
    begin_alone(node.directory(), log_config(node), NEW_CLUSTER, [])
    with pytest.raises(IdentityRefused, match="belongs to cluster"):
        node.start()


def test_recovery_may_be_repeated(cluster: Cluster) -> None:
    node = filled(cluster)
    for _ in range(2):
        begin_alone(node.directory(), log_config(node), NEW_CLUSTER, [b"again"])
    node.replica = reopened(node, NEW_CLUSTER)
    assert run_alone(node) == ["one", "two", "three", "again", "again"]
    node.replica.close()


def test_only_a_voter_can_go_on(cluster: Cluster, tmp_path: Path) -> None:
    learner = Node("d.1", tmp_path / "d").create(Configuration(()))
    with pytest.raises(IdentityRefused, match="not a voter"):
        begin_alone(learner.directory(), log_config(learner), NEW_CLUSTER, [])
    stranger = Node("e.1", tmp_path / "e")
    with pytest.raises(IdentityRefused, match="not a member"):
        begin_alone(stranger.directory(), log_config(stranger), NEW_CLUSTER, [])


def test_a_group_begins_behind_a_state(tmp_path: Path) -> None:
    node = Node("a.1", tmp_path / "a")
    (node.path / "state.json").write_text('[[40, "old"]]')
    begin_behind(node.directory(), log_config(node), "a.1", NEW_CLUSTER, (40, 7), [b"new"])
    found = load(node.directory())
    assert found is not None
    assert (found.node_id, found.cluster_id, found.is_started) == ("a.1", NEW_CLUSTER, True)
    node.replica = reopened(node, NEW_CLUSTER)
    assert run_alone(node) == ["old", "new"]
    assert node.replica.status().configuration == Configuration(("a.1",))
    assert node.replica.term > 8
    node.replica.close()


def test_a_used_folder_is_no_place_to_begin(cluster: Cluster) -> None:
    node = filled(cluster)
    with pytest.raises(IdentityRefused, match="prepared before"):
        begin_behind(node.directory(), log_config(node), "a.1", NEW_CLUSTER, (1, 1), [])


def test_others_join_the_group_that_began_again(tmp_path: Path) -> None:
    node = Node("a.1", tmp_path / "a")
    (node.path / "state.json").write_text('[[40, "old"]]')
    begin_behind(node.directory(), log_config(node), "a.1", CLUSTER, (40, 7), [b"new"])
    cluster = Cluster(tmp_path, "")
    cluster.nodes["a.1"] = node.start()
    cluster.tick(400)
    fresh = cluster.join("b.1")
    cluster.leader().replica.change_members(AddLearner("b.1"))
    cluster.tick(50)
    cluster.leader().replica.change_members(PromoteLearner("b.1"))
    cluster.tick(50)
    assert fresh.machine.data() == ["old", "new"]
    assert fresh.replica.status().configuration.voters == ("a.1", "b.1")
    cluster.close()


# Reading without changing


def test_a_log_is_read_and_not_changed(cluster: Cluster) -> None:
    node = filled(cluster)
    folder = node.path / "raft" / "log"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with Inspection.open(DiskDirectory(folder), GROUP) as log:
        entries = list(log.entries(1, log.last_index))
        assert [entry.index for entry in entries] == list(range(1, log.last_index + 1))
        data = [entry.data for entry in entries if entry.kind is EntryKind.DATA]
        assert data == [b"one", b"two", b"three"]
        assert log.configuration() == ABC
        assert (log.first_index, log.synced_index) == (1, log.last_index)
        (segment,) = log.segments()
        assert (segment.first_index, segment.last_index) == (1, log.last_index)
        assert segment.used_bytes < segment.size_bytes
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_damage_is_told_with_its_place(cluster: Cluster) -> None:
    node = filled(cluster)
    folder = node.path / "raft" / "log"
    path = min(folder.glob("*.segment"))
    data = bytearray(path.read_bytes())
    at = data.index(b"two")
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged) as caught:
        Inspection.open(DiskDirectory(folder), GROUP)
    assert caught.value.file == path.name
    assert caught.value.offset < at < caught.value.offset + 100
    with pytest.raises(FileNotFoundError):
        Inspection.open(DiskDirectory(node.path / "nothing"), GROUP)

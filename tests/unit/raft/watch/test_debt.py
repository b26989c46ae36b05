"""A replica whose folder is replaced by an older copy of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from raft import refounding
from raft.identity import IdentityRefused
from raft.step import AlarmKind
from raft.types import Heartbeat, PeerState, Role
from raft.watch.debt import DEBT_FILE
from tests.unit.raft.nodes import Cluster, Node


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three founders."""
    made = Cluster(tmp_path)
    yield made
    made.close()


def set_back(cluster: Cluster, name: str) -> Node:
    """Have a leader commit entries, and start a follower on a copy from before."""
    node = cluster[name]
    cluster.elect("a")
    cluster.propose("before")
    cluster.tick(20)
    node.replica.close()
    copy = node.path.with_name("copy")
    shutil.copytree(node.path, copy)
    node.restart()
    for number in range(10):
        cluster.propose(str(number))
    cluster.tick(20)
    node.machine.flush()
    node.replica.close()
    shutil.rmtree(node.path)
    copy.rename(node.path)
    node.restart()
    for other in cluster.nodes.values():
        if other is not node:
            other.replica.peer(node.node, PeerState.LOST)
            other.replica.peer(node.node, PeerState.CONNECTED)
    return node


def kinds(node: Node) -> list[AlarmKind]:
    """Return the kinds of alarms so far."""
    return [alarm.kind for alarm in node.alarms]


def tell(cluster: Cluster, node: Node) -> None:
    """Have the leader's heartbeat reach a node, and nothing that the node could take."""
    cluster.drops = lambda e: not isinstance(e.body, Heartbeat)
    cluster.tick(20)
    cluster.drops = lambda e: False
    assert node.replica.status().owed


def test_it_is_told_on_both_sides_and_healed(cluster: Cluster) -> None:
    """Operators learn of it, although it heals by itself."""
    node = set_back(cluster, "c")
    cluster.tick(40)
    assert node.machine.data() == cluster["a"].machine.data()
    assert (kinds(node), kinds(cluster["a"])) == (
        [AlarmKind.ROLLED_BACK],
        [AlarmKind.PEER_ROLLED_BACK],
    )
    assert node.alarms[0].text.startswith("this node lacks entries ")
    assert cluster["a"].alarms[0].text.startswith("c.1 lacks entries ")
    assert not node.replica.status().owed
    assert cluster["a"].replica.status().owing_followers == ()


def test_what_it_owes_outlives_its_process_until_it_is_healed(cluster: Cluster) -> None:
    """Without the leader that told it, it would vote for one that lacks what is committed."""
    node = set_back(cluster, "c")
    tell(cluster, node)
    node.restart()
    owed = node.replica.status().owed
    assert owed == cluster["a"].replica.commit_index
    cluster.tick(40)
    assert not node.replica.status().owed
    assert DEBT_FILE not in node.directory().names()


def test_it_elects_nobody_who_lacks_what_it_owes(cluster: Cluster) -> None:
    """Of an entry that two of three had, one copy is left; the third is no majority with it."""
    third = cluster["b"]
    cluster.cut.add("b.1")
    node = set_back(cluster, "c")
    tell(cluster, node)
    cluster.cut = {"a.1"}
    cluster.tick(800)
    assert {each.replica.role for each in (third, node)} & {Role.LEADER} == set()
    cluster.cut = set()
    cluster.tick(400)
    assert third.machine.data() == node.machine.data() == cluster["a"].machine.data()
    assert len(third.machine.data()) == 11


def test_it_is_written_again_when_the_disk_was_full(cluster: Cluster) -> None:
    """Meanwhile this process remembers it."""
    node = set_back(cluster, "c")
    node.full[0] = True
    tell(cluster, node)
    assert DEBT_FILE not in node.directory().names()
    node.full[0] = False
    cluster.drops = lambda e: not isinstance(e.body, Heartbeat)
    cluster.tick(40)
    assert DEBT_FILE in node.directory().names()


def test_a_damaged_note_of_what_is_owed_is_refused(cluster: Cluster) -> None:
    """It may have owed anything."""
    node = set_back(cluster, "c")
    tell(cluster, node)
    node.replica.close()
    file = node.path / "raft" / DEBT_FILE
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(IdentityRefused, match="next incarnation"):
        node.start()
    del cluster.nodes[node.node]


def test_a_new_group_is_owed_nothing(cluster: Cluster) -> None:
    """What the old group had committed is given up with it."""
    node = set_back(cluster, "c")
    tell(cluster, node)
    node.replica.close()
    directory = node.directory()
    refounding.begin_alone(directory, node.config.log_config(1), b"another group id", ())
    assert DEBT_FILE not in directory.names()
    del cluster.nodes[node.node]

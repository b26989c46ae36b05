"""A state rebuilt from entries is the node's own; a compacted one is it without what has gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qm.model.values import commands
from qm.store.audit import prove
from qm.store.digest import digest_bytes
from qm.store.replay import Replay, _RecentEntries
from qm.store.store import Diverged
from raft.log_view import Compacted
from raft.machine import SnapshotSource
from raft.types import Entry, EntryKind
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

RETAINED_BYTES = 64 * 1024
BODY = bytes(1000)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with 1,200 KB of messages, of which most were received, and an audit mark."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    for first in range(1, 1201, 100):
        node.put([arrivals(*(packet(n, body=BODY) for n in range(first, first + 100)))])
    node.put([receive(2, 1150)])
    node.put([commands.Confirm("c", 1151)])
    node.put([commands.AuditMark(3)])
    node.put([arrivals(packet(2000, body=BODY))])
    yield node
    node.close()


def entries_of(node: Node, first: int = 1) -> list[tuple[int, int, bytes]]:
    entries = node.log.entries(first, node.log.last_index() + 1, 1 << 30)
    return [(entry.index, entry.term, entry.data) for entry in entries]


def replay_of(node: Node, path: Path) -> Replay:
    replay = Replay(path, retained_bytes=RETAINED_BYTES)
    for entry in entries_of(node):
        replay.apply([entry])
    return replay


def save(source: SnapshotSource, path: Path) -> int:
    """Write a stream to a file; return its length."""
    with path.open("wb") as file:
        while chunk := source.read(file.tell(), 1 << 16):
            file.write(chunk)
    source.close()
    return path.stat().st_size


def test_a_replay_gives_the_nodes_state_and_the_digests_at_its_marks(
    node: Node, tmp_path: Path
) -> None:
    replay = Replay(tmp_path / "replay", retained_bytes=RETAINED_BYTES)
    marks = [mark for entry in entries_of(node) for mark in replay.apply([entry])]
    assert replay.applied == node.store.applied
    (own,) = node.store.marks
    assert [(mark.number, mark.index) for mark in marks] == [(3, own.index)]
    assert marks[0].digest == prove(node.store.copy_at(own)).digest
    assert replay.verify_bodies() == 51
    replay.close()
    assert not (tmp_path / "replay").exists()


def test_a_compacted_state_is_small_and_begins_another_replay(node: Node, tmp_path: Path) -> None:
    replay = replay_of(node, tmp_path / "replay")
    replay.compact()
    applied = replay.applied
    size = save(replay.snapshot(), tmp_path / "stream")
    replay.close()
    assert size < 51 * len(BODY) * 3, "consumed bodies are gone"
    again = Replay(tmp_path / "again", retained_bytes=RETAINED_BYTES)
    again.install(tmp_path / "stream", applied.index, applied.term)
    assert again.applied == applied
    assert again.verify_bodies() == 51
    node.put([receive(1152, 10), arrivals(packet(3000, body=BODY))])
    again.apply(entries_of(node, applied.index + 1))
    assert again.applied == node.store.applied
    assert again.verify_bodies() == 42
    again.close()


def test_entries_that_tell_of_another_majority_end_a_replay(node: Node, tmp_path: Path) -> None:
    replay = replay_of(node, tmp_path / "replay")
    other = digest_bytes(7)
    with pytest.raises(Diverged):
        node.put([commands.AuditResult(3, {"n1.1": other, "n2.1": other, "n3.1": bytes(16)})])
    with pytest.raises(Diverged):
        replay.apply(entries_of(node)[-1:])
    replay.close()


def test_entries_are_kept_up_to_a_size() -> None:
    entries = _RecentEntries()
    entries.append([Entry(index, 1, EntryKind.DATA, bytes(10)) for index in range(1, 7)])
    entries.drop(25)
    assert entries.size_bytes == 20
    entries.append([Entry(7, 1, EntryKind.DATA, bytes(5))])
    entries.drop(25)
    assert len(entries.read_entry(5)) == 10
    with pytest.raises(Compacted):
        entries.read_entry(4)

"""Checkpoints: who writes one and when, and that it is the whole state."""

import asyncio
from pathlib import Path

import pytest
from blake3 import blake3
from msgspec import structs

from qm.archive.archiver import Archiver
from qm.archive.checkpoints import (
    CHECKPOINT_NAME,
    CHECKPOINTS_FOLDER,
    Checkpoint,
    decode_checkpoint,
)
from qm.archive.ranges import Identity, Policy
from qm.store.backup import STATE_FILE
from qm.store.digest import digest_bytes
from qm.store.replay import Replay
from qm.store.snapshot import Pinned, SourceUnreadable, StoreSnapshot
from tests.unit.archive.test_archiver import fill
from tests.unit.archive.world import (
    CLUSTER,
    CONFIG,
    Failing,
    Told,
    archiver_of,
    export,
    with_destination,
)
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

OFTEN = structs.replace(CONFIG, range_entries=1000, checkpoint_bytes=400_000)
PASSED_BYTES = 4_000
"""Of a message that comes and goes."""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands())
    return node


def passing(node: Node, first: int, count: int) -> None:
    """Have messages come and go."""
    for n in range(first, first + count):
        node.put([arrivals(packet(n, body=bytes(PASSED_BYTES)))], [receive(n + 1, 1, n + 1)])


def checkpoints(root: Path) -> list[tuple[Checkpoint, Path]]:
    found = sorted((root / CLUSTER / CHECKPOINTS_FOLDER).glob(f"*/{CHECKPOINT_NAME}"))
    return [(decode_checkpoint(path.read_bytes()), path.parent) for path in found]


def test_after_so_much_log_the_whole_state_is_written(node: Node, tmp_path: Path) -> None:
    root, told = tmp_path / "archive", Told()

    async def scenario() -> None:
        archiver = archiver_of(node, root, told, OFTEN)
        passing(node, 1, 50)
        await archiver.step()
        assert not checkpoints(root), "less log than that"
        passing(node, 51, 80)
        fill(node, 500, 3)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    ((checkpoint, folder),) = checkpoints(root)
    applied = node.store.applied
    assert (checkpoint.index, checkpoint.term) == (applied.index, applied.term)
    assert checkpoint.digest == digest_bytes(applied.digest).hex()
    stream = (folder / STATE_FILE).read_bytes()
    assert checkpoint.stream_bytes == len(stream)
    assert checkpoint.stream_blake3 == blake3(stream).hexdigest()
    replay = Replay(tmp_path / "again")
    replay.install(folder / STATE_FILE, checkpoint.index, checkpoint.term)
    assert (replay.applied, replay.verify_bodies()) == (applied, 3)
    replay.close()
    assert told.value("quorate_archive_checkpoints_total") == 1
    node.close()


@pytest.mark.parametrize("policy", [Policy.NONE, Policy.DIGEST])
def test_where_there_is_nothing_to_replay_there_is_none(
    node: Node, tmp_path: Path, policy: Policy
) -> None:
    passing(node, 1, 200)
    export(node, tmp_path / "archive", config=structs.replace(OFTEN, policy=policy))
    assert not checkpoints(tmp_path / "archive")
    node.close()


def test_a_state_that_is_large_against_the_log_waits(node: Node, tmp_path: Path) -> None:
    root = tmp_path / "archive"

    async def scenario() -> None:
        archiver = archiver_of(node, root, config=OFTEN)
        fill(node, 1, 300)
        await archiver.step()
        assert not checkpoints(root), "all of the log is state"
        node.put([receive(n, 10, n + 9) for n in range(2, 302, 10)])
        passing(node, 400, 700)
        await archiver.step()
        assert len(checkpoints(root)) == 1
        await archiver.stop()

    asyncio.run(scenario())
    node.close()


def test_nodes_take_turns_and_one_is_enough(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    nodes = [Node(tmp_path / name, keeps_effects=True) for name in ("n1", "n2")]
    for node in nodes:
        node.put(setup_commands())

    async def steps(archivers: list[Archiver], first: int, count: int) -> list[str]:
        for node, archiver in zip(nodes, archivers, strict=True):
            passing(node, first, count)
            await archiver.step()
        return [checkpoint.node for checkpoint, _ in checkpoints(root)]

    async def scenario() -> None:
        archivers = [
            archiver_of(node, root, None, OFTEN, Identity(CLUSTER, f"n{turn + 1}.1", 1), turn)
            for turn, node in enumerate(nodes)
        ]
        assert await steps(archivers, 1, 110) == ["n1.1"]
        assert await steps(archivers, 200, 50) == ["n1.1"], "the second has heard of the first's"
        await archivers[0].stop()
        passing(nodes[1], 300, 250)
        await archivers[1].step()
        assert [c.node for c, _ in checkpoints(root)] == ["n1.1", "n2.1"], "the first is gone"
        await archivers[1].stop()

    asyncio.run(scenario())
    for node in nodes:
        node.close()


def test_a_state_that_cannot_be_read_is_tried_again(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges continue meanwhile."""
    root, told = tmp_path / "archive", Told()
    passing(node, 1, 120)

    def damaged(_pinned: Pinned) -> StoreSnapshot:
        raise SourceUnreadable("entry 1 cannot be read")

    async def scenario() -> None:
        archiver = archiver_of(node, root, told, OFTEN)
        with monkeypatch.context() as patch:
            patch.setattr(Pinned, "source", damaged)
            await archiver.step()
        assert told.value("quorate_archive_failures_total", reason="unreadable") == 1
        assert told.value("quorate_archive_lag_entries") == 0
        assert not list(node.path.glob("store/pinned/*"))
        monkeypatch.setattr(archiver, "_retry_at", 0.0)
        await archiver.step()
        assert len(checkpoints(root)) == 1
        await archiver.stop()

    asyncio.run(scenario())
    node.close()


@pytest.mark.parametrize("is_done", [False, True])
def test_what_was_broken_off_is_none_and_goes(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Whichever of its two files could not be written, or had no answer."""
    root, told = tmp_path / "archive", Told()
    passing(node, 1, 120)
    destination = Failing(root, 1_000, is_done=is_done)
    with_destination(monkeypatch, destination)
    files_of_range = 4

    async def scenario() -> None:
        archiver = archiver_of(node, root, told, OFTEN)
        destination.left = files_of_range - 1 + (1 if is_done else 2)
        await archiver.step()
        assert told.value("quorate_archive_failures_total", reason="destination") == 1
        assert not checkpoints(root)
        destination.left = 1_000
        monkeypatch.setattr(archiver, "_retry_at", 0.0)
        fill(node, 600, 1)
        await archiver.step()
        assert len(checkpoints(root)) == 1
        assert len(list((root / CLUSTER / CHECKPOINTS_FOLDER).iterdir())) == 1
        await archiver.stop()

    asyncio.run(scenario())
    node.close()

"""What a node does for its own disk, between everything else."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from qm.node.replica.state_machine import AppliedStore
from qm.node.upkeep import housekeeping
from qm.node.upkeep.housekeeping import LOG_SEGMENT_BYTES, Housekeeping
from qm.store.bodies import body_places as bodies_module
from qm.store.bodies.blobs import Blobs, BlobSync
from raft.log.retention import MARK_BYTES, Retention
from raft.types import Entry, EntryKind
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, setup_commands


def test_bodies_move_in_steps_of_which_a_few_at_a_time_are_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 1.6: no single step grows with what there is to move, and the loop turns between."""
    monkeypatch.setattr(bodies_module, "MOVED_AHEAD_BYTES", 30_000)
    monkeypatch.setattr(housekeeping, "MOVE_PAUSE_S", 0.0)
    monkeypatch.setattr(housekeeping, "MOVE_STEPS_PER_SYNC", 2)
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    for n in range(1, 201, 10):
        node.put([arrivals(*(packet(k, body=bytes(2_000)) for k in range(n, n + 10)))])
    synced: list[int] = []
    turns = 0

    class Sync(BlobSync):
        def run(self) -> None:
            synced.append(turns)
            super().run()

    monkeypatch.setattr("qm.store.bodies.blobs.BlobSync", Sync)

    async def scenario() -> None:
        async def turning() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        machine = AppliedStore(node.store, lambda run: None, lambda: None, lambda text: None)
        keeping = Housekeeping(machine, lambda ahead_bytes: node.store.applied_index())
        other = asyncio.create_task(turning())
        await keeping.move_ahead()
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other

    asyncio.run(scenario())
    assert len(synced) > 2
    assert len(set(synced)) == len(synced), "the loop turned between the steps"
    last = node.log.retirable(node.store.applied_index())
    monkeypatch.setattr(Blobs, "append", None)  # nothing is left to be moved
    node.compact()
    assert node.log.first_index() == last + 1
    node.close()


def test_many_small_changes_are_flushed_as_many_bytes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that receive are short, and delete as many rows as long ones have put."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    node.put([arrivals(*(packet(k) for k in range(1, 101)))])
    machine = AppliedStore(node.store, lambda run: None, lambda: None, lambda text: None)
    keeping = Housekeeping(machine, lambda ahead_bytes: node.store.applied_index())
    asyncio.run(keeping.flush())
    assert machine.durable_index() < machine.applied_index(), "nothing was due"
    monkeypatch.setattr(housekeeping, "FLUSH_ROWS_BYTES", node.store.unflushed_bytes())
    asyncio.run(keeping.flush())
    assert machine.durable_index() == machine.applied_index()
    assert node.store.unflushed_bytes() < housekeeping.FLUSH_ROWS_BYTES
    node.close()


def test_the_log_is_shortened_before_new_messages_are_refused(tmp_path: Path) -> None:
    """A disk that the log's own history fills took no message ever again (`log_retain_mb`)."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    machine = AppliedStore(node.store, lambda run: None, lambda: None, lambda text: None)
    keeping = Housekeeping(machine, lambda ahead_bytes: node.store.applied_index())
    reserve_bytes = 64 << 20
    retention = Retention(256 << 20)
    data = bytes(MARK_BYTES)
    for index in range(1, 3 * LOG_SEGMENT_BYTES // MARK_BYTES + 1):
        retention.appended([Entry(index, 1, EntryKind.DATA, data)])

    def look(free_bytes: int) -> int:
        asyncio.run(keeping.shorten_log(retention, free_bytes, reserve_bytes))
        return retention.droppable() * MARK_BYTES // LOG_SEGMENT_BYTES

    assert look(2 * reserve_bytes) == 0, "there is room"
    assert machine.durable_index() < machine.applied_index()
    assert look(2 * reserve_bytes - 1) == 1
    assert machine.durable_index() == machine.applied_index(), "or it could not leave the log"
    assert look(3 * reserve_bytes) == 1, "not to and fro"
    assert [look(0) for _ in range(3)] == [2, 3, 3]
    look(4 * reserve_bytes)
    assert not retention.is_shortened
    node.close()

"""What a simulated cluster committed, applied again by the real store on a real disk: in other
runs of entries, across restarts, compactions and a snapshot, the digests are the same.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from qm.store.digest import digest_bytes
from qm.store.store import Store
from raft.log.disk import DiskDirectory
from raft.log.log import Log, LogConfig
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta
from tests.sim.machine_model import QueueModel
from tests.sim.machine_world import QUEUES
from tests.sim.world import World

SEEDS = (1, 5)
STEPS = 1_200
CACHE_BYTES = 1 << 20
CONFIGURATION = Configuration(("n1.1",))
SMALL_SEGMENT_BYTES = 16 * 1024


class Machine:
    """A log and a store in one folder, given entries that others committed."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path = path
        self._chance = chance
        path.mkdir(exist_ok=True)
        config = LogConfig(1, 7, segment_bytes=SMALL_SEGMENT_BYTES, spare_segments=0)
        self.log = Log.open(DiskDirectory(path).subdirectory("log"), config)
        self.store = Store(path / "store", self.log, cache_bytes=CACHE_BYTES)

    def append(self, entries: Sequence[Entry]) -> None:
        self.log.append(None, entries)
        sync = self.log.begin_sync()
        sync.run()
        self.log.end_sync(sync)

    def apply(self, entries: Sequence[Entry], digests: dict[int, bytes]) -> None:
        """Apply in runs of random length; after each, the digest is that of the others."""
        waiting = [one for one in entries if one.kind is EntryKind.DATA]
        while waiting:
            count = self._chance.choice((1, 1, 3, 20))
            run, waiting = waiting[:count], waiting[count:]
            self.store.apply(run)
            kept = digest_bytes(self.store.applied.digest)
            assert kept == digests[run[-1].index], f"another state at {run[-1].index}"

    def live_through(self, digests: dict[int, bytes]) -> "Machine":
        """Compact, snapshot to another folder, or be killed and start again."""
        what = self._chance.choice(("compact", "restart", "restart", "verify"))
        if what == "verify":
            assert self.store.verify()
        elif what == "compact":
            self.store.flush()
            index = self.store.durable_index()
            if index:
                self.log.compact(SnapshotMeta(index, self.log.term(index), CONFIGURATION, 0))
        else:
            self.close()
            again = Machine(self._path, self._chance)
            low, high = again.store.applied_index() + 1, again.log.last_index() + 1
            if low < high:
                again.apply(again.log.entries(low, high, 1 << 30), digests)
            return again
        return self

    def copy_to(self, path: Path) -> Store:
        """Return a store that was made of a snapshot of this one."""
        index = self.store.applied_index()
        source = self.store.snapshot(index)
        meta = SnapshotMeta(index, self.log.term(index), CONFIGURATION, source.size_bytes())
        other = Machine(path, self._chance)
        sink = other.store.receive_snapshot(meta)
        while sink.offset() < source.size_bytes():
            sink.write(source.read(sink.offset(), 4_096))
        sink.finish()
        source.close()
        return other.store

    def close(self) -> None:
        self.store.close()
        self.log.close()


def committed(seed: int) -> tuple[list[Entry], dict[int, bytes]]:
    """Return what a world committed, and the digest after each entry."""
    world = World(seed, workload=QUEUES)
    world.run(STEPS)
    model = world.checker.model
    assert isinstance(model, QueueModel)
    entries = [
        world.checker.entries[index, model.terms[index]][0] for index in range(1, model.index + 1)
    ]
    return entries, model.digests


@pytest.mark.parametrize("seed", SEEDS)
def test_the_store_computes_what_the_cluster_did(seed: int, tmp_path: Path) -> None:
    entries, digests = committed(seed)
    chance = random.Random(seed)
    machine = Machine(tmp_path / "a", chance)
    while entries:
        count = chance.choice((1, 10, 40))
        few, entries = entries[:count], entries[count:]
        machine.append(few)
        machine.apply(few, digests)
        machine = machine.live_through(digests)
    copy = machine.copy_to(tmp_path / "b")
    assert copy.verify()
    assert copy.applied.digest == machine.store.applied.digest
    machine.close()

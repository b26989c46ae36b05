"""Settings of one seed, drawn from it, and the product's limits shrunk so that each is reached."""

import os
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import qm.archive.contention
import qm.node.replica.replicated_store
import qm.node.service
import qm.node.upkeep.housekeeping
import qm.store.bodies.blobs
from raft.core.core import CoreConfig
from raft.replica import ReplicaConfig
from tests.sim.nodes import rot
from tests.sim.nodes.kinds import FAULT_SETS

NODES: Final = ("n1", "n2", "n3")
SPARSE_SHARE: Final = 0.8
"""A file with a smaller share of live bytes is emptied: nearly every one is, in time."""
INSTALLS: Final = frozenset({"install", "bent"})
"""The sets of faults after which nodes are so far behind that they need a snapshot."""
ROT: Final = "rot"
"""The set of faults in which bits flip on disks."""
SHORT_LOG: Final[dict[str, Any]] = {
    "log_retain_bytes": 64 << 10,
    "segment_bytes": 64 << 10,
    "flush_every_s": 0.7,
    "body_bytes": (2_000, 20_000),
    "rate_per_s": 60,
}
SEALED_SHARE: Final = 0.6
"""Of the seeds, in which bodies are sealed for the disk."""
BUSY_SHARE: Final = 0.25
"""Of the seeds, in which nodes are too busy to export every other time."""
BUSY_S: Final = 2.0
"""How long they are, and then are not."""
SECONDS: Final = 5.0
"""Of load with faults."""


@dataclass(frozen=True)
class Knobs:
    """Of one seed."""

    faults: tuple[str, ...]
    fault_pause_s: tuple[float, float]
    """Least and longest time between two faults."""
    archivers: tuple[str, ...]
    """Nodes that keep effects and export them."""
    body_bytes: tuple[int, int]
    rate_per_s: int
    """Messages of each sender."""
    entries_per_apply: int
    """Of one run; another number after each restart if `changes_runs`."""
    changes_runs: bool
    segment_bytes: int
    log_retain_bytes: int
    flush_every_s: float
    blob_file_bytes: int
    sparse_every_s: float
    move_ahead_bytes: int
    """0: bodies move when their segment is about to be dropped, and hold that up."""
    encrypt_bodies: Literal["none", "all"]
    """Which bodies are sealed for the disk."""
    is_busy: bool
    """Whether nodes are so at times."""

    @classmethod
    def drawn(cls, chance: random.Random, kinds: str = "") -> "Knobs":
        """Draw them. `kinds`: names of FAULT_SETS or of faults, instead of a drawn set."""
        name = chance.choice([*[*FAULT_SETS][1:], "all", "all"])
        faults: tuple[str, ...] = FAULT_SETS[name]
        pause_s = chance.choice(((0.3, 2.5), (0.1, 1.0), (1.0, 3.0)))
        archivers = chance.choice(((), (), (NODES[0],), NODES[:2], NODES))
        body_bytes = chance.choice(((100, 4_000), (60, 300), (2_000, 20_000)))
        drawn = cls(
            faults=faults,
            fault_pause_s=pause_s,
            archivers=archivers,
            body_bytes=body_bytes,
            rate_per_s=chance.choice((20, 40, 60)),
            entries_per_apply=chance.choice((1, 2, 7, 64, 64)),
            changes_runs=chance.random() < 0.5,
            segment_bytes=chance.choice((64, 64, 128)) << 10,
            log_retain_bytes=chance.choice((0, 64, 128, 512)) << 10,
            flush_every_s=chance.choice((0.7, 1.5, 3.0)),
            blob_file_bytes=chance.choice((8, 32, 128)) << 10,
            sparse_every_s=chance.choice((0.3, 1.0)),
            move_ahead_bytes=chance.choice((0, 64 << 10, 64 << 10)),
            encrypt_bodies="none",
            is_busy=False,
        )
        chosen = kinds.split(",") if kinds else [name]
        if not INSTALLS.isdisjoint(chosen):
            drawn = replace(drawn, **SHORT_LOG)
        if ROT in chosen:
            retained = chance.choice((64 << 10, rot.GIVEN_RETAIN_BYTES, rot.GIVEN_RETAIN_BYTES))
            drawn = replace(drawn, log_retain_bytes=retained)
        if kinds:
            parts: list[str] = []
            for part in kinds.split(","):
                parts += FAULT_SETS.get(part, (part,))
            drawn = replace(drawn, faults=tuple(parts))
        sealed: Literal["none", "all"] = "all" if chance.random() < SEALED_SHARE else "none"
        return replace(drawn, encrypt_bodies=sealed, is_busy=chance.random() < BUSY_SHARE)


def _worked_in_turns() -> float:
    """Return the seconds that a thread worked which does so every other BUSY_S."""
    turns, rest = divmod(time.monotonic(), 2 * BUSY_S)
    return turns * BUSY_S + min(rest, BUSY_S)


def shrink(knobs: Knobs, runs: random.Random) -> None:
    """Set the product's limits for the world that begins; they are constants of its modules."""
    housekeeping: Any = qm.node.upkeep.housekeeping
    housekeeping.FLUSH_EVERY_S = knobs.flush_every_s
    housekeeping.FLUSH_BYTES = 64 << 10
    housekeeping.MOVE_AHEAD_BYTES = knobs.move_ahead_bytes
    housekeeping.MOVED_AT_FLUSH_BYTES = knobs.move_ahead_bytes // 2
    housekeeping.SPARSE_EVERY_S = knobs.sparse_every_s
    blobs: Any = qm.store.bodies.blobs
    blobs.BLOB_FILE_BYTES = knobs.blob_file_bytes
    blobs.SPARSE_BYTES_PER_STEP = 16 << 10
    blobs.Blobs.empty_sparse.__defaults__ = (SPARSE_SHARE,)
    # How long threads wait for a core is the machine's affair: the seed says what nodes see.
    contention: Any = qm.archive.contention
    contention._SCHEDSTAT = Path(os.devnull)
    time.thread_time = _worked_in_turns if knobs.is_busy else lambda: 0.0

    def replica_config(self: qm.node.replica.replicated_store.ReplicatedConfig) -> ReplicaConfig:
        entries = runs.choice((1, 2, 7, 64)) if knobs.changes_runs else knobs.entries_per_apply
        return ReplicaConfig(
            CoreConfig(self.node, qm.node.replica.replicated_store.GROUP),
            self.cluster,
            apply_batch_entries=entries,
            log_retain_bytes=knobs.log_retain_bytes,
            segment_bytes=knobs.segment_bytes,
        )

    config: Any = qm.node.replica.replicated_store.ReplicatedConfig
    config.replica_config = replica_config

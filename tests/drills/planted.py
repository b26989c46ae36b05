"""The bugs that tests.drills.mutants plants, and the drill that must find each."""

from dataclasses import dataclass

from tests.sim.planted import DURABILITY, Mutant, Patch, mutant


@dataclass(frozen=True)
class Hunt:
    """A mutant and what finds it."""

    mutant: Mutant
    scenario: str
    target: str
    """"netns" needs root."""
    tuning: tuple[Patch, ...] = ()
    """Made to the sound tree as well: small sizes, so that a short drill gets that far."""


_SNAPSHOTS_SOON: tuple[Patch, ...] = (
    ("qm/node/upkeep/housekeeping.py", "FLUSH_EVERY_S: Final = 60.0", "FLUSH_EVERY_S: Final = 0.5"),
    ("raft/step.py", "segment_bytes: int = 64 << 20", "segment_bytes: int = 128 << 10"),
    (
        "qm/node/replica/replicated_store.py",
        "log_retain_bytes=self.log_retain_bytes)",
        "log_retain_bytes=64 * 1024)",
    ),
)
"""A log that is short enough for a node without a disk to need a snapshot."""

HUNTS = (
    Hunt(
        mutant(
            "acknowledge_before_commit",
            "An acknowledgement leaves when its message is committed (DESIGN 1.1)",
            (
                "qm/node/relay/leader_stream.py",
                "            self._pending.append((number, size, pending, ordinal))\n",
                (
                    "            if not self._pending and is_edge_batch(command):\n"
                    "                outcome = refusal(command)\n"
                    "                count = len(outcome.verdicts)\n"
                    "                outcome.verdicts[:] = array('H', [0] * count)\n"
                    "                self._bytes -= size\n"
                    "                self._events.on_outcome(number, self._index, outcome)\n"
                    "                continue\n"
                    "            self._pending.append((number, size, pending, ordinal))\n"
                ),
            ),
            (
                "qm/node/relay/leader_stream.py",
                "import logging\n",
                "import logging\nfrom array import array\n",
            ),
        ),
        "partition-leader",
        "netns",
    ),
    Hunt(
        mutant(
            "forget_duplicates_in_snapshots",
            "A snapshot carries the history of what was accepted (DESIGN section 4)",
            (
                "qm/store/snapshot.py",
                "        _forget_kept(state, manifest.index)\n",
                (
                    "        forgotten = (Table.HISTORY, Table.HISTORY_BUCKET, Table.SEQUENCE_IN)\n"
                    "        for full, _ in list(state.rows()):\n"
                    "            if full[0] in forgotten:\n"
                    "                state.delete(Table(full[0]), full[1:])\n"
                    "        _forget_kept(state, manifest.index)\n"
                ),
            ),
        ),
        "lost-disk",
        "dev",
        _SNAPSHOTS_SOON,
    ),
    Hunt(
        next(mutant for mutant in DURABILITY if mutant.name == "skip_fsync"),
        "power-failure",
        "dev",
    ),
    Hunt(
        mutant(
            "deliver_before_commit",
            "What a leader applies, and so delivers, is committed (Raft 5.3)",
            (
                "raft/replica.py",
                "        return min(self._core.commit, self._core.durable_index)",
                (
                    "        if self._core.role is Role.LEADER:\n"
                    "            return self._core.durable_index\n"
                    "        return min(self._core.commit, self._core.durable_index)"
                ),
            ),
        ),
        "partition-leader",
        "netns",
    ),
    Hunt(
        mutant(
            "peek_without_barrier",
            "A look sees what was acknowledged before it began (DESIGN section 3, ReadIndex)",
            (
                "qm/api/data/peek.py",
                "        await self._cluster.read_barrier()\n        reader = Reader(\n",
                "        reader = Reader(\n",
            ),
        ),
        "partition-leader",
        "netns",
    ),
)

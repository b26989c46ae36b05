"""What oracles watch while a world runs: set into the product's classes from outside.

Compared between all nodes and all lives of one seed, by index of the entry: what applying it gave,
its EFFECTS row, and the digest behind it wherever a batch ended there. Acknowledgements are checked
at the moment they leave: the entry that they depend on is durable on a majority of the disks. What
a node applies is durable in its own log; files with bodies go when no durable state names them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from qm.edge.ack_marks import AckMark, AckMarks
from qm.model.state.tables import Table
from qm.model.values.effects import Applied
from qm.model.values.results import ResultRow
from qm.store.bodies.blobs import BlobRemoval, Blobs, blob_files
from qm.store.effects.effects_log import HEAD, INDEX_KEY, EffectsLog
from qm.store.rocks import RocksState
from qm.store.store import Store
from raft.log.log import Log
from raft.types import Entry, SnapshotMeta
from tests.sim.nodes.world import EPOCH_NS, NS

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

FINDINGS_MAX: Final = 3
"""Of one kind: the others follow from the first."""
FIRST_INDEX_MAX: Final = 3
"""Of the first entry of data in a log that begins at its birth."""
NS_PER_MS: Final = NS // 1_000
TIME_ERROR_MAX_MS: Final = 250
"""How far cluster time may be from the wall clocks at TERM_BEGINS_S of a term."""
TERM_BEGINS_S: Final = 2.0
TIME_LOOK_S: Final = 0.1
STREAMS_LOOK_S: Final = 0.1
CLOCK_FAULTS: Final = frozenset({"clock", "pause", "cut", "one_way", "slow_net"})
"""Under these a majority's clocks differ, or cannot be read in time."""

HEAD_FIELDS: Final = (
    "version",
    "flags",
    "leader",
    "queues",
    "uniform",
    "term",
    "now",
    "previous",
    "before",
    "data_hash",
    "data",
    "commands",
    "effects",
    "total",
)
"""Of an EFFECTS row."""


class Probes:
    """Of one world."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._applied: dict[int, tuple[bytes, str]] = {}
        self._effects: dict[int, tuple[bytes, str]] = {}
        self._digests: dict[int, tuple[int, str]] = {}
        self._counts: dict[str, int] = {}
        self._entries: dict[int, Entry] = {}
        self._opened: dict[str, int] = {}
        """Up to where each node's log was when it was opened: all of that is durable."""
        self._named: dict[str, frozenset[str]] = {}
        """The files with bodies that each node's state named when it was last made durable."""
        self.ack_marks = 0
        self.installs = 0
        """Snapshots that replaced a node's state."""
        self.acting = ""
        """Who applies, if that is none of the world's processes."""

    def on_durable(self, index: int) -> None:
        """The log of the process that runs is durable up to there."""
        machine = self._cluster.machines.get(self._who())
        if machine is not None:
            machine.disk.log_durable = max(machine.disk.log_durable, index)

    def on_opened(self, index: int) -> None:
        """The process that runs has opened its log, and synced it, up to there."""
        self._opened[self._who()] = index

    def _who(self) -> str:
        current = self._cluster.world.current
        return self.acting or ("?" if current is None else current.name)

    def find(self, kind: str, text: str) -> None:
        """Report a finding, a few of each kind."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= FINDINGS_MAX:
            self._cluster.find(f"{kind}: {text}")

    def entries(self) -> list[Entry] | None:
        """Return all entries that were applied, None if the first ones were not seen."""
        found = [self._entries[index] for index in sorted(self._entries)]
        return found if found and found[0].index <= FIRST_INDEX_MAX else None

    def on_applied(self, entries: Sequence[Entry], run: Sequence[Applied]) -> None:
        """Entries were applied in the process that runs."""
        who = self._who()
        self._check_durable(who, entries[-1].index if entries else 0)
        for entry in entries:
            if entry.index not in self._entries:
                self._entries[entry.index] = msgspec.structs.replace(entry, data=bytes(entry.data))
        for applied in run:
            seen = fingerprint(applied)
            known = self._applied.setdefault(applied.index, (seen, who))
            if known[0] != seen:
                self.find(
                    "applied", f"entry {applied.index} gave {who} another result than {known[1]}"
                )

    def _check_durable(self, who: str, index: int) -> None:
        machine = self._cluster.machines.get(who)
        if machine is None:
            return  # a replay
        durable = max(machine.disk.log_durable, self._opened.get(who, 0))
        if index > durable:
            self.find("apply", f"{who} applies entry {index}, its log is durable up to {durable}")

    def on_kept(self, index: int, row: bytes) -> None:
        """An EFFECTS row was written in the process that runs."""
        who = self._who()
        seen = without_total(row)
        known = self._effects.setdefault(index, (seen, who))
        if known[0] != seen:
            text = f"entry {index}: {who} {difference(seen, known[0])} as {known[1]} had it"
            self.find("effects", text)

    def on_committed(self, index: int, digest: int) -> None:
        """A batch of rows was written in the process that runs."""
        who = self._who()
        known = self._digests.setdefault(index, (digest, who))
        if known[0] != digest:
            self.find("digest", f"behind entry {index} {who} has another state than {known[1]}")

    def on_acknowledged(self, mark: AckMark) -> None:
        """An acknowledgement leaves."""
        self.ack_marks += 1
        machines = self._cluster.machines.values()
        holding = [m.name for m in machines if m.disk.log_durable >= mark.depends_on]
        if 2 * len(holding) <= len(self._cluster.machines):
            text = f"{self._who()} acknowledges entry {mark.depends_on}, durable on {holding} alone"
            self.find("ack mark", text)

    def on_named(self, files: Sequence[str]) -> None:
        """A state that names these is durable in the process that runs."""
        self._named[self._who()] = frozenset(files)

    def on_removal(self, files: Sequence[str]) -> None:
        """The process that runs removes files with bodies."""
        who = self._who()
        if named := self._named[who].intersection(files):
            some = ", ".join(sorted(named)[:3])
            self.find("removal", f"{who} removes {len(named)} files that its state names: {some}")

    def watch_streams(self) -> None:
        """From now on, see that what a node's edge relays goes to the leader that the node follows,
        in its term.
        """
        cluster = self._cluster
        for machine in cluster.machines.values():
            replicated = None if machine.node is None else machine.node.replicated
            if replicated is None or replicated.leadership.node is None:
                continue
            term = replicated.leadership.term
            older = [stream.term for stream in replicated._streams if stream.term != term]
            if older:
                self.find("relay", f"{machine.name} relays in term {older[0]}, not in {term}")
        cluster.world.after(STREAMS_LOOK_S, self.watch_streams)

    def watch_time(self) -> None:
        """From now on, compare cluster time with the wall clocks, which are all the same, 2 s after
        each election.
        """
        cluster = self._cluster
        if CLOCK_FAULTS.isdisjoint(cluster.knobs.faults):
            cluster.world.after(TIME_LOOK_S, lambda: self._look_at_time("", 0, 0))

    def _look_at_time(self, leader: str, term: int, since_ns: int) -> None:
        """`leader` leads in `term` since then."""
        cluster = self._cluster
        world = cluster.world
        machine = cluster.leader()
        if machine is not None and machine.node is not None:
            replicated = machine.node.replicated
            assert replicated is not None
            if (leader, term) != (machine.name, replicated.leadership.term):
                leader, term, since_ns = machine.name, replicated.leadership.term, world.time_ns
            if world.time_ns - since_ns >= TERM_BEGINS_S * NS:
                error_ms = replicated.clock.now_ms() - (EPOCH_NS + world.time_ns) // NS_PER_MS
                if abs(error_ms) > TIME_ERROR_MAX_MS:
                    self.find("time", f"{leader} leads in term {term}, {error_ms:+d} ms off")
        world.after(TIME_LOOK_S, lambda: self._look_at_time(leader, term, since_ns))


_watching: list[Probes] = []


def fingerprint(applied: Applied) -> bytes:
    """Return a hash of what came of an entry, whatever form its effects have."""
    columns = applied.columns
    runs = [(run.kind, run.reason, len(run.keys)) for run in applied.runs]
    parts = (
        applied.now_ms,
        [(outcome.status, outcome.verdicts, _plain(outcome.value)) for outcome in applied.outcomes],
        list(columns.kinds),
        list(columns.queue_ids),
        sum(count for _, _, count in runs),
        sorted(applied.outgoing_queue_ids),
        sorted(applied.woken_queue_ids),
        applied.outbox_ids,
        applied.alarms,
        sorted(applied.incoming_sequences),
        applied.is_manager_changed,
    )
    return blake2b(repr(parts).encode(), digest_size=12).digest()


def _plain(value: object) -> object:
    """Return what a result holds, by value."""
    return value.packed if isinstance(value, ResultRow) else value


def without_total(row: bytes) -> bytes:
    """Return an EFFECTS row without the sum that counts from where a node's archive begins."""
    head = list(HEAD.unpack_from(row))
    head[-1] = 0
    return HEAD.pack(*head) + row[HEAD.size :]


def difference(one: bytes, other: bytes) -> str:
    """Return where two rows part."""
    heads = zip(HEAD_FIELDS, HEAD.unpack_from(one), HEAD.unpack_from(other), strict=True)
    parted = [
        f"{name} {mine!r} and not {theirs!r}" for name, mine, theirs in heads if mine != theirs
    ]
    if parted:
        return "has " + ", ".join(parted)
    at = next(
        (k for k, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), 0
    )
    return f"has {one[at : at + 24]!r} at byte {at} and not {other[at : at + 24]!r}"


def install(probes: Probes) -> None:
    """Have the product's classes tell this one; the first call sets them up."""
    is_first = not _watching
    _watching[:] = [probes]
    if not is_first:
        return
    store: Any = Store
    keeper: Any = EffectsLog
    state: Any = RocksState
    marks: Any = AckMarks
    apply, keep, commit, add = store.apply, keeper.keep, state.commit, marks.add

    def probed_apply(self: Store, entries: Sequence[Entry]) -> Sequence[Applied]:
        run: Sequence[Applied] = apply(self, entries)
        _watching[0].on_applied(entries, run)
        return run

    def probed_keep(self: Any, entry: Entry, *rest: Any) -> None:
        keep(self, entry, *rest)
        row = self._state.get(Table.EFFECTS, INDEX_KEY.pack(entry.index))
        if row is not None:
            _watching[0].on_kept(entry.index, row)

    def probed_commit(self: RocksState, index: int, term: int) -> None:
        commit(self, index, term)
        _watching[0].on_committed(index, self.applied.digest)

    def probed_add(self: AckMarks, mark: AckMark) -> None:
        add(self, mark)
        _watching[0].on_acknowledged(mark)

    log: Any = Log
    end_sync, reset, sync_now = log.end_sync, log.reset, log._sync_now

    def probed_end_sync(self: Log, sync: Any) -> int:
        durable: int = end_sync(self, sync)
        _watching[0].on_durable(durable)
        return durable

    def probed_reset(self: Log, meta: SnapshotMeta) -> None:
        reset(self, meta)
        _watching[0].installs += 1
        _watching[0].on_durable(meta.index)

    def probed_sync_now(self: Log) -> None:
        sync_now(self)
        _watching[0].on_opened(self.last_index())

    log.end_sync, log.reset, log._sync_now = probed_end_sync, probed_reset, probed_sync_now
    files: Any = Blobs
    flush, begin, begin_removal = state.flush, files.__init__, files.begin_removal

    def probed_flush(self: RocksState) -> None:
        named = blob_files(self)
        flush(self)
        _watching[0].on_named(named)

    def probed_begin(self: Blobs, *rest: Any) -> None:
        begin(self, *rest)
        _watching[0].on_named(blob_files(self._state))

    def probed_removal(self: Blobs) -> BlobRemoval:
        removal: BlobRemoval = begin_removal(self)
        _watching[0].on_removal(removal.files)
        return removal

    state.flush, files.__init__, files.begin_removal = probed_flush, probed_begin, probed_removal
    store.apply, keeper.keep, state.commit, marks.add = (
        probed_apply,
        probed_keep,
        probed_commit,
        probed_add,
    )

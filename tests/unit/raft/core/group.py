"""A group of cores in one process: logs in memory, a wire that tests cut, no clock.

A member obeys `Ready`'s order. What it has written survives a `restart` only if it was synced.
"""

from collections.abc import Callable, Iterable

from raft.core.core import Core, CoreConfig
from raft.log.memory_log import MemoryLog
from raft.types import (
    Body,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    NodeId,
    PeerState,
    ReadState,
    Ready,
    Role,
    SnapshotMeta,
)

GROUP = 7
ELECTION_TICKS = 80
HEARTBEAT_TICKS = 10


class Member:
    """One core with its log and what it persisted."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        *,
        jitter: int = 40,
        entries: Iterable[Entry] = (),
        hard_state: HardState | None = None,
        config: dict[str, int] | None = None,
        random: Callable[[int], int] | None = None,
    ) -> None:
        self.node = node
        self.jitter = jitter
        """What the injected generator returns, at most: later campaigns for a greater one."""
        self.random = random or self._jitter
        self.options = config or {}
        self.auto_sync = True
        self.applies = True
        self.base = configuration
        self.base_index = 0
        self.synced_base = (0, 0)
        self.hard_state = hard_state or HardState()
        self.log = MemoryLog()
        self.log.append(tuple(entries))
        self.synced_state = self.hard_state
        self.synced_entries = self._all_entries()
        self.applied = 0
        self.applied_entries: list[Entry] = []
        self.core = self._new_core()
        self.reset_volatile()

    def reset_volatile(self) -> None:
        """Forget what a process keeps in memory."""
        self.outbox: list[Envelope] = []
        self.awaiting: list[Envelope] = []
        self.reads: list[ReadState] = []
        self.wanted: list[NodeId] = []
        self.is_dirty = False

    def _new_core(self) -> Core:
        config = CoreConfig(
            self.node,
            GROUP,
            **{
                "election_ticks": ELECTION_TICKS,
                "heartbeat_ticks": HEARTBEAT_TICKS,
                **self.options,
            },
        )
        history = [
            (entry.index, decode(entry))
            for entry in self._all_entries()
            if entry.kind is EntryKind.CONFIG
        ]
        return Core(
            config,
            self.log,
            self.hard_state,
            self.base,
            self.applied,
            self.random,
            history,
        )

    def _jitter(self, n: int) -> int:
        return min(self.jitter, n - 1)

    def _all_entries(self) -> tuple[Entry, ...]:
        first, last = self.log.first_index(), self.log.last_index()
        return self.log.entries(first, last + 1, 1 << 40) if last >= first else ()

    def restart(self) -> None:
        """Crash with power loss, start again with what was synced."""
        self.log = MemoryLog(*self.synced_base)
        self.log.append(self.synced_entries)
        self.hard_state = self.synced_state
        self.core = self._new_core()
        self.reset_volatile()

    def ready(self) -> Ready:
        """One Ready: write, and sync if `auto_sync`."""
        ready = self.core.ready()
        if ready.snapshot is not None:
            self.log.reset(ready.snapshot.index, ready.snapshot.term)
            self.base = ready.snapshot.configuration
            self.applied = ready.snapshot.index
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        self.log.append(ready.entries)
        self.outbox.extend(ready.messages)
        self.is_dirty = self.is_dirty or ready.must_sync
        self.awaiting.extend(ready.messages_after_sync)
        self.reads.extend(ready.reads)
        self.wanted.extend(ready.snapshots_wanted)
        if self.auto_sync or not self.is_dirty or ready.snapshot is not None:
            self.sync()  # a log that restarts does so durably
        self.apply()
        return ready

    def sync(self) -> None:
        """What was written is durable: tell the core, release what waited."""
        self.is_dirty = False
        self.synced_base = (self.log.first_index() - 1, self.log.term(self.log.first_index() - 1))
        self.synced_entries = self._all_entries()
        self.synced_state = self.hard_state
        last = self.log.last_index()
        self.core.stable(last, self.log.term(last))
        self.outbox.extend(self.awaiting)
        self.awaiting.clear()
        self.apply()

    def apply(self) -> None:
        """Apply what is committed and durable here."""
        upto = min(self.core.commit, self.core.durable_index) if self.applies else 0
        while self.applied < upto:
            entries = self.core.entries(self.applied + 1, upto + 1, 1 << 20)
            self.applied_entries.extend(entries)
            self.applied = entries[-1].index
            self.core.applied(self.applied)

    def pump(self) -> None:
        """Handle every Ready."""
        while self.core.has_ready():
            self.ready()

    def take_outbox(self) -> list[Envelope]:
        """Return what is to be sent."""
        sent, self.outbox = self.outbox, []
        return sent

    def data(self) -> list[bytes]:
        """Return the data applied."""
        return [entry.data for entry in self.applied_entries if entry.kind is EntryKind.DATA]

    def terms(self) -> list[int]:
        """Return the terms of all entries in the log."""
        return [entry.term for entry in self._all_entries()]

    def compact(self, upto: int) -> None:
        """Drop the log's beginning."""
        self.base = self.core.configuration_at(upto)
        self.log.compact(upto)
        self.core.compacted(upto)

    def snapshot_meta(self) -> SnapshotMeta:
        """Return the description of a snapshot of what is applied."""
        return SnapshotMeta(
            self.applied,
            self.core.term_at(self.applied),
            self.core.configuration_at(self.applied),
            100,
        )


def decode(entry: Entry) -> Configuration:
    """Return the configuration of a CONFIG entry."""
    from raft.core.membership import decode_configuration

    return decode_configuration(entry.data)


class Group:
    """Members and the wire between them."""

    def __init__(
        self,
        voters: str | Iterable[str] = "abc",
        learners: str | Iterable[str] = (),
        **config: int,
    ) -> None:
        configuration = Configuration(
            tuple(f"{name}.1" for name in voters), tuple(f"{name}.1" for name in learners)
        )
        self.members: dict[NodeId, Member] = {}
        self.wire: list[Envelope] = []
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.drops: Callable[[Envelope], bool] = lambda envelope: False
        self.log: list[Envelope] = []
        """Everything that was delivered."""
        for node in configuration.voters + configuration.learners:
            self.add(Member(node, configuration, config=config))

    def add(self, member: Member) -> Member:
        """Let a member take part."""
        self.members[member.node] = member
        return member

    def __getitem__(self, name: str) -> Member:
        return self.members[name if "." in name else f"{name}.1"]

    def core(self, name: str) -> Core:
        """Return a member's core."""
        return self[name].core

    def settle(self) -> None:
        """Write, sync and deliver until nothing moves."""
        for _ in range(1000):
            self.collect()
            if not self.wire:
                return
            wire, self.wire = self.wire, []
            for envelope in wire:
                self.deliver(envelope)
        raise AssertionError("the group does not come to rest")

    def collect(self) -> None:
        """Handle every member's Ready, once, and put its messages on the wire."""
        for member in self.members.values():
            member.pump()
            self.wire.extend(member.take_outbox())

    def deliver(self, envelope: Envelope) -> None:
        """Deliver one message, unless it is cut off."""
        if (envelope.sender, envelope.to) in self.cuts or self.drops(envelope):
            return
        if envelope.to in self.members:
            self.log.append(envelope)
            self.members[envelope.to].core.receive(envelope)

    def tick(self, count: int = 1, *names: str, settle: bool = True) -> None:
        """Let time pass for some members, or for all; they talk in between."""
        members = [self[name] for name in names] or list(self.members.values())
        for _ in range(count):
            for member in members:
                member.core.tick()
            if settle:
                self.settle()

    def isolate(self, name: str) -> None:
        """Cut a member off in both directions."""
        node = self[name].node
        for other in self.members:
            if other != node:
                self.cuts |= {(node, other), (other, node)}

    def heal(self) -> None:
        """Mend every cut."""
        self.cuts.clear()
        self.drops = lambda envelope: False

    def elect(self, name: str) -> Core:
        """Let a member win an election: none hears a leader, and its timer runs out first."""
        member = self[name]
        others = [other for other in self.members.values() if other is not member]
        for _ in range(ELECTION_TICKS):
            for other in others:
                other.core.tick()
                other.pump()
                other.outbox.clear()
            member.core.tick()
        for _ in range(4 * ELECTION_TICKS):
            if member.core.role is Role.LEADER:
                self.settle()
                return member.core
            member.core.tick()
            self.settle()
        raise AssertionError(f"{name} was not elected")

    def leader(self) -> Member:
        """Return the leader of the newest term."""
        leaders = [m for m in self.members.values() if m.core.role is Role.LEADER]
        return max(leaders, key=lambda m: m.core.term)

    def propose(self, data: bytes) -> int:
        """Propose at the leader, and let it settle."""
        index = self.leader().core.propose(data)
        self.settle()
        return index

    def lose(self, name: str, *observers: str, state: PeerState = PeerState.REFUSED) -> None:
        """Tell observers that a member's process is gone."""
        for observer in observers:
            self.core(observer).peer(self[name].node, state)


def envelope(sender: str, to: str, term: int, body: Body, group: int = GROUP) -> Envelope:
    """Return an envelope between two members, named without incarnation."""
    return Envelope(group, f"{sender}.1", f"{to}.1", term, body)


def entry(index: int, term: int, data: bytes = b"") -> Entry:
    """Return a DATA entry."""
    return Entry(index, term, EntryKind.DATA, data)


def log_of(*terms: int) -> tuple[Entry, ...]:
    """Return entries with these terms, from index 1."""
    return tuple(entry(index, term) for index, term in enumerate(terms, 1))


def bodies(sent: Iterable[Envelope], kind: type[Body] | None = None) -> list[Body]:
    """Return the bodies, of one kind if given."""
    return [e.body for e in sent if kind is None or isinstance(e.body, kind)]

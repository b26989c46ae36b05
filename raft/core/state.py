"""What the rules of one replica share: persistent state, role, and what waits to be sent."""

from collections.abc import Callable

import msgspec

from raft.core.backlog import Backlog
from raft.core.log_end import LogEnd
from raft.core.membership import Members, is_member
from raft.core.read_index import LocalReads
from raft.types import (
    Body,
    Envelope,
    GroupId,
    HardState,
    NodeId,
    ReadReply,
    ReadState,
    Role,
)


class CoreConfig(msgspec.Struct, frozen=True):
    """Who a replica is, and its limits. Times are in ticks of 5 ms (`TICK_MS`)."""

    node: NodeId
    group: GroupId
    heartbeat_ticks: int = 10
    election_ticks: int = 80
    """A follower campaigns after election_ticks + random(election_ticks) without its leader."""
    campaign_ticks: int = 20
    """A campaign is repeated after this, plus as much at random; doubled up to election_ticks."""
    early_delay_ticks: int = 3
    """Times the rank: how long a follower with evidence of its leader's death waits."""
    early_window_ticks: int = 10
    """How long a denied early pre-vote may still be granted."""
    rear_ticks: int = 1
    """A follower that no majority waits for gets Appends once in so many ticks; 0: at once."""
    commit_stride_entries: int = 64
    """How far the commit index on disk may lag. A record for every batch would cost as much as the
    batch's own; a node that restarts applies that much less before it hears of its leader."""
    append_bytes_max: int = 1 << 20
    """Of the data in one Append; a single entry may exceed it."""
    inflight_bytes_max: int = 16 << 20
    """Of the data sent to one follower and not yet acknowledged."""
    inflight_messages_max: int = 256
    """Appends sent to one follower and not yet acknowledged."""
    backlog_bytes_max: int = 64 << 20
    """Of proposed data that is not yet committed and applied here: then Busy."""
    unsynced_bytes_max: int = 64 << 20
    """Of data received and not yet durable here: further Appends are dropped."""
    recent_bytes_max: int = 32 << 20
    """Of recent entries kept in memory for followers and apply; half of it stays at least."""
    apply_lag_entries_max: int = 1024
    """By which a quorum's applied index may be behind the commit index: then Busy."""
    entry_bytes_max: int = 16 << 20
    """Of one proposal."""
    reads_pending_max: int = 1024
    """Linearizable reads that wait for their index, for each replica that asked."""
    snapshot_wait_ticks: int = 24_000
    """How long a follower may take to install a snapshot that was sent, before a new try."""


class Counters(msgspec.Struct):
    """What was dropped and why, and what elections did: for metrics and tests. Only grow."""

    foreign_group: int = 0
    misaddressed: int = 0
    malformed: int = 0
    stale_term: int = 0
    retired_sender: int = 0
    stranger: int = 0
    """From who is no member: answers always, the rest while a leader is believed to live."""
    unexpected: int = 0
    """Fits no state: mostly late replies."""
    in_lease: int = 0
    """Requests for votes ignored since the leader lives."""
    overload: int = 0
    """Appends dropped since the disk cannot follow."""
    id_reused: int = 0
    """Signs that this id had another log before: it is called a voter, or to have matched what
    is not here."""
    campaigns: int = 0
    early_campaigns: int = 0
    elections_won: int = 0
    snapshots_offered: int = 0


class State:
    """Of one replica. Term, vote and log are what Raft figure 2 calls persistent."""

    __slots__ = (
        "applied",
        "commit",
        "config",
        "counters",
        "is_installing",
        "is_writable",
        "leader",
        "local_reads",
        "log",
        "members",
        "messages",
        "node",
        "now",
        "random",
        "reads",
        "role",
        "synced",
        "term",
        "unsynced",
        "vote",
    )

    def __init__(
        self,
        config: CoreConfig,
        log: LogEnd,
        members: Members,
        hard_state: HardState,
        applied: int,
        random: Callable[[int], int],
    ) -> None:
        self.config = config
        self.node = config.node
        self.log = log
        self.members = members
        self.random = random
        self.term = max(hard_state.term, log.last_term)
        self.vote = hard_state.vote if self.term == hard_state.term else None
        self.commit = min(max(hard_state.commit, applied), log.last_index)
        self.applied = applied
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.is_writable = True
        self.is_installing = False
        """A snapshot is being installed: the log must not move."""
        self.now = 0
        """Ticks since the start."""
        self.counters = Counters()
        self.messages: list[Envelope] = []
        self.synced: list[Envelope] = []
        """To be sent after what they claim is durable."""
        self.unsynced = Backlog()
        self.local_reads = LocalReads(config.reads_pending_max)
        self.reads: list[ReadState] = []

    def send(self, to: NodeId, body: Body, term: int | None = None) -> None:
        """Send what promises nothing about this disk; the term is the own unless given."""
        group = self.config.group
        self.messages.append(
            Envelope(group, self.node, to, self.term if term is None else term, body)
        )

    def send_synced(self, to: NodeId, body: Body) -> None:
        """Send once everything before this call is durable."""
        self.synced.append(Envelope(self.config.group, self.node, to, self.term, body))

    def commit_to(self, index: int) -> None:
        """The entries up to `index`, which are here, are committed."""
        self.commit = max(self.commit, index)

    def answer_read(self, asker: NodeId, request: int, index: int) -> None:
        """Give a confirmed read index to whoever asked."""
        if asker != self.node:
            self.send(asker, ReadReply(request, index))
        elif self.local_reads.remove(request):
            self.reads.append(ReadState(request, index))

    def is_named(self) -> bool:
        """Return whether a configuration calls this node a member: the one in force, or the last
        committed one, since its removal may yet be undone.

        A replica that was never told so does not vote (raft/design.md, Identity).
        """
        members = self.members
        if is_member(members.current, self.node):
            return True
        return members.index > self.commit and is_member(members.at(self.commit), self.node)

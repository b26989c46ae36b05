"""State that the rules of one replica share: term, vote, log, role, and messages to send."""

from collections.abc import Callable

import msgspec

from raft.core.backlog import Backlog
from raft.core.log_end import LogEnd
from raft.core.membership import Members, is_member, is_retired
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
    """The identity of a replica, and its limits. Times are in ticks of 5 ms (`TICK_MS`)."""

    node: NodeId
    group: GroupId
    heartbeat_ticks: int = 10
    idle_heartbeat_ticks: int = 20
    """The same while there is nothing to replicate and every follower answers, since a heartbeat
    wakes up all nodes. With `ticks_at_once_max` it stays well below election_ticks."""
    election_ticks: int = 80
    """A follower campaigns after election_ticks + random(election_ticks) without its leader."""
    campaign_ticks: int = 20
    """A campaign is repeated after this plus random(this), doubled each time up to
    election_ticks."""
    early_delay_ticks: int = 3
    """A follower with evidence of its leader's death waits for its rank times this."""
    early_window_ticks: int = 10
    """How long an early pre-vote may be held before it is denied."""
    rear_ticks: int = 1
    """A follower that no majority waits for gets Appends every so many ticks; 0: at once."""
    commit_stride_entries: int = 64
    """How far the commit index on disk may lag. Recording it with every batch would cost as much as
    the batch; a node that restarts applies so much less before it hears from its leader."""
    append_bytes_max: int = 1 << 20
    """Data in one Append; a single entry may exceed it."""
    inflight_bytes_max: int = 16 << 20
    """Data sent to one follower and not yet acknowledged."""
    inflight_messages_max: int = 256
    """Appends sent to one follower and not yet acknowledged."""
    backlog_bytes_max: int = 64 << 20
    """Proposed data that is not yet committed and applied here; beyond this, Busy."""
    unsynced_bytes_max: int = 64 << 20
    """Data received and not yet durable here; beyond this, Appends are dropped."""
    recent_bytes_max: int = 32 << 20
    """Recent entries kept in memory for followers and apply; at least half of it stays."""
    apply_lag_entries_max: int = 1024
    """How far the applied index of the leader or of a majority may be behind the commit index;
    beyond this, Busy. A follower that is behind by more stands back in elections."""
    apply_lead_entries_max: int = 4096
    """How far a leader commits ahead of what it has applied itself, and sends entries to a follower
    ahead of what that one has applied."""
    entry_bytes_max: int = 16 << 20
    """Size of one proposal."""
    reads_pending_max: int = 1024
    """Linearizable reads that wait for their index, for each replica that asked."""
    snapshot_wait_ticks: int = 24_000
    """How long a follower may take to install a snapshot before another one is sent."""

    def heartbeat_interval(self, *, is_idle: bool) -> int:
        """Return the ticks between two rounds of heartbeats."""
        return self.idle_heartbeat_ticks if is_idle else self.heartbeat_ticks

    @property
    def ticks_at_once_max(self) -> int:
        """How many ticks count at once: a follower that hears heartbeats in time need not wake up
        between them.
        """
        return self.idle_heartbeat_ticks * 3 // 2


class Counters(msgspec.Struct):
    """Counts of dropped messages and of elections, for metrics and tests. They only grow."""

    foreign_group: int = 0
    misaddressed: int = 0
    malformed: int = 0
    stale_term: int = 0
    retired_sender: int = 0
    stranger: int = 0
    """From non-members: answers always, the rest while a leader is believed to be alive."""
    unexpected: int = 0
    """Messages that fit no state, mostly late replies."""
    in_lease: int = 0
    """Requests for votes ignored because the leader is alive."""
    overload: int = 0
    """Appends dropped because the disk cannot keep up."""
    id_reused: int = 0
    """Signs that this id had another log before: others take it for a voter, or believe that it
    holds entries that it does not."""
    contradicted: int = 0
    """Appends refused because they had other entries than those that are committed here."""
    campaigns: int = 0
    early_campaigns: int = 0
    elections_won: int = 0
    snapshots_offered: int = 0


class RolledBack(msgspec.Struct, frozen=True, gc=False):
    """A replica was found not to hold what it once acknowledged."""

    node: NodeId
    owed: int
    """It held committed entries up to here."""
    last_index: int
    """Now it holds entries up to here at most."""


class State:
    """The state of one replica. Term, vote and log are persistent (Raft figure 2)."""

    __slots__ = (
        "agreed",
        "applied",
        "commit",
        "compared_term",
        "config",
        "counters",
        "held",
        "is_installing",
        "is_standing_back",
        "is_writable",
        "leader",
        "local_reads",
        "log",
        "members",
        "messages",
        "node",
        "now",
        "owed",
        "random",
        "reads",
        "refused",
        "role",
        "rolled_back",
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
        """A snapshot is being installed: the log must not change."""
        self.is_standing_back = False
        """The operator wants another replica to lead."""
        self.owed = 0
        """This replica acknowledged committed entries up to here; see `owes`."""
        self.compared_term = 0
        """Of the leader that this process has compared its log with."""
        self.agreed = 0
        """The log is that leader's up to here; see `agrees_to`."""
        self.refused: int | None = None
        """The last Append did not fit: the logs agree up to here at most."""
        self.held: dict[NodeId, int] = {}
        """By member: up to where it is known to hold what is committed, since this node led."""
        self.rolled_back: list[RolledBack] = []
        """Discoveries to report."""
        self.now = 0
        """Ticks since the start."""
        self.counters = Counters()
        self.messages: list[Envelope] = []
        self.synced: list[Envelope] = []
        """Messages to send once what they claim is durable."""
        self.unsynced = Backlog()
        self.local_reads = LocalReads(config.reads_pending_max)
        self.reads: list[ReadState] = []

    def send(self, to: NodeId, body: Body, term: int | None = None) -> None:
        """Send a message that promises nothing about this disk; `term` defaults to the own."""
        group = self.config.group
        self.messages.append(
            Envelope(group, self.node, to, self.term if term is None else term, body)
        )

    def send_synced(self, to: NodeId, body: Body) -> None:
        """Send a message once everything before this call is durable."""
        self.synced.append(Envelope(self.config.group, self.node, to, self.term, body))

    def commit_to(self, index: int) -> None:
        """Note that the entries up to `index`, which are here, are committed."""
        self.commit = max(self.commit, index)

    def agree(self, index: int) -> None:
        """Note that the log is the leader's up to `index`."""
        self._compare()
        self.agreed = max(self.agreed, index)
        self.refused = None

    def refuse(self, index: int) -> None:
        """Note that the log is not the leader's behind `index`."""
        self._compare()
        self.refused = index

    def _compare(self) -> None:
        if self.compared_term != self.term:
            self.compared_term = self.term
            self.agreed = 0
            self.refused = None

    def agrees_to(self, index: int) -> bool:
        """Return whether the log is known to be the leader's up to `index`.

        An entry of its term is its own, with all before (Raft 5.3, log matching).
        """
        if self.compared_term == self.term and index <= self.agreed:
            return True
        return index <= self.commit or self.log.matches(index, self.term)

    def agreed_at_most(self) -> int:
        """Return up to where the log can be the leader's."""
        last = self.log.last_index
        if self.refused is None or self.compared_term != self.term:
            return last
        return min(last, self.refused)

    def lags(self) -> bool:
        """Return whether far more is committed than this replica has applied."""
        return self.commit - self.applied > self.config.apply_lag_entries_max

    def owes(self) -> bool:
        """Return whether this replica lacks entries that it acknowledged: its disk was rolled back.

        It neither votes nor campaigns then: a majority with it may be none.
        """
        return self.owed > self.commit

    def stands_back(self) -> bool:
        """Return whether this replica leaves elections to others as long as one of them can win."""
        return self.is_standing_back or self.lags()

    def is_from_retired(self, sender: NodeId) -> bool:
        """Return whether a committed configuration retires the sender; before, it may lead."""
        members, commit = self.members, self.commit
        configuration = members.current if members.index <= commit else members.at(commit)
        return not is_member(configuration, sender) and is_retired(configuration, sender)

    def knows(self, sender: NodeId) -> bool:
        """Return whether the sender is a member in the configuration in force, or in the last
        committed one, since a removal may still be undone. To a replica that no configuration
        names, every sender is known.
        """
        members = self.members
        if is_member(members.current, sender) or not self.is_named():
            return True
        return members.index > self.commit and is_member(members.at(self.commit), sender)

    def answer_read(self, asker: NodeId, request: int, index: int) -> None:
        """Give the asker its confirmed read index."""
        if asker != self.node:
            self.send(asker, ReadReply(request, index))
        elif self.local_reads.remove(request):
            self.reads.append(ReadState(request, index))

    def is_named(self) -> bool:
        """Return whether this node is a member in the configuration in force, or in the last
        committed one, since its removal may still be undone.

        A replica that no configuration names does not vote (raft/design.md, Identity).
        """
        members = self.members
        if is_member(members.current, self.node):
            return True
        return members.index > self.commit and is_member(members.at(self.commit), self.node)

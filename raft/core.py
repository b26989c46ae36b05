"""One replica's consensus: a pure function of (state, input) that yields `Ready` values.

No clock, random or I/O: ticks are counted, the random generator is injected, the log is read
through `LogView`. Bad input from the network is counted (`Core.counters`) and dropped; it
never raises. The rules and their reasons are in raft/design.md.
"""

from collections.abc import Callable, Sequence

import msgspec

from raft.log_view import LogView
from raft.membership import MemberChange
from raft.transport import PeerState
from raft.types import (
    Configuration,
    Envelope,
    GroupId,
    HardState,
    NodeId,
    Ready,
    Role,
    SnapshotMeta,
)

TICK_MS = 5
"""The length of a tick that the defaults of `CoreConfig` assume."""


class NotLeader(Exception):
    """Only the leader can do this; `leader` is who leads now, None if unknown."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__(f"not the leader; ask {leader}" if leader else "no leader is known")
        self.leader = leader


class Busy(Exception):
    """A limit is reached or a transfer is under way; the text says which. Try again later."""


class CoreConfig(msgspec.Struct, frozen=True):
    """Who a replica is, and its limits. Times are in ticks of 5 ms."""

    node: NodeId
    group: GroupId
    heartbeat_ticks: int = 10
    election_ticks: int = 80
    """A follower campaigns after election_ticks + random(election_ticks) without its leader."""
    early_delay_ticks: int = 3
    """Times the rank: how long a follower with evidence of its leader's death waits."""
    early_window_ticks: int = 10
    """How long a denied early pre-vote may still be granted."""
    append_bytes_max: int = 1 << 20
    """Of the data in one Append; a single entry may exceed it."""
    inflight_bytes_max: int = 16 << 20
    """Of the data sent to one follower and not yet acknowledged."""
    inflight_messages_max: int = 256
    """Appends sent to one follower and not yet acknowledged."""
    backlog_bytes_max: int = 64 << 20
    """Of proposed data that is not yet committed, or not yet applied here: then Busy."""
    apply_lag_entries_max: int = 1024
    """By which a quorum's applied index may be behind the commit index: then Busy."""
    entry_bytes_max: int = 16 << 20
    """Of one proposal."""
    tail_bytes_max: int = 64 << 20
    """Of recent entries kept in memory, for followers and apply."""
    reads_pending_max: int = 1024
    """Linearizable reads that wait for their index, from here and from each follower."""


class Counters(msgspec.Struct):
    """What was dropped and why, for metrics and tests. Only ever grows."""

    foreign_group: int = 0
    misaddressed: int = 0
    malformed: int = 0
    stale_term: int = 0
    retired_sender: int = 0


class Core:
    """See the module's docstring. Inputs may be called in any order; drain `ready` after."""

    def __init__(
        self,
        config: CoreConfig,
        log: LogView,
        hard_state: HardState,
        configuration: Configuration,
        applied: int,
        random: Callable[[int], int],
        history: Sequence[tuple[int, Configuration]] = (),
    ) -> None:
        """Start as a follower. `configuration` holds at the log's start and `history` has the
        later ones that the log contains, as (index, configuration), oldest first. Everything
        in `log` is durable. `random(n)` returns 0..n-1.
        """
        raise NotImplementedError

    def tick(self, count: int = 1) -> None:
        """`count` ticks passed. A late caller passes them all: no call advances an election
        by more than a heartbeat interval, so that what waits in sockets is read first.
        """
        raise NotImplementedError

    def ticks_until_due(self) -> int:
        """Return after how many ticks `tick` will have something to do, at least 1."""
        raise NotImplementedError

    def receive(self, envelope: Envelope) -> None:
        """Take a message from a peer."""
        raise NotImplementedError

    def propose(self, data: bytes) -> int:
        """Append a DATA entry; return its index. It holds the current term: if an entry of
        another term is applied at that index, the proposal is lost.

        Raises NotLeader, Busy, or ValueError above `entry_bytes_max`.
        """
        raise NotImplementedError

    def change_members(self, change: MemberChange) -> int:
        """Append a CONFIG entry; return its index. Raises NotLeader, Busy, BadChange."""
        raise NotImplementedError

    def transfer(self, to: NodeId) -> None:
        """Hand leadership to a voter. Raises NotLeader, or Busy if it cannot take it now.

        Proposals are refused until it is done or an election timeout has passed.
        """
        raise NotImplementedError

    def read(self, request: int) -> None:
        """Ask for a linearizable read; `Ready.reads` answers with the same number.

        Works on every replica; without a leader it waits for one. Raises Busy.
        """
        raise NotImplementedError

    def cancel_read(self, request: int) -> None:
        """Forget a read."""
        raise NotImplementedError

    def peer(self, peer: NodeId, state: PeerState) -> None:
        """The own connection to a peer changed."""
        raise NotImplementedError

    def stable(self, index: int, term: int) -> None:
        """The log is durable up to the entry (index, term)."""
        raise NotImplementedError

    def unwritten(self, ready: Ready) -> None:
        """Steps 2 to 5 of `ready` could not be done (disk full): they will be handed out
        again, after `writable(True)`.
        """
        raise NotImplementedError

    def writable(self, is_writable: bool) -> None:
        """While False, `ready` asks for nothing to be written, and this replica refuses
        proposals and does not campaign.
        """
        raise NotImplementedError

    def resign(self) -> None:
        """Stop leading, handing over to the best follower if there is one."""
        raise NotImplementedError

    def applied(self, index: int) -> None:
        """The state machine contains everything up to `index`."""
        raise NotImplementedError

    def offer_snapshot(self, to: NodeId, meta: SnapshotMeta) -> None:
        """A snapshot for a follower in `Ready.snapshots_wanted` begins to be sent."""
        raise NotImplementedError

    def snapshot_done(self, to: NodeId, is_whole: bool) -> None:
        """The sending of a snapshot ended."""
        raise NotImplementedError

    def snapshot_received(self, meta: SnapshotMeta) -> None:
        """All bytes of a snapshot are here; `Ready.snapshot` will ask to install it."""
        raise NotImplementedError

    def compacted(self) -> None:
        """The log dropped a prefix; the configurations known for it are forgotten."""
        raise NotImplementedError

    def has_ready(self) -> bool:
        """Return whether `ready` has anything to say."""
        raise NotImplementedError

    def ready(self) -> Ready:
        """Drain what is to be done. The caller must do it in the order that Ready states."""
        raise NotImplementedError

    @property
    def role(self) -> Role:
        """Of this replica."""
        raise NotImplementedError

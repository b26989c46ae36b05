"""Values that enter and leave the consensus core. Pure data: no clock, randomness or I/O.

Everything that names a replica carries the id of its group, so that one process can later
run many groups. Terms and indexes are unsigned 64-bit numbers; index 0 and term 0 mean
"before the first entry".
"""

from enum import IntEnum
from typing import TypeAlias

import msgspec

GroupId: TypeAlias = int
"""A Raft group, unsigned 32 bits. The queue manager is group 1."""

NodeId: TypeAlias = str
"""`name.incarnation`, for example `n1.3`. A node that lost its log returns with the next
incarnation: an id that ever voted is never used with an empty log (raft/design.md, Identity)."""


class EntryKind(IntEnum):
    """What an entry's data means to the core; the state machine sees only DATA."""

    NOOP = 0
    DATA = 1
    CONFIG = 2


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record of the replicated log."""

    index: int
    term: int
    kind: EntryKind
    data: bytes
    """Opaque for DATA (usually a `raft.batch`), an encoded `Configuration` for CONFIG."""


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What a replica must store durably before it answers (Raft figure 2)."""

    term: int = 0
    vote: NodeId | None = None
    commit: int = 0
    """May lag. Lies below the entries that are written along with it, since a crash may lose them
    and keep it."""


class Configuration(msgspec.Struct, frozen=True, gc=False):
    """The members of a group. Each id is in one of the two sets, never in both."""

    voters: tuple[NodeId, ...]
    """Sorted. They vote, and a majority of them commits."""
    learners: tuple[NodeId, ...] = ()
    """Sorted. They replicate and never vote."""
    retired: tuple[NodeId, ...] = ()
    """Sorted. Ids that were members once and must never be members again."""


class SnapshotMeta(msgspec.Struct, frozen=True, gc=False):
    """The prefix of the log that a snapshot replaces."""

    index: int
    term: int
    configuration: Configuration
    size_bytes: int
    """Length of the stream that `SnapshotSource.read` serves."""
    identity: bytes = b""
    """Identifies that stream; b"" from a build that does not send it. Not in the log."""


class Role(IntEnum):
    """The role of a replica within its group."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


# Bodies of messages. `Envelope.term` is the sender's term (for PreVote: the term it would
# campaign in), so no body repeats it.


class PreVote(msgspec.Struct, frozen=True, gc=False):
    """Asks whether the sender may campaign, without raising any term (Raft thesis 9.6)."""

    last_index: int
    last_term: int
    is_early: bool
    """The sender has evidence that the leader died. A voter grants such a request only if its
    own connection to the leader is gone as well (DESIGN section 3, Early campaigns)."""


class PreVoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to PreVote."""

    granted: bool
    is_early: bool


class Vote(msgspec.Struct, frozen=True, gc=False):
    """Request for a vote (Raft 5.2, 5.4.1)."""

    last_index: int
    last_term: int
    is_transfer: bool
    """The leader itself asked for this campaign: the lease of votes does not apply."""


class VoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to Vote."""

    granted: bool


class Append(msgspec.Struct, frozen=True, gc=False):
    """Replicates the entries that follow (prev_index, prev_term) (Raft 5.3)."""

    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]
    read_context: int = 0
    """Number of the newest read barrier that the reply confirms; 0 = none."""


class AppendReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to Append. Sent only once the entries that it accepts are durable."""

    match_index: int
    """Accepted: the last index known to be equal and durable. Rejected: 0."""
    is_rejected: bool
    hint_index: int
    """Rejected: a place where the logs may still agree, with its term."""
    hint_term: int
    applied_index: int
    """Lets the leader throttle proposals (DESIGN section 4, Bounded steps)."""
    read_context: int = 0
    rejected_index: int = 0
    """Rejected: the `prev_index` that was refused, so that a late reply is recognized."""


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """The leader is alive; `commit` is never above the follower's match index."""

    commit: int
    read_context: int


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to Heartbeat."""

    read_context: int
    applied_index: int


class InstallSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Offers a snapshot; its bytes follow in chunks on a stream of their own, which can resume."""

    meta: SnapshotMeta


class SnapshotReply(msgspec.Struct, frozen=True, gc=False):
    """The follower has installed the snapshot durably, or refuses it."""

    index: int
    is_installed: bool


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """Leader transfer: campaign at once (Raft thesis 3.10)."""


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """A follower asks for a read index (Raft thesis 6.4)."""

    request: int


class ReadReply(msgspec.Struct, frozen=True, gc=False):
    """`index` may be served once the follower has applied it; 0 = ask again."""

    request: int
    index: int


Body: TypeAlias = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | SnapshotReply
    | TimeoutNow
    | ReadRequest
    | ReadReply
)


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A message between two replicas of one group."""

    group: GroupId
    sender: NodeId
    to: NodeId
    term: int
    body: Body


class ReadState(msgspec.Struct, frozen=True, gc=False):
    """The linearizable read with this number may be served once `index` is applied."""

    request: int
    index: int


class SoftState(msgspec.Struct, frozen=True, gc=False):
    """State for observers; never persisted."""

    role: Role
    leader: NodeId | None
    term: int


class Ready(msgspec.Struct, frozen=True, gc=False):
    """What a driver must do, in this order. The core assumes that all of it is done.

    1. Install `snapshot` if there is one (the log restarts behind it).
    2. Append `hard_state` and `entries` to the log, in this order. If `entries[0]` lies at or
       below the last index, the log is truncated there first.
    3. Send `messages`, which may be done before 1 and 2. They promise nothing about this replica's
       disk: a leader sends entries before its own fsync ends, and counts itself towards the
       majority only after `Core.stable`.
    4. Make the log durable if `must_sync`; batches may share one sync.
    5. After that sync, and in order: tell the core (`Core.stable`), send `messages_after_sync`.
    6. Apply entries up to min(`commit`, own durable index), in order; tell the core
       (`Core.applied`). Steps 1 to 5 of the next Ready need not wait for it.
    7. Answer `reads` whose index is applied.
    """

    snapshot: SnapshotMeta | None
    hard_state: HardState | None
    entries: tuple[Entry, ...]
    must_sync: bool
    messages: tuple[Envelope, ...]
    messages_after_sync: tuple[Envelope, ...]
    commit: int
    reads: tuple[ReadState, ...]
    soft_state: SoftState | None
    """Given only when it changed."""
    snapshots_wanted: tuple[NodeId, ...] = ()
    """Followers that need a snapshot: make one, tell the core (`Core.offer_snapshot`), send it."""


class PeerState(IntEnum):
    """What this node's own connection to a peer tells about the peer."""

    CONNECTED = 0
    LOST = 1
    """The stream broke. This alone proves nothing: a live peer's connection may be reset."""
    REFUSED = 2
    """The stream broke and a new connection was refused: evidence that the process is gone."""


SNAPSHOT_REFUSED = -1
"""The offset wanted by a receiver that refuses the snapshot (it is stale or damaged)."""

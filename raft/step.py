"""What a replica takes and returns: settings, alarms, the values of one `poll`."""

from enum import IntEnum
from typing import Generic, TypeVar

import msgspec

from raft.core.core import CoreConfig, Counters, FollowerStatus
from raft.log.log import LogConfig
from raft.log_view import SyncToken
from raft.picture import SnapshotSend
from raft.snapshot import SnapshotReceiver
from raft.types import Configuration, EntryKind, Envelope, NodeId, Role, SnapshotMeta, SoftState

ResultT = TypeVar("ResultT")


class ReplicaConfig(msgspec.Struct, frozen=True):
    """Settings of a replica."""

    core: CoreConfig
    cluster: bytes
    """16 bytes, the same on every node of a cluster and in no other."""
    apply_batch_bytes: int = 1 << 20
    """Bytes of entries applied in one `poll`."""
    apply_batch_entries: int = 64
    """Entries applied in one `poll`. Even small ones may take long, and a node that catches up must
    receive messages and vote meanwhile."""
    log_retain_bytes: int = 256 << 20
    """Applied entries kept for followers that lag; those further behind get a snapshot."""
    segment_bytes: int = 64 << 20
    """Size of one file of the log."""
    stuck_ticks: int = 200
    """A leader that cannot write or sync for this long hands over (DESIGN section 6)."""
    late_ticks: int = 1000
    """A replica that has lagged for this long is late: it says so, and a leader hands over."""
    picture_idle_ticks: int = 6000
    """How long an unused snapshot is kept for a transfer that resumes."""

    def log_config(self, salt: int) -> LogConfig:
        """Return the settings of the log; `salt` is used only when the log is created."""
        return LogConfig(self.core.group, salt, segment_bytes=self.segment_bytes)


class AlarmKind(IntEnum):
    """Events that an operator must learn of."""

    DISK_FULL = 0
    DISK_ROOM = 1
    """Space has returned after DISK_FULL or DISK_SHORT."""
    RETIRED = 2
    """This id is no longer a member: remove its data, join with the next incarnation."""
    ID_REUSED = 3
    """This id voted before this log existed. It must leave, as after the loss of its disk."""
    SNAPSHOT_BAD = 4
    """A received snapshot failed its verification and was dropped."""
    STUCK = 5
    """The disk did not write or sync for `stuck_ticks`; leadership was handed over."""
    DISK_SHORT = 6
    """There is no space for the log's next segment; the current one can still be filled."""
    DESCRIPTORS_SHORT = 7
    """Too many files are open to write what is needed; DISK_ROOM ends this as well."""
    APPLY_LAGS = 8
    """For `late_ticks` far more has been committed than this replica has applied."""
    ROLLED_BACK = 9
    """This replica lacks committed entries that it acknowledged: its disk is an older copy."""
    PEER_ROLLED_BACK = 10
    """The same of another replica, as its leader found."""
    CONTRADICTED = 11
    """A leader has other entries than those that are committed here; they are not taken."""


class Alarm(msgspec.Struct, frozen=True):
    """An event for the operator."""

    kind: AlarmKind
    text: str


class AppliedEntry(msgspec.Struct, Generic[ResultT], frozen=True, gc=False):
    """One applied entry. Every index appears once, in order; only DATA has a `result`.

    A proposal is lost when its index appears with another term.
    """

    index: int
    term: int
    kind: EntryKind
    result: ResultT | None


class Install:
    """Makes a received snapshot the state, which may take long. Run it once, in any thread."""

    __slots__ = ("_receiver", "error", "meta")

    def __init__(self, receiver: SnapshotReceiver, meta: SnapshotMeta) -> None:
        self._receiver = receiver
        self.meta = meta
        self.error: ValueError | None = None
        """Set by `run` when the bytes failed the verification."""

    def run(self) -> None:
        """Verify the snapshot and make it durable. An OSError ends the process."""
        try:
            self._receiver.finish()
        except ValueError as error:
            self.error = error


class Step(msgspec.Struct, Generic[ResultT], frozen=True):
    """What the caller does after one `poll`: first send `messages` (others came earlier from
    `Replica.outgoing`), then start `sync`.
    """

    messages: tuple[Envelope, ...] = ()
    sync: SyncToken | None = None
    """Run it (in a thread, or at once), then call `Replica.sync_done(sync)`; an error ends the
    process. No other sync is handed out before that."""
    install: Install | None = None
    """Run it (in a thread, or at once), then call `Replica.install_done(install)`."""
    snapshots: tuple[SnapshotSend, ...] = ()
    results: tuple[AppliedEntry[ResultT], ...] = ()
    restored_index: int = 0
    """If not 0, a snapshot brought the state there; the results of older proposals are unknown."""
    reads: tuple[int, ...] = ()
    """Numbers from `Replica.read` whose index is applied: serve them now."""
    soft_state: SoftState | None = None
    """Given only when it changed."""
    configuration: Configuration | None = None
    """Given only when it changed; in force at once (connect to its members)."""
    alarms: tuple[Alarm, ...] = ()


class ReplicaStatus(msgspec.Struct, frozen=True):
    """State for observers."""

    role: Role
    term: int
    leader: NodeId | None
    commit: int
    applied: int
    durable: int
    first_index: int
    last_index: int
    is_short_of_space: bool
    """True from DISK_SHORT until there is space."""
    applies_late: bool
    """True from APPLY_LAGS until it has caught up."""
    owed: int
    """Not 0 from ROLLED_BACK until it has got back what it lacks: the last index of that."""
    owing_followers: tuple[NodeId, ...]
    """Those of PEER_ROLLED_BACK that have not got back everything yet."""
    configuration: Configuration
    configuration_index: int
    """Of the entry that made it: above `commit` it may still be replaced."""
    followers: tuple[FollowerStatus, ...]
    counters: Counters

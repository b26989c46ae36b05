"""What a replica is given and what it gives back: settings, alarms, the values of one `poll`."""

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
    """Of entries applied in one `poll`."""
    apply_batch_entries: int = 64
    """Small ones may be dear: who catches up must hear and vote meanwhile."""
    log_retain_bytes: int = 256 << 20
    """Of applied entries kept for followers that lag; beyond it they get a snapshot."""
    segment_bytes: int = 64 << 20
    """Of a file of the log."""
    stuck_ticks: int = 200
    """A leader that can not write or sync for this long hands over (DESIGN section 6)."""
    picture_idle_ticks: int = 6000
    """How long an unused snapshot is kept for a transfer that resumes."""

    def log_config(self, salt: int) -> LogConfig:
        """Return the settings of the log; `salt` matters when it is made."""
        return LogConfig(self.core.group, salt, segment_bytes=self.segment_bytes)


class AlarmKind(IntEnum):
    """What an operator must hear of."""

    DISK_FULL = 0
    DISK_ROOM = 1
    """Space has returned after DISK_FULL or DISK_SHORT."""
    RETIRED = 2
    """This id is no longer a member: remove its data, join with the next incarnation."""
    ID_REUSED = 3
    """This id voted before this log existed. It must leave, as after a loss of its disk."""
    SNAPSHOT_BAD = 4
    """A received snapshot did not prove itself and was dropped."""
    STUCK = 5
    """The disk did not write or sync for `stuck_ticks`; leadership was handed over."""
    DISK_SHORT = 6
    """There is no space for the log's next segment: writing goes on until this one is full."""
    DESCRIPTORS_SHORT = 7
    """Too many files are open for what must be written; DISK_ROOM follows it as well."""


class Alarm(msgspec.Struct, frozen=True):
    """An event for the operator."""

    kind: AlarmKind
    text: str


class AppliedEntry(msgspec.Struct, Generic[ResultT], frozen=True, gc=False):
    """One applied entry. Every index appears once, in order; `result` is None unless DATA.

    A proposal is lost when its index comes up with another term.
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
        """Set by `run` when the bytes did not prove themselves."""

    def run(self) -> None:
        """Verify and make durable. An OSError ends the process."""
        try:
            self._receiver.finish()
        except ValueError as error:
            self.error = error


class Step(msgspec.Struct, Generic[ResultT], frozen=True):
    """What the caller does with one `poll`: send `messages` first (`Replica.outgoing` gave others
    before), then start `sync`.
    """

    messages: tuple[Envelope, ...] = ()
    sync: SyncToken | None = None
    """Run it (in a thread, or at once), then call `Replica.sync_done(sync)`; an error ends the
    process. No further one is handed out before that."""
    install: Install | None = None
    """Run it (in a thread, or at once), then call `Replica.install_done(install)`."""
    snapshots: tuple[SnapshotSend, ...] = ()
    results: tuple[AppliedEntry[ResultT], ...] = ()
    restored_index: int = 0
    """Not 0: a snapshot put the state there; what older proposals came to is not known here."""
    reads: tuple[int, ...] = ()
    """Numbers from `Replica.read` whose state is applied: serve them now."""
    soft_state: SoftState | None = None
    """Only when it changed."""
    configuration: Configuration | None = None
    """Only when it changed; effective at once (connect to its members)."""
    alarms: tuple[Alarm, ...] = ()


class ReplicaStatus(msgspec.Struct, frozen=True):
    """For observers."""

    role: Role
    term: int
    leader: NodeId | None
    commit: int
    applied: int
    durable: int
    first_index: int
    last_index: int
    is_short_of_space: bool
    """Since DISK_SHORT, until there is space."""
    configuration: Configuration
    followers: tuple[FollowerStatus, ...]
    counters: Counters

"""One replica of one group: core, log, snapshots and state machine in step.

Synchronous and deterministic: production (raft.driver) and the simulator run exactly this.
Calls come from one thread; only `SyncToken.run` may run in another. Inputs are noted at once
and take effect in `poll`, which the caller repeats while `has_work`.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from raft.core import CoreConfig
from raft.files import Directory
from raft.log_view import SyncToken
from raft.machine import SnapshotSource, StateMachine
from raft.membership import MemberChange
from raft.transport import PeerState
from raft.types import (
    Configuration,
    EntryKind,
    Envelope,
    NodeId,
    SnapshotMeta,
    SoftState,
)

ResultT = TypeVar("ResultT")


class Hold(Protocol):
    """Keeps a part of the log from being dropped."""

    def release(self) -> None:
        """Give it up; once."""


class LogReader(Protocol):
    """What a state machine may ask of the log (DESIGN section 3, Bodies)."""

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Return bytes of the data of the entry at `index`, without reading its segment.

        Raises Compacted or Unavailable (raft.log_view).
        """

    def hold(self, index: int) -> Hold:
        """Keep entries from `index` on until the hold is released."""

    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        """Call `callback(first_index, last_index)` before a segment with these entries goes."""


class ReplicaConfig(msgspec.Struct, frozen=True):
    """Settings of a replica."""

    core: CoreConfig
    cluster: bytes
    """16 bytes, the same on every node of a cluster and in no other."""
    apply_batch_bytes: int = 4 << 20
    """Of entries applied in one `poll`."""
    log_retain_bytes: int = 256 << 20
    """Of applied entries kept for followers that lag; beyond it they get a snapshot."""
    stuck_ticks: int = 200
    """A leader that can not write or sync for this long hands over (DESIGN section 6)."""


class AlarmKind(IntEnum):
    """What an operator must hear of."""

    DISK_FULL = 0
    DISK_ROOM = 1
    """Space has returned after DISK_FULL."""
    RETIRED = 2
    """This id is no longer a member: remove its data, join with the next incarnation."""
    ID_REUSED = 3
    """This id voted before this log existed. It must leave, as after a loss of its disk."""
    SNAPSHOT_BAD = 4
    """A received snapshot did not prove itself and was dropped."""


class Alarm(msgspec.Struct, frozen=True):
    """An event for the operator."""

    kind: AlarmKind
    text: str


class Applied(msgspec.Struct, Generic[ResultT], frozen=True, gc=False):
    """One applied entry. Every index appears once, in order; `result` is None unless DATA.

    A proposal is lost when its index comes up with another term.
    """

    index: int
    term: int
    kind: EntryKind
    result: ResultT | None


class SnapshotSend(msgspec.Struct, frozen=True):
    """Stream `source` to a follower, close it, then call `Replica.snapshot_done`."""

    to: NodeId
    meta: SnapshotMeta
    source: SnapshotSource


class Step(msgspec.Struct, Generic[ResultT], frozen=True):
    """What the caller does with one `poll`: send `messages` first, then start `sync`."""

    messages: tuple[Envelope, ...]
    sync: SyncToken | None
    """Run it (in a thread, or at once), then call `Replica.sync_done(sync)`; an error ends the
    process. No further one is handed out before that."""
    snapshots: tuple[SnapshotSend, ...]
    results: tuple[Applied[ResultT], ...]
    reads: tuple[int, ...]
    """Numbers from `Replica.read` whose state is applied: serve them now."""
    soft_state: SoftState | None
    """Only when it changed."""
    configuration: Configuration | None
    """Only when it changed; effective at once (connect to its members)."""
    alarms: tuple[Alarm, ...]


class Replica(Generic[ResultT]):
    """See the module's docstring."""

    def __init__(
        self,
        config: ReplicaConfig,
        directory: Directory,
        machine_factory: Callable[[LogReader], StateMachine[ResultT]],
        random: Callable[[int], int],
    ) -> None:
        """Open what `create` made. Raises StartRefused, and what opening a log raises."""
        raise NotImplementedError

    @staticmethod
    def create(config: ReplicaConfig, directory: Directory, founders: Configuration) -> None:
        """Prepare an empty directory, once in the life of a node id.

        `founders` is the first configuration of a new cluster (the same on all of them), or an
        empty one for a node that will be added as a learner. Raises StartRefused unless empty.
        """
        raise NotImplementedError

    def tick(self, count: int = 1) -> None:
        """`count` ticks (5 ms each) passed."""
        raise NotImplementedError

    def ticks_until_due(self) -> int:
        """Return after how many ticks `tick` must be called at the latest."""
        raise NotImplementedError

    def receive(self, envelopes: Sequence[Envelope]) -> None:
        """Take messages from peers."""
        raise NotImplementedError

    def peer(self, peer: NodeId, state: PeerState) -> None:
        """The own connection to a peer changed."""
        raise NotImplementedError

    def propose(self, data: bytes) -> int:
        """Append a DATA entry in the current `term`; return its index.

        Raises NotLeader, Busy (raft.core), or ValueError when it is too large.
        """
        raise NotImplementedError

    def change_members(self, change: MemberChange) -> int:
        """Append a CONFIG entry; return its index. Raises NotLeader, Busy, BadChange."""
        raise NotImplementedError

    def transfer(self, to: NodeId) -> None:
        """Hand leadership over. Raises NotLeader, Busy."""
        raise NotImplementedError

    def read(self) -> int:
        """Begin a linearizable read; `Step.reads` returns its number. Raises Busy."""
        raise NotImplementedError

    def cancel_read(self, request: int) -> None:
        """Forget a read."""
        raise NotImplementedError

    def snapshot_chunk(self, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes) -> int:
        """Take a chunk; return the offset wanted next, `meta.size_bytes` when none is."""
        raise NotImplementedError

    def snapshot_done(self, to: NodeId, is_whole: bool) -> None:
        """The sending of a snapshot ended."""
        raise NotImplementedError

    def sync_done(self, sync: SyncToken) -> None:
        """`sync.run()` returned without error."""
        raise NotImplementedError

    def retry_after_full(self) -> None:
        """Space may have returned: write again what could not be written."""
        raise NotImplementedError

    def has_work(self) -> bool:
        """Return whether `poll` would do anything."""
        raise NotImplementedError

    def poll(self) -> Step[ResultT]:
        """Write, begin a sync, apply, and return what the caller must do."""
        raise NotImplementedError

    def close(self) -> None:
        """Close files. What was not synced is as after a crash."""
        raise NotImplementedError

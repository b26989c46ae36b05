"""One replica of one group: core, log, snapshots and state machine together.

Synchronous and deterministic: production (raft.driver) and the simulator run exactly this code.
All calls come from one thread; only `SyncToken.run` and `Install.run` may run in another. Inputs
are noted at once and take effect in `poll`, which the caller repeats while `has_work`.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

import msgspec

from raft import founding
from raft.core.core import Busy, Core
from raft.core.membership import MemberChange, decode_configuration, is_retired
from raft.log.files import Directory
from raft.log.log import LogFull, Sync
from raft.log.retention import Retention
from raft.log.segment import may_pass
from raft.log_view import SyncToken
from raft.machine import Hold, LogReader, StateMachine
from raft.outbox import Outbox
from raft.pace import ApplyPace
from raft.picture import SnapshotSend
from raft.snapshot import SnapshotReceiver
from raft.snapshot import recover as recover_install
from raft.step import Alarm, AlarmKind, AppliedEntry, Install, ReplicaConfig, ReplicaStatus, Step
from raft.transfers import Transfers
from raft.types import (
    SNAPSHOT_REFUSED,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    NodeId,
    PeerState,
    Ready,
    Role,
    SnapshotMeta,
)
from raft.watch.applying import ApplyWatch
from raft.watch.debt import Debt
from raft.watch.disk import Alarms, DiskWatch, Work

__all__ = [
    "Alarm",
    "AlarmKind",
    "AppliedEntry",
    "Hold",
    "Install",
    "LogReader",
    "Replica",
    "ReplicaConfig",
    "ReplicaStatus",
    "SnapshotSend",
    "StartRefused",
    "Step",
]

ResultT = TypeVar("ResultT")

IDLE_TICKS = 10
"""After so long without a sync, a mark says what is synced; before, the next entries say it."""
COMPACT_TICKS = 200
"""Time between two attempts to drop old entries of the log."""


class StartRefused(Exception):
    """State machine and log do not belong together; the text tells the operator what to do."""


class Replica(Generic[ResultT]):
    """One replica of one group; `poll` processes its inputs."""

    def __init__(
        self,
        config: ReplicaConfig,
        directory: Directory,
        machine_factory: Callable[[LogReader], StateMachine[ResultT]],
        random: Callable[[int], int],
    ) -> None:
        """Open what `create` made. Raises IdentityRefused (raft.identity), StartRefused, and
        what opening a log raises.
        """
        self._config = config
        self._node = config.core.node
        log_config = config.log_config(random(1 << 64))
        self._log = founding.open_log(directory, log_config, self._node, config.cluster)
        try:
            self._machine = machine_factory(self._log)
            recover_install(directory, self._log, self._machine)
        except BaseException:
            self._log.abandon()
            raise
        self.scrub = self._log.scrub  # reads the log's records back, and repairs them
        self._receiver = SnapshotReceiver(directory, self._machine)
        self._applied = self._checked_applied_index()
        configurations = founding.configurations(self._log)
        base = configurations[0][1] if configurations else Configuration(())
        self._core = Core(
            config.core,
            self._log,
            self._log.hard_state,
            base,
            self._applied,
            random,
            configurations,
        )
        self._configuration: Configuration | None = None
        self._now = 0
        self._outbox = Outbox()
        self._ready: Ready | None = None
        """What is to be done in the poll that `outgoing` has begun."""
        self._has_put_off_apply = False
        self.pace = ApplyPace(config.apply_batch_entries)
        self._is_unsettled = False
        """The state machine found no space for the work that it had put off."""
        self._needs_sync = False
        self._sync: Sync | None = None
        self._sync_since = self._synced_at = 0
        self._alarms = Alarms()
        self._disk = DiskWatch(self._alarms, config.stuck_ticks)
        self._applying = ApplyWatch(self._alarms, config.late_ticks)
        try:
            self._debt = Debt(directory, self._node, self._core, self._alarms, self._disk)
        except BaseException:
            self._log.abandon()
            raise
        self._install: Install | None = None
        self._new_install: Install | None = None
        self._restored_index = 0
        self._transfers = Transfers(config, self._core, self._log, self._machine)
        self._received: tuple[NodeId, SnapshotMeta, int] | None = None
        """The snapshot that is being received: its sender, itself, and the next offset."""
        self._received_at = 0
        # Never reuse a number of an earlier process: a late answer to it would be a stale read.
        self._next_read = random(1 << 62)
        self._reads: list[tuple[int, int]] = []
        self.retention = Retention(config.log_retain_bytes, self._log.last_index())
        self._compact_at = COMPACT_TICKS

    @staticmethod
    def create(
        config: ReplicaConfig,
        directory: Directory,
        founders: Configuration,
        random: Callable[[int], int],
    ) -> None:
        """Prepare an empty directory, once in the life of a node id.

        `founders` is the first configuration of a new cluster (the same on all of them), or an
        empty one for a node that will be added as a learner. Raises IdentityRefused unless the
        directory is empty, and what opening a log raises.
        """
        log_config = config.log_config(random(1 << 64))
        founding.create(directory, log_config, config.core.node, config.cluster, founders)

    def _checked_applied_index(self) -> int:
        applied = self._machine.applied_index()
        first, last = self._log.first_index(), self._log.last_index()
        if not first - 1 <= applied <= last:
            raise StartRefused(
                f"the state machine stands at {applied}, the log has {first} to {last}: one of "
                "them is not this node's; rejoin under the next incarnation"
            )
        return applied

    # Inputs

    def tick(self, count: int = 1) -> None:
        """Note that `count` ticks (5 ms each) passed."""
        # As in the core: a process that was stopped first reads what waits in its sockets.
        self._now += min(count, self._config.core.ticks_at_once_max)
        self._core.tick(count)
        self._watch_disk()
        self._watch_applying()
        self._transfers.tick(count)
        if self._now >= self._compact_at:
            self._compact_at = self._now + COMPACT_TICKS
            self._compact()
        if self._now - self._synced_at >= IDLE_TICKS:
            # Without a mark behind it, damage to what was synced last looks like a torn write.
            self._log.mark_synced()

    def ticks_until_due(self) -> int:
        """Return the number of ticks after which `tick` must be called at the latest."""
        core, is_syncing = self._config.core, self._sync is not None
        most = core.heartbeat_ticks if is_syncing else core.ticks_at_once_max
        due = min(self._core.ticks_until_due(), self._compact_at - self._now, most)
        if self._disk.is_full:
            due = min(due, self._disk.ticks_until_retry(self._now))
        return max(due, 1)

    def receive(self, envelopes: Sequence[Envelope]) -> None:
        """Process messages from peers."""
        receive = self._core.receive
        for envelope in envelopes:
            receive(envelope)

    def peer(self, peer: NodeId, state: PeerState) -> None:
        """Note that this node's own connection to a peer changed."""
        self._core.peer(peer, state)

    def propose(self, data: bytes) -> int:
        """Append a DATA entry in the current `term`; return its index.

        Raises NotLeader, Busy (raft.core.core), or ValueError when it is too large.
        """
        return self._core.propose(data)

    def change_members(self, change: MemberChange) -> int:
        """Append a CONFIG entry; return its index. Raises NotLeader, Busy, BadChange."""
        return self._core.change_members(change)

    def transfer(self, to: NodeId) -> None:
        """Hand leadership over. Raises NotLeader, BadChange, Busy."""
        self._core.transfer(to)

    def stand_back(self, is_standing_back: bool) -> None:
        """Say whether other replicas should lead; see `Core.stand_back`."""
        self._core.stand_back(is_standing_back)

    def read(self) -> int:
        """Begin a linearizable read and return its number, for `Step.reads`. Raises Busy.

        One read may serve many requests: share it among those that wait at the same time.
        """
        if len(self._reads) >= self._config.core.reads_pending_max:
            raise Busy("too many reads wait to be applied: reads_pending_max is reached")
        self._next_read += 1
        self._core.read(self._next_read)
        return self._next_read

    def cancel_read(self, request: int) -> None:
        """Forget a read."""
        self._core.cancel_read(request)

    def snapshot_chunk(self, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes) -> int:
        """Take a chunk; return the offset wanted next, as TransportEvents.on_snapshot_chunk."""
        if self._install is not None:
            return meta.size_bytes if meta == self._install.meta else SNAPSHOT_REFUSED
        if not self._core.wants_snapshot(sender, meta) or self._is_receiving_from_another(sender):
            return SNAPSHOT_REFUSED
        wanted = self._receiver.receive(sender, meta, offset, chunk)
        if (sender, meta, wanted) != self._received:
            self._received = (sender, meta, wanted)
            self._received_at = self._now
        if self._receiver.is_whole():
            self._begin_install()
        return wanted

    def _is_receiving_from_another(self, sender: NodeId) -> bool:
        """Return whether a snapshot from another sender is being received.

        A new leader sends its own while its predecessor still does. Taking chunks of both in turn
        would finish neither.
        """
        if self._received is None or self._received[0] == sender:
            return False
        return self._now - self._received_at < self._config.core.election_ticks

    def snapshot_done(self, to: NodeId, is_whole: bool) -> None:
        """Note that the sending of a snapshot ended; of several to one follower, the oldest."""
        self._transfers.ended(to, is_whole)

    def sync_done(self, sync: SyncToken) -> None:
        """Note that `sync.run()` returned without error."""
        if sync is not self._sync:
            raise ValueError("this sync is not outstanding")
        durable = self._log.end_sync(self._sync)
        self._sync = None
        self._synced_at = self._now
        self._core.stable(durable, self._log.term(durable))
        self._outbox.sync_ended()
        self._disk.note_short(self._log.is_short_of_space)

    def install_done(self, install: Install) -> None:
        """Note that `install.run()` returned."""
        if install is not self._install:
            raise ValueError("this install is not outstanding")
        self._install = self._received = None
        if install.error is not None:
            self._core.end_install(None)
            self._alarms.tell(AlarmKind.SNAPSHOT_BAD, f"a snapshot is damaged: {install.error}")
            return
        self._core.end_install(install.meta)
        self._applied = self._restored_index = install.meta.index

    def retry_after_full(self) -> None:
        """Retry what a full disk prevented: space may have been freed."""
        self._disk.retry_at_once(self._now)
        self._core.writable(True)

    # Work

    def has_work(self) -> bool:
        """Return whether `poll` would do anything."""
        return bool(
            self._core.has_ready()
            or self._outbox
            or (self._needs_sync and self._sync is None)
            or self.is_behind
            or self._new_install is not None
            or self._restored_index
            or self._alarms
            or (self._reads and self._reads[0][0] <= self._applied and self._install is None)
        )

    @property
    def is_behind(self) -> bool:
        """Whether there is more to apply."""
        return self._appliable() > self._applied

    def outgoing(self) -> tuple[Envelope, ...]:
        """Begin a poll: return the messages that may be sent before anything is written, so that
        peers need not wait for that. Call `poll` before any further input.
        """
        self._take_ready()
        return self._outbox.take()

    def _take_ready(self) -> None:
        if self._ready is None and self._core.has_ready():
            self._ready = self._core.ready()
            self._outbox.send(self._ready.messages)

    def poll(self) -> Step[ResultT]:
        """Write, begin a sync, apply, and return what the caller must do.

        Applying is left to the next poll if this one sends or syncs, so that peers and the disk
        need not wait for the state machine.
        """
        self._take_ready()
        ready, self._ready = self._ready, None
        snapshots: tuple[SnapshotSend, ...] = ()
        if ready is not None:
            self._write(ready)
            for read in ready.reads:
                heappush(self._reads, (read.index, read.request))
            if ready.snapshots_wanted:
                snapshots = self._begin_transfers(ready.snapshots_wanted)
        sync = self._begin_sync()
        results = self._apply_in_turn(is_busy=sync is not None or bool(self._outbox))
        self._debt.look(self._now)
        restored, self._restored_index = self._restored_index, 0
        install, self._new_install = self._new_install, None
        return Step(
            self._outbox.take(),
            sync,
            install,
            snapshots,
            results,
            restored,
            self._served_reads(),
            None if ready is None else ready.soft_state,
            self._changed_configuration(),
            self._alarms.take(),
        )

    def settle(self) -> None:
        """Let the state machine do what it put off. Call it when results were handed out."""
        if self._install is not None:
            return
        try:
            self._machine.settle()
        except OSError as error:
            if not may_pass(error):
                raise
            self._is_unsettled = True
            self._disk.note_full(Work.APPLY, error, self._now)
        else:
            if self._is_unsettled:
                self._is_unsettled = False
                self._disk.note_room(Work.APPLY)

    def close(self) -> None:
        """Close all files."""
        self._transfers.drop_picture()
        self._log.close()

    # Observation

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def role(self) -> Role:
        """The role of this replica."""
        return self._core.role

    @property
    def leader(self) -> NodeId | None:
        """The current leader, as far as this replica knows."""
        return self._core.leader

    def heir(self) -> NodeId | None:
        """Return the voter that should take over; see `Core.heir`."""
        return self._core.heir()

    @property
    def commit_index(self) -> int:
        """The last index known to be committed."""
        return self._core.commit

    def droppable_soon(self, ahead_bytes: int) -> int:
        """As `Retention.droppable_soon`, of what is applied; shortened: of the oldest segment."""
        end = self._log.oldest_end() if self.retention.is_shortened else self._applied
        return min(self.retention.droppable_soon(ahead_bytes), end, self._applied)

    @property
    def applied_index(self) -> int:
        """The last index applied here."""
        return self._applied

    def status(self) -> ReplicaStatus:
        """Return the state for observers."""
        core = self._core
        return ReplicaStatus(
            core.role,
            core.term,
            core.leader,
            core.commit,
            self._applied,
            core.durable_index,
            self._log.first_index(),
            core.last_index,
            self._disk.is_short,
            self._applying.is_late,
            core.owed,
            core.owing_followers,
            core.configuration,
            core.configuration_index,
            core.followers(),
            core.counters,
        )

    # Writing

    def _write(self, ready: Ready) -> None:
        """Do steps 1 and 2 of `Ready`, and the bookkeeping for 4 and 5."""
        try:
            if ready.snapshot is not None:
                self._log.reset(ready.snapshot)
                self._receiver.installed()
                self._core.stable(ready.snapshot.index, ready.snapshot.term)
                self.retention.clear()
                ready = msgspec.structs.replace(ready, snapshot=None)
            if ready.hard_state is not None or ready.entries:
                self._log.append(ready.hard_state, ready.entries)
        except LogFull as error:
            self._core.unwritten(ready)
            self._disk.note_full(Work.WRITE, error, self._now)
            return
        if self._disk.is_full and ready.must_sync:
            self._disk.note_room(Work.WRITE)
        self._needs_sync = self._needs_sync or ready.must_sync
        self._outbox.promise(
            ready.messages_after_sync,
            needs_sync=self._needs_sync,
            is_syncing=self._sync is not None,
        )
        self.retention.appended(ready.entries)

    def _begin_sync(self) -> Sync | None:
        """Begin one fdatasync for everything written since the last one began."""
        if self._sync is not None or not self._needs_sync:
            return None
        self._needs_sync = False
        self._sync = self._log.begin_sync()
        self._sync_since = self._now
        self._outbox.sync_begins()
        return self._sync

    def _watch_disk(self) -> None:
        """Hand over when the disk does not write, sync or apply; retry when it was full."""
        sync_since = None if self._sync is None else self._sync_since
        if self._disk.is_stuck(sync_since, self._now) and self._core.role is Role.LEADER:
            self._disk.tell_stuck()
            self._core.resign()
        if self._disk.is_retry_due(self._now):
            self._core.writable(True)
            if self._is_unsettled:
                self.settle()

    def _watch_applying(self) -> None:
        """Hand over when this replica applies too slowly, if another one does better."""
        self._applying.look(self._core.lags, self._now)
        if self._applying.is_late and self._core.heir(in_time=True) is not None:
            self._core.resign()

    # Applying and reading

    def _appliable(self) -> int:
        """Return the last index that may be applied now: committed, and durable here."""
        if self._install is not None:
            return self._applied
        if self._disk.is_put_off(Work.APPLY, self._now):
            return self._applied
        return min(self._core.commit, self._core.durable_index)

    def _apply_in_turn(self, *, is_busy: bool) -> tuple[AppliedEntry[ResultT], ...]:
        """Apply what may be applied; a poll that has other work puts this off once."""
        upto = self._appliable()
        if upto <= self._applied:
            return ()
        self._has_put_off_apply = is_busy and not self._has_put_off_apply
        return () if self._has_put_off_apply else self._apply(upto)

    def _apply(self, upto: int) -> tuple[AppliedEntry[ResultT], ...]:
        first = self._applied + 1
        end = min(upto + 1, first + self.pace.entries)
        entries = self._core.entries(first, end, self._config.apply_batch_bytes)
        data = [entry for entry in entries if entry.kind is EntryKind.DATA]
        try:
            results = iter(self._machine.apply(data) if data else ())
        except OSError as error:
            if not may_pass(error):
                raise
            self._disk.note_full(Work.APPLY, error, self._now)
            return ()
        self._disk.note_room(Work.APPLY)
        applied = tuple(
            AppliedEntry(
                entry.index,
                entry.term,
                entry.kind,
                next(results) if entry.kind is EntryKind.DATA else None,
            )
            for entry in entries
        )
        self._applied = entries[-1].index
        self._core.applied(self._applied)
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                self._check_retired(entry)
        return applied

    def _check_retired(self, entry: Entry) -> None:
        if is_retired(decode_configuration(entry.data), self._node):
            text = f"{self._node} has left the group: join under the next incarnation"
            self._alarms.tell_once(AlarmKind.RETIRED, text)

    def _served_reads(self) -> tuple[int, ...]:
        served: list[int] = []
        while self._reads and self._reads[0][0] <= self._applied and self._install is None:
            served.append(heappop(self._reads)[1])
        return tuple(served)

    def _changed_configuration(self) -> Configuration | None:
        current = self._core.configuration
        if current is self._configuration:
            return None
        self._configuration = current
        return current

    # Snapshots

    def _begin_install(self) -> None:
        meta = self._receiver.meta
        if meta is None:
            return
        if self._core.begin_install(meta):
            self.settle()
            self._install = self._new_install = Install(self._receiver, meta)
        else:
            self._receiver.abandon()

    def _begin_transfers(self, wanted: Sequence[NodeId]) -> tuple[SnapshotSend, ...]:
        if self._install is None:
            return self._transfers.begin(wanted, self._now)
        for to in wanted:
            self._core.snapshot_done(to, False)
        return ()

    # The log's length

    def _compact(self) -> None:
        """Drop entries that are durable in the state machine and not retained for followers."""
        if self._install is not None or self._core.is_restoring:
            return
        droppable = self.retention.droppable(self.scrub.given_up)
        index = min(self._machine.durable_index(), droppable, self._applied)
        first = self._log.first_index()
        if index < first:
            return
        meta = SnapshotMeta(index, self._core.term_at(index), self._core.configuration_at(index), 0)
        try:
            self._log.compact(meta, is_careful=self.retention.is_shortened)
        except OSError as error:
            # From the log's disk, or the state machine's, which moves bodies out of old segments.
            if not may_pass(error):
                raise
            self._disk.note_full(Work.COMPACT, error, self._now)
            return
        self._disk.note_room(Work.COMPACT)
        if self._log.first_index() > first:
            self._needs_sync = True
            self._core.compacted(self._log.first_index() - 1)

"""A replica in an asyncio loop: ticks, group commit, syncs in a thread, backpressure.

Everything but fdatasync and the installation of snapshots happens in the loop. What arrives is
given to the replica at once; a *turn* proposes what waits, polls the replica and does what its
steps ask for. A finished sync gets a turn at once, since callers wait for it; the frames and
proposals of one round of the loop share a turn, and so an entry, a write, a sync and a frame.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from raft.core.core import TICK_MS, Busy, NotLeader
from raft.core.membership import MemberChange
from raft.core.ticks import TickCount
from raft.log.retention import Retention
from raft.log.scrub import LogScrub
from raft.log_view import SyncToken
from raft.picture import SnapshotSend
from raft.proposals import (
    BATCHES_IN_FLIGHT_MAX,
    ENTRY_WEIGHT_MAX,
    WAITING_MAX_BYTES,
    Pending,
    Prologue,
    Proposals,
)
from raft.replica import Install, Replica, ReplicaStatus
from raft.step import Alarm, Step
from raft.sync_thread import SyncDone, SyncThread, SyncWorker
from raft.transport.metrics import DriverMetrics
from raft.transport.transport import Transport, TransportEvents
from raft.types import (
    SNAPSHOT_REFUSED,
    Configuration,
    Envelope,
    GroupId,
    Heartbeat,
    HeartbeatReply,
    NodeId,
    PeerState,
    Role,
    SnapshotMeta,
    SoftState,
)

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_SIGNS_OF_LIFE = frozenset({Heartbeat, HeartbeatReply})

POLLS_PER_TURN_MAX = 4
"""After so many polls the sockets have their turn, however much there is to apply."""
POSTPONED_MIN_S = 0.02
"""A timer that would fire so much too early is set anew: a heartbeat before it made it needless."""
EXIT_STATUS_FATAL = 74
"""EX_IOERR: the disk or the state machine can no longer be trusted."""
OUTCOME_WAIT_MS = 5_000
TRANSFER_WAIT_MS = 2_000
DRAIN_MS = 5_000


class Stopping(Exception):
    """This node is being stopped and takes no more work; ask another."""


class DriverConfig(msgspec.Struct, frozen=True):
    """Settings of a driver."""

    group: GroupId
    """The replica's group."""
    waiting_bytes_max: int = WAITING_MAX_BYTES
    """Payloads that are not proposed yet; beyond this `propose` raises Busy."""
    batches_in_flight_max: int = BATCHES_IN_FLIGHT_MAX
    entry_weight_max: int = ENTRY_WEIGHT_MAX
    """Total weight of payloads that share an entry; a single payload may exceed it."""
    outcome_wait_ms: int = OUTCOME_WAIT_MS
    """How long callers still wait for the outcome of their entries after leadership was lost."""


class DriverEvents(Protocol):
    """What a driver tells its owner, in the loop."""

    def on_soft_state(self, state: SoftState) -> None:
        """Role, leader or term changed."""

    def on_configuration(self, configuration: Configuration) -> None:
        """The members changed; the change is in force at once."""

    def on_alarm(self, alarm: Alarm) -> None:
        """Something happened that an operator must learn of."""


def end_process(text: str) -> None:
    """End the process at once, without cleaning up: what is in memory may be wrong."""
    logger.critical("this process ends: %s", text)
    logging.shutdown()
    os._exit(EXIT_STATUS_FATAL)


class Driver(Generic[ResultT]):
    """Runs one replica. Its state machine's result for an entry is a sequence with one result
    for each payload of the batch, not counting the prologue.
    """

    def __init__(
        self,
        replica: Replica[Sequence[ResultT]],
        connect: Callable[[TransportEvents], Transport],
        address_of: Callable[[NodeId], str | None],
        events: DriverEvents,
        config: DriverConfig,
        die: Callable[[str], None] = end_process,
        prologue: Prologue | None = None,
        before_entry: Callable[[], None] | None = None,
        sync_worker: Callable[[SyncDone], SyncWorker] = SyncThread,
    ) -> None:
        """`connect` makes the transport; `address_of` gives a member's `host:port` if it is
        known. `die` must not return to serving: after it nothing is written or answered.
        `prologue` makes from the payloads of an entry what the leader puts before them (a time
        stamp); it is called once for each entry, in their order, when the batch is closed.
        `before_entry` is called when no entry is in flight and one may follow: what is submitted
        within it goes into that one. Neither of the two may raise. `sync_worker` makes the worker
        that runs syncs.
        """
        self.metrics = DriverMetrics()
        self._config = config
        self._replica = replica
        self._transport = connect(self)
        self._address_of = address_of
        self._events = events
        self._die = die
        self._sync_worker = sync_worker
        self._soft_state = SoftState(replica.role, replica.leader, replica.term)
        self._configuration = Configuration(())
        self._proposals: Proposals[ResultT] = Proposals(
            self._config.waiting_bytes_max,
            self._config.batches_in_flight_max,
            prologue,
            entry_weight_max=self._config.entry_weight_max,
            before_entry=before_entry,
        )
        self._read: Pending[int] | None = None
        self._reads: dict[int, Pending[int]] = {}
        self._leadership_changed: asyncio.Future[None] | None = None
        self._installs: set[asyncio.Task[None]] = set()
        self._is_turn_scheduled = False
        self._is_stopping = False
        self._is_dead = True  # until started

    async def start(self) -> None:
        """Listen, connect and take part. Raises OSError when the address cannot be bound."""
        self._loop = asyncio.get_running_loop()
        self._ticks = TickCount(self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sync_thread = self._sync_worker(self._on_sync_done)
        try:
            await self._transport.start()
        except BaseException:
            self._sync_thread.stop()
            raise
        self._is_dead = False
        self._turn()

    # For callers

    @property
    def role(self) -> Role:
        """The role of this replica, as last reported."""
        return self._soft_state.role

    @property
    def leader(self) -> NodeId | None:
        """The current leader, as far as this replica knows."""
        return self._soft_state.leader

    @property
    def applied_index(self) -> int:
        """The last index applied here."""
        return self._replica.applied_index

    @property
    def has_entry_in_flight(self) -> bool:
        """Whether what is submitted now waits for an entry, unless OVERLAP_MIN_BYTES wait."""
        return self._proposals.has_in_flight

    def droppable_soon(self, ahead_bytes: int) -> int:
        """As `Replica.droppable_soon`: how far bodies must have left the log soon."""
        return self._replica.droppable_soon(ahead_bytes)

    @property
    def retention(self) -> Retention:
        """What the log keeps for followers that lag; for the loop that runs this driver."""
        return self._replica.retention

    @property
    def scrub(self) -> LogScrub:
        """As `Replica.scrub`; for the loop that runs this driver."""
        return self._replica.scrub

    @property
    def transport(self) -> Transport:
        """The transport of this replica."""
        return self._transport

    def status(self) -> ReplicaStatus:
        """Return the state for observers."""
        return self._replica.status()

    async def propose(self, payload: bytes) -> ResultT:
        """Replicate and apply a payload; return its result from the state machine.

        Raises NotLeader (ask its `leader`), Busy (try later), ValueError (too large), Stopping or
        ProposalLost: then nothing happened and never will. Raises CommitUnknown or CancelledError:
        then it may still happen.
        """
        outcome, ordinal = self.submit(payload)
        while not outcome.is_known:  # as Pending.wait, without a coroutine per message
            try:
                await outcome.future
            except asyncio.CancelledError:
                outcome.outlive_cancellation()
        return outcome.value()[ordinal]

    def submit(self, payload: bytes, weight: int = 1) -> tuple[Pending[Sequence[ResultT]], int]:
        """Propose a payload after all that were submitted before; return the outcome of its entry
        and its ordinal there.

        `weight`: what it costs the state machine; see `DriverConfig.entry_weight_max`. Raises
        NotLeader, Busy, Stopping; the outcome raises the other errors of `propose`.
        """
        if self._soft_state.role is not Role.LEADER or self._is_stopping or self._is_dead:
            raise self._refusal()
        place = self._proposals.add(payload, weight)
        if not self._is_turn_scheduled:
            self._schedule_turn()
        return place

    async def read(self) -> int:
        """Return an applied index, reached here, at which the state may be read linearizably.

        Works on every replica; without a leader it waits for one. Raises Busy, Stopping.
        """
        if self._is_stopping or self._is_dead:
            raise Stopping
        if self._read is None:  # shared by all callers before the next turn
            self._read = Pending()
            self._schedule_turn()
        return await self._read.wait()

    async def change_members(self, change: MemberChange) -> None:
        """Change the members; return when that is committed and applied here.

        Raises NotLeader, Busy, BadChange, Stopping, ProposalLost, CommitUnknown.
        """
        if self._is_stopping or self._is_dead:
            raise Stopping
        outcome: Pending[None] = Pending()
        index = self._replica.change_members(change)
        self._proposals.proposed(outcome, index, self._replica.term)
        self._schedule_turn()
        await outcome.wait()

    async def transfer(self, to: NodeId) -> None:
        """Hand leadership to a voter; return when this replica no longer leads.

        Raises NotLeader, BadChange; Busy if the voter did not take over in time.
        """
        self._replica.transfer(to)
        self._schedule_turn()
        try:
            async with asyncio.timeout(TRANSFER_WAIT_MS / 1000):
                while self._soft_state.role is Role.LEADER and to != self._soft_state.leader:
                    await self._another_leadership()
        except TimeoutError:
            raise Busy(f"{to} did not take over") from None

    def stand_back(self, is_standing_back: bool) -> None:
        """Say whether other replicas should lead; see `raft.core.core.Core.stand_back`."""
        self._replica.stand_back(is_standing_back)

    async def stop(self) -> None:
        """Finish accepted proposals, hand leadership over, and close."""
        if self._is_stopping:
            return
        self._is_stopping = True
        try:
            async with asyncio.timeout(DRAIN_MS / 1000):
                while self._proposals and self._soft_state.role is Role.LEADER:
                    await asyncio.sleep(TICK_MS / 1000)
                heir = self.heir()
                if heir is not None:
                    await self.transfer(heir)
                    # The heir may need this vote, which leaves after a sync.
                    while self._soft_state.leader is None:
                        await self._another_leadership()
        except (TimeoutError, Busy, NotLeader) as error:
            logger.warning("stopping without handing over: %r", error)
        await self.abort()

    async def _another_leadership(self) -> None:
        """Wait until role, leader or term change."""
        if self._leadership_changed is None:
            self._leadership_changed = self._loop.create_future()
        await asyncio.shield(self._leadership_changed)

    async def abort(self) -> None:
        """Close without finishing anything; durable data stays."""
        self._is_stopping = True
        if self._is_dead:
            return
        self._is_dead = True
        if self._timer is not None:
            self._timer.cancel()
        await self._transport.close()
        await asyncio.gather(*self._installs, return_exceptions=True)
        await asyncio.to_thread(self._sync_thread.stop)
        self._fail_everything()
        self._replica.close()

    # Inputs (TransportEvents, timer, disk)

    def on_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        """Process messages from a peer."""
        if not self._is_dead:
            self._guarded(self._receive, envelopes)

    def on_peer(self, peer: NodeId, state: PeerState) -> None:
        """Note that this node's own connection to a peer changed."""
        if not self._is_dead:
            self._guarded(self._peer, peer, state)

    def on_snapshot_chunk(
        self, group: GroupId, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes
    ) -> int:
        """Take a chunk of a snapshot; return the offset wanted next."""
        if self._is_dead or group != self._config.group:
            return SNAPSHOT_REFUSED
        wanted = self._replica.snapshot_chunk(sender, meta, offset, chunk)
        self._schedule_turn()
        return wanted

    def _receive(self, envelopes: Sequence[Envelope]) -> None:
        self._count_ticks()
        self._replica.receive(envelopes)
        is_sign_of_life = len(envelopes) == 1 and type(envelopes[0].body) in _SIGNS_OF_LIFE
        if not is_sign_of_life or self._replica.is_behind or self._proposals:
            self._schedule_turn()
        elif self._replica.has_work():
            self._turn()  # it only answers: a round of the loop would cost as much
        else:
            self._set_timer()

    def _peer(self, peer: NodeId, state: PeerState) -> None:
        self._count_ticks()
        self._replica.peer(peer, state)
        self._schedule_turn()

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_dead:
            self._guarded(self._turn)

    def _on_sync_done(self, sync: SyncToken, error: BaseException | None) -> None:
        if self._is_dead:
            return
        if error is not None:
            self._fatal("the log cannot be made durable", error)
            return
        self._guarded(self._synced, sync)

    def _synced(self, sync: SyncToken) -> None:
        self._replica.sync_done(sync)
        self._turn()

    # A turn

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled and not self._is_dead:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        if self._is_turn_scheduled and not self._is_dead:
            self._is_turn_scheduled = False
            self._guarded(self._turn)

    def _on_handed_out(self) -> None:
        if self._proposals.waiting_bytes:
            self._on_turn()  # the disk writes it while the state machine settles
        if not self._is_dead:
            began = self._loop.time()
            self._guarded(self._replica.settle)
            self._replica.pace.settled(self._loop.time() - began)

    def _turn(self) -> None:
        self._count_ticks()
        self._ask_reads()
        proposals, replica, is_submitted = self._proposals, self._replica, False
        for _ in range(POLLS_PER_TURN_MAX):
            if not is_submitted:
                proposals.submit(replica.propose, replica.term)
            if not replica.has_work():
                break
            messages = replica.outgoing()
            if messages:
                self._transport.send(messages)
            began = self._loop.time()
            step = replica.poll()
            is_submitted = not step.results
            if step.results:
                replica.pace.applied(len(step.results), self._loop.time() - began)
            self._take(step)
            if (step.sync is not None and replica.has_work()) or (
                step.results and replica.is_behind
            ):
                # Let the sync begin before the state machine takes its time, and the rest of the
                # loop run between two batches of entries.
                self._schedule_turn()
                break
        else:
            self._schedule_turn()
        self._set_timer()

    def _take(self, step: Step[Sequence[ResultT]]) -> None:
        """Do what one poll asks for, in the order that Step documents."""
        if step.messages:
            self._transport.send(step.messages)
        if step.sync is not None:
            self.metrics.syncs_total += 1
            self._sync_thread.submit(step.sync)
        if step.results:
            self.metrics.entries_applied_total += len(step.results)
            self._proposals.applied(step.results)
            # After the callers that wait for these results, and after what they send.
            self._loop.call_soon(self._loop.call_soon, self._on_handed_out)
        if step.reads:
            self._serve_reads(step.reads)
        if step.soft_state is not None:
            self._take_soft_state(step.soft_state)
        if step.configuration is not None:
            self._take_configuration(step.configuration)
        if step.restored_index:
            self._proposals.restored(step.restored_index)
        if step.install is not None:
            self._begin_install(step.install)
        for snapshot in step.snapshots:
            self._send_snapshot(snapshot)
        for alarm in step.alarms:
            logger.error("%s: %s", alarm.kind.name, alarm.text)
            self._events.on_alarm(alarm)

    def _take_soft_state(self, state: SoftState) -> None:
        before, self._soft_state = self._soft_state, state
        logger.info("%s in term %d, leader %s", state.role.name, state.term, state.leader)
        if before.role is Role.LEADER and state.role is not Role.LEADER:
            self._proposals.fail_waiting(state.leader)
            self._loop.call_later(
                self._config.outcome_wait_ms / 1000, self._proposals.fail_proposed, before.term
            )
        if self._leadership_changed is not None:
            self._leadership_changed.set_result(None)
            self._leadership_changed = None
        self._events.on_soft_state(state)

    def _take_configuration(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.renew_addresses()
        self._events.on_configuration(configuration)

    def renew_addresses(self) -> None:
        """Look up the members' addresses again."""
        addresses: dict[NodeId, str] = {}
        for node in self._configuration.voters + self._configuration.learners:
            address = self._address_of(node)
            if address is not None:
                addresses[node] = address
        self._transport.set_peers(addresses)

    # Time

    def _count_ticks(self) -> None:
        ticks = self._ticks.take(self._loop.time())
        if ticks > 0:
            self._replica.tick(ticks)

    def _set_timer(self) -> None:
        at = self._ticks.due_s(self._replica.ticks_until_due())
        if self._timer is not None:
            if at - POSTPONED_MIN_S < self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    # Reads

    def _ask_reads(self) -> None:
        if self._read is None:
            return
        outcome, self._read = self._read, None
        try:
            self._reads[self._replica.read()] = outcome
        except Busy as error:
            text = str(error)
            outcome.fail(lambda: Busy(text))

    def _serve_reads(self, requests: Sequence[int]) -> None:
        for request in requests:
            outcome = self._reads.pop(request, None)
            if outcome is not None:
                outcome.resolve(self._replica.applied_index)

    # Snapshots

    def _send_snapshot(self, snapshot: SnapshotSend) -> None:
        def done(is_whole: bool) -> None:
            if not self._is_dead:
                self._replica.snapshot_done(snapshot.to, is_whole)
                self._schedule_turn()

        self._transport.send_snapshot(
            self._config.group, snapshot.to, snapshot.meta, snapshot.source, done
        )

    def _begin_install(self, install: Install) -> None:
        async def run() -> None:
            try:
                await asyncio.to_thread(install.run)
            except Exception as error:
                self._fatal("a snapshot cannot be installed", error)
                return
            if not self._is_dead:
                self._replica.install_done(install)
                self._schedule_turn()

        task = asyncio.create_task(run(), name="raft install")
        self._installs.add(task)
        task.add_done_callback(self._installs.discard)

    # Ends

    def _refusal(self) -> Exception:
        if self._is_stopping or self._is_dead:
            return Stopping()
        return NotLeader(self._soft_state.leader)

    def heir(self) -> NodeId | None:
        """Return the voter best suited to take over. None if this replica does not lead, or no
        other voter answers.
        """
        return self._replica.heir()

    def _fail_everything(self) -> None:
        self._proposals.fail_waiting(self._soft_state.leader)
        self._proposals.fail_proposed(self._replica.term)
        for outcome in [*self._reads.values(), *filter(None, [self._read])]:
            outcome.fail(Stopping)
        self._reads.clear()
        self._read = None

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Treat any error as fatal: after one, log, core and state machine may disagree."""
        try:
            work(*arguments)
        except Exception as error:
            self._fatal("the replica failed", error)

    def _fatal(self, text: str, error: BaseException) -> None:
        self._is_dead = True
        logger.critical("%s", text, exc_info=error)
        self._die(f"{text}: {error!r}")

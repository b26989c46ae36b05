"""One simulated machine: its disk, its clock, and the process on it, which is the production
`Replica` driven in the order that its `Step` states.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from raft.batch import BatchBuilder
from raft.core.core import Busy, CoreConfig, NotLeader
from raft.identity import IdentityRefused
from raft.log.files import FatalDiskError
from raft.log.log import Log, LogDamaged
from raft.log_view import SyncToken
from raft.machine import StateMachine
from raft.replica import (
    Install,
    LogReader,
    Replica,
    ReplicaConfig,
    SnapshotSend,
    StartRefused,
    Step,
)
from raft.transport.wire_format import FrameDecoder, FrameEncoder
from raft.types import (
    Append,
    AppendReply,
    Body,
    Configuration,
    Envelope,
    InstallSnapshot,
    NodeId,
    PeerState,
    Role,
)
from tests.sim.checkers import POLL_LATE_MAX_US, Violation
from tests.sim.disk import ProcessDied, SimDisk
from tests.sim.slots import BodyDamaged, Result, SlottedMachine

if TYPE_CHECKING:
    from tests.sim.world import World

GROUP = 1
CLUSTER = bytes(range(16))
ENDS_A_PROCESS = (ProcessDied, OSError, LogDamaged, BodyDamaged)
"""What the product's driver stops for."""
TICK_US = 1_000
"""A fifth of production's: what it does once a second happens five times as often."""

Results = tuple[Result, ...]
Input = Callable[[Replica[Results]], None]


@dataclass(slots=True)
class HostFaults:
    """How a machine behaves when nothing dramatic happens to it; drawn per seed."""

    sync_us_min: int = 100
    sync_us_max: int = 2_000
    slow_sync: float = 0.0
    """Share of syncs that take twenty times as long."""
    poll_late: float = 0.0
    """Share of inputs after which the process does something else before it polls."""
    clock_drift: float = 0.0
    """Largest share by which the length of a tick is wrong."""


class Host:
    """A machine by name; `node` is the id that its present process wears."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.incarnation = 1
        chance = world.chance.stream(f"host {name}")
        self.chance = chance
        self.disk = SimDisk(world.chance.stream(f"disk {name}"), world.knobs.sector_bytes)
        drift = world.knobs.host.clock_drift
        self.tick_us = int(TICK_US * (1 + chance.uniform(-drift, drift)))
        self.epoch = 0
        """Counts processes; what was planned for an older one is void."""
        self.replica: Replica[Results] | None = None
        self.log: Log | None = None
        self.machine: SlottedMachine[Any] | None = None
        self.has_power = True
        self.is_lost = False
        """The disk was wiped or is known damaged: the id must never speak again."""
        self.paused_until_us = 0
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.configuration: Configuration | None = None
        self.slow_disk_us = 0
        """Not 0: what every sync takes."""
        self.dies_in_at_start = 0
        """Disk operations that the next process survives; 0: all of them."""
        self._root = self.disk.directory()
        self._inbox: deque[Input] = deque()
        self._ticked_us = 0
        self._tick_at_us = 0
        self._poll_planned = False
        self._proposals: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._reads: dict[int, Callable[[], None]] = {}

    @property
    def node(self) -> NodeId:
        return f"{self.name}.{self.incarnation}"

    @property
    def is_running(self) -> bool:
        return self.replica is not None

    @property
    def is_paused(self) -> bool:
        return self.paused_until_us > self.world.now_us

    @property
    def replica_now(self) -> Replica[Results]:
        """The replica of a running process."""
        assert self.replica is not None
        return self.replica

    @property
    def leads(self) -> bool:
        """Whether the process takes itself for the leader."""
        return self.replica is not None and self.role is Role.LEADER

    @property
    def log_now(self) -> Log:
        """The log of a running process."""
        assert self.log is not None
        return self.log

    def durable_sequence(self) -> int:
        """Return up to which write the log's segments would survive any power cut."""
        return self.disk.durable_sequence(".segment")

    def config(self) -> ReplicaConfig:
        """Return the replica's settings: small limits, so that every path is walked often."""
        knobs = self.world.knobs
        core = CoreConfig(
            node=self.node,
            group=GROUP,
            heartbeat_ticks=knobs.heartbeat_ticks,
            idle_heartbeat_ticks=knobs.heartbeat_ticks * 3 // 2,
            election_ticks=knobs.election_ticks,
            commit_stride_entries=knobs.commit_stride_entries,
            append_bytes_max=knobs.append_bytes_max,
            inflight_bytes_max=4 * knobs.append_bytes_max,
            inflight_messages_max=knobs.inflight_messages_max,
            backlog_bytes_max=64 << 10,
            unsynced_bytes_max=16 << 10,
            apply_lag_entries_max=knobs.apply_lag_entries_max,
            apply_lead_entries_max=4 * knobs.apply_lag_entries_max,
            campaign_ticks=max(2, knobs.election_ticks // 4),
            snapshot_wait_ticks=8 * knobs.election_ticks,
            recent_bytes_max=knobs.recent_bytes_max,
            reads_pending_max=16,
        )
        return ReplicaConfig(
            core=core,
            cluster=CLUSTER,
            apply_batch_bytes=knobs.apply_batch_bytes,
            log_retain_bytes=knobs.log_retain_bytes,
            segment_bytes=knobs.segment_bytes,
            picture_idle_ticks=knobs.picture_idle_ticks,
            stuck_ticks=knobs.stuck_ticks,
            late_ticks=2 * knobs.stuck_ticks,
        )

    # Life and death of the process

    def found(self, founders: Configuration) -> None:
        """Prepare the disk of a new id, once."""
        directory = self.disk.directory().subdirectory("raft")
        Replica.create(self.config(), directory, founders, self._random())

    def start(self) -> None:
        """Start a process on the disk as it is."""
        assert self.replica is None
        self.epoch += 1
        self.has_power = True
        self.paused_until_us = 0
        root = self._root = self.disk.directory()
        self.disk.dies_in, self.dies_in_at_start = self.dies_in_at_start, 0
        try:
            replica = Replica(
                self.config(),
                root.subdirectory("raft"),
                self._machine_factory,
                self._random(),
            )
        except (IdentityRefused, StartRefused, LogDamaged) as error:
            self.world.faults.refused(self, error)
            return
        except (ProcessDied, OSError) as error:
            self._die(str(error))
            return
        self.replica = replica
        self.world.say("start", self.node)
        self._ticked_us = self.world.now_us
        self._tick_at_us = 0
        self.world.checker.started(self)
        self.world.network.process_started(self.name)
        self._act(ignore)

    def _random(self) -> Callable[[int], int]:
        """Return the generator that this process draws from."""
        return self.world.chance.stream(f"process {self.node} {self.epoch}").randrange

    def _machine_factory(self, reader: LogReader) -> StateMachine[Results]:
        assert isinstance(reader, Log)
        self.log = reader
        directory = self._root.subdirectory("machine")
        self.machine = self.world.workload.machine(directory, reader, self.world.knobs.machine)
        return self.machine

    def kill(self) -> None:
        """Kill -9: the page cache survives."""
        self._end()
        self.disk.end_process()
        self.world.network.process_died(self.name, has_power=True)

    def lose_power(self, *, in_last_write: bool = False) -> None:
        """The machine stops; what was not synced survives by luck, see SimDisk.lose_power."""
        self._end()
        self.has_power = False
        self.disk.lose_power(in_last_write=in_last_write)
        self.world.network.process_died(self.name, has_power=False)

    def stop(self) -> None:
        """A graceful stop."""
        if self.replica is not None:
            replica = self.replica
            try:
                replica.close()
            except (ProcessDied, FatalDiskError) as error:
                self._die(str(error))
                return
            self.kill()

    def _end(self) -> None:
        self.epoch += 1
        self.replica = None
        self.machine = None
        self.role = Role.FOLLOWER
        self.leader = None
        self.configuration = None
        self._inbox.clear()
        self._reads.clear()
        self._poll_planned = False
        for _, operations in self._proposals.values():
            self.world.clients.unknown(operations)
        self._proposals.clear()
        self.world.checker.ended(self)

    def _fail(self, error: BaseException) -> None:
        """The process meets what it must stop for; damage only where a disk was harmed."""
        if isinstance(error, LogDamaged | BodyDamaged):
            self.world.faults.found_damage(self, error)
        if isinstance(error, OSError) and not isinstance(error, FatalDiskError):
            raise Violation(f"{self.node}: a full disk must not end the process: {error}")
        self._die(str(error))

    def _die(self, reason: str) -> None:
        """The process ended by itself, or at an armed boundary of its disk."""
        self.world.say("die", self.node, reason)
        if self.disk.fails_sync or self.chance.random() < 0.5:
            self.lose_power()
        else:
            self.kill()
        self.world.faults.died(self)

    def pause_ends(self) -> None:
        """SIGCONT, before its time."""
        self.paused_until_us = self.world.now_us
        self._resume(self.epoch)

    def pause(self, until_us: int) -> None:
        """SIGSTOP; what arrives waits in sockets."""
        self.paused_until_us = max(self.paused_until_us, until_us)
        epoch = self.epoch
        self.world.at(until_us, lambda: self._resume(epoch))

    def _resume(self, epoch: int) -> None:
        if epoch == self.epoch and not self.is_paused and self.replica is not None:
            waiting = list(self._inbox)
            self._inbox.clear()
            self._tick_at_us = 0
            for give in (*waiting, ignore):
                self._act(give)

    # Inputs

    def deliver(self, frame: tuple[Envelope, ...]) -> None:
        """Envelopes of one frame."""

        def give(replica: Replica[Results]) -> None:
            self.world.checker.received(self, frame)
            replica.receive(frame)

        self._act(give)

    def tell_peer(self, peer: NodeId, state: PeerState) -> None:
        """News of the own connection to a peer."""

        def give(replica: Replica[Results]) -> None:
            self.world.checker.told(self, peer, state)
            replica.peer(peer, state)

        self._act(give)

    def snapshot_chunk(
        self,
        send: SnapshotSend,
        sender: NodeId,
        offset: int,
        chunk: bytes,
        tell: Callable[[int], None],
    ) -> None:
        """A piece of a snapshot; `tell` hears which offset is wanted next."""
        self._act(lambda replica: tell(replica.snapshot_chunk(sender, send.meta, offset, chunk)))

    def snapshot_done(self, to: NodeId, is_whole: bool) -> None:
        """A transfer from here ended."""
        self._act(lambda replica: replica.snapshot_done(to, is_whole))

    def space_returned(self) -> None:
        """What an operator or a timer of the driver would tell."""
        self._act(lambda replica: replica.retry_after_full())

    def propose(self, payloads: list[tuple[int, bytes]]) -> bool:
        """Propose operations as one entry; False when this process will not take them."""
        replica = self.replica
        if replica is None or self.is_paused:
            return False
        builder = BatchBuilder()
        for _, payload in payloads:
            builder.add(payload)
        data = builder.build()
        operations = tuple(operation for operation, _ in payloads)
        is_taken = False

        def give(replica: Replica[Results]) -> None:
            nonlocal is_taken
            try:
                index = replica.propose(data)
            except (NotLeader, Busy) as refusal:
                if isinstance(refusal, NotLeader):
                    self.leader = refusal.leader
                return
            is_taken = True
            before = self._proposals.pop(index, None)
            if before is not None:
                self.world.clients.unknown(before[1])
            self._proposals[index] = (replica.term, operations)

        self._act(give)
        return is_taken

    def read(self, serve: Callable[[], None]) -> int | None:
        """Begin a linearizable read; `serve` is called when it may be answered."""
        number: int | None = None

        def give(replica: Replica[Results]) -> None:
            nonlocal number
            try:
                number = replica.read()
            except Busy:
                return
            self._reads[number] = serve

        if self.replica is not None and not self.is_paused:
            self._act(give)
        return number

    def cancel_read(self, epoch: int, number: int) -> None:
        """The client gave up."""
        if epoch == self.epoch and self._reads.pop(number, None) is not None:
            self._act(lambda replica: replica.cancel_read(number))

    def command(self, give: Input) -> None:
        """An administrator's call; it may raise what the replica raises."""
        if not self.is_paused:
            self._act(give)

    # The driver's loop

    def _act(self, give: Input) -> None:
        """Hand an input to the replica and poll it, now or a little later."""
        if self.replica is None:
            return
        if self.is_paused:
            self._inbox.append(give)
            return
        late = self.world.knobs.host.poll_late
        try:
            self._count_ticks(self.replica)
            give(self.replica)
            if self._poll_planned:
                return
            if late and self.chance.random() < late:
                self._plan_poll()
            else:
                self._drive()
        except ENDS_A_PROCESS as error:
            self._fail(error)

    def _plan_poll(self) -> None:
        self._poll_planned = True
        epoch = self.epoch
        at_us = self.world.now_us + self.chance.randint(1, POLL_LATE_MAX_US)
        self.world.at(at_us, lambda: self._poll_late(epoch))

    def _poll_late(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self._poll_planned = False
        if self.is_paused:
            self._inbox.append(ignore)
            return
        try:
            self._drive()
        except ENDS_A_PROCESS as error:
            self._fail(error)

    def _drive(self) -> None:
        if self.replica is not None:
            self._count_ticks(self.replica)
        while (replica := self.replica) is not None and replica.has_work():
            self._poll(replica)
        if replica is not None:
            self._plan_tick(replica)

    def _poll(self, replica: Replica[Results]) -> None:
        """Poll as the product's driver does: what may leave has left when the disk is written."""
        messages = replica.outgoing()
        try:
            step = replica.poll()
        except ENDS_A_PROCESS:
            self._send(messages)
            raise
        self._do(msgspec.structs.replace(step, messages=messages + step.messages))

    def _do(self, step: Step[Results]) -> None:
        """What the product's driver does with a step, in its order."""
        self._note_changes(step)
        self.world.checker.stepped(self, step)
        self._send(step.messages)
        if step.sync is not None:
            self._plan_sync(step.sync)
        if step.install is not None:
            self._plan_install(step.install)
        for send in step.snapshots:
            self.world.network.send_snapshot(self, send)
        self._answer(step)
        for alarm in step.alarms:
            self.world.say("alarm", self.node, alarm.kind.name)
            self.world.administrator.alarmed(self, alarm)

    def _note_changes(self, step: Step[Results]) -> None:
        soft_state = step.soft_state
        if soft_state is not None:
            self.role, self.leader = soft_state.role, soft_state.leader
            role = soft_state.role.name.lower()
            self.world.say("role", self.node, role, soft_state.term, soft_state.leader)
            if self.leads:
                self.world.administrator.leads(self)
        if step.configuration is not None:
            self.configuration = step.configuration
            self.world.say("members", self.node, *members(step.configuration))

    def _answer(self, step: Step[Results]) -> None:
        """Tell clients what became of what they asked."""
        clients = self.world.clients
        for applied in step.results:
            proposal = self._proposals.pop(applied.index, None)
            if proposal is not None:
                term, operations = proposal
                if applied.term == term and applied.result is not None:
                    clients.acknowledged(self, applied.index, term, operations, applied.result)
                else:
                    clients.lost(operations)
        if step.restored_index:
            self._forget_proposals(step.restored_index)
        for number in step.reads:
            serve = self._reads.pop(number, None)
            if serve is not None:
                serve()

    def _forget_proposals(self, restored_index: int) -> None:
        """A snapshot replaces entries that might have been proposed here."""
        for index in [index for index in self._proposals if index <= restored_index]:
            self.world.clients.unknown(self._proposals.pop(index)[1])

    def _send(self, messages: tuple[Envelope, ...]) -> None:
        frames: dict[NodeId, list[Envelope]] = {}
        for envelope in messages:
            body = brief(envelope.body)
            self.world.say("send", envelope.sender, envelope.to, envelope.term, body)
            frames.setdefault(envelope.to, []).append(envelope)
        for to, frame in frames.items():
            if self.world.knobs.is_encoded:
                encoded = FrameEncoder(CLUSTER, self.node).encode(frame)
                frame = FrameDecoder(CLUSTER, self.node, to).decode(encoded)
            self.world.network.send(self.name, to.rpartition(".")[0], tuple(frame))

    # Time

    def _count_ticks(self, replica: Replica[Results]) -> None:
        count = (self.world.now_us - self._ticked_us) // self.tick_us
        if count:
            self._ticked_us += count * self.tick_us
            replica.tick(count)

    def _plan_tick(self, replica: Replica[Results]) -> None:
        """Sleep no longer than the core counts at once, as the product's driver does."""
        due = replica.ticks_until_due()
        at_us = self._ticked_us + due * self.tick_us
        if self._tick_at_us <= self.world.now_us or at_us < self._tick_at_us:
            self._tick_at_us = max(at_us, self.world.now_us + 1)
            epoch, at_us = self.epoch, self._tick_at_us
            self.world.at(at_us, lambda: self._timer(epoch, at_us))

    def _timer(self, epoch: int, at_us: int) -> None:
        if epoch == self.epoch and at_us == self._tick_at_us and not self.is_paused:
            self._tick_at_us = 0
            self._act(ignore)

    # Threads

    def _disk_us(self) -> int:
        """Draw how long the disk takes."""
        if self.slow_disk_us:
            return self.slow_disk_us
        faults = self.world.knobs.host
        wait_us = self.chance.randint(faults.sync_us_min, faults.sync_us_max)
        if faults.slow_sync and self.chance.random() < faults.slow_sync:
            wait_us *= 20
        return wait_us

    def _plan_sync(self, token: SyncToken) -> None:
        epoch = self.epoch
        covered = self.disk.sequence
        at_us = self.world.now_us + self._disk_us()
        self.world.at(at_us, lambda: self._run_sync(epoch, token, covered))

    def _plan_install(self, install: Install) -> None:
        epoch = self.epoch
        at_us = self.world.now_us + self._disk_us()
        self.world.at(at_us, lambda: self._run_install(epoch, install))

    def _run_install(self, epoch: int, install: Install) -> None:
        if epoch != self.epoch:
            return
        try:
            install.run()
        except (ProcessDied, OSError) as error:
            self._die(str(error))
            return
        self._act(lambda replica: replica.install_done(install))

    def _run_sync(self, epoch: int, token: SyncToken, covered: int) -> None:
        """The sync's thread: it runs on while the process is stopped."""
        if epoch != self.epoch:
            return
        self.disk.uncovered = (covered, self.disk.sequence)
        try:
            token.run()
        except (ProcessDied, FatalDiskError) as error:
            self._die(str(error))
            return
        finally:
            self.disk.uncovered = (0, 0)
        self.world.say("sync", self.node, covered)
        self.world.checker.synced(self)
        self._act(lambda replica: replica.sync_done(token))


def ignore(replica: Replica[Results]) -> None:
    """No input: count ticks and poll."""
    del replica


def brief(body: Body) -> str:
    """Return what a line of the transcript says of a message."""
    name = type(body).__name__
    if isinstance(body, Append):
        entries = len(body.entries)
        return f"{name} {body.prev_index}/{body.prev_term} +{entries} commit {body.commit}"
    if isinstance(body, AppendReply):
        if body.is_rejected:
            return f"{name} rejects {body.rejected_index}, try {body.hint_index}/{body.hint_term}"
        return f"{name} {body.match_index}"
    if isinstance(body, InstallSnapshot):
        return f"{name} {body.meta.index}/{body.meta.term}"
    fields = " ".join(str(getattr(body, field)) for field in body.__struct_fields__)
    return f"{name} {fields}"


def members(configuration: Configuration) -> list[str]:
    """Return what a line of the transcript says of a configuration."""
    return [*configuration.voters, *(f"({learner})" for learner in configuration.learners)]

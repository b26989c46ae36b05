"""The replicated store: `qm.cluster.cluster.Cluster` over one replica and its state.

Callers are served by the leader, wherever it is: on this node through the driver, on another one
through its relay endpoint. See design.md for what a change of leader does.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from qm.cluster.cluster import (
    PROPOSE_WAIT_MS,
    Cluster,
    ClusterListener,
    Leadership,
    Unavailable,
)
from qm.cluster.relay import RelayEvents, RelayHub, RelayStream
from qm.model.queries import View
from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, State
from qm.model.values.commands import Command, LeaderActivated, Stamp
from qm.model.values.effects import Applied, Outcome
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, VERSION_OF_ENTRY_HASH
from qm.node.config.addresses import AddressBook
from qm.node.platform import MACHINE, Platform
from qm.node.relay.announced import ANNOUNCED_MAX, queues_of
from qm.node.relay.channels import Channels
from qm.node.relay.disk_admission import is_send
from qm.node.relay.edge_stream import LocalStream, RemoteStream
from qm.node.relay.forwarding import Forwarder, NotTaken
from qm.node.relay.leader_stream import LeaderStreams, Pending
from qm.node.relay.submission import check_since, gather_outcomes, submit_all
from qm.node.replica.clock import ClusterClock
from qm.node.replica.entry_weight import Weights
from qm.node.replica.listeners import Listeners
from qm.node.replica.quarantine import Quarantine
from qm.node.replica.read_state import ReadState
from qm.node.replica.skipped_entries import SkippedEntries
from qm.node.replica.state_machine import AppliedStore
from qm.store.bodies.body_places import BodyPlace, BodyPlaces, Opener, Packets
from qm.store.codec import Inspected, encode_command, encode_inspected, encode_stamp
from qm.store.effects.chain import hashed
from qm.store.store import Store
from raft.core.core import Busy, CoreConfig
from raft.driver import Driver, DriverConfig, DriverEvents, Stopping, end_process
from raft.machine import LogReader
from raft.replica import Replica, ReplicaConfig, StartRefused
from raft.step import Alarm
from raft.transport.transport import Transport, TransportEvents, node_name
from raft.types import Configuration, NodeId, Role, SoftState

logger = logging.getLogger(__name__)

GROUP: Final = 1
"""The queue manager."""
RAFT_FOLDER: Final = "raft"
STORE_FOLDER: Final = "store"
BEGIN_WAIT_MS: Final = 1_000
"""How long an edge waits for a leader that was elected and does not serve yet."""
RETRY_MS: Final = 20
"""Between two requests to a leader that does not serve yet."""


class Seals(Protocol):
    """`qm.node.membership.body_seals.BodySeals`, as the store uses it."""

    def sealed(self, command: Command) -> Command:
        """Return what is proposed for a command. Raises Unavailable."""

    def opened(self, packet: bytes) -> bytes:
        """Return the plain form of a stored packet. Raises BodyDamaged."""


class ReplicatedConfig(msgspec.Struct, frozen=True):
    """Which replica this is, and its settings."""

    node: NodeId
    cluster: bytes
    """16 bytes."""
    data: Path
    """Folder that `found` prepared."""
    cache_bytes: int = 64 << 20
    log_retain_bytes: int = 1024 << 20
    keeps_effects: bool = False
    """Log to keep for an archiver."""

    def replica_config(self) -> ReplicaConfig:
        """Return the settings of the replica."""
        core = CoreConfig(self.node, GROUP)
        return ReplicaConfig(core, self.cluster, log_retain_bytes=self.log_retain_bytes)


class Hooks(msgspec.Struct, frozen=True):
    """What the replicated store needs of the node around it."""

    admits_messages: Callable[[], bool]
    """Whether the disk has room for new messages; called while this node leads."""
    on_alarm: Callable[[Alarm], None]
    """Raft reports something for an operator."""
    on_members: Callable[[Configuration], None]
    """A configuration is in force; also called before the node listens."""
    die: Callable[[str], None] = end_process
    """Ends the process; must not return to serving."""
    give_up_reserve: Callable[[], None] = lambda: None
    """Frees the reserve of a full disk for what must be written."""


def found(config: ReplicatedConfig, founders: Configuration, platform: Platform = MACHINE) -> None:
    """Prepare an empty data folder for a founder, or, without founders, for a learner.

    Raises IdentityRefused unless the folder is empty.
    """
    config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = platform.directory(config.data / RAFT_FOLDER)
    Replica.create(config.replica_config(), directory, founders, _chance().randrange)


def _chance() -> random.Random:
    return random.Random(os.urandom(16))


class ReplicatedStore(Cluster, DriverEvents):
    """Implements `qm.cluster.cluster.Cluster`. Create and use it in one event loop."""

    def __init__(
        self,
        config: ReplicatedConfig,
        connect: Callable[[TransportEvents], Transport],
        addresses: AddressBook,
        channels: Channels,
        clock: ClusterClock,
        hooks: Hooks,
        platform: Platform = MACHINE,
    ) -> None:
        """Open what `found` prepared. Raises IdentityRefused, StartRefused (also for data that was
        found wrong), and the errors of opening a log or the state.
        """
        self.config: Final = config
        self.addresses: Final = addresses
        self.clock: Final = clock
        self.before_leading: Callable[[], Awaitable[None]] | None = None
        """Awaited after this node is elected, before it stamps anything."""
        self.restore: Callable[[BodyPlace], Awaitable[bool]] | None = None
        """Restores a damaged body from another member; returns whether it can be read here then."""
        self.announce: Callable[[Callable[[], Iterable[int]]], None] | None = None
        """Told of the queues of messages that this leader is about to propose."""
        self.seals: Seals | None = None
        """Seals bodies before they are proposed, and opens those that are read."""
        self._hooks = hooks
        self._platform = platform
        self.quarantine: Final = Quarantine(config.data, hooks.give_up_reserve)
        self.quarantine.check()
        self.quarantine.prepare()
        try:
            self._skipped = SkippedEntries(config.data)
        except ValueError as error:
            raise StartRefused(str(error)) from error
        self._name = node_name(config.node)
        self._channels = channels
        self._loop = asyncio.get_running_loop()
        self._listeners = Listeners()
        self._leadership = Leadership(None, 0, False)
        self._changed = asyncio.Event()
        self.configuration = Configuration(())
        directory = platform.directory(config.data / RAFT_FOLDER)
        replica: Replica[Sequence[Outcome]] = Replica(
            config.replica_config(), directory, self._make_machine, _chance().randrange
        )
        hooks.on_members(replica.status().configuration)
        self.driver: Final[Driver[Outcome]] = Driver(
            replica,
            connect,
            self._raft_address,
            self,
            DriverConfig(GROUP, entry_weight_max=POSITIONS_PER_ENTRY_MAX),
            hooks.die,
            self._stamp,
            self._before_entry,
            platform.sync_worker,
        )
        self.clock.begin_at(self.view.counters().clock_ms)
        self._weights = Weights(lambda: self.machine.store.view)
        self.leader_streams: Final = LeaderStreams(
            self._submit,
            self._weights.of,
            hooks.admits_messages,
            lambda: not self.driver.has_entry_in_flight,
            self._announce,
        )
        self._forwarder: Forwarder | None = None
        self._streams: dict[RemoteStream, None] = {}
        self._state = ReadState(self._current_state)
        self._activation: asyncio.Task[None] | None = None
        self.apply_version = self.view.counters().apply_version
        """The state's apply version when this node last looked; written into its entries."""

    def _make_machine(self, log: LogReader) -> AppliedStore:
        store = Store(
            self.config.data / STORE_FOLDER,
            log,
            cache_bytes=self.config.cache_bytes,
            keeps_effects=self.config.keeps_effects,
            directory=self._platform.directory,
        )
        self.machine = AppliedStore(
            store,
            self._on_run,
            self._on_installed,
            self.quarantine.enter,
            self._hooks.die,
            self._skipped,
            self._platform.workers,
        )
        return self.machine

    async def start(self) -> None:
        """Take part. Raises OSError when the address cannot be had."""
        await self.driver.start()

    async def stop(self) -> None:
        """Finish accepted work, hand leadership over, and close."""
        self._end_remote("this node stops")
        await self.driver.stop()
        await self._close()

    async def abort(self) -> None:
        """Close at once; only durable data stays."""
        self._end_remote("this node stops")
        await self.driver.abort()
        await self._close()

    async def _close(self) -> None:
        self.leader_streams.end_all("this node stops")
        if self._activation is not None:
            self._activation.cancel()
        self.machine.is_closed = True  # `applied_index` may be read before the thread begins
        await asyncio.to_thread(self.machine.close)

    # Cluster

    @property
    @override
    def node(self) -> str:
        return self._name

    @property
    @override
    def leadership(self) -> Leadership:
        return self._leadership

    @property
    @override
    def state(self) -> State:
        return self._state

    def _current_state(self) -> State:
        self._check_readable()
        return self.machine.store.state

    @property
    @override
    def view(self) -> View:
        self._check_readable()
        return self.machine.store.view

    def _check_readable(self) -> None:
        if self.machine.is_installing:
            raise Unavailable(
                "this node's state is being replaced by a snapshot, or opened again after its disk"
                " was full: ask another node"
            )

    @property
    @override
    def relay_hub(self) -> RelayHub:
        return self.leader_streams

    @override
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @override
    def read_body(self, place: BodyPlace) -> bytes:
        self._check_readable()
        return self.machine.store.bodies.read(place, self._opened)

    @override
    def read_bodies(self, places: BodyPlaces) -> Packets:
        self._check_readable()
        return self.machine.store.bodies.read_all(places, self._opened)

    @property
    def _opened(self) -> Opener | None:
        return None if self.seals is None else self.seals.opened

    def copy_of_body(self, place: BodyPlace) -> bytes | None:
        """Return a stored packet for another member; None if it is not here, or damaged."""
        if self.machine.is_installing or place.ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            return None
        return self.machine.store.bodies.copy(place)

    @override
    async def restore_body(self, place: BodyPlace) -> bool:
        return self.restore is not None and await self.restore(place)

    @override
    def listen(self, listener: ClusterListener) -> Callable[[], None]:
        return self._listeners.add(listener)

    @override
    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        if self.seals is not None:
            commands = tuple(map(self.seals.sealed, commands))
        inspected = [encode_inspected(command) for command in commands]
        deadline = self._loop.time() + PROPOSE_WAIT_MS / 1000
        while True:
            leadership = self._leadership
            try:
                if leadership.is_here:
                    return await self.propose_here(inspected)
                if leadership.node is not None and self._forwarder is not None:
                    return await self._forwarder.propose([one.payload for one in inspected])
            except NotTaken as error:
                logger.debug("proposing again: %s", error)
            await self._leadership_change(leadership, deadline)

    async def _leadership_change(self, known: Leadership, deadline: float) -> None:
        """Wait for another leader, or a moment. Raises Unavailable at the deadline."""
        left = deadline - self._loop.time()
        if left <= 0:
            raise Unavailable("no leader is known: is a majority of the nodes up and connected?")
        if self._leadership is not known:
            return
        wait_s = min(left, RETRY_MS / 1000) if known.node else left
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    @override
    async def read_barrier(self) -> int:
        try:
            async with asyncio.timeout(PROPOSE_WAIT_MS / 1000):
                return await self.driver.read()
        except (TimeoutError, Busy, Stopping) as error:
            raise Unavailable(str(error) or "no leader confirms what is current") from error

    @override
    def open_relay(self, events: RelayEvents) -> RelayStream:
        leadership = self._leadership
        if leadership.is_here:
            return LocalStream(self.leader_streams, self._name, events)
        leader = leadership.node
        if leader is None or leader == self._name:
            raise Unavailable("there is no leader")
        stream = RemoteStream(
            self._name,
            leadership.term,
            lambda: self._channels.stub(leader),
            events,
            lambda stream: self._streams.pop(stream, None),
        )
        self._streams[stream] = None
        return stream

    # The leader's side

    def leads_in(self, term: int) -> bool:
        """Return whether this node leads in a term, and has begun to serve."""
        return self._leadership.is_here and self._leadership.term == term

    async def comes_to_lead(self, term: int) -> bool:
        """Return whether this node leads in a term, waiting while it prepares to serve.

        Followers learn of an election before the leader's first command is applied. If refused,
        they would ask again only after a pause, which would delay their peers.
        """
        end = self._loop.time() + BEGIN_WAIT_MS / 1000
        while self._activation is not None and self._leadership.term == term:
            if self._leadership.is_here or self._loop.time() >= end:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._changed.wait()
        return self.leads_in(term)

    def _submit(self, payload: bytes, weight: int) -> tuple[Pending, int]:
        """Submit to the driver, unless the state cannot be read. Raises Busy."""
        if self.machine.is_installing:
            raise Busy("the leader opens its state again after its disk was full")
        return self.driver.submit(payload, weight)

    def _announce(self, command: Inspected) -> None:
        if self.announce is not None and not self.machine.is_installing:
            self.announce(lambda: queues_of(command, self.view))

    def _before_entry(self) -> None:
        """Called by the driver, which is made before the streams that submit to it."""
        self.leader_streams.gather()

    async def propose_here(self, commands: Sequence[Inspected]) -> Sequence[Outcome]:
        """Propose in order. Raises NotTaken, Unavailable, OutcomeUnknown, ValueError."""
        if not self._leadership.is_here:
            raise NotTaken("this node does not lead")
        if not self._hooks.admits_messages() and any(map(is_send, commands)):
            raise Unavailable("the leader's disk is nearly full: receive or purge messages")
        check_since(commands, self.apply_version)
        for command in commands[:ANNOUNCED_MAX]:
            self._announce(command)
        return await gather_outcomes(submit_all(self._submit, self._weights.of, commands))

    # Disks without space

    async def reopen_state(self) -> None:
        """Open the state again if its database takes no writes since it found no space.

        Meanwhile it cannot be read, and a leader in that condition does not serve. Call it when
        there is space. Raises DatabaseFull: call it again later.
        """
        if not self.machine.begin_reopening():
            return
        before = self._leadership
        if before.is_here:
            self._end_serving("the leader opens its state again after its disk was full")
            self._set_leadership(Leadership(before.node, before.term, False))
        await asyncio.to_thread(self.machine.reopen)
        self._restored()
        self._serve_again()

    def _serve_again(self) -> None:
        term = self._leadership.term
        if self.driver.role is Role.LEADER and self._activation is None:
            self._activation = asyncio.create_task(self._activate(term), name="leader activation")

    def _end_serving(self, reason: str) -> None:
        """Undo what `_activate` began."""
        if self._activation is not None:
            self._activation.cancel()
            self._activation = None
        self.clock.follow()
        self.leader_streams.end_all(reason)

    # DriverEvents

    @override
    def on_soft_state(self, state: SoftState) -> None:
        before = self._leadership
        leader = None if state.leader is None else node_name(state.leader)
        is_same_term = state.term == before.term
        leads = state.role is Role.LEADER
        if not (leads and is_same_term) and self._activation is not None:
            self._end_serving("another term began")
        self._set_leadership(
            Leadership(leader, state.term, leads and before.is_here and is_same_term)
        )
        if leads and self._activation is None:
            task = self._activate(state.term)
            self._activation = asyncio.create_task(task, name="leader activation")

    def _set_leadership(self, leadership: Leadership) -> None:
        before, self._leadership = self._leadership, leadership
        if leadership == before:
            return
        if leadership.node is not None and (leadership.node, leadership.term) != (
            before.node,
            before.term,
        ):
            self._follow_leader(leadership)
        self._changed.set()
        self._changed = asyncio.Event()
        self._listeners.leadership(leadership)

    def _follow_leader(self, leadership: Leadership) -> None:
        """End what went to an older leader; while there is no new one it may still answer."""
        self._end_remote(f"{leadership.node} leads in term {leadership.term}")
        leader = leadership.node
        if leader is not None and leader != self._name:
            self._forwarder = Forwarder(lambda: self._channels.stub(leader))

    def _end_remote(self, reason: str) -> None:
        if self._forwarder is not None:
            self._forwarder.close()
            self._forwarder = None
        for stream in list(self._streams):
            stream.end(reason)

    async def _activate(self, term: int) -> None:
        """Begin to serve as the leader of a term: LeaderActivated is its first command."""
        while self.machine.is_installing:
            await asyncio.sleep(RETRY_MS / 1000)
        if self.before_leading is not None:
            try:
                await self.before_leading()
            except Exception:
                # Time then continues from the last stamp: at worst it is late.
                logger.exception("cluster time was not checked before leading")
        self.clock.lead()
        self.apply_version = self.view.counters().apply_version
        command = encode_command(LeaderActivated(term, self._name, self.config.keeps_effects))
        try:
            pending, _ = self.driver.submit(command)
            await pending.wait()
        except Exception as error:  # leadership is lost already
            logger.warning("not activated in term %d: %r", term, error)
            return
        if self._leadership.term == term and self.driver.role is Role.LEADER:
            self._set_leadership(Leadership(self._name, term, True))

    @override
    def on_configuration(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._hooks.on_members(configuration)

    @override
    def on_alarm(self, alarm: Alarm) -> None:
        self._hooks.on_alarm(alarm)

    def _raft_address(self, node: NodeId) -> str | None:
        address = self.addresses.get(node_name(node))
        return None if address is None else address.raft

    def _stamp(self, payloads: Sequence[bytes | memoryview]) -> bytes:
        stamp = Stamp(self.clock.now_ms(), self._name, self.apply_version)
        if self.apply_version >= VERSION_OF_ENTRY_HASH and self.machine.store.is_chained:
            return hashed(stamp, payloads)
        return encode_stamp(stamp)

    # The state machine

    def _on_run(self, run: Sequence[Applied]) -> None:
        if run:
            self.clock.observe(run[-1].now_ms)
            self._listeners.applied(run)

    def _on_installed(self) -> None:
        """Called in the thread that installs."""
        self._loop.call_soon_threadsafe(self._restored)

    def _restored(self) -> None:
        self.clock.observe(self.view.counters().clock_ms)
        self._listeners.restored(self.machine.applied_index())

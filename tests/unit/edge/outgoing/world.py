"""A queue manager in memory that sends over real sockets, and the peers that it sends to.

The replicated state is the real state machine; consensus is a double that commits at once, or when
it is told to. Several nodes share one state, as replicas do, and lead in turn. Time is moved by
hand: sockets and event loop are real, timers are not waited for.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, cast

from prometheus_client import CollectorRegistry

from qm.cluster.cluster import ClusterListener, Leadership, Unavailable
from qm.cluster.relay import (
    RELAY_BATCHES_MAX,
    LatePackets,
    RelayEvents,
    RelayHubEvents,
    RelayStream,
    SessionFacts,
)
from qm.edge import Edge, EdgeSettings
from qm.edge.outgoing import OutgoingManager, OutgoingSettings
from qm.model.queries.view import View
from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, State, Table
from qm.model.values import commands
from qm.model.values.commands import Command, Stamp
from qm.model.values.effects import Applied, Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.records import SyntheticPacket, decode
from qm.model.values.rows import BODY_KEY
from qm.observe.metrics import Metrics
from qm.session import (
    AcksReceived,
    Closed,
    CloseReason,
    Established,
    FinalAckArrived,
    OrderAckArrived,
    OutgoingState,
    PacketsArrived,
    Role,
    Session,
    SessionConfig,
    SessionState,
)
from qm.store.bodies.body_places import BodyDamaged, BodyPlace, BodyPlaces, Packets
from qm.store.codec import decode_entry, encode_stamp
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck, write_final_ack, write_order_ack
from qm.wire.packets.internal import (
    ESTABLISH_CONNECTION_SIZE_BYTES,
    parse_establish_connection,
)
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from raft.batch import BatchBuilder
from tests.unit.model.world import ClientInWorld, World, packet

PATIENCE_S = 20.0
EDGE = EdgeSettings(addresses=("127.0.0.1",), port=0, answer_pings=False)
RETRY_S = 5.1
"""Session Retry Connect Timer [MS-MQQB 3.1.2.3], and a little."""
PEER_GUID = b"FAR-" * 4
TRANSACTIONAL = (1, 1, 0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in its own event loop."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Poll until `condition` holds; after PATIENCE_S fail with what was seen last."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come about: {what()}")
        await asyncio.sleep(0.002)


async def settled(turns: int = 60) -> None:
    """Let everything that can happen now happen: for showing that something does not.

    All ends of all sockets are in this loop, so that each of its turns moves everything on.
    """
    for _ in range(turns):
        await asyncio.sleep(0)


def free_port(*hosts: str) -> int:
    """Return a port that is free on all of these addresses."""
    while True:
        with socket.socket() as first:
            first.bind((hosts[0], 0))
            port = int(first.getsockname()[1])
        try:
            for host in hosts:
                with socket.socket() as other:
                    other.bind((host, port))
        except OSError:
            continue
        return port


class Hub:
    """The leader's side of relay streams, with sessions that a test opens."""

    def __init__(self) -> None:
        self.open: list[tuple[str, SessionFacts]] = []
        self.late: list[tuple[str, LatePackets]] = []
        self.listener: RelayHubEvents | None = None
        self.is_entry_in_flight = True

    def is_free(self) -> bool:
        return not self.is_entry_in_flight

    def sessions(self, queue_manager: bytes) -> Sequence[tuple[str, SessionFacts]]:
        return [one for one in self.open if one[1].queue_manager == queue_manager]

    def send_late(self, edge: str, packets: LatePackets) -> None:
        self.late.append((edge, packets))

    def listen(self, listener: RelayHubEvents) -> None:
        self.listener = listener

    def session(self, edge: str, facts: SessionFacts, *, is_open: bool = True) -> None:
        """Let a session of an edge open or close."""
        if is_open:
            self.open.append((edge, facts))
        else:
            self.open.remove((edge, facts))
        assert self.listener is not None
        self.listener.on_session(edge, facts, is_open)

    def late_messages(self) -> list[UserMessage]:
        """What was sent late, parsed."""
        return [
            parse_user_message(raw, 0, len(raw))[0] for _, late in self.late for raw in late.packets
        ]

    def answer(self, *, is_delivered: bool) -> None:
        """Say of everything that was sent late what became of it."""
        late, self.late = self.late, []
        assert self.listener is not None
        for edge, packets in late:
            self.listener.on_late_result(edge, packets.session, packets.tokens, is_delivered)


class Replicated(World):
    """The state that all nodes share."""

    def __init__(self) -> None:
        self.listeners: list[ClusterListener] = []
        self.is_available = True
        self.is_committing = asyncio.Event()
        self.is_committing.set()
        self.proposed: list[Command] = []
        self.offset_s = 0.0
        super().__init__()
        self.one(commands.RaiseApplyVersion(APPLY_VERSION))

    def apply(self, *batch: Command) -> Applied:
        applied = super().apply(*batch)
        for listener in list(self.listeners):
            listener.on_applied(applied)
        return applied

    def apply_payload(self, payload: bytes) -> Outcome:
        """Apply an entry that a relay stream brought."""
        (outcome,) = self.apply(*self.decoded(payload)).outcomes
        return outcome

    def decoded(self, payload: bytes) -> tuple[Command, ...]:
        """Return what a payload holds, its bodies kept."""
        builder = BatchBuilder()
        builder.add(encode_stamp(Stamp(self.now_ms, "n1.1", APPLY_VERSION)))
        builder.add(payload)
        found = decode_entry(self.index + 1, builder.build()).commands
        for command in found:
            if isinstance(command, commands.EdgeBatch):
                bounds = zip(command.offsets, command.offsets[1:], strict=False)
                for number, (start, stop) in enumerate(bounds, command.first_ordinal):
                    raw = bytes(command.packets[start:stop])
                    self.bodies[command.body_index, number] = raw
        return found

    def clock(self) -> float:
        return time.monotonic() + self.offset_s


class Stream:
    """A relay stream of one leader's term: batches are applied in order, when they may be."""

    def __init__(self, node: InProcessNode, events: RelayEvents) -> None:
        self.room = RELAY_BATCHES_MAX
        self.least_bytes = 0
        self._replicated = node.replicated
        self._streams = node.streams
        self._streams.append(self)
        self._events = events
        self._sent: deque[tuple[int, bytes]] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, number: int, payload: bytes) -> None:
        self._sent.append((number, payload))
        self._replicated.proposed += self._replicated.decoded(payload)
        self.room -= 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        replicated = self._replicated
        while self._sent:
            await replicated.is_committing.wait()
            await asyncio.sleep(0)
            if not replicated.is_available:
                self._task = None
                self.end("no majority")
                return
            number, payload = self._sent.popleft()
            self.room += 1
            outcome = replicated.apply_payload(payload)
            self._events.on_outcome(number, replicated.index, outcome)
        self._task = None

    def session_opened(self, session: SessionFacts) -> None:
        raise AssertionError(f"session {session.number} of the sending side was announced")

    def session_closed(self, number: int) -> None:
        raise AssertionError(f"session {number} was never announced")

    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        raise AssertionError(f"session {session} was given nothing: {tokens}")

    def close(self) -> None:
        if self in self._streams:
            self._streams.remove(self)
        if self._task is not None:
            self._task.cancel()

    def end(self, reason: str) -> None:
        """The leader or its majority is gone."""
        self.close()
        self._events.on_end(reason)


class InProcessNode:
    """One node's `Cluster`."""

    def __init__(self, replicated: Replicated, name: str) -> None:
        self.replicated = replicated
        self._node = name
        self.hub = Hub()
        self.is_damaged = False
        self.breaks_off = False
        """Whether restorations end as when a channel is closed under them."""
        self.streams: list[Stream] = []
        self._leadership = Leadership(None, 0, False)
        self._listeners: list[ClusterListener] = []

    @property
    def node(self) -> str:
        return self._node

    @property
    def leadership(self) -> Leadership:
        return self._leadership

    @property
    def state(self) -> State:
        return self.replicated.state

    @property
    def view(self) -> View:
        return View.of(self.replicated.state)

    @property
    def relay_hub(self) -> Hub:
        return self.hub

    def now_ms(self) -> int:
        return self.replicated.now_ms

    def read_body(self, place: BodyPlace) -> bytes:
        if self.is_damaged:
            raise BodyDamaged("a flipped bit")
        if place.ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            key = BODY_KEY.pack(place.index, place.ordinal)
            row = self.replicated.state.get(Table.SYNTHETIC, key)
            assert row is not None, "a position without its packet"
            return decode(SyntheticPacket, row).packet
        return self.replicated.bodies[place.index, place.ordinal]

    def read_bodies(self, places: BodyPlaces) -> Packets:
        raise NotImplementedError

    async def restore_body(self, place: BodyPlace) -> bool:
        if self.breaks_off:
            raise asyncio.CancelledError
        return True

    def listen(self, listener: ClusterListener) -> Callable[[], None]:
        self._listeners.append(listener)
        self.replicated.listeners.append(listener)

        def end() -> None:
            self._listeners.remove(listener)
            self.replicated.listeners.remove(listener)

        return end

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        replicated = self.replicated
        replicated.proposed += commands
        await replicated.is_committing.wait()
        await asyncio.sleep(0)
        if not replicated.is_available:
            raise Unavailable("no leader")
        return replicated.apply(*commands).outcomes

    async def read_barrier(self) -> int:
        return self.replicated.index

    def open_relay(self, events: RelayEvents) -> RelayStream:
        if self._leadership.node is None or not self.replicated.is_available:
            raise Unavailable("no leader")
        return Stream(self, events)

    def restore(self) -> None:
        """A snapshot replaces the state."""
        for listener in list(self._listeners):
            listener.on_restored(self.replicated.index)

    def lead(self, leadership: Leadership) -> None:
        self._leadership = leadership
        for stream in list(self.streams):
            stream.end("another term")
        for listener in list(self._listeners):
            listener.on_leadership(leadership)


class Names:
    """A resolver that knows what a test tells it."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        if host.replace(".", "").isdigit():
            return [host]
        if host not in self.known:
            raise OSError(f"nobody knows {host}")
        return self.known[host]


class SendingCluster:
    """Nodes that send: `world`'s clients fill outgoing queues, the leader delivers them."""

    def __init__(
        self, port: int, *, peers: dict[bytes, str] | None = None, has_prompt_acks: bool = False
    ) -> None:
        self.world = Replicated()
        self.names = Names()
        self.registries = {name: CollectorRegistry() for name in ("n1", "n2")}
        self.nodes = {name: InProcessNode(self.world, name) for name in ("n1", "n2")}
        self.settings = OutgoingSettings(
            port=port,
            peers=peers or {},
            source_address="127.0.0.1",
            are_order_acks_prompt=has_prompt_acks,
        )
        self.edges: dict[str, Edge] = {}
        self.managers: dict[str, OutgoingManager] = {}
        self.term = 0
        self.client: ClientInWorld = self.world.client(lease_ms=24 * 3600 * 1000)

    async def __aenter__(self) -> Self:
        for name, node in self.nodes.items():
            metrics = Metrics(self.registries[name])
            edge = self.edges[name] = Edge(node, EDGE, metrics)
            await edge.start()
            manager = self.managers[name] = OutgoingManager(
                node,
                self.settings,
                metrics,
                relay=edge.relay,
                resolver=self.names,
                clock=self.world.clock,
            )
            manager.start()
        self.lead("n1")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.world.is_committing.set()
        for manager in self.managers.values():
            manager.stop()
        for edge in self.edges.values():
            await edge.stop()
        await settled()

    @property
    def hub(self) -> Hub:
        """The leader's."""
        return next(node.hub for node in self.nodes.values() if node.leadership.is_here)

    @property
    def manager(self) -> OutgoingManager:
        """The leader's."""
        return next(
            self.managers[name] for name, node in self.nodes.items() if node.leadership.is_here
        )

    def lead(self, name: str | None) -> None:
        """Change the leader; None: there is none."""
        self.term += 1
        for node in self.nodes.values():
            node.hub.late.clear()
        if name is not None:
            self.world.one(commands.LeaderActivated(self.term, name, is_archived=False))
        for node in sorted(self.nodes.values(), key=lambda node: node.node == name):
            node.lead(Leadership(name, self.term, node.node == name))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.world.offset_s += seconds
        self.world.tick(int(seconds * 1000))
        for manager in self.managers.values():
            manager.run_timers()

    def send(
        self, destination: str, count: int = 1, *, is_transactional: bool = False, **fields: Any
    ) -> int:
        """Send messages whose bodies are their running numbers; return the outgoing queue."""
        queue_id = 0
        for _ in range(count):
            number = len(self.world.bodies)
            sequence = TRANSACTIONAL if is_transactional else None
            raw = packet(0, body=b"%d" % number, sequence=sequence, **fields)
            transaction = self.client.begin(f"t{number}") if is_transactional else None
            if self.client.number % 1_000 > 990:
                self.world.one(commands.Confirm(self.client.client_id, self.client.number))
            outcome = self.client.send(destination, raw=raw, transaction=transaction)
            assert outcome.status == 0, hex(outcome.status)
            assert isinstance(outcome.value, tuple)
            queue_id = outcome.value[1][0][0]
            if transaction is not None:
                assert self.client.commit(transaction) == 0
        self.world.one(commands.Confirm(self.client.client_id, self.client.number))
        return queue_id

    async def retry(self, queue_id: int) -> None:
        """Wait until a queue waits for its retry timer, and let it fire."""

        def is_waiting() -> bool:
            report = self.manager.report(queue_id)
            failed = (OutgoingState.DISCONNECTED, OutgoingState.NEED_VALIDATION)
            return report is not None and report.state in failed

        await until(is_waiting, lambda: self.manager.report(queue_id))
        self.advance(RETRY_S)

    def waiting(self, queue_id: int) -> int:
        """How many messages are in a queue."""
        return len(self.world.positions(queue_id))

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric summed over the nodes."""
        found = (registry.get_sample_value(name, labels) for registry in self.registries.values())
        return sum(value or 0.0 for value in found)

    def dead_letters(self, *, is_transactional: bool = False) -> list[bytes]:
        """Return the bodies of the dead letters."""
        which = (
            "system_transactional_deadletter_queue"
            if is_transactional
            else ("system_deadletter_queue")
        )
        return [m.properties.message_body for m in self._messages(which)]

    def journal(self) -> list[bytes]:
        """Return the bodies in the system journal."""
        return [m.properties.message_body for m in self._messages("system_journal_queue")]

    def _messages(self, which: str) -> list[UserMessage]:
        return self.world.messages(self.world.manager_queue(which))


class PeerConnection(asyncio.Protocol):
    """One accepted connection of a peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.session = Session(peer.config, Role.ACCEPTOR, peer.guid, time.monotonic())
        self.transport: asyncio.Transport | None = None
        self.remote_address = ""
        self.arrived = 0
        self.request = b""
        """What came first."""
        self.released: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.remote_address = transport.get_extra_info("peername")[0]
        self.peer.connections.append(self)
        if self.peer.greeting:
            self.transport.write(self.peer.greeting)

    def data_received(self, data: bytes) -> None:
        if self.peer.is_deaf:
            return
        if len(self.request) < ESTABLISH_CONNECTION_SIZE_BYTES:
            self.request += data
            if len(self.request) >= ESTABLISH_CONNECTION_SIZE_BYTES:
                asked, _ = parse_establish_connection(self.request, 0, len(self.request))
                self.peer.asked_for.append(asked.server_guid)
        self.session.receive(data, time.monotonic())
        self.settle()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.session.close(CloseReason.DISCONNECTED)
        if self in self.peer.connections:
            self.peer.connections.remove(self)

    def settle(self) -> None:
        while (event := self.session.next_event()) is not None:
            match event:
                case PacketsArrived():
                    self.arrived = event.first_position + len(event.kinds) - 1
                    bounds = zip(event.offsets, event.offsets[1:], strict=False)
                    for start, stop in bounds:
                        self.peer.on_message(event.block[start:stop])
                case OrderAckArrived():
                    self.arrived = event.position
                    self.peer.order_acks.append(event.order_ack)
                case FinalAckArrived():
                    self.arrived = event.position
                    self.peer.final_acks.append(event.final_ack)
                case AcksReceived():
                    self.released += event.released
                case Established():
                    self.peer.established += 1
                    self.peer.ack_timeouts_ms.append(event.ack_wait_timeout_ms)
                case Closed():
                    self.peer.closed.append(event)
                    self.write()
                    assert self.transport is not None
                    self.transport.close()
                case _:
                    pass
        if self.peer.is_acknowledging:
            self.session.commit(self.arrived)
        self.write()

    def write(self) -> None:
        assert self.transport is not None
        while data := self.session.take_outgoing(time.monotonic()):
            if not self.peer.is_mute:
                self.transport.write(data)

    def handle_all_timers(self) -> None:
        """Let the session acknowledge what it has committed without waiting."""
        due = self.session.next_timer()
        assert due is not None
        self.session.handle_timer(due)
        self.write()

    def offer(self, token: int, raw: bytes) -> None:
        self.session.offer([token], [raw])
        self.write()

    def drop(self) -> None:
        """Cut the connection."""
        if self.transport is not None:
            self.transport.abort()


class Peer:
    """Another queue manager: accepts sessions and applies the acceptance rules obviously."""

    def __init__(self, host: str, port: int, guid: bytes = PEER_GUID) -> None:
        self.host, self.port, self.guid = host, port, guid
        self.config = SessionConfig()
        self.connections: list[PeerConnection] = []
        self.closed: list[Closed] = []
        self.asked_for: list[bytes] = []
        """ServerGuid of each request for a session."""
        self.established = 0
        self.ack_timeouts_ms: list[int] = []
        """AckTimeout of each request for a session."""
        self.is_acknowledging = True
        self.is_order_acking = True
        self.is_mute = False
        self.is_deaf = False
        self.greeting = b""
        self.raw: list[bytes] = []
        """Everything that arrived, repeats included."""
        self.taken: list[UserMessage] = []
        """What an application would receive, in order."""
        self.order_acks: list[OrderAck] = []
        self.final_acks: list[FinalAck] = []
        self._known: set[tuple[bytes, int, int]] = set()
        self._sequences: dict[tuple[bytes, str], tuple[int, int]] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Peer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: PeerConnection(self), self.host, self.port)

    async def shut(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        self.cut()
        if self._server is not None:
            with suppress(asyncio.CancelledError):
                await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        """Cut every connection."""
        for connection in list(self.connections):
            connection.drop()

    @property
    def address(self) -> str:
        """The direct format name of a queue here."""
        return f"DIRECT=TCP:{self.host}\\q"

    @property
    def bodies(self) -> list[int]:
        """The running numbers of what an application would receive."""
        return [int(message.properties.message_body) for message in self.taken]

    def on_message(self, raw: bytes) -> None:
        """Judge one message by the rules of DESIGN section 4."""
        self.raw.append(raw)
        message, _ = parse_user_message(raw, 0, len(raw))
        header = message.user_header
        if message.transaction is None:
            key = (header.source_queue_manager, header.sent_time, header.message_id)
            if key not in self._known:
                self._known.add(key)
                self.taken.append(message)
            return
        transaction = message.transaction
        stream = (header.source_queue_manager, repr(header.destination_queue))
        sequence, number = self._sequences.get(stream, (0, 0))
        sid, n = transaction.tx_sequence_id.to_int(), transaction.tx_sequence_number
        previous = transaction.previous_tx_sequence_number
        if (sid == sequence and previous <= number < n) or (sid > sequence and previous == 0):
            self._sequences[stream] = (sid, n)
            self.taken.append(message)
        if self.is_order_acking:
            self.send_order_ack()

    def send_order_ack(self, upto: int | None = None) -> None:
        """Acknowledge every sequence as far as it has arrived, or up to a number."""
        for (source, _), (sid, arrived) in self._sequences.items():
            number = arrived if upto is None else min(arrived, upto)
            self.send_back(
                write_order_ack(
                    OrderAck(
                        self.guid, source, ORDER_QUEUE, 1, 1, TxSequenceId.from_int(sid),
                        number, number - 1,
                    )
                )
            )  # fmt: skip

    def send_final_ack(
        self, message: UserMessage, message_class: int, *, of: bytes | None = None
    ) -> None:
        """Say what became of a message, or of one of another queue manager with its MessageID."""
        transaction = message.transaction
        assert transaction is not None
        source = message.user_header.source_queue_manager
        self.send_back(
            write_final_ack(
                FinalAck(
                    self.guid, source, ORDER_QUEUE, 1, 2, transaction.tx_sequence_id,
                    transaction.tx_sequence_number, 0, message_class, of or source,
                    message.user_header.message_id,
                )
            )
        )  # fmt: skip

    def send_back(self, raw: bytes) -> None:
        """Send over an open session."""
        for connection in self.connections:
            if connection.session.state is SessionState.OPEN:
                connection.offer(0, raw)
                return

    def acknowledge(self) -> None:
        """Commit everything that arrived, now and from now on."""
        self.is_acknowledging = True
        for connection in list(self.connections):
            connection.settle()


@asynccontextmanager
async def one_peer(
    host: str, guid: bytes = PEER_GUID, *, is_mapped: bool = False
) -> AsyncIterator[tuple[Peer, SendingCluster]]:
    """A peer at `host` and nodes that send to it.

    `is_mapped`: their configuration says that PEER_GUID is there.
    """
    port = free_port(host)
    mapped = {PEER_GUID: host} if is_mapped else {}
    async with Peer(host, port, guid) as peer, SendingCluster(port, peers=mapped) as cluster:
        yield peer, cluster


@asynccontextmanager
async def two_peers(host: str, other_host: str) -> AsyncIterator[tuple[Peer, Peer, SendingCluster]]:
    """Two peers, PEER_GUID first, and nodes that send to both."""
    port = free_port(host, other_host)
    async with (
        Peer(host, port) as first,
        Peer(other_host, port, b"OTHR" * 4) as second,
        SendingCluster(port) as cluster,
    ):
        yield first, second, cluster


async def gather(*awaited: Awaitable[None]) -> None:
    """Await all."""
    await asyncio.gather(*awaited)

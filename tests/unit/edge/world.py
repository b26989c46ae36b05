"""Edges on real sockets, in front of a consensus that does what a test says.

`Consensus` is the one double: a log in memory and who leads. What goes through it is real: the
codec, `qm.model.Machine`, positions and bodies. It answers from the event loop, never from within a
call, as the product does. `Peer` is another queue manager: a `Session` on a TCP connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from qm.cluster.cluster import ClusterListener, Leadership, Unavailable
from qm.cluster.relay import (
    OVERLAP_MIN_BYTES,
    RELAY_BATCHES_MAX,
    RELAY_MAX_BYTES,
    LatePackets,
    RelayEvents,
    RelayHub,
    RelayStream,
    SessionFacts,
)
from qm.cluster.sealing import NO_SEALING, Sealing
from qm.edge import Edge, EdgeSettings
from qm.model.machine import Machine
from qm.model.queries import View
from qm.model.state.tables import MemoryState, Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, Stamp
from qm.model.values.effects import Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.rows import POSITION_KEY, Position, unpack_position
from qm.observe.metrics import Metrics
from qm.security.directory import EMPTY_DIRECTORY, Directory
from qm.security.own_keys import NO_KEYS, OwnKeys
from qm.session import (
    Closed,
    CloseReason,
    Established,
    Event,
    OrderAckArrived,
    Role,
    Session,
    SessionConfig,
)
from qm.store.bodies.body_places import BodyPlace, BodyPlaces, Packets
from qm.store.codec import decode_entry, encode_command, encode_stamp
from qm.wire.packets.ack import OrderAck
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message
from raft.batch import BatchBuilder
from tests.unit.model.world import HOST, NOW_MS, OWN, PEER, packet

__all__ = ["HOST", "OWN", "PEER", "packet"]

ADDRESS = "127.0.0.1"

WAIT_S = 20.0
OTHER = b"OTHR" * 4
T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in the production loop, with a bound."""
    uvloop.run(asyncio.wait_for(scenario, 60.0))


async def until(
    condition: Callable[[], object],
    last_seen: Callable[[], object] = str,
    pause_s: float = 0.002,
) -> None:
    """Wait until the condition holds; fail with what was seen last."""
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_S
    while not condition():
        assert loop.time() < end, f"not within {WAIT_S} s; last seen: {last_seen()}"
        await asyncio.sleep(pause_s)


def lines_of(caplog: pytest.LogCaptureFixture, kind: str) -> list[dict[str, Any]]:
    """Return the fields of the log lines of one kind."""
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    return [found for found in fields if found.get("kind") == kind]


# Consensus ---------------------------------------------------------------------------------


class Stream:
    """A relay stream to the leader of one term."""

    def __init__(self, consensus: Consensus, edge: str, events: RelayEvents) -> None:
        self.edge = edge
        self.events = events
        self.sessions: dict[int, SessionFacts] = {}
        self.sent: deque[tuple[int, bytes]] = deque()
        self.is_over = False
        self._consensus = consensus

    @property
    def room(self) -> int:
        if self._consensus.has_no_room or sum(len(p) for _, p in self.sent) >= RELAY_MAX_BYTES:
            return 0
        return RELAY_BATCHES_MAX - len(self.sent)

    @property
    def least_bytes(self) -> int:
        return 0 if self._consensus.is_free else OVERLAP_MIN_BYTES

    def send(self, number: int, payload: bytes) -> None:
        assert self.room > 0
        assert not self.sent or number > self.sent[-1][0], "numbers rise"
        self.sent.append((number, payload))
        self._consensus.batches += 1
        if self._consensus.is_working:
            asyncio.get_running_loop().call_soon(self._consensus.work)

    def session_opened(self, session: SessionFacts) -> None:
        self.sessions[session.number] = session

    def session_closed(self, number: int) -> None:
        del self.sessions[number]

    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        self._consensus.late += [(token, is_delivered) for token in tokens]

    def close(self) -> None:
        self.is_over = True
        self._consensus.streams.remove(self)


class Consensus:
    """The log, the machine, and who leads."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.machine = Machine(self.state)
        self.leader: str | None = "n1"
        self.term = 1
        self.is_working = True
        """Whether batches are applied as they come; `work` applies them else."""
        self.has_no_room = False
        self.insecure: list[tuple[str, int, str]] = []
        """Class, number and address of messages that edges refused for their security."""
        self.is_free = True
        """Whether no entry is in flight."""
        self.batches = 0
        self.late: list[tuple[int, bool]] = []
        """Leader's tokens of late packets, and whether each was delivered."""
        self.streams: list[Stream] = []
        self.listeners: list[ClusterListener] = []
        self.entries: list[bytes] = []
        self.now_ms = NOW_MS

    def apply(self, *payloads: bytes) -> list[Outcome]:
        """Commit one entry and apply it."""
        builder = BatchBuilder()
        builder.add(encode_stamp(Stamp(self.now_ms, "n1", APPLY_VERSION)))
        for payload in payloads:
            builder.add(payload)
        self.entries.append(builder.build())
        applied = self.machine.apply(decode_entry(len(self.entries), self.entries[-1]))
        for listener in list(self.listeners):
            listener.on_applied(applied)
        return applied.outcomes

    def one(self, command: Command) -> Outcome:
        """Commit one command."""
        (outcome,) = self.apply(encode_command(command))
        return outcome

    def work(self, batches: int = 1 << 30) -> None:
        """Apply what streams have sent, and answer."""
        for stream in list(self.streams):
            while stream.sent and batches and not stream.is_over:
                batches -= 1
                number, payload = stream.sent.popleft()
                (outcome,) = self.apply(payload)
                stream.events.on_outcome(number, len(self.entries), outcome)

    def apply_unanswered(self, batches: int = 1 << 30) -> None:
        """Apply what streams have sent, but let the answers be lost."""
        for stream in self.streams:
            for _, payload in list(stream.sent)[:batches]:
                self.apply(payload)

    def lose_leader(self) -> None:
        """Streams end; what they carried is not applied unless it was before."""
        self.leader = None
        self._tell()
        for stream in list(self.streams):
            self.streams.remove(stream)
            stream.is_over = True
            stream.events.on_end("the leader is gone")

    def lose_contact(self) -> None:
        """This node no longer hears of the leader; its stream just stalls."""
        self.is_working = False
        self.leader = None
        self._tell()

    def regain_contact(self) -> None:
        """It does, and nothing has changed."""
        self.leader = "n2"
        self._tell()
        self.is_working = True
        self.work()

    def elect(self, leader: str) -> None:
        """Begin a new term."""
        self.term += 1
        self.leader = leader
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener.on_leadership(Leadership(self.leader, self.term, False))

    def send_late(self, tokens: Sequence[int], packets: Sequence[bytes]) -> None:
        """Send packets by the only open session."""
        ((stream, number),) = [(s, n) for s in self.streams for n in s.sessions]
        stream.events.on_late_packets(LatePackets(number, tuple(tokens), tuple(packets)))

    def set_manager(self, **changes: Any) -> None:
        """Change attributes of the queue manager."""
        encoded = {name: encode_attribute(value) for name, value in changes.items()}
        command = commands.SetQueueManager(commands.Request("", 1, 0), encoded, ())
        assert self.one(command).status == 0

    # Queues

    def provision(self) -> None:
        """Make it a queue manager."""
        born = commands.Provision(OWN, HOST, f"{HOST}.example", (), bytes(16), 7, b"", b"")
        assert self.one(born).status == 0

    def create(self, name: str, **attributes: Any) -> int:
        """Create a queue; return its queue_id."""
        identifier = name.encode().ljust(16, b"\0")[:16]
        outcome = self.one(
            commands.CreateQueue(
                commands.Request("", 1, 0),
                identifier,
                identifier[::-1],
                f".\\{name}",
                {key: encode_attribute(value) for key, value in attributes.items()},
                b"",
                (),
            )
        )
        assert isinstance(outcome.value, int), hex(outcome.status)
        return outcome.value

    def positions(self, queue_id: int) -> list[tuple[int, Position]]:
        """Return (key, position) of a queue, in order."""
        rows = self.state.scan(
            Table.POSITION,
            POSITION_KEY.pack(queue_id, 0),
            POSITION_KEY.pack(queue_id + 1, 0),
            1 << 30,
        )
        return [(POSITION_KEY.unpack(key)[1], unpack_position(row)) for key, row in rows]

    def messages(self, queue_id: int) -> list[UserMessage]:
        """Return the messages of a queue, in order, read where their positions say."""
        found = []
        for _, position in self.positions(queue_id):
            start = position.body_offset
            stop = start + position.body_length
            raw = self.entries[position.body_index - 1][start:stop]
            found.append(parse_user_message(raw, 0, len(raw))[0])
        return found

    def ids(self, queue_id: int) -> list[int]:
        """Return the MessageIDs of a queue, in order."""
        return [position.message_ordinal for _, position in self.positions(queue_id)]


class Face:
    """One node's `Cluster`."""

    def __init__(self, consensus: Consensus, node: str) -> None:
        self.node = node
        self._consensus = consensus

    @property
    def leadership(self) -> Leadership:
        consensus = self._consensus
        return Leadership(consensus.leader, consensus.term, consensus.leader == self.node)

    @property
    def state(self) -> MemoryState:
        return self._consensus.state

    @property
    def view(self) -> View:
        return self._consensus.machine.view

    @property
    def relay_hub(self) -> RelayHub:
        raise NotImplementedError

    def now_ms(self) -> int:
        return self._consensus.now_ms

    def read_body(self, place: BodyPlace) -> bytes:
        raise NotImplementedError

    def read_bodies(self, places: BodyPlaces) -> Packets:
        raise NotImplementedError

    async def restore_body(self, place: BodyPlace) -> bool:
        return False

    def listen(self, listener: ClusterListener) -> Callable[[], None]:
        self._consensus.listeners.append(listener)
        return lambda: self._consensus.listeners.remove(listener)

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        raise NotImplementedError

    async def read_barrier(self) -> int:
        raise NotImplementedError

    def open_relay(self, events: RelayEvents) -> RelayStream:
        consensus = self._consensus
        if consensus.leader is None:
            raise Unavailable("there is no leader")
        stream = Stream(consensus, self.node, events)
        consensus.streams.append(stream)
        return stream


# A world -----------------------------------------------------------------------------------


class World:
    """One edge in front of a consensus."""

    def __init__(self, consensus: Consensus, edge: Edge, registry: CollectorRegistry) -> None:
        self.consensus = consensus
        self.edge = edge
        self._registry = registry
        self.at_end: list[Callable[[], object]] = []
        """What closes a test's own transports; uvloop does not end well while any is open."""

    async def restart_edge(self) -> None:
        """End the edge with nothing finished, and start another in its place."""
        self.consensus.lose_leader()
        await self.edge.stop()
        self.consensus.elect("n1")
        self.edge = make_edge(self.consensus, CollectorRegistry())
        await self.edge.start()
        await until(lambda: self.edge.is_ready, self.edge.not_ready_reason)

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric's value, 0 for one that has none."""
        return self._registry.get_sample_value(name, labels) or 0.0

    async def peer(
        self,
        guid: bytes = PEER,
        config: SessionConfig | None = None,
        endpoint: tuple[str, int] | None = None,
    ) -> Peer:
        """Connect a queue manager and shake hands."""
        peer = await self.stranger(guid, config, endpoint)
        await until(lambda: peer.is_open, lambda: peer.closed)
        return peer

    async def stranger(
        self,
        guid: bytes = PEER,
        config: SessionConfig | None = None,
        endpoint: tuple[str, int] | None = None,
    ) -> Peer:
        """Connect a queue manager."""
        host, port = endpoint or self.edge.endpoints[0]
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: Peer(guid, config), host, port)
        self.at_end.append(peer.transport.abort)
        return peer

    async def raw(self, *, is_open: bool = False) -> Raw:
        """Connect, and shake hands or say nothing."""
        host, port = self.edge.endpoints[0]
        raw = Raw(*await asyncio.open_connection(host, port))
        self.at_end.append(raw.abort)
        if is_open:
            raw.write(HANDSHAKE)
            await asyncio.wait_for(raw.reader.readexactly(HANDSHAKE_ANSWER_BYTES), WAIT_S)
        return raw

    async def closed(self, reason: str, count: int = 1, pause_s: float = 0.002) -> None:
        """Wait until this many sessions were closed for a reason."""
        name = "quorate_sessions_closed_total"
        await until(
            lambda: self.metric(name, reason=reason) == count,
            lambda: {
                sample.labels["reason"]: sample.value
                for metric in self._registry.collect()
                for sample in metric.samples
                if sample.name == name
            },
            pause_s,
        )

    async def is_unharmed(self, queue_id: int) -> None:
        """Assert that another queue manager still sends as if nothing had happened."""
        before = self.consensus.ids(queue_id)
        peer = await self.peer(OTHER)
        peer.send(packet(999_999, source_queue_manager=OTHER))
        await peer.acknowledged(999_999)
        assert self.consensus.ids(queue_id) == [*before, 999_999]

    def close(self) -> None:
        for close in self.at_end:
            close()


def make_edge(
    consensus: Consensus,
    registry: CollectorRegistry,
    directory: Directory = EMPTY_DIRECTORY,
    keys: OwnKeys = NO_KEYS,
    sealing: Sealing = NO_SEALING,
    **settings: Any,
) -> Edge:
    """Return the edge of node n1, on its own loopback address and port."""
    values: dict[str, Any] = {"addresses": (ADDRESS,), "port": 0, "ping_port": 0} | settings
    face, metrics = Face(consensus, "n1"), Metrics(registry)
    return Edge(
        face,
        EdgeSettings(**values),
        metrics,
        directory=directory,
        keys=keys,
        sealing=sealing,
        on_insecure=lambda name, count, facts: consensus.insecure.append(
            (name, count, facts.peer_address)
        ),
    )


@contextlib.asynccontextmanager
async def world(
    *, is_provisioned: bool = True, session: SessionConfig | None = None, **settings: Any
) -> AsyncIterator[World]:
    """Start an edge in front of a new consensus."""
    consensus = Consensus()
    if is_provisioned:
        consensus.provision()
    registry = CollectorRegistry()
    if session is not None:
        settings["session"] = session
    edge = make_edge(consensus, registry, **settings)
    await edge.start()
    made = World(consensus, edge, registry)
    try:
        if is_provisioned:
            await until(lambda: edge.is_ready, edge.not_ready_reason)
        yield made
    finally:
        made.close()
        await made.edge.stop()


class Peer(asyncio.Protocol):
    """Another queue manager, as initiator; OrderAcks that arrive at it are committed at once."""

    transport: asyncio.Transport

    def __init__(self, guid: bytes = PEER, config: SessionConfig | None = None) -> None:
        self._guid = guid
        self._config = config or SessionConfig(window_size=1024)
        self._loop = asyncio.get_running_loop()
        self.acked: list[int] = []
        """Tokens that the edge acknowledged."""
        self.order_acks: list[OrderAck] = []
        self.is_committing = True
        self.is_open = False
        self.closed: Closed | None = None
        self.is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.session = Session(
            self._config, Role.INITIATOR, self._guid, self._loop.time(), remote_guid=OWN
        )
        self._attend()

    def data_received(self, data: bytes) -> None:
        self.session.receive(data, self._loop.time())
        self._attend()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self.session.close(CloseReason.DISCONNECTED)
        self._attend()

    def send(self, *packets: bytes, first_token: int | None = None) -> None:
        """Send packets; their tokens are their MessageIDs, or count from `first_token`."""
        tokens = [
            parse_user_message(raw, 0, len(raw))[0].user_header.message_id
            if first_token is None
            else first_token + number
            for number, raw in enumerate(packets)
        ]
        self.session.offer(tokens, packets)
        self._attend()

    async def acknowledged(self, *tokens: int) -> None:
        """Wait until exactly these are acknowledged, each once."""
        await until(lambda: sorted(self.acked) == list(tokens), lambda: (self.acked, self.closed))

    def _attend(self) -> None:
        while (event := self.session.next_event()) is not None:
            self._on_event(event)
        while data := self.session.take_outgoing(self._loop.time()):
            self.transport.write(data)

    def _on_event(self, event: Event) -> None:
        match event:
            case Established():
                self.is_open = True
            case OrderAckArrived():
                self.order_acks.append(event.order_ack)
                if self.is_committing:
                    self.session.commit(event.position)
            case Closed():
                self.closed = event
            case _:
                self.acked += getattr(event, "released", []) + getattr(event, "retained", [])


HANDSHAKE = write_packet(EstablishConnection(PEER, OWN)) + write_packet(
    ConnectionParameters(500, 20_000, 64)
)
"""What an initiator may write without waiting for answers."""
HANDSHAKE_ANSWER_BYTES = 572 + 32


class Raw:
    """A connection that writes what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def abort(self) -> None:
        self.writer.transport.abort()

    async def read_to_end(self) -> bytes:
        """Return everything that comes until the edge closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), WAIT_S)
        except ConnectionResetError:
            return b""

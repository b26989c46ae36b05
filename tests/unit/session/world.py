"""Two queue managers that are nothing but sessions, a table each, and an obvious reference.

A `Node` sends messages of every kind, commits what arrives when it is told to, and recognizes
what it gets twice. It checks what must never happen: an acknowledgement of something that is not
committed, and a message deleted at its sender before the receiver has it.
"""

from __future__ import annotations

from qm.session import (
    KIND_EXPRESS,
    KIND_TRANSACTIONAL,
    AcksReceived,
    Closed,
    CloseReason,
    Event,
    FinalAckArrived,
    OrderAckArrived,
    OutgoingTable,
    PacketsArrived,
    ResendSchedule,
    Role,
    Session,
    SessionConfig,
    SessionState,
)
from qm.session.outgoing import Numbers, own_packet
from qm.wire.guid import Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.ack import ORDER_QUEUE, OrderAck
from qm.wire.packets.internal import SessionAck
from qm.wire.packets.packet import parse_packet, write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName

SEQUENCE = TxSequenceId(time_stamp=9, ordinal=1)
DESTINATION = DirectQueueFormatName("OS:peer\\q")


class Node:
    """One queue manager: what it sends, what it has, and its session of the moment."""

    def __init__(self, guid: Guid, config: SessionConfig) -> None:
        self.guid = guid
        self.config = config
        self.peer: Node
        self.now = 0.0
        self.session: Session | None = None
        # Sending. Tokens of messages are their MessageIDs; acknowledgements have negative tokens.
        self.kinds: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.deleted: set[int] = set()
        self._order_acks_sent = 0
        self.start_leading()
        # Receiving.
        self.arrived: list[tuple[int, bytes | OrderAck]] = []
        self.committed_positions = 0
        self.have: list[int] = []
        self.last_number = 0
        self.order_ack_due = False
        self.to_wire = bytearray()

    def start_leading(self) -> None:
        """Begin with the replicated state only: entries in order and their committed numbers."""
        self.table = OutgoingTable()
        self.table.start_sequence(SEQUENCE.to_int())
        self.resend = ResendSchedule(self.now)
        for token in self.kinds:
            if token not in self.deleted:
                self.table.add(token, self.numbers.get(token, 0))

    def connect(self, role: Role) -> None:
        """Begin a session on a fresh connection."""
        self.to_wire.clear()
        self.arrived.clear()
        self.committed_positions = 0
        remote = self.peer.guid if role is Role.INITIATOR else bytes(16)
        self.session = Session(self.config, role, self.guid, self.now, remote_guid=remote)
        self.flush()

    def disconnect(self) -> None:
        """The transport breaks."""
        if self.session is not None:
            self.session.close(CloseReason.DISCONNECTED)
            self.read_events()

    def send(self, kind: int) -> None:
        """An application sends a message."""
        token = len(self.kinds) + 1
        self.kinds[token] = kind
        if kind == KIND_TRANSACTIONAL:
            self.numbers[token] = len(self.numbers) + 1
        self.table.add(token, self.numbers.get(token, 0))

    def flush(self) -> None:
        """Offer what there is room for and put everything that may leave on the wire."""
        session = self.session
        if session is None:
            return
        if session.state is SessionState.OPEN:
            if self.order_ack_due and session.room:
                self.order_ack_due = False
                self._order_acks_sent += 1
                session.offer([-self._order_acks_sent], [write_packet(self._order_ack())])
            self._offer(self.table.dispatch(session.room))
        while data := session.take_outgoing(self.now):
            self._check_acknowledgements(data)
            self.to_wire += data
        assert session.in_flight <= min(self.config.window_size, self.peer.config.window_size)
        self.read_events()

    def receive(self, data: bytes) -> None:
        if self.session is not None:
            self.session.receive(data, self.now)
            self.read_events()

    def commit(self, count: int) -> None:
        """The next `count` arrivals reach a verdict, in order, in one batch."""
        batch, self.arrived = self.arrived[:count], self.arrived[count:]
        for position, arrival in batch:
            self._apply(arrival)
            self.committed_positions = position
        if batch and self.session is not None:
            self.session.commit(self.committed_positions)

    def fire_timers(self) -> None:
        if self.session is not None:
            self.session.handle_timer(self.now)
            self.read_events()
        if self.resend.handle_timer(self.now):
            self.table.resend_transactional()

    def read_events(self) -> None:
        session = self.session
        while session is not None and (event := session.next_event()) is not None:
            self._on_event(event)

    @property
    def is_settled(self) -> bool:
        """Whether everything that this node sent is acknowledged in every way."""
        return not len(self.table)

    def _on_event(self, event: Event) -> None:
        match event:
            case PacketsArrived():
                for at, (start, stop) in enumerate(
                    zip(event.offsets, event.offsets[1:], strict=False)
                ):
                    self.arrived.append((event.first_position + at, event.block[start:stop]))
            case OrderAckArrived():
                self.arrived.append((event.position, event.order_ack))
            case FinalAckArrived():
                raise AssertionError("nobody sends FinalAcks here")
            case AcksReceived():
                released = [token for token in event.released if token > 0]
                self._delete(self.table.session_acked(released, event.retained))
            case Closed():
                self.session = None
                self.table.session_ended()
                self.resend.stop()
            case _:
                pass

    def _offer(self, tokens: list[int]) -> None:
        assert self.session is not None or not tokens
        transactional = [token for token in tokens if token in self.numbers]
        previous = dict(zip(transactional, self.table.previous_numbers(transactional), strict=True))
        packets = []
        for token in tokens:
            numbers = None
            if token in previous:
                numbers = Numbers(SEQUENCE, self.numbers[token], previous[token])
                self.resend.sent(self.now)
            packets.append(own_packet(_stored(self.guid, self.kinds[token]), token, 1, numbers))
        if tokens and self.session is not None:
            self.session.offer(tokens, packets)

    def _order_ack(self) -> OrderAck:
        number = self.last_number
        return OrderAck(self.guid, self.peer.guid, ORDER_QUEUE, 1, 1, SEQUENCE, number, number - 1)

    def _apply(self, arrival: bytes | OrderAck) -> None:
        if isinstance(arrival, OrderAck):
            effect = self.table.order_acked(
                arrival.tx_sequence_id.to_int(), arrival.tx_sequence_number
            )
            self.resend.order_acked(self.now, progress=effect.is_progress, unacked=effect.unacked)
            self._delete(effect.ended)
            return
        message, _ = parse_user_message(arrival, 0, len(arrival))
        token = message.user_header.message_id
        transaction = message.transaction
        if transaction is None:
            if token not in self.have:
                self.have.append(token)
            return
        number = transaction.tx_sequence_number
        if transaction.previous_tx_sequence_number <= self.last_number < number:
            self.last_number = number
            self.have.append(token)
        self.order_ack_due = self.last_number > 0

    def _delete(self, tokens: list[int]) -> None:
        for token in tokens:
            assert token in self.peer.have, f"{token} deleted before the peer had it"
        self.deleted.update(tokens)

    def _check_acknowledgements(self, data: bytes) -> None:
        """Nothing may be acknowledged that is not committed."""
        at = 0
        while at < len(data):
            packet, at = parse_packet(data, at, len(data))
            header: SessionHeader | None = None
            if isinstance(packet, SessionAck | UserMessage):
                header = packet.session
            if header is not None:
                assert header.ack_sequence_number <= self.committed_positions


class World:
    """Two nodes and one connection between them; `now` is the time of both."""

    def __init__(self, window_a: int = 8, window_b: int = 8) -> None:
        self.a = Node(bytes([1]) * 16, SessionConfig(window_size=window_a).check())
        self.b = Node(bytes([2]) * 16, SessionConfig(window_size=window_b).check())
        self.a.peer, self.b.peer = self.b, self.a

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.a, self.b

    @property
    def is_connected(self) -> bool:
        return self.a.session is not None and self.b.session is not None

    def connect(self, *, is_whole: bool = True) -> None:
        """Make a fresh connection, and unless requested otherwise let the handshake pass."""
        for node in self.nodes:
            node.disconnect()
        self.b.connect(Role.ACCEPTOR)
        self.a.connect(Role.INITIATOR)
        for source in (self.a, self.b, self.a, self.b) if is_whole else ():
            self.carry(source, len(source.to_wire))
            for node in self.nodes:
                node.flush()

    def carry(self, source: Node, count: int) -> None:
        """Move at most `count` bytes from `source` to its peer."""
        data = bytes(source.to_wire[:count])
        del source.to_wire[:count]
        source.peer.receive(data)
        if source.peer.session is None or source.session is None:
            self.disconnect()

    def disconnect(self) -> None:
        for node in self.nodes:
            node.to_wire.clear()
            node.disconnect()

    def wait(self, seconds: float) -> None:
        for node in self.nodes:
            node.now += seconds
            node.fire_timers()
        if not self.is_connected:
            self.disconnect()

    def settle(self) -> None:
        """No more faults: everything must arrive and be acknowledged within a bounded time."""
        for _ in range(200 + 4 * sum(len(node.kinds) for node in self.nodes)):
            if all(node.is_settled for node in self.nodes):
                return
            if not self.is_connected:
                self.connect()
            for node in self.nodes:
                node.flush()
                self.carry(node, len(node.to_wire))
                node.peer.commit(len(node.peer.arrived))
                node.peer.flush()
            if all(not node.to_wire and not node.arrived for node in self.nodes):
                self.wait(1.0)
        raise AssertionError(
            "not settled: " + repr([n.kinds.keys() - n.deleted for n in self.nodes])
        )

    def check_delivery(self) -> None:
        """Everything arrived once, transactional messages in order."""
        for node in self.nodes:
            have = node.peer.have
            assert sorted(have) == sorted(node.kinds)
            transactional = [token for token in have if token in node.numbers]
            assert transactional == sorted(transactional)


def _stored(source: Guid, kind: int) -> bytes:
    """A message as an application's send left it: not numbered yet."""
    transaction = TransactionHeader(SEQUENCE, 1, 0) if kind == KIND_TRANSACTIONAL else None
    return write_packet(
        UserMessage(
            UserHeader(source, DESTINATION, is_recoverable=kind != KIND_EXPRESS),
            MessagePropertiesHeader(b"body"),
            transaction,
            priority=0 if transaction else 3,
        )
    )

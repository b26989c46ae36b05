"""Packets and sessions for the tests of qm.session."""

from __future__ import annotations

from typing import TypeVar

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    Closed,
    CloseReason,
    Event,
    PacketsArrived,
    Role,
    Session,
    SessionConfig,
    SessionState,
)
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, QueueName

US: Guid = bytes(range(16))
THEM: Guid = bytes(range(16, 32))
STRANGER: Guid = bytes(range(32, 48))
NOW = 1000.0
SEQUENCE = TxSequenceId(time_stamp=7, ordinal=1)

E_ = TypeVar("E_")


def message(
    number: int,
    kind: int = KIND_RECOVERABLE,
    *,
    body: bytes = b"body",
    session: SessionHeader | None = None,
    destination: QueueName | None = None,
    address: Guid = GUID_NULL,
    priority: int = 3,
    message_class: int = MessageClass.NORMAL,
    label: str = "",
) -> UserMessage:
    """A message of `kind`; `number` is its MessageID and, if it has one, its sequence number."""
    return UserMessage(
        UserHeader(
            THEM,
            destination or DirectQueueFormatName("OS:host\\q"),
            address,
            sent_time=1,
            message_id=number,
            is_recoverable=kind != KIND_EXPRESS,
        ),
        MessagePropertiesHeader(body, label, message_class),
        TransactionHeader(SEQUENCE, number, number - 1) if kind == KIND_TRANSACTIONAL else None,
        session=session,
        priority=0 if kind == KIND_TRANSACTIONAL else priority,
    )


def messages(first: int, count: int, kind: int = KIND_RECOVERABLE) -> list[bytes]:
    """`count` encoded messages with rising numbers."""
    return [write_packet(message(first + n, kind)) for n in range(count)]


def order_ack(number: int = 1, address: Guid = US) -> OrderAck:
    """An OrderAck for `address`."""
    return OrderAck(THEM, address, ORDER_QUEUE, 1, 900 + number, SEQUENCE, number, number - 1)


def final_ack(number: int = 1, message_class: int = MessageClass.ACK_RECEIVE) -> FinalAck:
    """A FinalAck for us about our message `number`."""
    return FinalAck(
        THEM, US, ORDER_QUEUE, 1, 800 + number, SEQUENCE, number, number - 1, message_class, US,
        number,
    )  # fmt: skip


def ack(
    received: int,
    base: int = 0,
    flags: int = 0,
    *,
    sent: int = 0,
    recoverable_sent: int = 0,
    window: int = 64,
) -> SessionAck:
    """The peer's SessionAck."""
    return SessionAck(SessionHeader(received, base, flags, sent, recoverable_sent, window))


def establish(
    client: Guid, server: Guid, time_stamp: int = 0, *, is_refused: bool = False
) -> EstablishConnection:
    """EstablishConnection, request or response."""
    return EstablishConnection(
        client, server, time_stamp, is_ping_skipped=True, is_refused=is_refused
    )


class Driven:
    """A session under test, its clock, and what the peer would see of it."""

    def __init__(self, session: Session, now: float = NOW) -> None:
        self.session = session
        self.now = now
        self._closed: Closed | None = None

    def feed(self, *packets: Packet | bytes) -> None:
        """Let packets arrive, all in one chunk."""
        parts = [p if isinstance(p, bytes) else write_packet(p) for p in packets]
        self.session.receive(b"".join(parts), self.now)

    def out(self) -> list[Packet]:
        """Everything that leaves now, parsed."""
        packets: list[Packet] = []
        while data := self.session.take_outgoing(self.now):
            at = 0
            while at < len(data):
                packet, at = parse_packet(data, at, len(data))
                packets.append(packet)
        return packets

    def acks(self) -> list[SessionHeader]:
        """The SessionHeaders among everything that leaves now, alone or piggybacked."""
        headers = []
        for packet in self.out():
            if isinstance(packet, SessionAck) or (
                isinstance(packet, UserMessage) and packet.session is not None
            ):
                assert packet.session is not None
                headers.append(packet.session)
        return headers

    def events(self) -> list[Event]:
        """Every event that has not been read."""
        found = []
        while (event := self.session.next_event()) is not None:
            found.append(event)
            if isinstance(event, Closed):
                self._closed = event
        return found

    def event(self, kind: type[E_]) -> E_:
        """The only unread event of `kind`."""
        (found,) = [event for event in self.events() if isinstance(event, kind)]
        return found

    def state(self) -> SessionState:
        """SessionState; a method, because type checkers believe that properties do not change."""
        return self.session.state

    def closed(self) -> CloseReason | None:
        """Why the session has ended, None while it lives; reads the events."""
        self.events()
        return self._closed.reason if self._closed is not None else None

    def wait(self, seconds: float) -> None:
        """Let time pass; timers fire when they are due, in order."""
        until = self.now + seconds
        while (due := self.session.next_timer()) is not None and due <= until:
            self.now = max(self.now, due)
            self.session.handle_timer(self.now)
        self.now = until

    def offer(self, first: int, count: int, kind: int = KIND_RECOVERABLE) -> None:
        """Offer messages whose tokens are their numbers."""
        self.session.offer(range(first, first + count), messages(first, count, kind))


def acceptor(config: SessionConfig | None = None) -> Driven:
    """A session on a connection that was just accepted."""
    return Driven(Session((config or SessionConfig()).check(), Role.ACCEPTOR, US, NOW))


def initiator(
    config: SessionConfig | None = None, *, remote: Guid = THEM, pinged: bool = False
) -> Driven:
    """A session on a connection that was just made; its request has not been taken."""
    return Driven(
        Session(
            (config or SessionConfig()).check(),
            Role.INITIATOR,
            US,
            NOW,
            remote_guid=remote,
            pinged=pinged,
        )
    )


def open_acceptor(
    config: SessionConfig | None = None,
    *,
    window: int = 64,
    ack_timeout_ms: int = 20_000,
    recoverable_ack_timeout_ms: int = 500,
) -> Driven:
    """An acceptor in OPEN; the parameters are those that the peer proposed."""
    driven = acceptor(config)
    driven.feed(
        establish(THEM, US),
        ConnectionParameters(recoverable_ack_timeout_ms, ack_timeout_ms, window),
    )
    driven.out()
    driven.events()
    return driven


def open_initiator(
    config: SessionConfig | None = None, *, window: int = 64, remote: Guid = THEM
) -> Driven:
    """An initiator in OPEN; `window` is the peer's."""
    driven = initiator(config, remote=remote)
    driven.out()
    driven.feed(establish(US, THEM, int(NOW * 1000)), ConnectionParameters(500, 20_000, window))
    driven.out()
    driven.events()
    return driven


def packets_in(events: list[Event]) -> list[bytes]:
    """The packets of every run, one by one."""
    found = []
    for event in events:
        if isinstance(event, PacketsArrived):
            bounds = zip(event.offsets, event.offsets[1:], strict=False)
            found += [event.block[start:stop] for start, stop in bounds]
    return found

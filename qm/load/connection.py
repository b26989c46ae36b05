"""One TCP connection of a load generator: `qm.session.Session` as initiator over asyncio."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from typing_extensions import override

from qm.session import (
    AcksReceived,
    Closed,
    CloseReason,
    Established,
    Event,
    FinalAckArrived,
    OrderAckArrived,
    PacketsArrived,
    Role,
    Session,
    SessionConfig,
    SessionState,
)
from qm.wire.guid import Guid
from qm.wire.packets.ack import FinalAck, OrderAck


class ConnectionEvents(Protocol):
    """Callbacks to the sender that uses a connection; made in the event loop."""

    def on_established(self, peer: Guid) -> None:
        """The session is open."""

    def fill(self, room: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return at most `room` messages to send now."""

    def on_acks(self, released: list[int], retained: list[int], in_flight: int) -> None:
        """AckSequenceNumber advanced; `in_flight` messages are sent and not covered by it."""

    def on_order_ack(self, ack: OrderAck) -> None:
        """An OrderAck arrived."""

    def on_final_ack(self, ack: FinalAck) -> None:
        """A FinalAck arrived."""

    def on_closed(self, reason: CloseReason, detail: str) -> None:
        """The session has ended; everything it had not acknowledged must be sent again."""


class Connection(asyncio.Protocol):
    """Carries one session; anything received other than acknowledgements is counted and dropped."""

    def __init__(self, config: SessionConfig, guid: Guid, events: ConnectionEvents) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._new_session: Callable[[], Session] = lambda: Session(
            config, Role.INITIATOR, guid, self._loop.time()
        )
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()
        """Set once, when the socket is closed; `on_closed` was called before."""

    @property
    def local_port(self) -> int:
        """The local port, as the peer sees it; 0 without a connection."""
        if self._transport is None:
            return 0
        return int(self._transport.get_extra_info("sockname")[1])

    def pump(self) -> None:
        """Send waiting messages as far as there is room."""
        session, transport = self._session, self._transport
        if session is None or transport is None:
            return
        now = self._loop.time()
        while not self._is_paused:
            if session.state is SessionState.OPEN and (room := session.room) > 0:
                tokens, packets = self._events.fill(room, now)
                if tokens:
                    session.offer(tokens, packets)
            data = session.take_outgoing(now)
            if not data:
                break
            transport.write(data)
        # A session that has sent enough may end itself while it is asked for bytes.
        self._drain()
        self._arm()

    def close(self) -> None:
        """End the session from our side."""
        self._end(CloseReason.STOPPED, "")

    # asyncio.Protocol ----------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open: the session begins with our request."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._session = self._new_session()
        self.pump()

    @override
    def data_received(self, data: bytes) -> None:
        """Bytes have arrived from the peer."""
        if self._session is not None:
            self._session.receive(data, self._loop.time())
            self._drain()
            self.pump()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._end(CloseReason.DISCONNECTED, str(exc or ""))
        self.ended.set()

    @override
    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._is_paused = True

    @override
    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._is_paused = False
        self.pump()

    # ---------------------------------------------------------------------------------------

    def _end(self, reason: CloseReason, detail: str) -> None:
        if self._session is not None:
            self._session.close(reason, detail)
            self._drain()

    def _drain(self) -> None:
        session = self._session
        arrived = 0
        while session is not None and (event := session.next_event()) is not None:
            arrived = max(arrived, self._on_event(session, event))
            if isinstance(event, Closed):
                return
        if session is not None and arrived:
            # Acknowledgements are handled at once and nothing else is kept: everything is
            # committed.
            session.commit(arrived)

    def _on_event(self, session: Session, event: Event) -> int:
        """Handle an event; return the last position that it took, 0 if none."""
        match event:
            case Established():
                self._events.on_established(event.remote_guid)
            case AcksReceived():
                self._events.on_acks(event.released, event.retained, session.in_flight)
            case OrderAckArrived():
                self._events.on_order_ack(event.order_ack)
                return event.position
            case FinalAckArrived():
                self._events.on_final_ack(event.final_ack)
                return event.position
            case PacketsArrived():
                return event.first_position + len(event.kinds) - 1
            case Closed():
                self._finish(event)
            case _:
                pass
        return 0

    def _finish(self, event: Closed) -> None:
        self._session = None
        if self._timer is not None:
            self._timer.cancel()
        self._events.on_closed(event.reason, event.detail)
        if self._transport is not None:
            # Unwritten data will be sent again; a peer that does not read must not block us.
            self._transport.abort()

    def _arm(self) -> None:
        """Keep one timer running that is due no later than the session's next."""
        due = self._session.next_timer() if self._session is not None else None
        if due is None or (
            self._timer is not None and not self._timer.cancelled() and self._timer.when() <= due
        ):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._session is not None:
            self._session.handle_timer(self._loop.time())
            self._drain()
            self.pump()

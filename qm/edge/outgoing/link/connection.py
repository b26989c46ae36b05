"""One TCP connection to a peer, its session, and the users that take turns on it."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from typing_extensions import override

from qm.edge.batches import IntakeOwner
from qm.edge.live_sessions import LiveSession
from qm.edge.outgoing.limits import (
    HANDSHAKE_PATIENCE_S,
    TENURE_S,
    TURN_MAX_BYTES,
    TURN_MESSAGES_MAX,
    WRITE_HIGH_WATER_BYTES,
)
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.send_order import SendOrder
from qm.edge.outgoing.link.timers import TimerOwner
from qm.edge.outgoing.link.user import KEY_BITS, KEY_MASK, SharedConnection, User
from qm.edge.relay.session_intake import SessionIntake
from qm.names.guid import guid_text
from qm.session import (
    AcksReceived,
    Blame,
    Closed,
    CloseReason,
    ConnectionStatus,
    Established,
    EstablishReceived,
    Event,
    NextHop,
    Role,
    Session,
    SessionState,
)
from qm.wire.guid import GUID_NULL, Guid


class ConnectionOwner(Protocol):
    """Manages connections."""

    def on_over(self, connection: "Connection") -> None:
        """It can no longer be used; called before its users are told."""


class Connection(asyncio.Protocol, IntakeOwner, TimerOwner, SharedConnection):
    """An initiator's session over its transport, shared by users (QB-A36)."""

    def __init__(self, context: OutgoingContext, owner: ConnectionOwner, hop: NextHop) -> None:
        self.hop = hop
        self._context = context
        self._owner = owner
        self._users: dict[int, User] = {}
        self._send_order = SendOrder()
        self._held: set[int] = set()
        self._is_paused = False
        self._session: Session | None = None
        self._live: LiveSession | None = None
        self._transport: asyncio.Transport | None = None
        self._intake: SessionIntake | None = None
        self._is_flow_held = False
        self._is_choked = False
        self._is_settling = False
        self._is_over = False
        self._is_retiring = False
        self._since = context.clock()

    # What others may ask -------------------------------------------------------------------

    @property
    @override
    def address(self) -> str:
        return self.hop.address

    @property
    def is_open(self) -> bool:
        """Whether messages may be offered."""
        return self._session is not None and self._session.state is SessionState.OPEN

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress, so that it may make room for another connection."""
        session = self._session
        return (
            self.is_open and not self._send_order and session is not None and not session.in_flight
        )

    @property
    def is_unused(self) -> bool:
        """Whether it has no users."""
        return not self._users

    @property
    @override
    def remote_guid(self) -> Guid:
        return self._session.remote_guid if self._session is not None else GUID_NULL

    def is_stuck(self, now: float) -> bool:
        """Whether the peer was reached but has not opened its session in time."""
        is_opening = self._session is not None and not self.is_open
        return is_opening and now - self._since >= HANDSHAKE_PATIENCE_S

    def may_retire(self, now: float) -> bool:
        """Whether it has been used for long enough to end, though it is busy."""
        return self.is_open and not self._is_retiring and now - self._since >= TENURE_S

    def retire(self) -> None:
        """Send nothing more, and close when the peer has what was sent."""
        self._is_retiring = True
        self._settle()

    def join(self, user: User) -> None:
        """Add a user that takes turns; it is told at once what happened already."""
        self._users[user.number] = user
        session = self._session
        if session is None:
            return
        user.on_connected(self)
        if session.state in (SessionState.WAITING_CPR_MSG, SessionState.OPEN):
            user.on_establish_received()
        if session.state is SessionState.OPEN:
            user.on_established()
        self._reconsider_pause()

    @override
    def leave(self, user: User) -> None:
        self._users.pop(user.number, None)
        self._send_order.discard(user.number)
        self._held.discard(user.number)
        self._reconsider_pause()

    @override
    def ready(self, user: User) -> None:
        if user.number in self._users and user.number not in self._held:
            self._send_order.add(user)
            self._settle()

    @override
    def set_held(self, user: User, is_held: bool) -> None:
        """Set whether a user is on hold; the session is paused while all of them are."""
        if is_held:
            self._held.add(user.number)
            self._send_order.discard(user.number)
        else:
            self._held.discard(user.number)
        self._reconsider_pause()
        self._settle()

    def connect_failed(self, status: ConnectionStatus) -> None:
        """The transport did not connect, or was given up in the turn in which it did."""
        if self._session is not None:
            self.close(CloseReason.DISCONNECTED, "given up while it was made")
            return
        self._is_over = True
        self._owner.on_over(self)
        for user in self._take_users():
            user.on_connect_failed(status)

    # IntakeOwner -----------------------------------------------------------------------------

    @override
    def commit(self, upto: int) -> None:
        if self._session is not None:
            self._session.commit(upto)
            self._settle()

    @override
    def close(self, reason: CloseReason, detail: str = "") -> None:
        """End the session from this side."""
        if self._session is not None:
            self._session.close(reason, detail)
            self._settle()

    @override
    def hold(self, is_held: bool) -> None:
        self._is_flow_held = is_held
        self._settle()

    @override
    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> bool:
        """Refuse: this session was not announced for late packets."""
        del tokens, packets
        return False

    # asyncio.Protocol ----------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        context = self._context
        self._since = context.clock()
        self._session = Session(
            context.settings.session,
            Role.INITIATOR,
            context.own_guid,
            context.clock(),
            remote_guid=self.hop.qm_guid,
        )
        self._live = context.relay.sessions.begin(self._session, self.hop.address)
        context.metrics.gauge("quorate_sessions").labels(role="initiator").inc()
        for user in list(self._users.values()):
            user.on_connected(self)
        self._settle()

    @override
    def data_received(self, data: bytes) -> None:
        if self._session is not None and self._live is not None:
            self._live.bytes_in += len(data)
            self._context.metrics.counter("quorate_bytes_arrived_total").inc(len(data))
            self._session.receive(data, self._context.clock())
            self._settle()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.close(CloseReason.DISCONNECTED, str(exc) if exc is not None else "by the peer")
        self._end_live()

    @override
    def pause_writing(self) -> None:
        self._is_choked = True

    @override
    def resume_writing(self) -> None:
        self._is_choked = False
        self._settle()

    # TimerOwner -------------------------------------------------------------------------------

    @override
    def next_timer(self) -> float | None:
        return self._session.next_timer() if self._session is not None else None

    @override
    def handle_timer(self, now: float) -> None:
        if self._session is not None:
            self._session.handle_timer(now)
            self._settle()

    # ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """After every change: process events, write, give turns. Events may call it again."""
        session = self._session
        if session is None or self._is_settling or self._is_over:
            return
        self._is_settling = True
        try:
            while (event := session.next_event()) is not None:
                self._on_event(event)
            self._pump(session)
        finally:
            self._is_settling = False
        if session.state is SessionState.CLOSED:
            # A turn or a write may have ended it: its last event is still to be read.
            while not self._is_over and (event := session.next_event()) is not None:
                self._on_event(event)
            return
        self._follow_reading_pause(session)
        self._context.timers.watch(self)

    def _on_event(self, event: Event) -> None:
        match event:
            case EstablishReceived():
                for user in list(self._users.values()):
                    user.on_establish_received()
            case Established():
                # The session is not announced: `PeerAcks` finds it by itself.
                self._intake = self._context.relay.open_intake(
                    self, event.remote_guid, self.hop.address, is_announced=False
                )
                for user in list(self._users.values()):
                    user.on_established()
                self._reconsider_pause()
            case AcksReceived():
                self._on_acks(event)
            case Closed():
                self._on_closed(event)
            case _:
                if self._intake is not None:
                    self._intake.arrived(event)

    def _on_acks(self, event: AcksReceived) -> None:
        """Tell each user which of its keys were acknowledged."""
        released, retained = _by_user(event.released), _by_user(event.retained)
        for number in dict.fromkeys((*released, *retained)):
            user = self._users.get(number)
            if user is not None:
                user.on_acknowledged(released.get(number, []), retained.get(number, []))

    def _on_closed(self, event: Closed) -> None:
        self._is_over = True
        self._end_live()
        context = self._context
        context.timers.forget(self)
        context.metrics.gauge("quorate_sessions").labels(role="initiator").dec()
        context.metrics.counter("quorate_sessions_closed_total").labels(
            reason=event.reason.value
        ).inc()
        if event.blame is Blame.PEER:
            context.lines.warning(
                f"session_closed_{event.reason.value}",
                "a session that this side opened ended because of its peer",
                address=self.hop.address,
                queue_manager=guid_text(self.remote_guid),
                reason=event.reason.value,
                detail=event.detail,
            )
        if self._transport is not None:
            # What is still buffered was offered to a peer that does not read.
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()
        self._owner.on_over(self)
        if self._intake is not None:
            self._intake.close([])
        for user in self._take_users():
            user.on_closed(event)

    def _end_live(self) -> None:
        if self._live is not None:
            self._context.relay.sessions.end(self._live)

    def _take_users(self) -> list[User]:
        users = list(self._users.values())
        self._users.clear()
        self._send_order.clear()
        self._held.clear()
        return users

    # Writing -------------------------------------------------------------------------------

    def _pump(self, session: Session) -> None:
        """Write what may be sent, and give turns to users while there is room."""
        self._write(session)
        if self._is_retiring:
            if not session.in_flight:
                session.close(CloseReason.LIMIT, "others wait for a connection")
            return
        while self._send_order and not self._is_choked and (room := session.room) > 0:
            user = self._send_order.take()
            number = user.number
            keys, packets = user.take_turn(min(room, TURN_MESSAGES_MAX), TURN_MAX_BYTES)
            if not keys:
                continue
            base = number << KEY_BITS
            session.offer([base | key for key in keys], packets)
            if number in self._users:
                self._send_order.add(user)
            self._write(session)

    def _write(self, session: Session) -> None:
        transport, now = self._transport, self._context.clock()
        assert transport is not None, "a session without its transport"
        size = 0
        while not self._is_choked and (data := session.take_outgoing(now)):
            transport.write(data)
            size += len(data)
        if size and self._live is not None:
            self._live.bytes_out += size
            self._context.metrics.counter("quorate_bytes_sent_total").inc(size)

    def _follow_reading_pause(self, session: Session) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_paused = session.reading_paused or self._is_flow_held
        if is_paused and transport.is_reading():
            transport.pause_reading()
        elif not is_paused and not transport.is_reading():
            transport.resume_reading()

    def _reconsider_pause(self) -> None:
        """Pause the session while all of its users are on hold [MS-MQQB 3.1.7.13, 3.1.7.14]."""
        session = self._session
        if session is None or session.state is not SessionState.OPEN:
            return
        is_wanted = bool(self._users) and len(self._held) == len(self._users)
        if is_wanted == self._is_paused:
            return
        self._is_paused = is_wanted
        if not is_wanted:
            session.resume()
            return
        for number, keys in _by_user(session.pause()).items():
            self._users[number].on_withdrawn(keys)


def _by_user(tokens: Sequence[int]) -> dict[int, list[int]]:
    """Return user number -> keys, both in order."""
    found: dict[int, list[int]] = {}
    for token in tokens:
        number = token >> KEY_BITS
        keys = found.get(number)
        if keys is None:
            keys = found[number] = []
        keys.append(token & KEY_MASK)
    return found

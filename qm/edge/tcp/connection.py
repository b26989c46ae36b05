"""An accepted TCP connection: the transport on one side, a `Session` and its `SessionIntake` on the
other.

Everything happens in callbacks; there is no task per connection. Bytes, outcomes, timers and the
transport's state all lead to `_attend`, which brings events, writing, reading and the timer up to
date in this order (`qm/session/design.md`, "What the edge must do when").
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Final, cast

from typing_extensions import override

from qm.edge.batches import IntakeOwner
from qm.edge.limits import LINGER_MAX_S, WRITE_BUFFER_MAX_BYTES, WRITE_STALL_MAX_S
from qm.edge.live_sessions import LiveSession
from qm.edge.relay.session_intake import SessionIntake
from qm.edge.tcp.context import EdgeContext
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
    SessionMisuse,
    SessionState,
)

_NOWHERE: Final = "unknown"


class Connection(asyncio.Protocol, IntakeOwner):
    """An accepted TCP connection; the relay calls it as an `IntakeOwner`."""

    __slots__ = (
        "_context",
        "_incomplete_bytes",
        "_intake",
        "_is_admitted",
        "_is_attending",
        "_is_held",
        "_is_reading",
        "_live",
        "_marked",
        "_session",
        "_stalls_at",
        "_transport",
        "address",
        "deadline",
    )

    _transport: asyncio.Transport
    _live: LiveSession
    """Its counters, from the beginning of a session."""

    def __init__(self, context: EdgeContext) -> None:
        self._context = context
        self._session: Session | None = None
        self._intake: SessionIntake | None = None
        self.address = _NOWHERE
        """The peer's address, without port."""
        self.deadline = inf
        self._is_admitted = False
        self._is_attending = False
        self._is_reading = True
        self._is_held = False
        self._stalls_at = inf
        self._incomplete_bytes = 0
        self._marked = 0

    # asyncio.Protocol ----------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or close at once."""
        # uvloop's transport does not derive from it.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer is None:  # it is gone already
            self.abort()
            return
        self.address = peer[0]
        context = self._context
        refusal = context.admission.refusal(self.address)
        if refusal is not None:
            context.metrics.refused_peer(refusal, self.address)
            self.abort()
            return
        if context.queue_manager is None:
            self.abort()
            return
        context.enter(self)
        self._is_admitted = True
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX_BYTES)
        now = context.loop.time()
        session = Session(context.session, Role.ACCEPTOR, context.queue_manager, now)
        self._session = session
        self._live = context.relay.sessions.begin(session, self.address)
        self._attend(now)

    @override
    def data_received(self, data: bytes) -> None:
        """Bytes arrived, split at any point."""
        session = self._session
        if session is None:
            return
        context = self._context
        now = context.loop.time()
        context.metrics.arrived(len(data))
        self._live.bytes_in += len(data)
        session.receive(data, now)
        incomplete, before = session.incomplete_bytes, self._incomplete_bytes
        if incomplete or before:
            self._incomplete_bytes = incomplete
            is_new = incomplete < before + len(data)  # something was complete
            context.incomplete.hold(self, incomplete, is_new=is_new)
        self._attend(now)

    @override
    def pause_writing(self) -> None:
        """The peer does not read: acknowledge nothing more for now."""
        if self._session is not None:
            self._stalls_at = self._context.loop.time() + WRITE_STALL_MAX_S
            self._context.deadlines.expect(self, self._stalls_at)

    @override
    def resume_writing(self) -> None:
        """It reads again."""
        self._stalls_at = inf
        self._attend(self._context.loop.time())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.close(CloseReason.DISCONNECTED, "" if exc is None else str(exc))
        if self._is_admitted:
            self._is_admitted = False
            self._context.leave(self)

    def abort(self) -> None:
        """Cut the transport."""
        self._transport.abort()

    # IntakeOwner -----------------------------------------------------------------------------

    @override
    def commit(self, upto: int) -> None:
        if self._session is not None:
            self._session.commit(upto)
            self._attend(self._context.loop.time())

    @override
    def close(self, reason: CloseReason, detail: str) -> None:
        if self._session is not None:
            self._session.close(reason, detail)
            self._attend(self._context.loop.time())

    @override
    def hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._update_reading()

    @override
    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> bool:
        if self._session is None:
            return False
        try:
            self._session.offer(tokens, packets)
        except SessionMisuse as misuse:
            self._context.metrics.not_offered(str(misuse))
            return False
        self._attend(self._context.loop.time())
        return True

    # Deadlines.Waiter ----------------------------------------------------------------------

    def on_deadline(self, now: float) -> None:
        """A timer of the session is due, or the peer has not read for too long."""
        session = self._session
        if session is None:
            self._transport.abort()
            return
        if now >= self._stalls_at:
            session.close(CloseReason.LIMIT, "the peer does not read what is written to it")
        session.handle_timer(now)
        self._attend(now)

    # What all of them end in ---------------------------------------------------------------

    def _attend(self, now: float) -> None:
        """Bring events, writing, reading and the timer up to date."""
        session = self._session
        if session is None or self._is_attending:
            return  # the call in progress processes the new events, too
        self._is_attending = True
        try:
            self._drain(session)
            if self._stalls_at == inf and session.has_outgoing:
                self._write(session, now)
                self._drain(session)
        finally:
            self._is_attending = False
        if session.state is SessionState.CLOSED:
            self._let_go(session, now)
            return
        self._update_reading()
        at = session.next_timer()
        self._context.deadlines.expect(self, min(inf if at is None else at, self._stalls_at))

    def _drain(self, session: Session) -> None:
        while (event := session.next_event()) is not None:
            self._on_event(session, event)

    def _on_event(self, session: Session, event: Event) -> None:
        match event:
            case PacketsArrived() | OrderAckArrived() | FinalAckArrived():
                if self._intake is not None:
                    self._intake.arrived(event)
            case AcksReceived():
                if self._intake is not None:
                    self._intake.delivered(event.released + event.retained)
            case Established():
                self._on_established(session, event)
            case Closed():
                self._on_closed(event)
            case _:
                pass

    def _on_established(self, session: Session, event: Established) -> None:
        context = self._context
        if not context.admission.join(event.remote_guid):
            session.close(CloseReason.LIMIT, "sessions_per_queue_manager_max")
            return
        self._intake = context.relay.open_intake(self, event.remote_guid, self.address)
        context.metrics.opened()

    def _on_closed(self, event: Closed) -> None:
        context, intake = self._context, self._intake
        context.metrics.closed(event, self.address, was_open=intake is not None)
        context.incomplete.hold(self, 0, is_new=True)
        self._incomplete_bytes = 0
        if intake is not None:
            context.admission.part(intake.facts.plain.peer_queue_manager)
            intake.close(event.unacknowledged)

    def _write(self, session: Session, now: float) -> None:
        """Write what may be sent, until the transport asks to pause."""
        context, transport = self._context, self._transport
        while self._stalls_at == inf and (data := session.take_outgoing(now)):
            context.metrics.sent(len(data))
            self._live.bytes_out += len(data)
            transport.write(data)
        if self._intake is not None and session.acknowledged != self._marked:
            self._marked = session.acknowledged
            context.mark(self._intake.number, self._marked, self._intake.log_index)

    def _let_go(self, session: Session, now: float) -> None:
        """The session has ended: at most a refusal is still to be written."""
        self._session = None
        self._context.relay.sessions.end(self._live)
        if data := session.take_outgoing(now):
            self._context.metrics.sent(len(data))
            self._transport.write(data)
        self._transport.close()
        self._context.deadlines.forget(self)
        self._context.deadlines.expect(self, now + LINGER_MAX_S)

    def _update_reading(self) -> None:
        session = self._session
        if session is None:
            return
        is_wanted = not (self._is_held or session.reading_paused)
        if is_wanted == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

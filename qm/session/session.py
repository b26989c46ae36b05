"""One transport connection between two queue managers [MS-MQQB 3.1]. See design.md.

Calls never raise for what a peer sends; they raise `SessionMisuse` for errors of our own code. Each
may produce events and bytes to write: drain `next_event` and `take_outgoing` afterwards.
"""

from collections import deque
from collections.abc import Sequence
from math import inf

from qm.session import handshake
from qm.session.ack_policy import AckPolicy
from qm.session.config import SessionConfig
from qm.session.destination import local_acknowledgement
from qm.session.errors import PeerFault, SessionMisuse
from qm.session.events import (
    BLAME,
    AcksReceived,
    Closed,
    CloseReason,
    Event,
    FinalAckArrived,
    OrderAckArrived,
    PacketsArrived,
)
from qm.session.framing import (
    Stream,
    may_be_acknowledgement,
    message_kind,
    message_run,
    split_session_header,
)
from qm.session.limits import OUTGOING_CHUNK_MAX_BYTES, RECYCLE_AFTER_COUNT
from qm.session.receive_cursors import ReceiveCursors
from qm.session.send_window import FalseAcknowledgement, SendWindow, with_session_header
from qm.session.states import INITIAL_STATE, TRANSITIONS, Role, SessionState
from qm.session.timers import Timers
from qm.wire.bounds import take
from qm.wire.errors import ProtocolError
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_IN,
    FLAG_SH,
    FLAGS_OFFSET,
    packet_span,
)
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.ack import OrderAck
from qm.wire.packets.internal import SessionAck, parse_session_ack, write_session_ack
from qm.wire.packets.packet import PacketKind, packet_kind


class Session:
    """The state machine of one connection; all times are monotonic seconds."""

    __slots__ = (
        "_acks",
        "_config",
        "_events",
        "_local_guid",
        "_reading_paused",
        "_received_ack",
        "_receiving",
        "_remote_guid",
        "_replies",
        "_role",
        "_sending",
        "_session_active",
        "_state",
        "_stream",
        "_timers",
    )

    def __init__(
        self,
        config: SessionConfig,
        role: Role,
        local_guid: Guid,
        now: float,
        *,
        remote_guid: Guid = GUID_NULL,
        pinged: bool = False,
    ) -> None:
        """Begin a session on a connection that has just opened [MS-MQQB 3.1.3.2].

        `local_guid` is our queue manager's. An initiator passes the GUID that it expects as
        `remote_guid` (zeros for a direct name) and whether it `pinged` before; its request is the
        first output.
        """
        self._config = config
        self._role = role
        self._state = INITIAL_STATE[role]
        self._local_guid = local_guid
        self._remote_guid = remote_guid
        self._stream = Stream()
        self._receiving = ReceiveCursors()
        self._sending = SendWindow(config.window_size)
        self._events: deque[Event] = deque()
        self._replies: list[bytes] = []
        is_direct = role is Role.INITIATOR and remote_guid == GUID_NULL
        self._timers = Timers(config, now, is_direct=is_direct)
        self._session_active = False
        self._received_ack = False
        self._acks = AckPolicy(config, self._receiving, self._timers)
        self._reading_paused = False
        if role is Role.INITIATOR:
            self._replies.append(
                handshake.establish_request(config, local_guid, remote_guid, pinged=pinged, now=now)
            )

    # Queries of the owner -------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """SessionState [MS-MQQB 3.1.1.3.1]."""
        return self._state

    @property
    def role(self) -> Role:
        """Which end we are."""
        return self._role

    @property
    def remote_guid(self) -> Guid:
        """RemoteQMGuid, zeros while unknown; a claim of the peer."""
        return self._remote_guid

    @property
    def room(self) -> int:
        """How many more messages may be offered now."""
        if self._state is not SessionState.OPEN:
            return 0
        return max(0, self._send_limit - self._sending.queued)

    @property
    def in_flight(self) -> int:
        """UnAckedMessageCount: messages sent that AckSequenceNumber has not reached."""
        return self._sending.in_flight

    @property
    def uncommitted(self) -> int:
        """Messages handed out and not committed yet."""
        return self._receiving.uncommitted

    @property
    def arrived_count(self) -> int:
        """UserMessages that have arrived, OrderAcks and FinalAcks among them."""
        return self._receiving.wire

    @property
    def sent_count(self) -> int:
        """UserMessages that were taken for writing, acknowledged or not."""
        return self._sending.sent

    @property
    def incomplete_bytes(self) -> int:
        """Bytes kept of a packet that has not arrived whole."""
        return self._stream.kept_bytes

    @property
    def acknowledged(self) -> int:
        """The last position that an acknowledgement taken for writing covers, for ack marks."""
        return self._receiving.acked

    @property
    def reading_paused(self) -> bool:
        """Whether the owner must stop reading from the transport; `commit` ends it."""
        return self._reading_paused

    @property
    def has_outgoing(self) -> bool:
        """Whether `take_outgoing` would return anything now."""
        if self._replies:
            return True
        if self._state is not SessionState.OPEN:
            return False
        return self._acks.is_due or (self._sending.queued > 0 and self._send_limit > 0)

    @property
    def _is_closed(self) -> bool:
        return self._state is SessionState.CLOSED

    @property
    def _send_limit(self) -> int:
        """How many queued messages may leave now."""
        return 0 if self._is_recycling else self._sending.open_count

    @property
    def _is_recycling(self) -> bool:
        """Whether the counters are close to wrapping and it is our side that reconnects (QB-A7)."""
        return self._role is Role.INITIATOR and (
            self._sending.sent >= RECYCLE_AFTER_COUNT or self._receiving.wire >= RECYCLE_AFTER_COUNT
        )

    # Input and output -----------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the transport, split anywhere."""
        if self._is_closed or not data:
            return
        buffer = self._stream.join(data)
        if buffer is None:
            return
        try:
            consumed, wanted = self._read(buffer, now)
        except ProtocolError as error:
            self._end(CloseReason.MALFORMED_PACKET, str(error))
        except FalseAcknowledgement as error:
            self._end(CloseReason.FALSE_ACKNOWLEDGEMENT, str(error))
        except PeerFault as fault:
            self._end(fault.reason, fault.detail)
        else:
            if not self._is_closed:
                self._stream.keep(buffer, consumed, wanted)

    def take_outgoing(self, now: float) -> bytes:
        """Return bytes to write, b"" when there is nothing to write now.

        Counters and acknowledgements are filled in here, so write the results in this order.
        One call returns about OUTGOING_CHUNK_MAX_BYTES at most: call again when the transport can
        take more.
        """
        out, self._replies = self._replies, []
        if self._state is SessionState.OPEN:
            if self._acks.is_due:
                headers = self._acks.take_headers(
                    self._sending.sent, self._sending.sent_recoverable, now
                )
                out += [write_session_ack(SessionAck(header)) for header in headers]
            if self._sending.queued and self._send_limit > 0:
                self._transmit(out, now)
            self._recycle_if_drained()
        return out[0] if len(out) == 1 else b"".join(out)

    def next_event(self) -> Event | None:
        """Return the oldest event not returned yet, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None when no timer runs."""
        return self._timers.next()

    def handle_timer(self, now: float) -> None:
        """Fire every timer that is due; calling early does nothing."""
        timers = self._timers
        if now >= timers.initialization_at:
            self._end(CloseReason.INITIALIZATION_TIMEOUT, f"in {self._state.value}")
        if now >= timers.ack_wait_at:
            self._on_ack_wait(now)
        if now >= timers.cleanup_at:
            self._on_cleanup(now)
        if now >= timers.ack_send_at:
            self._acks.ack_send_expired(now)

    # Decisions of the owner -----------------------------------------------------------------

    def commit(self, upto: int) -> None:
        """Say that every arrival up to position `upto` has its verdict, durably.

        Call once per applied batch. Only this moves acknowledgements; it does not matter whether a
        message was accepted, a duplicate, out of order or refused (QB-A4).
        """
        if self._is_closed or not self._receiving.commit(upto):
            return
        self._acks.committed(self._sending.size)
        if self._reading_paused:
            self._reading_paused = self._receiving.is_above(
                self._config.uncommitted_max_bytes // 2, self._config.uncommitted_max_count // 2
            )

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> None:
        """Queue UserMessages for sending, OrderAcks and FinalAcks among them, in this order.

        `tokens` are the owner's names of the messages; each `packets[k]` is a whole packet without
        SessionHeader whose MessageID and sequence numbers are committed.
        """
        if self._state is not SessionState.OPEN:
            raise SessionMisuse(f"offer in {self._state.value}: wait for Established")
        self._sending.offer(tokens, packets)

    def pause(self) -> list[int]:
        """Hold the outgoing queue and tell the peer with a window of 1 [MS-MQQB 3.1.7.13].

        Returns the tokens that were offered and had not left, in order.
        """
        if self._state is not SessionState.OPEN:
            return []
        self._sending.is_held = True
        self._acks.paused()
        self._session_active = False
        return self._sending.withdraw()

    def resume(self) -> None:
        """Send again [MS-MQQB 3.1.7.14]."""
        self._sending.is_held = False
        self._session_active = True

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """End the session from our side, or say that the transport ended [MS-MQQB 3.1.5.9].

        No packet says so to the peer. Closing twice does nothing.
        """
        self._end(reason, detail)

    # Reading -------------------------------------------------------------------------------

    def _read(self, buffer: bytes | bytearray, now: float) -> tuple[int, int]:
        """Process whole packets; return bytes consumed and bytes wanted for the next one."""
        at, end = 0, len(buffer)
        while True:
            if self._state is SessionState.OPEN:
                at = self._read_run(buffer, at, end, now)
            try:
                span = packet_span(buffer, at, end)
            except ProtocolError as error:
                raise error.counted_from(at) from None
            if span is None:
                return at, BASE_HEADER_SIZE_BYTES
            if self._state is not SessionState.OPEN and not buffer[at + FLAGS_OFFSET] & FLAG_IN:
                # Refused by its first 16 bytes, so nothing is buffered for it.
                raise self._unexpected(PacketKind.MESSAGE)
            if end - at < span:
                return at, span
            self._read_packet(buffer, at, at + span, now)
            at += span
            if self._is_closed:
                return at, BASE_HEADER_SIZE_BYTES

    def _read_run(self, buffer: bytes | bytearray, at: int, end: int, now: float) -> int:
        """Hand out the ordinary UserMessages that start at `at`; return where they end."""
        offsets, kinds = [0], bytearray()
        stop = message_run(buffer, at, end, offsets, kinds)
        if kinds:
            self._hand_out(take(buffer, at, stop), offsets, bytes(kinds), now)
        return stop

    def _read_packet(self, buffer: bytes | bytearray, at: int, stop: int, now: float) -> None:
        """Process one whole packet that is not an ordinary UserMessage."""
        kind = packet_kind(buffer, at, stop)
        self._received_ack = True
        if kind not in TRANSITIONS[self._state]:
            raise self._unexpected(kind)
        if kind is PacketKind.SESSION_ACK:
            acknowledgement, _ = parse_session_ack(buffer, at, stop)
            self._acknowledge(acknowledgement.session, now)
        elif kind is PacketKind.MESSAGE:
            self._read_message(buffer, at, stop, now)
        else:
            self._read_handshake(kind, (buffer, at, stop), now)

    def _read_handshake(
        self, kind: PacketKind, packet: tuple[bytes | bytearray, int, int], now: float
    ) -> None:
        guids = self._local_guid, self._remote_guid
        step = handshake.read_packet(self._state, packet, now, self._config, self._timers, *guids)
        self._remote_guid = step.remote_guid
        if step.refusal is not None:
            # QB-A31: the answer leaves, and nothing follows it.
            self._end(step.refusal, "EstablishConnection request")
            self._replies.append(step.reply)
            return
        self._sending.peer_size = step.peer_window
        if step.reply:
            self._replies.append(step.reply)
        self._state = TRANSITIONS[self._state][kind]
        if step.event is not None:
            self._events.append(step.event)

    def _read_message(self, buffer: bytes | bytearray, at: int, stop: int, now: float) -> None:
        """Process a UserMessage that carries a SessionHeader, or that is or may be an ack."""
        kind = bytes([message_kind(buffer, at)])
        if buffer[at + FLAGS_OFFSET] & FLAG_SH:
            packet, header = split_session_header(buffer, at, stop)
            # Counted first: the header's counts include the message that carries it.
            self._hand_out(packet, [0, len(packet)], kind, now)
            self._acknowledge(header, now)
            return
        acknowledgement = local_acknowledgement(buffer, at, stop, self._local_guid)
        if acknowledgement is None:
            self._hand_out(take(buffer, at, stop), [0, stop - at], kind, now)
            return
        position = self._count(kind, stop - at, now)
        if isinstance(acknowledgement, OrderAck):
            self._events.append(OrderAckArrived(position, acknowledgement))
        else:
            self._events.append(FinalAckArrived(position, acknowledgement))

    def _hand_out(self, block: bytes, offsets: list[int], kinds: bytes, now: float) -> None:
        first = self._count(kinds, len(block), now)
        self._events.append(PacketsArrived(first, block, offsets, kinds))

    def _count(self, kinds: bytes, size_bytes: int, now: float) -> int:
        """Count arrivals [MS-MQQB 3.1.5.8.2] and update the timers; return the first position."""
        first = self._receiving.arrived(kinds, size_bytes)
        self._received_ack = True
        self._session_active = True
        self._reading_paused = self._reading_paused or self._receiving.is_above(
            self._config.uncommitted_max_bytes, self._config.uncommitted_max_count
        )
        self._acks.arrived(kinds, now)
        return first

    def _unexpected(self, kind: PacketKind) -> PeerFault:
        return PeerFault(CloseReason.UNEXPECTED_PACKET, f"{kind.value} in {self._state.value}")

    # Acknowledgements ----------------------------------------------------------------------

    def _acknowledge(self, header: SessionHeader, now: float) -> None:
        """Process a SessionHeader, alone or piggybacked [MS-MQQB 3.1.5.5]."""
        self._sending.peer_size = header.window_size
        released, retained = self._sending.acknowledge(header)
        if released or retained:
            self._events.append(AcksReceived(released, retained))
        mismatch = self._receiving.mismatch(header)
        if mismatch is not None:
            raise PeerFault(CloseReason.COUNT_MISMATCH, mismatch)
        if self._sending.is_awaiting:
            self._timers.start_ack_wait(now)

    # Sending -------------------------------------------------------------------------------

    def _transmit(self, out: list[bytes], now: float) -> None:
        """Append what window and chunk size allow [MS-MQQB 3.1.7.1.3]."""
        sending, budget = self._sending, OUTGOING_CHUNK_MAX_BYTES
        already_sent = sending.sent
        if self._acks.is_piggyback_due(now) and not may_be_acknowledgement(sending.head_packet, 0):
            budget -= sending.transmit(sending.in_flight + 1, budget, out)
            (header,) = self._acks.take_headers(sending.sent, sending.sent_recoverable, now)
            out[-1] = with_session_header(out[-1], header)
        sending.transmit(sending.size, budget, out)
        if sending.sent == already_sent:
            return
        self._session_active = True
        if self._timers.ack_wait_at == inf:
            self._timers.start_ack_wait(now)

    # Timers --------------------------------------------------------------------------------

    def _on_ack_wait(self, now: float) -> None:
        """Session Ack Wait Timer Event [MS-MQQB 3.1.6.3]."""
        if not self._sending.is_awaiting:
            self._timers.ack_wait_at = inf
        elif not self._received_ack:
            self._end(CloseReason.ACK_TIMEOUT, f"{self._sending.in_flight} messages are in flight")
        else:
            self._timers.start_ack_wait(now)
        self._received_ack = False

    def _on_cleanup(self, now: float) -> None:
        """Session Cleanup Timer Event [MS-MQQB 3.1.6.2]."""
        if not self._session_active:
            self._end(CloseReason.IDLE, "no message in a whole cleanup period")
            return
        self._session_active = False
        self._timers.start_cleanup(now)

    # Ending --------------------------------------------------------------------------------

    def _recycle_if_drained(self) -> None:
        receiving = self._receiving
        if (
            self._is_recycling
            and not self._sending.is_awaiting
            and receiving.acked == receiving.wire
        ):
            self._end(CloseReason.RECYCLED, f"after {self._sending.sent} messages")

    def _end(self, reason: CloseReason, detail: str) -> None:
        """Closing a Session [MS-MQQB 3.1.5.9]: stop all timers, report it once."""
        if self._is_closed:
            return
        self._state = SessionState.CLOSED
        self._timers.stop()
        self._acks.is_due = False
        self._reading_paused = False
        self._replies.clear()
        self._stream.clear()
        self._events.append(Closed(reason, BLAME[reason], detail, self._sending.drain()))

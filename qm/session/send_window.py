"""Messages offered, in flight and acknowledged by the peer [MS-MQQB 3.1.5.5, 3.1.7.1].

Positions of messages in flight are consecutive, so their table is a queue: its head is the oldest
position that the peer has not acknowledged. It holds only what was sent on this session, which
makes the rules of 3.1.5.5.1 to 3.1.5.5.3 safe (QB-A5).

What was offered together is kept together as a run, and so is what left together: an
acknowledgement then costs one step per run, unless a run mixes kinds.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from qm.session.errors import SessionMisuse
from qm.session.events import KIND_EXPRESS, KIND_TRANSACTIONAL
from qm.session.framing import KINDS, KINDS_MASK, MESSAGE_HEAD
from qm.session.limits import OPEN_POSITIONS_MAX_COUNT, SERIAL_SPAN_COUNT
from qm.wire.headers.base_header import FLAG_IN, FLAG_SH
from qm.wire.headers.session_header import SessionHeader
from qm.wire.limits import USER_PACKET_SIZE_MIN_BYTES, WINDOW_SIZE_DEFAULT, WINDOW_SIZE_MIN
from qm.wire.packets.patch import attach_session_header

_U16: Final = SERIAL_SPAN_COUNT - 1


class FalseAcknowledgement(Exception):
    """The peer acknowledges what was not sent to it; the text names the number."""


class SendWindow:
    """The sending half of a session's counters, with its queue and its messages in flight."""

    __slots__ = (
        "_ahead",
        "_flight",
        "_flight_at",
        "_own_size",
        "_persisted",
        "_queue",
        "_queue_at",
        "_unpersisted",
        "acked",
        "acked_recoverable",
        "is_held",
        "peer_size",
        "queued",
        "sent",
        "sent_recoverable",
    )

    def __init__(self, own_size: int = WINDOW_SIZE_DEFAULT) -> None:
        """`own_size`: WindowSize of our side, in messages."""
        self._own_size = own_size
        self.peer_size = WINDOW_SIZE_MIN
        """WindowSize that the peer announced last."""
        self.is_held = False
        """Whether the outgoing queue is on hold: nothing leaves."""
        self.sent = 0
        self.sent_recoverable = 0
        self.acked = 0
        # Recoverable messages among the acked positions.
        self.acked_recoverable = 0
        self.queued = 0
        """Messages offered that wait for the window."""
        # Runs offered: tokens, packets, kinds. Before `_queue_at` the first run has left.
        self._queue: deque[tuple[list[int], list[bytes], bytes]] = deque()
        self._queue_at = 0
        # Runs sent: tokens, kinds. Before `_flight_at` the first run is acked by
        # AckSequenceNumber, so that index is position acked + 1.
        self._flight: deque[tuple[list[int], bytes]] = deque()
        self._flight_at = 0
        # Every recoverable number up to here is persisted at the peer, and those in `_ahead`.
        self._persisted = 0
        self._ahead: set[int] = set()
        # Acknowledged by AckSequenceNumber, not yet named as persisted: number -> token.
        self._unpersisted: dict[int, int] = {}

    @property
    def size(self) -> int:
        """The smaller of both windows, at least 1 (QB-A33)."""
        return max(WINDOW_SIZE_MIN, min(self._own_size, self.peer_size))

    @property
    def open_count(self) -> int:
        """How many queued messages may leave now: the send gate [MS-MQQB 3.1.7.1]."""
        return 0 if self.is_held else self.size - self.in_flight

    @property
    def in_flight(self) -> int:
        """UnAckedMessageCount; it starts at 0, not at the length of the backlog (QB-A13)."""
        return self.sent - self.acked

    @property
    def is_awaiting(self) -> bool:
        """Whether any sent message has AwaitingAck."""
        return self.sent != self.acked or bool(self._unpersisted)

    @property
    def head_packet(self) -> bytes:
        """The packet that leaves next; call it only while something is queued."""
        return self._queue[0][1][self._queue_at]

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> None:
        """Queue messages in the order in which they are to be sent."""
        if len(tokens) != len(packets):
            raise SessionMisuse(f"{len(tokens)} tokens for {len(packets)} packets")
        if self.queued + len(tokens) > OPEN_POSITIONS_MAX_COUNT:
            raise SessionMisuse(f"more than {OPEN_POSITIONS_MAX_COUNT} messages wait: ask `room`")
        kinds = bytearray()
        add_kind = kinds.append
        for packet in packets:
            if len(packet) < USER_PACKET_SIZE_MIN_BYTES:
                raise _not_sendable(tokens[len(kinds)])
            _, flags, _, size, user_flags = MESSAGE_HEAD(packet, 0)
            kind = KINDS.get(user_flags & KINDS_MASK)
            if kind is None or size != len(packet) or flags & (FLAG_IN | FLAG_SH):
                raise _not_sendable(tokens[len(kinds)])
            add_kind(kind)
        if kinds:
            self._queue.append((list(tokens), list(packets), bytes(kinds)))
            self.queued += len(kinds)

    def transmit(self, window: int, budget_bytes: int, out: list[bytes]) -> int:
        """Move queued messages into flight while `window` and `budget_bytes` last; return bytes.

        The last message may exceed the budget; the packets are appended to `out`.
        """
        # Messages that a peer never reports as persisted are bounded before they cost memory.
        room = min(window - self.in_flight, OPEN_POSITIONS_MAX_COUNT - len(self._unpersisted))
        size = 0
        while self._queue and room > 0 and size < budget_bytes:
            tokens, packets, kinds = self._queue[0]
            start = self._queue_at
            leaving, leaving_bytes = _within(packets[start : start + room], budget_bytes - size)
            stop = start + len(leaving)
            out += leaving
            size += leaving_bytes
            self._flight.append((tokens[start:stop], kinds[start:stop]))
            self.sent += len(leaving)
            self.sent_recoverable += len(leaving) - kinds.count(KIND_EXPRESS, start, stop)
            self.queued -= len(leaving)
            room -= len(leaving)
            self._queue_at = stop
            if stop == len(tokens):
                self._queue.popleft()
                self._queue_at = 0
        return size

    def acknowledge(self, header: SessionHeader) -> tuple[list[int], list[int]]:
        """Apply AckSequenceNumber, base and flags; return released and retained tokens.

        Implements 3.1.5.5.1 to 3.1.5.5.3. Raises `FalseAcknowledgement` before anything changes.
        """
        covered = self._covered(header.ack_sequence_number)
        self._note_persisted(header)
        released: list[int] = []
        retained: list[int] = []
        if self._unpersisted:
            self._release_late(released)
        while covered:
            tokens, kinds = self._flight[0]
            start = self._flight_at
            stop = min(start + covered, len(tokens))
            self._settle(tokens[start:stop], kinds[start:stop], released, retained)
            covered -= stop - start
            self.acked += stop - start
            self._flight_at = stop
            if stop == len(tokens):
                self._flight.popleft()
                self._flight_at = 0
        return released, retained

    def drain(self) -> list[int]:
        """Forget everything and return the tokens that are not acknowledged, in order."""
        unacknowledged = list(self._unpersisted.values())
        at = self._flight_at
        for tokens, _ in self._flight:
            unacknowledged += tokens[at:]
            at = 0
        self._unpersisted.clear()
        self._flight.clear()
        self._flight_at = 0
        self.acked = self.sent
        return unacknowledged + self.withdraw()

    def withdraw(self) -> list[int]:
        """Give back the tokens that were offered and not sent, in order."""
        withdrawn: list[int] = []
        at = self._queue_at
        for tokens, _, _ in self._queue:
            withdrawn += tokens[at:]
            at = 0
        self._queue.clear()
        self._queue_at = self.queued = 0
        return withdrawn

    def _settle(
        self, tokens: list[int], kinds: bytes, released: list[int], retained: list[int]
    ) -> None:
        """Sort the messages that AckSequenceNumber has just covered into released and retained."""
        count, number = len(kinds), self.acked_recoverable
        transactional = kinds.count(KIND_TRANSACTIONAL)
        recoverable = count - kinds.count(KIND_EXPRESS)
        self.acked_recoverable += recoverable
        if not transactional and (not recoverable or self.acked_recoverable <= self._persisted):
            released += tokens
            return
        if transactional == count:
            retained += tokens
            return
        if recoverable == count and not transactional and not self._ahead:
            named = max(0, self._persisted - number)
            released += tokens[:named]
            numbers = range(number + named + 1, number + count + 1)
            self._unpersisted.update(zip(numbers, tokens[named:], strict=True))
            return
        for token, kind in zip(tokens, kinds, strict=True):
            if kind == KIND_EXPRESS:
                released.append(token)
                continue
            number += 1
            if kind == KIND_TRANSACTIONAL:
                retained.append(token)
            elif number <= self._persisted or number in self._ahead:
                released.append(token)
            else:
                self._unpersisted[number] = token

    def _covered(self, ack_sequence_number: int) -> int:
        """Return how many messages in flight the number newly acknowledges (QB-A7)."""
        ahead = (ack_sequence_number - self.acked) & _U16
        if ahead <= self.in_flight:
            return ahead
        behind = SERIAL_SPAN_COUNT - ahead
        if behind <= min(self.acked, OPEN_POSITIONS_MAX_COUNT):
            # A header that was filled in before the last one carries nothing new (QB-A50).
            return 0
        raise FalseAcknowledgement(
            f"AckSequenceNumber {ack_sequence_number}, but {self.sent & _U16} messages were sent"
        )

    def _note_persisted(self, header: SessionHeader) -> None:
        """Remember which recoverables the header says are persisted.

        Base 0 says nothing; any other covers everything up to it (3.1.5.5.3). Bit k names base + k
        (QB-A6).
        """
        wire_base, flags = header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags
        if not wire_base and not flags:
            return
        base = self.sent_recoverable - ((self.sent_recoverable - wire_base) & _U16)
        last = base + max(flags.bit_length() - 1, 0)
        if base < 0 or last > self.sent_recoverable:
            raise FalseAcknowledgement(
                f"recoverable {wire_base} with flags 0x{flags:08X}, but "
                f"{self.sent_recoverable & _U16} were sent"
            )
        upto = max(base, self._persisted) if wire_base else self._persisted
        if wire_base and not flags & (flags + 1):
            # The usual header: one run of ones from bit 0.
            upto = max(upto, last)
        else:
            self._ahead |= {base + bit for bit in range(flags.bit_length()) if flags >> bit & 1}
        if self._ahead:
            while upto + 1 in self._ahead:
                upto += 1
            self._ahead = {number for number in self._ahead if number > upto}
        self._persisted = upto

    def _release_late(self, released: list[int]) -> None:
        """Release what AckSequenceNumber covered earlier and the flags name only now."""
        unpersisted = self._unpersisted
        if next(reversed(unpersisted)) <= self._persisted:
            released += unpersisted.values()
            unpersisted.clear()
            return
        for number in list(unpersisted):
            if number <= self._persisted or number in self._ahead:
                released.append(unpersisted.pop(number))


def _within(packets: list[bytes], budget_bytes: int) -> tuple[list[bytes], int]:
    """Return packets from the front until `budget_bytes` are reached, and their bytes."""
    total = sum(map(len, packets))
    if total <= budget_bytes:
        return packets, total
    size = 0
    for count, packet in enumerate(packets, start=1):
        size += len(packet)
        if size >= budget_bytes:
            return packets[:count], size
    return packets, size


def _not_sendable(token: int) -> SessionMisuse:
    return SessionMisuse(
        f"message {token}: not a UserMessage of exactly its own length without SessionHeader"
    )


def with_session_header(packet: bytes, header: SessionHeader) -> bytes:
    """Return the message with Flags.SH and the header after its last byte (QB-A17)."""
    carrier = bytearray(packet)
    attach_session_header(carrier, header)
    return bytes(carrier)

"""What was offered, what is in flight, what the peer has acknowledged [MS-MQQB 3.1.5.5, 3.1.7.1].

Positions of messages in flight follow each other, so the table of them is a queue: its head is the
oldest position that the peer has not acknowledged. Nothing that was not sent on this session is in
it, which is what makes the rules of 3.1.5.5.1 to 3.1.5.5.3 safe (QB-A5).
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from qm.session.errors import SessionMisuse
from qm.session.events import KIND_EXPRESS, KIND_TRANSACTIONAL
from qm.session.framing import KINDS, KINDS_MASK, MESSAGE_HEAD
from qm.session.limits import OPEN_POSITIONS_MAX_COUNT, SERIAL_SPAN_COUNT
from qm.wire.base_header import FLAG_IN, FLAG_SH
from qm.wire.limits import USER_PACKET_SIZE_MIN_BYTES
from qm.wire.patch import attach_session_header
from qm.wire.session_header import SessionHeader

_U16: Final = SERIAL_SPAN_COUNT - 1


class FalseAcknowledgement(Exception):
    """The peer acknowledges what was not sent to it; the text says which number."""


class SendWindow:
    """The sending half of a session's counters, with its queue and its messages in flight."""

    __slots__ = (
        "_ahead",
        "_flight",
        "_persisted",
        "_queue",
        "_unpersisted",
        "acked",
        "acked_recoverable",
        "sent",
        "sent_recoverable",
    )

    def __init__(self) -> None:
        self.sent = 0
        self.sent_recoverable = 0
        self.acked = 0
        # Recoverable messages among the acked positions.
        self.acked_recoverable = 0
        # Offered, not sent: token, packet, kind.
        self._queue: deque[tuple[int, bytes, int]] = deque()
        # Sent, not acknowledged by AckSequenceNumber: token, kind. The head is position acked + 1.
        self._flight: deque[tuple[int, int]] = deque()
        # Every recoverable number up to here is persisted at the peer, and those in `_ahead`.
        self._persisted = 0
        self._ahead: set[int] = set()
        # Acknowledged by AckSequenceNumber, not yet named as persisted: number -> token.
        self._unpersisted: dict[int, int] = {}

    @property
    def in_flight(self) -> int:
        """UnAckedMessageCount; it starts at 0, not at the length of the backlog (QB-A13)."""
        return len(self._flight)

    @property
    def queued(self) -> int:
        """Messages offered that wait for the window."""
        return len(self._queue)

    @property
    def is_awaiting(self) -> bool:
        """Whether any sent message has AwaitingAck."""
        return bool(self._flight or self._unpersisted)

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> None:
        """Queue messages in the order in which they are to be sent."""
        if len(tokens) != len(packets):
            raise SessionMisuse(f"{len(tokens)} tokens for {len(packets)} packets")
        if len(self._queue) + len(tokens) > OPEN_POSITIONS_MAX_COUNT:
            raise SessionMisuse(f"more than {OPEN_POSITIONS_MAX_COUNT} messages wait: ask `room`")
        entries = []
        for token, packet in zip(tokens, packets, strict=True):
            if len(packet) < USER_PACKET_SIZE_MIN_BYTES:
                raise SessionMisuse(f"message {token}: {len(packet)} bytes are no UserMessage")
            _, flags, _, size, user_flags = MESSAGE_HEAD(packet, 0)
            kind = KINDS.get(user_flags & KINDS_MASK)
            if kind is None or size != len(packet) or flags & (FLAG_IN | FLAG_SH):
                raise SessionMisuse(
                    f"message {token}: not a UserMessage of its own length without SessionHeader"
                )
            entries.append((token, packet, kind))
        self._queue.extend(entries)

    def transmit(self, window: int, budget_bytes: int, out: list[bytes]) -> int:
        """Move queued messages into flight while `window` and `budget_bytes` last; return bytes.

        The first message leaves whatever its size; their packets are appended to `out`.
        """
        queue, flight = self._queue, self._flight
        # A peer that never says "persisted" stops being sent to before it costs memory.
        room = min(window - len(flight), OPEN_POSITIONS_MAX_COUNT - len(self._unpersisted))
        size = 0
        while queue and room > 0 and size < budget_bytes:
            token, packet, kind = queue.popleft()
            flight.append((token, kind))
            self.sent += 1
            if kind != KIND_EXPRESS:
                self.sent_recoverable += 1
            out.append(packet)
            size += len(packet)
            room -= 1
        return size

    @property
    def head_packet(self) -> bytes:
        """The packet that leaves next; ask only while something is queued."""
        return self._queue[0][1]

    def acknowledge(self, header: SessionHeader) -> tuple[list[int], list[int]]:
        """Apply AckSequenceNumber, base and flags; return released and retained tokens.

        Steps 3.1.5.5.1 to 3.1.5.5.3. Raises `FalseAcknowledgement` before anything changed.
        """
        covered = self._covered(header.ack_sequence_number)
        persisted, ahead = self._named(header)
        self._persisted = persisted
        self._ahead = {number for number in self._ahead if number > persisted} | ahead
        released: list[int] = []
        retained: list[int] = []
        if self._unpersisted:
            self._release_late(released)
        flight, number = self._flight, self.acked_recoverable
        for _ in range(covered):
            token, kind = flight.popleft()
            if kind == KIND_EXPRESS:
                released.append(token)
                continue
            number += 1
            if kind == KIND_TRANSACTIONAL:
                retained.append(token)
            elif number <= persisted or number in self._ahead:
                released.append(token)
            else:
                self._unpersisted[number] = token
        self.acked += covered
        self.acked_recoverable = number
        return released, retained

    def drain(self) -> list[int]:
        """Forget everything and return the tokens that are not acknowledged, in order."""
        tokens = [*self._unpersisted.values()]
        tokens += [token for token, _ in self._flight]
        tokens += [token for token, _, _ in self._queue]
        self._unpersisted.clear()
        self._flight.clear()
        self._queue.clear()
        return tokens

    def withdraw(self) -> list[int]:
        """Give back the tokens that were offered and not sent, in order."""
        tokens = [token for token, _, _ in self._queue]
        self._queue.clear()
        return tokens

    def _covered(self, ack_sequence_number: int) -> int:
        """Return how many messages in flight the number newly acknowledges (QB-A7)."""
        ahead = (ack_sequence_number - self.acked) & _U16
        if ahead <= len(self._flight):
            return ahead
        behind = SERIAL_SPAN_COUNT - ahead
        if behind <= min(self.acked, OPEN_POSITIONS_MAX_COUNT):
            # A header that was filled in before the last one; it says nothing new (QB-A50).
            return 0
        raise FalseAcknowledgement(
            f"AckSequenceNumber {ack_sequence_number}, but {self.sent & _U16} messages were sent"
        )

    def _named(self, header: SessionHeader) -> tuple[int, set[int]]:
        """Return up to where recoverables are persisted, and which ones beyond.

        Everything up to a base that is not 0 is persisted, as 3.1.5.5.3 has it; bit k names
        base + k (QB-A6).
        """
        wire_base, flags = header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags
        if not wire_base and not flags:
            return self._persisted, set()
        base = self.sent_recoverable - ((self.sent_recoverable - wire_base) & _U16)
        last = base + max(flags.bit_length() - 1, 0)
        if base < 0 or last > self.sent_recoverable:
            raise FalseAcknowledgement(
                f"recoverable {wire_base} with flags 0x{flags:08X}, but "
                f"{self.sent_recoverable & _U16} were sent"
            )
        ahead = {base + bit for bit in range(flags.bit_length()) if flags >> bit & 1}
        upto = max(base, self._persisted) if wire_base else self._persisted
        while upto + 1 in ahead or upto + 1 in self._ahead:
            upto += 1
        return upto, {number for number in ahead if number > upto}

    def _release_late(self, released: list[int]) -> None:
        """Release what AckSequenceNumber covered earlier and flags name only now."""
        for number in list(self._unpersisted):
            if number <= self._persisted or number in self._ahead:
                released.append(self._unpersisted.pop(number))


def with_session_header(packet: bytes, header: SessionHeader) -> bytes:
    """Return the message with Flags.SH and the header behind its last byte (QB-A17)."""
    carrier = bytearray(packet)
    attach_session_header(carrier, header)
    return bytes(carrier)

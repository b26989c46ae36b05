r"""What was sent to one target and how the peer answered: numbers, resends, acknowledgements.

A `Stream` is the sender's outgoing queue to one target. Names, MessageIDs, SentTimes and sequence
numbers are assigned once and are the same each time a message is sent [MS-MQQB 3.1.1.5].
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from typing_extensions import override

from qm.load.workload import Delivery, Planned
from qm.session import OutgoingTable, ResendSchedule, resend_timer_table
from qm.session.outgoing import Numbers, own_packet
from qm.wire.structures.identifiers import TxSequenceId


class Stream(Protocol):
    """What a sender needs of the queue for a target; tokens are the stream's own ints."""

    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return at most `limit` messages to send now, in order, as tokens and packets."""

    def session_acked(self, released: list[int], retained: list[int]) -> None:
        """Apply `AcksReceived` for tokens of this stream."""

    def session_ended(self) -> None:
        """Everything unacknowledged must be sent again on the next session."""

    def order_acked(self, sequence: int, number: int, now: float) -> None:
        """Apply an OrderAck; one of another sequence changes nothing."""

    def next_timer(self) -> float | None:
        """When `handle_timer` must be called, monotonic seconds."""

    def handle_timer(self, now: float) -> None:
        """Resend what has waited too long for an OrderAck [MS-MQQB 3.1.6.5]."""

    @property
    def unacknowledged(self) -> int:
        """Messages that are not fully acknowledged."""


class Entry(msgspec.Struct, gc=False):
    """A message in flight."""

    planned: Planned
    packet: bytes
    message_id: int
    sent_time_s: int
    tx_number: int = 0
    """TxSequenceNumber, 0 for messages that are not transactional."""


Acknowledged = Callable[[Sequence[Entry]], None]
"""Called for messages that are fully acknowledged: from now on they must not be lost."""


class RecordedStream(Stream):
    """A stream that tracks each message, for histories."""

    def __init__(
        self,
        sequence: TxSequenceId,
        on_sent: Acknowledged,
        on_acknowledged: Acknowledged,
        *,
        now: float,
        resend_s: Sequence[int] = resend_timer_table(),
    ) -> None:
        """`on_sent` is called for each message when it is first sent; `resend_s`:
        ResendTimerTable.
        """
        self.sequence = sequence
        self._on_sent = on_sent
        self._on_acknowledged = on_acknowledged
        self._table = OutgoingTable()
        self._table.start_sequence(sequence.to_int())
        self._resend = ResendSchedule(now, resend_s)
        self._entries: dict[int, Entry] = {}
        self._left: set[int] = set()
        self._tx_number = 0

    @property
    @override
    def unacknowledged(self) -> int:
        """Unacknowledged messages, including those not sent yet."""
        return len(self._table)

    def add(self, token: int, planned: Planned, packet: bytes, message_id: int) -> None:
        """Append a message and assign its numbers."""
        entry = Entry(planned, packet, message_id, int(time.time()))
        if planned.delivery is Delivery.TRANSACTIONAL:
            self._tx_number += 1
            entry.tx_number = self._tx_number
        self._entries[token] = entry
        self._table.add(token, entry.tx_number)

    @override
    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        tokens = self._table.dispatch(limit)
        if not tokens:
            return (), ()
        entries = [self._entries[token] for token in tokens]
        ordered = [t for t, entry in zip(tokens, entries, strict=True) if entry.tx_number]
        previous = dict(zip(ordered, self._table.previous_numbers(ordered), strict=True))
        if ordered:
            self._resend.sent(now)
        packets = [
            own_packet(e.packet, e.message_id, e.sent_time_s, self._numbers(e, previous.get(t)))
            for t, e in zip(tokens, entries, strict=True)
        ]
        fresh = [token for token in tokens if token not in self._left]
        self._left.update(fresh)
        if fresh:
            self._on_sent([self._entries[token] for token in fresh])
        return tokens, packets

    @override
    def session_acked(self, released: list[int], retained: list[int]) -> None:
        self._end(self._table.session_acked(released, retained))

    @override
    def session_ended(self) -> None:
        self._table.session_ended()
        self._resend.stop()

    @override
    def order_acked(self, sequence: int, number: int, now: float) -> None:
        if sequence != self.sequence.to_int():
            return
        effect = self._table.order_acked(sequence, number)
        self._resend.order_acked(now, progress=effect.is_progress, unacked=effect.unacked)
        self._end(effect.ended)

    @override
    def next_timer(self) -> float | None:
        return self._resend.next_timer()

    @override
    def handle_timer(self, now: float) -> None:
        if self._resend.handle_timer(now):
            self._table.resend_transactional()

    def _numbers(self, entry: Entry, previous: int | None) -> Numbers | None:
        return None if previous is None else Numbers(self.sequence, entry.tx_number, previous)

    def _end(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._left.difference_update(tokens)
            self._on_acknowledged([self._entries.pop(token) for token in tokens])


class PrebuiltStream(Stream):
    """A stream of prebuilt packets, for benchmarks: it only counts.

    Express or recoverable packets only, since nothing here numbers them; their MessageIDs must
    differ (`qm.load.packets.numbered_copies`).
    """

    def __init__(self, packets: Sequence[bytes], first_token: int = 0, step: int = 1) -> None:
        """Tokens are `first_token`, then one every `step`."""
        self._packets = packets
        self._first, self._step = first_token, step
        self._next = 0
        # Returned by a session that ended, ascending: they are sent before everything else.
        self._again: list[int] = []
        self._flight: set[int] = set()
        self.acknowledged = 0
        """Messages that the peer has acknowledged."""

    @property
    @override
    def unacknowledged(self) -> int:
        return len(self._packets) - self.acknowledged

    @override
    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        del now
        if self._again:
            at = self._again[:limit]
            del self._again[:limit]
        else:
            at = list(range(self._next, min(self._next + limit, len(self._packets))))
            self._next += len(at)
        self._flight.update(at)
        return [self._first + k * self._step for k in at], [self._packets[k] for k in at]

    @override
    def session_acked(self, released: list[int], retained: list[int]) -> None:
        del retained
        self.acknowledged += len(released)
        self._flight.difference_update((t - self._first) // self._step for t in released)

    @override
    def session_ended(self) -> None:
        self._again = sorted(self._flight.union(self._again))
        self._flight.clear()

    @override
    def order_acked(self, sequence: int, number: int, now: float) -> None:
        """Nothing here is transactional."""

    @override
    def next_timer(self) -> float | None:
        return None

    @override
    def handle_timer(self, now: float) -> None:
        pass

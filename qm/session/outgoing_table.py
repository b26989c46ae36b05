"""OutgoingMessageTable: what is in flight and what may be deleted [MS-MQQB 3.1.1.3.1, 3.1.5.6].

One table per outgoing queue, at the leader, filled from the replicated queue in its order and kept
across sessions. It decides from the peer's acknowledgements which entries end; the owner then
commits that. AwaitingAck, ReceivedSessionAck, ReceivedOrderAck and Transmitted are volatile: a new
leader starts with an empty table, and peers recognize duplicates.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from qm.session.errors import SessionMisuse

# The four Boolean attributes of OutgoingMessagePosition (3.1.1.3.1.2).
_AWAITING_ACK: Final = 1
_SESSION_ACKED: Final = 2
_ORDER_ACKED: Final = 4
_TRANSMITTED: Final = 8
# Transmitted before the current sending.
_RESENT: Final = 16
_ENDED: Final = _SESSION_ACKED | _ORDER_ACKED
# The entry's priority is stored above the attribute bits.
_PRIORITY_SHIFT: Final = 8
_PRIORITIES: Final = 8
_NO_SEQUENCE: Final = 0


class OrderAckEffect(msgspec.Struct, frozen=True, gc=False):
    """What an OrderAck changed in the table."""

    ended: list[int]
    """Tokens that are now acknowledged both ways, in order."""
    is_progress: bool
    """Whether any number was acknowledged for the first time."""
    unacked: int
    """Numbers of the sequence that were sent and still wait for an OrderAck."""


_NO_EFFECT: Final = OrderAckEffect([], False, 0)


class OutgoingTable:
    """The entries of one outgoing queue that are loaded for sending, in table order.

    Entries of higher priority are sent first ([MS-MQDMPR] 3.1.7.3.9).
    """

    __slots__ = ("_highest_sent", "_last_ack", "_numbers", "_ready", "_sequence", "_state", "_tx")

    def __init__(self) -> None:
        # Token -> attributes, in table order.
        self._state: dict[int, int] = {}
        # By priority: tokens that may be sent, in table order; some may have been removed since.
        self._ready: list[deque[int]] = [deque() for _ in range(_PRIORITIES)]
        # Transactional entries: token -> TxSequenceNumber and the inverse, in rising order.
        self._numbers: dict[int, int] = {}
        self._tx: dict[int, int] = {}
        self._sequence = _NO_SEQUENCE
        self._last_ack = 0
        self._highest_sent = 0

    def __len__(self) -> int:
        return len(self._state)

    def __contains__(self, token: int) -> bool:
        return token in self._state

    @property
    def waiting(self) -> int:
        """An upper bound of the entries that may be sent now."""
        return min(sum(map(len, self._ready)), len(self._state))

    @property
    def next_priority(self) -> int:
        """Message.Priority of what `dispatch` returns next; 0 when it returns nothing."""
        return next((p for p in reversed(range(_PRIORITIES)) if self._ready[p]), 0)

    @property
    def sequence(self) -> int:
        """The live TxSequenceID (u64), 0 before the first."""
        return self._sequence

    @property
    def has_transactional(self) -> bool:
        """Whether any entry is transactional."""
        return bool(self._numbers)

    @property
    def last_ack(self) -> int:
        """LastAck.SeqNo of the live sequence, 0 before the first OrderAck."""
        return self._last_ack

    @property
    def unacked_numbers(self) -> list[int]:
        """TxOutgoingSequence.UnackedSequence: numbers sent without OrderAck, rising."""
        return [n for n in self._tx if self._last_ack < n <= self._highest_sent]

    def start_sequence(self, sequence_id: int) -> None:
        """Make `sequence_id` (u64) the live TxSequenceID; LastAck starts again (QB-A8)."""
        if self._tx:
            raise SessionMisuse("the old sequence has entries: it ends when its table is empty")
        self._sequence = sequence_id
        self._last_ack = self._highest_sent = 0

    def add(self, token: int, tx_number: int = 0, priority: int = 0) -> None:
        """Append an entry; `tx_number` is its committed TxSequenceNumber, 0 if it has none.

        `priority` is its Message.Priority, 0 to 7; it is 0 for every transactional entry.
        """
        if token in self._state:
            raise SessionMisuse(f"token {token} is in the table already")
        if tx_number:
            if priority:
                raise SessionMisuse("a transactional message has no priority [MS-MQMQ 2.2.19.1]")
            if self._sequence == _NO_SEQUENCE or (
                self._tx and tx_number <= next(reversed(self._tx))
            ):
                raise SessionMisuse(f"number {tx_number} is not in order of a started sequence")
            self._numbers[token] = tx_number
            self._tx[tx_number] = token
        self._state[token] = priority << _PRIORITY_SHIFT
        self._ready[priority].append(token)

    def remove(self, token: int) -> None:
        """Take out an entry that expired, was deleted or got its FinalAck early."""
        self._state.pop(token, None)
        number = self._numbers.pop(token, None)
        if number is not None:
            del self._tx[number]

    def dispatch(self, limit: int) -> list[int]:
        """Return at most `limit` tokens of one priority to send now, in order, counted as sent.

        Tokens in flight or session-acked are not among them (QB-A14).
        """
        tokens: list[int] = []
        state, numbers = self._state, self._numbers
        for ready in reversed(self._ready):
            while ready and len(tokens) < limit:
                token = ready.popleft()
                attributes = state.get(token)
                if attributes is None or attributes & (_AWAITING_ACK | _SESSION_ACKED):
                    continue
                if attributes & _TRANSMITTED:
                    attributes |= _RESENT
                state[token] = attributes | _AWAITING_ACK | _TRANSMITTED
                number = numbers.get(token)
                if number is not None and number > self._highest_sent:
                    self._highest_sent = number
                tokens.append(token)
            if tokens:
                break
        return tokens

    def previous_numbers(self, tokens: Sequence[int]) -> list[int]:
        """Return PreviousTxSequenceNumber for transactional tokens just dispatched, in order.

        It names the entry before it in the table, 0 if there is none, and so bridges the gaps that
        expired entries left; for the first entry, sent for the first time, it is number - 1 if that
        number is acknowledged [MS-MQQB 3.1.7.1.3]. Numbers are committed long before the first byte
        leaves, so a gap can exist at the first sending too.
        """
        found: list[int] = []
        previous, wanted = 0, iter(tokens)
        token = next(wanted, None)
        for number, candidate in self._tx.items():
            if candidate == token:
                is_first = not previous and not self._state[candidate] & _RESENT
                if is_first and self._last_ack == number - 1:
                    previous = self._last_ack
                found.append(previous)
                token = next(wanted, None)
            previous = number
        if token is not None:
            raise SessionMisuse(f"token {token} is not a transactional entry in table order")
        return found

    def withdrawn(self, tokens: Iterable[int]) -> None:
        """Undo the dispatch of tokens that have not left after all (a paused session's backlog)."""
        for token in tokens:
            if token in self._state:
                self._state[token] &= ~_AWAITING_ACK
        self._rebuild()

    def session_acked(self, released: list[int], retained: list[int]) -> list[int]:
        """Apply `AcksReceived`; return the tokens whose entries this ends, in order, each once.

        A session that has sent an entry twice acknowledges both at once.
        """
        state = self._state
        ended = [token for token in dict.fromkeys(released) if token in state]
        for token in dict.fromkeys(retained):
            attributes = state.get(token)
            if attributes is None:
                continue
            attributes = (attributes & ~_AWAITING_ACK) | _SESSION_ACKED
            state[token] = attributes
            if attributes & _ENDED == _ENDED:
                ended.append(token)
        for token in ended:
            self.remove(token)
        return ended

    def order_acked(self, sequence_id: int, number: int) -> OrderAckEffect:
        """Apply an OrderAck: cumulative, of the live sequence only (QB-A8).

        A number that was never sent acknowledges only the numbers that were.
        """
        if sequence_id != self._sequence or not self._tx:
            return _NO_EFFECT
        number = min(number, self._highest_sent)
        ended: list[int] = []
        for sent, token in self._tx.items():
            if sent > number:
                break
            self._state[token] |= _ORDER_ACKED
            if self._state[token] & _ENDED == _ENDED:
                ended.append(token)
        for token in ended:
            self.remove(token)
        is_progress = number > self._last_ack
        self._last_ack = max(self._last_ack, number)
        return OrderAckEffect(ended, is_progress, len(self.unacked_numbers))

    def resend_transactional(self) -> None:
        """Transactional Ack Wait expired: all transactional entries are sent again (3.1.6.5).

        Their numbers stay (QB-A1).
        """
        for token in self._numbers:
            self._state[token] &= ~(_AWAITING_ACK | _SESSION_ACKED)
        self._rebuild()

    def session_ended(self) -> None:
        """A session closed: every entry is to be sent again on the next one (3.1.3.2, 3.1.6.1)."""
        for token, attributes in self._state.items():
            self._state[token] = attributes >> _PRIORITY_SHIFT << _PRIORITY_SHIFT
        self._rebuild()

    def _rebuild(self) -> None:
        self._ready = [deque() for _ in range(_PRIORITIES)]
        for token, attributes in self._state.items():
            if not attributes & (_AWAITING_ACK | _SESSION_ACKED):
                self._ready[attributes >> _PRIORITY_SHIFT].append(token)

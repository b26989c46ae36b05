"""An account of every message, kept from the committed entries and compared with the rows.

It knows what clients and peers were told (accepted, received, committed) and follows every
residence of a message from one queue to the next by the effects that apply states. After each
entry:

One place            a message that was acknowledged is in exactly one queue, or in one client's
                     unconfirmed result, or its end is known; copies for journals and dead letters
                     are counted apart
Once                 no message is accepted twice; a duplicate is of something accepted or refused
Order                a first read takes the first available ones; the key has the priority of the
                     packet, and SequentialIDs rise with arrival
All or nothing       what a transaction sent is invisible as a whole until it is committed, and
                     then visible as a whole or, after an abort, never
Counts               each queue's counts and bytes are those of its positions
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from qm.model.queries import (
    ClientInfo,
    View,
    find_by_format_name,
    get_client,
    get_transaction,
    list_queues,
    queue_statistics,
)
from qm.model.state.ledger import LEVELS
from qm.model.state.tables import Table
from qm.model.values.commands import (
    Command,
    CommandBatch,
    EdgeBatch,
    ReceiveRun,
    SelectorKind,
    Send,
    TransferVerdict,
    TxAbort,
    TxCommit,
)
from qm.model.values.effects import Applied, EffectKind
from qm.model.values.elements import TransactionState
from qm.model.values.results import RequestResult, unpack_results
from qm.model.values.rows import (
    POSITION_KEY,
    SEQUENTIAL_ID_MAX,
    Position,
    PositionState,
    ResultKind,
    unpack_position,
)
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import parse_user_message
from tests.sim.checkers import Violation
from tests.sim.machine_rows import SummedState, answer_of
from tests.unit.model.world import HOST

OWN = bytes(range(16))
ACKS = f"DIRECT=OS:{HOST}\\acks"
ALL = 1 << 30
Ident = tuple[bytes, int]
"""MessageIdentifier: source queue manager, ordinal."""
Residence = tuple[int, int]
"""queue_id, LookupIdentifier."""


class Life(Enum):
    """Where a message is."""

    PENDING = "pending"
    """Sent in a transaction that is not decided."""
    THERE = "there"
    RECEIVED = "received"
    PURGED = "purged"
    EXPIRED = "expired"
    DELIVERED = "delivered"
    FAILED = "failed"
    DELETED = "deleted"
    ROLLED_BACK = "rolled back"


_ENDS = {
    EffectKind.RECEIVED: Life.RECEIVED,
    EffectKind.REJECTED: Life.RECEIVED,
    EffectKind.PURGED: Life.PURGED,
    EffectKind.EXPIRED: Life.EXPIRED,
    EffectKind.ROLLED_BACK: Life.ROLLED_BACK,
    EffectKind.DELIVERED: Life.DELIVERED,
    EffectKind.FAILED: Life.FAILED,
    EffectKind.QUEUE_DELETED: Life.DELETED,
}
_COPIES = (EffectKind.DEAD_LETTERED, EffectKind.JOURNALED)


@dataclass(slots=True)
class TransactionAccount:
    """What a transaction did."""

    sent: list[Ident] = field(default_factory=list)
    taken: list[Ident] = field(default_factory=list)


class Account:
    """See the module."""

    def __init__(self, rows: SummedState, view: View) -> None:
        self._rows = rows
        self._view = view
        self.life: dict[Ident, Life] = {}
        self.refused: set[Ident] = set()
        """Refused for good, so that repeats of them are duplicates."""
        self.effective_priority: dict[Ident, int] = {}
        self.results: dict[Ident, tuple[str, int]] = {}
        """Messages that a plain read took: whose, and under which number."""
        self._residences: dict[Residence, tuple[Ident, bool]] = {}
        """What is where; True: a copy."""
        self._transactions: dict[bytes, TransactionAccount] = {}
        self._available: dict[int, list[int]] = {}
        """Visible keys by queue, before the entry."""
        self._last_sequential_id = 0
        self.counts: Counter[str] = Counter()

    def entry(self, batch: CommandBatch, applied: Applied) -> None:
        """Take the next committed entry; raises Violation."""
        for command, outcome in zip(batch.commands, applied.outcomes, strict=True):
            answer = answer_of(outcome)
            if isinstance(command, EdgeBatch):
                self._arrivals(command, answer.verdicts)
            elif isinstance(command, Send):
                self._sent(command, answer.status, answer.value)
            elif isinstance(command, ReceiveRun):
                self._read(command, answer.value)
            elif isinstance(command, TxCommit | TxAbort) and not answer.status:
                self.counts[type(command).__name__] += 1
        self._follow(applied)
        if len(batch.commands) == 1:
            self._in_order(batch.commands[0], applied)
        self._hold_against_rows()
        self._all_or_nothing()

    # What was reported ------------------------------------------------------------------------

    def _arrivals(self, command: EdgeBatch, verdicts: tuple[int, ...]) -> None:
        data = bytes(command.packets)
        for (low, high), verdict in zip(pairwise(command.offsets), verdicts, strict=True):
            message, _ = parse_user_message(data, low, high)
            header = message.user_header
            ident = (header.source_queue_manager, header.message_id)
            is_known = ident in self.life
            name = (MessageClass if verdict & 0x8000 else TransferVerdict)(verdict).name
            self.counts[name] += 1
            if verdict == TransferVerdict.ACCEPTED:
                if is_known:
                    raise Violation(f"{ident} is accepted twice")
                self._begin(ident, Life.THERE, message.priority, message.transaction is not None)
            elif verdict & 0x8000:
                self.refused.add(ident)
            elif verdict == TransferVerdict.DUPLICATE and not is_known | (ident in self.refused):
                raise Violation(f"{ident} is called a duplicate and was never accepted")

    def _begin(self, ident: Ident, life: Life, priority: int, is_transactional: bool) -> None:
        self.life[ident] = life
        self.effective_priority[ident] = 0 if is_transactional else priority

    def _sent(self, command: Send, status: int, value: object) -> None:
        if status:
            return
        assert isinstance(value, list)
        ident = (OWN, int(value[0]))
        if ident in self.life:
            return  # a retry, answered with its first result
        message, _ = parse_user_message(command.packets, 0, command.targets[0].packet_bytes)
        is_transactional = command.transaction is not None
        self._begin(
            ident,
            Life.PENDING if is_transactional else Life.THERE,
            message.priority,
            is_transactional,
        )
        self.counts["sent"] += 1
        if command.transaction is not None:
            self._transaction(command.transaction).sent.append(ident)

    def _transaction(self, identifier: bytes) -> TransactionAccount:
        return self._transactions.setdefault(identifier, TransactionAccount())

    def _read(self, command: ReceiveRun, results: object) -> None:
        assert results is None or isinstance(results, list | tuple)
        for result in results or ():
            assert isinstance(result, RequestResult)
            ident = (result.source_queue_manager, result.message_ordinal)
            place = (command.client_id, result.number)
            if result.kind is ResultKind.RECEIVED:
                if self.results.setdefault(ident, place) != place:
                    raise Violation(f"{ident} is received by {self.results[ident]} and {place}")
            elif result.kind is ResultKind.BORROWED and command.transaction is not None:
                taken = self._transaction(command.transaction).taken
                if ident not in taken:
                    taken.append(ident)

    # What happened ------------------------------------------------------------------------

    def _follow(self, applied: Applied) -> None:
        columns = applied.effects
        for kind, queue_id, key, source, ordinal in zip(
            columns.kinds,
            columns.queue_ids,
            columns.lookup_identifiers,
            columns.source_queue_managers,
            columns.message_ordinals,
            strict=True,
        ):
            self.counts[EffectKind(kind).name] += 1
            self._effect(EffectKind(kind), (queue_id, key), (source, ordinal))

    def _effect(self, kind: EffectKind, place: Residence, ident: Ident) -> None:
        if kind in (EffectKind.ARRIVED, EffectKind.PENDING):
            known = self._residences.get(place)
            if known is None:
                self._enter(place, ident)
            if self.life[ident] not in (Life.THERE, Life.PENDING):
                raise Violation(f"{ident} was {self.life[ident].value} and is visible again")
            if kind is EffectKind.ARRIVED:
                self.life[ident] = Life.THERE
        elif kind is EffectKind.MOVED_IN:
            self._residences[place] = (ident, self._is_copy_somewhere(ident))
        elif kind in _COPIES:
            self._residences[place] = (ident, True)
        elif kind in _ENDS or kind is EffectKind.MOVED_OUT:
            found = self._residences.pop(place, None)
            if found is None or found[0] != ident:
                raise Violation(f"{kind.name} of {ident} at {place}, where {found} is")
            if kind in _ENDS and not found[1]:
                if self.life[ident] not in (Life.THERE, Life.PENDING):
                    raise Violation(f"{ident} ends as {kind.name} and is {self.life[ident]}")
                self.life[ident] = _ENDS[kind]

    def _enter(self, place: Residence, ident: Ident) -> None:
        if ident not in self.life and self._is_acknowledgement(place, ident):
            self._begin(ident, Life.THERE, 7 - (place[1] >> 56), False)
            self.counts["acknowledgements"] += 1
        if ident not in self.life:
            raise Violation(f"{ident} is at {place} and nobody was told that it was accepted")
        sequential_id = place[1] & SEQUENTIAL_ID_MAX
        if sequential_id <= self._last_sequential_id:
            raise Violation(f"{ident} arrives at {place}, not behind all others")
        self._last_sequential_id = sequential_id
        if place[1] >> 56 != 7 - self.effective_priority[ident]:
            raise Violation(f"{ident} of priority {self.effective_priority[ident]} at {place}")
        self._residences[place] = (ident, False)

    def _is_acknowledgement(self, place: Residence, ident: Ident) -> bool:
        """Acknowledgements have their own queue, to which no actor sends."""
        return ident[0] == OWN and find_by_format_name(self._view, ACKS).queue_id == place[0]

    def _is_copy_somewhere(self, ident: Ident) -> bool:
        """A moved position is what it was: the original unless that has ended."""
        return self.life.get(ident) not in (Life.THERE, Life.PENDING)

    def _in_order(self, command: Command, applied: Applied) -> None:
        if not isinstance(command, ReceiveRun) or command.selector.kind is not SelectorKind.FIRST:
            return
        columns = applied.effects
        taken = [
            key
            for kind, queue_id, key in zip(
                columns.kinds, columns.queue_ids, columns.lookup_identifiers, strict=True
            )
            if queue_id == command.queue_id and kind in (EffectKind.RECEIVED, EffectKind.LOCKED)
        ]
        visible = self._available.get(command.queue_id, [])
        if taken != visible[: len(taken)]:
            raise Violation(f"a read took {taken} while {visible[: len(taken)]} came first")
        (outcome,) = applied.outcomes
        answered = len(answer_of(outcome).value or ())
        if not outcome.status and answered < command.count and len(visible) > len(taken):
            raise Violation(f"a read of {command.count} found {taken} of {visible}")

    # What the rows say --------------------------------------------------------------------

    def _hold_against_rows(self) -> None:
        positions: dict[Residence, Position] = {
            POSITION_KEY.unpack(key): unpack_position(row)
            for key, row in self._rows.scan(Table.POSITION, b"", b"\xff", ALL)
        }
        found = {
            place: (position.source_queue_manager, position.message_ordinal)
            for place, position in positions.items()
        }
        told = {place: ident for place, (ident, _) in self._residences.items()}
        if found != told:
            odd = sorted(found.items() ^ told.items())[:4]
            raise Violation(f"rows and effects disagree about {odd}")
        originals = Counter(ident for ident, is_copy in self._residences.values() if not is_copy)
        for ident, life in self.life.items():
            expected = 1 if life in (Life.THERE, Life.PENDING) else 0
            if originals[ident] != expected:
                raise Violation(f"{ident} is {life.value} and in {originals[ident]} queues")
        self._hold_results()
        self._hold_counts(positions)

    def _hold_results(self) -> None:
        """What a plain read took is in its client's result until that is confirmed."""
        held: set[tuple[Ident, str, int]] = set()
        for key, row in self._rows.scan(Table.RESULT, b"", b"\xff", ALL):
            client_id = key[:-9].decode()
            for result in unpack_results(row):
                if result.kind is ResultKind.RECEIVED:
                    ident = (result.source_queue_manager, result.message_ordinal)
                    held.add((ident, client_id, result.number))
        copies = {ident for ident, is_copy in self._residences.values() if is_copy}
        for ident, (client_id, number) in list(self.results.items()):
            client = get_client(self._view, client_id)
            if (ident, client_id, number) in held:
                continue
            if client is not None and client.confirmed_upto >= number:
                continue
            if ident not in copies:
                raise Violation(f"{ident} was given to {client_id} {number} and is nowhere")

    def _hold_counts(self, positions: dict[Residence, Position]) -> None:
        self._available = {}
        hidden_upto: dict[int, int] = {}
        sizes: Counter[int] = Counter()
        for info in list_queues(self._view, limit=100).items:
            queue = self._view.queue(info.queue_id)
            assert queue is not None
            hidden_upto[info.queue_id] = queue.watermark
        visible: Counter[int] = Counter()
        for (queue_id, key), position in sorted(positions.items()):
            sizes[queue_id] += position.stored_size_bytes
            is_available = position.state == PositionState.AVAILABLE
            if is_available and key & SEQUENTIAL_ID_MAX <= hidden_upto[queue_id]:
                continue
            visible[queue_id] += 1
            if is_available:
                self._available.setdefault(queue_id, []).append(key)
        for queue_id in hidden_upto:
            stats = queue_statistics(self._view, queue_id)
            assert stats is not None
            if (stats.message_count, stats.total_bytes) != (visible[queue_id], sizes[queue_id]):
                raise Violation(f"queue {queue_id} has {visible[queue_id]} and says {stats}")
            assert len(stats.count_by_priority) == LEVELS

    def client(self, client_id: str) -> ClientInfo | None:
        """Return what the committed log says of a client."""
        return get_client(self._view, client_id)

    def _all_or_nothing(self) -> None:
        for identifier, account in list(self._transactions.items()):
            lives = {self.life[ident] for ident in account.sent}
            info = get_transaction(self._view, identifier)
            state = info.state if info is not None else None
            undecided = state in (TransactionState.ACTIVE, TransactionState.PREPARED)
            if undecided:
                is_sound = lives <= {Life.PENDING}
            elif state is TransactionState.COMMITTED:
                is_sound = not lives & {Life.PENDING, Life.ROLLED_BACK}
                is_sound &= all(self.life[one] is not Life.THERE for one in account.taken)
            else:
                is_sound = lives <= {Life.ROLLED_BACK}
                is_sound &= all(self.life[one] is not Life.RECEIVED for one in account.taken)
            if not is_sound:
                raise Violation(f"{identifier!r} is {state} and what it sent is {lives}")
            if not undecided:
                del self._transactions[identifier]

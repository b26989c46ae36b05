"""Destructive reads of clients ([MS-MQDMPR] 3.1.7.1.10 to .13).

A run of numbered reads takes positions in order until it finds none; numbers without a message
stay open, and the node that waits for them asks again when the queue is woken. A found message is
a committed result. A two-phase or transactional read locks the position; a plain one ends it.
"""

from typing import Final

from qm.model.clients.clients import CLIENT_FENCED, Clients, client_key, is_range
from qm.model.clients.fast_reads import read_plain
from qm.model.clients.opens import READING, Opens
from qm.model.clients.transactions import Transactions
from qm.model.messages.endings import EFFECT_OF_REASON, Endings
from qm.model.messages.move import Moving
from qm.model.messages.returns import Returns
from qm.model.messages.seek import select
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.granting import is_granted_on_queue
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.people import with_groups
from qm.model.state.tables import Table
from qm.model.values.commands import Move, ReadEnd, ReceiveRun, Selector, SelectorKind
from qm.model.values.effects import Outcome
from qm.model.values.elements import LockKind, OperationType
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, READS_PER_CLIENT_MAX
from qm.model.values.records import Lock, TransactionalOperation
from qm.model.values.results import RequestResult, ResultRow, message_result
from qm.model.values.rows import POSITION_KEY, Position, PositionFlag, PositionState, ResultKind
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
BORROWERS_IN_HAND_MAX: Final = 16_384
_LOOKUPS: Final = (
    SelectorKind.EXACT,
    SelectorKind.SEEK_PREVIOUS,
    SelectorKind.SEEK_NEXT,
    SelectorKind.SEEK_LAST,
)
"""Reads by LookupIdentifier never wait: a miss is their result."""


class Reads:
    """Applies ReceiveRun, ReadEnd and Move."""

    def __init__(
        self,
        ledger: Ledger,
        clients: Clients,
        opens: Opens,
        transactions: Transactions,
        endings: Endings,
        moving: Moving,
        returns: Returns,
    ) -> None:
        self._ledger = ledger
        self._clients = clients
        self._opens = opens
        self._transactions = transactions
        self._endings = endings
        self._moving = moving
        self._returns = returns
        self._borrowed_counts: dict[str, int] = {}
        """By client: a scan would pass the rows of all that was borrowed since the last flush."""

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._borrowed_counts.clear()

    # Reading -----------------------------------------------------------------------------

    def apply_receive_run(self, command: ReceiveRun) -> Outcome:
        """Return the results that the numbers have now, old and new, as value.

        The value is a list of RequestResult, or a ResultRow if all positions were plain. A client
        without room for results gets an error, as it would otherwise wait for messages that exist.
        """
        if self._clients.is_fenced(command.client_id, command.session_epoch):
            return Outcome(CLIENT_FENCED)
        client = self._clients.client(command.client_id)
        if client is None or not client.is_open:
            return Outcome(ErrorCode.MQ_ERROR_STALE_HANDLE)
        self._clients.confirm(command.client_id, command.confirmed_upto)
        if not is_range(command.first_request, command.count):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        known = self._clients.results(command.client_id, command.first_request, command.count)
        refusal, queue = self._readable(command)
        if queue is None:
            return Outcome(refusal, value=known)
        if command.transaction is not None:
            refusal = self._transactions.refusal(command.transaction, command.client_id)
            if refusal:
                return Outcome(refusal, value=known)
        if not known and self._is_plain(command, queue):
            row = self._read_plain(command, queue)
            if row is not None and (len(row) == command.count or not queue.count()):
                return Outcome(MQ_OK, value=row)
            known = row.unpack() if row is not None else known
        found = self._find(command, queue, {result.number for result in known})
        if not (known or found):
            has_room = self._clients.has_room(client) and self._room(command) > 0
            return Outcome(
                MQ_OK if has_room else ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, value=[]
            )
        self._clients.add_results(command.client_id, found)
        results = sorted([*known, *found], key=lambda result: result.number) if known else found
        return Outcome(MQ_OK, value=results)

    @staticmethod
    def _is_plain(command: ReceiveRun, queue: QueueInHand) -> bool:
        return (
            command.selector.kind is SelectorKind.FIRST
            and command.transaction is None
            and not command.is_two_phase
            and not queue.record.journaling
        )

    def _read_plain(self, command: ReceiveRun, queue: QueueInHand) -> ResultRow | None:
        """Take the plain positions at the head; the remaining numbers stay open."""
        client = self._clients.client(command.client_id)
        assert client is not None
        first = max(command.first_request, client.confirmed_upto + 1)
        results, size = self._clients.room(client)
        count = min(command.first_request + command.count - first, results)
        if count < 1 or size < 1:
            return None
        row = read_plain(self._ledger, queue, first, count, size)
        if row is not None:
            self._clients.add_row(command.client_id, row)
        return row

    def _readable(self, command: ReceiveRun) -> tuple[int, QueueInHand | None]:
        opened = self._opens.find(command.handle, command.client_id)
        if opened is None or opened.queue_id != command.queue_id:
            return ErrorCode.MQ_ERROR_INVALID_HANDLE, None
        if opened.access not in READING:
            return ErrorCode.MQ_ERROR_ACCESS_DENIED, None
        queue = self._ledger.queue(command.queue_id)
        if queue is None or queue.record.is_deleting:
            return ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE, None
        is_protected = command.transaction is not None and not queue.record.transactional
        if is_protected:
            return ErrorCode.MQ_ERROR_TRANSACTION_USAGE, None
        return MQ_OK, queue

    def _find(
        self, command: ReceiveRun, queue: QueueInHand, answered: set[int]
    ) -> list[RequestResult]:
        client = self._clients.client(command.client_id)
        assert client is not None
        room = self._room(command)
        found: list[RequestResult] = []
        taken_bytes = 0
        selector = command.selector
        is_lookup = selector.kind in _LOOKUPS
        for number in range(command.first_request, command.first_request + command.count):
            if number in answered or number <= client.confirmed_upto:
                continue
            if len(found) >= room:
                break
            if not self._clients.has_room(client, len(found) + 1, taken_bytes):
                break
            status, position = select(self._ledger, queue, selector)
            if position is None:
                if not is_lookup:
                    break
                found.append(RequestResult(number, status))
                continue
            found.append(self._take(command, queue, number, *position))
            taken_bytes += found[-1].body_length
            if selector.kind is SelectorKind.AFTER:
                selector = Selector(SelectorKind.AFTER, position[0])
        return found

    def _room(self, command: ReceiveRun) -> int:
        if command.transaction is not None:
            return self._transactions.room(command.transaction)
        if command.is_two_phase:
            return READS_PER_CLIENT_MAX - self._borrowed_count(command.client_id)
        return POSITIONS_PER_ENTRY_MAX

    def _take(
        self,
        command: ReceiveRun,
        queue: QueueInHand,
        number: int,
        key: int,
        position: Position,
    ) -> RequestResult:
        """Take one position. DM-A15: a transaction wins over two-phase."""
        queue_id = queue.record.queue_id
        self._ledger.retain_body(position.body_index, position.body_ordinal)
        if command.transaction is None and not command.is_two_phase:
            result = message_result(number, ResultKind.RECEIVED, queue_id, key, position)
            self._endings.end(queue, key, position, MessageClass.ACK_RECEIVE)
            return result
        result = message_result(number, ResultKind.BORROWED, queue_id, key, position)
        if command.transaction is not None:
            if command.allow_peek_when_locked:
                position.flags |= PositionFlag.ALLOW_PEEK_WHEN_LOCKED
            operation = TransactionalOperation(OperationType.DEQUEUE, queue_id, key)
            place = self._transactions.add(command.transaction, operation)
            lock = Lock(LockKind.TX_DEQUEUE, command.transaction, place)
        else:
            lock = Lock(LockKind.REMOTE_READ, command.client_id.encode(), number)
            self._ledger.state.put(
                Table.READ, client_key(command.client_id) + POSITION_KEY.pack(queue_id, key), b""
            )
            self._borrowed_counts[command.client_id] += 1
        self._ledger.lock(queue, key, position, lock)
        return result

    # The second phase --------------------------------------------------------------------

    def apply_read_end(self, command: ReadEnd) -> Outcome:
        """Delete the messages of a two-phase read, or return them (3.1.7.1.12)."""
        queue = self._ledger.queue(command.queue_id)
        if queue is None or queue.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE)
        if command.reason not in EFFECT_OF_REASON:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        client_id, key = command.request.client_id, command.lookup_identifier
        position = self._lent(client_id, queue, key)
        if position is None:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        self._settle_read(client_id, queue, key)
        if command.delete and not is_purge_pending(queue, key):
            self._endings.end(queue, key, position, command.reason)
        else:
            self._returns.give_back(queue, key, position)
        return Outcome(MQ_OK)

    def _lent(self, client_id: str, queue: QueueInHand, key: int) -> Position | None:
        """Return the position if this client holds it by a two-phase read."""
        if not 0 <= key < 1 << 64:
            return None
        position = self._ledger.position(queue.record.queue_id, key)
        if position is None or position.state != PositionState.LOCKED:
            return None
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        lock = self._ledger.record(Table.LOCK, row_key, Lock)
        is_mine = (
            lock is not None
            and lock.kind is LockKind.REMOTE_READ
            and lock.owner == client_id.encode()
        )
        return position if is_mine else None

    def _settle_read(self, client_id: str, queue: QueueInHand, key: int) -> None:
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        self._ledger.state.delete(Table.READ, client_key(client_id) + row_key)
        if client_id in self._borrowed_counts:
            self._borrowed_counts[client_id] -= 1

    def _borrowed_count(self, client_id: str) -> int:
        """Return how many positions a client has borrowed, and keep it."""
        known = self._borrowed_counts.get(client_id)
        if known is None:
            if len(self._borrowed_counts) >= BORROWERS_IN_HAND_MAX:
                self._borrowed_counts.clear()
            known = len(self._borrowed(client_id))
            if known < READS_PER_CLIENT_MAX:  # else there may be more
                self._borrowed_counts[client_id] = known
        return known

    def _borrowed(self, client_id: str) -> list[tuple[int, int]]:
        prefix = client_key(client_id)
        rows = self._ledger.state.scan(
            Table.READ, prefix, prefix + b"\xff" * 13, READS_PER_CLIENT_MAX
        )
        return [POSITION_KEY.unpack(key[len(prefix) :]) for key, _ in rows]

    def release_owner(self, client_id: str) -> None:
        """Return what a client had borrowed when its session ended (guide 3.1)."""
        self._borrowed_counts.pop(client_id, None)
        for queue_id, key in self._borrowed(client_id):
            row_key = client_key(client_id) + POSITION_KEY.pack(queue_id, key)
            self._ledger.state.delete(Table.READ, row_key)
            queue = self._ledger.queue(queue_id)
            position = None if queue is None else self._lent(client_id, queue, key)
            if queue is not None and position is not None:
                self._returns.give_back(queue, key, position)

    # Moving ------------------------------------------------------------------------------

    def apply_move(self, command: Move) -> Outcome:
        """Move Message; the value is the position's key in the target."""
        source = self._ledger.queue(command.source_queue_id)
        target = self._ledger.queue(command.target_queue_id)
        if source is None or source.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if target is None or target.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        key = command.lookup_identifier
        refusal = self._refusal_to_move(command, source, target)
        if refusal:
            return Outcome(refusal)
        status, found = select(self._ledger, source, Selector(SelectorKind.EXACT, key))
        if found is None:
            return Outcome(status)
        position = found[1]
        if not self._moving.has_room(source, target, position):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        if command.transaction is None:
            return Outcome(MQ_OK, value=self._moving.carry(source, key, position, target))
        client_id = command.request.client_id
        refusal = self._transactions.refusal(command.transaction, client_id)
        if refusal:
            return Outcome(refusal)
        operation = TransactionalOperation(
            OperationType.MOVE, source.record.queue_id, key, target.record.queue_id
        )
        place = self._transactions.add(command.transaction, operation)
        lock = Lock(
            LockKind.TX_MOVE, command.transaction, place, target_queue=target.record.queue_id
        )
        self._ledger.lock(source, key, position, lock)
        return Outcome(MQ_OK, value=key)

    def _refusal_to_move(self, command: Move, source: QueueInHand, target: QueueInHand) -> int:
        sids = command.sender_sids
        if source is target or not 0 <= command.lookup_identifier < 1 << 64:
            return ErrorCode.MQ_ERROR_INVALID_PARAMETER
        is_system = target.record.kind.is_system_store
        if is_system and command.transaction is not None:
            return ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        if not target.record.kind.is_move_target:
            return ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
        if not self._is_granted(source, sids, QueueAccess.RECEIVE_MESSAGE):
            return ErrorCode.MQ_ERROR_ACCESS_DENIED
        if not self._is_granted(target, sids, QueueAccess.WRITE_MESSAGE):
            return ErrorCode.MQ_ERROR_ACCESS_DENIED
        if not is_system and source.record.transactional != target.record.transactional:
            return ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        return MQ_OK

    def _is_granted(self, queue: QueueInHand, sids: tuple[bytes, ...], access: QueueAccess) -> bool:
        if queue.record.parent_queue:
            parent = self._ledger.queue(queue.record.parent_queue)
            assert parent is not None, "a journal or subqueue without its queue"
            queue = parent
        return is_granted_on_queue(queue, with_groups(self._ledger, sids), access)

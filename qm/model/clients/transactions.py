"""Transactions ([MS-MQDMPR] 3.1.4.3 to .10, guide section 6).

Internal ones commit in one step. External ones are prepared first; once prepared, they survive the
end of their owner's session, any failover and any time, until their coordinator decides. A commit
is one entry over all queues, so it is never seen half done.
"""

from struct import Struct
from typing import Final

from qm.model.clients.clients import Clients, client_key
from qm.model.messages.endings import Endings
from qm.model.messages.move import Moving
from qm.model.messages.returns import Returns
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.tables import Table
from qm.model.values.commands import TxAbort, TxBegin, TxCommit, TxPrepare
from qm.model.values.effects import EffectKind, Outcome
from qm.model.values.elements import OperationType, QueueKind, TransactionState
from qm.model.values.limits import OPERATIONS_PER_TRANSACTION_MAX, TRANSACTIONS_PER_CLIENT_MAX
from qm.model.values.records import Lock, Transaction, TransactionalOperation
from qm.model.values.rows import (
    LEASE_KEY,
    POSITION_KEY,
    LeaseKind,
    Position,
    PositionFlag,
    PositionState,
)
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
TRANSACTION_ID_BYTES: Final = 16
TIMEOUT_MAX_MS: Final = 24 * 3600 * 1000
TRANSACTION_RECORD: Final = b"\x00"
"""Precedes the id in the key of a Transaction record."""
_BY_OWNER: Final = b"\x01"
OPERATION_KEY: Final = Struct(">16sH")
"""Transaction id, operation number u16."""


class Transactions:
    """The TransactionCollection."""

    def __init__(
        self,
        ledger: Ledger,
        clients: Clients,
        endings: Endings,
        moving: Moving,
        returns: Returns,
        outgoing: OutgoingQueues,
    ) -> None:
        self._ledger = ledger
        self._clients = clients
        self._endings = endings
        self._moving = moving
        self._returns = returns
        self._outgoing = outgoing

    def find(self, transaction_id: bytes) -> Transaction | None:
        """Return a transaction's record, or None."""
        return self._ledger.record(
            Table.TRANSACTION, TRANSACTION_RECORD + transaction_id, Transaction
        )

    def _put(self, transaction_id: bytes, transaction: Transaction) -> None:
        self._ledger.put_record(Table.TRANSACTION, TRANSACTION_RECORD + transaction_id, transaction)

    # Commands ----------------------------------------------------------------------------

    def apply_tx_begin(self, command: TxBegin) -> Outcome:
        """Create Transaction; whether it is single-phase is known from the start (DM-A25)."""
        is_sound = (
            len(command.transaction) == TRANSACTION_ID_BYTES
            and any(command.transaction)
            and 1 <= command.timeout_ms <= TIMEOUT_MAX_MS
        )
        if not is_sound:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if self.find(command.transaction) is not None:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        owner = command.request.client_id
        if len(self.owned(owner)) >= TRANSACTIONS_PER_CLIENT_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        transaction = Transaction(
            TransactionState.ACTIVE,
            command.is_single_phase,
            owner,
            command.coordinator,
            0,
            self._ledger.now_ms + command.timeout_ms,
            command.timeout_ms,
        )
        self._put(command.transaction, transaction)
        self._ledger.state.put(
            Table.TRANSACTION, _BY_OWNER + client_key(owner) + command.transaction, b""
        )
        self._lease(command.transaction, transaction, LeaseKind.TRANSACTION)
        return Outcome(MQ_OK)

    def apply_tx_prepare(self, command: TxPrepare) -> Outcome:
        """Promise to commit or abort as the coordinator decides (3.1.4.3, DM-A23)."""
        transaction = self.find(command.transaction)
        if transaction is None or transaction.state is not TransactionState.ACTIVE:
            is_again = transaction is not None and transaction.state is TransactionState.PREPARED
            return Outcome(MQ_OK if is_again else ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        if transaction.single_phase:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        self._drop_lease(command.transaction, transaction, LeaseKind.TRANSACTION)
        self._mark_ends(command.transaction, self._operations(command.transaction, transaction))
        transaction.state = TransactionState.PREPARED
        self._put(command.transaction, transaction)
        return Outcome(MQ_OK)

    def apply_tx_commit(self, command: TxCommit) -> Outcome:
        """3.1.4.4; a repeated request for the same outcome succeeds again (guide 6.2)."""
        transaction = self.find(command.transaction)
        if transaction is not None and transaction.state is TransactionState.COMMITTED:
            return Outcome(MQ_OK)
        if transaction is None or transaction.state is TransactionState.ABORTED:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        if transaction.state is TransactionState.ACTIVE and not transaction.single_phase:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        operations = self._take_operations(command.transaction, transaction)
        if transaction.single_phase:
            self._mark_ends(command.transaction, operations)
        tag = 0
        for operation in operations:
            tag = self._commit(command.transaction, operation, tag)
        self._end(command.transaction, transaction, TransactionState.COMMITTED)
        return Outcome(MQ_OK)

    def apply_tx_abort(self, command: TxAbort) -> Outcome:
        """3.1.4.5."""
        transaction = self.find(command.transaction)
        if transaction is not None and transaction.state is TransactionState.ABORTED:
            return Outcome(MQ_OK)
        if transaction is None or transaction.state is TransactionState.COMMITTED:
            return Outcome(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE)
        self.abort(command.transaction, transaction)
        return Outcome(MQ_OK)

    # Lifetime ----------------------------------------------------------------------------

    def refusal(self, transaction_id: bytes, client_id: str) -> int:
        """Return MQ_OK if this client may add an operation now, else the error."""
        transaction = self.find(transaction_id)
        if transaction is None or transaction.owner != client_id:
            return ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        if transaction.state is not TransactionState.ACTIVE:
            return ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        if transaction.operation_count >= OPERATIONS_PER_TRANSACTION_MAX:
            return ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        return MQ_OK

    def room(self, transaction_id: bytes) -> int:
        """Return how many more operations a transaction may have."""
        transaction = self.find(transaction_id)
        used = transaction.operation_count if transaction is not None else 0
        return OPERATIONS_PER_TRANSACTION_MAX - used

    def add(self, transaction_id: bytes, operation: TransactionalOperation) -> int:
        """Append an operation and return its number; call `refusal` before."""
        transaction = self.find(transaction_id)
        assert transaction is not None, "an operation without its transaction"
        number = transaction.operation_count
        transaction.operation_count += 1
        self._ledger.put_record(
            Table.OPERATION, OPERATION_KEY.pack(transaction_id, number), operation
        )
        self._put(transaction_id, transaction)
        return number

    def abort(self, transaction_id: bytes, transaction: Transaction) -> None:
        """Undo everything: enqueues vanish without an event, reads and moves return positions."""
        for operation in self._take_operations(transaction_id, transaction):
            held = self._held(transaction_id, operation)
            if held is None:
                continue
            queue, position = held
            if operation.operation_type is OperationType.ENQUEUE:
                self._endings.roll_back(queue, operation.lookup_identifier, position)
            else:
                position.flags &= ~PositionFlag.ALLOW_PEEK_WHEN_LOCKED
                key = operation.lookup_identifier
                self._returns.give_back(queue, key, position, is_abort=True)
        self._end(transaction_id, transaction, TransactionState.ABORTED)

    def owned(self, client_id: str) -> list[bytes]:
        """Return the ids of a client's transactions without outcome."""
        prefix = _BY_OWNER + client_key(client_id)
        rows = self._ledger.state.scan(
            Table.TRANSACTION, prefix, prefix + b"\xff" * 17, TRANSACTIONS_PER_CLIENT_MAX
        )
        return [key[len(prefix) :] for key, _ in rows]

    def release_owner(self, client_id: str) -> None:
        """At the end of its owner's session, make unprepared transactions due, one per step."""
        for transaction_id in self.owned(client_id):
            transaction = self.find(transaction_id)
            assert transaction is not None, "an index row without its transaction"
            if transaction.state is TransactionState.ACTIVE:
                self._drop_lease(transaction_id, transaction, LeaseKind.TRANSACTION)
                transaction.deadline_ms = self._ledger.now_ms
                transaction.timeout_ms = 0
                self._put(transaction_id, transaction)
                self._lease(transaction_id, transaction, LeaseKind.TRANSACTION)

    def lease_due(self, transaction_id: bytes) -> None:
        """Abort a transaction that was inactive for too long.

        After a change of leader it gets its full time once more (DESIGN section 4, Time).
        """
        transaction = self.find(transaction_id)
        if transaction is None or transaction.state is not TransactionState.ACTIVE:
            return
        full_term_ms = self._ledger.counters.leader_since_ms + transaction.timeout_ms
        if transaction.deadline_ms < full_term_ms and self._ledger.now_ms < full_term_ms:
            transaction.deadline_ms = full_term_ms
            self._put(transaction_id, transaction)
            self._lease(transaction_id, transaction, LeaseKind.TRANSACTION)
        else:
            self.abort(transaction_id, transaction)

    def forget(self, transaction_id: bytes) -> None:
        """Forget an outcome."""
        transaction = self.find(transaction_id)
        if transaction is None or not transaction.outcome_ms:
            return
        self._drop_lease(transaction_id, transaction, LeaseKind.OUTCOME_FORGOTTEN)
        self._ledger.state.delete(Table.TRANSACTION, TRANSACTION_RECORD + transaction_id)

    def _end(
        self, transaction_id: bytes, transaction: Transaction, state: TransactionState
    ) -> None:
        self._drop_lease(transaction_id, transaction, LeaseKind.TRANSACTION)
        manager = self._ledger.manager
        retention_ms = manager.transaction_retention_ms if manager is not None else 0
        transaction.state = state
        transaction.outcome_ms = self._ledger.now_ms
        transaction.deadline_ms = self._ledger.now_ms + retention_ms
        self._put(transaction_id, transaction)
        self._lease(transaction_id, transaction, LeaseKind.OUTCOME_FORGOTTEN)
        owner = _BY_OWNER + client_key(transaction.owner) + transaction_id
        self._ledger.state.delete(Table.TRANSACTION, owner)

    def _lease(self, transaction_id: bytes, transaction: Transaction, kind: LeaseKind) -> None:
        self._ledger.put_lease(transaction.deadline_ms, kind, transaction_id)

    def _drop_lease(self, transaction_id: bytes, transaction: Transaction, kind: LeaseKind) -> None:
        key = LEASE_KEY.pack(transaction.deadline_ms, kind) + transaction_id
        self._ledger.state.delete(Table.LEASE, key)

    # Operations --------------------------------------------------------------------------

    def _operations(
        self, transaction_id: bytes, transaction: Transaction
    ) -> list[TransactionalOperation]:
        operations = []
        for number in range(transaction.operation_count):
            key = OPERATION_KEY.pack(transaction_id, number)
            operation = self._ledger.record(Table.OPERATION, key, TransactionalOperation)
            assert operation is not None, "a transaction with a missing operation"
            operations.append(operation)
        return operations

    def _take_operations(
        self, transaction_id: bytes, transaction: Transaction
    ) -> list[TransactionalOperation]:
        operations = self._operations(transaction_id, transaction)
        for number in range(transaction.operation_count):
            self._ledger.state.delete(Table.OPERATION, OPERATION_KEY.pack(transaction_id, number))
        return operations

    def _mark_ends(self, transaction_id: bytes, operations: list[TransactionalOperation]) -> None:
        """3.1.4.3: mark the first and the last message that the transaction sends (DM-A23)."""
        sent = [one for one in operations if one.operation_type is OperationType.ENQUEUE]
        if not sent:
            return
        ends = (
            (sent[0], PositionFlag.FIRST_IN_TRANSACTION),
            (sent[-1], PositionFlag.LAST_IN_TRANSACTION),
        )
        for operation, flag in ends:
            held = self._held(transaction_id, operation)
            if held is not None:
                held[1].flags |= flag
                self._ledger.put_position(operation.queue_id, operation.lookup_identifier, held[1])

    def _held(
        self, transaction_id: bytes, operation: TransactionalOperation
    ) -> tuple[QueueInHand, Position] | None:
        """Return what an operation holds; None if its queue was deleted meanwhile (DM-A29)."""
        queue = self._ledger.queue(operation.queue_id)
        if queue is None:
            return None
        key = operation.lookup_identifier
        position = self._ledger.position(operation.queue_id, key)
        if position is None or position.state != PositionState.LOCKED:
            return None
        row_key = POSITION_KEY.pack(operation.queue_id, key)
        lock = self._ledger.record(Table.LOCK, row_key, Lock)
        if lock is None or lock.owner != transaction_id:
            return None
        return queue, position

    def _commit(self, transaction_id: bytes, operation: TransactionalOperation, tag: int) -> int:
        """Perform an operation; return the tag of messages that leave, assigned with the first."""
        held = self._held(transaction_id, operation)
        if held is None:
            return tag
        queue, position = held
        key = operation.lookup_identifier
        if operation.operation_type is OperationType.ENQUEUE:
            if not tag and queue.record.kind is QueueKind.OUTGOING:
                tag = self._outgoing.free_tag()
            self._commit_enqueue(queue, key, position, tag)
        elif operation.operation_type is OperationType.DEQUEUE:
            self._endings.end(queue, key, position, operation.dequeue_reason)
        else:
            target = self._ledger.queue(operation.target_queue)
            if target is None or target.record.is_deleting:
                self._returns.give_back(queue, key, position)
            else:
                self._moving.carry(queue, key, position, target)
        return tag

    def _commit_enqueue(self, queue: QueueInHand, key: int, position: Position, tag: int) -> None:
        """Make it Available. A purge that overtook it hides by key: then it gets a new key."""
        ledger = self._ledger
        if is_purge_pending(queue, key):
            key = self._moving.rekey(queue, key, position)
            moved = ledger.position(queue.record.queue_id, key)
            assert moved is not None
            position = moved
        else:
            ledger.unlock(queue, key, position, EffectKind.ARRIVED)
        if queue.record.kind is QueueKind.OUTGOING:
            self._outgoing.entered(queue, key, position)
            if tag:
                self._outgoing.tag(queue.record.queue_id, key, tag)
            return
        self._endings.reached(queue, key, position)
        if position.deadline_ms and position.deadline_ms <= ledger.now_ms:
            self._endings.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)

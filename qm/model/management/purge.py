"""Purge and delete: hidden at once by a watermark, settled in bounded steps (DESIGN section 4)."""

from typing import Final

from qm.model.messages.endings import Endings
from qm.model.messages.returns import Returns
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import LEVELS, Ledger, QueueInHand
from qm.model.state.principals import Principals
from qm.model.state.registry import Registry
from qm.model.state.tables import Table
from qm.model.state.uses import may_delete, may_purge
from qm.model.values.commands import DeleteQueue, PurgeQueue, PurgeStep
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueKind
from qm.model.values.limits import VERSION_OF_RETURNS
from qm.model.values.records import Lock, PurgeRow, decode
from qm.model.values.rows import POSITION_KEY, QUEUE_KEY, Position, PositionState, unpack_position
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
STEP_POSITIONS_MAX: Final = 256
"""Each may create an acknowledgement and rows of its own: an entry stays far below 100 ms."""


class Purging:
    """Applies PurgeQueue, DeleteQueue and PurgeStep."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        endings: Endings,
        returns: Returns,
        principals: Principals,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._endings = endings
        self._returns = returns
        self._principals = principals

    def apply_purge_queue(self, command: PurgeQueue) -> Outcome:
        """Hide what is in the queue now; return the number of positions."""
        queue = self._ledger.queue(command.queue_id)
        if queue is None or queue.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if not may_purge(self._ledger, queue, command.sender_sids):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        return Outcome(MQ_OK, value=self._hide(queue, MessageClass.NACK_Q_PURGED))

    def _hide(self, queue: QueueInHand, reason: MessageClass) -> int:
        ledger = self._ledger
        hidden = 0
        queue.watermark = ledger.counters.sequential_id
        for level in range(LEVELS):
            hidden += queue.counts[level] - queue.locked[level]
            queue.counts[level] = queue.locked[level]
            queue.window(level).hide_upto(level << 56 | queue.watermark)
        queue.hidden += hidden
        ledger.touch(queue)
        is_deletion = reason is MessageClass.NACK_Q_DELETED
        may_wait = any(queue.locked) and ledger.behaviour >= VERSION_OF_RETURNS
        if queue.hidden or is_deletion or may_wait:
            row = PurgeRow(queue.watermark, reason, is_deletion, 0)
            ledger.put_record(Table.PURGE, QUEUE_KEY.pack(queue.record.queue_id), row)
        return hidden

    def apply_delete_queue(self, command: DeleteQueue) -> Outcome:
        """Release the names and hide everything; journal and subqueues go with the queue."""
        queue = self._ledger.queue(command.queue_id)
        if queue is None or queue.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if queue.record.kind not in (QueueKind.APPLICATION, QueueKind.SUBQUEUE):
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_OPERATION)
        if not may_delete(self._ledger, queue, command.sender_sids):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        self._delete(queue)
        return Outcome(MQ_OK)

    def _delete(self, queue: QueueInHand) -> None:
        record = queue.record
        self._registry.unbind_queue(record)
        record.is_deleting = True
        self._ledger.put_queue(record)
        self._hide(queue, MessageClass.NACK_Q_DELETED)
        for part in (record.journal_queue, *self._registry.subqueues(record.queue_id)):
            child = self._ledger.queue(part) if part else None
            if child is not None and not child.record.is_deleting:
                self._delete(child)

    def apply_purge_step(self, command: PurgeStep) -> Outcome:
        """Settle hidden positions; the value is how many, and whether any are left."""
        ledger = self._ledger
        queue_key = QUEUE_KEY.pack(command.queue_id)
        purge = ledger.record(Table.PURGE, queue_key, PurgeRow)
        queue = ledger.queue(command.queue_id)
        if purge is None or queue is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        room = min(command.count, STEP_POSITIONS_MAX)
        if room < 1:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        low = POSITION_KEY.pack(command.queue_id, purge.next_key)
        high = POSITION_KEY.pack(command.queue_id, LEVELS << 56)
        rows = ledger.state.scan(Table.POSITION, low, high, room)
        settled = 0
        for key_bytes, row in rows:
            key = POSITION_KEY.unpack(key_bytes)[1]
            purge.next_key = key + 1
            position = unpack_position(row)
            if (
                ledger.is_hidden(queue, key, position)
                or (purge.is_deletion and self._may_delete(queue, key, position))
                or self._is_left_waiting(queue, key, position)
            ):
                if queue.record.kind is QueueKind.OUTGOING:
                    # Deleted before it reached its queue ([MS-MQMQ] 2.2.18.1.6).
                    self._endings.fail(queue, key, position, MessageClass.NACK_DELETED)
                else:
                    self._endings.end(queue, key, position, purge.reason)
                settled += 1
            elif key & 0xFF_FFFF_FFFF_FFFF > purge.watermark:
                # After the watermark nothing of this level is hidden.
                purge.next_key = ((key >> 56) + 1) << 56
                break
        is_left = len(rows) == room or (bool(rows) and purge.next_key < LEVELS << 56)
        if is_left:
            ledger.put_record(Table.PURGE, queue_key, purge)
        else:
            self._finish(queue, purge)
        return Outcome(MQ_OK, value=(settled, is_left))

    def _may_delete(self, queue: QueueInHand, key: int, position: Position) -> bool:
        """Whether to end a position; an uncommitted enqueue is rolled back instead (DM-A29)."""
        if position.state == PositionState.AVAILABLE:
            return True
        lock_key = POSITION_KEY.pack(queue.record.queue_id, key)
        row = self._ledger.state.get(Table.LOCK, lock_key)
        assert row is not None, "a locked position without its lock"
        if decode(Lock, row).is_enqueue():
            self._endings.roll_back(queue, key, position)
            return False
        return True

    def _is_left_waiting(self, queue: QueueInHand, key: int, position: Position) -> bool:
        """Whether a returned message that a purge took waits for a reader who will not get it."""
        is_locked = position.state != PositionState.AVAILABLE
        return is_locked and is_purge_pending(queue, key) and self._returns.is_delayed(queue, key)

    def _finish(self, queue: QueueInHand, purge: PurgeRow) -> None:
        ledger = self._ledger
        ledger.state.delete(Table.PURGE, QUEUE_KEY.pack(queue.record.queue_id))
        if not purge.is_deletion:
            return
        ledger.remove_queue(queue)
        self._principals.remove_queue(queue.record.queue_id)
        ledger.counters.queue_count -= 1

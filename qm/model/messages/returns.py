"""Return of a read-locked position to its queue ([MS-MQDMPR] 3.1.4.5, 3.1.7.1.12).

Every return is counted with the message. A queue may have a message wait before the next reader
gets it, and may set it aside after so many returns: a message that no reader can take would
otherwise be read for ever. All kinds of reads end here, so each of them gets that.
"""

from collections.abc import Callable

from qm.model.messages.endings import Endings
from qm.model.messages.move import Moving
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.effects import EffectKind
from qm.model.values.elements import LockKind, PoisonAction, QueueKind
from qm.model.values.limits import RETURNS_MAX, VERSION_OF_RETURNS
from qm.model.values.records import Lock, Obligation, Queue
from qm.model.values.rows import POSITION_KEY, Position, PositionFlag
from qm.wire.message_class import MessageClass


class Returns:
    """Returns positions."""

    def __init__(
        self,
        ledger: Ledger,
        endings: Endings,
        moving: Moving,
        poison_queue: Callable[[Queue], int],
    ) -> None:
        """`poison_queue` returns a queue's subqueue for poison messages, or an MQ_ERROR."""
        self._ledger = ledger
        self._endings = endings
        self._moving = moving
        self._poison_queue = poison_queue

    def give_back(
        self, queue: QueueInHand, key: int, position: Position, *, is_abort: bool = False
    ) -> None:
        """Make it Available at its place, unless a purge, its deadline or its queue's limit of
        returns overtook the lock. `is_abort`: its reader's transaction was aborted.
        """
        if self._ends(queue, key, position):
            return
        if self._ledger.behaviour >= VERSION_OF_RETURNS:
            record = queue.record
            returns = self._count(queue, key, position, is_abort=is_abort)
            if 0 < record.max_deliveries <= returns and self._set_aside(queue, key, position):
                return
            if record.retry_delay_ms:
                self._delay(queue, key, position)
                return
        self._ledger.unlock(queue, key, position, EffectKind.UNLOCKED)

    def end_delay(self, queue: QueueInHand, key: int, position: Position) -> bool:
        """Make it Available if it waits for its next reader; return whether it did."""
        if not self.is_delayed(queue, key):
            return False
        if position.deadline_ms and position.deadline_ms <= self._ledger.now_ms:
            position.flags |= PositionFlag.EXPIRY_DUE
        if not self._ends(queue, key, position):
            self._ledger.unlock(queue, key, position, EffectKind.UNLOCKED)
        return True

    def is_delayed(self, queue: QueueInHand, key: int) -> bool:
        """Whether a locked position belongs to no reader."""
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        lock = self._ledger.record(Table.LOCK, row_key, Lock)
        return lock is not None and lock.kind is LockKind.DELAYED

    def _ends(self, queue: QueueInHand, key: int, position: Position) -> bool:
        if is_purge_pending(queue, key):
            # DM-A11: also when a transaction gives it back, whatever reason its operation has.
            is_deleting = queue.record.is_deleting
            reason = MessageClass.NACK_Q_DELETED if is_deleting else MessageClass.NACK_Q_PURGED
        elif position.flags & PositionFlag.EXPIRY_DUE:
            reason = MessageClass.NACK_RECEIVE_TIMEOUT
        else:
            return False
        self._endings.end(queue, key, position, reason)
        return True

    def _count(self, queue: QueueInHand, key: int, position: Position, *, is_abort: bool) -> int:
        """Count a return; return how many there were. The caller writes the position back."""
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        obligation = self._ledger.record(Table.OBLIGATION, row_key, Obligation) or Obligation()
        obligation.returns = min(obligation.returns + 1, RETURNS_MAX)
        obligation.aborts = min(obligation.aborts + is_abort, RETURNS_MAX)
        self._ledger.put_record(Table.OBLIGATION, row_key, obligation)
        position.flags |= PositionFlag.HAS_OBLIGATION
        return obligation.returns

    def _set_aside(self, queue: QueueInHand, key: int, position: Position) -> bool:
        """Do what the queue does with poison messages; return whether there was room for it."""
        reason = MessageClass.NACK_RECEIVE_REJECTED
        if queue.record.poison_action == PoisonAction.MOVE:
            target = self._ledger.queue(max(self._poison_queue(queue.record), 0))
            if queue.record.kind is not QueueKind.APPLICATION or target is None:
                return False
            self._moving.carry(queue, key, position, target, is_poison=True)
            return True
        if queue.record.poison_action == PoisonAction.DEAD_LETTER:
            row_key = POSITION_KEY.pack(queue.record.queue_id, key)
            obligation = self._ledger.record(Table.OBLIGATION, row_key, Obligation) or Obligation()
            application = obligation.application_deadletter_queue
            if not self._endings.dead_letter(position, key, reason, application):
                return False
        self._endings.end(queue, key, position, reason)
        return True

    def _delay(self, queue: QueueInHand, key: int, position: Position) -> None:
        queue_id = queue.record.queue_id
        lock = Lock(LockKind.DELAYED, b"")
        self._ledger.put_record(Table.LOCK, POSITION_KEY.pack(queue_id, key), lock)
        self._ledger.put_position(queue_id, key, position)
        ready_ms = self._ledger.now_ms + queue.record.retry_delay_ms
        self._ledger.put_deadline(ready_ms, queue_id, key)

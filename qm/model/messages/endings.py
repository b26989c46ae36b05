"""The end of a position in a local queue ([MS-MQDMPR] 3.1.7.2.1 Message Position Deleted).

All consequences of an end are made here, in the same apply: the target journal's copy, the
administration acknowledgement, the final ack, the dead letter.
"""

from typing import Final

from qm.model.messages.acknowledgements import Acknowledgements, Subject
from qm.model.messages.enqueue import Enqueue, EnqueueStatus, copy_of
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.registry import Registry
from qm.model.state.tables import Table
from qm.model.values.effects import EffectKind
from qm.model.values.elements import QueueKind
from qm.model.values.limits import (
    ALARM_JOURNAL_DROPPED,
    VERSION_OF_FINAL_CLASSES,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import Obligation
from qm.model.values.rows import POSITION_KEY, Position, PositionFlag
from qm.wire.message_class import MessageClass

EFFECT_OF_REASON: Final = {
    MessageClass.ACK_RECEIVE: EffectKind.RECEIVED,
    MessageClass.NACK_Q_DELETED: EffectKind.QUEUE_DELETED,
    MessageClass.NACK_Q_PURGED: EffectKind.PURGED,
    MessageClass.NACK_RECEIVE_TIMEOUT: EffectKind.EXPIRED,
    MessageClass.NACK_RECEIVE_REJECTED: EffectKind.REJECTED,
}
_KEPT_FLAGS: Final = (
    PositionFlag.RECOVERABLE
    | PositionFlag.TRANSACTIONAL
    | PositionFlag.WAS_ENCRYPTED
    | PositionFlag.AUTHENTICATED
    | PositionFlag.FROM_THIS_MANAGER
    | PositionFlag.FIRST_IN_TRANSACTION
    | PositionFlag.LAST_IN_TRANSACTION
)
"""Flags that a copy keeps: it owes nothing, never expires and is not journaled (guide 8.3)."""


class Endings:
    """Ends positions."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        enqueue: Enqueue,
        acknowledgements: Acknowledgements,
        outgoing: OutgoingQueues,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._enqueue = enqueue
        self._outgoing = outgoing
        self._acknowledgements = acknowledgements

    def end(self, queue: QueueInHand, key: int, position: Position, reason: int) -> None:
        """Delete a position for `reason`, a MessageClass, with all consequences."""
        flags = position.flags
        if reason == MessageClass.ACK_RECEIVE and queue.record.journaling:
            journal = self._registry.journal(queue)
            if journal is not None:
                self.copy(position, key, journal, EffectKind.JOURNALED)
        if reason == MessageClass.NACK_RECEIVE_TIMEOUT and flags & PositionFlag.NEGATIVE_JOURNALING:
            self._expired_dead_letter(queue, key, position, reason)
        if flags & PositionFlag.HAS_OBLIGATION:
            self._settle(queue, key, position, reason)
        if flags & PositionFlag.HAS_OUTGOING:
            self._outgoing.left(queue, key, position)
        if flags & PositionFlag.HAS_LOCK:
            row_key = POSITION_KEY.pack(queue.record.queue_id, key)
            self._ledger.state.delete(Table.LOCK, row_key)
        self._ledger.unlink(queue, key, position, EFFECT_OF_REASON[MessageClass(reason)], reason)

    def reached(self, queue: QueueInHand, key: int, position: Position) -> None:
        """Acknowledge that a message sent here has reached a local queue, if its sender asked for
        it, as for a queue elsewhere ([MS-MQMQ] 2.2.19.3 Flags.PA).
        """
        if (
            position.flags & PositionFlag.HAS_OBLIGATION
            and self._ledger.behaviour >= VERSION_OF_REFUSALS
        ):
            obligation = self._obligation(queue, key)
            assert obligation is not None, "a position without its obligation"
            subject = _subject(position, obligation)
            self._acknowledgements.acknowledge(subject, MessageClass.ACK_REACH_QUEUE)

    def expire(self, queue: QueueInHand, key: int, position: Position) -> None:
        """Handle a passed deadline: received too late, or on its way for too long.

        A message that awaits an order ack may have arrived: its deadline is checked before it is
        sent again [MS-MQQB 3.1.7.1.2].
        """
        if queue.record.kind is not QueueKind.OUTGOING:
            self.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)
            return
        row = self._outgoing.row(queue.record.queue_id, key)
        if row is None or not row.is_session_acked:
            self.fail(queue, key, position, MessageClass.NACK_REACH_QUEUE_TIMEOUT)

    def fail(self, queue: QueueInHand, key: int, position: Position, reason: int) -> None:
        """Remove an undeliverable message: dead letter if JN, nack if requested."""
        obligation = self._obligation(queue, key)
        if position.flags & PositionFlag.NEGATIVE_JOURNALING:
            application = obligation.application_deadletter_queue if obligation else ""
            self.dead_letter(position, key, reason, application)
        self._leave(queue, key, position, EffectKind.FAILED, reason, obligation)

    def deliver(self, queue: QueueInHand, key: int, position: Position, message_class: int) -> None:
        """Remove a message that another queue manager has for good: journal or dead letter.

        `message_class` says how it ended there: ACK_REACH_QUEUE, or a FinalAck's class.
        """
        obligation = self._obligation(queue, key)
        is_failure = self._is_failure(message_class)
        if is_failure and position.flags & PositionFlag.NEGATIVE_JOURNALING:
            application = obligation.application_deadletter_queue if obligation else ""
            self.dead_letter(position, key, message_class, application)
        elif not is_failure and position.flags & PositionFlag.POSITIVE_JOURNALING:
            manager = self._ledger.manager
            assert manager is not None, "a position without a queue manager"
            journal = self._ledger.queue(manager.system_journal_queue)
            assert journal is not None, "a queue manager without its journal"
            self.copy(position, key, journal, EffectKind.JOURNALED)
        self._leave(queue, key, position, EffectKind.DELIVERED, message_class, None)

    def _leave(
        self,
        queue: QueueInHand,
        key: int,
        position: Position,
        kind: EffectKind,
        reason: int,
        obligation: Obligation | None,
    ) -> None:
        state = self._ledger.state
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        if obligation is not None:
            self._acknowledgements.acknowledge(_subject(position, obligation), reason)
        if position.flags & PositionFlag.HAS_OBLIGATION:
            state.delete(Table.OBLIGATION, row_key)
        self._outgoing.left(queue, key, position)
        if position.flags & PositionFlag.HAS_LOCK:
            state.delete(Table.LOCK, row_key)
        self._ledger.unlink(queue, key, position, kind, reason)

    def _is_failure(self, message_class: int) -> bool:
        if self._ledger.behaviour < VERSION_OF_FINAL_CLASSES:
            return bool(message_class & 0x8000)
        return message_class not in (MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE)

    def roll_back(self, queue: QueueInHand, key: int, position: Position) -> None:
        """Unlink an enqueue that was never visible: no event, no acknowledgement (guide 3.1)."""
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        self._ledger.state.delete(Table.LOCK, row_key)
        if position.flags & PositionFlag.HAS_OBLIGATION:
            self._ledger.state.delete(Table.OBLIGATION, row_key)
        self._ledger.unlink(queue, key, position, EffectKind.ROLLED_BACK, 0)

    def copy(
        self,
        position: Position,
        key: int,
        target: QueueInHand,
        kind: EffectKind,
        message_class: int = 0,
    ) -> bool:
        """Put a copy into a journal or dead-letter queue; over quota it is dropped and counted."""
        status = self._enqueue.quota_status(target, position.stored_size_bytes)
        if status is not EnqueueStatus.OK:
            self._ledger.applied.alarms.append(ALARM_JOURNAL_DROPPED)
            self._ledger.effect(
                EffectKind.DISCARDED, target.record.queue_id, key, position, int(status)
            )
            return False
        message = copy_of(
            position,
            7 - (key >> 56),
            position.flags & _KEPT_FLAGS | PositionFlag.SYSTEM,
            message_class,
        )
        self._enqueue.insert(target, message, kind=kind)
        return True

    def dead_letter(
        self, position: Position, key: int, message_class: int, application_queue: str = ""
    ) -> bool:
        """Copy to the matching dead-letter queue: application, transactional or ordinary.

        `message_class` is the reason; it becomes the copy's Class.
        """
        manager = self._ledger.manager
        assert manager is not None, "a position without a queue manager"
        queue_id = manager.system_deadletter_queue
        if position.flags & PositionFlag.TRANSACTIONAL:
            queue_id = manager.system_transactional_deadletter_queue
            if application_queue:
                queue_id = self._application_deadletter(application_queue) or queue_id
        target = self._ledger.queue(queue_id)
        assert target is not None, "a queue manager without dead-letter queues"
        return self.copy(position, key, target, EffectKind.DEAD_LETTERED, message_class)

    def _application_deadletter(self, format_name: str) -> int:
        """Return ApplicationDeadletterQueue if it can take transactional messages, else 0."""
        found = self._registry.text(format_name)
        queue = self._ledger.queue(found) if found > 0 else None
        if queue is None or queue.record.is_deleting or not queue.record.transactional:
            return 0
        return found if queue.record.kind is QueueKind.APPLICATION else 0

    def _expired_dead_letter(
        self, queue: QueueInHand, key: int, position: Position, reason: int
    ) -> None:
        """[MC-MQAC] 3.1.6.1.1: the source keeps the dead letter of a transactional message."""
        is_ours = bool(position.flags & PositionFlag.FROM_THIS_MANAGER)
        if position.flags & PositionFlag.TRANSACTIONAL and not is_ours:
            return
        obligation = self._obligation(queue, key)
        application = obligation.application_deadletter_queue if obligation else ""
        self.dead_letter(position, key, reason, application)

    def _obligation(self, queue: QueueInHand, key: int) -> Obligation | None:
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        return self._ledger.record(Table.OBLIGATION, row_key, Obligation)

    def _settle(self, queue: QueueInHand, key: int, position: Position, reason: int) -> None:
        obligation = self._obligation(queue, key)
        assert obligation is not None, "a position without its obligation"
        row_key = POSITION_KEY.pack(queue.record.queue_id, key)
        self._ledger.state.delete(Table.OBLIGATION, row_key)
        subject = _subject(position, obligation)
        self._acknowledgements.acknowledge(subject, reason)
        if obligation.final_ack:
            self._acknowledgements.finally_acknowledge(subject, reason)


def _subject(position: Position, obligation: Obligation) -> Subject:
    """Return a position as the subject of an acknowledgement; sealed bodies are not returned."""
    is_sealed = bool(position.flags & PositionFlag.WAS_ENCRYPTED) or obligation.is_private
    body = (
        position.body_index,
        position.body_offset,
        position.body_length,
        position.body_ordinal,
        position.body_crc32,
    )
    return Subject(
        position.source_queue_manager,
        position.message_ordinal,
        bool(position.flags & PositionFlag.RECOVERABLE),
        obligation.destination,
        obligation,
        None if is_sealed else body,
    )

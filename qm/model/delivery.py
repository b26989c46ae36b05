"""Delivery of messages to other queue managers ([MS-MQQB] 3.1.5.5 to .7, guide 4.1 to 4.2a).

Numbers are committed before the first byte leaves and never change (QB-A1). A message that is not
transactional is done when its session acknowledges it. A transactional one needs the session's
acknowledgement and the order acknowledgement, in either order (QB-A10); if its sender asked for a
final ack or for journaling, it then waits for that one too, and no longer blocks dispatch.
"""

from array import array
from typing import Final

from qm.model.messages.endings import Endings
from qm.model.state.bindings import Bindings
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.tables import Table
from qm.model.values.columns import IntArray
from qm.model.values.commands import (
    AssignTransfer,
    FinalAcked,
    OrderAcked,
    OutboxDone,
    TransferAcked,
    TransferFailed,
    TransferOpened,
    TransferVerdict,
)
from qm.model.values.effects import Outcome
from qm.model.values.elements import LockKind, QueueKind
from qm.model.values.limits import (
    ADDRESS_MAX_CHARS,
    ALARM_PEER_ELSEWHERE,
    POSITIONS_PER_ENTRY_MAX,
    SETTLED_PER_COMMAND_MAX,
    VERSION_OF_FINAL_CLAIMS,
)
from qm.model.values.records import AwaitingFinalAck, FinalClaim, Lock, OutgoingPosition
from qm.model.values.rows import OUTBOX_KEY, QUEUE_KEY, Position, PositionFlag, PositionState
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
_U16_MAX: Final = 0xFFFF
_U32_MAX: Final = 0xFFFF_FFFF
_NUMBER_MAX: Final = 0xFFFF_FFFE
"""PreviousTxSequenceNumber does not go beyond this ([MS-MQMQ] 2.2.20.5)."""
_WANTS_FINAL_ACK: Final = (
    PositionFlag.NEGATIVE_JOURNALING
    | PositionFlag.POSITIVE_JOURNALING
    | PositionFlag.FINAL_ACK_WANTED
)


class Delivery:
    """Applies what the leader learns during delivery."""

    def __init__(
        self, ledger: Ledger, endings: Endings, outgoing: OutgoingQueues, bindings: Bindings
    ) -> None:
        self._ledger = ledger
        self._endings = endings
        self._outgoing = outgoing
        self._bindings = bindings

    def _queue(self, queue_id: int) -> QueueInHand | None:
        queue = self._ledger.queue(queue_id)
        return queue if queue is not None and queue.record.kind is QueueKind.OUTGOING else None

    # Numbers -----------------------------------------------------------------------------

    def apply_assign_transfer(self, command: AssignTransfer) -> Outcome:
        """Number transactional positions; the value is [(key, sequence, number, previous), ...].

        A position that has a number keeps it. A sequence without pending messages is replaced by a
        new one whose numbers start at 1 (guide 4.2).
        """
        queue = self._queue(command.queue_id)
        if queue is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if len(command.lookup_identifiers) > SETTLED_PER_COMMAND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        numbered = []
        for key in command.lookup_identifiers:
            position = self._ledger.position(command.queue_id, key)
            row = self._outgoing.row(command.queue_id, key)
            if position is None or row is None:
                continue
            if not position.flags & PositionFlag.TRANSACTIONAL:
                continue
            if not row.sequence_number:
                self._number(command.queue_id, key, position, row)
            numbered.append(
                (key, row.sequence_identifier, row.sequence_number, row.previous_number)
            )
        return Outcome(MQ_OK, value=numbered)

    def _number(self, queue_id: int, key: int, position: Position, row: OutgoingPosition) -> None:
        sequence = self._outgoing.sequence(queue_id)
        if not sequence.pending_count or sequence.next_number > _NUMBER_MAX:
            self._outgoing.begin_sequence(queue_id, sequence)
        row.sequence_identifier = sequence.sequence_identifier
        row.sequence_number = sequence.next_number
        row.previous_number = sequence.next_number - 1
        sequence.next_number += 1
        sequence.pending_count += 1
        self._outgoing.put_sequence(queue_id, sequence)
        self._outgoing.number(queue_id, key, row)
        if position.flags & _WANTS_FINAL_ACK:
            awaiting = AwaitingFinalAck(queue_id, key, self._ledger.now_ms)
            self._ledger.await_final_ack(position.message_ordinal, awaiting)

    # Acknowledgements --------------------------------------------------------------------

    def apply_transfer_opened(self, command: TransferOpened) -> Outcome:
        """Note the peer that a queue's messages go to, before the first of them leaves."""
        if self._queue(command.queue_id) is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        is_peer = len(command.queue_manager) == GUID_SIZE_BYTES
        if not is_peer or not 0 < len(command.address) <= ADDRESS_MAX_CHARS:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        self._outgoing.add_peer(command.queue_id, command.queue_manager, command.address)
        return Outcome(MQ_OK)

    def _is_foreign(self, queue_id: int, place: int, command: OrderAcked | FinalAcked) -> bool:
        """Whether an acknowledgement comes from where the queue's messages never went."""
        if self._bindings.rules is None:
            return False
        peers = self._outgoing.peers(queue_id)
        guid, address = _sender(command, place)
        if self._bindings.may_answer(peers, guid, address):
            return False
        self._ledger.suspect(ALARM_PEER_ELSEWHERE, guid, address, peers[0][1])
        return True

    def apply_transfer_acked(self, command: TransferAcked) -> Outcome:
        """Record that sessions acknowledged these positions."""
        queue = self._queue(command.queue_id)
        if queue is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if len(command.lookup_identifiers) > SETTLED_PER_COMMAND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        for key, position in self._linked(queue, command.lookup_identifiers):
            if not position.flags & PositionFlag.TRANSACTIONAL:
                self._endings.deliver(queue, key, position, MessageClass.ACK_REACH_QUEUE)
                continue
            row = self._outgoing.row(command.queue_id, key)
            if row is None or row.is_settled:
                continue
            row.is_session_acked = True
            self._outgoing.put_row(command.queue_id, key, row)
            if row.is_order_acked:
                self.settle(queue, key, position, row)
        return Outcome(MQ_OK)

    def apply_order_acked(self, command: OrderAcked) -> Outcome:
        """Settle what live sequences have delivered up to the acknowledged numbers.

        The value says whether the same command must be applied again to settle more. Verdicts: one
        per sequence, except when more is left.
        """
        identifiers, numbers = command.sequence_identifiers, command.sequence_numbers
        if len(identifiers) != len(numbers) or len(identifiers) > SETTLED_PER_COMMAND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        room = SETTLED_PER_COMMAND_MAX
        verdicts = array("H")
        for place, (identifier, number) in enumerate(zip(identifiers, numbers, strict=True)):
            queue_id = self._outgoing.queue_of_sequence(identifier)
            if queue_id and self._is_foreign(queue_id, place, command):
                verdicts.append(TransferVerdict.ELSEWHERE)
                continue
            verdicts.append(self._order_verdict(identifier, number))
            room -= self._order_acked(identifier, number, room)
            if room < 0:
                return Outcome(MQ_OK, value=True)
        self._count_order_acks(identifiers, verdicts)
        return Outcome(MQ_OK, verdicts, value=False)

    def _count_order_acks(self, identifiers: IntArray, verdicts: IntArray) -> None:
        """Each counts once, when all that it settles is settled [MS-MQQB 3.1.5.6]."""
        counts = self._ledger.applied.order_acks
        for identifier, verdict in zip(identifiers, verdicts, strict=True):
            queue_id = self._outgoing.queue_of_sequence(identifier)
            if queue_id and verdict == TransferVerdict.ACCEPTED:
                counts[queue_id] = counts.get(queue_id, 0) + 1

    def _order_verdict(self, identifier: int, number: int) -> TransferVerdict:
        """Tell a repeated acknowledgement from one for something that was never sent (QB-A8)."""
        queue_id = self._outgoing.queue_of_sequence(identifier)
        if queue_id:
            is_sent = number < self._outgoing.sequence(queue_id).next_number
            return TransferVerdict.ACCEPTED if is_sent else TransferVerdict.NEVER_SENT
        is_old = 0 < identifier <= self._outgoing.newest_sequence
        return TransferVerdict.IGNORED if is_old else TransferVerdict.NEVER_SENT

    def _order_acked(self, identifier: int, number: int, room: int) -> int:
        """Settle at most `room` positions of a sequence.

        Return how many were settled, plus one if some are left.
        """
        queue_id = self._outgoing.queue_of_sequence(identifier)
        queue = self._queue(queue_id) if queue_id else None
        if queue is None:
            return 0  # an old sequence: none of its positions are pending
        sequence = self._outgoing.sequence(queue_id)
        upto = min(number, sequence.next_number - 1)
        sequence.last_acked_number = max(sequence.last_acked_number, upto)
        self._outgoing.put_sequence(queue_id, sequence)
        self._outgoing.changed(queue_id)
        settled = 0
        for key in self._outgoing.numbered(queue_id, identifier, upto, POSITIONS_PER_ENTRY_MAX):
            row = self._outgoing.row(queue_id, key)
            position = self._ledger.position(queue_id, key)
            if row is None or position is None or row.is_settled:
                continue
            if row.is_order_acked:
                continue
            settled += 1
            if settled > room:
                break
            row.is_order_acked = True
            self._outgoing.put_row(queue_id, key, row)
            if row.is_session_acked:
                self.settle(queue, key, position, row)
        return settled

    def settle(
        self, queue: QueueInHand, key: int, position: Position, row: OutgoingPosition
    ) -> None:
        """Remove a message that has arrived, or let it wait for its final ack."""
        ledger = self._ledger
        queue_id = queue.record.queue_id
        awaiting = QUEUE_KEY.pack(position.message_ordinal)
        if ledger.state.get(Table.AWAITING_FINAL_ACK, awaiting) is None:
            self._endings.deliver(queue, key, position, MessageClass.ACK_REACH_QUEUE)
            return
        sequence = self._outgoing.sequence(queue_id)
        sequence.pending_count -= 1
        self._outgoing.put_sequence(queue_id, sequence)
        self._outgoing.changed(queue_id)
        row.is_settled = True
        self._outgoing.put_row(queue_id, key, row)
        if position.state == PositionState.AVAILABLE:
            ledger.unhide(queue, key, position)  # it arrived: a purge no longer ends it
            ledger.lock(queue, key, position, Lock(LockKind.FINAL_ACK, b""))

    def apply_final_acked(self, command: FinalAcked) -> Outcome:
        """Apply the final acks of messages; each message is always removed (QB-A19).

        A final ack may come before the order ack, since it proves the arrival. Verdicts: one per
        message.
        """
        ordinals, classes = command.message_ordinals, command.message_classes
        if len(ordinals) != len(classes) or len(ordinals) > SETTLED_PER_COMMAND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        verdicts = array("H")
        for place, (ordinal, message_class) in enumerate(zip(ordinals, classes, strict=True)):
            is_possible = 0 < ordinal <= _U32_MAX and message_class <= _U16_MAX
            verdicts.append(
                self._final_acked(command, place, ordinal, message_class)
                if is_possible
                else TransferVerdict.NEVER_SENT
            )
        return Outcome(MQ_OK, verdicts)

    def _final_acked(
        self, command: FinalAcked, place: int, ordinal: int, message_class: int
    ) -> TransferVerdict:
        key = QUEUE_KEY.pack(ordinal)
        awaiting = self._ledger.record(Table.AWAITING_FINAL_ACK, key, AwaitingFinalAck)
        if awaiting is None:
            # Ordinals wrap: those less than half of the range ahead have not been assigned yet.
            ahead = (ordinal - self._ledger.counters.message_ordinal) & _U32_MAX
            is_new = 0 < ahead <= _U32_MAX // 2
            return TransferVerdict.NEVER_SENT if is_new else TransferVerdict.IGNORED
        if self._is_foreign(awaiting.queue_id, place, command):
            guid, address = _sender(command, place)
            claim = FinalClaim(awaiting.queue_id, message_class, guid, address)
            return self._claimed(ordinal, claim)
        queue = self._queue(awaiting.queue_id)
        position = self._ledger.position(awaiting.queue_id, awaiting.lookup_identifier)
        if queue is not None and position is not None:
            self._endings.deliver(queue, awaiting.lookup_identifier, position, message_class)
        self._ledger.state.delete(Table.AWAITING_FINAL_ACK, key)
        self._outgoing.forget_claim(ordinal)
        return TransferVerdict.ACCEPTED

    def _claimed(self, ordinal: int, claim: FinalClaim) -> TransferVerdict:
        """Keep what the queue manager that a message went to says from elsewhere: it says it once.
        The leader repeats it when that one may speak from there. Whoever else it is keeps it.
        """
        is_kept = (
            self._ledger.behaviour >= VERSION_OF_FINAL_CLAIMS
            and any(guid == claim.queue_manager for guid, _ in self._outgoing.peers(claim.queue_id))
            and self._outgoing.keep_claim(ordinal, claim)
        )
        return TransferVerdict.IGNORED if is_kept else TransferVerdict.ELSEWHERE

    # Failures, outbox --------------------------------------------------------------------

    def apply_transfer_failed(self, command: TransferFailed) -> Outcome:
        """Give up the delivery of these positions: nack, dead letter, gap."""
        queue = self._queue(command.queue_id)
        if queue is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        is_failure = command.message_class in tuple(MessageClass) and (
            command.message_class & 0x8000
        )
        if len(command.lookup_identifiers) > SETTLED_PER_COMMAND_MAX or not is_failure:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        for key, position in self._linked(queue, command.lookup_identifiers):
            row = self._outgoing.row(command.queue_id, key)
            if row is not None and row.is_settled:
                continue  # it has arrived meanwhile, and its destination decides how it ends
            self._endings.fail(queue, key, position, command.message_class)
        return Outcome(MQ_OK)

    def apply_outbox_done(self, command: OutboxDone) -> Outcome:
        """Remove rows that have reached their peer."""
        if len(command.outbox_ids) > POSITIONS_PER_ENTRY_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        for outbox_id in command.outbox_ids:
            self._ledger.state.delete(Table.OUTBOX, OUTBOX_KEY.pack(outbox_id))
        return Outcome(MQ_OK)

    def _linked(
        self, queue: QueueInHand, lookup_identifiers: IntArray
    ) -> list[tuple[int, Position]]:
        """Return the positions that still exist, each once."""
        found = []
        for key in dict.fromkeys(lookup_identifiers):
            position = self._ledger.position(queue.record.queue_id, key)
            if position is not None:
                found.append((key, position))
        return found


def _sender(command: OrderAcked | FinalAcked, place: int) -> tuple[bytes, str]:
    """Return GUID and address of the session that brought an acknowledgement."""
    guid = command.queue_managers[place * GUID_SIZE_BYTES : (place + 1) * GUID_SIZE_BYTES]
    return guid, command.addresses[place] if place < len(command.addresses) else ""

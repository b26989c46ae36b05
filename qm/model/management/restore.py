"""A state that is older than what others have seen (mqqb-guide 6.3, step 9).

It was restored from a backup, or taken from one node after a loss of quorum. What was assigned
meanwhile must not be assigned again: identifiers jump further than they can have come, and
sequences of transactional messages begin anew on both sides. `Duplicates.admits` does the other
half: a sender to whom more was acknowledged than this state knows continues where it is.
"""

from typing import Final

from qm.model.arrivals.duplicates import META_RESTORED
from qm.model.delivery import Delivery
from qm.model.management.members import META_MEMBER, META_MEMBER_END
from qm.model.state.events import Events
from qm.model.state.ledger import Ledger
from qm.model.state.outgoing_queues import NUMBERED_KEY, NUMBERED_PREFIX, OutgoingQueues
from qm.model.state.registry import Registry
from qm.model.state.tables import Table
from qm.model.values.commands import RenumberStep, StateRestored
from qm.model.values.effects import Outcome
from qm.model.values.elements import EventKind, OutgoingAdminState, QueueKind
from qm.model.values.limits import MEMBERS_MAX, SETTLED_PER_COMMAND_MAX, VERSION_OF_REFUSALS
from qm.model.values.records import Queue, QueueManager, Restored, decode
from qm.model.values.rows import QUEUE_KEY, SEQUENTIAL_ID_MAX
from qm.names.errors import QueueNameError
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
ORDINAL_JUMP: Final = 1 << 31
"""Half of all MessageIDs: as far from those used before as from those used first."""
SEQUENTIAL_ID_JUMP: Final = 1 << 40
PRIVATE_NUMBER_JUMP: Final = 1 << 16
"""For queues created meanwhile: a message to one must not enter another."""
HANDLE_JUMP: Final = 1 << 40
_U32_MAX: Final = 0xFFFF_FFFF
_PAGE_ROWS: Final = 1_024


class Restoring:
    """Applies StateRestored and RenumberStep."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        outgoing: OutgoingQueues,
        delivery: Delivery,
        events: Events,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._outgoing = outgoing
        self._delivery = delivery
        self._events = events

    def apply_state_restored(self, command: StateRestored) -> Outcome:
        """Skip what may have been assigned since; the value: TxSequenceID.TimeStamp from now on.

        Leases and deadlines stay unchanged. Members are forgotten: the new ones announce
        themselves. To hold outgoing queues, each of them is written once.
        """
        manager, counters = self._ledger.manager, self._ledger.counters
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        time_stamp = max(command.tx_time_stamp, counters.tx_time_stamp + 1)
        private_number = counters.private_queue_number + PRIVATE_NUMBER_JUMP
        if self._ledger.behaviour >= VERSION_OF_REFUSALS:
            # Numbers continue after the wrap; those in use there are skipped.
            private_number = (private_number - 1) % _U32_MAX + 1
        sequential_id = counters.sequential_id + SEQUENTIAL_ID_JUMP
        if max(time_stamp, private_number) > _U32_MAX or sequential_id > SEQUENTIAL_ID_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        if not self._add_aliases(manager, command.aliases):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        counters.tx_time_stamp = time_stamp
        counters.private_queue_number = private_number
        counters.sequential_id = sequential_id
        self._ledger.jump_message_ordinal(ORDINAL_JUMP)
        counters.handle += HANDLE_JUMP
        self._note()
        text = "the state is an older one, of a backup or of one node: numbers jump"
        self._events.add(EventKind.MEMBER, "state_restored", text)
        self._forget_members()
        if command.is_outgoing_held:
            self._hold_outgoing()
        return Outcome(MQ_OK, value=time_stamp)

    def _add_aliases(self, manager: QueueManager, aliases: tuple[str, ...]) -> bool:
        before = manager.aliases
        manager.aliases = tuple(dict.fromkeys((*before, *aliases)))
        try:
            self._registry.aliases(manager)
        except QueueNameError:
            manager.aliases = before
            self._registry.forget()
            return False
        self._ledger.put_manager(manager)
        self._registry.forget()
        return True

    def _note(self) -> None:
        """Record the time, after which arrivals show how far each sender has come."""
        ledger = self._ledger
        # Everything seen before is older, also within the same millisecond.
        ledger.counters.clock_ms += 1
        known = ledger.record(Table.META, META_RESTORED, Restored)
        count = known.count if known is not None else 0
        ledger.put_record(Table.META, META_RESTORED, Restored(ledger.now_ms, count + 1))

    def _forget_members(self) -> None:
        state = self._ledger.state
        for key, _ in state.scan(Table.META, META_MEMBER, META_MEMBER_END, MEMBERS_MAX):
            state.delete(Table.META, key)

    def _hold_outgoing(self) -> None:
        low = b""
        while True:
            rows = self._ledger.state.scan(Table.QUEUE, low, b"\xff" * 5, _PAGE_ROWS)
            for key, row in rows:
                if decode(Queue, row).kind is QueueKind.OUTGOING:
                    queue = self._ledger.queue(QUEUE_KEY.unpack(key)[0])
                    assert queue is not None, "a queue without its row"
                    queue.record.admin_state = OutgoingAdminState.ON_HOLD
                    self._ledger.put_queue(queue.record)
                    self._outgoing.changed(queue.record.queue_id)
            if len(rows) < _PAGE_ROWS:
                return
            low = rows[-1][0] + b"\0"

    # Numbers -----------------------------------------------------------------------------

    def apply_renumber_step(self, command: RenumberStep) -> Outcome:
        """Remove old numbers; the value: from how many positions.

        A receiver may know the old sequence further than this state does, and would drop new
        messages under its numbers. In a new sequence it accepts everything, at worst once more.
        """
        if not 1 <= command.count <= SETTLED_PER_COMMAND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        changed, low = 0, NUMBERED_PREFIX
        while changed < command.count:
            rows = self._ledger.state.scan(
                Table.OUTGOING, low, NUMBERED_PREFIX + b"\xff" * NUMBERED_KEY.size, _PAGE_ROWS
            )
            for row_key, row in rows:
                if changed == command.count:
                    break
                changed += self._renumber(row_key, row)
            if len(rows) < _PAGE_ROWS:
                break
            low = rows[-1][0] + b"\0"
        return Outcome(MQ_OK, value=changed)

    def _renumber(self, row_key: bytes, row: bytes) -> bool:
        """Return whether the position had an old number, which was removed."""
        _, queue_id, sequence_identifier, _ = NUMBERED_KEY.unpack(row_key)
        if sequence_identifier >> 32 >= self._ledger.counters.tx_time_stamp:
            return False
        key = int.from_bytes(row, "big")
        numbers = self._outgoing.row(queue_id, key)
        position = self._ledger.position(queue_id, key)
        queue = self._ledger.queue(queue_id)
        assert numbers is not None, "a number without its position"
        assert position is not None, "numbers without their position"
        assert queue is not None, "a position without its queue"
        if numbers.is_settled:
            return False
        if numbers.is_order_acked:
            numbers.is_session_acked = True
            self._delivery.settle(queue, key, position, numbers)
            return True
        self._outgoing.unnumber(queue_id, key, position, numbers)
        return True

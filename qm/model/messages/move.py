"""Moving messages between queues ([MS-MQDMPR] 3.1.7.1.16).

A position keeps its LookupIdentifier, and so its relative place, when it moves to an application
queue or subqueue; in a system queue or journal it gets a new one (guide 3.2).
"""

from typing import Final

from qm.model.messages.enqueue import Enqueue, EnqueueStatus
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.effects import EffectKind
from qm.model.values.limits import RETURNS_MAX, VERSION_OF_RETURNS
from qm.model.values.records import Obligation
from qm.model.values.rows import POSITION_KEY, Position, PositionFlag, PositionState

_SYSTEM_FLAGS: Final = PositionFlag.HAS_OBLIGATION | PositionFlag.EXPIRY_DUE


class Moving:
    """Moves positions."""

    def __init__(self, ledger: Ledger, enqueue: Enqueue) -> None:
        self._ledger = ledger
        self._enqueue = enqueue

    def has_room(self, source: QueueInHand, target: QueueInHand, position: Position) -> bool:
        """Whether the target's quota admits the message; moves within one queue are not counted."""
        if self._root(source) == self._root(target):
            return True
        size = position.stored_size_bytes
        queue_room, _ = self._enqueue.room_bytes(target)
        return size <= queue_room and self._enqueue.quota_status(target, 0) is EnqueueStatus.OK

    @staticmethod
    def _root(queue: QueueInHand) -> int:
        return queue.record.parent_queue or queue.record.queue_id

    def carry(
        self,
        source: QueueInHand,
        key: int,
        position: Position,
        target: QueueInHand,
        *,
        is_poison: bool = False,
    ) -> int:
        """Move a position, locked by its mover or Available; return its key in the target.

        `is_poison`: it keeps the count of its returns; a mover gives it a new start.
        """
        is_system = target.record.kind.is_system_store
        # A purge of the target hides by key; it does not apply to messages that come later.
        is_new = (
            is_system
            or is_purge_pending(target, key)
            or self._ledger.position(target.record.queue_id, key) is not None
        )
        new_key = self._next_key(key) if is_new else key
        self._place(source, key, position, target, new_key, EffectKind.MOVED_IN, is_poison)
        return new_key

    def rekey(self, queue: QueueInHand, key: int, position: Position) -> int:
        """Make a pending enqueue Available after the watermark that overtook it."""
        new_key = self._next_key(key)
        self._place(queue, key, position, queue, new_key, EffectKind.ARRIVED)
        return new_key

    def _next_key(self, key: int) -> int:
        return (key >> 56) << 56 | self._ledger.next_sequential_id()

    def _place(
        self,
        source: QueueInHand,
        key: int,
        position: Position,
        target: QueueInHand,
        new_key: int,
        kind: EffectKind,
        is_poison: bool = False,
    ) -> None:
        ledger = self._ledger
        is_system = target.record.kind.is_system_store
        source_id, target_id = source.record.queue_id, target.record.queue_id
        old_row = POSITION_KEY.pack(source_id, key)
        flags = position.flags & ~PositionFlag.HAS_LOCK
        obligation = None
        if position.flags & PositionFlag.HAS_OBLIGATION:
            obligation = ledger.record(Table.OBLIGATION, old_row, Obligation)
            ledger.state.delete(Table.OBLIGATION, old_row)
        if source is not target and ledger.behaviour >= VERSION_OF_RETURNS:
            obligation = obligation or Obligation()
            obligation.moves = min(obligation.moves + 1, RETURNS_MAX)
            obligation.returns *= is_poison
            flags |= PositionFlag.HAS_OBLIGATION
        if position.flags & PositionFlag.HAS_LOCK:
            ledger.state.delete(Table.LOCK, old_row)
        moved = Position(
            PositionState.AVAILABLE,
            0 if is_system or source.record.kind.is_system_store else position.class_code,
            (flags & ~_SYSTEM_FLAGS | PositionFlag.SYSTEM) if is_system else flags,
            position.body_index,
            position.body_offset,
            position.body_length,
            position.body_ordinal,
            position.body_crc32,
            position.stored_size_bytes,
            0 if is_system else position.deadline_ms,
            position.source_queue_manager,
            position.message_ordinal,
            ledger.now_ms // 1000 if is_system else position.arrival_time,
        )
        ledger.link(target, new_key, moved, kind)
        if obligation is not None and not is_system:
            ledger.put_record(Table.OBLIGATION, POSITION_KEY.pack(target_id, new_key), obligation)
        if position.flags & PositionFlag.EXPIRY_DUE and not is_system:
            # Its deadline passed while it was locked: due again, at its new place.
            ledger.put_deadline(position.deadline_ms, target_id, new_key)
        ledger.unlink(source, key, position, EffectKind.MOVED_OUT, 0)

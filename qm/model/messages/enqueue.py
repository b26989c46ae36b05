"""The only way into a queue ([MS-MQDMPR] 3.1.7.1.9 Enqueue Message).

All that enters a queue (arrival, send, copy, acknowledgement, move) passes through `Enqueue`.
"""

from enum import IntEnum

import msgspec

from qm.model.state.ledger import MANAGER_STORES, Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.effects import EffectKind
from qm.model.values.elements import QueueKind
from qm.model.values.records import Lock, Obligation, quota_bytes
from qm.model.values.rows import (
    POSITION_KEY,
    Position,
    PositionFlag,
    PositionState,
    class_code,
    lookup_identifier,
)
from qm.wire.limits import TIME_INFINITE_S


class EnqueueStatus(IntEnum):
    """rStatus of Enqueue Message; checked in the order 2, 1, 3 (guide 8.2)."""

    OK = 0
    QUEUE_QUOTA = 1
    MANAGER_QUOTA = 2
    EXPIRED = 3


class NewMessage(msgspec.Struct, gc=False):
    """A message about to become a position."""

    body_index: int
    body_offset: int
    body_length: int
    body_ordinal: int
    body_crc32: int
    priority: int
    """Effective priority: 0 for transactional messages."""
    flags: int
    """PositionFlag bits; HAS_OBLIGATION is added here."""
    source_queue_manager: bytes
    message_ordinal: int
    sent_time: int
    """Seconds by the sender's clock."""
    time_to_be_received: int = TIME_INFINITE_S
    obligation: Obligation | None = None
    message_class: int = 0
    """For a dead letter, the class that gives the reason; else 0."""
    seal_bytes: int = 0
    """How much of `body_length` is the seal of the body, which quotas do not count."""


def copy_of(position: Position, priority: int, flags: int, message_class: int = 0) -> NewMessage:
    """Return a message that shares a position's body, never expires and owes nothing."""
    return NewMessage(
        position.body_index,
        position.body_offset,
        position.body_length,
        position.body_ordinal,
        position.body_crc32,
        priority,
        flags,
        position.source_queue_manager,
        position.message_ordinal,
        0,
        message_class=message_class,
        seal_bytes=position.body_length - position.stored_size_bytes,
    )


class Enqueue:
    """Checks quotas and inserts messages."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def quota_status(self, queue: QueueInHand, size_bytes: int) -> EnqueueStatus:
        """Return whether a message of this size may enter; filling a quota exactly is allowed."""
        queue_room, manager_room = self.room_bytes(queue)
        if size_bytes > manager_room:
            return EnqueueStatus.MANAGER_QUOTA
        return EnqueueStatus.QUEUE_QUOTA if size_bytes > queue_room else EnqueueStatus.OK

    def room_bytes(self, queue: QueueInHand) -> tuple[int, int]:
        """Return the bytes that the quotas of the queue and of the queue manager still admit."""
        ledger = self._ledger
        manager = ledger.manager
        assert manager is not None, "a queue without its queue manager"
        record = queue.record
        if record.kind in MANAGER_STORES:
            queue_room = quota_bytes(manager.journal_quota) - ledger.counters.journal_bytes
        else:
            if record.kind is QueueKind.SUBQUEUE:
                parent = ledger.queue(record.parent_queue)
                assert parent is not None, "a subqueue without its queue"
                record = parent.record
            queue_room = quota_bytes(record.quota) - ledger.charged_bytes(queue)
        if queue.is_full:
            queue_room = -1
        manager_room = quota_bytes(manager.queue_manager_quota) - ledger.counters.total_bytes
        return queue_room, manager_room

    def insert(
        self,
        queue: QueueInHand,
        message: NewMessage,
        *,
        kind: EffectKind = EffectKind.ARRIVED,
        lock: Lock | None = None,
    ) -> tuple[int, Position]:
        """Link a new position and return its key. The caller has checked the quotas.

        SequentialID rises by one and never goes back, even if the transaction aborts (guide 3.2).
        """
        key = lookup_identifier(message.priority, self._ledger.next_sequential_id())
        flags = message.flags
        queue_id = queue.record.queue_id
        row_key = POSITION_KEY.pack(queue_id, key)
        if message.obligation is not None:
            flags |= PositionFlag.HAS_OBLIGATION
            self._ledger.put_record(Table.OBLIGATION, row_key, message.obligation)
        state = PositionState.AVAILABLE
        if lock is not None:
            state = PositionState.LOCKED
            flags |= PositionFlag.HAS_LOCK
            self._ledger.put_record(Table.LOCK, row_key, lock)
            kind = EffectKind.PENDING
        position = Position(
            state,
            class_code(message.message_class),
            flags,
            message.body_index,
            message.body_offset,
            message.body_length,
            message.body_ordinal,
            message.body_crc32,
            message.body_length - message.seal_bytes,
            deadline_ms(message.sent_time, message.time_to_be_received),
            message.source_queue_manager,
            message.message_ordinal,
            self._ledger.now_ms // 1000,
        )
        self._ledger.link(queue, key, position, kind)
        return key, position


def deadline_ms(sent_time: int, time_to_be_received: int) -> int:
    """Return when TimeToBeReceived ends, 0 = never: SentTime + TimeToBeReceived (DM-A14)."""
    if time_to_be_received == TIME_INFINITE_S:
        return 0
    return (sent_time + time_to_be_received) * 1000 or 1

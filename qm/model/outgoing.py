"""Outgoing queues: one per distinct destination, made when something must leave for it."""

from hashlib import sha256
from typing import Final

from qm.model.elements import OutgoingAdminState, QueueKind, QueueType
from qm.model.ledger import Ledger, QueueInHand
from qm.model.limits import QUEUES_MAX
from qm.model.records import OutgoingPosition, Queue
from qm.model.registry import Registry, Route, outgoing_key
from qm.model.rows import POSITION_KEY, Position, PositionFlag
from qm.model.state import Table
from qm.names.capability import check_sendable
from qm.names.direct import DirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, PrivateName, format_name_text

_IDENTIFIER_BYTES: Final = 16


class OutgoingQueues:
    """Finds and makes outgoing queues."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger = ledger
        self._registry = registry

    def ensure(self, name: FormatName) -> int:
        """Return the queue_id for a destination elsewhere, or Route.NOT_FOUND if none can be.

        The identifier is derived, so that every replica makes the same one.
        """
        found = self._registry.outgoing(name)
        if found > 0:
            return found
        # Lists, connectors and multicast are refused until they are delivered; a public queue
        # that the directory does not know is nobody's.
        if not isinstance(name, DirectName | PrivateName):
            return Route.NOT_FOUND
        try:
            check_sendable(name)
        except QueueNameError:
            return Route.NOT_FOUND
        manager = self._ledger.manager
        if manager is None or self._ledger.counters.queue_count >= QUEUES_MAX:
            return Route.NOT_FOUND
        counters = self._ledger.counters
        counters.queue_id += 1
        counters.queue_count += 1
        key = outgoing_key(name)
        seed = manager.identifier + counters.queue_id.to_bytes(4, "big") + key
        record = Queue(
            queue_id=counters.queue_id,
            identifier=sha256(seed).digest()[:_IDENTIFIER_BYTES],
            kind=QueueKind.OUTGOING,
            queue_type=QueueType.SYSTEM,
            pathname=format_name_text(name),
            create_time=self._ledger.now_ms // 1000,
            modify_time=self._ledger.now_ms // 1000,
            admin_state=(
                OutgoingAdminState.LOCKED
                if manager.hardened_security
                else OutgoingAdminState.NORMAL
            ),
            outgoing_key=key,
        )
        self._ledger.put_queue(record)
        self._registry.bind_queue(record)
        return record.queue_id

    def entered(self, queue: QueueInHand, key: int, position: Position) -> None:
        """A position entered an outgoing queue and is Available: the leader has work."""
        queue_id = queue.record.queue_id
        position.flags |= PositionFlag.HAS_OUTGOING
        self._ledger.put_position(queue_id, key, position)
        self._ledger.put_record(
            Table.OUTGOING, POSITION_KEY.pack(queue_id, key), OutgoingPosition()
        )
        self._ledger.applied.outgoing_queue_ids.add(queue_id)

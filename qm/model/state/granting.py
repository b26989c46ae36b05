"""Access checks on the queue manager and its queues, by the descriptors in the state."""

from collections.abc import Collection
from typing import Final

from qm.model.state.ledger import QueueInHand
from qm.model.values.records import QueueManager
from qm.security.access import effective_sids, is_granted
from qm.security.descriptor import parse_descriptor
from qm.wire.access_mask import MachineAccess, QueueAccess

GRANTS_PER_QUEUE_MAX: Final = 4_096
"""Decisions that are cached with a queue."""


def is_granted_on_manager(
    manager: QueueManager, sender_sids: Collection[bytes], access: MachineAccess
) -> bool:
    """Whether a principal may do this to the queue manager."""
    descriptor = parse_descriptor(manager.security) if manager.security else None
    return is_granted(descriptor, effective_sids(tuple(sender_sids)), int(access))


def is_granted_on_queue(
    queue: QueueInHand, sender_sids: Collection[bytes], access: QueueAccess
) -> bool:
    """Whether a principal may do this to a queue; decisions are cached with the queue."""
    key = (tuple(sender_sids), int(access))
    granted = queue.grants.get(key)
    if granted is None:
        granted = is_granted(queue.descriptor(), effective_sids(key[0]), key[1])
        if len(queue.grants) >= GRANTS_PER_QUEUE_MAX:
            queue.grants.clear()
        queue.grants[key] = granted
    return granted

"""Hop count and destination of a message that passes through [MS-MQQB 3.1.5.8.2, 3.1.5.8.5]."""

from qm.wire.guid import GUID_NULL, Guid
from qm.wire.limits import HOP_COUNT_MAX


def is_local(queue_manager_address: Guid, local_guid: Guid) -> bool:
    """Whether UserHeader.QueueManagerAddress means this queue manager; zeros do (QB-A29)."""
    return queue_manager_address in (GUID_NULL, local_guid)


def next_hop_count(hop_count: int) -> int | None:
    """Return Flags.RC for forwarding, or None: refuse with NACK_HOP_COUNT_EXCEEDED (QB-A40)."""
    return hop_count + 1 if hop_count < HOP_COUNT_MAX else None

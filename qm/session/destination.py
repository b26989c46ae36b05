"""Whose a message is [MS-MQQB 3.1.5.8.5]."""

from qm.wire.guid import GUID_NULL, Guid


def is_local(queue_manager_address: Guid, local_guid: Guid) -> bool:
    """Whether UserHeader.QueueManagerAddress means this queue manager; zeros do (QB-A29)."""
    return queue_manager_address in (GUID_NULL, local_guid)

"""Whether a message is for this queue manager [MS-MQQB 3.1.5.8.5]."""

from qm.wire.guid import GUID_NULL, Guid
from qm.wire.packets.ack import FinalAck, OrderAck, acknowledgment_in
from qm.wire.packets.user_message import parse_user_message


def is_local(queue_manager_address: Guid, local_guid: Guid) -> bool:
    """Whether UserHeader.QueueManagerAddress means this queue manager; zeros do (QB-A29)."""
    return queue_manager_address in (GUID_NULL, local_guid)


def local_acknowledgement(
    buffer: bytes | bytearray, at: int, stop: int, local_guid: Guid
) -> OrderAck | FinalAck | None:
    """Return the OrderAck or FinalAck to this queue manager that a UserMessage is, else None.

    Raises ProtocolError for a malformed message.
    """
    message, _ = parse_user_message(buffer, at, stop)
    acknowledgement = acknowledgment_in(message)
    if acknowledgement is None or not is_local(acknowledgement.queue_manager_address, local_guid):
        return None
    return acknowledgement

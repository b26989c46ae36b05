"""Rules for messages that we originate; those of peers may break them.

These rules of MS-MQMQ bind senders and do not affect the layout, so the codec reads a message that
breaks them. Code that originates a message calls `check_sender_rules` before writing it.
"""

from typing import Final

from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import GUID_NULL
from qm.wire.headers.user_header import SECTION as SECTION_USER_HEADER
from qm.wire.headers.user_header import UserHeader
from qm.wire.limits import HOPS_MAX
from qm.wire.message_class import MessageClassRole, message_class_role
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    SameAsAdminQueue,
)

_SECTION_PROPERTIES: Final = "MS-MQMQ 2.2.19.3"


def check_sender_rules(message: UserMessage) -> None:
    """Raise `ValueOutOfRange` for the first rule that the message breaks."""
    header = message.user_header
    _check_destination(header)
    _check_admin_queue(header, message.properties.flags)
    if header.hop_count > HOPS_MAX:
        raise ValueOutOfRange(
            "UserHeader.Flags.RC", SECTION_USER_HEADER, f"{header.hop_count} is above 29"
        )
    message_class = message.properties.message_class
    if message_class_role(message_class) is MessageClassRole.UNDEFINED:
        raise ValueOutOfRange(
            "MessagePropertiesHeader.MessageClass",
            _SECTION_PROPERTIES,
            f"0x{message_class:04X} is neither defined nor a custom class",
        )


def _check_destination(header: UserHeader) -> None:
    has_address = header.queue_manager_address != GUID_NULL
    field = "UserHeader.QueueManagerAddress"
    match header.destination_queue:
        case DirectQueueFormatName() if has_address:
            raise ValueOutOfRange(
                field, SECTION_USER_HEADER, "must be zero for a direct destination"
            )
        case PrivateQueueFormatNameId() | PublicQueueFormatName() if not has_address:
            raise ValueOutOfRange(
                field, SECTION_USER_HEADER, "must be the destination's queue manager"
            )


def _check_admin_queue(header: UserHeader, acknowledge_flags: int) -> None:
    # MQ-A6: a peer may ask for acknowledgments without naming a queue for them; it gets none.
    if bool(acknowledge_flags) != (header.admin_queue is not None):
        raise ValueOutOfRange(
            "UserHeader.AdminQueue",
            SECTION_USER_HEADER,
            "must be there exactly when an acknowledgment is asked for",
        )
    response = header.response_queue
    borrows_admin_queue = isinstance(response, SameAsAdminQueue) or (
        isinstance(response, PrivateQueueFormatNameId) and response.host is QueueHost.ADMIN
    )
    if borrows_admin_queue and header.admin_queue is None:
        raise ValueOutOfRange(
            "UserHeader.ResponseQueue", SECTION_USER_HEADER, "borrows an AdminQueue that is absent"
        )

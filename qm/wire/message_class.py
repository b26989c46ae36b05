"""Message class identifiers [MS-MQMQ 2.2.18.1.6]: the values, and what their bits mean.

A message class travels as a plain 16-bit integer, because applications may choose their own; the
functions here accept any integer in 0..0xFFFF and never raise.
"""

from enum import Enum, IntEnum, IntFlag
from typing import Final

MESSAGE_CLASS_CUSTOM_MASK: Final = 0xE1FF
"""The only bits that a custom class may set (MS-MQMQ 2.2.18.1.6)."""

MESSAGE_CLASS_NEGATIVE_BIT: Final = 0x8000
"""Set in every negative acknowledgment; inferred from the values of the table."""


class MessageClass(IntEnum):
    """MESSAGE_CLASS_VALUES; the specification writes each member with the prefix MQMSG_CLASS_."""

    NORMAL = 0x0000
    REPORT = 0x0001
    ACK_REACH_QUEUE = 0x0002
    ORDER_ACK = 0x00FF
    ACK_RECEIVE = 0x4000
    # The original message did not reach its destination queue.
    NACK_BAD_DST_Q = 0x8000
    NACK_DELETED = 0x8001
    NACK_REACH_QUEUE_TIMEOUT = 0x8002
    NACK_Q_EXCEED_QUOTA = 0x8003
    NACK_ACCESS_DENIED = 0x8004
    NACK_HOP_COUNT_EXCEEDED = 0x8005
    NACK_BAD_SIGNATURE = 0x8006
    NACK_BAD_ENCRYPTION = 0x8007
    NACK_NOT_TRANSACTIONAL_Q = 0x8009
    NACK_NOT_TRANSACTIONAL_MSG = 0x800A
    NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    # It was in the queue, but no application received it.
    NACK_Q_DELETED = 0xC000
    NACK_Q_PURGED = 0xC001
    NACK_RECEIVE_TIMEOUT = 0xC002
    NACK_RECEIVE_REJECTED = 0xC004

    @property
    def spec_name(self) -> str:
        """The name as the specification prints it, such as MQMSG_CLASS_ORDER_ACK."""
        return f"MQMSG_CLASS_{self.name}"


class MessageClassRole(Enum):
    """Who makes messages of a class, and for whom."""

    APPLICATION = "application"
    """An application's own message: NORMAL or a custom class."""
    REPORT = "report"
    """Tracks delivery, for a report queue."""
    ORDER = "order"
    """From the final destination's queue manager to the original sender's (order_queue$)."""
    ADMINISTRATION = "administration"
    """Tells the sender's administration queue the outcome for its message."""
    UNDEFINED = "undefined"
    """Neither in the table nor built from the bits of a custom class (MQ-A39)."""


class AcknowledgeFlags(IntFlag):
    """MessagePropertiesHeader.Flags [MS-MQMQ 2.2.19.3]: the acknowledgments a sender asks for."""

    PA = 0x01
    """Positive arrival."""
    PR = 0x02
    """Positive receive."""
    NA = 0x04
    """Negative arrival."""
    NR = 0x08
    """Negative receive."""


_ROLE_OF_POSITIVE: Final = {
    MessageClass.NORMAL: MessageClassRole.APPLICATION,
    MessageClass.REPORT: MessageClassRole.REPORT,
    MessageClass.ORDER_ACK: MessageClassRole.ORDER,
}
_DEFINED: Final = {member.value: member for member in MessageClass}


def message_class_role(value: int) -> MessageClassRole:
    """Return who makes messages of class `value`."""
    defined = _DEFINED.get(value)
    if defined is not None:
        return _ROLE_OF_POSITIVE.get(defined, MessageClassRole.ADMINISTRATION)
    if is_custom_message_class(value):
        return MessageClassRole.APPLICATION
    return MessageClassRole.UNDEFINED


def message_class_text(value: int) -> str:
    """Name a class for a reader: its specification name, or its number in hexadecimal."""
    defined = _DEFINED.get(value)
    return f"0x{value:04X}" if defined is None else defined.spec_name


def is_custom_message_class(value: int) -> bool:
    """Tell whether `value` is an application's own class: outside the table, inside the mask."""
    return value not in _DEFINED and not value & ~MESSAGE_CLASS_CUSTOM_MASK


def is_negative(value: int) -> bool:
    """Tell whether the class reports a failure."""
    return bool(value & MESSAGE_CLASS_NEGATIVE_BIT)

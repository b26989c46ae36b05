"""What becomes of the sender's copy of a message: source journaling [MS-MQQB 1.3.4, 3.1.5.5.4].

The functions decide; the replicated state machine moves the message in the same step that ends it.
"""

from enum import Enum

import msgspec

from qm.wire.message_class import MessageClass


class Copy(Enum):
    """Where the sender's copy goes."""

    DROP = "drop"
    KEEP = "keep"
    """It stays in OutgoingMessageTable."""
    AWAIT_FINAL_ACK = "await_final_ack"
    """To AwaitingFinalACKTable."""
    SYSTEM_JOURNAL = "system_journal"
    SYSTEM_DEADLETTER = "system_deadletter"
    SYSTEM_TRANSACTIONAL_DEADLETTER = "system_transactional_deadletter"
    APPLICATION_DEADLETTER = "application_deadletter"


class Journaling(msgspec.Struct, frozen=True, gc=False):
    """What a message asks of its sender's queue manager."""

    positive: bool = False
    """UserHeader.Flags.JP."""
    negative: bool = False
    """UserHeader.Flags.JN."""
    final_ack: bool = False
    """TransactionHeader.Flags.FA."""
    is_transactional: bool = False
    """Whether it has a TransactionHeader."""
    has_application_deadletter: bool = False
    """Whether Message.ApplicationDeadletterQueue is set."""
    is_to_system_queue: bool = False
    """Whether it goes to an administration, notification or order queue."""


def on_session_ack(message: Journaling, *, is_order_acked: bool) -> Copy:
    """Decide when the session acknowledgement releases a message [MS-MQQB 3.1.5.5.2 to 3.1.5.5.4].

    Transactional messages need their OrderAck too, and are journaled by FinalAck only (QB-A19).
    """
    if message.is_transactional:
        return _after_order_ack(message) if is_order_acked else Copy.KEEP
    if message.positive and not message.is_to_system_queue:
        return Copy.SYSTEM_JOURNAL
    return Copy.DROP


def on_order_ack(message: Journaling, *, is_session_acked: bool) -> Copy:
    """Decide when an OrderAck covers a transactional message [MS-MQQB 3.1.5.6]."""
    return _after_order_ack(message) if is_session_acked else Copy.KEEP


def on_final_ack(message: Journaling, message_class: int) -> Copy:
    """Decide when the FinalAck of a transactional message comes [MS-MQQB 3.1.5.7].

    It always removes the message from both tables (QB-A19).
    """
    if message_class == MessageClass.ACK_RECEIVE:
        return Copy.SYSTEM_JOURNAL if message.positive else Copy.DROP
    return _deadletter(message) if message.negative else Copy.DROP


def on_failure(message: Journaling) -> Copy:
    """Decide when a message expires or cannot be sent at all [MS-MQQB 1.3.4.2, 3.1.7.1.2]."""
    if not message.negative or message.is_to_system_queue:
        return Copy.DROP
    return _deadletter(message)


def _after_order_ack(message: Journaling) -> Copy:
    if message.positive or message.negative or message.final_ack:
        return Copy.AWAIT_FINAL_ACK
    return Copy.DROP


def _deadletter(message: Journaling) -> Copy:
    if not message.is_transactional:
        return Copy.SYSTEM_DEADLETTER
    if message.has_application_deadletter:
        return Copy.APPLICATION_DEADLETTER
    return Copy.SYSTEM_TRANSACTIONAL_DEADLETTER

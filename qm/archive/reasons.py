"""What the reason of an operation is called, for people."""

from qm.wire.message_class import MessageClass

NO_CLASS = "no class"
"""Of refusals that no acknowledgement tells: out of order, or to a queue that takes nothing."""


def reason_name(reason: int) -> str:
    """Return the name of the class of [MS-MQMQ] 2.2.18.1.6 that an operation's reason is."""
    if not reason:
        return NO_CLASS
    try:
        return MessageClass(reason).name
    except ValueError:
        return f"0x{reason:04X}"

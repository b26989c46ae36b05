"""What can be done with each kind of name, decided from the name alone.

These functions do not know which queues exist; they tell what no queue of such a name could do.
"""

from enum import IntEnum

from qm.names.direct import DirectName, DirectProtocol, DirectSystemName
from qm.names.errors import unsupported_operation
from qm.names.format_name import (
    DistributionListName,
    FormatName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    PublicName,
    format_name_text,
    is_read_only,
)


class DirectoryUse(IntEnum):
    """What a queue manager must ask the directory before it can use a name."""

    NONE = 0
    """Nothing: the name works in workgroup mode [MS-MQMQ 2.1.2]."""
    COMPUTER = 1
    """The location of the computer, for routing; never the queue [MS-MQMQ 2.1.4]."""
    OBJECT = 2
    """The object whose GUID the name holds: a queue [2.1.3] or a group [2.1.5]."""


def directory_use(name: FormatName) -> DirectoryUse:
    """Return what the directory is needed for.

    A multiple-element name needs the most that any of its elements needs: unless the answer is
    NONE, it cannot be used while the directory is out of reach [MS-MQMQ 2.1.7].
    """
    match name:
        case MultipleElementName():
            return max(map(directory_use, name.elements), default=DirectoryUse.NONE)
        case PublicName() | DistributionListName():
            return DirectoryUse.OBJECT
        case PrivateName():
            return DirectoryUse.COMPUTER
        case _:
            return DirectoryUse.NONE


def check_sendable(name: FormatName) -> None:
    """Raise `FormatNameError` 0xC00E0020 unless a message can be addressed to `name`.

    Read-only queues and subqueues take no messages. Of the protocols that a name can ask for,
    Quorate supports the binary one over TCP, which IPX, HTTP and multicast names do not use.
    """
    if isinstance(name, MultipleElementName):
        for element in name.elements:
            check_sendable(element)
        return
    if is_read_only(name):
        raise unsupported_operation(f"{format_name_text(name)} is read-only: it cannot be sent to")
    if isinstance(name, DirectName):
        if name.subqueue is not None:
            raise unsupported_operation(
                f"{format_name_text(name)} is a subqueue: send to the queue and move the message"
            )
        check_transport(name)
    if isinstance(name, MulticastName):
        raise unsupported_operation(
            f"{format_name_text(name)} needs SRMP over PGM, which is not supported"
        )


def check_transport(name: DirectName | DirectSystemName) -> None:
    """Raise `FormatNameError` 0xC00E0020 unless the binary protocol over TCP reaches `name`."""
    protocol = name.address.protocol
    if protocol.is_ipx:
        raise unsupported_operation(
            f"{format_name_text(name)} needs SPX, which is not supported; "
            "use DIRECT=TCP: or DIRECT=OS:"
        )
    if protocol.is_http:
        raise unsupported_operation(
            f"{format_name_text(name)} needs SRMP over {protocol.value}, which is not supported; "
            f"use DIRECT=TCP: or DIRECT={DirectProtocol.OS.value}:"
        )

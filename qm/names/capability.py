"""What can be done with each kind of name, decided from the name alone.

These functions do not know which queues exist; they tell what no queue of such a name could do.
"""

from qm.names.direct import DirectName, DirectProtocol, DirectSystemName
from qm.names.errors import unsupported_operation
from qm.names.format_name import (
    FormatName,
    MulticastName,
    MultipleElementName,
    format_name_text,
    is_read_only,
)


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

"""Names between packets and text: what a packet's queue fields mean, and how to write them."""

from typing import Final

from qm.model.values.records import GUID_NULL
from qm.names.direct import AnyDirectName, DirectName, direct_text
from qm.names.format_name import (
    DIRECT_PREFIX,
    FormatName,
    PrivateName,
    PublicName,
    format_name_text,
)
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.guid import Guid
from qm.wire.headers.user_header import UserHeader, host_of
from qm.wire.structures.queue_name import (
    QUEUE_TYPE_DIRECT,
    QUEUE_TYPE_PUBLIC,
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
)

ORDER_QUEUE_NUMBER: Final = 4
NOTIFICATION_QUEUE_NUMBER: Final = 5
_SERVICE_NUMBERS: Final = frozenset({ORDER_QUEUE_NUMBER, NOTIFICATION_QUEUE_NUMBER})
_SERVICE_NAMES: Final = frozenset({"order_queue$", "notify_queue$"})


def sent_name(wire_name: bytes, own: Guid) -> str:
    """Return the format name of a destination as packets for `own` have it: its type, its bytes."""
    queue_type, name = wire_name[0], wire_name[1:]
    if queue_type == QUEUE_TYPE_DIRECT:
        return DIRECT_PREFIX + name.decode("utf-16-le", "replace")
    if queue_type == QUEUE_TYPE_PUBLIC:
        return format_name_text(PublicName(name))
    number = int.from_bytes(name[GUID_SIZE_BYTES:], "little")
    return format_name_text(PrivateName(own, number))


def label_bytes(label: str | None) -> bytes:
    """Return a packet's label as stored in rows; its 16-bit units need not be valid text."""
    return (label or "").encode("utf-16-le", "surrogatepass")


def label_text(stored: bytes) -> str | None:
    """Return a label for writing into a packet, None for none."""
    return stored.decode("utf-16-le", "surrogatepass") or None


def is_service_queue(name: FormatName) -> bool:
    """Whether a name denotes a queue manager's order or notification queue, on any computer."""
    if isinstance(name, PrivateName):
        return name.number in _SERVICE_NUMBERS
    return isinstance(name, DirectName) and name.private and name.queue.lower() in _SERVICE_NAMES


def stored_name(name: QueueName | None, header: UserHeader) -> str:
    """Return `format_name_of` as a row can hold it, "" if it names no queue (qm.names)."""
    text = format_name_of(name, header)
    return text if text.isascii() else ""


def format_name_of(name: QueueName | None, header: UserHeader) -> str:
    """Return the format name that a queue field of `header` means, "" for none.

    MS-MQQB 3.1.7.15 lists the host of each form; a response queue of RQ 4 uses the administration
    queue's host, and RQ 1 is the administration queue itself.
    """
    match name:
        case None:
            return ""
        case SameAsAdminQueue():
            return format_name_of(header.admin_queue, header)
        case DirectQueueFormatName():
            text = name.direct_format_name
            has_prefix = text[: len(DIRECT_PREFIX)].upper() == DIRECT_PREFIX
            return text if has_prefix else DIRECT_PREFIX + text
        case PublicQueueFormatName() | PrivateQueueFormatName():
            return text_of_guid_name(name)
        case PrivateQueueFormatNameId():
            return format_name_text(
                PrivateName(host_of(name.host, header), name.private_queue_identifier)
            )


def text_of_guid_name(name: PublicQueueFormatName | PrivateQueueFormatName) -> str:
    """Return the format name of a queue whose GUIDs are all in the packet's field."""
    if isinstance(name, PublicQueueFormatName):
        return format_name_text(PublicName(name.public_queue_identifier))
    return format_name_text(PrivateName(name.source_queue_manager, name.private_queue_identifier))


def destination_of(name: FormatName) -> tuple[QueueName, Guid] | None:
    """Return DestinationQueue and QueueManagerAddress for a format name.

    The sender looks up a public queue's queue manager. None: no packet can carry the name.
    """
    if isinstance(name, AnyDirectName):
        return DirectQueueFormatName(direct_text(name)), GUID_NULL
    if isinstance(name, PrivateName) and not name.journal:
        return PrivateQueueFormatNameId(QueueHost.DESTINATION, name.number), name.guid
    if isinstance(name, PublicName) and not name.journal:
        return PublicQueueFormatName(name.guid), GUID_NULL
    return None


def reference_of(name: FormatName) -> QueueName | None:
    """Return a name as an administration or response queue carries it, including its host."""
    if isinstance(name, PrivateName) and not name.journal:
        return PrivateQueueFormatName(name.guid, name.number)
    found = destination_of(name)
    return None if found is None else found[0]

r"""Names of queues, as applications write them and as packets carry them."""

from collections.abc import Sequence

from qm.names.conversion import direct_of_path
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    FormatName,
    PrivateName,
    PublicName,
    format_name_text,
    parse_format_name,
)
from qm.names.guid import guid_text
from qm.names.path_name import parse_path_name
from qm.wire.guid import GUID_NULL
from qm.wire.headers.multi_queue_format import DistributionQueueFormatName
from qm.wire.headers.user_header import UserHeader, host_of
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
)


def format_name(name: str) -> str:
    r"""Return the format name of a queue that is given by format name or path name.

    `host\private$\q` becomes `DIRECT=OS:host\PRIVATE$\q`. Raises QueueNameError.
    """
    if "=" in name.split("\\", 1)[0]:
        return format_name_text(parse_format_name(name))
    return format_name_text(direct_of_path(parse_path_name(name)))


def format_name_of_wire(
    name: QueueName | None, header: UserHeader, *, is_destination: bool = False
) -> str:
    """Return the format name of a name in a packet's header, "" for none."""
    found: FormatName | None = None
    match name:
        case SameAsAdminQueue():
            return format_name_of_wire(header.admin_queue, header)
        case DirectQueueFormatName():
            return _direct(name.direct_format_name)
        case PublicQueueFormatName():
            found = PublicName(name.public_queue_identifier)
        case PrivateQueueFormatName():
            found = PrivateName(name.source_queue_manager, name.private_queue_identifier)
        case PrivateQueueFormatNameId():
            host = QueueHost.DESTINATION if is_destination else name.host
            found = PrivateName(host_of(host, header), name.private_queue_identifier)
        case None:
            pass
    return format_name_text(found) if found is not None else ""


def format_names_of_list(elements: Sequence[QueueName | DistributionQueueFormatName]) -> list[str]:
    """Return the format names of a list in a packet's MultiQueueFormatHeader."""
    nobody = UserHeader(GUID_NULL, None)
    return [
        f"DL={guid_text(element.distribution_list_identifier)}"
        if isinstance(element, DistributionQueueFormatName)
        else format_name_of_wire(element, nobody)
        for element in elements
    ]


def _direct(text: str) -> str:
    full = text if text.upper().startswith("DIRECT=") else f"DIRECT={text}"
    try:
        return format_name_text(parse_format_name(full))
    except QueueNameError:
        # A peer may send a name that our grammar refuses; the application still gets its text.
        return full

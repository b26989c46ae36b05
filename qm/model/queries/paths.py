"""Get Queue Path ([MS-MQDMPR] 3.1.7.1.26): the path name and the computer of a format name."""

from typing import Final

import msgspec

from qm.model.management.directory import Filter, Operator
from qm.model.queries.view import View
from qm.model.state.registry import NameIndex
from qm.model.values.elements import DirectoryObjectType, DirectoryOperationResult
from qm.model.values.rows import QUEUE_KEY
from qm.names.direct import AnyDirectName, direct_text
from qm.names.errors import QueueNameError
from qm.names.format_name import PrivateName, PublicName, parse_format_name
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0


class QueuePath(msgspec.Struct, frozen=True):
    """What Get Queue Path returns."""

    status: int
    """MQ_OK or MQ_ERROR_ILLEGAL_FORMATNAME."""
    path_name: str = ""
    machine_name: str = ""


def get_queue_path(view: View, format_name: str) -> QueuePath:
    """Return where a queue is; other kinds of names have no path, which is no error."""
    try:
        name = parse_format_name(format_name)
    except QueueNameError:
        return QueuePath(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME)
    if isinstance(name, AnyDirectName):
        return _direct_path(name)
    if isinstance(name, PublicName):
        return _public_path(view, name)
    if isinstance(name, PrivateName):
        return _private_path(view, name)
    return QueuePath(MQ_OK)


def _direct_path(name: AnyDirectName) -> QueuePath:
    """Return the protocol address, or the host of an HTTP name, and what follows it."""
    address = name.address
    tail = direct_text(name).partition(":")[2]
    if address.protocol.is_http:
        tail = tail.partition("/MSMQ")[2]
        return QueuePath(MQ_OK, address.host + tail, address.host)
    return QueuePath(MQ_OK, tail, address.host)


def _public_path(view: View, name: PublicName) -> QueuePath:
    status, found = view.directory.read(
        DirectoryObjectType.QUEUE, [Filter("identifier", Operator.EQUALS, name.guid)]
    )
    if status is not DirectoryOperationResult.SUCCESS or found is None:
        return QueuePath(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME)
    path: str = found.attributes["pathname"]
    return QueuePath(MQ_OK, path, path.partition("\\")[0])


def _private_path(view: View, name: PrivateName) -> QueuePath:
    """DM-A30: the queue manager's identifier is compared with the name's ComputerGuid. Numbers are
    the queue manager's own, so another one's say nothing of the queues that are here.
    """
    status, found = view.directory.read(
        DirectoryObjectType.QUEUE_MANAGER, [Filter("identifier", Operator.EQUALS, name.guid)]
    )
    if status is not DirectoryOperationResult.SUCCESS or found is None:
        return QueuePath(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME)
    machine: str = found.attributes.get("computer_name", "")
    manager = view.ledger.manager
    if manager is None or name.guid != manager.identifier:
        return QueuePath(MQ_OK, "", machine)
    queue_id = view.registry.find(NameIndex.PRIVATE_NUMBER, QUEUE_KEY.pack(name.number))
    queue = view.queue(queue_id)
    return QueuePath(MQ_OK, "" if queue is None else queue.record.pathname, machine)

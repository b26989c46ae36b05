"""Names from callers, made absolute: a format name, or a path name of a local queue."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from qm.api.gate.errors import InvalidArgument, MsmqError
from qm.cluster.cluster import Cluster
from qm.model.queries import View, find_by_path, find_queue, format_name_of_queue
from qm.names.direct import AnyDirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, format_name_text, parse_format_name
from qm.names.grammar import LOCAL_COMPUTER
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode

T = TypeVar("T")


def is_format_name(text: str) -> bool:
    """Whether a text is a format name: its first word ends with =, unlike any computer's."""
    return "=" in text.partition("\\")[0]


def absolute_name(view: View, text: str, field: str) -> FormatName:
    """Return the format name that means the same queue on every computer.

    Raises InvalidArgument for a text that is no name, MsmqError if a path name leads nowhere.
    """
    if not is_format_name(text):
        found = find_by_path(view, text)
        if found.status == ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME:
            raise InvalidArgument(field, f"{text[:64]!r} is neither a format name nor a path name")
        if found.is_elsewhere:
            text = f"DIRECT=OS:{text}"
        elif found.status:
            raise MsmqError(found.status, f"there is no queue {text!r}")
        else:
            text = format_name_of_queue(view, found.queue_id)
    try:
        name = parse_format_name(text)
    except QueueNameError as error:
        raise InvalidArgument(field, error.reason) from None
    manager = view.ledger.manager
    if isinstance(name, AnyDirectName) and name.address.host == LOCAL_COMPUTER and manager:
        address = msgspec.structs.replace(name.address, host=manager.computer_name)
        name = msgspec.structs.replace(name, address=address)
    return name


async def settled(cluster: Cluster, resolve: Callable[[], T]) -> T:
    """Return the result of `resolve` on the state, trying once more after a barrier if it fails:
    a queue may just have been created through another node.
    """
    try:
        return resolve()
    except MsmqError:
        await cluster.read_barrier()
        return resolve()


def absolute_text(view: View, text: str, field: str) -> str:
    """Return `absolute_name` as text: unchanged if the text is absolute already."""
    if not text:
        return ""
    name = absolute_name(view, text, field)
    is_as_given = is_format_name(text) and parse_format_name(text) == name
    return text if is_as_given else format_name_text(name)


def queue_id_of(view: View, queue: control_pb2.QueueName, field: str = "queue") -> int:
    """Return the id of the local queue that is meant. Raises InvalidArgument, MsmqError."""
    if queue.queue_id:
        if view.ledger.queue(queue.queue_id) is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return queue.queue_id
    if not queue.name:
        raise InvalidArgument(field, "give the queue's queue_id or its name")
    found = find_queue(view, queue.name)
    illegal = (
        ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
        ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME,
    )
    if found.status in illegal:
        raise InvalidArgument(
            f"{field}.name", f"{queue.name[:64]!r} is neither a format name nor a path name"
        )
    if found.status or not found.queue_id:
        raise MsmqError(
            ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue {queue.name[:128]!r} here"
        )
    return found.queue_id

"""From path names to format names [MC-MQAC 3.10.6.1], and what each kind of name allows."""

from typing import Final

from qm.client import names
from qm.client.errors import MqError
from qm.client.mqac.local_manager import LocalManager
from qm.names.errors import QueueNameError
from qm.names.format_name import MulticastName, MultipleElementName, parse_format_name
from qm.names.path_name import PathKind, PathName, parse_path_name
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode

PUBLIC_NAME_MAX_CHARS: Final = 63


def resolve(service: LocalManager, path: str) -> str:
    """Return the format name of a path name. Raises MqError."""
    full = expanded(service, path)
    parsed = _parsed(full)
    if parsed.kind is PathKind.PUBLIC:
        name = full.partition("\\")[2]
        if len(name) + name.count("/") > PUBLIC_NAME_MAX_CHARS:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME)
    is_found = parsed.subqueue is None and not parsed.journal and _is_own(service, parsed)
    if parsed.kind is not PathKind.SYSTEM and is_found:
        queue = service.call(
            lambda stubs: stubs.queues.GetQueue,
            control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=full)),
        )
        return queue.format_name
    try:
        # Other computers' queues are known only by path, and so are subqueues (AC-A18).
        return names.format_name(full)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error


def expanded(service: LocalManager, path: str) -> str:
    """Return a path name with "." replaced by the cluster's name."""
    return service.computer_name + path[1:] if path.startswith(".\\") else path


def is_public(service: LocalManager, path: str) -> bool:
    """Whether a path name is a public queue's; False if it is not a path name."""
    try:
        return _parsed(expanded(service, path)).kind is PathKind.PUBLIC
    except MqError:
        return False


def require_local(service: LocalManager, path: str) -> None:
    """Refuse a private queue of another computer: it is out of reach. Raises MqError."""
    parsed = _parsed(expanded(service, path))
    if parsed.kind is PathKind.PRIVATE and not _is_own(service, parsed):
        raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION)


def is_send_only(name: str) -> bool:
    """Whether a format name means several queues, a multicast address, or HTTP. Raises MqError."""
    if name.upper().startswith("DIRECT=HTTP"):
        return True
    try:
        parsed = parse_format_name(name)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error
    return isinstance(parsed, MultipleElementName | MulticastName)


def _parsed(path: str) -> PathName:
    try:
        return parse_path_name(path)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error


def _is_own(service: LocalManager, path: PathName) -> bool:
    return path.computer.upper() == service.computer_name.upper()

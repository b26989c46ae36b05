"""From path names to format names [MC-MQAC 3.1.6.2, 3.10.6.1], and what each kind allows."""

from typing import Final

from qm.client import names
from qm.client.errors import MqError, if_there
from qm.client.mqac.manager import QueueManager
from qm.names.direct import DirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    DistributionListName,
    FormatName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    parse_format_name,
)
from qm.names.path_name import PathKind, PathName, parse_path_name
from qm.wire.codes import ErrorCode

PUBLIC_NAME_MAX_CHARS: Final = 63
_PUBLIC: Final = "PUBLIC="


def resolve(manager: QueueManager, path: str) -> str:
    """Return the format name of a path name that an MSMQQueueInfo has [3.10.6.1]. Raises MqError.

    A private queue of this computer must exist; one of another is named by its path, because its
    queue manager is not asked.
    """
    full = expanded(manager, path)
    parsed = parsed_path(full)
    if parsed.kind is PathKind.PUBLIC:
        name = full.partition("\\")[2].partition(";")[0]
        if len(name) + name.count("/") > PUBLIC_NAME_MAX_CHARS:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME)
    if parsed.subqueue is not None or parsed.journal or parsed.kind is PathKind.SYSTEM:
        # AC-A18: a subqueue's name ends with its own.
        return _direct(full)
    if parsed.kind is PathKind.PUBLIC or _is_own(manager, parsed):
        return manager.queue(full).format_name
    return _direct(full)


def format_name_of_path(manager: QueueManager, path: str) -> str:
    """Return the format name of a path name [3.1.6.2]. Raises MqError.

    A private queue has the number that it was given (AC-A17), and one that does not exist is named
    by its path.
    """
    full = expanded(manager, path)
    parsed = parsed_path(full)
    if parsed.kind is PathKind.SYSTEM:
        raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME)
    if parsed.subqueue is not None or parsed.journal:
        return _direct(full)
    attributes = manager.attributes()
    if parsed.kind is PathKind.PUBLIC:
        if attributes.get("directory_offline"):
            raise MqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return manager.queue(full).format_name
    if not attributes.get("directory_integrated") or not _is_own(manager, parsed):
        return _direct(full)
    found = if_there(lambda: manager.queue(full))
    return _direct(full) if found is None else found.format_name


def expanded(manager: QueueManager, path: str) -> str:
    """Return a path name with "." replaced by the computer's name."""
    return manager.computer_name + path[1:] if path.startswith(".\\") else path


def is_public_path(manager: QueueManager, path: str) -> bool:
    """Whether a path name is a public queue's; False if it is not a path name."""
    try:
        return parsed_path(expanded(manager, path)).kind is PathKind.PUBLIC
    except MqError:
        return False


def is_public(format_name: str) -> bool:
    """Whether a format name is a public queue's."""
    return format_name.upper().startswith(_PUBLIC)


def require_local(manager: QueueManager, path: str) -> None:
    """Refuse a private queue of another computer: it is out of reach. Raises MqError."""
    parsed = parsed_path(expanded(manager, path))
    if parsed.kind is PathKind.PRIVATE and not _is_own(manager, parsed):
        raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION)


def may_be_elsewhere(manager: QueueManager, format_name: str) -> bool:
    """Whether a name may mean a queue of another computer, for all that it says. Raises MqError."""
    parsed = parsed_format_name(format_name)
    if isinstance(parsed, DirectName):
        return parsed.address.host.upper() != manager.computer_name.upper()
    return isinstance(parsed, PrivateName) and parsed.guid != manager.identifier


def is_send_only(format_name: str) -> bool:
    """Whether a name means several queues, a multicast address, or HTTP. Raises MqError."""
    if format_name.upper().startswith("DIRECT=HTTP"):
        return True
    several = MultipleElementName | MulticastName | DistributionListName
    return isinstance(parsed_format_name(format_name), several)


def element_names(format_name: str) -> list[str]:
    """Return the format names of the queues that a name means, as they stand: itself, or its
    elements. Raises MqError.
    """
    parsed = parsed_format_name(format_name)
    return format_name.split(",") if isinstance(parsed, MultipleElementName) else [format_name]


def parsed_format_name(format_name: str) -> FormatName:
    """Return a format name's parts. Raises MqError."""
    try:
        return parse_format_name(format_name)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error


def parsed_path(path: str) -> PathName:
    """Return a path name's parts. Raises MqError."""
    try:
        return parse_path_name(path)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error


def _direct(path: str) -> str:
    try:
        return names.format_name(path)
    except QueueNameError as error:
        raise MqError(error.code, str(error)) from error


def _is_own(manager: QueueManager, path: PathName) -> bool:
    return path.computer.upper() == manager.computer_name.upper()

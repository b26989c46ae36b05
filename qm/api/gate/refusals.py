"""What a refusal is about, told with the error: who was refused, what for, and which queue.

`google.rpc.ErrorInfo` of domain "msmq" then has `principal`, `queue` and `right` besides `code`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from qm.pb import data_pb2
from qm.wire.access_mask import MachineAccess, QueueAccess

_READ_RIGHT: Final = QueueAccess.RECEIVE_MESSAGE
_RIGHT_OF_ACCESS: Final[Mapping[int, QueueAccess]] = MappingProxyType(
    {
        data_pb2.SEND_ACCESS: QueueAccess.WRITE_MESSAGE,
        data_pb2.PEEK_ACCESS: QueueAccess.PEEK_MESSAGE,
        data_pb2.PEEK_ADMIN_ACCESS: QueueAccess.PEEK_MESSAGE,
    }
)
_RIGHT_OF_METHOD: Final[Mapping[str, QueueAccess | MachineAccess]] = MappingProxyType(
    {
        "Browse": QueueAccess.PEEK_MESSAGE,
        "CreateQueue": MachineAccess.CREATE_QUEUE,
        "DeleteQueue": QueueAccess.DELETE_QUEUE,
        "GetAcl": QueueAccess.GET_QUEUE_PERMISSIONS,
        "GetMessage": QueueAccess.PEEK_MESSAGE,
        "GetQueue": QueueAccess.GET_QUEUE_PROPERTIES,
        "PurgeQueue": _READ_RIGHT,
        "SetAcl": QueueAccess.CHANGE_QUEUE_PERMISSIONS,
        "SetQueue": QueueAccess.SET_QUEUE_PROPERTIES,
        "SetQueueManager": MachineAccess.SET_MACHINE_PROPERTIES,
    }
)
NAME_MAX_CHARS: Final = 512
"""Of a queue's name as the caller wrote it."""


def subject(method: str, request: Any, principal: str) -> dict[str, str]:
    """Return what a call was about, as far as its request says: names without values are left out.

    `method`: `/package.Service/Method`.
    """
    verb = method.rpartition("/")[2]
    right: QueueAccess | MachineAccess | None = _RIGHT_OF_METHOD.get(verb)
    if verb == "OpenQueue" and request is not None:
        right = _RIGHT_OF_ACCESS.get(request.access, _READ_RIGHT)
    told = {
        "principal": principal,
        "queue": _named_queue(request),
        "right": right.name if right is not None and right.name else "",
    }
    return {name: value for name, value in told.items() if value}


def _named_queue(request: Any) -> str:
    """Return the queue that a request names: by format or path name, directly or in a field."""
    fields = getattr(request, "DESCRIPTOR", None)
    if fields is None:
        return ""
    for name in ("queue", "path_name", "format_name"):
        if name not in fields.fields_by_name:
            continue
        value = getattr(request, name)
        text = value if isinstance(value, str) else getattr(value, "name", "")
        if isinstance(text, str) and text:
            return text[:NAME_MAX_CHARS]
    return ""

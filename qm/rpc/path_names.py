"""qmcomm [MS-MQMP], of which one method is served: the format name of a path name (opnum 12).

A queue manager asks it of the computer whose private queue a program opens by its path name.
"""

from typing import Final

import msgspec

from qm.api.gate.errors import ApiError
from qm.cluster.cluster import Cluster, Unavailable
from qm.model.queries import find_by_path, format_name_of_queue
from qm.names.format_name import parse_format_name
from qm.rpc.interface import Interface, Operation, interface_syntax
from qm.rpc.ndr.types import U32, Arm, Parameters, Structure, Union, Unique, WideString
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.queue_formats import QUEUE_FORMAT, WireFormat, format_of
from qm.rpc.server.call import Call
from qm.wire.codes import MQ_OK, ErrorCode

PATH_NAME_MAX_CHARS: Final = 261
_QUEUE: Final = 1


class ObjectFormat(msgspec.Struct):
    """OBJECT_FORMAT: a kind of object, and a QUEUE_FORMAT."""

    kind: int
    queue: Arm


class PathIn(msgspec.Struct):
    """Parameters of R_QMObjectPathToObjectFormat."""

    path: str
    found: ObjectFormat


class PathOut(msgspec.Struct):
    """Results of R_QMObjectPathToObjectFormat."""

    found: ObjectFormat
    status: int


_OBJECT: Final = Structure(
    ObjectFormat,
    {"kind": U32, "queue": Union(U32, {_QUEUE: Unique(QUEUE_FORMAT)})},
    lambda it: it.kind == it.queue.tag,
)
QMCOMM: Final = Interface(
    "qmcomm",
    interface_syntax("fdb3a030-065f-11d1-bb9b-00a024ea5525", 1),
    {
        12: Operation(
            "path_to_format",
            Parameters(PathIn, {"path": WideString(PATH_NAME_MAX_CHARS), "found": _OBJECT}),
            Parameters(PathOut, {"found": _OBJECT, "status": U32}),
        )
    },
    AuthLevel.INTEGRITY,
)


class PathNames:
    """Implements that method."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def path_to_format(self, call: Call, given: PathIn) -> PathOut:
        """R_QMObjectPathToObjectFormat, for private queues of this cluster."""
        try:
            await self._cluster.read_barrier()
        except (Unavailable, ApiError):
            return _nothing(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        view = self._cluster.view
        found = find_by_path(view, given.path)
        if found.status or found.is_elsewhere or not found.queue_id:
            return _nothing(found.status or ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        name = parse_format_name(format_name_of_queue(view, found.queue_id))
        wire: WireFormat = format_of(name)  # type: ignore[arg-type]
        return PathOut(ObjectFormat(_QUEUE, Arm(_QUEUE, wire)), MQ_OK)


def _nothing(status: int) -> PathOut:
    return PathOut(ObjectFormat(_QUEUE, Arm(_QUEUE, None)), status)

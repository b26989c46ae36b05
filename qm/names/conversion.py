r"""Path names to direct names and back: `host\private$\q` is `DIRECT=OS:host\PRIVATE$\q`."""

from qm.names.direct import (
    AnyDirectName,
    DirectAddress,
    DirectName,
    DirectProtocol,
    DirectSystemName,
)
from qm.names.errors import illegal_path_name
from qm.names.path_name import PathKind, PathName


def path_of_direct(name: AnyDirectName) -> PathName:
    """Return the path name of the queue that a direct name reaches.

    The computer is the host of an HTTP address, otherwise the whole address [MS-MQDMPR 3.1.7.1.26].
    """
    host = name.address.host
    if isinstance(name, DirectSystemName):
        return PathName(host, name.system_queue.value, PathKind.SYSTEM)
    kind = PathKind.PRIVATE if name.private else PathKind.PUBLIC
    return PathName(host, name.queue, kind, name.subqueue, name.journal)


def direct_of_path(path: PathName) -> AnyDirectName:
    """Return the `DIRECT=OS:` name of a path name [MC-MQAC 3.10.6.1].

    A system path name whose word is not a system queue raises `PathNameError`.
    """
    address = DirectAddress(DirectProtocol.OS, path.computer)
    if path.kind is not PathKind.SYSTEM:
        private = path.kind is PathKind.PRIVATE
        return DirectName(address, path.queue, private, path.subqueue, path.journal)
    if path.system_queue is None:
        raise illegal_path_name(
            f"{path.queue!r} is not a system queue; use JOURNAL, DEADLETTER or DEADXACT"
        )
    return DirectSystemName(address, path.system_queue)

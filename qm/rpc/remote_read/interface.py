"""The RemoteRead interface [MS-MQRR 3.1.4]: its methods and their parameters."""

from typing import Any, Final

import msgspec

from qm.rpc.interface import Interface, Operation, interface_syntax
from qm.rpc.ndr.types import (
    BYTES,
    GUID,
    HANDLE,
    I32,
    NO_PARAMETERS,
    U8,
    U16,
    U32,
    U64,
    Array,
    ByteArray,
    Octets,
    Parameters,
    Ranged,
    Structure,
    Type,
    Unique,
)
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.queue_formats import QUEUE_FORMAT, WireFormat
from qm.wire.guid import Guid

TOKEN_MAX_BYTES: Final = 131_072
"""Of a propagation token [MS-MQRR 3.1.4.12]."""


class Port(msgspec.Struct):
    """Result of R_GetServerPort."""

    port: int


class OpenIn(msgspec.Struct):
    """Parameters of R_OpenQueue and R_OpenQueueForMove."""

    queue: WireFormat
    access: int
    share_mode: int
    client: Guid
    is_not_routing: int
    major: int
    minor: int
    build: int
    is_workgroup: int


class Handle(msgspec.Struct):
    """A context handle."""

    handle: bytes


class HandleResult(msgspec.Struct):
    """A context handle, then an HRESULT."""

    handle: bytes
    status: int


class MoveHandle(msgspec.Struct):
    """Results of R_OpenQueueForMove."""

    move_context: int
    handle: bytes


class Result(msgspec.Struct):
    """An HRESULT."""

    status: int


class CursorOut(msgspec.Struct):
    """Results of R_CreateCursor."""

    cursor: int
    status: int


class CursorIn(msgspec.Struct):
    """Parameters of R_CloseCursor."""

    handle: bytes
    cursor: int


class StartIn(msgspec.Struct):
    """Parameters of R_StartReceive and R_StartTransactionalReceive."""

    handle: bytes
    lookup: int
    cursor: int
    action: int
    timeout_ms: int
    request: int
    body_max: int
    compound_max: int
    transaction: bytes = bytes(16)
    """XACTUOW; zeros for none (RP-A28)."""


class Section(msgspec.Struct):
    """SectionBuffer."""

    kind: int
    size_alloc: int
    size: int
    data: bytes | None


class StartOut(msgspec.Struct):
    """Results of R_StartReceive and R_StartTransactionalReceive."""

    arrived: int
    sequence: int
    count: int
    sections: list[Section] | None
    status: int


class RequestIn(msgspec.Struct):
    """Parameters of R_CancelReceive."""

    handle: bytes
    request: int


class EndIn(msgspec.Struct):
    """Parameters of R_EndReceive and R_EndTransactionalReceive."""

    handle: bytes
    ack: int
    request: int


class MoveIn(msgspec.Struct):
    """Parameters of R_MoveMessage."""

    handle: bytes
    move_context: int
    lookup: int
    transaction: bytes


class EnlistIn(msgspec.Struct):
    """Parameters of R_QMEnlistRemoteTransaction."""

    transaction: bytes
    size: int
    token: bytes
    queue: WireFormat


class AcknowledgeIn(msgspec.Struct):
    """Parameters of R_SetUserAcknowledgementClass."""

    handle: bytes
    lookup: int
    message_class: int


_OPEN: Final = Parameters(
    OpenIn,
    {
        "queue": QUEUE_FORMAT,
        "access": U32,
        "share_mode": U32,
        "client": GUID,
        "is_not_routing": I32,
        "major": U8,
        "minor": U8,
        "build": U16,
        "is_workgroup": I32,
    },
)
_HANDLE: Final = Parameters(Handle, {"handle": HANDLE})
_HANDLE_RESULT: Final = Parameters(HandleResult, {"handle": HANDLE, "status": U32})
_RESULT: Final = Parameters(Result, {"status": U32})
_UOW: Final = Octets(16)
_START: Final[dict[str, Type[Any]]] = {
    "handle": HANDLE,
    "lookup": U64,
    "cursor": U32,
    "action": U32,
    "timeout_ms": U32,
    "request": U32,
    "body_max": U32,
    "compound_max": U32,
}
_SECTION: Final = Structure(
    Section,
    {"kind": U16, "size_alloc": U32, "size": U32, "data": Unique(ByteArray())},
    lambda it: it.size == len(it.data or b""),
)
_STARTED: Final = Parameters(
    StartOut,
    {
        "arrived": U32,
        "sequence": U64,
        "count": U32,
        "sections": Unique(Array(_SECTION, 2)),
        "status": U32,
    },
)
_END: Final = Parameters(EndIn, {"handle": HANDLE, "ack": Ranged(U32, 1, 2), "request": U32})

REMOTE_READ: Final = Interface(
    "RemoteRead",
    interface_syntax("1a9134dd-7b39-45ba-ad88-44d01ca47f28", 1),
    {
        0: Operation("get_server_port", NO_PARAMETERS, Parameters(Port, {"port": U32})),
        2: Operation("open_queue", _OPEN, _HANDLE),
        3: Operation("close_queue", _HANDLE, _HANDLE_RESULT),
        4: Operation(
            "create_cursor", _HANDLE, Parameters(CursorOut, {"cursor": U32, "status": U32})
        ),
        5: Operation(
            "close_cursor", Parameters(CursorIn, {"handle": HANDLE, "cursor": U32}), _RESULT
        ),
        6: Operation("purge_queue", _HANDLE, _RESULT),
        7: Operation("start_receive", Parameters(StartIn, _START), _STARTED),
        8: Operation(
            "cancel_receive", Parameters(RequestIn, {"handle": HANDLE, "request": U32}), _RESULT
        ),
        9: Operation("end_receive", _END, _RESULT),
        10: Operation(
            "move_message",
            Parameters(
                MoveIn, {"handle": HANDLE, "move_context": U64, "lookup": U64, "transaction": _UOW}
            ),
            _RESULT,
        ),
        11: Operation(
            "open_queue_for_move",
            _OPEN,
            Parameters(MoveHandle, {"move_context": U64, "handle": HANDLE}),
        ),
        12: Operation(
            "enlist",
            Parameters(
                EnlistIn,
                {
                    "transaction": _UOW,
                    "size": Ranged(U32, 0, TOKEN_MAX_BYTES),
                    "token": BYTES,
                    "queue": QUEUE_FORMAT,
                },
                lambda it: it.size == len(it.token),
            ),
            _RESULT,
        ),
        13: Operation(
            "start_transactional_receive",
            Parameters(StartIn, {**_START, "transaction": _UOW}),
            _STARTED,
        ),
        14: Operation(
            "set_user_acknowledgement_class",
            Parameters(AcknowledgeIn, {"handle": HANDLE, "lookup": U64, "message_class": U16}),
            _RESULT,
        ),
        15: Operation("end_transactional_receive", _END, _RESULT),
    },
    AuthLevel.PRIVACY,
)

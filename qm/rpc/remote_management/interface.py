"""The qmmgmt interface [MS-MQMR 3.1.4] and its parameters."""

from typing import Any, Final

import msgspec

from qm.rpc.interface import Interface, Operation, interface_syntax
from qm.rpc.ndr.types import (
    U16,
    U32,
    Arm,
    Array,
    Parameters,
    Ranged,
    Structure,
    Type,
    Union,
    Unique,
    WideString,
)
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.queue_formats import QUEUE_FORMAT
from qm.rpc.variants import PROPVARIANT, Variant

PROPERTIES_MAX: Final = 128
ACTION_MAX_CHARS: Final = 256
MACHINE, QUEUE, SESSION = 1, 2, 3


class ManagementObject(msgspec.Struct):
    """MGMT_OBJECT: what is asked about."""

    kind: int
    what: Arm
    """MACHINE and SESSION: reserved. QUEUE: a QUEUE_FORMAT or None."""


class InfoIn(msgspec.Struct):
    """Parameters of R_QMMgmtGetInfo."""

    what: ManagementObject
    count: int
    properties: list[int]
    values: list[Variant]


class InfoOut(msgspec.Struct):
    """Results of R_QMMgmtGetInfo."""

    values: list[Variant]
    status: int


class ActionIn(msgspec.Struct):
    """Parameters of R_QMMgmtAction."""

    what: ManagementObject
    action: str


class Result(msgspec.Struct):
    """An HRESULT."""

    status: int


_OBJECT: Final = Structure(
    ManagementObject,
    {
        "kind": U16,
        "what": Union(U16, {MACHINE: U32, QUEUE: Unique(QUEUE_FORMAT), SESSION: U32}),
    },
    lambda it: it.kind == it.what.tag,
)
_VALUES: Final[Type[Any]] = Array(PROPVARIANT, PROPERTIES_MAX)
QMMGMT: Final = Interface(
    "qmmgmt",
    interface_syntax("41208ee0-e970-11d1-9b9e-00e02c064c39", 1),
    {
        0: Operation(
            "get_info",
            Parameters(
                InfoIn,
                {
                    "what": _OBJECT,
                    "count": Ranged(U32, 1, PROPERTIES_MAX),
                    "properties": Array(U32, PROPERTIES_MAX),
                    "values": _VALUES,
                },
                lambda it: it.count == len(it.properties) == len(it.values),
            ),
            Parameters(InfoOut, {"values": _VALUES, "status": U32}),
        ),
        1: Operation(
            "act",
            Parameters(ActionIn, {"what": _OBJECT, "action": WideString(ACTION_MAX_CHARS)}),
            Parameters(Result, {"status": U32}),
        ),
    },
    AuthLevel.INTEGRITY,
)

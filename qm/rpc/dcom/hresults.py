"""HRESULTs of COM, DCOM and automation [MS-ERREF 2.1], and resolver statuses [MS-DCOM 2.2.28]."""

from enum import IntEnum
from typing import Final

from qm.rpc.interface import Fault


class Hresult(IntEnum):
    """What methods return, or throw as the status of a fault."""

    S_OK = 0
    S_FALSE = 1
    E_NOTIMPL = 0x80004001
    E_NOINTERFACE = 0x80004002
    E_POINTER = 0x80004003
    E_UNEXPECTED = 0x8000FFFF
    E_ACCESSDENIED = 0x80070005
    E_OUTOFMEMORY = 0x8007000E
    E_INVALIDARG = 0x80070057
    RPC_E_CALL_CANCELED = 0x80010002
    RPC_E_DISCONNECTED = 0x80010108
    RPC_E_INVALID_OBJECT = 0x80010114
    RPC_E_VERSION_MISMATCH = 0x80010110
    RPC_E_INVALID_HEADER = 0x80010111
    RPC_E_INVALID_OBJREF = 0x8001011D
    CO_E_OBJNOTREG = 0x800401FC
    REGDB_E_CLASSNOTREG = 0x80040154
    DISP_E_UNKNOWNINTERFACE = 0x80020001
    DISP_E_MEMBERNOTFOUND = 0x80020003
    DISP_E_PARAMNOTFOUND = 0x80020004
    DISP_E_TYPEMISMATCH = 0x80020005
    DISP_E_UNKNOWNNAME = 0x80020006
    DISP_E_BADVARTYPE = 0x80020008
    DISP_E_EXCEPTION = 0x80020009
    DISP_E_OVERFLOW = 0x8002000A
    DISP_E_BADINDEX = 0x8002000B
    DISP_E_BADPARAMCOUNT = 0x8002000E
    DISP_E_PARAMNOTOPTIONAL = 0x8002000F


OR_INVALID_OXID: Final = 1910
OR_INVALID_OID: Final = 1911
OR_INVALID_SET: Final = 1912


class ComError(Fault):
    """A method fails with this HRESULT."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(int(status), text)

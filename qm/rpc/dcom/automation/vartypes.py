"""VARTYPEs [MS-OAUT 2.2.7], and how scalars of each are carried."""

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final


class VarType(IntEnum):
    """Types that a VARIANT may have here."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    R4 = 4
    R8 = 5
    CY = 6
    DATE = 7
    BSTR = 8
    DISPATCH = 9
    ERROR = 10
    BOOL = 11
    VARIANT = 12
    UNKNOWN = 13
    DECIMAL = 14
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    INT = 22
    UINT = 23


ARRAY: Final = 0x2000
BYREF: Final = 0x4000
BYTES: Final = ARRAY | VarType.UI1

SCALARS: Final[Mapping[int, str]] = {
    VarType.I2: "h",
    VarType.I4: "i",
    VarType.R4: "f",
    VarType.R8: "d",
    VarType.CY: "q",
    VarType.DATE: "d",
    VarType.ERROR: "I",
    VarType.BOOL: "H",
    VarType.I1: "b",
    VarType.UI1: "B",
    VarType.UI2: "H",
    VarType.UI4: "I",
    VarType.I8: "q",
    VarType.UI8: "Q",
    VarType.INT: "i",
    VarType.UINT: "I",
}
"""Code of `struct`, little-endian whatever the PDU's byte order [MS-OAUT 2.2.29.1]."""
SHAPES: Final = {vartype: Struct("<" + code) for vartype, code in SCALARS.items()}


class Feature(IntFlag):
    """Of a SAFEARRAY [MS-OAUT 2.2.9]."""

    HAVE_IID = 0x0040
    HAVE_VARTYPE = 0x0080
    BSTR = 0x0100
    UNKNOWN = 0x0200
    DISPATCH = 0x0400
    VARIANT = 0x0800


SF_HAVE_IID: Final = 0x800D
SF_BY_SIZE: Final = {1: VarType.I1, 2: VarType.I2, 4: VarType.I4, 8: VarType.I8}
"""Discriminant of arrays of scalars: all types of a size are carried alike."""
POINTERS: Final = frozenset({VarType.BSTR, VarType.UNKNOWN, VarType.DISPATCH, VarType.VARIANT})
FEATURES: Final = {
    VarType.BSTR: Feature.BSTR,
    VarType.UNKNOWN: Feature.UNKNOWN,
    VarType.DISPATCH: Feature.DISPATCH,
    VarType.VARIANT: Feature.VARIANT,
}

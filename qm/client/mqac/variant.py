"""Bodies as VARIANTs [MC-MQAC 3.17.4.1.21, .22]: a Python value, and the bytes with their VARTYPE.

A value's type follows from the Python type: str is VT_BSTR, bytes VT_ARRAY|VT_UI1, bool VT_BOOL,
int VT_I4 or VT_UI4, float VT_R8, Decimal VT_CY, an aware datetime VT_DATE. `Typed` selects another
one, and `PersistedObject` stands for VT_UNKNOWN and VT_DISPATCH. Types that other senders use are
read, too: VT_I8, VT_UI8, VT_LPSTR, and VT_EMPTY as bytes.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct, error
from typing import Any, Final, Self

import msgspec

from qm.client.errors import MqError
from qm.client.mqac.constants import E_INVALIDARG

VT_EMPTY: Final = 0
VT_I2: Final = 2
VT_I4: Final = 3
VT_R4: Final = 4
VT_R8: Final = 5
VT_CY: Final = 6
VT_DATE: Final = 7
VT_BSTR: Final = 8
VT_DISPATCH: Final = 9
VT_BOOL: Final = 11
VT_UNKNOWN: Final = 13
VT_I1: Final = 16
VT_UI1: Final = 17
VT_UI2: Final = 18
VT_UI4: Final = 19
VT_I8: Final = 20
VT_UI8: Final = 21
VT_LPSTR: Final = 30
VT_STREAMED_OBJECT: Final = 68
"""VARTYPE of a body that holds an object."""
VT_BYTES: Final = 0x2011

DATE_EPOCH: Final = datetime(1899, 12, 30, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_CY_SCALE: Final = 10_000
_CLSID_BYTES: Final = 16
_I32: Final = range(-(1 << 31), 1 << 31)
_NUMBERS: Final = {
    VT_I1: Struct("<b"),
    VT_UI1: Struct("<B"),
    VT_I2: Struct("<h"),
    VT_UI2: Struct("<H"),
    VT_I4: Struct("<i"),
    VT_UI4: Struct("<I"),
    VT_I8: Struct("<q"),
    VT_UI8: Struct("<Q"),
    VT_R4: Struct("<f"),
    VT_R8: Struct("<d"),
}
_OBJECTS: Final = (VT_UNKNOWN, VT_DISPATCH)
_BOOL: Final = Struct("<H")
_TRUE: Final = 0xFFFF


class Typed(msgspec.Struct, frozen=True):
    """A value with a VARTYPE chosen by the caller."""

    vartype: int
    value: Any


class TypedInt(int):
    """An integer whose VARTYPE the document names, whatever its value."""

    vartype: int

    def __new__(cls, value: int, vartype: int) -> Self:
        """`vartype`: VT_I4, VT_UI4, VT_UI8 or another one of integers."""
        made = super().__new__(cls, value)
        made.vartype = vartype
        return made


class PersistedObject(msgspec.Struct, frozen=True):
    """A COM object as IPersistStream saves it: there is no COM here to make it of."""

    clsid: bytes
    """GUID of its class, 16 raw bytes."""
    data: bytes


def to_body(value: Any) -> tuple[bytes, int]:
    """Return the bytes and VARTYPE of a value. Raises MqError E_INVALIDARG if it has none."""
    vartype, value = (
        (value.vartype, value.value) if isinstance(value, Typed) else (_vartype(value), value)
    )
    write = _WRITERS.get(vartype)
    if write is None:
        raise _misfit(value)
    try:
        return write(value), VT_STREAMED_OBJECT if vartype in _OBJECTS else vartype
    except (TypeError, AttributeError, error, ArithmeticError, ValueError):
        raise _misfit(value) from None


def from_body(body: bytes, vartype: int) -> Any:
    """Return the value of a body; bytes if the type is unknown or does not fit them."""
    read = _READERS.get(vartype)
    if read is None:
        return body
    try:
        return read(body)
    except (error, UnicodeDecodeError, OverflowError):
        return body


def date_of(epoch_s: int) -> datetime:
    """Return a time of messages or queues as a VT_DATE holds it: UTC."""
    return datetime.fromtimestamp(epoch_s, UTC)


def _vartype(value: Any) -> int:
    match value:
        case bool():
            return VT_BOOL
        case int():
            return VT_I4 if value in _I32 else VT_UI4
        case float():
            return VT_R8
        case Decimal():
            return VT_CY
        case datetime():
            return VT_DATE
        case str():
            return VT_BSTR
        case bytes() | bytearray() | memoryview():
            return VT_BYTES
        case PersistedObject():
            return VT_UNKNOWN
    raise _misfit(value)


def _misfit(value: Any) -> MqError:
    return MqError(E_INVALIDARG, f"E_INVALIDARG: {type(value).__name__} cannot be a message body")


def _from_object(value: PersistedObject) -> bytes:
    if len(value.clsid) != _CLSID_BYTES:
        raise ValueError(value.clsid)
    return value.clsid + value.data


def _to_object(body: bytes) -> PersistedObject | bytes:
    is_object = len(body) >= _CLSID_BYTES
    return PersistedObject(body[:_CLSID_BYTES], body[_CLSID_BYTES:]) if is_object else body


def _to_days(value: datetime) -> bytes:
    return _NUMBERS[VT_R8].pack((value - DATE_EPOCH) / _DAY)


def _from_days(body: bytes) -> datetime:
    return DATE_EPOCH + float(_NUMBERS[VT_R8].unpack(body)[0]) * _DAY


def _number_writer(layout: Struct) -> Callable[[Any], bytes]:
    return layout.pack


def _number_reader(layout: Struct) -> Callable[[bytes], Any]:
    return lambda body: layout.unpack(body)[0]


_WRITERS: Final[dict[int, Callable[[Any], bytes]]] = {
    # A BSTR is any 16-bit units: programs keep ciphertexts in them, which are half pairs.
    VT_BSTR: lambda value: value.encode("utf-16-le", "surrogatepass"),
    VT_BYTES: bytes,
    VT_UNKNOWN: _from_object,
    VT_DISPATCH: _from_object,
    VT_BOOL: lambda value: _BOOL.pack(_TRUE if value else 0),
    VT_CY: lambda value: _NUMBERS[VT_I8].pack(int(value * _CY_SCALE)),
    VT_DATE: _to_days,
    **{
        vartype: _number_writer(layout)
        for vartype, layout in _NUMBERS.items()
        if vartype not in (VT_I8, VT_UI8)
    },
}
_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    VT_EMPTY: lambda body: body or None,
    VT_STREAMED_OBJECT: _to_object,
    VT_BSTR: lambda body: body.decode("utf-16-le", "surrogatepass"),
    VT_LPSTR: lambda body: body.rstrip(b"\0").decode("utf-8"),
    VT_BOOL: lambda body: _BOOL.unpack(body)[0] != 0,
    VT_CY: lambda body: Decimal(_NUMBERS[VT_I8].unpack(body)[0]) / _CY_SCALE,
    VT_DATE: _from_days,
    **{vartype: _number_reader(layout) for vartype, layout in _NUMBERS.items()},
}

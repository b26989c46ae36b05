"""VARIANTs as Python values of the objects, and back [MC-MQAC 3.1.4.2, 3.17.4.1.22]."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from typing_extensions import override

from qm.client.mqac.variant import DATE_EPOCH, PersistedObject, Typed, TypedInt
from qm.rpc.dcom.automation.variant import SafeArray, Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, VarType
from qm.rpc.dcom.hresults import ComError, Hresult

_DAY: Final = timedelta(days=1)
_CY_SCALE: Final = 10_000
_TRUE: Final = 0xFFFF
_BASE: Final = ~(ARRAY | BYREF)
_BYTE_TYPES: Final = (VarType.UI1, VarType.I1)
_I32: Final = range(-(1 << 31), 1 << 31)
_U32_MODULUS: Final = 1 << 32
_U16_MODULUS: Final = 1 << 16
_VT_LPSTR: Final = 30
_BODY_NUMBERS: Final = frozenset(
    {
        VarType.I1,
        VarType.UI1,
        VarType.I2,
        VarType.UI2,
        VarType.I4,
        VarType.UI4,
        VarType.R4,
        VarType.R8,
    }
)
_TRANSACTION_NUMBERS: Final = frozenset(
    {
        VarType.I1,
        VarType.UI1,
        VarType.I2,
        VarType.UI2,
        VarType.I4,
        VarType.UI4,
        VarType.INT,
        VarType.UINT,
    }
)
_AS_UI8: Final = frozenset({"BytesInQueue", "BytesInJournal"})
_AS_I8: Final = frozenset({"BytesInAllQueues", "Handle2", "Handle"})
_STRINGS: Final = frozenset({"ActiveQueues", "PrivateQueues", "NextHops"})


class Missing:
    """An optional argument that was left out."""

    @override
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
Find = Callable[[bytes], Any]
"""Return the object of an OBJREF. Raises ComError."""


def settled_variant(variant: Variant | None) -> Variant:
    """Return the variant that one leads to: by reference, or nothing for a NULL pointer."""
    while variant is not None and variant.vt == BYREF | VarType.VARIANT:
        variant = variant.value
    return Variant() if variant is None else variant


def pointers_in(value: Any) -> Iterator[bytes]:
    """Yield the OBJREFs in an argument, by the vtable or in a variant."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, SafeArray):
        if value.vt in (VarType.UNKNOWN, VarType.DISPATCH, VarType.VARIANT):
            for one in value.items or ():
                yield from pointers_in(one)
    elif isinstance(value, Variant):
        yield from pointers_in(value.value)


def python_of(variant: Variant | None, find: Find) -> Any:
    """Return the value of an argument: MISSING for an omitted, empty or NULL one, None for a NULL
    interface pointer. Raises ComError.
    """
    variant = settled_variant(variant)
    vt, value = variant.vt, variant.value
    if vt & ARRAY:
        return _items(value, find)
    base = vt & _BASE
    if vt & BYREF and value is None and base not in (VarType.UNKNOWN, VarType.DISPATCH):
        return MISSING
    match base:
        case VarType.EMPTY | VarType.NULL:
            return MISSING
        case VarType.ERROR:
            return MISSING if value == Hresult.DISP_E_PARAMNOTFOUND else value
        case VarType.BSTR:
            return value or ""
        case VarType.BOOL:
            return value != 0
        case VarType.CY:
            return Decimal(value) / _CY_SCALE
        case VarType.DATE:
            return date_of_days(value)
        case VarType.UNKNOWN | VarType.DISPATCH:
            return None if value is None else find(value)
    return value


def _items(array: SafeArray | None, find: Find) -> Any:
    if array is None or array.items is None:
        return b""
    if array.vt in _BYTE_TYPES:
        return array.items
    if array.vt == VarType.VARIANT:
        return [python_of(one, find) for one in array.items]
    return [python_of(Variant(array.vt, one), find) for one in array.items]


def date_of_days(days: float) -> datetime:
    """Return the time of a VT_DATE. Raises ComError for one that is none."""
    try:
        return DATE_EPOCH + days * _DAY
    except (OverflowError, ValueError):
        raise ComError(Hresult.E_INVALIDARG, f"{days} is no date") from None


def transaction_of(variant: Variant | None, find: Find) -> Any:
    """Return a Transaction: an object or an MQTRANSACTION. Raises ComError E_INVALIDARG."""
    variant = settled_variant(variant)
    base = variant.vt & ~BYREF
    is_omitted = base in (VarType.EMPTY, VarType.NULL) or (
        base == VarType.ERROR and variant.value == Hresult.DISP_E_PARAMNOTFOUND
    )
    # AC-A56: the document has VT_I4 alone, but a script's literal is as wide as it needs to be.
    if not is_omitted and base != VarType.DISPATCH and base not in _TRANSACTION_NUMBERS:
        raise ComError(Hresult.E_INVALIDARG, f"VT {variant.vt:#x} cannot be a transaction")
    return python_of(variant, find)


def attached_of(variant: Variant | None, find: Find) -> Any:
    """Return what InitNew is given, None for what stands for no object of the caller's: an object
    that has a transaction already refuses that before it looks at its argument [3.9.4.2.1].

    Raises ComError.
    """
    try:
        value = python_of(variant, find)
    except ComError as error:
        if error.status != Hresult.E_INVALIDARG:  # no reference at all
            raise
        return None
    return None if value is MISSING else value


def body_of(variant: Variant | None) -> Any:
    """Return a value for Body, with the type that it was put with. Raises ComError E_INVALIDARG."""
    variant = settled_variant(variant)
    vt = variant.vt & ~BYREF
    if vt & ARRAY:
        array = variant.value
        if array is None or array.vt not in _BYTE_TYPES or len(array.bounds) != 1:
            raise ComError(Hresult.E_INVALIDARG, "a body is an array of bytes alone")
        return array.items or b""
    if vt in _BODY_NUMBERS and variant.value is not None:
        return Typed(vt, variant.value)
    if vt in (VarType.BSTR, VarType.BOOL, VarType.CY, VarType.DATE):
        return python_of(variant, _no_objects)
    # AC-A57: a server without COM cannot have foreign objects persist themselves.
    raise ComError(Hresult.E_INVALIDARG, f"VT {vt:#x} cannot be a body")


def _no_objects(raw: bytes) -> Any:
    raise ComError(Hresult.E_INVALIDARG, "no object is taken here")


def body_variant(body: bytes, vartype: int, value: Any) -> Variant:
    """Return Body: `value` is what the bytes mean in their type."""
    if vartype == VarType.EMPTY and not body:
        return Variant()
    if isinstance(value, PersistedObject | bytes):
        return array_of(VarType.UI1, body)
    if vartype == _VT_LPSTR:
        return Variant(VarType.BSTR, value)
    if vartype in (VarType.I8, VarType.UI8, *_BODY_NUMBERS):
        return Variant(vartype, value)
    return variant_of(value, _nothing_exported)


def _nothing_exported(target: Any) -> Variant:
    raise ComError(Hresult.E_UNEXPECTED, f"{type(target).__name__} in a body")


Export = Callable[[Any], Variant]
"""Return a variant that holds an interface pointer of an object."""


def variant_of(value: Any, export: Export, name: str = "") -> Variant:
    """Return a result as a variant; `name`: of the property, for its type."""
    match value:
        case None:
            return Variant()
        case bool():
            return Variant(VarType.BOOL, _TRUE if value else 0)
        case int():
            return _integer(value, name)
        case float():
            return Variant(VarType.R8, value)
        case Decimal():
            return Variant(VarType.CY, int(value * _CY_SCALE))
        case datetime():
            return Variant(VarType.DATE, (value - DATE_EPOCH) / _DAY)
        case str():
            return Variant(VarType.BSTR, value)
        case bytes():
            return array_of(VarType.UI1, value)
        case list():
            return _list(value, export, name)
    return export(value)


def _typed(value: TypedInt) -> Variant:
    # What is too large for VT_I4 is told by its bits.
    if value.vartype == VarType.I4:
        return Variant(VarType.I4, signed(value, _U32_MODULUS))
    return Variant(value.vartype, int(value))


def _integer(value: int, name: str) -> Variant:
    if isinstance(value, TypedInt):
        return _typed(value)
    value = int(value)  # an enumeration's, too
    if name in _AS_UI8:
        return Variant(VarType.UI8, value)
    if name in _AS_I8:
        return Variant(VarType.I8, signed(value, 1 << 64))
    if value in _I32:
        return Variant(VarType.I4, value)
    return Variant(VarType.UI4 if 0 <= value < _U32_MODULUS else VarType.UI8, value)


def _list(value: Sequence[Any], export: Export, name: str) -> Variant:
    if name in _STRINGS:
        return array_of(VarType.BSTR, list(value))
    return array_of(VarType.VARIANT, [variant_of(one, export) for one in value])


def signed(value: int, modulus: int) -> int:
    """Return an integer as a signed one of so many values."""
    value %= modulus
    return value - modulus if value >= modulus // 2 else value


def scalar_of(value: Any, idl_type: str) -> Any:
    """Return a result as an [out] parameter of a scalar type."""
    if value is None:
        return 0
    if idl_type.startswith("VARIANT_BOOL"):
        return -1 if value else 0
    modulus = _U16_MODULUS if idl_type.startswith("short") else _U32_MODULUS
    return signed(int(value), modulus)


class Misfit(Exception):
    """An argument that cannot be what a parameter wants."""


def fitted(value: Any, idl_type: str, default: Any) -> Any:
    """Return an argument as its parameter wants it; `default`: of an optional one.

    Raises Misfit.
    """
    try:
        return _fitted(value, idl_type, default)
    except (TypeError, ValueError, ArithmeticError):
        raise Misfit(f"{type(value).__name__} for {idl_type}") from None


def _fitted(value: Any, idl_type: str, default: Any) -> Any:
    if idl_type == "BSTR":
        return _text(value)
    if idl_type in ("long", "short", "DWORD", "ULONG", "HRESULT", "VARIANT_BOOL"):
        return int(value)
    if idl_type in ("VARIANT", "VARIANT*"):
        if isinstance(default, bool):
            return bool(_number(value))
        if isinstance(default, int):
            # A transaction, or a number: a time-out of -1 is INFINITE.
            if not isinstance(value, int | float | Decimal | str):
                return value
            number = int(value)
            return number % _U32_MODULUS if default >= _I32.stop else number
        if isinstance(value, Decimal | float):
            return int(value)
        return value
    is_plain = isinstance(value, int | float | str | bytes | Decimal | datetime | list)
    if is_plain and idl_type not in ("REFIID", "BOID*"):
        raise TypeError(idl_type)
    return value


def _number(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool | int | float | Decimal):
        return int(value)
    raise TypeError(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str | int | float | Decimal):
        return str(value)
    if value is None:
        return ""
    raise TypeError(value)

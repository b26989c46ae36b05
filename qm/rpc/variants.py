"""PROPVARIANT as a parameter [MS-MQMQ 2.2.13]: its tag is repeated, and elements start on 8."""

from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import (
    GUID,
    I16,
    I32,
    I64,
    SMALL,
    U8,
    U16,
    U32,
    U64,
    Array,
    ByteArray,
    Pending,
    Type,
    Unique,
    WideString,
    settle,
)
from qm.wire.enums import VarType

TEXT_MAX_CHARS: Final = 65_535
VECTOR_ELEMENTS_MAX: Final = 65_536
_ALIGNMENT: Final = 8
_TRUE: Final = 0xFFFF


class Variant(msgspec.Struct):
    """A value with its type: None, int, str, bytes, or a list of such or of variants."""

    kind: VarType
    value: Any = None


class VariantBool(Type[bool]):
    """VARIANT_BOOL [MS-MQMQ 2.2.14]."""

    alignment = 2
    size_min = 2

    @override
    def read(self, reader: Reader) -> bool:
        return U16.read(reader) != 0

    @override
    def write(self, writer: Writer, value: bool) -> None:
        U16.write(writer, _TRUE if value else 0)


_SCALARS: Final[dict[VarType, Type[Any]]] = {
    VarType.I2: I16,
    VarType.I4: I32,  # also in CAL, whose elements the text calls unsigned (MQ-A23)
    VarType.BOOL: VariantBool(),
    VarType.I1: SMALL,
    VarType.UI1: U8,
    VarType.UI2: U16,
    VarType.UI4: U32,
    VarType.I8: I64,
    VarType.UI8: U64,
    VarType.LPWSTR: Unique(WideString(TEXT_MAX_CHARS)),
    VarType.CLSID: Unique(GUID),
}
_EMPTY: Final = (VarType.EMPTY, VarType.NULL)


class PropVariantType(Type[Variant]):
    """PROPVARIANT; arms are as wide as they are (RP-A26)."""

    alignment = _ALIGNMENT
    size_min = 10

    @override
    def read(self, reader: Reader) -> Variant:
        reader.align(_ALIGNMENT)
        number = U16.read(reader)
        U8.read(reader), U8.read(reader), U32.read(reader)
        tag = U16.read(reader)
        if tag != number:
            raise BadStub(f"a PROPVARIANT of type {number:04X} with the arm of {tag:04X}")
        try:
            found = Variant(VarType(number))
        except ValueError:
            raise BadStub(f"{number:04X} is not a type of PROPVARIANT") from None
        if found.kind in _EMPTY:
            return found
        scalar = _SCALARS.get(found.kind)
        if scalar is not None:
            value = scalar.read(reader)
        else:
            value = self._read_counted(reader, found.kind)
        found.value = value
        settle(reader, value, partial(setattr, found, "value"))
        return found

    def _read_counted(self, reader: Reader, kind: VarType) -> Any:
        count = U32.read(reader)
        target = _target(kind)
        if target is None:
            raise BadStub(f"{kind:04X} is not a type by itself")
        pointer = Unique(target).read(reader)
        if pointer is None and count:
            raise BadStub(f"a NULL array of {count} elements")
        if isinstance(pointer, Pending):
            return Pending(_Counted(target, count))
        return b"" if kind is VarType.BLOB else []

    @override
    def write(self, writer: Writer, value: Variant) -> None:
        writer.align(_ALIGNMENT)
        U16.write(writer, value.kind)
        U8.write(writer, 0)
        U8.write(writer, 0)
        U32.write(writer, 0)
        U16.write(writer, value.kind)
        if value.kind in _EMPTY:
            return
        scalar = _SCALARS.get(value.kind)
        if scalar is not None:
            scalar.write(writer, value.value)
            return
        target = _target(value.kind)
        assert target is not None, value.kind
        U32.write(writer, len(value.value))
        Unique(target).write(writer, value.value)


class _Counted(Type[Any]):
    """An array whose count stands beside its pointer, and must agree."""

    alignment = 4

    def __init__(self, target: Type[Any], count: int) -> None:
        self._target, self._count = target, count

    @override
    def read(self, reader: Reader) -> Any:
        found = self._target.read(reader)
        if len(found) != self._count:
            raise BadStub(f"an array of {len(found)} elements that should have {self._count}")
        return found


PROPVARIANT: Final = PropVariantType()


def _target(kind: VarType) -> Type[Any] | None:
    """Return what a counted type points to."""
    if kind is VarType.BLOB or kind == VarType.VECTOR_UI1:
        return ByteArray()
    if not kind & VarType.VECTOR:
        return None
    inner = VarType(kind & ~VarType.VECTOR)
    if inner is VarType.VARIANT:
        return Array(PROPVARIANT, VECTOR_ELEMENTS_MAX)
    element = GUID if inner is VarType.CLSID else _SCALARS.get(inner)
    return None if element is None else Array(element, VECTOR_ELEMENTS_MAX)

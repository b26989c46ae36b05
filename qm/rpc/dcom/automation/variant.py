"""VARIANT, BSTR and SAFEARRAY as NDR carries them [MS-OAUT 2.2.23, 2.2.29, 2.2.30].

Nesting is bounded by the reader, which follows 16 pointers and no more: a variant by reference is
behind two, an array behind three.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from struct import Struct
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.automation.vartypes import (
    ARRAY,
    BYREF,
    FEATURES,
    POINTERS,
    SF_BY_SIZE,
    SF_HAVE_IID,
    SHAPES,
    Feature,
    VarType,
)
from qm.rpc.dcom.limits import DIMENSIONS_MAX, ELEMENTS_MAX, STRING_MAX_CHARS
from qm.rpc.dcom.runtime.orpc import INTERFACE, POINTER
from qm.rpc.ndr.streams import BadStub, Readable, Reader, Writer
from qm.rpc.ndr.types import BYTES, GUID, Array, Pending, Type, Unique, settle

_NULL_STRING: Final = 0xFFFF_FFFF
_UNIT_BYTES: Final = 2
_HEAD: Final = Struct("<IIHHHHI")
"""clSize, rpcReserved, vt, three reserved, the union's tag."""
_HEAD_BYTES: Final = _HEAD.size
_QUAD_BYTES: Final = 8
_QUADS_MIN: Final = 2
_DECIMAL: Final = Struct("<HBBIQ")
_DECIMAL_NEGATIVE: Final = 0x80
_DECIMAL_SCALE_MAX: Final = 28
_ARRAY_HEAD: Final = Struct("<HHIII")
_BOUND: Final = Struct("<Ii")
_TAGGED_BYTES: Final = 0x11
"""Tag of bytes by writers that take VT_UI1 for SF_I1."""


class Variant(msgspec.Struct):
    """A value with its VARTYPE; one by reference has the VARTYPE's bit, and the value itself.

    BSTR: text or None. CY: units of 1/10,000. DATE: days. BOOL: 0 or 0xFFFF. DECIMAL: Decimal.
    DISPATCH and UNKNOWN: bytes of an OBJREF, or None. Arrays: a SafeArray. VARIANT: a Variant.
    """

    vt: int = VarType.EMPTY
    value: Any = None


class SafeArray(msgspec.Struct):
    """An array of `vt`: bytes for VT_UI1 and VT_I1, else a list in memory order."""

    vt: int
    items: Any
    bounds: list[tuple[int, int]]
    """Of each dimension, the last one first: number of elements, lower bound."""


class _StringBlob(Type[str | None]):
    """FLAGGED_WORD_BLOB."""

    alignment = 4
    size_min = 12

    @override
    def read(self, reader: Reader) -> str | None:
        count, size, units = reader.u32(), reader.u32(), reader.u32()
        if count != units or units > STRING_MAX_CHARS:
            raise BadStub(f"a BSTR of {units} units in an array of {count}")
        raw = reader.take(units * _UNIT_BYTES)
        if size == _NULL_STRING and not units:
            return None
        return raw.decode("utf-16-le", "surrogatepass")

    @override
    def write(self, writer: Writer, value: str | None) -> None:
        raw = (value or "").encode("utf-16-le", "surrogatepass")
        units = len(raw) // _UNIT_BYTES
        for number in (units, _NULL_STRING if value is None else len(raw), units):
            writer.u32(number)
        writer.put(raw)


STRING_BLOB: Final = _StringBlob()
BSTR: Final = Unique(STRING_BLOB)
"""A BSTR; NULL either as a pointer or as a blob without text."""


class _Little(Type[Any]):
    """A scalar that is little-endian whatever the PDU says."""

    def __init__(self, shape: Struct) -> None:
        self._shape = shape
        self.alignment = self.size_min = shape.size

    @override
    def read(self, reader: Reader) -> Any:
        return reader.unpack(self._shape)

    @override
    def write(self, writer: Writer, value: Any) -> None:
        writer.pack(self._shape, value)

    @override
    def read_each(self, reader: Reader, count: int) -> list[Any]:
        return reader.unpack_each(self._shape, count)

    @override
    def write_each(self, writer: Writer, values: Sequence[Any]) -> None:
        writer.pack_each(self._shape, values)


class _Decimal(Type[Decimal]):
    """DECIMAL: a 96-bit integer, a power of ten, a sign [MS-OAUT 2.2.26]."""

    alignment = 8
    size_min = 16

    @override
    def read(self, reader: Reader) -> Decimal:
        reader.align(self.alignment)
        _, scale, sign, high, low = _DECIMAL.unpack(reader.take(_DECIMAL.size))
        if scale > _DECIMAL_SCALE_MAX:
            raise BadStub(f"a DECIMAL of {scale} places")
        digits = tuple(map(int, str(high << 64 | low)))
        return Decimal((int(bool(sign & _DECIMAL_NEGATIVE)), digits, -scale))

    @override
    def write(self, writer: Writer, value: Decimal) -> None:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
        writer.align(self.alignment)
        scale, high = max(-exponent, 0), number >> 64
        mark = _DECIMAL_NEGATIVE if sign else 0
        writer.put(_DECIMAL.pack(0, scale, mark, high, number & 0xFFFF_FFFF_FFFF_FFFF))


_LITTLE: Final = {vartype: _Little(shape) for vartype, shape in SHAPES.items()}


class WireVariant(Type[Variant]):
    """_wireVARIANT."""

    alignment = 8
    size_min = _HEAD_BYTES

    @override
    def read(self, reader: Reader) -> Variant:
        reader.align(self.alignment)
        size, _, vt, _, _, _, tag = _HEAD.unpack(reader.take(_HEAD_BYTES))
        if size < _QUADS_MIN:
            raise BadStub(f"a VARIANT of {size} quad words")
        if tag != _tag(vt):
            raise BadStub(f"a VARIANT of type {vt:#x} whose union says {tag:#x}")
        found = Variant(vt)
        one = _arm(vt)
        if one is not None:
            reader.align(one.alignment)
            value = one.read(reader)
            found.value = value
            settle(reader, value, partial(setattr, found, "value"))
        return found

    @override
    def write(self, writer: Writer, value: Variant) -> None:
        writer.align(self.alignment)
        vt = value.vt
        begin = len(writer.raw)
        writer.put(_HEAD.pack(0, 0, vt, 0, 0, 0, _tag(vt)))
        one = _arm(vt)
        if one is None:
            self._measure(writer, begin)
            return
        writer.align(one.alignment)
        one.write(writer, value.value)
        # The size counts what its pointers lead to.
        writer.flush()
        self._measure(writer, begin)

    def _measure(self, writer: Writer, begin: int) -> None:
        """Fill in the size of the variant that began at `begin` and ends here."""
        quads = (len(writer.raw) - begin + _QUAD_BYTES - 1) // _QUAD_BYTES
        writer.raw[begin : begin + 4] = max(quads, _QUADS_MIN + 1).to_bytes(4, "little")


WIRE_VARIANT: Final = WireVariant()


class VariantPointer(Type[Variant | None]):
    """VARIANT: a unique pointer; some clients write the value without one (RP-A23)."""

    alignment = 4
    size_min = 4

    @override
    def read(self, reader: Reader) -> Any:
        begin = reader.at
        referent = reader.u32()
        if not referent:
            return None
        # A pointer, read as the size of a variant, ends far behind the bytes.
        if _looks_like_variant(reader.raw, begin) and _fits(reader.raw, begin):
            reader.at = begin
            return WIRE_VARIANT.read(reader)
        return Pending(WIRE_VARIANT)

    @override
    def write(self, writer: Writer, value: Variant | None) -> None:
        if value is None:
            writer.u32(0)
        else:
            writer.point(WIRE_VARIANT, value)


def _looks_like_variant(raw: bytes, at: int) -> bool:
    """Whether a variant may begin here: nothing reserved is set, and its two types agree."""
    at += -at % _QUAD_BYTES
    if at + _HEAD_BYTES > len(raw):
        return False
    size, reserved, vt, _, _, _, tag = _HEAD.unpack_from(raw, at)
    return size >= _QUADS_MIN and not reserved and tag == _tag(vt)


def _fits(raw: bytes, at: int) -> bool:
    """Whether the size of a variant that begins here ends within the bytes, or a little behind."""
    at += -at % _QUAD_BYTES
    size = int.from_bytes(raw[at : at + 4], "little")
    return size * _QUAD_BYTES <= len(raw) - at + _HEAD_BYTES - 1


def _tag(vt: int) -> int:
    """Return the union's tag of a type: all arrays share one."""
    return vt & (ARRAY | BYREF) if vt & ARRAY else vt


VARIANT: Final = VariantPointer()
NESTED_VARIANT: Final = Unique(WIRE_VARIANT)
"""Within other structures: always behind a pointer."""


class _Array(Type[SafeArray]):
    """SAFEARRAY: bounds of its dimensions stand last and count first."""

    alignment = 4
    size_min = 24

    @override
    def read(self, reader: Reader) -> SafeArray:
        count = reader.u32()
        dimensions, features, size, locks, tag = _ARRAY_HEAD.unpack(reader.take(_ARRAY_HEAD.size))
        if count != dimensions or not 1 <= count <= DIMENSIONS_MAX:
            raise BadStub(f"an array of {dimensions} dimensions")
        tag = VarType.I1 if tag == _TAGGED_BYTES else tag
        vartype = locks >> 16 if features & Feature.HAVE_VARTYPE else 0
        found = SafeArray(vartype or _default_vartype(tag, size), None, [])
        element = _elements(tag, found.vt)
        length = reader.u32()
        if length > ELEMENTS_MAX and element is not BYTES:
            raise BadStub(f"an array of {length} elements; {ELEMENTS_MAX} are allowed")
        found.items = b"" if element is BYTES else []
        if reader.u32():
            reader.defer(_Sized(element, length), partial(setattr, found, "items"))
        elif length:
            raise BadStub(f"an array of {length} elements without any")
        if tag == SF_HAVE_IID:
            GUID.read(reader)
        found.bounds = [_BOUND.unpack(reader.take(_BOUND.size)) for _ in range(count)]
        total = 1
        for elements, _ in found.bounds:
            total *= elements
        if total != length:
            raise BadStub(f"bounds for {total} elements around {length}")
        return found

    @override
    def write(self, writer: Writer, value: SafeArray) -> None:
        tag, size = _tag_of(value.vt)
        features = Feature.HAVE_VARTYPE | FEATURES.get(VarType(value.vt), Feature(0))
        writer.u32(len(value.bounds))
        writer.put(_ARRAY_HEAD.pack(len(value.bounds), features, size, value.vt << 16, tag))
        writer.u32(len(value.items))
        writer.point(_elements(tag, value.vt), value.items)
        for bound in value.bounds:
            writer.put(_BOUND.pack(*bound))


class _Pointed(Type[Any]):
    """A pointer that is itself pointed to: what it leads to follows at once."""

    alignment = 4
    size_min = 4

    def __init__(self, target: Type[Any]) -> None:
        self._target = target

    @override
    def read(self, reader: Reader) -> Any:
        return self._target.read(reader) if reader.u32() else None

    @override
    def write(self, writer: Writer, value: Any) -> None:
        if value is None:
            writer.u32(0)
        else:
            writer.point(self._target, value)


class _Sized(Readable):
    """The elements of an array, of which the array says how many there are."""

    def __init__(self, element: Type[Any], length: int) -> None:
        self._element, self._length = element, length

    @override
    def read(self, reader: Reader) -> Any:
        if reader.u32() != self._length:
            raise BadStub("an array whose elements are not as many as it says")
        return self._element.read_counted(reader, self._length)


def _default_vartype(tag: int, size: int) -> int:
    if tag == SF_HAVE_IID:
        return VarType.UNKNOWN
    unsigned = {VarType.I1: VarType.UI1}
    found = unsigned.get(VarType(tag), tag) if tag in VarType._value2member_map_ else tag
    if found not in VarType._value2member_map_ or not size:
        raise BadStub(f"an array of type {tag:#x} with elements of {size} bytes")
    return found


def _tag_of(vartype: int) -> tuple[int, int]:
    """Return discriminant and element size of an array."""
    if vartype in POINTERS:
        return vartype, 16 if vartype == VarType.VARIANT else 4
    size = SHAPES[vartype].size
    return SF_BY_SIZE[size], size


def _elements(tag: int, vartype: int) -> Type[Any]:
    if tag == VarType.I1:
        return BYTES
    if tag == VarType.BSTR:
        return _BSTRS
    if tag == VarType.VARIANT:
        return _VARIANTS
    if tag in (VarType.UNKNOWN, VarType.DISPATCH, SF_HAVE_IID):
        return _INTERFACES
    shape = SHAPES.get(vartype)
    if shape is None or SF_BY_SIZE.get(shape.size) != tag:
        raise BadStub(f"an array of {vartype:#x} whose union says {tag:#x}")
    return _NUMBERS[vartype]


_BSTRS: Final = Array(BSTR)
_VARIANTS: Final = Array(NESTED_VARIANT)
_INTERFACES: Final = Array(INTERFACE)
_NUMBERS: Final = {vartype: Array(one) for vartype, one in _LITTLE.items()}
_ARRAY: Final = _Array()
_PARRAY: Final = Unique(_Pointed(_ARRAY))
VARIANT_REFERENCE: Final = Unique(_Pointed(WIRE_VARIANT))
"""VARIANT* within structures: a pointer to what is a pointer itself."""
_DECIMAL_TYPE: Final = _Decimal()
_BY_VALUE: Final[dict[int, Type[Any] | None]] = {
    VarType.EMPTY: None,
    VarType.NULL: None,
    VarType.BSTR: BSTR,
    VarType.UNKNOWN: INTERFACE,
    VarType.DISPATCH: INTERFACE,
    VarType.DECIMAL: _DECIMAL_TYPE,
    **_LITTLE,
}
_BY_REFERENCE: Final[dict[int, Type[Any]]] = {
    **{vartype: Unique(one) for vartype, one in _LITTLE.items()},
    VarType.DECIMAL: Unique(_DECIMAL_TYPE),
    VarType.BSTR: Unique(_Pointed(STRING_BLOB)),
    VarType.UNKNOWN: Unique(_Pointed(POINTER)),
    VarType.DISPATCH: Unique(_Pointed(POINTER)),
    VarType.VARIANT: VARIANT_REFERENCE,
}


def _arm(vt: int) -> Type[Any] | None:
    """Return the type of a variant's value; None for one without. Raises BadStub."""
    base = vt & ~(ARRAY | BYREF)
    if vt & ARRAY:
        if base not in _ELEMENT_TYPES:
            raise BadStub(f"a VARIANT of type {vt:#x}")
        return _ARRAY_BY_REFERENCE if vt & BYREF else _PARRAY
    table: dict[int, Any] = _BY_REFERENCE if vt & BYREF else _BY_VALUE
    if base not in table:
        raise BadStub(f"a VARIANT of type {vt:#x}")
    found: Type[Any] | None = table[base]
    return found


_ARRAY_BY_REFERENCE: Final = Unique(_Pointed(_Pointed(_ARRAY)))
_ELEMENT_TYPES: Final = SHAPES.keys() | POINTERS
"""Of which arrays may be."""


def array_of(vartype: int, items: Any) -> Variant:
    """Return a variant of a one-dimensional array that begins at 0."""
    return Variant(ARRAY | vartype, SafeArray(vartype, items, [(len(items), 0)]))

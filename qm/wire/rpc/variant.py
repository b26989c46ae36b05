"""PROPVARIANT [MS-MQMQ 2.2.13], counted arrays [2.2.16], VARIANT_BOOL [2.2.14] and BLOB [2.2.15].

In an RPC call a PROPVARIANT is NDR: the 8 bytes below, the union's discriminant again, and pointers
for CLSID, LPWSTR, BLOB and every array (`qm.rpc.variants`). These bytes are the storage form, and
are not sent to peers:

    u16 vt, u8 wReserved1, u8 wReserved2, u32 wReserved3    as in the section, little-endian
    then the union's arm, unpadded:
      scalars and VARIANT_BOOL   at their own width
      CLSID                      16 raw bytes
      BLOB, arrays, strings      as `qm.wire.rpc.counted` lays them out; a CAPROPVARIANT's elements
                                 are PROPVARIANTs of this form
"""

from struct import Struct, error, pack, unpack_from
from typing import Any, Final, Protocol

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, take, truncated
from qm.wire.enums import VarType
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.rpc.counted import (
    parse_count,
    parse_counted_bytes,
    parse_counted_text,
    write_count,
    write_counted_bytes,
    write_counted_text,
)

_HEAD: Final = Struct("<HBBI")
_SECTION: Final = "MS-MQMQ 2.2.13.1"
_SECTION_BOOL: Final = "MS-MQMQ 2.2.14"
_SECTION_TYPES: Final = "MS-MQMQ 2.2.12"

VARIANT_TRUE: Final = b"\xff\xff"
VARIANT_FALSE: Final = b"\x00\x00"

VARIANT_ELEMENTS_MAX: Final = 0x1_0000
"""Array elements in one PROPVARIANT, including those of nested ones but not the bytes of a CAUB; no
number is specified, and each element costs many times its bytes in memory."""
VARIANT_DEPTH_MAX: Final = 8
"""Nesting depth of PROPVARIANTs; the properties of MS-MQMQ need 3."""

VariantValue = (
    bool
    | int
    | str
    | bytes
    | tuple[int, ...]
    | tuple[str, ...]
    | tuple[bytes, ...]
    | tuple["PropVariant", ...]
    | None
)


class PropVariant(msgspec.Struct, frozen=True, gc=False):
    """A value with its type."""

    vartype: VarType
    """One of the legal types; VECTOR and VARIANT only combined."""
    value: VariantValue = None
    """EMPTY, NULL: None. BOOL: bool. I1..UI8: int. LPWSTR: str. BLOB: bytes. CLSID: 16 raw bytes.
    VECTOR_UI1: bytes. Other arrays: a tuple of int, str, 16 raw bytes or PropVariant."""


class _Scope:
    """Usage of the limits by one PROPVARIANT, with everything inside it."""

    __slots__ = ("depth", "elements")

    def __init__(self) -> None:
        self.depth = 0
        self.elements = 0


class _Arm(Protocol):
    """One arm of the union: how its value is read and written.

    Each arm has values of its own; `write` refuses any other with `ValueOutOfRange`.
    """

    def parse(self, buffer: Buffer, offset: int, end: int, scope: _Scope) -> tuple[Any, int]: ...

    def write(self, value: object, scope: _Scope) -> bytes: ...


def parse_variant_bool(buffer: Buffer, offset: int, end: int) -> tuple[bool, int]:
    """Read a VARIANT_BOOL; any nonzero value is true."""
    stop = offset + len(VARIANT_TRUE)
    if stop > end:
        raise truncated(offset, len(VARIANT_TRUE), end, "VARIANT_BOOL", _SECTION_BOOL)
    return take(buffer, offset, stop) != VARIANT_FALSE, stop


def write_variant_bool(value: bool) -> bytes:
    """Return the two bytes of a VARIANT_BOOL: 0xFFFF or 0x0000."""
    return VARIANT_TRUE if value else VARIANT_FALSE


def parse_propvariant(buffer: Buffer, offset: int, end: int) -> tuple[PropVariant, int]:
    """Read one PROPVARIANT in the storage form above; reserved bytes are ignored."""
    return _parse(buffer, offset, end, _Scope())


def write_propvariant(variant: PropVariant) -> bytes:
    """Return the storage form of a PROPVARIANT, reserved bytes zero."""
    return _write(variant, _Scope())


def _parse(buffer: Buffer, offset: int, end: int, scope: _Scope) -> tuple[PropVariant, int]:
    start = offset + _HEAD.size
    if start > end:
        raise truncated(offset, _HEAD.size, end, "PROPVARIANT", _SECTION)
    number: int = _HEAD.unpack_from(buffer, offset)[0]
    arm = _ARMS.get(number)
    if arm is None:
        raise ProtocolError(
            offset, "PROPVARIANT.vt", _SECTION_TYPES, f"0x{number:04X} is not a PROPVARIANT type"
        )
    if scope.depth == VARIANT_DEPTH_MAX:
        raise ProtocolError(
            offset, "PROPVARIANT", _SECTION, f"nested deeper than {VARIANT_DEPTH_MAX}"
        )
    scope.depth += 1
    value, stop = arm.parse(buffer, start, end, scope)
    scope.depth -= 1
    return PropVariant(VarType(number), value), stop


def _write(variant: PropVariant, scope: _Scope) -> bytes:
    arm = _ARMS.get(variant.vartype)
    if arm is None:
        raise ValueOutOfRange(
            "PROPVARIANT.vt", _SECTION_TYPES, f"0x{variant.vartype:04X} is not a type by itself"
        )
    if scope.depth == VARIANT_DEPTH_MAX:
        raise ValueOutOfRange("PROPVARIANT", _SECTION, f"nested deeper than {VARIANT_DEPTH_MAX}")
    scope.depth += 1
    body = arm.write(variant.value, scope)
    scope.depth -= 1
    return _HEAD.pack(variant.vartype, 0, 0, 0) + body


def _mismatch(field: str, section: str, value: object) -> ValueOutOfRange:
    return ValueOutOfRange(field, section, f"a {type(value).__name__} is not a value of this type")


class _Nothing:
    """EMPTY and NULL: no data."""

    def parse(self, _buffer: Buffer, offset: int, _end: int, _scope: _Scope) -> tuple[None, int]:
        return None, offset

    def write(self, value: object, _scope: _Scope) -> bytes:
        if value is not None:
            raise _mismatch("PROPVARIANT", _SECTION_TYPES, value)
        return b""


class _Number:
    """An integer of a fixed width."""

    def __init__(self, field: str, layout: str) -> None:
        self._field = field
        self._layout = Struct(layout)

    def parse(self, buffer: Buffer, offset: int, end: int, _scope: _Scope) -> tuple[int, int]:
        stop = offset + self._layout.size
        if stop > end:
            raise truncated(offset, self._layout.size, end, self._field, _SECTION)
        (value,) = self._layout.unpack_from(buffer, offset)
        return value, stop

    def write(self, value: object, _scope: _Scope) -> bytes:
        try:
            return self._layout.pack(value)
        except error as fault:
            raise ValueOutOfRange(self._field, _SECTION, str(fault)) from None


class _Boolean:
    """VARIANT_BOOL."""

    def parse(self, buffer: Buffer, offset: int, end: int, _scope: _Scope) -> tuple[bool, int]:
        return parse_variant_bool(buffer, offset, end)

    def write(self, value: object, _scope: _Scope) -> bytes:
        if not isinstance(value, bool):
            raise _mismatch("VARIANT_BOOL", _SECTION_BOOL, value)
        return write_variant_bool(value)


class _Clsid:
    """A GUID."""

    def parse(self, buffer: Buffer, offset: int, end: int, _scope: _Scope) -> tuple[bytes, int]:
        stop = offset + GUID_SIZE_BYTES
        if stop > end:
            raise truncated(offset, GUID_SIZE_BYTES, end, "PROPVARIANT.puuid", _SECTION)
        return take(buffer, offset, stop), stop

    def write(self, value: object, _scope: _Scope) -> bytes:
        if not isinstance(value, bytes) or len(value) != GUID_SIZE_BYTES:
            raise _mismatch("PROPVARIANT.puuid", _SECTION, value)
        return value


class _Bytes:
    """A BLOB, or an array of unsigned characters."""

    def __init__(self, field: str, section: str) -> None:
        self._field = field
        self._section = section

    def parse(self, buffer: Buffer, offset: int, end: int, _scope: _Scope) -> tuple[bytes, int]:
        return parse_counted_bytes(buffer, offset, end, self._field, self._section)

    def write(self, value: object, _scope: _Scope) -> bytes:
        if not isinstance(value, bytes):
            raise _mismatch(self._field, self._section, value)
        return write_counted_bytes(value, self._field, self._section)


class _Text:
    """A NUL-terminated string."""

    def parse(self, buffer: Buffer, offset: int, end: int, _scope: _Scope) -> tuple[str, int]:
        return parse_counted_text(buffer, offset, end, "PROPVARIANT.pwszVal", _SECTION)

    def write(self, value: object, _scope: _Scope) -> bytes:
        if not isinstance(value, str):
            raise _mismatch("PROPVARIANT.pwszVal", _SECTION, value)
        return write_counted_text(value, "PROPVARIANT.pwszVal", _SECTION)


class _Array:
    """Common part of the counted arrays: a count that is charged to the limits."""

    def __init__(self, field: str, section: str, element_size: int) -> None:
        self._field = field
        self._section = section
        self._element_size = element_size

    def _open(self, buffer: Buffer, offset: int, end: int, scope: _Scope) -> tuple[int, int]:
        count, start = parse_count(
            buffer, offset, end, self._element_size, self._field, self._section
        )
        scope.elements += count
        if scope.elements > VARIANT_ELEMENTS_MAX:
            raise ProtocolError(
                offset,
                self._field,
                self._section,
                f"more than {VARIANT_ELEMENTS_MAX} elements in one PROPVARIANT",
            )
        return count, start

    def _begin(self, value: object, scope: _Scope) -> tuple[bytes, tuple[object, ...]]:
        if not isinstance(value, tuple):
            raise _mismatch(self._field, self._section, value)
        scope.elements += len(value)
        if scope.elements > VARIANT_ELEMENTS_MAX:
            raise ValueOutOfRange(
                self._field,
                self._section,
                f"more than {VARIANT_ELEMENTS_MAX} elements in one PROPVARIANT",
            )
        return write_count(len(value), self._field, self._section), value


class _NumberArray(_Array):
    """CAUI, CAL, CAUL and CAUH."""

    def __init__(self, field: str, section: str, code: str) -> None:
        super().__init__(field, section, Struct(f"<{code}").size)
        self._code = code

    def parse(
        self, buffer: Buffer, offset: int, end: int, scope: _Scope
    ) -> tuple[tuple[int, ...], int]:
        count, start = self._open(buffer, offset, end, scope)
        numbers = unpack_from(f"<{count}{self._code}", buffer, start)
        return numbers, start + count * self._element_size

    def write(self, value: object, scope: _Scope) -> bytes:
        head, numbers = self._begin(value, scope)
        try:
            return head + pack(f"<{len(numbers)}{self._code}", *numbers)
        except error as fault:
            raise ValueOutOfRange(self._field, self._section, str(fault)) from None


class _ElementArray(_Array):
    """CACLSID, CALPWSTR and CAPROPVARIANT: arrays whose elements are arms of their own."""

    def __init__(self, field: str, section: str, element_size: int, element: _Arm) -> None:
        super().__init__(field, section, element_size)
        self._element = element

    def parse(
        self, buffer: Buffer, offset: int, end: int, scope: _Scope
    ) -> tuple[tuple[Any, ...], int]:
        count, at = self._open(buffer, offset, end, scope)
        elements = []
        for _ in range(count):
            element, at = self._element.parse(buffer, at, end, scope)
            elements.append(element)
        return tuple(elements), at

    def write(self, value: object, scope: _Scope) -> bytes:
        head, elements = self._begin(value, scope)
        return head + b"".join(self._element.write(element, scope) for element in elements)


class _Nested:
    """A PROPVARIANT as the element of an array."""

    def parse(
        self, buffer: Buffer, offset: int, end: int, scope: _Scope
    ) -> tuple[PropVariant, int]:
        return _parse(buffer, offset, end, scope)

    def write(self, value: object, scope: _Scope) -> bytes:
        if not isinstance(value, PropVariant):
            raise _mismatch("CAPROPVARIANT.pElems", "MS-MQMQ 2.2.16.8", value)
        return _write(value, scope)


# Every arm of tag_inner_PROPVARIANT; other types are not PROPVARIANT types.
_ARMS: Final[dict[int, _Arm]] = {
    VarType.EMPTY: _Nothing(),
    VarType.NULL: _Nothing(),
    VarType.I1: _Number("PROPVARIANT.cVal", "<b"),
    VarType.UI1: _Number("PROPVARIANT.bVal", "<B"),
    VarType.I2: _Number("PROPVARIANT.iVal", "<h"),
    VarType.UI2: _Number("PROPVARIANT.uiVal", "<H"),
    VarType.I4: _Number("PROPVARIANT.lVal", "<i"),
    VarType.UI4: _Number("PROPVARIANT.ulVal", "<I"),
    VarType.I8: _Number("PROPVARIANT.hVal", "<q"),
    VarType.UI8: _Number("PROPVARIANT.uhVal", "<Q"),
    VarType.BOOL: _Boolean(),
    VarType.CLSID: _Clsid(),
    VarType.BLOB: _Bytes("BLOB", "MS-MQMQ 2.2.15"),
    VarType.LPWSTR: _Text(),
    VarType.VECTOR_UI1: _Bytes("CAUB", "MS-MQMQ 2.2.16.1"),
    VarType.VECTOR_UI2: _NumberArray("CAUI", "MS-MQMQ 2.2.16.2", "H"),
    # CAL's elements are called unsigned and declared long (MQ-A23).
    VarType.VECTOR_I4: _NumberArray("CAL", "MS-MQMQ 2.2.16.3", "i"),
    VarType.VECTOR_UI4: _NumberArray("CAUL", "MS-MQMQ 2.2.16.4", "I"),
    VarType.VECTOR_UI8: _NumberArray("CAUH", "MS-MQMQ 2.2.16.5", "Q"),
    VarType.VECTOR_CLSID: _ElementArray("CACLSID", "MS-MQMQ 2.2.16.6", GUID_SIZE_BYTES, _Clsid()),
    # The shortest string is a count and a NUL, the shortest PROPVARIANT its 8 bytes.
    VarType.VECTOR_LPWSTR: _ElementArray("CALPWSTR", "MS-MQMQ 2.2.16.7", 6, _Text()),
    VarType.VECTOR_VARIANT: _ElementArray(
        "CAPROPVARIANT", "MS-MQMQ 2.2.16.8", _HEAD.size, _Nested()
    ),
}

"""BinaryMessageFormatter: one value in the binary format of .NET remoting, [MS-NRBF].

Texts, primitives, decimals, times and byte arrays only. Object graphs are never read: making
objects of what a stranger sent is how programs are taken over.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct, error
from types import MappingProxyType
from typing import Any, Final

from typing_extensions import override

from qm.client.formatters.formatter import FormatError, Formatter

BODY_TYPE: Final = 0x300
_HEADER: Final = Struct("<Biiii")
"""SerializationHeaderRecord: 2.6.1."""
_I32: Final = Struct("<i")
_ROOT: Final = 1
_HEADER_RECORD, _SYSTEM_CLASS, _STRING, _END, _PRIMITIVES = 0, 4, 6, 11, 15
"""RecordTypeEnumeration, 2.1.2.1."""
_NULL: Final = 10
_PRIMITIVE: Final = 0
"""BinaryTypeEnumeration, 2.1.2.2."""
_BOOLEAN, _BYTE, _DOUBLE, _INT32, _INT64, _UINT64 = 1, 2, 6, 8, 9, 16
"""PrimitiveTypeEnumeration, 2.1.2.3."""
_NUMBERS: Final[Mapping[int, Struct]] = MappingProxyType(
    {
        _BOOLEAN: Struct("<?"),
        _BYTE: Struct("<B"),
        _DOUBLE: Struct("<d"),
        7: Struct("<h"),
        _INT32: _I32,
        _INT64: Struct("<q"),
        10: Struct("<b"),
        11: Struct("<f"),
        14: Struct("<H"),
        15: Struct("<I"),
        _UINT64: Struct("<Q"),
    }
)
_LENGTH_MAX_BYTES: Final = 5
_MEMBERS_MAX: Final = 16
_EPOCH: Final = datetime(1, 1, 1)  # noqa: DTZ001  # ticks carry their kind beside them
_KIND_SHIFT: Final = 62
_KIND_UTC: Final = 1
_SCALE_MAX: Final = 28
_SIGN: Final = 0x8000_0000
_DECIMAL_BITS: Final = 96
_VALUE: Final = "m_value"


class BinaryFormatter(Formatter):
    """str, bool, int, float, Decimal, datetime and bytes."""

    @override
    def write(self, value: Any) -> tuple[bytes, int]:
        record = _record(value)
        head = _HEADER.pack(_HEADER_RECORD, _ROOT, -1, 1, 0)
        return head + record + bytes([_END]), BODY_TYPE

    @override
    def read_body(self, body: bytes, body_type: int) -> Any:
        reader = _Reader(body)
        try:
            return reader.message()
        except (error, IndexError):
            raise FormatError(f"the body ends after {len(body)} bytes, in a record") from None
        except FormatError:
            raise
        except (OverflowError, ValueError) as wrong:
            raise FormatError(f"the body is not as [MS-NRBF] has it: {wrong}") from None


def _record(value: Any) -> bytes:
    """Return the root's record. Raises FormatError."""
    match value:
        case None:
            return bytes([_NULL])
        case str():
            return bytes([_STRING]) + _I32.pack(_ROOT) + _text(value)
        case bool():
            return _boxed("System.Boolean", _BOOLEAN, value)
        case int() if -(1 << 31) <= value < 1 << 31:
            return _boxed("System.Int32", _INT32, value)
        case int() if -(1 << 63) <= value < 1 << 63:
            return _boxed("System.Int64", _INT64, value)
        case int() if 0 <= value < 1 << 64:
            return _boxed("System.UInt64", _UINT64, value)
        case float():
            return _boxed("System.Double", _DOUBLE, value)
        case Decimal() if value.is_finite():
            return _decimal_record(value)
        case datetime():
            return _date_record(value)
        case bytes() | bytearray() | memoryview():
            head = bytes([_PRIMITIVES]) + _I32.pack(_ROOT) + _I32.pack(len(value))
            return head + bytes([_BYTE]) + bytes(value)
    raise FormatError(f"{type(value).__name__} is not written: use XML for objects")


def _boxed(name: str, kind: int, value: Any) -> bytes:
    return _class(name, {_VALUE: (kind, value)})


def _class(name: str, members: Mapping[str, tuple[int, Any]]) -> bytes:
    """Return a SystemClassWithMembersAndTypes (2.3.2.3) of primitive members."""
    kinds = [kind for kind, _ in members.values()]
    parts = [bytes([_SYSTEM_CLASS]), _I32.pack(_ROOT), _text(name), _I32.pack(len(members))]
    parts += [*map(_text, members), bytes([_PRIMITIVE] * len(kinds)), bytes(kinds)]
    parts += [_NUMBERS[kind].pack(value) for kind, value in members.values()]
    return b"".join(parts)


def _decimal_record(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number, scale = int("".join(map(str, digits))), max(0, -exponent)
    is_far = abs(exponent) > _SCALE_MAX
    number *= 1 if is_far else 10 ** max(0, exponent)
    if is_far or number >> _DECIMAL_BITS:
        raise FormatError(f"{value} has more digits than System.Decimal")
    flags = (scale << 16) | (_SIGN if sign else 0)
    words = (flags, number >> 64, number & 0xFFFF_FFFF, number >> 32 & 0xFFFF_FFFF)
    signed = [word - (1 << 32) if word & _SIGN else word for word in words]
    names = ("flags", "hi", "lo", "mid")
    return _class("System.Decimal", {n: (_INT32, w) for n, w in zip(names, signed, strict=True)})


def _date_record(value: datetime) -> bytes:
    kind = _KIND_UTC if value.tzinfo else 0
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    ticks = (plain - _EPOCH) // timedelta(microseconds=1) * 10
    members = {"ticks": (_INT64, ticks), "dateData": (_UINT64, ticks | kind << _KIND_SHIFT)}
    return _class("System.DateTime", members)


def _text(text: str) -> bytes:
    """Return a LengthPrefixedString (2.1.1.6)."""
    encoded = text.encode("utf-8")
    left, prefix = len(encoded), bytearray()
    while left >= 0x80:
        prefix.append(left & 0x7F | 0x80)
        left >>= 7
    prefix.append(left)
    return bytes(prefix) + encoded


class _Reader:
    """Reads one message; every length is checked against what there is."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def message(self) -> Any:
        """Return the root's value."""
        kind, root, *_ = self._take(_HEADER)
        if kind != _HEADER_RECORD:
            raise FormatError("the body does not begin as [MS-NRBF] does")
        value = self._root(root)
        if self._byte() != _END:
            raise FormatError("there is more than one object: object graphs are not read")
        return value

    def _root(self, root: int) -> Any:
        record = self._byte()
        if record == _NULL:
            return None
        if record == _STRING:
            self._named(root)
            return self._text()
        if record == _PRIMITIVES:
            self._named(root)
            return self._array()
        if record == _SYSTEM_CLASS:
            self._named(root)
            return self._class()
        raise FormatError(f"a record of type {record}: object graphs are not read")

    def _named(self, root: int) -> None:
        if self._take(_I32)[0] != root:
            raise FormatError("the first object is not the root")

    def _array(self) -> Any:
        (length,) = self._take(_I32)
        kind = self._byte()
        if kind == _BYTE:
            return self._bytes(length)
        layout = _NUMBERS.get(kind)
        if layout is None:
            raise FormatError(f"an array of primitive type {kind} is not read")
        whole = self._bytes(length * layout.size)
        return [value for (value,) in layout.iter_unpack(whole)]

    def _class(self) -> Any:
        name = self._text()
        (count,) = self._take(_I32)
        if not 1 <= count <= _MEMBERS_MAX:
            raise FormatError(f"{name[:80]} has {count} members: it is no primitive")
        names = [self._text() for _ in range(count)]
        if any(kind != _PRIMITIVE for kind in self._bytes(count)):
            raise FormatError(f"{name[:80]} has members that are objects: they are not read")
        layouts = [_NUMBERS.get(kind) for kind in self._bytes(count)]
        members: dict[str, Any] = {}
        for member, layout in zip(names, layouts, strict=True):
            if layout is None:
                raise FormatError(f"{name[:80]}.{member[:80]} is of a type that is not read")
            (members[member],) = self._take(layout)
        return _object(name, members)

    def _text(self) -> str:
        length = 0
        for place in range(_LENGTH_MAX_BYTES):
            byte = self._byte()
            length |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return self._bytes(length).decode("utf-8")
        raise FormatError("a text's length has more than five bytes")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _take(self, layout: Struct) -> tuple[Any, ...]:
        return layout.unpack(self._bytes(layout.size))

    def _bytes(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._body):
            raise FormatError(f"{length} bytes are claimed, {len(self._body) - self._at} are there")
        found = self._body[self._at : end]
        self._at = end
        return found


def _object(name: str, members: Mapping[str, Any]) -> Any:
    if members.keys() == {_VALUE}:
        return members[_VALUE]
    if name == "System.DateTime" and "dateData" in members:
        return _date(members["dateData"])
    if name == "System.Decimal" and members.keys() == {"flags", "hi", "lo", "mid"}:
        return _decimal(members)
    raise FormatError(f"{name[:80]} is no primitive: object graphs are not read")


def _date(data: int) -> datetime:
    ticks, kind = data & (1 << _KIND_SHIFT) - 1, data >> _KIND_SHIFT
    found = _EPOCH + timedelta(microseconds=ticks // 10)
    return found.replace(tzinfo=UTC) if kind == _KIND_UTC else found


def _decimal(members: Mapping[str, int]) -> Decimal:
    flags, hi, lo, mid = (members[name] & 0xFFFF_FFFF for name in ("flags", "hi", "lo", "mid"))
    scale = flags >> 16 & 0xFF
    if scale > _SCALE_MAX:
        raise FormatError(f"a decimal with {scale} places")
    number = hi << 64 | mid << 32 | lo
    return Decimal((int(bool(flags & _SIGN)), tuple(map(int, str(number))), -scale))

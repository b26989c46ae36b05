"""Types of NDR: scalars, structures, arrays, strings, pointers, unions, context handles.

A type reads a value from a `Reader` and writes one to a `Writer`. A pointer that is read yields a
`Pending`, which the construction around it replaces by the target once that is read.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, Generic, TypeVar

import msgspec
from typing_extensions import override

from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.pdu.bind import swapped_uuid
from qm.wire.guid import Guid

T = TypeVar("T")
S = TypeVar("S")

WCHAR_SIZE_BYTES: Final = 2
ELEMENTS_MAX: Final = 0x7FFF_FFFF
NIL: Final = bytes(16)
"""UUID of the nil context handle."""


class Type(Generic[T]):
    """A type of NDR whose values are T in Python."""

    alignment: int = 1
    size_min: int = 1
    """Bytes of the shortest value: what a count is checked against."""
    is_conformant: bool = False
    """Whether it ends in an array whose count precedes the outermost structure."""
    code: str = ""
    """Of `struct`, for a value whose little-endian form is always alike; "" for others."""

    def read(self, reader: Reader) -> T:
        """Read a value; raise BadStub for one that cannot be."""
        raise NotImplementedError

    def write(self, writer: Writer, value: T) -> None:
        """Write a value."""
        raise NotImplementedError

    def read_each(self, reader: Reader, count: int) -> list[T]:
        """Read an array's elements."""
        return [self.read(reader) for _ in range(count)]

    def write_each(self, writer: Writer, values: Sequence[T]) -> None:
        """Write an array's elements."""
        for value in values:
            self.write(writer, value)

    def read_counted(self, reader: Reader, count: int) -> T:
        """Read a conformant value whose count was read before."""
        raise NotImplementedError

    def count_of(self, value: T) -> int:
        """Return the count to write before a conformant value."""
        raise NotImplementedError

    def write_counted(self, writer: Writer, value: T) -> None:
        """Write a conformant value whose count was written before."""
        raise NotImplementedError


class Pending(Generic[T]):
    """A pointer that was read, until its target is."""

    __slots__ = ("shared", "target")

    def __init__(self, target: Type[T], shared: int = 0) -> None:
        self.target = target
        self.shared = shared


def settle(reader: Reader, value: Any, put: Callable[[Any], None]) -> None:
    """Have a pointer's target put in its place once it is read; other values stay."""
    if type(value) is Pending:
        put(None)
        reader.defer(value.target, put, value.shared)


class Scalar(Type[int]):
    """An integer: its size is its alignment."""

    def __init__(self, code: str) -> None:
        """`code`: as `struct` has it."""
        self.code = code
        self._shapes = {order: Struct(order + code) for order in ("<", ">")}
        self.alignment = self.size_min = self._shapes["<"].size

    @override
    def read(self, reader: Reader) -> int:
        value: int = reader.unpack(self._shapes[reader.order])
        return value

    @override
    def write(self, writer: Writer, value: int) -> None:
        writer.pack(self._shapes["<"], value)

    @override
    def read_each(self, reader: Reader, count: int) -> list[int]:
        return reader.unpack_each(self._shapes[reader.order], count)

    @override
    def write_each(self, writer: Writer, values: Sequence[int]) -> None:
        writer.pack_each(self._shapes["<"], values)


U8: Final = Scalar("B")
SMALL: Final = Scalar("b")
"""A signed byte."""
U16: Final = Scalar("H")
I16: Final = Scalar("h")
U32: Final = Scalar("I")
I32: Final = Scalar("i")
U64: Final = Scalar("Q")
I64: Final = Scalar("q")


class Ranged(Type[int]):
    """A scalar with a range() attribute, checked before the method runs."""

    def __init__(self, scalar: Scalar, low: int, high: int) -> None:
        self._scalar, self._low, self._high = scalar, low, high
        self.alignment, self.size_min = scalar.alignment, scalar.size_min
        self.code = scalar.code

    @override
    def read(self, reader: Reader) -> int:
        return self.checked(self._scalar.read(reader))

    def checked(self, value: int) -> int:
        """Return the value. Raises BadStub if it is out of range."""
        if not self._low <= value <= self._high:
            raise BadStub(f"{value} is not within {self._low} and {self._high}")
        return value

    @override
    def write(self, writer: Writer, value: int) -> None:
        self._scalar.write(writer, value)


class Octets(Type[bytes]):
    """A fixed array of bytes; of alignment 1."""

    def __init__(self, size: int) -> None:
        self.size_min = self._size = size
        self.code = f"{size}s"

    @override
    def read(self, reader: Reader) -> bytes:
        return reader.take(self._size)

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.put(value)


class Uuid(Type[Guid]):
    """A UUID: three integers and eight bytes, kept as little-endian PDUs carry them."""

    alignment = 4
    size_min = 16

    @override
    def read(self, reader: Reader) -> Guid:
        reader.align(4)
        raw = reader.take(16)
        return swapped_uuid(raw) if reader.order == ">" else raw

    @override
    def write(self, writer: Writer, value: Guid) -> None:
        writer.align(4)
        writer.put(value)


GUID: Final = Uuid()


class ContextHandle(Type[bytes]):
    """A context handle: attributes, then 16 bytes that name it; `NIL` for none."""

    alignment = 4
    size_min = 20
    code = "4x16s"

    @override
    def read(self, reader: Reader) -> bytes:
        reader.u32()
        return reader.take(16)

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.u32(0)
        writer.put(value)


HANDLE: Final = ContextHandle()


class Structure(Type[S]):
    """Members in order, as attributes of a mutable class."""

    def __init__(
        self,
        make: Callable[..., S],
        fields: Mapping[str, Type[Any]],
        check: Callable[[S], bool] | None = None,
    ) -> None:
        """`make`: called with the members by name. `check`: whether counts and tags agree with what
        they describe; asked once all targets are read.
        """
        self._make = make
        self._fields = dict(fields)
        self._check = check
        self.alignment = max(one.alignment for one in fields.values())
        self.size_min = sum(one.size_min for one in fields.values())
        self._last = list(fields)[-1]
        self.is_conformant = fields[self._last].is_conformant
        if self.is_conformant:
            self.alignment = max(self.alignment, U32.alignment)

    @override
    def read(self, reader: Reader) -> S:
        count = reader.u32() if self.is_conformant else 0
        return self.read_counted(reader, count)

    @override
    def read_counted(self, reader: Reader, count: int) -> S:
        reader.align(self.alignment)
        values: dict[str, Any] = {}
        made: list[S] = []
        for name, one in self._fields.items():
            if self.is_conformant and name == self._last:
                value = one.read_counted(reader, count)
            else:
                value = one.read(reader)
            if type(value) is Pending:
                # At once: the targets come in the order of all pointers, those of members too.
                reader.defer(value.target, partial(_set, made, name), value.shared)
                value = None
            values[name] = value
        found = self._make(**values)
        made.append(found)
        if (check := self._check) is not None:
            reader.check(partial(_must, check, found))
        return found

    @override
    def write(self, writer: Writer, value: S) -> None:
        if self.is_conformant:
            writer.u32(self.count_of(value))
        self.write_counted(writer, value)

    @override
    def count_of(self, value: S) -> int:
        return self._fields[self._last].count_of(getattr(value, self._last))

    @override
    def write_counted(self, writer: Writer, value: S) -> None:
        writer.align(self.alignment)
        for name, one in self._fields.items():
            if self.is_conformant and name == self._last:
                one.write_counted(writer, getattr(value, name))
            else:
                one.write(writer, getattr(value, name))


def _set(made: list[Any], name: str, value: object) -> None:
    """Put a pointer's target into the structure that was made meanwhile."""
    setattr(made[0], name, value)


def _must(check: Callable[[S], bool], found: S) -> None:
    """Hold a size_is, length_is or switch_is against its parameter [MS-RPCE 3.1.1.5.3.1]."""
    if not check(found):
        raise BadStub(f"counts or tags of {type(found).__name__} disagree with what they describe")


class Parameters(Generic[S]):
    """The parameters of a call in one direction: each complete before the next one begins."""

    def __init__(
        self,
        make: Callable[..., S],
        fields: Mapping[str, Type[Any]],
        check: Callable[[S], bool] | None = None,
    ) -> None:
        """As for `Structure`."""
        self._make = make
        self._fields = dict(fields)
        self._check = check
        self._shape = _shape_of(fields)
        self._ranged = {name: one for name, one in fields.items() if isinstance(one, Ranged)}

    def unmarshal(self, stub: bytes, order: str = "<") -> tuple[S, int]:
        """Return the values and where they end. Raises BadStub.

        What follows them is not looked at: a verification trailer, or padding.
        """
        if self._shape is not None and order == "<":
            values, end = self._read_shape(self._shape, stub), self._shape.size
        else:
            values, end = self._read_each(Reader(stub, order))
        found = self._make(**values)
        if self._check is not None:
            _must(self._check, found)
        return found, end

    def _read_shape(self, shape: Struct, stub: bytes) -> dict[str, Any]:
        if len(stub) < shape.size:
            raise BadStub(f"the stub ends at {len(stub)}, {shape.size} bytes are wanted")
        values = dict(zip(self._fields, shape.unpack_from(stub), strict=True))
        for name, one in self._ranged.items():
            one.checked(values[name])
        return values

    def _read_each(self, reader: Reader) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for name, one in self._fields.items():
            value = one.read(reader)
            values[name] = value
            settle(reader, value, partial(values.__setitem__, name))
            reader.flush()
        return values, reader.at

    def marshal(self, values: S) -> bytes:
        """Return the stub of values."""
        if self._shape is not None:
            return self._shape.pack(*[getattr(values, name) for name in self._fields])
        writer = Writer()
        for name, one in self._fields.items():
            one.write(writer, getattr(values, name))
            writer.flush()
        return bytes(writer.raw)


def _shape_of(fields: Mapping[str, Type[Any]]) -> Struct | None:
    """Return the shape of parameters that are always alike; None if one of them is not."""
    codes, at = "<", 0
    for one in fields.values():
        if not one.code:
            return None
        gap = -at % one.alignment
        codes += f"{gap}x{one.code}"
        at += gap + one.size_min
    return Struct(codes)


class Array(Type[list[T]]):
    """A conformant array: its count, then its elements."""

    is_conformant = True

    def __init__(self, element: Type[T], count_max: int = ELEMENTS_MAX) -> None:
        self._element, self._max = element, count_max
        self.alignment = max(element.alignment, 4)
        self.size_min = 4

    @override
    def read(self, reader: Reader) -> list[T]:
        return self.read_counted(reader, reader.count(self._element.size_min, self._max))

    @override
    def read_counted(self, reader: Reader, count: int) -> list[T]:
        if count > self._max or count * self._element.size_min > reader.left:
            raise BadStub(f"{count} elements in {reader.left} bytes")
        found = self._element.read_each(reader, count)
        for k, value in enumerate(found):
            settle(reader, value, partial(found.__setitem__, k))
        return found

    @override
    def count_of(self, value: list[T]) -> int:
        return len(value)

    @override
    def write(self, writer: Writer, value: list[T]) -> None:
        writer.u32(len(value))
        self.write_counted(writer, value)

    @override
    def write_counted(self, writer: Writer, value: list[T]) -> None:
        self._element.write_each(writer, value)


class ByteArray(Type[bytes]):
    """A conformant array of bytes."""

    alignment = 4
    size_min = 4
    is_conformant = True

    @override
    def read(self, reader: Reader) -> bytes:
        return self.read_counted(reader, reader.u32())

    @override
    def read_counted(self, reader: Reader, count: int) -> bytes:
        return reader.take(count)

    @override
    def count_of(self, value: bytes) -> int:
        return len(value)

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.u32(len(value))
        writer.put(value)

    @override
    def write_counted(self, writer: Writer, value: bytes) -> None:
        writer.put(value)


BYTES: Final = ByteArray()


class Varying(msgspec.Struct, Generic[T]):
    """A conformant-varying array: room for `count_max`, of which `items` are there."""

    count_max: int
    items: list[T]


class VaryingArray(Type[Varying[T]]):
    """A conformant-varying array, with offset 0."""

    alignment = 4
    size_min = 12

    def __init__(self, element: Type[T], count_max: int = ELEMENTS_MAX) -> None:
        self._array: Array[T] = Array(element, count_max)

    @override
    def read(self, reader: Reader) -> Varying[T]:
        count_max, actual = read_bounds(reader)
        return Varying(count_max, self._array.read_counted(reader, actual))

    @override
    def write(self, writer: Writer, value: Varying[T]) -> None:
        for number in (value.count_max, 0, len(value.items)):
            writer.u32(number)
        self._array.write_counted(writer, value.items)


def read_bounds(reader: Reader) -> tuple[int, int]:
    """Read maximum, offset and actual count of a conformant-varying array; the offset must be 0."""
    count_max, offset, actual = reader.u32(), reader.u32(), reader.u32()
    if offset or actual > count_max:
        raise BadStub(f"offset {offset} and {actual} elements in room for {count_max}")
    return count_max, actual


class WideString(Type[str]):
    """[string] wchar_t: UTF-16 up to a NUL, which the counts include."""

    alignment = 4
    size_min = 12

    def __init__(self, chars_max: int) -> None:
        """`chars_max`: UTF-16 units without the NUL."""
        self._max = chars_max

    @override
    def read(self, reader: Reader) -> str:
        _, actual = read_bounds(reader)
        if not 1 <= actual <= self._max + 1:
            raise BadStub(f"a string of {actual} characters with its NUL; {self._max} are allowed")
        raw = reader.take(actual * WCHAR_SIZE_BYTES)
        text = raw.decode("utf-16-le" if reader.order == "<" else "utf-16-be", "surrogatepass")
        if text.find("\0") != len(text) - 1:
            raise BadStub("a string whose NUL is not its last character")
        return text[:-1]

    @override
    def write(self, writer: Writer, value: str) -> None:
        raw = value.encode("utf-16-le", "surrogatepass") + bytes(WCHAR_SIZE_BYTES)
        count = len(raw) // WCHAR_SIZE_BYTES
        for number in (count, 0, count):
            writer.u32(number)
        writer.put(raw)


class Unique(Type[T | None]):
    """A unique pointer, which may be NULL."""

    alignment = 4
    size_min = 4

    def __init__(self, target: Type[T]) -> None:
        self._target = target

    @override
    def read(self, reader: Reader) -> Any:
        return Pending(self._target) if reader.u32() else None

    @override
    def read_each(self, reader: Reader, count: int) -> list[Any]:
        target = self._target
        return [Pending(target) if referent else None for referent in reader.referents(count)]

    @override
    def write(self, writer: Writer, value: T | None) -> None:
        if value is None:
            writer.u32(0)
        else:
            writer.point(self._target, value)


class Full(Type[T | None]):
    """A full pointer: equal referents are one object, whose target stands there once."""

    alignment = 4
    size_min = 4

    def __init__(self, target: Type[T]) -> None:
        self._target = target

    @override
    def read(self, reader: Reader) -> Any:
        referent = reader.u32()
        return Pending(self._target, referent) if referent else None

    @override
    def write(self, writer: Writer, value: T | None) -> None:
        if value is None:
            writer.u32(0)
        else:
            writer.point(self._target, value, is_shared=True)


class Arm(msgspec.Struct):
    """A union's value: its tag, and the member that it selects."""

    tag: int
    value: Any = None


class Union(Type[Arm]):
    """A union: its tag, then the arm, each aligned by itself; not padded to the largest arm."""

    def __init__(self, tag: Scalar, arms: Mapping[int, Type[Any] | None]) -> None:
        """`arms`: None for a tag whose arm is empty."""
        self._tag, self._arms = tag, dict(arms)
        present = [one.alignment for one in arms.values() if one is not None]
        self.alignment = max(tag.alignment, *present)
        self.size_min = tag.size_min

    @override
    def read(self, reader: Reader) -> Arm:
        tag = self._tag.read(reader)
        if tag not in self._arms:
            raise BadStub(f"a union has no arm for {tag}")
        arm = Arm(tag)
        one = self._arms[tag]
        if one is not None:
            arm.value = one.read(reader)
            settle(reader, arm.value, partial(setattr, arm, "value"))
        return arm

    @override
    def write(self, writer: Writer, value: Arm) -> None:
        self._tag.write(writer, value.tag)
        one = self._arms[value.tag]
        if one is not None:
            writer.align(one.alignment)
            one.write(writer, value.value)


class Nothing(msgspec.Struct):
    """No parameters."""


NO_PARAMETERS: Final = Parameters(Nothing, {})

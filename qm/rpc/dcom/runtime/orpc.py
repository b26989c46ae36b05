"""What every ORPC call has: ORPCTHIS, ORPCTHAT, extensions, interface pointers [MS-DCOM 2.2.13].

Parameters of ORPC methods are lists in the order of their declaration.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import (
    EXTENSION_MAX_BYTES,
    EXTENSIONS_MAX,
    POINTERS_PER_REQUEST_MAX,
)
from qm.rpc.interface import Interface, Operation
from qm.rpc.limits import POINTERS_PER_STUB_MAX
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import Array, Parameters, Pending, Type, Unique, settle
from qm.rpc.pdu.bind import Syntax
from qm.rpc.pdu.codes import AuthLevel
from qm.wire.guid import Guid

MAJOR: Final = 5
MINOR: Final = 7
"""COMVERSION of this node."""
VERSION: Final = Struct("<HH")
_THIS: Final = {order: Struct(order + "HHII16s") for order in "<>"}
_GUID_BYTES: Final = 16


class OrpcThis(msgspec.Struct):
    """Head of a request."""

    causality: Guid
    """Id of the chain of calls that it belongs to; for logs."""
    major: int = MAJOR
    minor: int = MINOR
    flags: int = 0
    extensions: Any = None

    def check(self) -> None:
        """Raise ComError for a call that may not be executed (RP-A60, RP-A61)."""
        self.check_version()
        if self.flags:
            raise ComError(Hresult.RPC_E_INVALID_HEADER, f"flags {self.flags:#x}")

    def check_version(self) -> None:
        """The same of an activation, in which clients do set flags."""
        if self.major != MAJOR or self.minor > MINOR:
            text = f"COM version {self.major}.{self.minor}"
            raise ComError(Hresult.RPC_E_VERSION_MISMATCH, text)


class Extension(msgspec.Struct, frozen=True):
    """ORPC_EXTENT: something that both sides may know."""

    identifier: Guid
    data: bytes


class _ExtensionType(Type[Extension]):
    alignment = 4
    size_min = 24

    @override
    def read(self, reader: Reader) -> Extension:
        count = reader.u32()
        identifier = reader.take(_GUID_BYTES)
        size = reader.u32()
        if count != (size + 7) & ~7 or size > EXTENSION_MAX_BYTES:
            raise BadStub(f"an extension of {size} bytes in an array of {count}")
        return Extension(identifier, reader.take(count)[:size])

    @override
    def write(self, writer: Writer, value: Extension) -> None:
        padded = value.data + bytes(-len(value.data) % 8)
        writer.u32(len(padded))
        writer.put(value.identifier)
        writer.u32(len(value.data))
        writer.put(padded)


class _ExtensionArray(Type[list[Any]]):
    """ORPC_EXTENT_ARRAY: their number, rounded up to an even one in the array."""

    alignment = 4
    size_min = 12
    _array: Final = Array(Unique(_ExtensionType()), EXTENSIONS_MAX)

    @override
    def read(self, reader: Reader) -> list[Any]:
        size = reader.u32()
        reader.u32()
        if size > EXTENSIONS_MAX:
            raise BadStub(f"{size} extensions; {EXTENSIONS_MAX} are allowed")
        # Nothing stands between the pointer and what it leads to.
        found = self._array.read(reader) if reader.u32() else []
        if found and len(found) != size + size % 2:
            raise BadStub(f"{size} extensions in an array of {len(found)}")
        return found

    @override
    def write(self, writer: Writer, value: list[Any]) -> None:
        writer.u32(len(value))
        writer.u32(0)
        writer.point(self._array, [*value, *[None] * (len(value) % 2)])


EXTENSIONS: Final = Unique(_ExtensionArray())


class _ThisType(Type[OrpcThis]):
    alignment = 4
    size_min = 32

    @override
    def read(self, reader: Reader) -> OrpcThis:
        reader.align(4)
        shape = _THIS[reader.order]
        major, minor, flags, _, causality = shape.unpack(reader.take(shape.size))
        found = OrpcThis(causality, major, minor, flags)
        settle(reader, EXTENSIONS.read(reader), partial(setattr, found, "extensions"))
        return found

    @override
    def write(self, writer: Writer, value: OrpcThis) -> None:
        writer.put(_THIS["<"].pack(value.major, value.minor, value.flags, 0, value.causality))
        EXTENSIONS.write(writer, value.extensions)


class _ThatType(Type[Any]):
    """ORPCTHAT; its value is the extensions, of which this node sends none."""

    alignment = 4
    size_min = 8

    @override
    def read(self, reader: Reader) -> Any:
        reader.u32()
        return EXTENSIONS.read(reader)

    @override
    def write(self, writer: Writer, value: Any) -> None:
        writer.u32(0)
        EXTENSIONS.write(writer, value)


class _InterfacePointer(Type[bytes]):
    """MInterfacePointer: an OBJREF as bytes."""

    alignment = 4
    size_min = 8

    @override
    def read(self, reader: Reader) -> bytes:
        count, size = reader.u32(), reader.u32()
        if count != size:
            raise BadStub(f"an interface pointer of {size} bytes in an array of {count}")
        return reader.take(size)

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.u32(len(value))
        writer.u32(len(value))
        writer.put(value)


class _Version(Type[tuple[int, int]]):
    """COMVERSION."""

    alignment = 2
    size_min = 4

    @override
    def read(self, reader: Reader) -> tuple[int, int]:
        reader.align(2)
        major, minor = Struct(reader.order + "HH").unpack(reader.take(VERSION.size))
        return major, minor

    @override
    def write(self, writer: Writer, value: tuple[int, int]) -> None:
        writer.align(2)
        writer.put(VERSION.pack(*value))


ORPC_THIS: Final = _ThisType()
ORPC_THAT: Final = _ThatType()
POINTER: Final = _InterfacePointer()
"""Behind a unique pointer: an interface pointer, or NULL."""
INTERFACE: Final = Unique(POINTER)
COM_VERSION: Final = _Version()


class Listed(Parameters[list[Any]]):
    """Parameters whose values are a list in their order."""

    def __init__(
        self, types: Sequence[Type[Any]], pointers_max: int = POINTERS_PER_STUB_MAX
    ) -> None:
        self.types: Final = tuple(types)
        self._pointers_max = pointers_max

    @override
    def unmarshal(self, stub: bytes, order: str = "<") -> tuple[list[Any], int]:
        reader = Reader(stub, order, self._pointers_max)
        found: list[Any] = []
        for place, one in enumerate(self.types):
            value = one.read(reader)
            found.append(value)
            if type(value) is Pending:
                settle(reader, value, partial(found.__setitem__, place))
            reader.flush()
        return found, reader.at

    @override
    def marshal(self, values: list[Any]) -> bytes:
        writer = Writer()
        for one, value in zip(self.types, values, strict=True):
            one.write(writer, value)
            writer.flush()
        return bytes(writer.raw)


def orpc_operation(
    name: str, takes: Sequence[Type[Any]], gives: Sequence[Type[Any]] = ()
) -> Operation:
    """Return a method whose request begins with ORPCTHIS and whose response with ORPCTHAT."""
    given = Listed((ORPC_THIS, *takes), POINTERS_PER_REQUEST_MAX)
    return Operation(name, given, Listed((ORPC_THAT, *gives)))


def orpc_interface(name: str, iid: Guid, operations: dict[int, Operation]) -> Interface:
    """Return an interface of objects: version 0.0, signed at least [MS-DCOM 3.1.1.5.4]."""
    return Interface(name, Syntax(iid, 0, 0), operations, AuthLevel.INTEGRITY)

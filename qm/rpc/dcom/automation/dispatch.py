"""IDispatch and IEnumVARIANT as interfaces [MS-OAUT 3.1, 3.3], and their arguments."""

from collections.abc import Sequence
from enum import IntFlag
from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.automation.variant import BSTR, NESTED_VARIANT, VARIANT, Variant
from qm.rpc.dcom.limits import ARGUMENTS_MAX, NAME_MAX_CHARS, NAMES_MAX
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IENUMVARIANT
from qm.rpc.dcom.runtime.orpc import INTERFACE, orpc_interface, orpc_operation
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import (
    GUID,
    I32,
    U16,
    U32,
    Array,
    Type,
    Unique,
    VaryingArray,
    WideString,
    settle,
)

DISPID_PROPERTYPUT: Final = -3


class InvokeFlag(IntFlag):
    """[MS-OAUT] 3.1.4.4."""

    METHOD = 1
    PROPERTYGET = 2
    PROPERTYPUT = 4
    PROPERTYPUTREF = 8
    NO_RESULT = 0x0002_0000
    NO_EXCEPTION = 0x0004_0000
    NO_ARGUMENT_ERROR = 0x0008_0000


PUTS: Final = InvokeFlag.PROPERTYPUT | InvokeFlag.PROPERTYPUTREF


class Arguments(msgspec.Struct):
    """DISPPARAMS: arguments in reverse order, named ones first."""

    values: Any = None
    names: Any = None
    """DISPIDs of the named ones."""
    value_count: int = 0
    name_count: int = 0


class ExceptionInfo(msgspec.Struct):
    """EXCEPINFO: how a member failed."""

    scode: int = 0
    source: str | None = None
    description: str | None = None


class _ArgumentsType(Type[Arguments]):
    alignment = 4
    size_min = 16
    _VALUES: Final = Unique(Array(NESTED_VARIANT, ARGUMENTS_MAX))
    _NAMES: Final = Unique(Array(I32, ARGUMENTS_MAX))

    @override
    def read(self, reader: Reader) -> Arguments:
        found = Arguments(self._VALUES.read(reader), self._NAMES.read(reader))
        settle(reader, found.values, partial(setattr, found, "values"))
        settle(reader, found.names, partial(setattr, found, "names"))
        found.value_count, found.name_count = reader.u32(), reader.u32()
        reader.check(partial(_agree, found))
        return found

    @override
    def write(self, writer: Writer, value: Arguments) -> None:
        self._VALUES.write(writer, value.values or None)
        self._NAMES.write(writer, value.names or None)
        writer.u32(len(value.values or ()))
        writer.u32(len(value.names or ()))


def _agree(found: Arguments) -> None:
    values, names = len(found.values or ()), len(found.names or ())
    if found.value_count != values or found.name_count != names or names > values:
        raise BadStub("counts of arguments that disagree with them")


class _ExceptionType(Type[ExceptionInfo]):
    alignment = 4
    size_min = 32

    @override
    def read(self, reader: Reader) -> ExceptionInfo:
        found = ExceptionInfo()
        U16.read(reader)
        U16.read(reader)
        settle(reader, BSTR.read(reader), partial(setattr, found, "source"))
        settle(reader, BSTR.read(reader), partial(setattr, found, "description"))
        settle(reader, BSTR.read(reader), lambda _: None)
        for _ in range(3):
            reader.u32()
        found.scode = reader.u32()
        return found

    @override
    def write(self, writer: Writer, value: ExceptionInfo) -> None:
        U16.write(writer, 0)
        U16.write(writer, 0)
        BSTR.write(writer, value.source)
        BSTR.write(writer, value.description)
        BSTR.write(writer, None)
        for _ in range(3):
            writer.u32(0)
        writer.u32(value.scode)


class _MayBeMissing(Type[list[Any]]):
    """An array that some clients leave out where the count before it is 0."""

    alignment = 4
    size_min = 0

    def __init__(self, array: Array[Any]) -> None:
        self._array = array

    @override
    def read(self, reader: Reader) -> list[Any]:
        return self._array.read(reader) if reader.left >= U32.size_min else []

    @override
    def write(self, writer: Writer, value: list[Any]) -> None:
        self._array.write(writer, value)


EXCEPTION: Final = _ExceptionType()
_REFERENCES: Final = Array(NESTED_VARIANT, ARGUMENTS_MAX)
_NAMES: Final = Array(Unique(WideString(NAME_MAX_CHARS)), NAMES_MAX)
DISPATCH_OPERATIONS: Final = {
    3: orpc_operation("get_type_info_count", (), (U32, U32)),
    4: orpc_operation("get_type_info", (U32, U32), (INTERFACE, U32)),
    5: orpc_operation("get_ids_of_names", (GUID, _NAMES, U32, U32), (Array(I32), U32)),
    6: orpc_operation(
        "invoke",
        (
            I32,
            GUID,
            U32,
            U32,
            _ArgumentsType(),
            U32,
            _MayBeMissing(Array(U32, ARGUMENTS_MAX)),
            _MayBeMissing(_REFERENCES),
        ),
        (VARIANT, EXCEPTION, U32, _REFERENCES, U32),
    ),
}
IDISPATCH: Final = orpc_interface("IDispatch", IID_IDISPATCH, DISPATCH_OPERATIONS)
IENUMVARIANT: Final = orpc_interface(
    "IEnumVARIANT",
    IID_IENUMVARIANT,
    {
        3: orpc_operation("enumerate_next", (U32,), (VaryingArray(NESTED_VARIANT), U32, U32)),
        4: orpc_operation("enumerate_skip", (U32,), (U32,)),
        5: orpc_operation("enumerate_reset", (), (U32,)),
        6: orpc_operation("enumerate_clone", (), (INTERFACE, U32)),
    },
)


def arguments_of(values: Sequence[Variant], names: Sequence[int] = ()) -> Arguments:
    """Return DISPPARAMS of arguments in calling order; the last ones are those named."""
    return Arguments(list(reversed(values)), list(reversed(names)))

"""What describes types: TYPEDESC to TLIBATTR as NDR carries them [MS-OAUT 2.2.37 to 2.2.47].

The union in a TYPEDESC has its tag before it and again behind it, as the field that switches it.
"""

from enum import IntEnum, IntFlag
from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.automation.variant import NESTED_VARIANT, VARIANT_REFERENCE, Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.limits import ARGUMENTS_MAX, NAME_MAX_CHARS
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import (
    GUID,
    I16,
    I32,
    NIL,
    U16,
    U32,
    Arm,
    Array,
    Structure,
    Type,
    Union,
    Unique,
    WideString,
    settle,
)
from qm.wire.guid import Guid

MEMBERID_NIL: Final = -1
"""The type itself, where a member could be meant."""
LIBRARY: Final = -1
"""A library itself, where one of its types could be meant."""
UNUSED: Final = 0xFFFF_FFFF
"""-1 in fields of no meaning."""


class TypeVarType(IntEnum):
    """VARTYPEs of descriptions alone [MS-OAUT 2.2.7]."""

    VOID = 24
    HRESULT = 25
    PTR = 26
    SAFEARRAY = 27
    CARRAY = 28
    USERDEFINED = 29
    LPWSTR = 31


class TypeKind(IntEnum):
    """TYPEKIND."""

    ENUM = 0
    RECORD = 1
    MODULE = 2
    INTERFACE = 3
    DISPATCH = 4
    COCLASS = 5
    ALIAS = 6
    UNION = 7


class TypeFlag(IntFlag):
    """TYPEFLAGS."""

    APPOBJECT = 0x1
    CANCREATE = 0x2
    PREDECLID = 0x8
    HIDDEN = 0x10
    DUAL = 0x40
    NONEXTENSIBLE = 0x80
    OLEAUTOMATION = 0x100
    DISPATCHABLE = 0x1000


class FuncKind(IntEnum):
    """FUNCKIND."""

    PUREVIRTUAL = 1
    DISPATCH = 4


class InvokeKind(IntFlag):
    """INVOKEKIND."""

    FUNC = 1
    PROPERTYGET = 2
    PROPERTYPUT = 4
    PROPERTYPUTREF = 8


class ParamFlag(IntFlag):
    """PARAMFLAGS."""

    IN = 0x1
    OUT = 0x2
    RETVAL = 0x8
    OPT = 0x10
    HASDEFAULT = 0x20


class ImplTypeFlag(IntFlag):
    """IMPLTYPEFLAGS."""

    DEFAULT = 0x1
    SOURCE = 0x2


class DescKind(IntEnum):
    """DESCKIND: what a name is bound to."""

    NONE = 0
    FUNCDESC = 1
    VARDESC = 2
    TYPECOMP = 3
    IMPLICITAPPOBJ = 4


CC_STDCALL: Final = 4
FUNCFLAG_FRESTRICTED: Final = 1
VAR_STATIC: Final = 1
VAR_CONST: Final = 2
MEMBERID_DEFAULTINST: Final = -2
SYS_WIN64: Final = 3
POINTER_BYTES: Final = 8
"""The system pointer size that goes with it."""


class TypeDesc(msgspec.Struct):
    """A type. `of`: what it points to, a TypeDesc; the HREFTYPE of a defined one."""

    vt: int = VarType.EMPTY
    of: Any = None


class ArrayDesc(msgspec.Struct):
    """A fixed-length array."""

    element: TypeDesc
    bounds: list[tuple[int, int]]
    """Of each dimension: number of elements, lower bound."""


class DefaultValue(msgspec.Struct):
    """PARAMDESCEX."""

    value: Variant | None
    size: int = 24
    """In memory."""


class ElemDesc(msgspec.Struct):
    """A parameter, a result or a constant."""

    type: TypeDesc
    default: DefaultValue | None = None
    flags: int = 0


class FuncDesc(msgspec.Struct):
    """A method, or one direction of a property."""

    memid: int
    parameters: list[ElemDesc] | None
    kind: int
    invoke: int
    optional: int
    """How many parameters may be left out."""
    vtable: int
    """Where it is in the vtable, in bytes; 0 for nowhere."""
    result: ElemDesc
    flags: int = 0
    count: int = 0
    """Of the parameters."""
    reserved: list[int] | None = None
    convention: int = CC_STDCALL
    reserved_count: int = 0


class VarDesc(msgspec.Struct):
    """A constant, or a data member. `value`: of its union, a variant where it is a constant."""

    memid: int
    value: Arm
    type: ElemDesc
    flags: int = 0
    kind: int = VAR_CONST
    reserved: str | None = None


class TypeAttr(msgspec.Struct):
    """What a type is."""

    guid: Guid
    size: int
    """Of an instance, in bytes."""
    kind: int
    functions: int = 0
    variables: int = 0
    implemented: int = 0
    vtable: int = 0
    """Size of the vtable in bytes."""
    alignment: int = 0
    flags: int = 0
    major: int = 0
    minor: int = 0
    alias: TypeDesc = msgspec.field(default_factory=TypeDesc)
    lcid: int = 0
    reserved1: int = 0
    reserved2: int = UNUSED
    reserved3: int = UNUSED
    reserved4: str | None = None
    reserved5: int = 0
    reserved6: int = 0


class LibAttr(msgspec.Struct):
    """TLIBATTR: what a library is."""

    guid: Guid
    major: int
    minor: int
    lcid: int = 0
    system: int = SYS_WIN64
    flags: int = 0


class CustomData(msgspec.Struct):
    """CUSTDATA; nothing here has any."""

    count: int = 0
    items: None = None


class _TypeDescType(Type[TypeDesc]):
    alignment = 4
    size_min = 4

    @override
    def read(self, reader: Reader) -> TypeDesc:
        reader.align(self.alignment)
        found = TypeDesc(U16.read(reader))
        arm = _arm(found.vt)
        if arm is not None:
            found.of = arm.read(reader)
            settle(reader, found.of, partial(setattr, found, "of"))
        if U16.read(reader) != found.vt:
            raise BadStub(f"a TYPEDESC of type {found.vt:#x} whose union says otherwise")
        return found

    @override
    def write(self, writer: Writer, value: TypeDesc) -> None:
        writer.align(self.alignment)
        U16.write(writer, value.vt)
        arm = _arm(value.vt)
        if arm is not None:
            arm.write(writer, value.of)
        U16.write(writer, value.vt)


class _ArrayDescType(Type[ArrayDesc]):
    alignment = 4
    size_min = 12

    @override
    def read(self, reader: Reader) -> ArrayDesc:
        count = reader.u32()
        element = TYPE_DESC.read(reader)
        if U16.read(reader) != count:
            raise BadStub(f"an array of other than {count} dimensions")
        if count * 2 * U32.size_min > reader.left:
            raise BadStub(f"{count} dimensions in {reader.left} bytes")
        bounds = [(U32.read(reader), I32.read(reader)) for _ in range(count)]
        return ArrayDesc(element, bounds)

    @override
    def write(self, writer: Writer, value: ArrayDesc) -> None:
        writer.u32(len(value.bounds))
        TYPE_DESC.write(writer, value.element)
        U16.write(writer, len(value.bounds))
        for elements, lower in value.bounds:
            writer.u32(elements)
            I32.write(writer, lower)


TYPE_DESC: Final = _TypeDescType()
_POINTED: Final[Type[Any]] = Unique(TYPE_DESC)
_ARMS: Final[dict[int, Type[Any]]] = {
    TypeVarType.PTR: _POINTED,
    TypeVarType.SAFEARRAY: _POINTED,
    TypeVarType.CARRAY: Unique(_ArrayDescType()),
    TypeVarType.USERDEFINED: U32,
}


def _arm(vt: int) -> Type[Any] | None:
    return _ARMS.get(vt)


_TEXT: Final = Unique(WideString(NAME_MAX_CHARS))
ELEM_DESC: Final = Structure(
    ElemDesc,
    {
        "type": TYPE_DESC,
        "default": Unique(Structure(DefaultValue, {"size": U32, "value": NESTED_VARIANT})),
        "flags": U16,
    },
)
FUNC_DESC: Final = Structure(
    FuncDesc,
    {
        "memid": I32,
        "reserved": Unique(Array(I32, 0)),
        "parameters": Unique(Array(ELEM_DESC, ARGUMENTS_MAX)),
        "kind": U32,
        "invoke": U32,
        "convention": U32,
        "count": I16,
        "optional": I16,
        "vtable": I16,
        "reserved_count": I16,
        "result": ELEM_DESC,
        "flags": U16,
    },
    lambda found: found.count == len(found.parameters or ()),
)
VAR_DESC: Final = Structure(
    VarDesc,
    {
        "memid": I32,
        "reserved": _TEXT,
        "value": Union(U32, {0: U32, 1: U32, VAR_CONST: VARIANT_REFERENCE, 3: U32}),
        "type": ELEM_DESC,
        "flags": U16,
        "kind": U32,
    },
)
TYPE_ATTR: Final = Structure(
    TypeAttr,
    {
        "guid": GUID,
        "lcid": U32,
        "reserved1": U32,
        "reserved2": U32,
        "reserved3": U32,
        "reserved4": _TEXT,
        "size": U32,
        "kind": U32,
        "functions": U16,
        "variables": U16,
        "implemented": U16,
        "vtable": U16,
        "alignment": U16,
        "flags": U16,
        "major": U16,
        "minor": U16,
        "alias": TYPE_DESC,
        "reserved5": U32,
        "reserved6": U16,
    },
)
LIB_ATTR: Final = Structure(
    LibAttr,
    {
        "guid": GUID,
        "lcid": U32,
        "system": U32,
        "major": U16,
        "minor": U16,
        "flags": U16,
    },
)
CUSTOM_DATA: Final = Structure(CustomData, {"count": U32, "items": Unique(Array(GUID, 0))})
NO_GUID: Final = NIL
"""Of a type without one."""

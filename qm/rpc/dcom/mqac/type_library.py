"""The type library of [MC-MQAC]: `interfaces.json` and the enumerations as descriptions.

A dual interface has two faces, a dispinterface in the library and an interface that it leads to
[MS-OAUT 2.2.49.4.2]. HREFTYPEs are places: of the library's own types first, of interfaces behind.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum, IntFlag
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Final

import msgspec

from qm.client.mqac import constants
from qm.rpc.dcom.automation.descriptions import (
    FUNCFLAG_FRESTRICTED,
    NO_GUID,
    POINTER_BYTES,
    ElemDesc,
    FuncDesc,
    FuncKind,
    ImplTypeFlag,
    InvokeKind,
    LibAttr,
    ParamFlag,
    TypeAttr,
    TypeDesc,
    TypeFlag,
    TypeKind,
    TypeVarType,
    VarDesc,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.mqac.definitions import (
    Coclass,
    Definition,
    Method,
    Parameter,
    definitions,
)
from qm.rpc.dcom.runtime.identifiers import guid
from qm.rpc.ndr.types import Arm
from qm.wire.guid import Guid

LIBRARY_NAME: Final = "MSMQ"
_LIBID: Final = guid("d7d6e071-dccd-11d0-aa4b-0060970debae")
"""Of the object library of MSMQ, by which languages know these types."""
_MAJOR, _MINOR = 3, 0
_APPLICATION: Final = "MSMQApplication"
_FIRST_CONSTANT: Final = 0x4000_0000
"""MEMBERID of an enumeration's first constant; anything but a reserved one will do."""
_INTEGER_BYTES: Final = 4
_UNKNOWN: Final = Definition(
    "IUnknown",
    "00000000-0000-0000-c000-000000000046",
    "",
    (
        Method(
            0,
            "QueryInterface",
            "method",
            0x6000_0000,
            (Parameter("riid", "GUID*"), Parameter("ppvObj", "void**", is_out=True)),
            is_restricted=True,
        ),
        Method(1, "AddRef", "method", 0x6000_0001, is_restricted=True),
        Method(2, "Release", "method", 0x6000_0002, is_restricted=True),
    ),
)
_DISPATCH: Final = Definition(
    "IDispatch",
    "00020400-0000-0000-c000-000000000046",
    "IUnknown",
    (
        Method(
            3,
            "GetTypeInfoCount",
            "method",
            0x6001_0000,
            (Parameter("pctinfo", "UINT*", is_out=True),),
            is_restricted=True,
        ),
        Method(
            4,
            "GetTypeInfo",
            "method",
            0x6001_0001,
            (
                Parameter("iTInfo", "UINT"),
                Parameter("lcid", "ULONG"),
                Parameter("ppTInfo", "void**", is_out=True),
            ),
            is_restricted=True,
        ),
        Method(
            5,
            "GetIDsOfNames",
            "method",
            0x6001_0002,
            (
                Parameter("riid", "GUID*"),
                Parameter("rgszNames", "LPWSTR*"),
                Parameter("cNames", "UINT"),
                Parameter("lcid", "ULONG"),
                Parameter("rgDispId", "long*", is_out=True),
            ),
            is_restricted=True,
        ),
        Method(
            6,
            "Invoke",
            "method",
            0x6001_0003,
            (
                Parameter("dispIdMember", "long"),
                Parameter("riid", "GUID*"),
                Parameter("lcid", "ULONG"),
                Parameter("wFlags", "USHORT"),
                Parameter("pDispParams", "DISPPARAMS*"),
                Parameter("pVarResult", "VARIANT*", is_out=True),
                Parameter("pExcepInfo", "EXCEPINFO*", is_out=True),
                Parameter("puArgErr", "UINT*", is_out=True),
            ),
            is_restricted=True,
        ),
    ),
)
"""What all objects are called through, as programs in one process see it [MS-OAUT 3.1.4]."""
_COUNTS: Final = frozenset({"AddRef", "Release"})
"""What returns a number in place of an HRESULT."""
_TYPES: Final = {
    "BSTR": VarType.BSTR,
    "VARIANT": VarType.VARIANT,
    "VARIANT_BOOL": VarType.BOOL,
    "long": VarType.I4,
    "short": VarType.I2,
    "HRESULT": TypeVarType.HRESULT,
    "UINT": VarType.UINT,
    "ULONG": VarType.UI4,
    "USHORT": VarType.UI2,
    "LPWSTR": TypeVarType.LPWSTR,
}
_POINTERS: Final = {"IDispatch": VarType.DISPATCH, "IUnknown": VarType.UNKNOWN}
"""Whose pointers have a type of their own."""
_INVOKE: Final = {
    "method": InvokeKind.FUNC,
    "get": InvokeKind.PROPERTYGET,
    "put": InvokeKind.PROPERTYPUT,
    "putref": InvokeKind.PROPERTYPUTREF,
}


class Member(msgspec.Struct, frozen=True):
    """A method, one direction of a property, or a constant."""

    name: str
    desc: FuncDesc | VarDesc
    parameters: tuple[str, ...] = ()


class Implemented(msgspec.Struct, frozen=True):
    """An interface that a type derives from or has."""

    reference: int
    """HREFTYPE."""
    flags: int = 0


class Description(msgspec.Struct, frozen=True):
    """A type."""

    reference: int
    """HREFTYPE."""
    place: int
    """In the library's table; of an interface that of its dispinterface."""
    name: str
    attr: TypeAttr
    functions: tuple[Member, ...] = ()
    variables: tuple[Member, ...] = ()
    implemented: tuple[Implemented, ...] = ()
    partner: int | None = None
    """HREFTYPE of the other face of a dual interface."""
    defined: frozenset[int] = frozenset()
    """MEMBERIDs of members that it does not inherit."""

    def member(self, memid: int) -> Member | None:
        """Return the first of its members with this number: of a property its get."""
        found = [one for one in (*self.functions, *self.variables) if one.desc.memid == memid]
        gets = [one for one in found if _invoke_kind(one) == InvokeKind.PROPERTYGET]
        return next(iter(gets or found), None)


class Library:
    """All types."""

    name: Final = LIBRARY_NAME
    attr: Final = LibAttr(_LIBID, _MAJOR, _MINOR)

    def __init__(self, types: Sequence[Description], interfaces: Sequence[Description]) -> None:
        """`interfaces`: those of dual ones, which the table does not have."""
        self.types: Final = tuple(types)
        self._every: Final = (*types, *interfaces)

    def at(self, reference: int) -> Description | None:
        """Return the type of an HREFTYPE."""
        return self._every[reference] if 0 <= reference < len(self._every) else None

    def of_guid(self, wanted: Guid) -> Description | None:
        """Return the type in the table that has a GUID."""
        return None if wanted == NO_GUID else self._by_guid.get(wanted)

    def named(self, name: str) -> Description | None:
        """Return the type in the table that has a name, in any case."""
        return self._by_name.get(name.casefold())

    def find(self, name: str) -> Sequence[tuple[str, Description, int | None]]:
        """Return what has a name in any case: the name, its type, and of members the MEMBERID."""
        return self._named.get(name.casefold(), ())

    @cached_property
    def application(self) -> Description:
        """The appobject coclass [MC-MQAC 6]: its members are names of the library."""
        return self._by_name[_APPLICATION.casefold()]

    @cached_property
    def names(self) -> Sequence[str]:
        """All names of types and members, each once."""
        return [found[0][0] for found in self._named.values()]

    @cached_property
    def _by_guid(self) -> dict[Guid, Description]:
        return {one.attr.guid: one for one in self.types}

    @cached_property
    def _by_name(self) -> dict[str, Description]:
        return {one.name.casefold(): one for one in self.types}

    @cached_property
    def _named(self) -> dict[str, list[tuple[str, Description, int | None]]]:
        found: dict[str, list[tuple[str, Description, int | None]]] = {}
        for one in self.types:
            found.setdefault(one.name.casefold(), []).append((one.name, one, None))
            members = {each.desc.memid: each.name for each in (*one.functions, *one.variables)}
            for memid, name in members.items():
                if memid in one.defined:
                    found.setdefault(name.casefold(), []).append((name, one, memid))
        return found

    # Names -----------------------------------------------------------------------------------

    def binding(self, of: Description) -> Iterator[tuple[Description, Member]]:
        """Yield what names in a type may mean, with where it is from [MS-OAUT 3.5.4.1.1.2]."""
        for one in (*of.functions, *of.variables):
            yield of, one
        if of.attr.kind == TypeKind.COCLASS:
            bases = [one for one in of.implemented if one.flags == ImplTypeFlag.DEFAULT]
        else:
            # The dispinterface of a dual interface has all that it inherits.
            bases = [one for one in of.implemented if not _is_dispatch_of_dual(of)]
        for base in bases:
            found = self.at(base.reference)
            assert found is not None
            yield from self.binding(found)

    def bound(self, of: Description, name: str) -> list[tuple[Description, Member]]:
        """Return what a name in any case means in a type."""
        folded = name.casefold()
        return [found for found in self.binding(of) if found[1].name.casefold() == folded]

    def member(self, of: Description, memid: int) -> Member | None:
        """Return a member of a type, or one that it inherits."""
        own = of.member(memid)
        if own is not None or of.attr.kind == TypeKind.COCLASS:
            return own
        return next((one for _, one in self.binding(of) if one.desc.memid == memid), None)


def _is_dispatch_of_dual(of: Description) -> bool:
    return of.attr.kind == TypeKind.DISPATCH and of.partner is not None


def _invoke_kind(member: Member) -> int:
    return member.desc.invoke if isinstance(member.desc, FuncDesc) else 0


@cache
def library() -> Library:
    """Return the library; it is made when it is first asked for."""
    return _Builder().library()


class _Builder:
    """Makes descriptions: types refer to each other by place, so places come first."""

    def __init__(self) -> None:
        self._enumerations = list(_enumerations(constants))
        known = definitions()
        self._interfaces = [
            one for one in known.interfaces if "IDispatch" in known.lineage(one.name)
        ]
        self._duals = [one for one in self._interfaces if "dual" in one.attributes]
        table = [
            *(one.__name__ for one in self._enumerations),
            *(one.name for one in self._interfaces),
            *(one.name for one in known.coclasses),
            *(_UNKNOWN.name, _DISPATCH.name),
        ]
        self._places = {name: place for place, name in enumerate(table)}
        self._partners = {one.name: len(table) + k for k, one in enumerate(self._duals)}
        self._described: dict[str, TypeDesc] = {}

    def library(self) -> Library:
        types = [
            *map(self._enumeration, self._enumerations),
            *map(self._dispatch, self._interfaces),
            *map(self._coclass, definitions().coclasses),
            self._base(_UNKNOWN),
            self._base(_DISPATCH),
        ]
        return Library(types, [self._interface(one) for one in self._duals])

    # Types -----------------------------------------------------------------------------------

    def _enumeration(self, made: type[IntEnum] | type[IntFlag]) -> Description:
        variables = tuple(
            Member(name, _constant(_FIRST_CONSTANT + place, one.value))
            for place, (name, one) in enumerate(made.__members__.items())
        )
        attr = _attr(
            NO_GUID,
            TypeKind.ENUM,
            size=_INTEGER_BYTES,
            alignment=_INTEGER_BYTES,
            variables=len(variables),
        )
        place = self._places[made.__name__]
        defined = frozenset(one.desc.memid for one in variables)
        return Description(place, place, made.__name__, attr, (), variables, defined=defined)

    def _dispatch(self, one: Definition) -> Description:
        """Return a dispinterface; the one of a dual interface has what it inherits, too."""
        partner = self._partners.get(one.name)
        methods = list(one.methods) if partner is None else _inherited(one.name)
        functions = tuple(self._function(each, FuncKind.DISPATCH) for each in methods)
        attr = _attr(
            one.guid,
            TypeKind.DISPATCH,
            functions=len(functions),
            implemented=1,
            vtable=len(_base_methods()) * POINTER_BYTES,
            flags=_flags(one),
        )
        place = self._places[one.name]
        bases = (Implemented(self._places["IDispatch"]),)
        return Description(
            place, place, one.name, attr, functions, (), bases, partner, _memids(one)
        )

    def _interface(self, one: Definition) -> Description:
        """Return the other face of a dual interface: its own methods, as in its vtable."""
        functions = tuple(self._function(each, FuncKind.PUREVIRTUAL) for each in one.methods)
        base = self._partners.get(one.base, self._places[one.base])
        attr = _attr(
            one.guid,
            TypeKind.INTERFACE,
            functions=len(functions),
            implemented=1,
            vtable=len(_inherited(one.name)) * POINTER_BYTES,
            flags=_flags(one) | TypeFlag.OLEAUTOMATION,
        )
        place = self._places[one.name]
        reference = self._partners[one.name]
        bases = (Implemented(base),)
        return Description(
            reference, place, one.name, attr, functions, (), bases, place, _memids(one)
        )

    def _base(self, one: Definition) -> Description:
        functions = tuple(self._function(each, FuncKind.PUREVIRTUAL) for each in one.methods)
        bases = (Implemented(self._places[one.base]),) if one.base else ()
        attr = _attr(
            one.guid,
            TypeKind.INTERFACE,
            functions=len(functions),
            implemented=len(bases),
            vtable=(one.methods[-1].opnum + 1) * POINTER_BYTES,
        )
        place = self._places[one.name]
        return Description(place, place, one.name, attr, functions, (), bases, defined=_memids(one))

    def _coclass(self, one: Coclass) -> Description:
        has = [name for name in one.interfaces if name in self._partners]
        found = [
            Implemented(self._places[name], ImplTypeFlag.DEFAULT if name == one.default else 0)
            for name in has
        ]
        if one.source:
            of_source = ImplTypeFlag.DEFAULT | ImplTypeFlag.SOURCE
            found.append(Implemented(self._places[one.source], of_source))
        flags = TypeFlag.CANCREATE
        if one.name == _APPLICATION:
            flags |= TypeFlag.APPOBJECT | TypeFlag.PREDECLID
        attr = _attr(one.guid, TypeKind.COCLASS, implemented=len(found), flags=flags)
        place = self._places[one.name]
        return Description(place, place, one.name, attr, (), (), tuple(found))

    # Members ---------------------------------------------------------------------------------

    def _function(self, method: Method, kind: FuncKind) -> Member:
        """Return a method; a dispinterface returns its result, an interface an HRESULT."""
        is_late = kind == FuncKind.DISPATCH
        result = next((one for one in method.parameters if one.is_result), None)
        given = [one for one in method.parameters if not (is_late and one.is_result)]
        if method.name in _COUNTS:
            returns = self._type("ULONG")
        elif not is_late:
            returns = self._type("HRESULT")
        else:
            returns = self._type("void" if result is None else result.type.removesuffix("*"))
        desc = FuncDesc(
            method.dispid,
            [ElemDesc(self._type(one.type), None, _param_flags(one)) for one in given] or None,
            kind,
            _INVOKE[method.kind],
            sum(one.is_optional for one in given),
            max(method.opnum, 0) * POINTER_BYTES,
            ElemDesc(returns),
            FUNCFLAG_FRESTRICTED if method.is_restricted else 0,
            len(given),
        )
        return Member(method.name, desc, tuple(one.name for one in given))

    def _type(self, idl: str) -> TypeDesc:
        """Return the type of a text such as `VARIANT*`; what is not known here is void (RP-A71)."""
        found = self._described.get(idl)
        if found is None:
            found = self._described[idl] = self._parsed(idl)
        return found

    def _parsed(self, idl: str) -> TypeDesc:
        pointed = idl.removesuffix("*")
        if pointed in _POINTERS:
            return TypeDesc(_POINTERS[pointed])
        if pointed != idl:
            return TypeDesc(TypeVarType.PTR, self._type(pointed))
        if idl in self._places:
            return TypeDesc(TypeVarType.USERDEFINED, self._places[idl])
        return TypeDesc(_TYPES.get(idl, TypeVarType.VOID))


def _enumerations(module: ModuleType) -> Iterator[type[IntEnum] | type[IntFlag]]:
    for one in vars(module).values():
        if isinstance(one, type) and one.__module__ == module.__name__:
            assert issubclass(one, IntEnum | IntFlag)
            yield one


def _base_methods() -> list[Method]:
    return [*_UNKNOWN.methods, *_DISPATCH.methods]


def _inherited(name: str) -> list[Method]:
    """Return all methods of an interface that derives from IDispatch."""
    return [*_base_methods(), *definitions().methods(name)]


def _memids(one: Definition) -> frozenset[int]:
    return frozenset(each.dispid for each in one.methods)


def _attr(identifier: Guid, kind: TypeKind, **more: Any) -> TypeAttr:
    made = TypeAttr(identifier, POINTER_BYTES, kind, alignment=POINTER_BYTES)
    return msgspec.structs.replace(made, major=_MAJOR, minor=_MINOR, **more)


def _flags(one: Definition) -> int:
    """Return TYPEFLAGS of an interface that derives from IDispatch."""
    marks = {
        "dual": TypeFlag.DUAL,
        "hidden": TypeFlag.HIDDEN,
        "nonextensible": TypeFlag.NONEXTENSIBLE,
    }
    found = TypeFlag.DISPATCHABLE
    for mark, flag in marks.items():
        if mark in one.attributes:
            found |= flag
    return found


def _param_flags(one: Parameter) -> int:
    found = ParamFlag.OUT if one.is_out else ParamFlag.IN
    if one.is_result:
        found |= ParamFlag.RETVAL
    return found | (ParamFlag.OPT if one.is_optional else 0)


def _constant(memid: int, value: int) -> VarDesc:
    wrapped = value - (value >> 31 << 32)
    arm = Arm(2, Variant(VarType.I4, wrapped))
    return VarDesc(memid, arm, ElemDesc(TypeDesc(VarType.I4)))

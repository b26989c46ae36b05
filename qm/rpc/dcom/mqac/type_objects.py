"""ITypeInfo, ITypeLib and ITypeComp of the library [MS-OAUT 3.5, 3.7, 3.9, 3.11, 3.13].

Descriptions are shared by all; what a caller holds is an object of its own that leads to one, the
same one as long as it is held.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from qm.rpc.dcom.automation.descriptions import (
    LIBRARY,
    MEMBERID_DEFAULTINST,
    MEMBERID_NIL,
    UNUSED,
    VAR_STATIC,
    CustomData,
    DescKind,
    ElemDesc,
    FuncDesc,
    TypeDesc,
    TypeKind,
    TypeVarType,
    VarDesc,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.exports import Exports
from qm.rpc.dcom.mqac.type_library import Description, Library, Member, library
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.identifiers import (
    IID_ITYPECOMP,
    IID_ITYPEINFO,
    IID_ITYPEINFO2,
    IID_ITYPELIB,
    IID_ITYPELIB2,
)
from qm.rpc.ndr.types import Arm, Varying
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

PARTNER: Final = 0xFFFF_FFFF
"""Index of a dual interface's other face."""
_NAME_ARGUMENT: Final = 1
"""In refPtrFlags: the name is wanted; nothing else of documentation exists here."""
T = TypeVar("T")
Results = list[Any]
Create = Callable[[Guid, Call], Awaitable[Any]]
"""Makes an object of a class. Raises ComError."""


class TypeObject:
    """What a caller holds; `of`: a type, None for the whole library."""

    __slots__ = ("__weakref__", "of")
    iids: tuple[Guid, ...] = ()

    def __init__(self, of: Description | None) -> None:
        self.of: Final = of


class TypeInfo(TypeObject):
    """A type."""

    __slots__ = ()
    iids = (IID_ITYPEINFO, IID_ITYPEINFO2)


class TypeLib(TypeObject):
    """The library."""

    __slots__ = ()
    iids = (IID_ITYPELIB, IID_ITYPELIB2)


class TypeComp(TypeObject):
    """Names in a type or in the library."""

    __slots__ = ()
    iids = (IID_ITYPECOMP,)


class TypeObjects:
    """Gives them to callers."""

    def __init__(self, exports: Exports, create: Create) -> None:
        self.exports: Final = exports
        self.create: Final = create
        self._held: WeakValueDictionary[tuple[Owner, type[TypeObject], int | None], TypeObject] = (
            WeakValueDictionary()
        )

    def info(self, call: Call, of: Description | None) -> bytes | None:
        """Return an ITypeInfo of a type, NULL for none. Raises ComError."""
        return None if of is None else self._pointer_to(call, TypeInfo, of)

    def lib(self, call: Call) -> bytes:
        """Return the ITypeLib. Raises ComError."""
        return self._pointer_to(call, TypeLib, None)

    def comp(self, call: Call, of: Description | None) -> bytes:
        """Return an ITypeComp of a type or of the library. Raises ComError."""
        return self._pointer_to(call, TypeComp, of)

    def _pointer_to(self, call: Call, made: type[TypeObject], of: Description | None) -> bytes:
        owner = self.exports.places.owner(call)
        key = (owner, made, None if of is None else of.reference)
        target = self._held.get(key)
        if target is None:
            target = self._held[key] = made(of)
        return self.exports.pointer_to(call, target, made.iids[0])


class TypeInfos:
    """Implements ITypeInfo and ITypeInfo2."""

    def __init__(self, objects: TypeObjects) -> None:
        self._objects = objects

    def _of(self, call: Call, this: Any) -> Description:
        found: Description = self._objects.exports.pointer(call, this).facet.of
        return found

    def get_type_attr(self, call: Call, given: list[Any]) -> Results:
        """GetTypeAttr."""
        return [None, self._of(call, given[0]).attr, 0, Hresult.S_OK]

    def get_type_comp(self, call: Call, given: list[Any]) -> Results:
        """GetTypeComp."""
        return [None, self._objects.comp(call, self._of(call, given[0])), Hresult.S_OK]

    def get_func_desc(self, call: Call, given: list[Any]) -> Results:
        """GetFuncDesc."""
        this, index = given
        return _description(self._of(call, this).functions, index)

    def get_var_desc(self, call: Call, given: list[Any]) -> Results:
        """GetVarDesc."""
        this, index = given
        return _description(self._of(call, this).variables, index)

    def get_names(self, call: Call, given: list[Any]) -> Results:
        """GetNames: of a member and its parameters."""
        this, memid, count = given
        of = self._of(call, this)
        member = library().member(of, memid)
        if memid == MEMBERID_DEFAULTINST and of is library().application:
            return [None, Varying(count, [of.name][:count]), min(count, 1), Hresult.S_OK]
        if member is None:
            return [None, Varying(count, []), 0, Hresult.TYPE_E_ELEMENTNOTFOUND]
        names = [member.name, *member.parameters][:count]
        return [None, Varying(count, names), len(names), Hresult.S_OK]

    def get_ref_type_of_impl_type(self, call: Call, given: list[Any]) -> Results:
        """GetRefTypeOfImplType: what it derives from or has, or its other face."""
        this, index = given
        of = self._of(call, this)
        if index == PARTNER and of.partner is not None:
            return [None, of.partner, Hresult.S_OK]
        found = _at(of.implemented, index)
        if found is None:
            return [None, 0, Hresult.TYPE_E_ELEMENTNOTFOUND]
        return [None, found.reference, Hresult.S_OK]

    def get_impl_type_flags(self, call: Call, given: list[Any]) -> Results:
        """GetImplTypeFlags."""
        this, index = given
        found = _at(self._of(call, this).implemented, index)
        if found is None:
            return [None, 0, Hresult.TYPE_E_ELEMENTNOTFOUND]
        return [None, found.flags, Hresult.S_OK]

    def get_documentation(self, call: Call, given: list[Any]) -> Results:
        """GetDocumentation: the name."""
        this, memid, flags = given
        of = self._of(call, this)
        found = of if memid == MEMBERID_NIL else library().member(of, memid)
        return _documentation(found, flags)

    def get_dll_entry(self, call: Call, given: list[Any]) -> Results:
        """GetDllEntry: there are no modules."""
        self._of(call, given[0])
        return [None, None, None, 0, Hresult.TYPE_E_BADMODULEKIND]

    def get_ref_type_info(self, call: Call, given: list[Any]) -> Results:
        """GetRefTypeInfo."""
        this, reference = given
        self._of(call, this)
        found = library().at(reference)
        status = Hresult.TYPE_E_ELEMENTNOTFOUND if found is None else Hresult.S_OK
        return [None, self._objects.info(call, found), status]

    async def create_instance(self, call: Call, given: list[Any]) -> Results:
        """CreateInstance: of a coclass, as an activation would."""
        this, iid = given
        of = self._of(call, this)
        if of.attr.kind != TypeKind.COCLASS:
            return [None, None, Hresult.TYPE_E_BADMODULEKIND]
        try:
            made = await self._objects.create(of.attr.guid, call)
            pointer = self._objects.exports.pointer_to(call, made, iid)
        except ComError as error:
            return [None, None, error.status]
        return [None, pointer, Hresult.S_OK]

    def get_mops(self, call: Call, given: list[Any]) -> Results:
        """GetMops: has no effect."""
        self._of(call, given[0])
        return [None, None, Hresult.S_OK]

    def get_containing_type_lib(self, call: Call, given: list[Any]) -> Results:
        """GetContainingTypeLib."""
        place = self._of(call, given[0]).place
        return [None, self._objects.lib(call), place, Hresult.S_OK]

    # ITypeInfo2 ------------------------------------------------------------------------------

    def get_type_kind(self, call: Call, given: list[Any]) -> Results:
        """GetTypeKind."""
        return [None, self._of(call, given[0]).attr.kind, Hresult.S_OK]

    def get_type_flags(self, call: Call, given: list[Any]) -> Results:
        """GetTypeFlags."""
        return [None, self._of(call, given[0]).attr.flags, Hresult.S_OK]

    def get_func_index_of_mem_id(self, call: Call, given: list[Any]) -> Results:
        """GetFuncIndexOfMemId; without INVOKEKIND the first one."""
        this, memid, kind = given
        for index, one in enumerate(self._of(call, this).functions):
            assert isinstance(one.desc, FuncDesc)
            if one.desc.memid == memid and kind in (0, one.desc.invoke):
                return [None, index, Hresult.S_OK]
        return [None, UNUSED, Hresult.TYPE_E_ELEMENTNOTFOUND]

    def get_var_index_of_mem_id(self, call: Call, given: list[Any]) -> Results:
        """GetVarIndexOfMemId."""
        this, memid = given
        for index, one in enumerate(self._of(call, this).variables):
            if one.desc.memid == memid:
                return [None, index, Hresult.S_OK]
        return [None, UNUSED, Hresult.TYPE_E_ELEMENTNOTFOUND]

    def get_documentation_2(self, call: Call, given: list[Any]) -> Results:
        """GetDocumentation2: there are no help strings in DLLs."""
        this, memid, *_ = given
        of = self._of(call, this)
        is_known = memid == MEMBERID_NIL or library().member(of, memid) is not None
        return [None, None, 0, None, _found(is_known)]

    def get_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetCustData: nothing here has custom data."""
        self._of(call, given[0])
        return [None, Variant(), Hresult.S_OK]

    def get_func_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetFuncCustData."""
        this, index, _ = given
        return [None, Variant(), _known(self._of(call, this).functions, index)]

    def get_param_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetParamCustData."""
        this, function, index, _ = given
        return [None, Variant(), self._known_parameter(call, this, function, index)]

    def get_var_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetVarCustData."""
        this, index, _ = given
        return [None, Variant(), _known(self._of(call, this).variables, index)]

    def get_impl_type_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetImplTypeCustData."""
        this, index, _ = given
        return [None, Variant(), _known(self._of(call, this).implemented, index)]

    def get_all_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllCustData."""
        self._of(call, given[0])
        return [None, CustomData(), Hresult.S_OK]

    def get_all_func_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllFuncCustData."""
        this, index = given
        return [None, CustomData(), _known(self._of(call, this).functions, index)]

    def get_all_param_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllParamCustData."""
        this, function, index = given
        return [None, CustomData(), self._known_parameter(call, this, function, index)]

    def get_all_var_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllVarCustData."""
        this, index = given
        return [None, CustomData(), _known(self._of(call, this).variables, index)]

    def get_all_impl_type_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllImplTypeCustData."""
        this, index = given
        return [None, CustomData(), _known(self._of(call, this).implemented, index)]

    def _known_parameter(self, call: Call, this: Any, function: int, index: int) -> Hresult:
        found = _at(self._of(call, this).functions, function)
        return _known(() if found is None else found.parameters, index)


class TypeLibs:
    """Implements ITypeLib and ITypeLib2."""

    def __init__(self, objects: TypeObjects) -> None:
        self._objects = objects

    def _library(self, call: Call, this: Any) -> Library:
        self._objects.exports.pointer(call, this)
        return library()

    def get_type_info_count(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfoCount."""
        return [None, len(self._library(call, given[0]).types), Hresult.S_OK]

    def get_type_info(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfo."""
        this, index = given
        return self._info(call, _at(self._library(call, this).types, index))

    def get_type_info_type(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfoType."""
        this, index = given
        found = _at(self._library(call, this).types, index)
        if found is None:
            return [None, 0, Hresult.TYPE_E_ELEMENTNOTFOUND]
        return [None, found.attr.kind, Hresult.S_OK]

    def get_type_info_of_guid(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfoOfGuid."""
        this, wanted = given
        return self._info(call, self._library(call, this).of_guid(wanted))

    def _info(self, call: Call, found: Description | None) -> Results:
        return [None, self._objects.info(call, found), _found(found is not None)]

    def get_lib_attr(self, call: Call, given: list[Any]) -> Results:
        """GetLibAttr."""
        return [None, self._library(call, given[0]).attr, 0, Hresult.S_OK]

    def get_type_comp(self, call: Call, given: list[Any]) -> Results:
        """GetTypeComp."""
        self._library(call, given[0])
        return [None, self._objects.comp(call, None), Hresult.S_OK]

    def get_documentation(self, call: Call, given: list[Any]) -> Results:
        """GetDocumentation: the name of a type or of the library."""
        this, index, flags = given
        known = self._library(call, this)
        return _documentation(known if index == LIBRARY else _at(known.types, index), flags)

    def is_name(self, call: Call, given: list[Any]) -> Results:
        """IsName: of a type or of a member."""
        this, name, _ = given
        found = self._library(call, this).find(name)
        return [None, int(bool(found)), found[0][0] if found else None, Hresult.S_OK]

    def find_name(self, call: Call, given: list[Any]) -> Results:
        """FindName: types that have a name, or a member of it."""
        this, name, _, count = given
        found = self._library(call, this).find(name)[:count]
        infos = [self._objects.info(call, one) for _, one, _ in found]
        memids = [MEMBERID_NIL if memid is None else memid for _, _, memid in found]
        results = (Varying(len(infos), infos), Varying(len(memids), memids), len(found))
        return [None, *results, found[0][0] if found else None, Hresult.S_OK]

    # ITypeLib2 -------------------------------------------------------------------------------

    def get_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetCustData: the library has no custom data."""
        self._library(call, given[0])
        return [None, Variant(), Hresult.S_OK]

    def get_lib_statistics(self, call: Call, given: list[Any]) -> Results:
        """GetLibStatistics: how many names there are, and their characters."""
        names = self._library(call, given[0]).names
        return [None, len(names), sum(map(len, names)), Hresult.S_OK]

    def get_documentation_2(self, call: Call, given: list[Any]) -> Results:
        """GetDocumentation2: there are no help strings in DLLs."""
        this, index, *_ = given
        types = self._library(call, this).types
        return [None, None, 0, None, _found(index == LIBRARY or _at(types, index) is not None)]

    def get_all_cust_data(self, call: Call, given: list[Any]) -> Results:
        """GetAllCustData."""
        self._library(call, given[0])
        return [None, CustomData(), Hresult.S_OK]


class TypeComps:
    """Implements ITypeComp."""

    def __init__(self, objects: TypeObjects) -> None:
        self._objects = objects

    def _of(self, call: Call, this: Any) -> Description | None:
        found: Description | None = self._objects.exports.pointer(call, this).facet.of
        return found

    def bind(self, call: Call, given: list[Any]) -> Results:
        """Bind: what a name means in a type, or among the enumerations and the application object
        of the library.
        """
        this, name, _, flags = given
        of = self._of(call, this)
        if of is not None:
            found = library().bound(of, name)
        else:
            enumeration = _enumeration(name)
            if enumeration is not None:
                comp = self._objects.comp(call, enumeration)
                return [None, None, DescKind.TYPECOMP, None, None, comp, 0, Hresult.S_OK]
            application = library().application
            if name.casefold() == application.name.casefold():
                return self._application(call, DescKind.VARDESC, None)
            if library().bound(application, name):
                comp = self._objects.comp(call, application)
                return self._application(call, DescKind.IMPLICITAPPOBJ, comp)
            found = [
                (one, member)
                for _, one, memid in library().find(name)
                if one.attr.kind == TypeKind.ENUM
                and memid is not None
                and (member := one.member(memid)) is not None
            ]
        return self._bound(call, found, flags)

    def _application(self, call: Call, kind: DescKind, comp: bytes | None) -> Results:
        application = library().application
        of_class = TypeDesc(TypeVarType.USERDEFINED, application.reference)
        desc = VarDesc(
            MEMBERID_DEFAULTINST,
            Arm(VAR_STATIC, 0),
            ElemDesc(TypeDesc(TypeVarType.PTR, of_class)),
            kind=VAR_STATIC,
        )
        info = self._objects.info(call, application)
        return [None, info, kind, None, desc, comp, 0, Hresult.S_OK]

    def _bound(
        self, call: Call, found: Sequence[tuple[Description, Member]], flags: int
    ) -> Results:
        """Return what Bind answers; the first that fits, such as a property's get (RP-A71)."""
        for one, member in found:
            info, desc = self._objects.info(call, one), member.desc
            if not isinstance(desc, FuncDesc):
                return [None, info, DescKind.VARDESC, None, desc, None, 0, Hresult.S_OK]
            if not flags or flags & desc.invoke:
                return [None, info, DescKind.FUNCDESC, desc, None, None, 0, Hresult.S_OK]
        status = Hresult.TYPE_E_TYPEMISMATCH if found else Hresult.S_OK
        return [None, None, DescKind.NONE, None, None, None, 0, status]

    def bind_type(self, call: Call, given: list[Any]) -> Results:
        """BindType: a type of the library; NULL in a type."""
        this, name, _ = given
        found = library().named(name) if self._of(call, this) is None else None
        return [None, self._objects.info(call, found), Hresult.S_OK]


def _enumeration(name: str) -> Description | None:
    found = library().named(name)
    return found if found is not None and found.attr.kind == TypeKind.ENUM else None


def _at(elements: Sequence[T], index: int) -> T | None:
    return elements[index] if 0 <= index < len(elements) else None


def _found(is_found: bool) -> Hresult:
    return Hresult.S_OK if is_found else Hresult.TYPE_E_ELEMENTNOTFOUND


def _known(elements: Sequence[Any], index: int) -> Hresult:
    return _found(_at(elements, index) is not None)


def _description(members: Sequence[Member], index: int) -> Results:
    found = _at(members, index)
    if found is None:
        return [None, None, 0, Hresult.TYPE_E_ELEMENTNOTFOUND]
    return [None, found.desc, 0, Hresult.S_OK]


def _documentation(named: Description | Library | Member | None, flags: int) -> Results:
    """Return what GetDocumentation answers: a name, no text, no help."""
    if named is None:
        return [None, None, None, 0, None, Hresult.TYPE_E_ELEMENTNOTFOUND]
    name = named.name if flags & _NAME_ARGUMENT else None
    return [None, name, None, 0, None, Hresult.S_OK]

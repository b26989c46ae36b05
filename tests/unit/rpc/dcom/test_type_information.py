"""Type information of objects, as a late-bound client reads it [MS-OAUT 4.8]."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qm.client.mqac import constants
from qm.rpc.dcom.automation.descriptions import (
    DescKind,
    FuncKind,
    ImplTypeFlag,
    InvokeKind,
    ParamFlag,
    TypeDesc,
    TypeFlag,
    TypeKind,
    TypeVarType,
)
from qm.rpc.dcom.automation.dispatch import IDISPATCH
from qm.rpc.dcom.automation.type_interfaces import (
    ITYPECOMP,
    ITYPEINFO,
    ITYPEINFO2,
    ITYPELIB,
    ITYPELIB2,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import (
    IID_IDISPATCH,
    IID_ITYPEINFO,
    IID_IUNKNOWN,
    NULL,
)
from qm.rpc.dcom.runtime.objref import Objref
from qm.rpc.dcom.runtime.orpc import orpc_interface, orpc_operation
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, InterfaceRef
from qm.rpc.interface import Fault, Interface
from qm.rpc.ndr.types import U32
from qm.rpc.pdu.codes import FaultStatus
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    FAILURE,
    SEND,
    Late,
    Program,
    clsid,
    dcom_world,
    iid,
    play,
    pointed,
)

NIL, NONE = -1, 0xFFFF_FFFF
ELEMENT_NOT_FOUND = 0x8002802B
ENGLISH = 0x409


class Described:
    """A type object of a node."""

    def __init__(self, program: Program, found: bytes | Objref, interface: Interface) -> None:
        self.ref = pointed(found) if isinstance(found, bytes) else found
        self.program, self.interface = program, interface

    async def ask(self, opnum: int, *values: Any) -> list[Any]:
        """Call a method; everything that it gives, the HRESULT last."""
        return await self.program.server.call(self.ref.ipid, self.interface, opnum, values)

    async def get(self, opnum: int, *values: Any) -> Any:
        """Its first result."""
        found, *_, status = await self.ask(opnum, *values)
        if status & FAILURE:
            raise ComError(status)
        return found

    async def by(self, interface: Interface) -> Described:
        """The same object by another interface."""
        late = Late(self.program.server, self.ref)
        return Described(self.program, await late.by(interface.syntax.uuid), interface)

    async def name(self, memid: int = NIL) -> str:
        found: str = await self.get(12, memid, 1)
        return found

    async def info(self, opnum: int, *values: Any) -> Described:
        return Described(self.program, await self.get(opnum, *values), ITYPEINFO)

    async def comp(self) -> Described:
        return Described(self.program, await self.get(4), ITYPECOMP)

    async def library(self) -> Described:
        return await Described(self.program, await self.get(18), ITYPELIB).by(ITYPELIB2)

    async def base(self, index: int) -> Described:
        """An interface that it derives from or has."""
        return await self.info(14, await self.get(8, index))

    async def functions(self) -> list[Any]:
        return [await self.get(5, index) for index in range((await self.get(3)).functions)]


async def info_of(program: Program, late: Late, interface: Interface = IDISPATCH) -> Described:
    ref = await late.by(interface.syntax.uuid)
    raw, status = await program.server.call(ref.ipid, interface, 4, [0, ENGLISH])
    assert status == 0
    return Described(program, raw, ITYPEINFO)


def with_info(name: str, check: Callable[[Program, Described], Awaitable[None]]) -> None:
    """Check the type information of an object of a class."""

    async def scenario(program: Program) -> None:
        await check(program, await info_of(program, await program.create(name)))

    play(scenario)


@pytest.mark.spec("RP-OAUT-3.1.4.1-01", "RP-OAUT-3.1.4.2-01")
def test_each_object_describes_what_late_bound_calls_reach() -> None:
    async def scenario(program: Program) -> None:
        for coclass in definitions().coclasses:
            late = await program.create(coclass.name)
            call = program.server.call
            assert await call(late.ref.ipid, IDISPATCH, 3, []) == [1, 0]
            info = await info_of(program, late)
            assert await info.name() == coclass.default
            attr = await info.get(3)
            assert (attr.guid, attr.kind) == (iid(coclass.default), TypeKind.DISPATCH)
            assert (attr.major, attr.minor, attr.lcid, attr.alias) == (3, 0, 0, TypeDesc())
            assert attr.flags & (TypeFlag.DUAL | TypeFlag.DISPATCHABLE) == 0x1040
            assert not attr.flags & TypeFlag.OLEAUTOMATION
            for index in (1, NONE):
                answer = await call(late.ref.ipid, IDISPATCH, 4, [index, ENGLISH])
                assert answer == [None, Hresult.DISP_E_BADINDEX]
        # A pointer of an older revision describes that one.
        late = await program.create("MSMQQueueInfo")
        older = object_interfaces()[iid("IMSMQQueueInfo2")]
        assert await (await info_of(program, late, older)).name() == "IMSMQQueueInfo2"

    play(scenario)


@pytest.mark.spec("RP-OAUT-3.7.4.3-01", "RP-OAUT-3.7.4.5-01")
def test_a_dispinterface_has_every_member_as_invoke_takes_it() -> None:
    async def check(program: Program, info: Described) -> None:
        methods = definitions().methods("IMSMQQuery4")
        functions = await info.functions()
        assert len(functions) == 7 + len(methods)
        assert [one.flags for one in functions[:7]] == [1] * 7
        assert [await info.name(one.memid) for one in functions[:7]] == [
            *("QueryInterface", "AddRef", "Release"),
            *("GetTypeInfoCount", "GetTypeInfo", "GetIDsOfNames", "Invoke"),
        ]
        for one, method in zip(functions[7:], methods, strict=True):
            given = [each for each in method.parameters if not each.is_result]
            assert (one.memid, one.vtable) == (method.dispid, method.opnum * 8)
            assert (one.kind, one.convention, one.flags) == (FuncKind.DISPATCH, 4, 0)
            assert one.count == len(given)
            assert one.optional == sum(each.is_optional for each in given)
            names, count, status = await info.ask(7, one.memid, 255)
            assert (names.items[0], count, status) == (method.name, len(names.items), 0)
            assert names.items[1:] == [each.name for each in given]
            assert await info.name(one.memid) == method.name
        lookup = next(one for one in functions if one.count == 11)
        variant = TypeDesc(TypeVarType.PTR, TypeDesc(VarType.VARIANT))
        assert [one.type for one in lookup.parameters] == [variant] * 11
        assert {one.flags for one in lookup.parameters} == {ParamFlag.IN | ParamFlag.OPT}
        # Its result is another type of the library.
        assert lookup.result.type.vt == TypeVarType.PTR
        assert lookup.result.type.of.vt == TypeVarType.USERDEFINED
        result = await info.info(14, lookup.result.type.of.of)
        assert await result.name() == "IMSMQQueueInfos4"
        # One that is not dual has its own members alone.
        events = await (await info.library()).info(6, iid("_DMSMQEventEvents"))
        own = definitions().named("_DMSMQEventEvents").methods
        functions = await events.functions()
        assert [one.memid for one in functions] == [one.dispid for one in own]
        assert [await events.name(one.memid) for one in functions] == [one.name for one in own]

    with_info("MSMQQuery", check)


@pytest.mark.spec("AC-3.15.4.1.3-02")
def test_of_a_collection_s_members_the_enumerator_alone_is_restricted() -> None:
    async def check(program: Program, info: Described) -> None:
        own = (await info.functions())[7:]
        flags = {await info.name(one.memid): one.flags for one in own}
        assert flags == {"Item": 0, "Count": 0, "_NewEnum": 1}

    with_info("MSMQCollection", check)


@pytest.mark.spec("RP-OAUT-3.7.4.5-01", "RP-OAUT-3.7.4.3-01", "RP-OAUT-3.9.4.3-01")
def test_properties_have_an_accessor_for_each_direction() -> None:
    async def check(program: Program, info: Described) -> None:
        functions = await info.functions()
        label = [one for one in functions if await info.name(one.memid) == "Label"]
        assert [one.invoke for one in label] == [InvokeKind.PROPERTYGET, InvokeKind.PROPERTYPUT]
        get, put = label
        assert (get.count, get.result.type) == (0, TypeDesc(VarType.BSTR))
        assert (put.count, put.result.type) == (1, TypeDesc(TypeVarType.VOID))
        assert put.parameters[0].type == TypeDesc(VarType.BSTR)
        # Names are those of the get.
        names, _, _ = await info.ask(7, put.memid, 9)
        assert names.items == ["Label"]
        newer = await info.by(ITYPEINFO2)
        at = functions.index(get)
        for kind, index in ((0, at), (InvokeKind.PROPERTYGET, at), (4, functions.index(put))):
            assert await newer.get(24, get.memid, kind) == index
        for memid, kind in ((get.memid, 1), (get.memid, 8), (4_711, 0)):
            assert await newer.ask(24, memid, kind) == [NONE, ELEMENT_NOT_FOUND]
        assert await newer.ask(25, get.memid) == [NONE, ELEMENT_NOT_FOUND]
        assert await newer.get(22) == TypeKind.DISPATCH
        assert await newer.get(23) == (await info.get(3)).flags

    with_info("MSMQQueueInfo", check)


@pytest.mark.spec("RP-OAUT-3.7.4.6-01", "RP-OAUT-3.7.4.3-01")
def test_a_dual_interface_has_two_faces() -> None:
    async def check(program: Program, info: Described) -> None:
        assert await (await info.base(0)).name() == "IDispatch"
        face = await info.base(NONE)
        attr = await face.get(3)
        assert (await face.name(), attr.kind) == ("IMSMQTransaction3", TypeKind.INTERFACE)
        assert attr.flags & TypeFlag.OLEAUTOMATION
        # Its own methods alone; the slots of all before them count in the vtable.
        own = definitions().named("IMSMQTransaction3").methods
        assert (attr.functions, attr.vtable) == (len(own), 8 * (own[-1].opnum + 1))
        (function,) = await face.functions()
        assert function.kind == FuncKind.PUREVIRTUAL
        assert function.result.type == TypeDesc(TypeVarType.HRESULT)
        assert function.parameters[-1].flags == ParamFlag.OUT | ParamFlag.RETVAL
        again = await face.base(NONE)
        assert again.ref.oid == info.ref.oid
        # What it derives from are interfaces, too, down to IUnknown.
        lineage = []
        below = face
        while (await below.get(3)).implemented:
            below = await below.base(0)
            assert (await below.get(3)).kind == TypeKind.INTERFACE
            lineage.append(await below.name())
        assert lineage == ["IMSMQTransaction2", "IMSMQTransaction", "IDispatch", "IUnknown"]
        commit = definitions().named("IMSMQTransaction").methods[0]
        names, _, _ = await face.ask(7, commit.dispid, 4)
        assert names.items == [commit.name, *(one.name for one in commit.parameters)]
        for at, index in ((info, 1), (face, 1), (below, 0), (below, NONE)):
            assert await at.ask(8, index) == [0, ELEMENT_NOT_FOUND]

    with_info("MSMQTransaction", check)


@pytest.mark.spec("RP-OAUT-3.7.4.13-01", "RP-OAUT-3.7.4.4-01", "RP-OAUT-3.7.4.6-01", "AC-1.9-04")
def test_the_library_has_every_enumeration_interface_and_class() -> None:
    async def check(program: Program, info: Described) -> None:
        library = await info.library()
        count = await library.get(3)
        attr = await library.get(7)
        assert (attr.major, attr.minor, attr.system) == (3, 0, 3)
        assert await library.get(9, NIL, 1) == "MSMQ"
        kinds: dict[int, list[str]] = {}
        for index in range(count):
            kind, name = await library.get(5, index), await library.get(9, index, 1)
            kinds.setdefault(kind, []).append(name)
            found = await library.info(4, index)
            assert await found.name() == name
            assert (await found.ask(18))[1] == index
        late = [one for one in definitions().interfaces if "IDispatch" in lineage(one.name)]
        assert kinds[TypeKind.DISPATCH] == [one.name for one in late]
        assert kinds[TypeKind.COCLASS] == [one.name for one in definitions().coclasses]
        assert kinds[TypeKind.INTERFACE] == ["IUnknown", "IDispatch"]
        for name in kinds[TypeKind.ENUM]:
            await check_enumeration(library, name)
        # The other face of a dual interface is not in the table: it has the dispinterface's place.
        face = await info.base(NONE)
        places = [(await one.ask(18))[1] for one in (info, face)]
        assert places[0] == places[1] < count
        event = await library.info(6, clsid("MSMQEvent"))
        assert await has(event) == {
            "IMSMQEvent": 0,
            "IMSMQEvent2": 0,
            "IMSMQEvent3": ImplTypeFlag.DEFAULT,
            "IMSMQPrivateEvent": 0,
            "_DMSMQEventEvents": ImplTypeFlag.DEFAULT | ImplTypeFlag.SOURCE,
        }
        assert (await event.get(3)).flags == TypeFlag.CANCREATE
        # A dispinterface that is not dual has no other face.
        events = await library.info(6, iid("_DMSMQEventEvents"))
        assert await (await events.base(0)).name() == "IDispatch"
        for index in (1, NONE):
            assert await events.ask(8, index) == [0, ELEMENT_NOT_FOUND]

    with_info("MSMQEvent", check)


def lineage(name: str) -> list[str]:
    return definitions().lineage(name)


async def check_enumeration(library: Described, name: str) -> None:
    """Its constants are those of the objects' own enumeration."""
    (raw,) = (await library.ask(11, name, 0, 1))[0].items
    found = Described(library.program, raw, ITYPEINFO)
    attr = await found.get(3)
    assert (attr.kind, attr.guid, attr.size) == (TypeKind.ENUM, NULL, 4)
    values = {}
    for index in range(attr.variables):
        one = await found.get(6, index)
        assert (one.kind, one.value.tag) == (2, 2), "VAR_CONST"
        assert one.value.value.vt == VarType.I4
        values[await found.name(one.memid)] = one.value.value.value & 0xFFFF_FFFF
        assert await (await found.by(ITYPEINFO2)).get(25, one.memid) == index
    for index in (attr.variables, attr.variables + 1, NONE):
        assert await found.ask(6, index) == [None, 0, ELEMENT_NOT_FOUND]
    members = getattr(constants, name).__members__
    assert values == {key: value.value & 0xFFFF_FFFF for key, value in members.items()}


async def has(coclass: Described) -> dict[str, int]:
    """The interfaces of a coclass."""
    found = {}
    for index in range((await coclass.get(3)).implemented):
        base = await coclass.base(index)
        assert (await base.get(3)).kind == TypeKind.DISPATCH
        found[await base.name()] = await coclass.get(9, index)
    return found


@pytest.mark.spec("RP-OAUT-3.11.4.4-01", "RP-OAUT-3.11.4.9-01")
def test_types_are_found_by_identifier_and_by_name() -> None:
    async def check(program: Program, info: Described) -> None:
        library = await info.library()
        for name in ("IMSMQQueue", "IMSMQQueue4", "_DMSMQEventEvents"):
            assert await (await library.info(6, iid(name))).name() == name
        for one in definitions().coclasses:
            found = await library.info(6, one.guid)
            assert await found.name() == one.name
            assert (await found.get(3)).kind == TypeKind.COCLASS
        for identifier, name in ((IID_IUNKNOWN, "IUnknown"), (IID_IDISPATCH, "IDispatch")):
            assert await (await library.info(6, identifier)).name() == name
        for unknown in (NULL, bytes(15) + b"\1", iid("ITransaction")):
            assert await library.ask(6, unknown) == [None, ELEMENT_NOT_FOUND]
        assert await library.ask(10, "msmqQUEUEinfo", 0) == [1, "MSMQQueueInfo", 0]
        assert await library.ask(10, "pathname", 0) == [1, "PathName", 0]
        assert await library.ask(10, "colour", 0) == [0, None, 0]
        infos, memids, count, name, status = await library.ask(11, "LOOKUPQUEUE", 0, 9)
        assert (count, name, status) == (len(infos.items), "LookupQueue", 0)
        described = [Described(program, one, ITYPEINFO) for one in infos.items]
        names = [await one.name() for one in described]
        assert names == ["IMSMQQuery", "IMSMQQuery2", "IMSMQQuery3", "IMSMQQuery4"]
        for each, memid in zip(described, memids.items, strict=True):
            assert await each.name(memid) == "LookupQueue"
        infos, memids, count, *_ = await library.ask(11, "LookupQueue", 0, 2)
        assert (len(infos.items), len(memids.items), count) == (2, 2, 2)
        assert await library.ask(11, "colour", 0, 9) == [*await empty(library), 0, None, 0]
        infos, memids, count, name, _ = await library.ask(11, "imsmqquery", 0, 65_535)
        assert (memids.items, count, name) == ([NIL], 1, "IMSMQQuery")
        unique, characters, _ = await library.ask(14)
        assert 300 < unique < characters

    async def empty(library: Described) -> list[Any]:
        return (await library.ask(11, "MSMQQueue", 0, 0))[:2]

    with_info("MSMQQueue", check)


@pytest.mark.spec("RP-OAUT-3.1.4.2-01")
def test_a_management_object_describes_the_kind_of_its_queue() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        for name, default in (
            (r"DIRECT=OS:QUORATE\private$\orders", "IMSMQQueueManagement"),
            (r"DIRECT=OS:far\private$\orders", "IMSMQOutgoingQueueManagement"),
        ):
            info = await program.create("MSMQQueueInfo")
            await info.put("FormatName", name)
            message = await program.create("MSMQMessage")
            await message.call("Send", await info.call("Open", SEND, 0))
            late = await program.create("MSMQManagement")
            assert await (await info_of(program, late)).name() == "IMSMQManagement"
            await late.call("Init", FormatName=name)
            described = await info_of(program, late)
            assert await described.name() == default
            attr = await described.get(3)
            assert (attr.guid, attr.kind) == (iid(default), 4), "a dispinterface"
            # What it describes is what can be called by name.
            names = {await described.name(one.memid) for one in await described.functions()}
            assert ("JournalMessageCount" in names) == (default == "IMSMQQueueManagement")
            for one in ("JournalMessageCount", "NextHops"):
                if one in names:
                    await late.number(one)
                    continue
                with pytest.raises(ComError):
                    await late.number(one)

    play(scenario)


@pytest.mark.spec("RP-OAUT-3.5.4.1-01")
def test_names_are_bound_to_members() -> None:
    async def check(program: Program, info: Described) -> None:
        comp = await info.comp()
        raw, kind, function, variable, none, _, status = await comp.ask(3, "LABEL", 0, 4)
        assert (kind, variable, none, status) == (DescKind.FUNCDESC, None, None, 0)
        assert function.invoke == InvokeKind.PROPERTYPUT
        assert pointed(raw).oid == info.ref.oid
        first = (await comp.ask(3, "label", 0, 0))[2]
        assert first.invoke == InvokeKind.PROPERTYGET
        nothing = [None, DescKind.NONE, None, None, None, 0]
        assert await comp.ask(3, "Label", 0, 1) == [*nothing, Hresult.TYPE_E_TYPEMISMATCH]
        assert await comp.ask(3, "colour", 0, 0) == [*nothing, 0]
        assert await comp.ask(4, "MSMQQueue", 0) == [None, 0]
        library = await info.library()
        names = Described(program, await library.get(8), ITYPECOMP)
        found = Described(program, await names.get(4, "msmqqueue", 0), ITYPEINFO)
        assert await found.name() == "MSMQQueue"
        assert await names.ask(4, "colour", 0) == [None, 0]
        # A class has the names of its default interface.
        raw, kind, function, *_ = await (await found.comp()).ask(3, "Receive", 0, 1)
        assert kind == DescKind.FUNCDESC
        assert await Described(program, raw, ITYPEINFO).name() == "IMSMQQueue4"
        raw, kind, _, one, *_ = await names.ask(3, "mq_send_access", 0, 0)
        assert (kind, one.value.value) == (DescKind.VARDESC, Variant(VarType.I4, 2))
        assert await Described(program, raw, ITYPEINFO).name() == "MQACCESS"
        raw, kind, _, _, inner, *_ = await names.ask(3, "mqaccess", 0, 0)
        assert (raw, kind) == (None, DescKind.TYPECOMP)
        access = Described(program, inner, ITYPECOMP)
        assert (await access.ask(3, "MQ_PEEK_ACCESS", 0, 0))[3].value.value.value == 0x20
        assert await names.ask(3, "Label", 0, 0) == [*nothing, 0]
        # An interface has the names of those that it derives from; so have events.
        face = await (await info.base(NONE)).comp()
        raw, kind, *_ = await face.ask(3, "Invoke", 0, 1)
        assert await Described(program, raw, ITYPEINFO).name() == "IDispatch"
        events = await (await library.info(6, iid("_DMSMQEventEvents"))).comp()
        raw, kind, *_ = await events.ask(3, "arrived", 0, 0)
        assert await Described(program, raw, ITYPEINFO).name() == "_DMSMQEventEvents"
        raw, *_ = await events.ask(3, "AddRef", 0, 0)
        assert await Described(program, raw, ITYPEINFO).name() == "IUnknown"

    with_info("MSMQQueueInfo", check)


@pytest.mark.spec("RP-OAUT-3.7.4.11-01", "RP-OAUT-3.7.4.9-01")
def test_classes_make_objects_and_nothing_is_a_module() -> None:
    async def check(program: Program, info: Described) -> None:
        library = await info.library()
        coclass = await library.info(6, clsid("MSMQMessage"))
        message = Late(program.server, pointed(await coclass.get(16, IID_IDISPATCH)))
        await message.put("Label", "made by its description")
        assert await message.get("Label") == "made by its description"
        foreign = await coclass.ask(16, iid("IMSMQQueue"))
        assert foreign == [None, Hresult.E_NOINTERFACE]
        refused = Hresult.TYPE_E_BADMODULEKIND
        assert await info.ask(16, IID_IDISPATCH) == [None, refused]
        for one in (info, coclass):
            assert await one.ask(13, 1, 1, 7) == [None, None, 0, refused]
            assert await one.ask(17, 1) == [None, 0]

    with_info("MSMQCollection", check)


@pytest.mark.spec("RP-OAUT-3.9.4.11-01")
def test_nothing_has_custom_data() -> None:
    async def check(program: Program, info: Described) -> None:
        newer = await info.by(ITYPEINFO2)
        library = await info.library()
        item = iid("IMSMQQuery")
        enumeration = await (await library.info(4, 0)).by(ITYPEINFO2)
        variables = (await (await library.info(4, 0)).get(3)).variables
        for one, opnum in ((newer, 26), (library, 13)):
            assert (await one.ask(opnum, item))[0].vt == VarType.EMPTY
        for one, opnum in ((newer, 32), (library, 16)):
            found, status = await one.ask(opnum)
            assert (found.count, found.items, status) == (0, None, 0)
        # Of the first function with parameters: LookupQueue behind those of IDispatch.
        known: dict[int, tuple[int, ...]] = {27: (7,), 28: (7, 8), 30: (0,)}
        unknown: dict[int, tuple[int, ...]] = {27: (10,), 28: (7, 11), 29: (0,), 30: (1,)}

        async def has_none(one: Described, opnum: int, place: tuple[int, ...], wanted: int) -> None:
            value, status = await one.ask(opnum, *place, item)
            assert (value.vt, value.value, status) == (0, None, wanted), "VT_EMPTY"
            every, status = await one.ask(opnum + 6, *place)
            assert (every.count, every.items, status) == (0, None, wanted)

        for opnum, place in known.items():
            await has_none(newer, opnum, place, 0)
        for opnum, place in unknown.items():
            await has_none(newer, opnum, place, 0x8002802B)
        for index, wanted in ((0, 0), (variables - 1, 0), (variables, 0x8002802B)):
            await has_none(enumeration, 29, (index,), wanted)
        assert (await newer.ask(28, NONE, 0, item))[-1] == ELEMENT_NOT_FOUND
        for opnum, one in ((31, newer), (15, library)):
            assert await one.ask(opnum, NIL, 0, 7) == [None, 0, None, 0]
            assert (await one.ask(opnum, 9_999, 0, 7))[-1] == ELEMENT_NOT_FOUND

    with_info("MSMQQuery", check)


@pytest.mark.spec("RP-OAUT-3.7.4.3-01", "RP-OAUT-3.7.4.4-01", "RP-OAUT-3.7.4.5-01")
def test_what_is_not_there_is_said_and_counts_cost_nothing() -> None:
    async def check(program: Program, info: Described) -> None:
        library = await info.library()
        missing = ELEMENT_NOT_FOUND
        count = (await info.get(3)).functions
        assert await info.ask(5, count) == [None, 0, missing]
        for index in (1_000, 0x7FFF_FFFF, NONE):
            assert await info.ask(5, index) == [None, 0, missing]
            assert await info.ask(6, index) == [None, 0, missing]
            assert await info.ask(9, index) == [0, missing]
            assert await info.ask(14, index) == [None, missing]
            assert await library.ask(4, index) == [None, missing]
            assert await library.ask(5, index) == [0, missing]
        for memid in (-2, -5, 9_999, 0x7FFF_FFFF):
            names, found, status = await info.ask(7, memid, NONE)
            assert (names.items, found, status) == ([], 0, missing)
            assert await info.ask(12, memid, 15) == [None, None, 0, None, missing]
        for index in (-2, 200, 0x7FFF_FFFF):
            assert await library.ask(9, index, 15) == [None, None, 0, None, missing]
        for room, given in ((0, []), (1, ["LookupQueue"]), (2, ["LookupQueue", "QueueGuid"])):
            memid = definitions().named("IMSMQQuery4").methods[-1].dispid
            names, found, status = await info.ask(7, memid, room)
            assert (names.count_max, names.items, found, status) == (room, given, len(given), 0)
        names, found, _ = await info.ask(7, memid, NONE)
        assert (names.count_max, found) == (NONE, len(names.items))
        enumeration = await library.info(4, 0)
        constant = next(iter(getattr(constants, await enumeration.name()).__members__))
        number = (await enumeration.get(6, 0)).memid
        for room, given in ((0, []), (1, [constant]), (9, [constant])):
            names, found, status = await enumeration.ask(7, number, room)
            assert (names.items, found, status) == (given, len(given), 0)
        assert (await info.ask(12, NIL, 14))[0] is None
        coclass = await library.info(6, clsid("MSMQQuery"))
        assert (await coclass.ask(7, memid, 9))[1:] == [0, missing]
        numbers = (10, 11, 15, 19, 20, 21, 22)
        local = {opnum: orpc_operation("local", (), (U32,)) for opnum in numbers}
        info.interface = orpc_interface("ITypeInfo", IID_ITYPEINFO, local)
        for opnum in numbers:
            with pytest.raises(Fault) as fault:
                await info.ask(opnum)
            assert fault.value.status == FaultStatus.OPERATION_RANGE

    with_info("MSMQQuery", check)


def test_type_objects_are_counted_kept_and_let_go_as_all_others() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            alice, bob = await world.program(), await world.program("bob")
            late = await alice.create("MSMQQueue")
            first = await info_of(alice, late)
            # One object for each caller, however often it is asked for.
            second = await info_of(alice, late)
            other = await info_of(bob, await bob.create("MSMQQueue"))
            assert (first.ref.oid, first.ref.ipid) == (second.ref.oid, second.ref.ipid)
            assert other.ref.oid != first.ref.oid
            with pytest.raises(Fault) as fault:
                await Described(bob, first.ref, ITYPEINFO).ask(3)
            assert fault.value.status == Hresult.E_ACCESSDENIED
            refs = first.ref.public_refs
            await release(alice, first, refs)
            assert await first.name() == "IMSMQQueue4"
            await release(alice, first, refs)
            with pytest.raises(Fault) as fault:
                await first.name()
            assert fault.value.status == Hresult.RPC_E_DISCONNECTED
            # What was let go is given anew.
            assert await (await info_of(alice, late)).name() == "IMSMQQueue4"
            assert await other.name() == "IMSMQQueue4"
            # Of the objects of one client a library is one more, whoever leads to it.
            again = await info_of(alice, late)
            libraries = await asyncio.gather(*(again.library() for _ in range(5)))
            assert len({one.ref.oid for one in libraries}) == 1
            alice.close()
            bob.close()

    run(scenario())


async def release(program: Program, described: Described, count: int) -> None:
    server = program.server
    given = [InterfaceRef(described.ref.ipid, count, 0)]
    await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 5, (1, given))

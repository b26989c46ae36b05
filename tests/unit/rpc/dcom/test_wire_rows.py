"""Rows of [MC-MQAC] about what its objects are on the wire, and nothing else."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from qm.node.config.schema import RpcSection
from qm.rpc.dcom.automation.descriptions import (
    MEMBERID_DEFAULTINST,
    VAR_STATIC,
    DescKind,
    TypeDesc,
    TypeVarType,
)
from qm.rpc.dcom.automation.type_interfaces import ITYPECOMP, ITYPEINFO
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IUNKNOWN
from qm.rpc.dcom.runtime.objref import Objref, parse_objref
from qm.rpc.dcom.runtime.orpc import OrpcThis
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from tests.unit.rpc.dcom.scripts import (
    RECEIVE,
    Late,
    Program,
    clsid,
    iid,
    play,
    slot,
)
from tests.unit.rpc.dcom.test_automation import read, written
from tests.unit.rpc.dcom.test_events import CONTAINER, POINT, event_of
from tests.unit.rpc.dcom.test_type_information import Described, with_info
from tests.unit.rpc.reading import MAPPER_PORT


@pytest.mark.spec("AC-3.16.4-04", "AC-3.16.4-05", "AC-3.16.4-08", "AC-3.16.4.6.2-01")
def test_an_event_is_the_one_connection_point_of_itself() -> None:
    """Where a result goes is no part of a request, so that no program can say NULL."""

    async def scenario(program: Program) -> None:
        server = program.server
        _, container, point = await event_of(program)
        for opnum in (3, 4, 7):
            head = POINT.operations[opnum].takes.marshal([server.this()])
            assert POINT.operations[opnum].takes.unmarshal(head)[1] == len(head)
        events = UUID("d7d6e078-dccd-11d0-aa4b-0060970debae").bytes_le
        assert await server.call(point.ipid, POINT, 3, []) == [events, 0]
        raw, status = await server.call(point.ipid, POINT, 4, [])
        back = parse_objref(raw)
        assert isinstance(back, Objref)
        assert (back.ipid, back.oid, status) == (container.ipid, container.oid, 0)
        assert await server.call(point.ipid, POINT, 7, []) == [None, 0x80004001]
        for wrong in (IID_IUNKNOWN, IID_IDISPATCH, iid("IMSMQEvent3"), iid("IConnectionPoint")):
            refused = await server.call(container.ipid, CONTAINER, 4, [wrong])
            assert refused == [None, 0x80040200]
        assert (await server.call(container.ipid, CONTAINER, 4, [events]))[-1] == 0

    play(scenario)


@pytest.mark.spec("AC-1.9-65")
def test_the_application_object_and_the_source_of_events() -> None:
    async def check(program: Program, info: Described) -> None:
        library = await info.library()
        application = await library.info(6, clsid("MSMQApplication"))
        assert (await application.get(3)).flags == 0x2 | 0x1 | 0x8, "appobject, and predeclared"
        event = await library.info(6, clsid("MSMQEvent"))
        attr = await event.get(3)
        assert attr.flags == 0x2, "it can be created, and no more"
        flags = [await event.get(9, index) for index in range(attr.implemented)]
        (source,) = [index for index, one in enumerate(flags) if one == 0x1 | 0x2]
        assert await (await event.base(source)).name() == "_DMSMQEventEvents"

    with_info("MSMQEvent", check)


def test_members_of_the_application_are_names_of_the_library() -> None:
    """[MS-OAUT 3.5.4.1.1.1, 4.8.7]: a script calls them without an object."""

    async def check(program: Program, info: Described) -> None:
        names = Described(program, await (await info.library()).get(8), ITYPECOMP)
        asked = await names.ask(3, "MachineNameOfMachineId", 0, 0)
        raw, kind, function, variable, comp, reserved, status = asked
        assert (kind, function, reserved, status) == (DescKind.IMPLICITAPPOBJ, None, 0, 0)
        coclass = Described(program, raw, ITYPEINFO)
        assert await coclass.name() == "MSMQApplication"
        assert (variable.memid, variable.kind, variable.flags) == (
            MEMBERID_DEFAULTINST,
            VAR_STATIC,
            0,
        )
        assert variable.type.type.vt == TypeVarType.PTR
        of: TypeDesc = variable.type.type.of
        assert of.vt == TypeVarType.USERDEFINED
        assert await (await coclass.info(14, of.of)).name() == "MSMQApplication"
        inner = Described(program, comp, ITYPECOMP)
        raw, kind, *_ = await inner.ask(3, "MachineNameOfMachineId", 0, 1)
        assert kind == DescKind.FUNCDESC
        assert await Described(program, raw, ITYPEINFO).name() == "IMSMQApplication3"
        raw, kind, _, variable, comp, *_ = await names.ask(3, "msmqapplication", 0, 0)
        assert (kind, variable.memid, comp) == (DescKind.VARDESC, MEMBERID_DEFAULTINST, None)
        named = await coclass.ask(7, MEMBERID_DEFAULTINST, 4)
        assert (named[0].items, named[-1]) == (["MSMQApplication"], 0)
        other = await info.ask(7, MEMBERID_DEFAULTINST, 4)
        assert other[-1] == Hresult.TYPE_E_ELEMENTNOTFOUND

    with_info("MSMQQueue", check)


@pytest.mark.spec("AC-2.1-01")
def test_objects_are_resolved_on_the_mapper_s_port_and_called_over_tcp() -> None:
    assert RpcSection().mapper_port == 135

    async def scenario(program: Program) -> None:
        (ref,) = await program.server.create(clsid("MSMQQueueInfo"), IID_IDISPATCH)
        resolver = await program.server.resolver()
        found = await resolver.call(IOBJECTEXPORTER, 4, [ref.oxid, 1, [7]])
        assert found[-1] == 0
        assert found[0].addresses
        for address in found[0].addresses:
            assert int(address.partition("[")[2].rstrip("]")) not in (0, MAPPER_PORT)

    play(scenario)


@pytest.mark.spec("AC-3.1.4.2-02", "RP-OAUT-3.1.4.4-05")
def test_an_optional_argument_is_left_out_by_an_error_that_says_so() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await program.send("body", "kept")
        queue = await program.opened(RECEIVE)
        omitted = Variant(10, 0x80020004)
        left_out = [omitted, omitted, omitted, Variant(VarType.I4, 0)]
        peeked = await queue.call("Peek", *left_out[1:])
        assert isinstance(peeked, Late)
        for other in (Hresult.E_INVALIDARG, Hresult.DISP_E_TYPEMISMATCH, 0):
            with pytest.raises(ComError):
                await queue.call("Receive", Variant(VarType.ERROR, other), *left_out[1:])
        received = await queue.call("Receive", *left_out)
        assert isinstance(received, Late)
        assert await received.get("Label") == "kept"

    play(scenario)


@pytest.mark.spec("AC-2.2.1-01")
@pytest.mark.parametrize(
    ("variant", "raw"),
    [
        (Variant(11, 0xFFFF), struct.pack("<H", 0xFFFF)),
        (Variant(11, 0), struct.pack("<H", 0)),
        (Variant(7, 5.25), struct.pack("<d", 5.25)),
        (Variant(8, "ab"), struct.pack("<3I", 2, 4, 2) + "ab".encode("utf-16-le")),
        (Variant(8, None), struct.pack("<I", 0)),
        (Variant(3, -2), struct.pack("<i", -2)),
        (Variant(0), b""),
    ],
)
def test_automation_types_are_as_wide_as_they_are(variant: Variant, raw: bytes) -> None:
    found = written(variant)
    assert found.endswith(raw)
    # VARIANT: its size in quad words, reserved, VARTYPE, reserved, and VARTYPE again.
    head = (variant.vt, 0, 0, 0, variant.vt)
    assert struct.unpack_from("<4xI4HI", found) == (0, *head)
    assert read(found) == variant


@pytest.mark.spec("AC-2.2.1-01")
def test_interface_identifiers_are_sixteen_bytes() -> None:
    events = UUID("d7d6e078-dccd-11d0-aa4b-0060970debae").bytes_le
    told = POINT.operations[3].gives.marshal([None, events, 0])
    assert told == bytes(8) + events + bytes(4), "IID*: behind ORPCTHAT, before the HRESULT"
    wanted = CONTAINER.operations[4].takes.marshal([OrpcThis(bytes(16)), events])
    assert wanted[32:] == events, "REFIID: behind ORPCTHIS"
    assert CONTAINER.operations[4].takes.unmarshal(wanted)[0][1] == events


@pytest.mark.spec("AC-2.2.1-01")
def test_a_true_property_is_minus_one() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue(transactional=True)
        assert await slot(info, "IMSMQQueueInfo4", "IsTransactional2") == -1
        assert (await info.get("IsTransactional2")) is True

    play(scenario)

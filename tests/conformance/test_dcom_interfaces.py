"""Interfaces by the identifiers, bases and slots of their rows, asked of objects of a real node."""

from __future__ import annotations

import re
from typing import Any

import pytest

from qm.names.guid import guid_from_text
from qm.rpc.client import RpcFailed
from qm.rpc.dcom.automation.descriptions import ImplTypeFlag, TypeFlag, TypeKind
from qm.rpc.dcom.automation.type_interfaces import ITYPEINFO
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.objref import Objref
from qm.rpc.dcom.runtime.orpc import orpc_interface, orpc_operation
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import U32
from qm.rpc.pdu.codes import FaultStatus
from qm.wire.codes import ErrorCode
from tests.conformance.dcom_rows import rows
from tests.unit.rpc.dcom.scripts import OMITTED, Late, Program, clsid, iid, play, pointed, slot
from tests.unit.rpc.dcom.test_type_information import NONE, Described, has, info_of

ROW = re.compile(
    r"(?P<name>\w+) IID \{(?P<iid>[0-9a-f-]+)\} : (?P<base>\w+); "
    r"(?:own opnums (?P<first>\d+)-(?P<last>\d+)|no own methods|dispatch-only)"
    r"(?:; coclass (?P<coclass>\w+))?\."
)
SLOTS_MAX = 100
HAS_DEFAULT = 0x20
"""PARAMFLAG_FHASDEFAULT."""
LAST_OF = {"IUnknown": 2, "IDispatch": 6, "IMSMQEvent": 6, "IMSMQEvent2": 7, "IMSMQManagement": 15}
LAST_OF |= {"IMSMQTransaction": 9, "IMSMQTransaction2": 11, "IMSMQApplication": 7}
LAST_OF |= {"IMSMQApplication2": 14}
"""The last slot of each interface that another one derives from."""


async def ref_of(program: Program, name: str, coclass: str | None) -> Objref:
    """An object that has an interface."""
    server = program.server
    if name == "ITransaction":
        dispenser = await program.create("MSMQTransactionDispenser")
        begun = await dispenser.call("BeginTransaction")
        inner = await slot(begun, "IMSMQTransaction3", name)
        return await Late(server, pointed(inner.value)).by(iid(name))
    if name == "IEnumConnectionPoints":
        (container,) = await server.create(clsid("MSMQEvent"), iid("IConnectionPointContainer"))
        raw = await slot(
            Late(server, container), "IConnectionPointContainer", "EnumConnectionPoints", "method"
        )
        return pointed(raw)
    if name == "IConnectionPoint":
        (event,) = await server.create(clsid("MSMQEvent"), iid("IMSMQEvent3"))
        return await Late(server, event).by(iid(name))
    assert coclass is not None
    (found,) = await server.create(clsid(coclass), iid(name))
    return found


async def slots_of(program: Program, ref: Objref, name: str, first: int) -> list[int]:
    """The slots that a pointer's interface has from one on: what it makes of calls without
    arguments.
    """
    numbers = range(first, SLOTS_MAX)
    operations = {number: orpc_operation("any", [], (U32,)) for number in numbers}
    told, found = orpc_interface(name, ref.iid, operations), []
    for number in numbers:
        try:
            await program.server.call(ref.ipid, told, number, [])
        except Fault as fault:
            if fault.status == FaultStatus.OPERATION_RANGE:
                continue
            assert fault.status == FaultStatus.BAD_STUB_DATA, number
        except RpcFailed as failed:
            assert "cannot be read" in str(failed), "it answers more than a status"
        found.append(number)
    return found


async def base_of(program: Program, identifier: bytes) -> tuple[str, str, Any]:
    """What the library says of an interface: its name, its base, and its attributes."""
    info = await info_of(program, await program.create("MSMQApplication"))
    found = await (await info.library()).info(6, identifier)
    described: Described = found
    attr = await found.get(3)
    if attr.flags & TypeFlag.DUAL:
        described = await found.base(NONE)
    return await found.name(), await (await described.base(0)).name(), attr


async def interface_is_served(program: Program, row_id: str) -> None:
    match = ROW.fullmatch(rows()[row_id]["text"])
    assert match, row_id
    name, base = match["name"], match["base"]
    identifier = guid_from_text(match["iid"])
    assert identifier is not None
    if base != "IUnknown":
        told = await base_of(program, identifier)
        assert told[:2] == (name, base), row_id
        if match["coclass"]:
            assert name in await has(await coclass_of(program, match["coclass"])), row_id
    ref = await ref_of(program, name, match["coclass"])
    assert ref.iid == identifier, row_id
    first = LAST_OF[base] + 1
    last = int(match["last"] or LAST_OF[base])
    assert int(match["first"] or first) == first, row_id
    beginning = first if base == "IUnknown" else 3
    found = await slots_of(program, ref, name, beginning)
    assert found == list(range(beginning, last + 1)), row_id


async def coclass_of(program: Program, name: str) -> Described:
    """A class in the library."""
    info = await info_of(program, await program.create("MSMQApplication"))
    return await (await info.library()).info(6, clsid(name))


def are_served(*row_ids: str) -> None:
    async def scenario(program: Program) -> None:
        for row_id in row_ids:
            await interface_is_served(program, row_id)

    play(scenario)


@pytest.mark.spec("AC-1.9-16", "AC-1.9-18", "AC-1.9-19", "AC-1.9-20")
def test_interfaces_below_automation_are_served() -> None:
    are_served("AC-1.9-16", "AC-1.9-18", "AC-1.9-19", "AC-1.9-20")


@pytest.mark.spec("AC-1.9-21", "AC-1.9-22", "AC-1.9-23", "AC-1.9-24")
def test_interfaces_of_queries_are_served() -> None:
    are_served("AC-1.9-21", "AC-1.9-22", "AC-1.9-23", "AC-1.9-24")


@pytest.mark.spec("AC-1.9-26", "AC-1.9-27", "AC-1.9-28")
def test_interfaces_of_messages_are_served() -> None:
    are_served("AC-1.9-26", "AC-1.9-27", "AC-1.9-28")


@pytest.mark.spec("AC-1.9-29", "AC-1.9-30", "AC-1.9-32", "AC-1.9-38", "AC-1.9-40")
def test_interfaces_of_queues_are_served() -> None:
    are_served("AC-1.9-29", "AC-1.9-30", "AC-1.9-32", "AC-1.9-38", "AC-1.9-40")


@pytest.mark.spec("AC-1.9-33", "AC-1.9-34", "AC-1.9-35", "AC-1.9-36")
def test_interfaces_of_events_are_served() -> None:
    are_served("AC-1.9-33", "AC-1.9-34", "AC-1.9-35", "AC-1.9-36")


@pytest.mark.spec("AC-1.9-37")
def test_events_are_a_dispinterface_that_clients_serve() -> None:
    async def scenario(program: Program) -> None:
        text = rows()["AC-1.9-37"]["text"]
        match = ROW.fullmatch(text)
        assert match, text
        identifier = guid_from_text(match["iid"])
        assert identifier is not None
        name, base, attr = await base_of(program, identifier)
        assert (name, base) == (match["name"], "IDispatch")
        assert (attr.kind, attr.flags & TypeFlag.DUAL) == (TypeKind.DISPATCH, 0)
        kinds = await has(await coclass_of(program, "MSMQEvent"))
        assert kinds[name] == ImplTypeFlag.DEFAULT | ImplTypeFlag.SOURCE
        # Objects have a connection point for it, not itself.
        (event,) = await program.server.create(clsid("MSMQEvent"), iid("IMSMQEvent3"))
        point = await Late(program.server, event).by(iid("IConnectionPoint"))
        served = object_interfaces()[point.iid]
        assert await program.server.call(point.ipid, served, 3, []) == [identifier, 0]
        (refused,) = await program.server.query(event.ipid, identifier)
        assert refused == Hresult.E_NOINTERFACE

    play(scenario)


@pytest.mark.spec("AC-1.9-42", "AC-1.9-43", "AC-1.9-44", "AC-1.9-45")
def test_interfaces_of_queue_infos_are_served() -> None:
    are_served("AC-1.9-42", "AC-1.9-43", "AC-1.9-44", "AC-1.9-45")


@pytest.mark.spec("AC-1.9-46", "AC-1.9-47", "AC-1.9-49", "AC-1.9-50", "AC-1.9-51")
def test_interfaces_of_transactions_are_served() -> None:
    are_served("AC-1.9-46", "AC-1.9-47", "AC-1.9-49", "AC-1.9-50", "AC-1.9-51")


@pytest.mark.spec("AC-1.9-52", "AC-1.9-53", "AC-1.9-54")
def test_interfaces_of_dispensers_are_served() -> None:
    are_served("AC-1.9-52", "AC-1.9-53", "AC-1.9-54")


@pytest.mark.spec("AC-1.9-55", "AC-1.9-56", "AC-1.9-57", "AC-1.9-58", "AC-1.9-59")
def test_interfaces_of_applications_and_destinations_are_served() -> None:
    are_served("AC-1.9-55", "AC-1.9-56", "AC-1.9-57", "AC-1.9-58", "AC-1.9-59")


@pytest.mark.spec("AC-1.9-62", "AC-1.9-63")
def test_interfaces_of_managed_queues_are_served() -> None:
    are_served("AC-1.9-62", "AC-1.9-63")


# Revisions -------------------------------------------------------------------------------------


def last_slots_are(coclass: str, family: str, *lasts: int) -> None:
    """Each revision of an interface has its last slot and none behind it: all but the first one
    have a number in their names.
    """

    async def scenario(program: Program) -> None:
        for place, last in enumerate(lasts):
            name = f"{family}{place + 1 if place else ''}"
            (ref,) = await program.server.create(clsid(coclass), iid(name))
            found = await slots_of(program, ref, name, 3)
            assert found == list(range(3, last + 1)), name

    play(scenario)


@pytest.mark.spec("AC-3.2.4-01", "AC-3.9.4-01", "AC-3.14.4-01", "AC-3.16.4-11")
def test_revisions_are_served_with_what_they_add() -> None:
    last_slots_are("MSMQApplication", "IMSMQApplication", 7, 14, 24)
    last_slots_are("MSMQTransaction", "IMSMQTransaction", 9, 11, 12)
    last_slots_are("MSMQQueueInfos", "IMSMQQueueInfos", 8, 9, 9, 9)
    last_slots_are("MSMQEvent", "IMSMQEvent", 6, 7, 7)


@pytest.mark.spec("AC-3.10.4-01", "AC-3.11.4-08", "AC-3.17.4-01")
def test_so_are_those_of_queues_and_messages() -> None:
    last_slots_are("MSMQQueueInfo", "IMSMQQueueInfo", 36, 40, 45, 45)
    last_slots_are("MSMQQueue", "IMSMQQueue", 19, 25, 38, 39)
    last_slots_are("MSMQMessage", "IMSMQMessage", 55, 81, 97, 97)


# The library -----------------------------------------------------------------------------------


@pytest.mark.spec("AC-6-10")
def test_interfaces_of_the_library_are_dual_and_have_no_defaults() -> None:
    async def scenario(program: Program) -> None:
        info = await info_of(program, await program.create("MSMQApplication"))
        library = await info.library()
        duals = set()
        for index in range(await library.get(3)):
            name = await library.get(9, index, 1)
            if not name.startswith("IMSMQ"):
                continue
            found = await library.info(4, index)
            assert (await found.get(3)).flags & TypeFlag.DUAL, name
            duals.add(name)
            for function in await (await found.base(NONE)).functions():
                flags = [one.flags for one in function.parameters or ()]
                assert not any(flag & HAS_DEFAULT for flag in flags), name
        assert {f"IMSMQMessage{number}" for number in ("", 2, 3, 4)} < duals
        # A NULL interface pointer is one, as pointers are unique unless it is said otherwise.
        message = await program.create("MSMQMessage")
        ref = await message.by(iid("IMSMQMessage4"))
        served = object_interfaces()[ref.iid]
        assert await program.server.call(ref.ipid, served, 83, [None]) == [0]

    play(scenario)


@pytest.mark.spec("AC-6-12")
def test_flags_of_certificates_are_in_the_library_and_taken() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        library = await (await info_of(program, application)).library()
        (raw,) = (await library.ask(11, "MQCERT_REGISTER", 0, 1))[0].items
        found = Described(program, raw, ITYPEINFO)
        constants = [await found.get(6, index) for index in range((await found.get(3)).variables)]
        values = {await found.name(one.memid): one.value.value.value for one in constants}
        assert values == {"MQCERT_REGISTER_ALWAYS": 1, "MQCERT_REGISTER_IF_NOT_EXIST": 2}
        ref = await application.by(iid("IMSMQApplication3"))
        served = object_interfaces()[ref.iid]
        kept = ErrorCode.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
        for flag, wanted in ((2, 0), (2, kept), (1, 0)):
            given = [Variant(VarType.I4, flag), OMITTED]
            assert await program.server.call(ref.ipid, served, 8, given) == [wanted]

    play(scenario)

"""Slots and DISPIDs of members, as the rows number them, called on objects of a real node."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from qm.client.mqac.constants import E_NOTIMPL
from qm.rpc.dcom.automation.dispatch import arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_ITYPEINFO, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import Objref, write_objref
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    PRIVATE,
    RECEIVE,
    SEND,
    Late,
    Program,
    clsid,
    iid,
    play,
    pointed,
)

CONTAINER = "IConnectionPointContainer"
NOTHING = 0x7FFF_0000
LATER = [f"IMSMQMessage{revision}" for revision in (2, 3, 4)]
GUIDS = [f"{{01020304-0506-0708-090A-0B0C0D0E0F1{digit}}}" for digit in range(2)]


async def called(late: Late, interface: str, opnum: int, *given: Any) -> Any:
    """Call a slot; its only result, None if it has none."""
    ref = await late.by(iid(interface))
    *found, status = await late.server.call(
        ref.ipid, object_interfaces()[ref.iid], opnum, list(given)
    )
    if status:
        raise ComError(status)
    return found[0] if found else None


async def is_kept(
    late: Late, interfaces: list[str], opnum: int, dispid: int, *values: Any, put: int = 0
) -> None:
    """What is put through one slot or by number is got through the one before it and by number.

    `put`: the slot for that, if it is not the next one.
    """
    for interface in interfaces:
        for value in values:
            await called(late, interface, put or opnum + 1, value)
            assert await called(late, interface, opnum) == value, interface
            assert await late.get(dispid) == late.python(late.variant(value)), interface
        for value in values:
            await late.put(dispid, value)
            assert await called(late, interface, opnum) == value, interface


@pytest.mark.spec(
    "AC-3.17.4.1.51-02",
    "AC-3.17.4.1.53-03",
    "AC-3.17.4.1.56-02",
    "AC-3.17.4.1.58-02",
    "AC-3.17.4.1.60-02",
)
def test_properties_of_messages_1() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        texts = [array_of(VarType.UI1, each) for each in (b"one", b"another")]
        for opnum, dispid in ((57, 29), (62, 32), (64, 33)):
            await is_kept(message, LATER, opnum, dispid, *texts)
        await is_kept(message, LATER, 59, 30, *GUIDS)
        await is_kept(message, LATER, 66, 34, 1, 0x7FFF_FFFF)
        for name, value in (
            ("Extension", b"another"),
            ("ConnectorTypeGuid", GUIDS[1]),
            ("DestinationSymmetricKey", b"another"),
            ("Signature", b"another"),
            ("AuthenticationProviderType", 0x7FFF_FFFF),
        ):
            assert await message.get(name) == value

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.62-03", "AC-3.17.4.1.65-03", "AC-3.2.4.3.7-02", "AC-3.10.4.1.33-02")
def test_properties_of_messages_2_applications_and_queues() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        await is_kept(message, LATER, 68, 35, "one", "another")
        await is_kept(message, LATER, 71, 36, 0, 0x8001)
        assert await message.get("AuthenticationProviderName") == "another"
        assert await message.get("MsgClass") == 0x8001
        application = await program.create("MSMQApplication")
        await is_kept(application, ["IMSMQApplication3"], 21, 10, "one", "another", put=20)
        assert await application.get("Machine") == "another"
        info = await program.queue_info()
        for interface in (f"IMSMQQueueInfo{revision}" for revision in (2, 3, 4)):
            for opnum, given in ((39, ()), (40, (Variant(VarType.BSTR, "mine"),))):
                with pytest.raises(ComError) as missing:
                    await called(info, interface, opnum, *given)
                assert missing.value.status == E_NOTIMPL
        for use in (info.get(18), info.put(18, "mine")):
            with pytest.raises(ComError) as missing:
                await use
            assert missing.value.status == E_NOTIMPL

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.80-03")
def test_a_destination_for_responses_is_put_by_reference() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        several = "DIRECT=OS:host\\PRIVATE$\\a,DIRECT=OS:host\\PRIVATE$\\b"
        destination = await program.create("MSMQDestination")
        await destination.put("FormatName", several)
        for interface in ("IMSMQMessage3", "IMSMQMessage4"):
            await called(message, interface, 87, write_objref(destination.ref))
            found = Late(program.server, pointed(await called(message, interface, 86)))
            assert await found.get("FormatName") == several
            await called(message, interface, 87, None)
            assert await called(message, interface, 86) is None
        await message.put(46, destination, by_reference=True)
        assert await (await message.get(46)).get("FormatName") == several

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.48-28")
def test_a_message_is_sent_by_slot_and_by_number_with_a_transaction_or_without() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        exact = r".\private$\exact"
        await program.new_queue(exact, transactional=True)
        single = Variant(VarType.I4, 3)
        for path, transaction in ((PRIVATE, OMITTED), (exact, single)):
            reader, sender = await program.opened(RECEIVE, path), await program.opened(SEND, path)
            message = await program.create("MSMQMessage")
            for interface, wanted in (
                ("IMSMQMessage", iid("IMSMQQueue")),
                ("IMSMQMessage2", iid("IMSMQQueue2")),
                ("IMSMQMessage3", IID_IDISPATCH),
                ("IMSMQMessage4", IID_IDISPATCH),
            ):
                target = await sender.by(wanted)
                await called(message, interface, 54, write_objref(target), transaction)
                assert await reader.call("Receive", ReceiveTimeout=0) is not None, interface
            more = () if transaction is OMITTED else (transaction,)
            await message.call(0x6002_002F, sender, *more)
            assert await reader.call("Receive", ReceiveTimeout=0) is not None

    play(scenario)


@pytest.mark.spec("AC-3.1-01")
def test_every_interface_of_a_class_is_automation_but_for_a_transaction_s() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        interfaces = object_interfaces()
        for coclass in definitions().coclasses:
            names = [one for one in coclass.interfaces if one != CONTAINER]
            refs = await server.create(clsid(coclass.name), IID_IUNKNOWN, *map(iid, names))
            for name, ref in zip(names, refs[1:], strict=True):
                call = partial(server.call, ref.ipid, interfaces[ref.iid])
                assert await call(3, []) == [1, 0], name
                description, status = await call(4, [0, 0x409])
                assert (pointed(description).iid, status) == (IID_ITYPEINFO, 0), name
                unknown = await call(5, [NULL, ["nothing"], 1, 0x409])
                assert unknown == [[-1], Hresult.DISP_E_UNKNOWNNAME], name
                given = [NOTHING, NULL, 0x409, 1, arguments_of([]), 0, [], []]
                assert (await call(6, given))[-1] == Hresult.DISP_E_MEMBERNOTFOUND, name
        dispenser = await program.create("MSMQTransactionDispenser")
        begun = await dispenser.call("BeginTransaction")
        inner = await called(begun, "IMSMQTransaction3", 12)
        transaction = pointed(inner.value)
        known, automation = await server.query(transaction.ipid, iid("ITransaction"), IID_IDISPATCH)
        assert isinstance(known, Objref)
        assert automation == Hresult.E_NOINTERFACE
        info, status = await server.call(known.ipid, interfaces[known.iid], 5, [])
        assert (len(info.uow), status) == (16, 0)
        assert await server.call(known.ipid, interfaces[known.iid], 4, [None, 0, 0]) == [0]

    play(scenario)

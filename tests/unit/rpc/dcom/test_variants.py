"""Of which VARTYPEs results are, and which ones arguments may have [MC-MQAC 2.2.4, 3.2 to 3.17].

The objects themselves are Python's, whose integers and texts have no VARTYPE: what a program
over DCOM gets is asserted here.
"""

from __future__ import annotations

import pytest

from qm.names.guid import guid_text
from qm.rpc.dcom.automation.dispatch import IENUMVARIANT, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import ARRAY, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IENUMVARIANT
from qm.rpc.dcom.runtime.objref import Objref, parse_objref
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.cluster.messages import batch
from tests.unit.model.world import PEER
from tests.unit.rpc.dcom.scripts import (
    RECEIVE,
    SEND,
    DcomWorld,
    Late,
    Program,
    dcom_world,
    iid,
    slot,
)

ORDERS = r"DIRECT=OS:QUORATE\private$\orders"
FAR = r"DIRECT=TCP:127.255.255.254\private$\orders"
DEAD_LETTERS = r"DIRECT=OS:QUORATE\SYSTEM$;DEADLETTER"
GET = InvokeFlag.PROPERTYGET | InvokeFlag.METHOD


async def invoked(late: Late, name: str, *values: Variant) -> Variant:
    """What Invoke answers, with its type."""
    result, *_, status = await late.invoke(name, GET, arguments_of(list(values)))
    assert status == 0, hex(status)
    assert isinstance(result, Variant)
    return result


async def named(program: Program, format_name: str) -> Late:
    info = await program.create("MSMQQueueInfo")
    await info.put("FormatName", format_name)
    return info


async def managed(program: Program, format_name: str) -> Late:
    found = await program.create("MSMQManagement")
    await found.call("Init", FormatName=format_name)
    return found


def object_of(program: Program, variant: Variant) -> Late:
    assert variant.vt == VarType.DISPATCH
    found = parse_objref(variant.value)
    assert isinstance(found, Objref)
    return Late(program.server, found)


async def types_of(collection: Late, *names: str) -> dict[str, VarType]:
    """The types of values by name, as Item and as the enumerator give them."""
    items = [await invoked(collection, "Item", Variant(VarType.BSTR, name)) for name in names]
    pointer = parse_objref(await slot(collection, "IMSMQCollection", "_NewEnum", "method"))
    assert isinstance(pointer, Objref)
    (enumerator,) = await collection.server.query(pointer.ipid, IID_IENUMVARIANT)
    assert isinstance(enumerator, Objref)
    count = await collection.get("Count")
    listed, fetched, status = await collection.server.call(
        enumerator.ipid, IENUMVARIANT, 3, [count]
    )
    assert (fetched, status) == (count, 0)
    assert sorted(one.vt for one in listed.items) == sorted(one.vt for one in items)
    return {name: VarType(one.vt) for name, one in zip(names, items, strict=True)}


# Management ------------------------------------------------------------------------------------


async def arrived(world: DcomWorld, sequence: tuple[int, int, int]) -> None:
    """Let a message of another queue manager's sequence arrive."""
    leader = await world.harness.leader()
    await leader.cluster.propose(batch("orders", [sequence[1]], sequence=sequence))


@pytest.mark.spec(
    "AC-2.2.4.1-01", "AC-3.4.4.1.3-01", "AC-4.2-01", "AC-3.15.4.1.1-01", "AC-3.15.4.1.3-01"
)
@pytest.mark.parametrize("sequence", [(1, 1, 0), (1 << 40, 1, 0)])
def test_what_is_known_of_a_sender(sequence: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            await (await program.queue_info()).call("Create", True)
            queue = await program.opened(RECEIVE)
            await arrived(world, sequence)
            management = await managed(program, ORDERS)
            array = await slot(management, "IMSMQQueueManagement", "EodGetReceiveInfo", "method")
            assert array.vt == ARRAY | VarType.VARIANT
            (one,) = array.value.items
            sender = object_of(program, one)
            assert await types_of(
                sender,
                "QueueFormatName", "SenderID", "SeqID", "SeqNo", "LastAccessTime", "RejectCount",
            ) == {
                "QueueFormatName": VarType.BSTR,
                "SenderID": VarType.BSTR,
                "SeqID": VarType.UI8,
                "SeqNo": VarType.I4,
                "LastAccessTime": VarType.I4,
                "RejectCount": VarType.I4,
            }  # fmt: skip
            assert await sender.call("Item", "SenderID") == guid_text(PEER)
            found = [await sender.call("Item", name) for name in ("SeqID", "SeqNo")]
            assert found == [*sequence[:2]]
            with pytest.raises(ComError) as missing:
                await sender.call("Item", "PrevNo")
            assert missing.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
            await queue.call("Close")
            program.close()

    run(scenario())


@pytest.mark.spec("AC-2.2.4.2-01", "AC-2.2.4.3-01", "AC-3.5.4.1.2-01", "AC-3.5.3-01", "AC-4.3-01")
def test_what_is_known_of_messages_to_another_queue_manager() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            message = await program.create("MSMQMessage")
            sender = await (await named(program, FAR)).call("Open", SEND, 0)
            await message.call("Send", sender, Variant(VarType.I4, 3))
            await (await program.queue_info()).call("Create")
            local = await program.opened(RECEIVE)
            refused = await program.server.query(
                (await managed(program, ORDERS)).ref.ipid, iid("IMSMQOutgoingQueueManagement")
            )
            assert refused == [Hresult.E_NOINTERFACE]
            await local.call("Close")
            management = await managed(program, FAR)
            outgoing = "IMSMQOutgoingQueueManagement"
            pointer = parse_objref(await slot(management, outgoing, "EodGetSendInfo", "method"))
            assert isinstance(pointer, Objref)
            (late,) = await program.server.query(pointer.ipid, IID_IDISPATCH)
            assert isinstance(late, Objref)
            info = Late(program.server, late)
            places = ("EodFirstNonAck", "EodLastAck", "EodLastNonAck", "EodNextSeq")
            assert await types_of(
                info,
                "EodLastAckCount", "EodLastAckTime", "EodNoAckCount", "EodNoReadCount",
                "EodResendCount", "EodResendInterval", "EodResendTime", *places,
            ) == {
                "EodLastAckCount": VarType.UI4,
                "EodLastAckTime": VarType.I4,
                "EodNoAckCount": VarType.UI4,
                "EodNoReadCount": VarType.UI4,
                "EodResendCount": VarType.UI4,
                "EodResendInterval": VarType.UI4,
                "EodResendTime": VarType.I4,
                **dict.fromkeys(places, VarType.DISPATCH),
            }  # fmt: skip
            for name in places:
                place = await info.call("Item", name)
                assert await types_of(place, "SeqID", "SeqNo", "PrevNo") == {
                    "SeqID": VarType.UI8,
                    "SeqNo": VarType.I4,
                    "PrevNo": VarType.I4,
                }
            hops = await slot(management, outgoing, "NextHops")
            assert hops.vt == ARRAY | VarType.BSTR
            await slot(management, outgoing, "Pause", "method")
            on_hold = 4
            assert await slot(management, outgoing, "State") == on_hold
            await slot(management, outgoing, "Resume", "method")
            assert await slot(management, outgoing, "State") != on_hold
            program.close()

    run(scenario())

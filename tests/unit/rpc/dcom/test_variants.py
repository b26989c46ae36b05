"""Of which VARTYPEs results are, and which ones arguments may have [MC-MQAC 2.2.4, 3.2 to 3.17].

The objects themselves are Python's, whose integers and texts have no VARTYPE: what a program
over DCOM gets is asserted here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from qm.client.mqac.constants import OLE_E_BLANK
from qm.client.mqac.variant import TypedInt
from qm.names.guid import guid_text
from qm.pb import control_pb2 as pb
from qm.rpc.dcom.automation.dispatch import IENUMVARIANT, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, BYTES, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.values import variant_of
from qm.rpc.dcom.runtime.identifiers import IID_IENUMVARIANT
from qm.rpc.dcom.runtime.objref import Objref, write_objref
from qm.wire.codes import ErrorCode
from tests.cluster.messages import batch
from tests.unit.model.world import PEER
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    PRIVATE,
    RECEIVE,
    SEND,
    DcomWorld,
    Late,
    Program,
    iid,
    play,
    play_in_world,
    pointed,
    slot,
)

ORDERS = r"DIRECT=OS:QUORATE\private$\orders"
FAR = r"DIRECT=TCP:127.255.255.254\private$\orders"
DEAD_LETTERS = r"DIRECT=OS:QUORATE\SYSTEM$;DEADLETTER"
DAY_1970, DAY_2020 = 25_569.0, 43_831.0
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


async def types_of(collection: Late, *names: str) -> dict[str, VarType]:
    """The types of values by name, as Item and as the enumerator give them."""
    items = [await invoked(collection, "Item", Variant(VarType.BSTR, name)) for name in names]
    raw = await slot(collection, "IMSMQCollection", "_NewEnum", "method")
    enumerator = await Late(collection.server, pointed(raw)).by(IID_IENUMVARIANT)
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
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue(transactional=True)
        queue = await program.opened(RECEIVE)
        await arrived(world, sequence)
        management = await managed(program, ORDERS)
        array = await slot(management, "IMSMQQueueManagement", "EodGetReceiveInfo", "method")
        assert array.vt == ARRAY | VarType.VARIANT
        (one,) = array.value.items
        sender = program.late(one)
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

    play_in_world(scenario)


@pytest.mark.spec("AC-3.15.4.1.3-01")
def test_the_values_of_a_collection_are_enumerated_in_turn() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue(transactional=True)
        queue = await program.opened(RECEIVE)
        await arrived(world, (9, 1, 0))
        management = await managed(program, ORDERS)
        array = await slot(management, "IMSMQQueueManagement", "EodGetReceiveInfo", "method")
        sender = program.late(array.value.items[0])
        names = ("QueueFormatName", "SenderID", "SeqID", "SeqNo", "LastAccessTime", "RejectCount")
        items = [await invoked(sender, "Item", Variant(VarType.BSTR, name)) for name in names]
        by_slot = await slot(sender, "IMSMQCollection", "_NewEnum", "method")
        by_name = await invoked(sender, "_NewEnum")
        assert by_name.vt == 13, "VT_UNKNOWN"
        for raw in (by_slot, by_name.value):
            assert guid_text(pointed(raw).iid) == "00000000-0000-0000-C000-000000000046"
            enumerator = await Late(sender.server, pointed(raw)).by(IID_IENUMVARIANT)
            assert guid_text(enumerator.iid) == "00020404-0000-0000-C000-000000000046"
            each = partial(sender.server.call, enumerator.ipid, IENUMVARIANT)
            found = []
            for _ in items:
                listed, fetched, status = await each(3, [1])
                assert (len(listed.items), fetched, status) == (1, 1, 0)
                found += listed.items
            assert sorted(found, key=repr) == sorted(items, key=repr)
            listed, fetched, status = await each(3, [1])
            assert (listed.items, fetched, status) == ([], 0, 1)
            assert await each(5, []) == [0]
            listed, fetched, status = await each(3, [len(items)])
            assert (listed.items, fetched, status) == (found, len(items), 0)
            assert await each(5, []) == [0]
            assert await each(4, [len(items) - 1]) == [0]
            copy, status = await each(6, [])
            assert status == 0
            for one in (enumerator.ipid, pointed(copy).ipid):
                listed, fetched, status = await sender.server.call(one, IENUMVARIANT, 3, [2])
                assert (listed.items, fetched, status) == (found[-1:], 1, 1)
            assert await each(4, [1]) == [1]
        await queue.call("Close")

    play_in_world(scenario)


@pytest.mark.spec("AC-2.2.4.2-01", "AC-2.2.4.3-01", "AC-3.5.4.1.2-01", "AC-3.5.3-01", "AC-4.3-01")
def test_what_is_known_of_messages_to_another_queue_manager() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        sender = await (await named(program, FAR)).call("Open", SEND, 0)
        await message.call("Send", sender, Variant(VarType.I4, 3))
        await program.new_queue()
        local = await program.opened(RECEIVE)
        refused = await program.server.query(
            (await managed(program, ORDERS)).ref.ipid, iid("IMSMQOutgoingQueueManagement")
        )
        assert refused == [0x8000_4002]
        await local.call("Close")
        management = await managed(program, FAR)
        outgoing = "IMSMQOutgoingQueueManagement"
        raw = await slot(management, outgoing, "EodGetSendInfo", "method")
        info = await Late(program.server, pointed(raw)).as_dispatch()
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

    play(scenario)


def test_what_is_too_large_for_its_type_is_told_by_its_bits() -> None:
    def nothing(_: Any) -> Variant:
        raise AssertionError

    assert variant_of(TypedInt(0xFFFF_FFFF, VarType.I4), nothing) == Variant(VarType.I4, -1)
    assert variant_of(TypedInt(1 << 63, VarType.UI8), nothing) == Variant(VarType.UI8, 1 << 63)


@pytest.mark.spec("AC-3.3.4.1.9-01", "AC-3.4.4.1.2-01", "AC-3.4.3-01", "AC-3.4.3-02")
def test_bytes_are_counted_in_64_bits_once_a_queue_is_known_to_be_local() -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info()
        await info.put("Journal", 1)
        await info.call("Create")
        await program.send("body")
        queue = await program.opened(RECEIVE)
        local, outgoing = iid("IMSMQQueueManagement"), iid("IMSMQOutgoingQueueManagement")
        management = await program.create("MSMQManagement")
        for wanted in (local, outgoing):
            found = await program.server.query(management.ref.ipid, wanted)
            assert found == [0x8000_4002], "it stands for no queue yet"
        await management.call("Init", FormatName=ORDERS)
        (ref,) = await program.server.query(management.ref.ipid, local)
        assert isinstance(ref, Objref)
        held = await slot(management, "IMSMQManagement", "BytesInQueue")
        assert (held.vt, held.value > 0) == (VarType.UI8, True)
        journal = await slot(management, "IMSMQQueueManagement", "BytesInJournal")
        assert journal == Variant(VarType.UI8, 0)
        await queue.call("Receive", ReceiveTimeout=0)
        assert await invoked(management, "BytesInQueue") == Variant(VarType.UI8, 0)
        journal = await slot(management, "IMSMQQueueManagement", "BytesInJournal")
        assert (journal.vt, journal.value > 0) == (VarType.UI8, True)
        message = await program.create("MSMQMessage")
        await message.call("Send", await (await named(program, FAR)).call("Open", SEND, 0))
        sending = await managed(program, FAR)
        assert await program.server.query(sending.ref.ipid, local) == [0x8000_4002]

    play(scenario)


# Queue managers and queues ---------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.2.4.2.6-01", "AC-3.2.4.3.1-01", "AC-3.2.4.3.2-01", "AC-3.2.4.3.4-01", "AC-3.2.4.3.5-01"
)
def test_properties_of_the_queue_manager() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        info = await program.new_queue()
        await program.send("body")
        queue = await program.opened(RECEIVE)
        application = await program.create("MSMQApplication")
        newest = "IMSMQApplication3"
        for name in ("IsDsEnabled", "IsConnected"):
            assert await slot(application, newest, name) == -1
            assert await invoked(application, name) == Variant(VarType.BOOL, 0xFFFF)
        active = await slot(application, newest, "ActiveQueues", "method")
        private = await slot(application, newest, "PrivateQueues")
        for found in (active, private):
            assert found.vt == ARRAY | VarType.BSTR
        assert await info.get("FormatName") in active.value.items
        assert any(one.casefold().endswith(r"\orders") for one in private.value.items)
        total = await slot(application, newest, "BytesInAllQueues")
        assert (total.vt, total.value > 0) == (VarType.I8, True)
        await queue.call("Close")
        await application.call("Disconnect")
        changes = {"directory_integrated": pb.Value(flag=False)}
        async with world.client(await world.leader()) as client:
            await client.queues.SetQueueManager(pb.SetQueueManagerRequest(changes=changes))
        for name in ("IsDsEnabled", "IsConnected"):
            assert await slot(application, newest, name) == 0
            assert await invoked(application, name) == Variant(VarType.BOOL, 0)
        await application.put("Machine", "QUORATE")
        assert await slot(application, newest, "IsConnected") == 0
        with pytest.raises(ComError) as remote:
            await slot(application, newest, "IsDsEnabled")
        assert remote.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER

    play_in_world(scenario)


@pytest.mark.spec(
    "AC-3.10.4.1.10-02",
    "AC-3.10.4.1.19-01",
    "AC-3.10.4.1.20-01",
    "AC-3.10.4.1.35-01",
    "AC-3.10.4.1.36-01",
)
def test_properties_of_a_queue() -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info()
        await info.call("Create", True, True)
        newest = "IMSMQQueueInfo4"
        for name in ("IsTransactional", "IsWorldReadable"):
            assert await slot(info, newest, name) == 1
            assert await invoked(info, name) == Variant(VarType.I2, 1)
            assert await slot(info, newest, f"{name}2") == -1
            assert await invoked(info, f"{name}2") == Variant(VarType.BOOL, 0xFFFF)
        for name in ("CreateTime", "ModifyTime"):
            when = await slot(info, newest, name)
            assert when.vt == VarType.DATE
            assert when.value > DAY_2020
        dead_letters = await named(program, DEAD_LETTERS)
        await dead_letters.call("Refresh")
        assert await slot(dead_letters, newest, "ModifyTime") == Variant(VarType.DATE, DAY_1970)

    play(scenario)


@pytest.mark.spec("AC-3.10.4.1.1-01", "AC-3.10.4.1.1-02")
def test_a_queue_that_is_no_application_s_has_a_null_bstr_for_an_identifier() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        again = await program.queue_info()
        known = await slot(again, "IMSMQQueueInfo4", "QueueGuid")
        assert len(known) == 36
        assert known == await slot(info, "IMSMQQueueInfo4", "QueueGuid")
        dead_letters = await named(program, DEAD_LETTERS)
        await dead_letters.call("Refresh")
        assert await slot(dead_letters, "IMSMQQueueInfo4", "QueueGuid") is None
        missing = await program.queue_info(r".\private$\missing")
        with pytest.raises(ComError) as failed:
            await slot(missing, "IMSMQQueueInfo4", "QueueGuid")
        assert failed.value.status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.20-01",
    "AC-3.11.4.1.32-01",
    "AC-3.12.4.1.3-01",
    "AC-3.12.4.2.1-01",
    "AC-3.12.4.2.2-02",
)
def test_handles_are_of_64_bits_and_openness_is_a_boolean() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(SEND)
        assert await slot(queue, "IMSMQQueue4", "IsOpen2") == -1
        assert await invoked(queue, "IsOpen2") == Variant(VarType.BOOL, 0xFFFF)
        handle = await slot(queue, "IMSMQQueue4", "Handle2")
        assert handle.vt == VarType.I8
        fresh = await program.create("MSMQQueue")
        for name in ("Handle2", "IsOpen2"):
            with pytest.raises(ComError) as blank:
                await slot(fresh, "IMSMQQueue4", name)
            assert blank.value.status == OLE_E_BLANK
        destination = await program.create("MSMQDestination")
        assert await invoked(destination, "IsOpen") == Variant(VarType.BOOL, 0)
        await slot(destination, "IMSMQPrivateDestination", "Handle", "put", handle)
        assert await slot(destination, "IMSMQPrivateDestination", "Handle") == handle
        assert await slot(destination, "IMSMQDestination", "IsOpen") == -1
        assert await invoked(destination, "IsOpen") == Variant(VarType.BOOL, 0xFFFF)
        for none in (0, -1, 12_345_678):
            for given in (handle, Variant(VarType.I8, none)):
                await slot(destination, "IMSMQPrivateDestination", "Handle", "put", given)
            assert await slot(destination, "IMSMQDestination", "IsOpen") == 0
        await queue.call("Close")
        assert await slot(queue, "IMSMQQueue4", "IsOpen2") == 0
        assert await invoked(queue, "IsOpen2") == Variant(VarType.BOOL, 0)

    play(scenario)


# Transactions ----------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.9.4.2.1-01", "AC-3.9.4.3.1-01", "AC-3.9.4.3.1-02")
def test_an_inner_transaction_is_an_unknown_and_init_new_takes_pointers_alone() -> None:
    async def scenario(program: Program) -> None:
        dispenser = await program.create("MSMQTransactionDispenser")
        begun = await dispenser.call("BeginTransaction")
        inner = await slot(begun, "IMSMQTransaction3", "ITransaction")
        assert inner.vt == VarType.UNKNOWN
        none = write_objref(dispenser.ref)
        for wrong in (
            Variant(VarType.I4, 1),
            Variant(VarType.I8, 1),
            Variant(VarType.BSTR, "1"),
            Variant(VarType.R8, 1.0),
            Variant(VarType.BOOL, 0xFFFF),
            Variant(),
            Variant(VarType.NULL),
            OMITTED,
            array_of(VarType.UI1, inner.value),
            Variant(VarType.UNKNOWN, None),
            Variant(VarType.DISPATCH, none),
            Variant(VarType.DISPATCH, write_objref(begun.ref)),
        ):
            empty = await program.create("MSMQTransaction")
            with pytest.raises(ComError) as refused:
                await slot(empty, "IMSMQTransaction2", "InitNew", "method", wrong)
            assert refused.value.status == Hresult.E_INVALIDARG, wrong
            found = await slot(empty, "IMSMQTransaction3", "ITransaction")
            assert found == Variant(), "still none"
        for vartype in (VarType.UNKNOWN, VarType.DISPATCH):
            for by in (0, BYREF):
                given = Variant(by | vartype, inner.value)
                empty = await program.create("MSMQTransaction")
                await slot(empty, "IMSMQTransaction2", "InitNew", "method", given)
                found = await slot(empty, "IMSMQTransaction3", "ITransaction")
                assert found.vt == VarType.UNKNOWN
                assert pointed(found.value).oid == pointed(inner.value).oid
        await begun.call("Abort")

    play(scenario)


@pytest.mark.spec("AC-3.11.4-10", "AC-3.17.4.1.48-04", "AC-3.17.4.1.48-11")
def test_no_transaction_and_none_given_and_each_number() -> None:
    async def scenario(program: Program) -> None:
        exact = r".\private$\exact"
        await program.new_queue()
        await program.new_queue(exact, transactional=True)
        single = Variant(VarType.I4, 3)
        # A transactional queue takes what is sent in a transaction. MTS and XA are those of the
        # context, which has none (AC-A21).
        outside = [
            Variant(VarType.DISPATCH, None),
            OMITTED,
            *(Variant(VarType.I4, number) for number in (0, 1, 2)),
        ]
        for given in outside:
            with pytest.raises(ComError) as refused:
                await program.send("body", "", exact, given)
            assert refused.value.status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
            await program.send("body", "", PRIVATE, given)
        dispenser = await program.create("MSMQTransactionDispenser")
        transaction = await dispenser.call("BeginTransaction")
        await program.send("first", "", exact, transaction)
        await transaction.call("Commit")
        await program.send("alone", "", exact, single)
        queue = await program.opened(RECEIVE, exact)
        message = await queue.call("Receive", Variant(VarType.DISPATCH, None))
        assert await message.get("Body") == "first"
        assert await message.get("IsFirstInTransaction2") is True
        message = await queue.call("Receive", OMITTED)
        assert await message.get("Body") == "alone"
        plain = await program.opened(RECEIVE)
        for _ in outside:
            message = await plain.call("Receive", ReceiveTimeout=0)
            assert await message.get("IsFirstInTransaction2") is False

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.14-05", "AC-3.11.4.1.16-05", "AC-3.11.4.1.24-05", "AC-3.11.4.1.25-05"
)
@pytest.mark.parametrize(
    ("name", "has_timeout"),
    [
        ("Receive", True),
        ("ReceiveCurrent", True),
        ("ReceiveFirstByLookupId", False),
        ("ReceiveLastByLookupId", False),
    ],
)
def test_a_receive_takes_a_transaction_by_pointer_or_by_number(
    name: str, has_timeout: bool
) -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue(transactional=True)
        queue = await program.opened(RECEIVE)
        begin = await program.create("MSMQTransactionDispenser")
        transaction = await begin.call("BeginTransaction")
        inner = await slot(transaction, "IMSMQTransaction3", "ITransaction")

        async def receive(given: Variant) -> Any:
            timeout = [Variant(VarType.I4, 0)] if has_timeout else []
            more = [OMITTED, OMITTED, *timeout, OMITTED]
            return await slot(queue, "IMSMQQueue4", name, "method", given, *more)

        async def is_there() -> bool:
            try:
                await queue.call("PeekFirstByLookupId")
            except ComError as error:
                assert error.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
                return False
            return True

        pointer = write_objref(transaction.ref)
        await program.send("body", "", PRIVATE, Variant(VarType.I4, 3))
        for wrong in (
            Variant(VarType.BSTR, "3"),
            Variant(VarType.BOOL, 0xFFFF),
            Variant(VarType.R8, 3.0),
            Variant(VarType.CY, 30_000),
            Variant(VarType.DATE, 3.0),
            Variant(VarType.I8, 3),
            *(Variant(VarType.I4, number) for number in (-1, 4)),
            array_of(VarType.UI1, b"3"),
            Variant(VarType.UNKNOWN, pointer),
            inner,
            Variant(VarType.DISPATCH, write_objref(info.ref)),
        ):
            with pytest.raises(ComError) as refused:
                await receive(wrong)
            assert refused.value.status == Hresult.E_INVALIDARG, wrong
            assert await is_there()
        for by in (0, BYREF):
            transaction = await begin.call("BeginTransaction")
            await receive(Variant(by | VarType.DISPATCH, write_objref(transaction.ref)))
            assert not await is_there()
            await transaction.call("Abort")
            assert await is_there()
            await queue.call("Reset")  # the cursor is behind it
            await receive(Variant(by | VarType.I4, 0))
            assert not await is_there()
            await program.send("body", "", PRIVATE, Variant(VarType.I4, 3))

    play(scenario)


# Messages --------------------------------------------------------------------------------------

BODIES = [
    Variant(VarType.I1, -5),
    Variant(VarType.UI1, 200),
    Variant(VarType.I2, -300),
    Variant(VarType.UI2, 65_000),
    Variant(VarType.I4, -70_000),
    Variant(VarType.UI4, 7),
    Variant(VarType.R4, 1.5),
    Variant(VarType.R8, 0.1),
    Variant(VarType.CY, 12_345),
    Variant(VarType.DATE, 45_000.25),
    Variant(VarType.BOOL, 0xFFFF),
    Variant(VarType.BOOL, 0),
    Variant(VarType.BSTR, "Grüße"),
    Variant(VarType.BSTR, "7"),
    array_of(VarType.UI1, b"bytes"),
]
NO_BODIES = [
    Variant(),
    Variant(VarType.NULL),
    Variant(VarType.I8, 1),
    Variant(VarType.UI8, 1),
    Variant(VarType.ERROR, 5),
    array_of(VarType.I4, [1, 2]),
    array_of(VarType.BSTR, ["a"]),
    array_of(VarType.VARIANT, [Variant(VarType.I4, 1)]),
]


@pytest.mark.spec("AC-3.17.4.1.21-01", "AC-3.17.4.1.22-01", "AC-3.17.4.1.22-02")
def test_a_body_has_the_type_that_it_was_put_with() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        sender, queue = await program.opened(SEND), await program.opened(RECEIVE)
        for body in BODIES:
            message = await program.create("MSMQMessage")
            await slot(message, "IMSMQMessage4", "Body", "put", body)
            for refused in NO_BODIES:
                with pytest.raises(ComError) as invalid:
                    await slot(message, "IMSMQMessage4", "Body", "put", refused)
                assert invalid.value.status == Hresult.E_INVALIDARG, refused
            for vartype in (VarType.UNKNOWN, VarType.DISPATCH):
                with pytest.raises(ComError) as invalid:
                    await message.put("Body", Variant(vartype, write_objref(sender.ref)))
                assert invalid.value.status == Hresult.E_INVALIDARG, "AC-A57"
            assert same(await slot(message, "IMSMQMessage4", "Body"), body), "unchanged"
            await message.call("Send", sender)
            found = await queue.call("Receive", ReceiveTimeout=0)
            assert same(await slot(found, "IMSMQMessage4", "Body"), body)
            # The default member: DISPID 0.
            result, *_ = await found.invoke(0, GET, arguments_of([]))
            assert same(result, body)

    play(scenario)


def same(found: Variant, wanted: Variant) -> bool:
    if wanted.vt & ARRAY:
        return found.vt == wanted.vt and found.value.items == wanted.value.items
    return found == wanted


@pytest.mark.spec("AC-3.17.4.1.27-01")
def test_a_correlation_is_an_array_of_bytes() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        correlation = array_of(VarType.UI1, bytes(range(20)))
        await slot(message, "IMSMQMessage4", "CorrelationId", "put", correlation)
        for wrong in (
            Variant(VarType.BSTR, "x" * 20),
            Variant(VarType.I4, 20),
            array_of(VarType.I4, [1] * 20),
        ):
            with pytest.raises(ComError):
                await slot(message, "IMSMQMessage4", "CorrelationId", "put", wrong)
        found = await slot(message, "IMSMQMessage4", "CorrelationId")
        assert found.vt == BYTES
        assert found.value.items == bytes(range(20))

    play(scenario)


@pytest.mark.spec("AC-3.13.4.1.3-10")
def test_terms_of_a_query_of_other_types_are_errors() -> None:
    async def scenario(program: Program) -> None:
        query = await program.create("MSMQQuery")
        label = Variant(VarType.BSTR, "5")
        for name in ("LookupQueue", "LookupQueue_v2"):
            for terms in (
                {"QueueGuid": Variant(VarType.I4, 5)},
                {"QueueGuid": array_of(VarType.UI1, bytes(16))},
                {"ServiceTypeGuid": Variant(VarType.R8, 1.5)},
                {"Label": Variant(VarType.I4, 5)},
                {"Label": array_of(VarType.UI1, b"5")},
                {"CreateTime": Variant(VarType.BSTR, "today")},
                {"CreateTime": Variant(VarType.I4, 5)},
                {"ModifyTime": Variant(VarType.BOOL, 0xFFFF)},
                {"Label": label, "RelLabel": Variant(VarType.BSTR, "equal")},
                {
                    "Label": label,
                    "RelLabel": Variant(VarType.DISPATCH, write_objref(query.ref)),
                },
            ):
                with pytest.raises(ComError):
                    await query.call(name, **terms)
            assert isinstance(await query.call(name, Label=label), Late)
        with pytest.raises(ComError):
            await query.call("LookupQueue", MulticastAddress=Variant(VarType.I4, 5))

    play(scenario)

"""Of which types results are, by slot and by name [MC-MQAC 2.2.1, 3.2 to 3.17]."""

from __future__ import annotations

from typing import Any

import pytest

from qm.client.signing import new_signer
from qm.rpc.dcom.automation.dispatch import IENUMVARIANT, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, BYTES, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IENUMVARIANT
from qm.rpc.dcom.runtime.objref import Objref
from qm.wire.codes import ErrorCode
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    iid,
    play,
    pointed,
    slot,
)


async def received(program: Program) -> tuple[Late, Late, Late]:
    """A queue info, its queue, and a message that was read from it."""
    info = await program.new_queue()
    await program.send("body", "label")
    queue = await program.opened(RECEIVE)
    message = await queue.call("Receive", ReceiveTimeout=1000)
    return info, queue, message


@pytest.mark.spec(
    "AC-3.10.4.1.25-02",
    "AC-3.10.4.1.35-02",
    "AC-3.11.4.1.5-02",
    "AC-3.12.4.1.3-02",
    "AC-3.17.4.1.6-02",
)
def test_flags_are_shorts_of_1_and_booleans_of_minus_1() -> None:
    async def scenario(program: Program) -> None:
        info, queue, message = await received(program)
        assert await slot(queue, "IMSMQQueue4", "IsOpen") == 1
        assert await slot(queue, "IMSMQQueue4", "IsOpen2") == -1
        assert await slot(info, "IMSMQQueueInfo4", "IsTransactional") == 0
        assert await slot(info, "IMSMQQueueInfo4", "IsTransactional2") == 0
        world_readable = await slot(info, "IMSMQQueueInfo4", "IsWorldReadable")
        assert await slot(info, "IMSMQQueueInfo4", "IsWorldReadable2") == -world_readable
        assert await slot(message, "IMSMQMessage4", "IsAuthenticated") == 0
        assert await slot(message, "IMSMQMessage4", "IsAuthenticated2") == 0
        destination = await program.create("MSMQDestination")
        assert await slot(destination, "IMSMQDestination", "IsOpen") == 0
        await destination.put("FormatName", r"DIRECT=OS:QUORATE\private$\orders")
        await destination.call("Open")
        assert await slot(destination, "IMSMQDestination", "IsOpen") == -1
        flags = InvokeFlag.PROPERTYGET
        for name, vartype, value in (
            ("IsOpen", VarType.I2, 1),
            ("IsOpen2", VarType.BOOL, 0xFFFF),
        ):
            result, *_ = await queue.invoke(name, flags, arguments_of([]))
            assert result == Variant(vartype, value)

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.83-02")
def test_lookup_ids_are_told_as_text_and_taken_as_numbers_of_64_bits() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        for label in ("first", "second", "third"):
            await program.send("body", label)
        queue = await program.opened(RECEIVE)

        async def by_lookup_id(name: str, number: int) -> Late:
            wants = 4 if name.startswith("Receive") else 3
            given = [Variant(VarType.UI8, number), *[OMITTED] * wants]
            raw = await slot(queue, "IMSMQQueue4", f"{name}ByLookupId", "method", *given)
            return Late(program.server, pointed(raw))

        async def label_of(message: Late) -> Any:
            return await slot(message, "IMSMQMessage4", "Label")

        peeked = await queue.call("Peek", ReceiveTimeout=1000)
        told = await slot(peeked, "IMSMQMessage4", "LookupId")
        assert told.vt == VarType.BSTR
        first = int(told.value)
        second = await by_lookup_id("PeekNext", first)
        told = await slot(second, "IMSMQMessage4", "LookupId")
        assert told.vt == VarType.BSTR
        number = int(told.value)
        for name, label in (
            ("Peek", "second"),
            ("PeekPrevious", "first"),
            ("PeekNext", "third"),
            ("ReceivePrevious", "first"),
            ("ReceiveNext", "third"),
            ("Receive", "second"),
        ):
            assert await label_of(await by_lookup_id(name, number)) == label, name
        with pytest.raises(ComError) as gone:
            await by_lookup_id("Receive", number)
        assert gone.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.20-02",
    "AC-3.11.4.1.1-02",
    "AC-3.17.4.1.85-02",
    "AC-2.2.1-02",
)
def test_variants_are_of_the_type_that_the_document_names() -> None:
    async def scenario(program: Program) -> None:
        _, queue, message = await received(program)
        assert (await slot(queue, "IMSMQQueue4", "Handle2")).vt == VarType.I8
        assert await slot(queue, "IMSMQQueue4", "Access") == RECEIVE
        assert await slot(queue, "IMSMQQueue4", "ShareMode") == 0
        found = await slot(message, "IMSMQMessage4", "LookupId")
        assert found.vt == VarType.BSTR
        assert int(found.value) > 0
        assert (await slot(message, "IMSMQMessage4", "Id")).vt == BYTES
        assert (await slot(message, "IMSMQMessage4", "SentTime")).vt == VarType.DATE
        assert await slot(message, "IMSMQMessage4", "IsFirstInTransaction") == 0
        assert await slot(message, "IMSMQMessage4", "IsFirstInTransaction2") == 0
        fresh = await program.create("MSMQMessage")
        assert (await slot(fresh, "IMSMQMessage4", "SentTime")).vt == VarType.EMPTY
        assert (await slot(fresh, "IMSMQMessage4", "Body")).vt == VarType.EMPTY
        assert (await slot(fresh, "IMSMQMessage4", "CompoundMessage")).vt == BYTES

    play(scenario)


@pytest.mark.spec("AC-3.2.4.3.1-03", "AC-3.2.4.3.2-03")
def test_an_application_tells_of_its_queue_manager() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        names = "IMSMQApplication3"
        none = await slot(application, names, "PrivateQueues")
        assert (none.vt, none.value.items) == (ARRAY | VarType.BSTR, [])
        await received(program)
        found = await slot(application, names, "PrivateQueues")
        assert found.vt == ARRAY | VarType.BSTR
        assert any(name.casefold().endswith("orders") for name in found.value.items)
        active = await slot(application, names, "ActiveQueues", "method")
        assert active.vt == ARRAY | VarType.BSTR
        assert (await slot(application, names, "BytesInAllQueues")).vt == VarType.I8
        assert await slot(application, names, "MSMQVersionMajor") == 4
        assert await slot(application, names, "Machine") == "QUORATE"
        identifier = await slot(
            application, "IMSMQApplication", "MachineIdOfMachineName", "method", "QUORATE"
        )
        assert len(identifier) == 36

    play(scenario)


@pytest.mark.spec("AC-3.3.4.1.9-04", "AC-3.3.1-02")
def test_a_management_object_becomes_what_its_queue_is() -> None:
    async def scenario(program: Program) -> None:
        await received(program)
        management = await program.create("MSMQManagement")
        (refused,) = await program.server.query(management.ref.ipid, iid("IMSMQQueueManagement"))
        assert refused == Hresult.E_NOINTERFACE
        await management.call("Init", FormatName=r"DIRECT=OS:QUORATE\private$\orders")
        assert (await slot(management, "IMSMQManagement", "BytesInQueue")).vt == VarType.UI8
        assert (await slot(management, "IMSMQQueueManagement", "BytesInJournal")).value == 0
        (other,) = await program.server.query(
            management.ref.ipid, iid("IMSMQOutgoingQueueManagement")
        )
        assert other == Hresult.E_NOINTERFACE
        # Scripts cannot ask for another interface, and see the local queue's members too.
        assert await management.get("JournalMessageCount") == 0
        found = await slot(management, "IMSMQQueueManagement", "EodGetReceiveInfo", "method")
        assert found.vt == ARRAY | VarType.VARIANT
        far = r"DIRECT=OS:far\private$\orders"
        info = await program.create("MSMQQueueInfo")
        await info.put("FormatName", far)
        message = await program.create("MSMQMessage")
        await message.call("Send", await info.call("Open", SEND, 0))
        sending = await program.create("MSMQManagement")
        await sending.call("Init", FormatName=far)
        (local, outgoing) = await program.server.query(
            sending.ref.ipid, iid("IMSMQQueueManagement"), iid("IMSMQOutgoingQueueManagement")
        )
        assert local == Hresult.E_NOINTERFACE
        assert isinstance(outgoing, Objref)
        assert outgoing.iid == iid("IMSMQOutgoingQueueManagement")
        assert (await slot(sending, "IMSMQOutgoingQueueManagement", "State")) in range(1, 9)

    play(scenario)


@pytest.mark.spec("AC-3.15.4.1.3-02")
def test_collections_have_items_and_enumerators() -> None:
    async def scenario(program: Program) -> None:
        collection = await program.create("MSMQCollection")
        assert await collection.get("Count") == 0
        with pytest.raises(ComError) as missing:
            await collection.call("Item", "anything")
        assert missing.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        raw = await slot(collection, "IMSMQCollection", "_NewEnum", "method")
        enumerator = await Late(program.server, pointed(raw)).by(IID_IENUMVARIANT)
        listed, count, status = await program.server.call(enumerator.ipid, IENUMVARIANT, 3, [5])
        assert (listed.items, count, status) == ([], 0, Hresult.S_FALSE)
        assert await program.server.call(enumerator.ipid, IENUMVARIANT, 4, [1]) == [1]
        assert await program.server.call(enumerator.ipid, IENUMVARIANT, 5, []) == [0]
        _, status = await program.server.call(enumerator.ipid, IENUMVARIANT, 6, [])
        assert status == 0

    play(scenario)


@pytest.mark.spec("AC-3.8.4.1.1-06", "AC-3.8.4.1.3-04")
def test_a_transaction_has_an_inner_one_that_another_object_takes() -> None:
    async def scenario(program: Program) -> None:
        dispenser = await program.create("MSMQTransactionDispenser")
        transaction = await dispenser.call("BeginTransaction")
        inner = await slot(transaction, "IMSMQTransaction3", "ITransaction")
        assert inner.vt == VarType.UNKNOWN
        other = await program.create("MSMQTransaction")
        with pytest.raises(ComError) as unattached:
            await other.call("Commit")
        assert unattached.value.status == Hresult.E_INVALIDARG
        await other.call("InitNew", inner)
        unknown = Late(program.server, pointed(inner.value))
        itransaction = await unknown.by(iid("ITransaction"))
        served = object_interfaces()[iid("ITransaction")]
        info, status = await program.server.call(itransaction.ipid, served, 5, [])
        assert status == 0
        assert any(info.uow)
        assert await program.server.call(itransaction.ipid, served, 3, [0, 2, 0]) == [0]
        with pytest.raises(ComError) as ended:
            await other.call("Abort")
        assert ended.value.status == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        refused = await program.create("MSMQCoordinatedTransactionDispenser")
        with pytest.raises(ComError) as coordinator:
            await refused.call("BeginTransaction")
        assert coordinator.value.status == ErrorCode.MQ_ERROR_DTC_CONNECT

    play(scenario)


@pytest.mark.spec("AC-3.13.4.1.1-05", "AC-3.13.4.1.3-06", "AC-3.10.4.1.26-11")
def test_queries_take_variants_of_the_document_s_types() -> None:
    async def scenario(program: Program) -> None:
        for number, flag in enumerate(
            (Variant(VarType.BOOL, 0xFFFF), Variant(VarType.BOOL, 1), Variant(VarType.I4, 1))
        ):
            info = await program.queue_info(rf".\private$\flag{number}")
            await info.call("Create", flag)
            assert await slot(info, "IMSMQQueueInfo4", "IsTransactional2") == -1
        info = await program.queue_info(r"QUORATE\shown")
        await info.put("Label", "found by its label")
        await info.call("Create")
        query = await program.create("MSMQQuery")
        guid = "{" + await info.get("QueueGuid") + "}"
        since = Variant(VarType.DATE, 36_526.0)
        greater = Variant(VarType.I4, 4)
        for name in ("LookupQueue", "LookupQueue_v2"):
            for terms in (
                {"QueueGuid": guid},
                {"Label": "found by its label"},
                {"CreateTime": since, "RelCreateTime": greater},
            ):
                found = await query.call(name, **terms)
                await found.call("Reset")
                one = await found.call("Next")
                assert await one.get("Label") == "found by its label"
                assert await found.call("Next") is None
            with pytest.raises(ComError) as invalid:
                await query.call(name, QueueGuid="no braces")
            assert invalid.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.89-02", "AC-3.2.4.2.1-10")
def test_bytes_are_arrays_of_bytes() -> None:
    async def scenario(program: Program) -> None:
        fresh = await program.create("MSMQMessage")
        assert (await slot(fresh, "IMSMQMessage4", "CompoundMessage")).vt == BYTES
        application = await program.create("MSMQApplication")
        certificate = new_signer("alice", 2048, 1).certificate
        array = array_of(VarType.UI1, certificate)
        for given in (array, Variant(BYREF | BYTES, array.value)):
            await application.call("RegisterCertificate", ExternalCertificate=given)
        with pytest.raises(ComError):
            await application.call("RegisterCertificate", ExternalCertificate=b"no certificate")

    play(scenario)


def test_closing_what_is_closed_is_a_success_that_did_nothing() -> None:
    async def scenario(program: Program) -> None:
        await received(program)
        destination = await program.create("MSMQDestination")
        (ref,) = await program.server.query(destination.ref.ipid, iid("IMSMQDestination"))
        assert isinstance(ref, Objref)
        served = object_interfaces()[ref.iid]
        assert await program.server.call(ref.ipid, served, 8, []) == [Hresult.S_FALSE]
        message = await program.create("MSMQMessage")
        await destination.put("PathName", r".\private$\orders")
        await message.put("Body", "by destination")
        await message.call("Send", destination)
        queue = await program.opened(RECEIVE)
        found = await queue.call("Receive", OMITTED, ReceiveTimeout=1000)
        assert await found.get("Body") == "by destination"
        assert await (await program.opened(SEND)).get("Access") == SEND

    play(scenario)

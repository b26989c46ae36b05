"""Of which types results are, by slot and by name [MC-MQAC 2.2.1, 3.2 to 3.17]."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from qm.client.mqac.constants import OLE_E_BLANK
from qm.client.signing import new_signer
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.rpc.dcom.automation.dispatch import IENUMVARIANT, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, BYTES, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IENUMVARIANT
from qm.rpc.dcom.runtime.objref import Objref
from qm.rpc.dcom.runtime.orpc import orpc_interface, orpc_operation
from qm.rpc.ndr.types import GUID, U32
from qm.wire.codes import ErrorCode
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

SOON_DAYS = 0.01
_OF_COM = "-0000-0000-c000-000000000046"
PEEK = 0x20


async def received(program: Program) -> tuple[Late, Late, Late]:
    """A queue info, its queue, and a message that was read from it."""
    info = await program.new_queue()
    await program.send("body", "label")
    queue = await program.opened(RECEIVE)
    message = await queue.call("Receive", ReceiveTimeout=1000)
    return info, queue, message


async def is_told(late: Late, interface: str, name: str, *, is_true: bool) -> None:
    """A flag's short is 1 and its boolean -1, or both are 0: by slot, and by name."""
    for form, by_slot, by_name in (
        (name, int(is_true), Variant(VarType.I2, int(is_true))),
        (f"{name}2", -int(is_true), Variant(VarType.BOOL, 0xFFFF * is_true)),
    ):
        assert await slot(late, interface, form) == by_slot
        result, *_ = await late.invoke(form, InvokeFlag.PROPERTYGET, arguments_of([]))
        assert result == by_name


@pytest.mark.spec("AC-3.10.4.1.25-02", "AC-3.10.4.1.35-02", "AC-3.11.4.1.5-02", "AC-2.2.1-02")
def test_flags_of_queues_are_shorts_of_1_and_booleans_of_minus_1() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        info, queue, _ = await received(program)
        await is_told(queue, "IMSMQQueue4", "IsOpen", is_true=True)
        await is_told(info, "IMSMQQueueInfo4", "IsTransactional", is_true=False)
        await is_told(info, "IMSMQQueueInfo4", "IsWorldReadable", is_true=True)
        await queue.call("Close")
        await is_told(queue, "IMSMQQueue4", "IsOpen", is_true=False)
        exact = await program.new_queue(r".\private$\exact", transactional=True)
        await is_told(exact, "IMSMQQueueInfo4", "IsTransactional", is_true=True)
        # That its owner alone may take it over is told, too.
        entries = [pb.Ace(principal="Everyone", rights=["receive_message"])]
        async with world.client(await world.leader()) as client:
            name = pb.QueueName(name=PRIVATE)
            await client.queues.SetAcl(pb.SetAclRequest(queue=name, entries=entries))
        await is_told(info, "IMSMQQueueInfo4", "IsWorldReadable", is_true=False)

    play_in_world(scenario)


@pytest.mark.spec("AC-3.17.4.1.6-02", "AC-3.12.4.1.3-02", "AC-2.2.1-02")
def test_so_are_those_of_messages_and_destinations() -> None:
    async def scenario(program: Program) -> None:
        _, queue, message = await received(program)
        await is_told(message, "IMSMQMessage4", "IsAuthenticated", is_true=False)
        application = await program.create("MSMQApplication")
        await application.call("RegisterCertificate")
        signed = await program.create("MSMQMessage")
        await signed.put("AuthLevel", 4)
        await signed.call("Send", await program.opened(SEND))
        found = await queue.call("Receive", ReceiveTimeout=1000)
        await is_told(found, "IMSMQMessage4", "IsAuthenticated", is_true=True)
        destination = await program.create("MSMQDestination")
        assert await slot(destination, "IMSMQDestination", "IsOpen") == 0
        await destination.put("FormatName", r"DIRECT=OS:QUORATE\private$\orders")
        await destination.call("Open")
        assert await slot(destination, "IMSMQDestination", "IsOpen") == -1

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
        sent = await slot(message, "IMSMQMessage4", "SentTime")
        days = (datetime.now(UTC) - datetime(1899, 12, 30, tzinfo=UTC)) / timedelta(days=1)
        assert sent.vt == VarType.DATE
        assert abs(sent.value - days) < SOON_DAYS
        await program.new_queue(r".\private$\exact", transactional=True)
        single = Variant(VarType.I4, 3)
        await program.send("alone", "", r".\private$\exact", single)
        exact = await program.opened(RECEIVE, r".\private$\exact")
        alone = await exact.call("Receive", ReceiveTimeout=1000)
        for found, is_true in ((message, False), (alone, True)):
            for name in ("IsFirstInTransaction", "IsLastInTransaction"):
                await is_told(found, "IMSMQMessage4", name, is_true=is_true)
        fresh = await program.create("MSMQMessage")
        assert (await slot(fresh, "IMSMQMessage4", "SentTime")).vt == VarType.EMPTY
        assert (await slot(fresh, "IMSMQMessage4", "Body")).vt == VarType.EMPTY
        assert (await slot(fresh, "IMSMQMessage4", "CompoundMessage")).vt == BYTES

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.1-01",
    "AC-3.11.4.1.1-02",
    "AC-3.11.4.1.2-01",
    "AC-3.11.4.1.3-01",
    "AC-3.11.4.1.4-01",
)
def test_a_queue_tells_in_each_revision_how_it_was_opened() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        revisions = [f"IMSMQQueue{number}" for number in ("", 2, 3, 4)]
        for access, share in ((RECEIVE, 0), (RECEIVE, 1), (SEND, 0), (PEEK, 0)):
            info = await program.queue_info()
            queue = await info.call("Open", access, share)
            handle = (await slot(queue, "IMSMQQueue4", "Handle2")).value
            told = {"Access": access, "ShareMode": share, "Handle": handle & 0xFFFF_FFFF}
            for name, number in told.items():
                for revision in revisions:
                    assert await slot(queue, revision, name) == number
                result, *_ = await queue.invoke(name, InvokeFlag.PROPERTYGET, arguments_of([]))
                assert result == Variant(VarType.I4, number)
            for revision in revisions:
                opener = pointed(await slot(queue, revision, "QueueInfo"))
                assert opener.oid == info.ref.oid
            await queue.call("Close")
        blank = await program.create("MSMQQueue")
        for name in (*told, "QueueInfo"):
            with pytest.raises(ComError) as failed:
                await slot(blank, "IMSMQQueue4", name)
            assert failed.value.status == OLE_E_BLANK

    play(scenario)


@pytest.mark.spec("AC-3.2.4.1.1-02", "AC-3.2.4.3.1-03", "AC-3.2.4.3.2-03")
def test_an_application_tells_of_its_queue_manager() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        names = "IMSMQApplication3"
        for kind in ("get", "method"):
            name = "PrivateQueues" if kind == "get" else "ActiveQueues"
            none = await slot(application, names, name, kind)
            assert (none.vt, none.value.items) == (ARRAY | VarType.BSTR, [])
        await received(program)
        found = await slot(application, names, "PrivateQueues")
        assert found.vt == ARRAY | VarType.BSTR
        assert any(name.casefold().endswith("orders") for name in found.value.items)
        active = await slot(application, names, "ActiveQueues", "method")
        assert active.vt == ARRAY | VarType.BSTR
        assert any(name.casefold().startswith("private=") for name in active.value.items)
        assert (await slot(application, names, "BytesInAllQueues")).vt == VarType.I8
        assert await slot(application, names, "MSMQVersionMajor") == 4
        assert await slot(application, names, "Machine") == "QUORATE"
        identifier = await slot(
            application, "IMSMQApplication", "MachineIdOfMachineName", "method", "QUORATE"
        )
        assert len(identifier) == 36
        null = await slot(application, names, "MachineIdOfMachineName", "method", None)
        assert null == identifier, "the local one"

    play(scenario)


@pytest.mark.spec("AC-3.1.4.2-01")
def test_what_a_slot_is_not_given_has_its_default() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        omitted = Variant(10, 0x80020004)
        for name, count in (("Receive", 5), ("Peek", 4)):  # the body alone, however long it takes
            called = slot(queue, "IMSMQQueue4", name, "method", *[omitted] * count)
            waiting = asyncio.ensure_future(called)
            assert not (await asyncio.wait([waiting], timeout=0.3))[0], "there is nothing yet"
            await program.send("body")
            found = await Late(program.server, pointed(await waiting)).as_dispatch()
            assert await found.get("Body") == "body"
            assert await found.get("DestinationQueueInfo") is None
        info = await program.queue_info(r".\private$\plain")
        await slot(info, "IMSMQQueueInfo4", "Create", "method", omitted, omitted)
        assert await info.get("IsTransactional2") is False

    play(scenario)


@pytest.mark.spec("AC-3.3.4.1.9-04", "AC-3.3.1-02")
def test_a_management_object_becomes_what_its_queue_is() -> None:
    async def scenario(program: Program) -> None:
        await received(program)
        management = await program.create("MSMQManagement")
        (refused,) = await program.server.query(management.ref.ipid, iid("IMSMQQueueManagement"))
        assert refused == 0x8000_4002
        await management.call("Init", FormatName=r"DIRECT=OS:QUORATE\private$\orders")
        assert (await slot(management, "IMSMQManagement", "BytesInQueue")).vt == VarType.UI8
        assert (await slot(management, "IMSMQQueueManagement", "BytesInJournal")).value == 0
        (other,) = await program.server.query(
            management.ref.ipid, iid("IMSMQOutgoingQueueManagement")
        )
        assert other == 0x8000_4002
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
        assert local == 0x8000_4002
        assert isinstance(outgoing, Objref)
        assert outgoing.iid == iid("IMSMQOutgoingQueueManagement")
        assert (await slot(sending, "IMSMQOutgoingQueueManagement", "State")) in range(1, 9)

    play(scenario)


@pytest.mark.spec("AC-3.15.4.1.3-02", "AC-3.15.3-01")
def test_collections_have_items_and_enumerators() -> None:
    async def scenario(program: Program) -> None:
        collection = await program.create("MSMQCollection")
        assert await collection.get("Count") == 0
        with pytest.raises(ComError) as missing:
            await collection.call("Item", "anything")
        assert missing.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        # A script asks for it by number, and gets an IUnknown of which it asks for IEnumVARIANT.
        asked_for = InvokeFlag.METHOD | InvokeFlag.PROPERTYGET
        result, *_, status = await collection.invoke(-4, asked_for, arguments_of([]))
        assert (status, result.vt) == (0, 13)
        for each in (result.value, await slot(collection, "IMSMQCollection", "_NewEnum", "method")):
            assert pointed(each).iid == UUID(f"00000000{_OF_COM}").bytes_le
            given = Late(program.server, pointed(each))
            assert (await given.by(UUID(f"00020404{_OF_COM}").bytes_le)).public_refs
        raw = await slot(collection, "IMSMQCollection", "_NewEnum", "method")
        enumerator = await Late(program.server, pointed(raw)).by(IID_IENUMVARIANT)
        listed, count, status = await program.server.call(enumerator.ipid, IENUMVARIANT, 3, [5])
        assert (listed.items, count, status) == ([], 0, Hresult.S_FALSE)
        assert await program.server.call(enumerator.ipid, IENUMVARIANT, 4, [1]) == [1]
        # There is room for as many as were asked for: the IDL says so, whatever is there.
        for asked in (5, 1_025, 0xFFFF_FFFF):
            assert await program.server.call(enumerator.ipid, IENUMVARIANT, 5, []) == [0]
            listed, *found = await program.server.call(enumerator.ipid, IENUMVARIANT, 3, [asked])
            assert (listed.count_max, *found) == (asked, count, 1)
        assert await program.server.call(enumerator.ipid, IENUMVARIANT, 5, []) == [0]
        _, status = await program.server.call(enumerator.ipid, IENUMVARIANT, 6, [])
        assert status == 0

    play(scenario)


@pytest.mark.spec("AC-3.8.4.1.1-06", "AC-3.8.4.1.3-04", "AC-2.2.3.2-01")
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
        # BOID, isoLevel, isoFlags, grfTCSupported and three more: as they stand on the wire.
        laid_out = orpc_interface(
            "ITransaction",
            iid("ITransaction"),
            {5: orpc_operation("info", [], (GUID, *[U32] * 6, U32))},
        )
        assert await program.server.call(itransaction.ipid, laid_out, 5, []) == [
            info.uow, *[0] * 6, 0,
        ]  # fmt: skip
        assert await program.server.call(itransaction.ipid, served, 3, [0, 2, 0]) == [0]
        with pytest.raises(ComError) as ended:
            await other.call("Abort")
        assert ended.value.status == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        refused = await program.create("MSMQCoordinatedTransactionDispenser")
        with pytest.raises(ComError) as coordinator:
            await refused.call("BeginTransaction")
        assert coordinator.value.status == ErrorCode.MQ_ERROR_DTC_CONNECT

    play(scenario)


@pytest.mark.spec("AC-3.10.4.1.26-11")
def test_anything_but_zero_makes_a_queue_transactional_or_readable_by_all() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        bob = await world.program("bob")

        async def is_made(number: int, transactional: Variant, readable: Variant) -> list[bool]:
            path = rf".\private$\made{number}"
            info = await program.queue_info(path)
            if number % 2:
                await info.call("Create", transactional, readable)
            else:
                given = ("IMSMQQueueInfo4", "Create", "method", transactional, readable)
                await slot(info, *given)
            told = await slot(info, "IMSMQQueueInfo4", "IsTransactional2")
            try:
                await bob.opened(RECEIVE, path)
            except ComError as denied:
                assert denied.status == ErrorCode.MQ_ERROR_ACCESS_DENIED
                return [told == -1, False]
            return [told == -1, True]

        no = Variant(11, 0)
        flags = [Variant(11, number) for number in (0xFFFF, 1, 0x8000, 0)]
        flags += [Variant(3, number) for number in (1, -1, 0)]
        for number, flag in enumerate(each for each in flags for _ in range(2)):
            assert await is_made(2 * number, flag, no) == [bool(flag.value), False], flag
            assert await is_made(2 * number + 1, no, flag) == [False, bool(flag.value)], flag
            assert await is_made(200 + 3 * number, flag, flag) == [bool(flag.value)] * 2, flag
        bob.close()

    play_in_world(scenario)


TYPE = "{00112233-4455-6677-8899-aabbccddeeff}"
OTHER = "{00112233-4455-6677-8899-aabbccddee00}"
PAST, FUTURE = Variant(7, 36_526.0), Variant(7, 73_050.0)
UNEQUAL, LESS, GREATER = (Variant(3, number) for number in (2, 3, 4))
TERMS = ["QueueGuid", "ServiceTypeGuid", "Label", "CreateTime", "ModifyTime", "RelServiceType",
    "RelLabel", "RelCreateTime", "RelModifyTime"]  # fmt: skip


@pytest.mark.spec("AC-3.13.4.1.1-05", "AC-3.13.4.1.3-06")
@pytest.mark.parametrize(("name", "count"), [("LookupQueue_v2", 9), ("LookupQueue", 11)])
def test_each_term_of_a_query_decides_by_its_value_and_its_relation(name: str, count: int) -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info(r"QUORATE\shown")
        await info.put("Label", "middle")
        await info.put("ServiceTypeGuid", TYPE)
        await info.call("Create")
        query = await program.create("MSMQQuery")
        guid = "{" + await info.get("QueueGuid") + "}"

        async def found(terms: dict[str, Variant]) -> int:
            given = [terms.get(one, OMITTED) for one in TERMS] + [OMITTED] * (count - len(TERMS))
            raw = await slot(query, "IMSMQQuery4", name, "method", *given)
            infos = await Late(program.server, pointed(raw)).as_dispatch()
            totals = []
            for each in (infos, await query.call(name, **terms)):
                await each.call("Reset")
                totals.append(0)
                while await each.call("Next") is not None:
                    totals[-1] += 1
            assert totals[0] == totals[1], "by slot and by name"
            return totals[0]

        def text(value: str) -> Variant:
            return Variant(8, value)

        for terms, expected in (
            ({"QueueGuid": text(guid)}, 1),
            ({"QueueGuid": text(OTHER)}, 0),
            ({"ServiceTypeGuid": text(TYPE)}, 1),
            ({"ServiceTypeGuid": text(OTHER)}, 0),
            ({"ServiceTypeGuid": text(TYPE), "RelServiceType": UNEQUAL}, 0),
            ({"ServiceTypeGuid": text(OTHER), "RelServiceType": UNEQUAL}, 1),
            ({"Label": text("middle")}, 1),
            ({"Label": text("another")}, 0),
            ({"Label": text("a"), "RelLabel": GREATER}, 1),
            ({"Label": text("a"), "RelLabel": LESS}, 0),
            ({"CreateTime": PAST, "RelCreateTime": GREATER}, 1),
            ({"CreateTime": PAST, "RelCreateTime": LESS}, 0),
            ({"CreateTime": FUTURE, "RelCreateTime": LESS}, 1),
            ({"CreateTime": FUTURE}, 0),
            ({"ModifyTime": PAST, "RelModifyTime": GREATER}, 1),
            ({"ModifyTime": PAST, "RelModifyTime": LESS}, 0),
            ({"ModifyTime": FUTURE, "RelModifyTime": LESS}, 1),
            ({"ModifyTime": FUTURE}, 0),
        ):
            assert await found(terms) == expected, terms
        for term in ("QueueGuid", "ServiceTypeGuid"):
            for bare in (TYPE[1:-1], TYPE[1:], TYPE[:-1], ""):
                with pytest.raises(ComError) as invalid:
                    await query.call(name, **{term: text(bare)})
                assert invalid.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER

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
        await fresh.put("Body", "no envelope")
        # There is no SRMP here, and so neither envelopes nor attachments.
        for each in (fresh, (await received(program))[-1]):
            told = await slot(each, "IMSMQMessage4", "CompoundMessage")
            assert (told.vt, told.value.items) == (0x2011, b"")
            result, *_ = await each.invoke("CompoundMessage", 2, arguments_of([]))
            assert (result.vt, result.value.items) == (0x2011, b"")
        application = await program.create("MSMQApplication")
        certificate = new_signer("alice", 2048, 1).certificate
        array = array_of(VarType.UI1, certificate)
        for given in (array, Variant(BYREF | BYTES, array.value)):
            await application.call("RegisterCertificate", ExternalCertificate=given)
        with pytest.raises(ComError):
            await application.call("RegisterCertificate", ExternalCertificate=b"no certificate")

    play(scenario)


@pytest.mark.spec("AC-3.2.4.2.1-10")
def test_the_certificate_that_was_given_is_the_one_that_is_registered() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        async with world.channel(await world.leader()) as channel:
            stub: Any = control_pb2_grpc.CertificateControlStub(channel)

            async def subjects() -> set[str]:
                person = pb.Person(principal="alice")
                reply = await stub.List(pb.ListCertificatesRequest(person=person))
                return {one.subject for one in reply.certificates}

            application = await program.create("MSMQApplication")
            known: set[str] = set()
            for number, flags in enumerate((0x2011, 0x4000 | 0x2011) * 2):
                certificate = new_signer(f"signer {number}", 2048, 1).certificate
                array = array_of(VarType.UI1, certificate).value
                given = Variant(flags, array)
                if number < 2:
                    await application.call("RegisterCertificate", ExternalCertificate=given)
                else:
                    registers = ("IMSMQApplication3", "RegisterCertificate", "method")
                    await slot(application, *registers, OMITTED, given)
                known.add(f"CN=signer {number}")
                assert await subjects() == known
                cut = Variant(flags, array_of(VarType.UI1, certificate[:-1]).value)
                for wrong in (cut, Variant(flags, array_of(VarType.UI1, b"MZ").value)):
                    with pytest.raises(ComError):
                        await application.call("RegisterCertificate", ExternalCertificate=wrong)
            text = Variant(8, "a certificate")
            with pytest.raises(ComError):
                await application.call("RegisterCertificate", ExternalCertificate=text)
            assert await subjects() == known

    play_in_world(scenario)


@pytest.mark.spec("AC-3.12.4.1.1-01", "AC-3.12.4.1.2-01", "AC-3.12.4.1.2-02")
def test_opening_what_is_open_and_closing_what_is_closed_succeed_and_do_nothing() -> None:
    async def scenario(program: Program) -> None:
        await received(program)
        destination = await program.create("MSMQDestination")
        (ref,) = await program.server.query(destination.ref.ipid, iid("IMSMQDestination"))
        assert isinstance(ref, Objref)
        served = object_interfaces()[ref.iid]
        assert await program.server.call(ref.ipid, served, 8, []) == [1]
        message = await program.create("MSMQMessage")
        await destination.put("PathName", r".\private$\orders")
        await message.put("Body", "by destination")
        for status in (0, 1):
            assert await program.server.call(ref.ipid, served, 7, []) == [status]
        await message.call("Send", destination)
        queue = await program.opened(RECEIVE)
        found = await queue.call("Receive", OMITTED, ReceiveTimeout=1000)
        assert await found.get("Body") == "by destination"
        for status in (0, 1):
            assert await program.server.call(ref.ipid, served, 8, []) == [status]
        assert await (await program.opened(SEND)).get("Access") == SEND

    play(scenario)

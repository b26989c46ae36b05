"""What slots answer and take, over a real node: objects in the interface that each revision's row
names, and arguments in the order in which the row has them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from qm.client.mqac.transaction import XACTTRANSINFO
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.objref import write_objref
from qm.wire.codes import ErrorCode
from tests.conformance.dcom_rows import arguments, pointers
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    PRIVATE,
    RECEIVE,
    SEND,
    Late,
    Program,
    iid,
    play,
    pointed,
    slot,
)

CONNECTOR = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
NO_CONNECTOR = "{00000000-0000-0000-0000-000000000000}"
BODY = "body"
NEQ, NOP = Variant(VarType.I4, 2), Variant(VarType.I4, 0)
TYPE, OTHER = (f"{{01020304-0506-0708-090A-0B0C0D0E0F1{number}}}" for number in (1, 2))


async def called(late: Late, interface: str, opnum: int, *given: Any) -> list[Any]:
    """Call a slot by its place in the vtable; its results without the HRESULT."""
    ref = await late.by(iid(interface))
    *found, status = await late.server.call(
        ref.ipid, object_interfaces()[ref.iid], opnum, list(given)
    )
    if status:
        raise ComError(status)
    return found


async def answers(row_id: str, late: Late, *given: Any) -> list[Late]:
    """What the slot of a row answers, in each revision in the interface that the row names."""
    found = []
    for interface, opnum, wanted in pointers(row_id):
        (raw,) = await called(late, interface, opnum, *given)
        assert pointed(raw).iid == iid(wanted), (row_id, interface)
        found.append(await Late(late.server, pointed(raw)).as_dispatch())
    return found


def flag(value: bool | None) -> Variant:
    """A boolean, or what stands for one that is left out."""
    return OMITTED if value is None else Variant(VarType.BOOL, 0xFFFF if value else 0)


async def filled(program: Program, *labels: str) -> dict[str, Variant]:
    """Send messages of a connector; LookupIds by label."""
    ids = {}
    for label in labels:
        message = await program.create("MSMQMessage")
        for name, value in (("ConnectorTypeGuid", CONNECTOR), ("Body", BODY), ("Label", label)):
            await message.put(name, value)
        await message.call("Send", await program.opened(SEND))
        ids[label] = Variant(VarType.BSTR, await message.get("LookupId"))
    return ids


async def reads(row_id: str, program: Program, *place: str) -> None:
    """Each argument of a read is what its place says, or has its default if it is left out.

    `place`: the label of the message whose LookupId it is given, if it takes one.
    """
    queue = await program.opened(RECEIVE)
    names = arguments(row_id)
    for wants in ((False, True, False), (True, False, False), (False, False, True), None):
        has_destination, has_body, has_connector = wants or (None, None, None)
        for interface, opnum, wanted in pointers(row_id):
            await queue.call("Purge")
            ids = await filled(program, "a", "b", "c")
            values = {
                "LookupId": ids[place[0]] if place else None,
                "Transaction": Variant(VarType.I4, 0) if wants else OMITTED,
                "WantDestinationQueue": flag(has_destination),
                "WantBody": flag(has_body),
                "ReceiveTimeout": Variant(VarType.I4, 0) if wants else OMITTED,
                "WantConnectorType": flag(has_connector),
            }
            (raw,) = await called(queue, interface, opnum, *(values[name] for name in names))
            assert pointed(raw).iid == iid(wanted), (row_id, interface)
            found = await Late(program.server, pointed(raw)).as_dispatch()
            info = await found.get("DestinationQueueInfo")
            assert (info is not None) == bool(has_destination), (row_id, interface)
            assert await found.get("Body") == (None if has_body is False else BODY)
            is_shown = has_connector and "WantConnectorType" in names
            assert await found.get("ConnectorTypeGuid") == (CONNECTOR if is_shown else NO_CONNECTOR)


@pytest.mark.spec(
    "AC-3.11.4.1.25-04", "AC-3.11.4.1.25-10", "AC-3.11.4.1.33-05", "AC-3.11.4.1.33-11"
)
def test_receives_by_lookup_id_have_their_arguments_in_order() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await reads("AC-3.11.4.1.25-10", program)
        await reads("AC-3.11.4.1.33-11", program, "b")

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.26-08", "AC-3.11.4.1.27-07", "AC-3.11.4.1.28-07", "AC-3.11.4.1.29-06",
    "AC-3.11.4.1.30-06",
)  # fmt: skip
def test_peeks_by_lookup_id_have_their_arguments_in_order() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        for row_id in ("AC-3.11.4.1.26-08", "AC-3.11.4.1.27-07", "AC-3.11.4.1.28-07"):
            await reads(row_id, program, "b")
        for row_id in ("AC-3.11.4.1.29-06", "AC-3.11.4.1.30-06"):
            await reads(row_id, program)

    play(scenario)


@pytest.mark.spec("AC-3.11.4.1.7-01", "AC-3.11.4.1.7-04", "AC-3.11.4.1.7-11", "AC-3.11.4.1.8-07")
def test_reads_of_the_first_revision_have_their_arguments_in_order() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await reads("AC-3.11.4.1.7-11", program)
        await reads("AC-3.11.4.1.8-07", program)

    play(scenario)


@pytest.mark.spec("AC-3.11.4.1.7-08", "AC-3.11.4.1.25-07", "AC-3.11.4.1.33-08")
def test_a_transaction_of_another_computer_locks_what_is_read_in_it() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(transactional=True)
        await program.send(BODY, "only", PRIVATE, Variant(VarType.I4, 3))
        queue = await program.opened(RECEIVE)
        only = await (await queue.call("Peek", ReceiveTimeout=1000)).get("LookupId")
        dispenser = await program.create("MSMQTransactionDispenser")
        for name, given, is_visible in (
            ("Receive_v1", {"ReceiveTimeout": 0}, False),
            ("ReceiveLastByLookupId", {}, False),
            ("ReceiveByLookupIdAllowPeek", {"LookupId": only}, True),
        ):
            for ending in ("Abort", "Commit") if is_visible else ("Abort",):
                transaction = await dispenser.call("BeginTransaction")
                found = await queue.call(name, Transaction=transaction, **given)
                assert await found.get("Label") == "only"
                if is_visible:
                    assert await queue.call("PeekByLookupId", only) is not None
                else:
                    await gone(queue, "PeekByLookupId", only)
                await gone(queue, "ReceiveByLookupId", only)
                await transaction.call(ending)
        await gone(queue, "PeekByLookupId", only)

    play(scenario)


async def gone(queue: Late, name: str, lookup_id: str) -> None:
    """A read by LookupId finds nothing."""
    with pytest.raises(ComError) as nothing:
        await queue.call(name, lookup_id)
    assert nothing.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("AC-3.11.4.1.3-03", "AC-3.11.4.1.9-13")
def test_a_queue_answers_its_info_and_takes_an_event() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        for info in await answers("AC-3.11.4.1.3-03", queue):
            assert (await info.get("PathName")).casefold().endswith("orders")
        event = await program.create("MSMQEvent")
        pointer = write_objref(await event.by(iid("IMSMQEvent3")))
        cursor, timeout = Variant(VarType.I4, 0), Variant(VarType.I4, 3)
        for interface in ("IMSMQQueue3", "IMSMQQueue4"):
            await called(queue, interface, 15, pointer, cursor, timeout)
            await called(queue, interface, 15, pointer, OMITTED, OMITTED)
            with pytest.raises(ComError) as invalid:
                await called(queue, interface, 15, pointer, timeout, cursor)
            assert invalid.value.status == Hresult.E_INVALIDARG

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.15-03", "AC-3.17.4.1.71-02", "AC-3.17.4.1.74-01", "AC-3.17.4.1.76-02",
    "AC-3.17.4.1.78-02",
)  # fmt: skip
def test_queues_for_responses_are_put_and_answered_in_their_revision() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        name = await info.get("FormatName")
        for row_id, property_name in (
            ("AC-3.17.4.1.15-03", "ResponseQueueInfo"),
            ("AC-3.17.4.1.71-02", "ResponseQueueInfo"),
            ("AC-3.17.4.1.73-02", "AdminQueueInfo"),
            ("AC-3.17.4.1.76-02", "ResponseQueueInfo"),
            ("AC-3.17.4.1.78-02", "AdminQueueInfo"),
        ):
            for interface, opnum, wanted in pointers(row_id):
                message = await program.create("MSMQMessage")
                pointer = write_objref(await info.by(iid(wanted)))
                assert await called(message, interface, opnum + 1, pointer) == []
                assert await (await message.get(property_name)).get("FormatName") == name
                (raw,) = await called(message, interface, opnum)
                assert pointed(raw).iid == iid(wanted), (row_id, interface)
                shown = await Late(program.server, pointed(raw)).as_dispatch()
                assert await shown.get("FormatName") == name
                assert await called(message, interface, opnum + 1, None) == []
                assert await called(message, interface, opnum) == [None]

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.42-03", "AC-3.17.4.1.55-02")
def test_a_message_answers_the_queue_it_was_sent_to_and_none_for_its_status() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        sent = await program.send(BODY)
        for found in await answers("AC-3.17.4.1.42-03", sent):
            assert await found.get("FormatName") == await info.get("FormatName")
        for interface, opnum, _ in pointers("AC-3.17.4.1.55-02"):
            assert await called(sent, interface, opnum) == [None]

    play(scenario)


@pytest.mark.spec("AC-3.6.4.1.1-01", "AC-3.8.4.1.3-01")
def test_a_dispenser_answers_a_transaction_of_its_revision() -> None:
    async def scenario(program: Program) -> None:
        dispenser = await program.create("MSMQTransactionDispenser")
        units = set()
        for transaction in await answers("AC-3.6.4.1.1-04", dispenser):
            inner = await slot(transaction, "IMSMQTransaction3", "ITransaction")
            unknown = Late(program.server, pointed(inner.value))
            (info,) = await called(unknown, "ITransaction", 5)
            assert any(info.uow)
            assert info == XACTTRANSINFO(info.uow)
            units.add(info.uow)
            await transaction.call("Abort")
        assert len(units) == 3

    play(scenario)


@pytest.mark.spec("AC-3.2.4.2.1-07")
def test_that_there_is_an_internal_certificate_is_told_as_a_success() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        ref = await application.by(iid("IMSMQApplication3"))
        served, only_new = object_interfaces()[ref.iid], Variant(VarType.I4, 2)
        kept = ErrorCode.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
        for flags, wanted in ((only_new, 0), (only_new, kept), (OMITTED, 0)):
            found = await program.server.call(ref.ipid, served, 8, [flags, OMITTED])
            assert found == [wanted]

    play(scenario)


@pytest.mark.spec("AC-3.14.4.1.2-01")
def test_results_end_with_none_and_success() -> None:
    async def scenario(program: Program) -> None:
        for name in ("one", "two"):
            info = await program.queue_info(rf"QUORATE\{name}")
            await info.put("Label", name)
            await info.call("Create")
        query = await program.create("MSMQQuery")
        for interface, opnum, wanted in pointers("AC-3.14.4.1.2-06"):
            infos = await query.call("LookupQueue")
            labels = set()
            for _ in range(2):
                (raw,) = await called(infos, interface, opnum)
                assert pointed(raw).iid == iid(wanted), interface
                one = await Late(program.server, pointed(raw)).as_dispatch()
                assert (await one.get("FormatName")).startswith("PUBLIC=")
                labels.add(await one.get("Label"))
            assert labels == {"one", "two"}
            for _ in range(2):
                assert await called(infos, interface, opnum) == [None], "S_OK"

    play(scenario)


async def found(
    query: Late, at: tuple[str, int, str], count: int, places: dict[int, Variant]
) -> bool:
    """Whether a lookup finds a queue, with these of so many arguments."""
    interface, opnum, wanted = at
    given = [places.get(place, OMITTED) for place in range(count)]
    (raw,) = await called(query, interface, opnum, *given)
    assert pointed(raw).iid == iid(wanted), interface
    infos = await Late(query.server, pointed(raw)).as_dispatch()
    return await infos.call("Next") is not None


@pytest.mark.spec("AC-3.13.4.1.1-07", "AC-3.13.4.1.3-11", "AC-3.13.4.1.1-03", "AC-3.13.4.1.3-04")
def test_lookups_have_their_arguments_in_order() -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info(r"QUORATE\shown")
        await info.put("Label", "shown")
        await info.put("ServiceTypeGuid", TYPE)
        await info.put("MulticastAddress", "234.1.1.1:8001")
        await info.call("Create")
        query = await program.create("MSMQQuery")
        right = [
            Variant(VarType.BSTR, "{" + await info.get("QueueGuid") + "}"),
            Variant(VarType.BSTR, TYPE),
            Variant(VarType.BSTR, "shown"),
            query.variant(await info.get("CreateTime")),
            query.variant(await info.get("ModifyTime")),
        ]
        past = Variant(VarType.DATE, 36_526.0)
        wrong = [Variant(VarType.BSTR, OTHER)] * 2 + [Variant(VarType.BSTR, "other"), past, past]
        for row_id in ("AC-3.13.4.1.1-07", "AC-3.13.4.1.3-11"):
            has_address = row_id == "AC-3.13.4.1.3-11"
            for interface, opnum, wanted in pointers(row_id):
                finds = partial(found, query, (interface, opnum, wanted), 11 if has_address else 9)
                terms = {place: (right[place], wrong[place], place + 4) for place in range(5)}
                if has_address:
                    address = Variant(VarType.BSTR, "234.1.1.1:8001")
                    terms[9] = (address, Variant(VarType.BSTR, "234.1.1.1:8002"), 10)
                for place, (is_so, is_not, relation) in terms.items():
                    assert await finds({place: is_so}), place
                    assert not await finds({place: is_not}), place
                    if place == 0:
                        continue  # it has no relation
                    assert await finds({place: is_not, relation: NEQ})
                    assert not await finds({place: is_so, relation: NEQ})
                    assert await finds({place: is_not, relation: NOP})

    play(scenario)

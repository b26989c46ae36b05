"""Members of applications, management objects, collections and transactions by the slots and
DISPIDs of their rows [MC-MQAC 3.2.4 to 3.9.4, 3.15.4].
"""

from __future__ import annotations

from functools import partial

import pytest

from qm.client.mqac.constants import XACT_E_NOTSUPPORTED
from qm.client.mqac.transaction import XACTTRANSINFO
from qm.rpc.dcom.automation.dispatch import IENUMVARIANT
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.identifiers import IID_IENUMVARIANT
from qm.wire.codes import ErrorCode
from tests.conformance.dcom_members import is_refused, is_told, ways
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    iid,
    play,
    pointed,
)

ORDERS = r"DIRECT=OS:QUORATE\private$\orders"
EXACT = r".\private$\exact"
FAR = r"DIRECT=TCP:127.255.255.254\private$\orders"
PRIVATE_TYPE, NOT_FOREIGN, UNKNOWN = 1, 1, 2
"""MQ_TYPE_PRIVATE, MQ_STATUS_NOT_FOREIGN, and what is unknown of either status."""
IS_EXACT, IS_NOT_EXACT = 0, 1
ON_HOLD = 4
VERSION = (4, 1, 6000)
RESEND_S = 30
SEND_INFO = 11
"""As many values as 2.2.4.2 lists."""


def texts(*values: str) -> Variant:
    return array_of(VarType.BSTR, list(values))


async def managed(program: Program, name: str) -> Late:
    """What manages an active queue."""
    management = await program.create("MSMQManagement")
    await management.call("Init", FormatName=name)
    return management


async def sending(program: Program, *bodies: str) -> Late:
    """What manages an outgoing queue with messages, which nobody takes; transactional ones."""
    info = await program.create("MSMQQueueInfo")
    await info.put("FormatName", FAR)
    target = await info.call("Open", SEND, 0)
    single = Variant(VarType.I4, 3)
    for body in bodies:
        message = await program.create("MSMQMessage")
        await message.put("Body", body)
        await message.call("Send", target, single)
    return await managed(program, FAR)


# Applications ----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.2.4.1.1-06",
    "AC-3.2.4.2.3-03",
    "AC-3.2.4.2.4-03",
    "AC-3.2.4.2.5-03",
    "AC-3.2.4.2.6-02",
)
def test_an_application_tells_its_version_and_its_directory() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        sent = await program.send("body")
        machine = await sent.get("SourceMachineGuid")
        application = await program.create("MSMQApplication")
        for find in ways("AC-3.2.4.1.1-06", application):
            assert await find("QUORATE") == machine
            with pytest.raises(ComError) as missing:
                await find("nobody")
            assert missing.value.status & 0xFFFF_0000 == 0xC00E_0000
        for row_id, number in zip(
            ("AC-3.2.4.2.3-03", "AC-3.2.4.2.4-03", "AC-3.2.4.2.5-03"), VERSION, strict=True
        ):
            await is_told(row_id, application, number)
        await is_told("AC-3.2.4.2.6-02", application, -1)

    play(scenario)


@pytest.mark.spec(
    "AC-3.2.4.3.1-04",
    "AC-3.2.4.3.2-04",
    "AC-3.2.4.3.3-04",
    "AC-3.2.4.3.5-03",
)
def test_an_application_tells_of_its_queues() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        await program.new_queue()
        for get in ways("AC-3.2.4.3.1-04", application):
            assert await get() == texts()
        await is_told("AC-3.2.4.3.5-03", application, Variant(VarType.I8, 0))
        queue = await program.opened(SEND)
        message = await program.create("MSMQMessage")
        await message.call("Send", queue)
        for row_id, start, end in (
            ("AC-3.2.4.3.1-04", "private=", ""),
            ("AC-3.2.4.3.2-04", "quorate", r"\private$\orders"),
        ):
            for get in ways(row_id, application):
                found = await get()
                assert found.vt == ARRAY | VarType.BSTR, get
                (name,) = found.value.items
                assert name.casefold().startswith(start)
                assert name.casefold().endswith(end)
        for get in ways("AC-3.2.4.3.3-04", application):
            assert str(await get()).startswith("\\\\"), get
        for get in ways("AC-3.2.4.3.5-03", application):
            found = await get()
            assert found.vt == VarType.I8
            assert found.value > 0, get

    play(scenario)


@pytest.mark.spec("AC-3.2.4.3.4-04", "AC-3.2.4.3.8-04", "AC-3.2.4.3.9-04", "AC-3.2.4.3.10-04")
def test_an_application_is_taken_offline_and_brought_online() -> None:
    async def scenario(program: Program) -> None:
        application = await program.create("MSMQApplication")
        connects, disconnects, tidies = (
            ways(row_id, application)
            for row_id in ("AC-3.2.4.3.8-04", "AC-3.2.4.3.9-04", "AC-3.2.4.3.10-04")
        )
        for connect, disconnect, tidy in zip(connects, disconnects, tidies, strict=True):
            await is_told("AC-3.2.4.3.4-04", application, -1)
            assert await disconnect() is None
            await is_told("AC-3.2.4.3.4-04", application, 0)
            # It changes neither.
            assert await tidy() is None
            await is_told("AC-3.2.4.3.4-04", application, 0)
            assert await connect() is None
            assert await tidy() is None
            await is_told("AC-3.2.4.3.4-04", application, -1)
        await application.put("Machine", "nobody")
        await is_refused(
            "AC-3.2.4.3.10-04", application, status=ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
        )

    play(scenario)


# Management ------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.3.4.1.2-03",
    "AC-3.3.4.1.3-03",
    "AC-3.3.4.1.4-04",
    "AC-3.3.4.1.9-05",
)
def test_a_managed_queue_tells_its_names_and_what_it_holds() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        management = await managed(program, ORDERS)
        await is_told("AC-3.3.4.1.2-03", management, ORDERS)
        await is_told("AC-3.3.4.1.3-03", management, "QUORATE")
        for count in range(3):
            await is_told("AC-3.3.4.1.4-04", management, count)
            for get in ways("AC-3.3.4.1.9-05", management):
                found = await get()
                assert found.vt == VarType.UI8
                assert (found.value > count * 100) == (count > 0), get
            await program.send("body" * 20)
        assert queue is not None

    play(scenario)


@pytest.mark.spec(
    "AC-3.3.4.1.5-04",
    "AC-3.3.4.1.6-04",
    "AC-3.3.4.1.7-04",
    "AC-3.3.4.1.8-04",
)
def test_a_managed_queue_tells_what_it_is() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(transactional=True)
        await program.new_queue(r"QUORATE\shown")
        queues = [await program.opened(SEND, path) for path in (".\\private$\\orders", ".\\shown")]
        exact = await managed(program, ORDERS)
        public = await program.create("MSMQManagement")
        await public.call("Init", Pathname=r".\shown")
        far = await sending(program, "body")
        for one, foreign, kind, is_local, status in (
            (exact, NOT_FOREIGN, PRIVATE_TYPE, -1, IS_EXACT),
            (public, NOT_FOREIGN, 0, -1, IS_NOT_EXACT),
            (far, NOT_FOREIGN, PRIVATE_TYPE, 0, UNKNOWN),
        ):
            await is_told("AC-3.3.4.1.5-04", one, foreign)
            await is_told("AC-3.3.4.1.6-04", one, kind)
            await is_told("AC-3.3.4.1.7-04", one, is_local)
            await is_told("AC-3.3.4.1.8-04", one, status)
        assert len(queues) == 2

    play(scenario)


@pytest.mark.spec("AC-3.4.4.1.1-04", "AC-3.4.4.1.2-04", "AC-3.4.4.1.3-04")
def test_a_local_queue_tells_of_its_journal_and_its_senders() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        await info.put("Journal", 1)
        await info.call("Update")
        queue = await program.opened(RECEIVE)
        management = await managed(program, ORDERS)
        for count in range(3):
            await is_told("AC-3.4.4.1.1-04", management, count)
            for get in ways("AC-3.4.4.1.2-04", management):
                found = await get()
                assert found.vt == VarType.UI8
                assert (found.value > count * 100) == (count > 0), get
            await program.send("body" * 20)
            assert await queue.call("Receive", ReceiveTimeout=0) is not None
        for get in ways("AC-3.4.4.1.3-04", management):
            assert await get() == array_of(VarType.VARIANT, []), get

    play(scenario)


@pytest.mark.spec(
    "AC-3.5.4.1.1-04",
    "AC-3.5.4.1.2-04",
    "AC-3.5.4.1.4-05",
    "AC-3.5.4.1.5-05",
    "AC-3.5.4.1.6-05",
)
def test_an_outgoing_queue_is_held_released_and_sent_again() -> None:
    async def scenario(program: Program) -> None:
        management = await sending(program, "body")
        resumes, pauses, resends = (
            ways(row_id, management)
            for row_id in ("AC-3.5.4.1.4-05", "AC-3.5.4.1.5-05", "AC-3.5.4.1.6-05")
        )
        states = ways("AC-3.5.4.1.1-04", management)
        for resume, pause, resend in zip(resumes, pauses, resends, strict=True):
            assert all([await state() != ON_HOLD for state in states])
            assert await pause() is None
            await is_told("AC-3.5.4.1.1-04", management, ON_HOLD)
            assert await resume() is None
            assert all([await state() != ON_HOLD for state in states])
            assert await resend() is None
            assert all([await state() != ON_HOLD for state in states])
        await is_told("AC-3.5.4.1.2-04", management, texts("IP=127.255.255.254"))

    play(scenario)


@pytest.mark.spec("AC-3.5.4.1.3-05", "AC-3.15.4.1.1-03", "AC-3.15.4.1.2-02", "AC-3.15.4.1.3-03")
def test_what_is_sent_in_order_is_a_collection_by_name_and_one_by_one() -> None:
    async def scenario(program: Program) -> None:
        management = await sending(program, "one", "two")
        for send_info in ways("AC-3.5.4.1.3-05", management):
            collection = await Late(program.server, pointed(await send_info())).as_dispatch()
            await is_told("AC-3.15.4.1.2-02", collection, SEND_INFO)
            for item in ways("AC-3.15.4.1.1-03", collection):
                found = await item(Variant(VarType.BSTR, "EodResendInterval"))
                assert found == Variant(VarType.UI4, RESEND_S), item
                with pytest.raises(ComError) as missing:
                    await item(Variant(VarType.BSTR, "anything"))
                assert missing.value.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
            for begin in ways("AC-3.15.4.1.3-03", collection):
                enumerator = Late(program.server, pointed(await begin()))
                ref = await enumerator.by(IID_IENUMVARIANT)
                listed, count, status = await program.server.call(ref.ipid, IENUMVARIANT, 3, [20])
                assert (len(listed.items), count, status) == (SEND_INFO, SEND_INFO, 1), begin

    play(scenario)


# Transactions ----------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.6.4.1.1-04", "AC-3.6.4.1.2-02", "AC-3.7.4.1.1-05", "AC-3.7.4.1.2-02")
def test_dispensers_begin_transactions_of_their_revision_or_none() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(EXACT, transactional=True)
        queue = await program.opened(RECEIVE, EXACT)
        dispenser = await program.create("MSMQTransactionDispenser")
        await is_refused("AC-3.6.4.1.2-02", dispenser)
        for begin in ways("AC-3.6.4.1.1-04", dispenser):
            raw = await begin()
            if begin.dispid is None:
                wanted = begin.interface.replace("Dispenser", "")
                assert pointed(raw).iid == iid(wanted)
            transaction = await Late(program.server, pointed(raw)).as_dispatch()
            await program.send("body", "", EXACT, transaction)
            await transaction.call("Commit")
            assert await queue.call("Receive", ReceiveTimeout=5000) is not None, begin
        refused = await program.create("MSMQCoordinatedTransactionDispenser")
        await is_refused("AC-3.7.4.1.1-05", refused, status=ErrorCode.MQ_ERROR_DTC_CONNECT)
        await is_refused("AC-3.7.4.1.2-02", refused)

    play(scenario)


@pytest.mark.spec(
    "AC-3.9.4.1.1-03",
    "AC-3.9.4.1.3-04",
    "AC-3.9.4.2.1-04",
    "AC-3.9.4.2.2-02",
    "AC-3.9.4.3.1-03",
)
def test_a_transaction_gives_what_is_under_it_to_another_one_and_is_aborted() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(EXACT, transactional=True)
        queue = await program.opened(RECEIVE, EXACT)
        dispenser = await program.create("MSMQTransactionDispenser")
        begin = partial(dispenser.call, "BeginTransaction")
        first = await begin()
        await is_refused("AC-3.9.4.1.1-03", first)
        await is_refused("AC-3.9.4.2.2-02", first)
        blank = await program.create("MSMQTransaction")
        await is_told("AC-3.9.4.3.1-03", blank, Variant())
        true = Variant(VarType.BOOL, 0xFFFF)
        for place, inner in enumerate(ways("AC-3.9.4.3.1-03", first)):
            transaction = await begin()
            pointer = await ways("AC-3.9.4.3.1-03", transaction)[place]()
            assert pointer.vt == VarType.UNKNOWN, inner
            other = await program.create("MSMQTransaction")
            assert await ways("AC-3.9.4.2.1-04", other)[place](pointer) is None
            await program.send("body", "", EXACT, other)
            # Neither way of ending it that is not supported ends it.
            for given in ((true, OMITTED), (OMITTED, true)):
                with pytest.raises(ComError) as refused:
                    await ways("AC-3.9.4.1.3-04", transaction)[place](*given)
                assert refused.value.status == XACT_E_NOTSUPPORTED
            assert await ways("AC-3.9.4.1.3-04", transaction)[place](OMITTED, OMITTED) is None
            with pytest.raises(ComError) as ended:
                await other.call("Commit")
            assert ended.value.status == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
            with pytest.raises(ComError) as aborted:
                await queue.call("Receive", ReceiveTimeout=0)
            assert aborted.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND

    play(scenario)


@pytest.mark.spec("AC-3.8.4.1.1-06", "AC-3.8.4.1.3-04")
def test_what_is_under_a_transaction_is_committed_in_one_way_alone() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(EXACT, transactional=True)
        queue = await program.opened(RECEIVE, EXACT)
        dispenser = await program.create("MSMQTransactionDispenser")
        transaction = await dispenser.call("BeginTransaction")
        await program.send("body", "", EXACT, transaction)
        (inner,) = [get for get in ways("AC-3.9.4.3.1-03", transaction) if get.dispid is None]
        below = Late(program.server, pointed((await inner()).value))
        (told,) = ways("AC-3.8.4.1.3-04", below)
        info = await told()
        assert any(info.uow)
        assert info == XACTTRANSINFO(info.uow), "everything else is zero"
        (commit,) = ways("AC-3.8.4.1.1-06", below)
        # fRetaining, grfTC (2 is XACTTC_SYNC) and grfRM.
        for given in ((1, 2, 0), (0, 0, 0), (0, 1, 0), (0, 2, 1)):
            with pytest.raises(ComError) as refused:
                await commit(*given)
            assert refused.value.status == XACT_E_NOTSUPPORTED, given
        assert await commit(0, 2, 0) is None
        assert await queue.call("Receive", ReceiveTimeout=5000) is not None

    play(scenario)

"""Objects of a node: vtables, references, transactions, reads that wait, callers that vanish."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from struct import unpack_from
from typing import Any

import pytest

from qm.client.errors import ClientError, MqError
from qm.rpc.dcom.automation.dispatch import IDISPATCH, InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import BYREF, VarType
from qm.rpc.dcom.hresults import OR_INVALID_OXID, OR_INVALID_SET, ComError, Hresult
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.members import executed
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IACTIVATION, ICLASSFACTORY, IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.identifiers import IID_ICLASSFACTORY, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import Objref, parse_objref, write_objref
from qm.rpc.dcom.runtime.properties import Wanted, parse_reply, write_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, IREMUNKNOWN2, InterfaceRef
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import AuthLevel, FaultStatus
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    PRIVATE,
    RECEIVE,
    SEND,
    DcomWorld,
    Late,
    Program,
    clsid,
    dcom_world,
    eventually,
    iid,
    opnum,
    play,
    play_in_world,
    pointed,
    slot,
)

INFO4 = object_interfaces()[iid("IMSMQQueueInfo4")]
QUEUE4 = object_interfaces()[iid("IMSMQQueue4")]
MESSAGE4 = object_interfaces()[iid("IMSMQMessage4")]


@pytest.mark.spec(
    "RP-OAUT-2.2.30-01",
    "RP-OAUT-3.1.4.4-05",
    "AC-3.1.4.2-01",
    "RP-DCOM-2.1-01",
    "RP-DCOM-3.1.1.5.3-01",
)
def test_early_bound_programs_call_by_slot() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        server = program.server
        (info,) = await server.create(clsid("MSMQQueueInfo"), iid("IMSMQQueueInfo4"))
        put = opnum("IMSMQQueueInfo4", "PathName", "put")
        assert await server.call(info.ipid, INFO4, put, [PRIVATE]) == [0]
        opened, status = await server.call(
            info.ipid, INFO4, opnum("IMSMQQueueInfo4", "Open"), [SEND, 0]
        )
        assert status == 0
        queue = pointed(opened)
        assert queue.iid == iid("IMSMQQueue4")
        (message,) = await server.create(clsid("MSMQMessage"), iid("IMSMQMessage4"))
        put = opnum("IMSMQMessage4", "Body", "put")
        body = array_of(VarType.UI1, b"x" * 300_000)
        assert await server.call(message.ipid, MESSAGE4, put, [body]) == [0]
        sent = await server.call(
            message.ipid, MESSAGE4, opnum("IMSMQMessage4", "Send"), [opened, OMITTED]
        )
        assert sent == [0]
        late = await program.opened(RECEIVE)
        found = await late.call("Receive", ReceiveTimeout=1000)
        assert await found.get("Body") == b"x" * 300_000
        assert await found.get("BodyLength") == 300_000

    play(scenario)


@pytest.mark.spec("AC-3.1.4.3-01", "AC-3.1.4.3-02")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MqError(ErrorCode.MQ_ERROR_QUEUE_EXISTS), 0xC00E_0005),
        (ComError(0x8004_D00F), 0x8004_D00F),
        (ClientError("broken"), 0x8000_FFFF),
        *((error("wrong"), 0x8007_0057) for error in (ValueError, TypeError, AttributeError)),
        *((error("wrong"), 0x8007_0057) for error in (KeyError, OverflowError)),
    ],
)
def test_whatever_a_member_raises_is_an_error_hresult_alone(error: Exception, status: int) -> None:
    def call() -> str:
        raise error

    done = executed(call)
    assert (done.status, done.result) == (status, None)
    assert (executed(lambda: "x").status, executed(lambda: "x").result) == (0, "x")


@pytest.mark.spec("AC-2.2.2.5-02")
def test_no_interface_puts_is_transactional() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        for name in ("IsTransactional", "IsTransactional2"):
            for by_reference in (False, True):
                with pytest.raises(ComError) as refused:
                    await info.put(name, 1, by_reference=by_reference)
                assert refused.value.status == 0x8002_0003, "no such member"
            assert not await info.get(name)

    play(scenario)
    forms = {
        (one.name, one.kind)
        for coclass in definitions().coclasses
        for interface in coclass.interfaces
        for one in definitions().methods(interface)
        if one.name.startswith("IsTransactional")
    }
    assert forms == {("IsTransactional", "get"), ("IsTransactional2", "get")}


@pytest.mark.spec("AC-3.1-02")
def test_the_forms_of_a_property_are_one_member() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        label = await message.number("Label")
        await message.put(label, "by name")
        assert await message.get(label) == "by name"
        assert await slot(message, "IMSMQMessage4", "Label") == "by name"
        await slot(message, "IMSMQMessage4", "Label", "put", "by slot")
        assert await message.get(label) == "by slot"
        answers = await program.new_queue()
        raw = write_objref(await answers.by(iid("IMSMQQueueInfo4")))
        for name in ("ResponseQueueInfo", "AdminQueueInfo"):
            number = await message.number(name)
            assert await message.get(number) is None
            await message.put(number, answers, by_reference=True)
            found = await message.get(number)
            assert await found.get("PathName") == await answers.get("PathName")
            other = await program.create("MSMQMessage")
            await slot(other, "IMSMQMessage4", name, "putref", raw)
            found = Late(program.server, pointed(await slot(other, "IMSMQMessage4", name)))
            path = await (await found.as_dispatch()).get("PathName")
            assert path == await answers.get("PathName")

    play(scenario)


@pytest.mark.spec("AC-3.1.4.3-01", "AC-3.1.4.3-02")
def test_a_failed_get_has_no_result() -> None:
    async def scenario(program: Program) -> None:
        (info,) = await program.server.create(clsid("MSMQQueueInfo"), INFO4.syntax.uuid)
        get = opnum("IMSMQQueueInfo4", "Label", "get")
        found = await program.server.call(info.ipid, INFO4, get, [])
        assert found == [None, ErrorCode.MQ_ERROR_INVALID_PARAMETER]
        # The same object answers S_OK beside each result, and S_OK alone where there is none.
        put = opnum("IMSMQQueueInfo4", "PathName", "put")
        assert await program.server.call(info.ipid, INFO4, put, [PRIVATE]) == [0]
        create = opnum("IMSMQQueueInfo4", "Create")
        given = [OMITTED, OMITTED]
        assert await program.server.call(info.ipid, INFO4, create, given) == [0]
        assert await program.server.call(info.ipid, INFO4, get, []) == ["", 0]
        (status,) = await program.server.call(info.ipid, INFO4, create, given)
        assert status == ErrorCode.MQ_ERROR_QUEUE_EXISTS
        opening = [SEND, 7]  # no such share mode
        refused = await program.server.call(
            info.ipid, INFO4, opnum("IMSMQQueueInfo4", "Open"), opening
        )
        assert refused == [None, ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE]

    play(scenario)


def test_bodies_keep_their_types() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        when = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
        for value, expected in (
            (Variant(VarType.I2, -5), -5),
            (Variant(VarType.UI1, 200), 200),
            (Variant(VarType.UI4, 4_000_000_000), 4_000_000_000),
            (Variant(VarType.R8, 1.5), 1.5),
            (Variant(VarType.CY, 12_345), Decimal("1.2345")),
            (Variant(VarType.BOOL, 0xFFFF), True),
            (Variant(VarType.BSTR, "Grüße"), "Grüße"),
            (Variant(BYREF | VarType.VARIANT, Variant(VarType.I4, 9)), 9),
            (when, when),
            (b"bytes", b"bytes"),
        ):
            await program.send(value)
            found = await queue.call("Receive", ReceiveTimeout=1000)
            assert await found.get("Body") == expected
        message = await program.create("MSMQMessage")
        for refused in (Variant(), Variant(VarType.I8, 1), Variant(VarType.DISPATCH, None)):
            with pytest.raises(ComError) as invalid:
                await message.put("Body", refused)
            assert invalid.value.status in (Hresult.E_INVALIDARG, Hresult.DISP_E_TYPEMISMATCH)

    play(scenario)


# Transactions ------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.11.4-09")
def test_a_transaction_is_all_or_nothing_and_its_release_aborts_it() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(transactional=True)
        dispenser = await program.create("MSMQTransactionDispenser")
        queue = await program.opened(RECEIVE)

        async def is_empty() -> None:
            with pytest.raises(ComError) as nothing:
                await queue.call("Peek", ReceiveTimeout=0)
            assert nothing.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND

        first = await dispenser.call("BeginTransaction")
        await program.send("one", "", PRIVATE, first)
        await is_empty()
        await first.call("Commit")
        with pytest.raises(ComError) as again:
            await first.call("Commit")
        assert again.value.status == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        second = await dispenser.call("BeginTransaction")
        taken = await queue.call("Receive", second, ReceiveTimeout=1000)
        assert await taken.get("Body") == "one"
        await is_empty()
        await second.release()

        async def is_back() -> bool:
            try:
                found = await queue.call("Peek", ReceiveTimeout=0)
            except ComError:
                return False
            return bool(await found.get("Body") == "one")

        await eventually(is_back)

    play(scenario)


# Waiting -----------------------------------------------------------------------------------


def test_a_release_wakes_a_read_and_closes_the_queue() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        info = await program.queue_info()
        queue = await info.call("Open", RECEIVE, 1)
        waiting = asyncio.ensure_future(queue.call("Receive"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await queue.release()
        with pytest.raises((ComError, Fault)):
            await asyncio.wait_for(waiting, 10)

        async def opens() -> bool:
            """It was opened to the exclusion of others."""
            try:
                await info.call("Open", RECEIVE, 0)
            except ComError:
                return False
            return True

        await eventually(opens)

    play(scenario)


def test_a_read_gets_what_another_program_sends() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            await program.new_queue()
            other = await world.program()
            queue = await program.opened(RECEIVE)
            waiting = asyncio.ensure_future(queue.call("Receive"))
            await asyncio.sleep(0.2)
            # Other calls of the object go on meanwhile.
            assert await queue.get("IsOpen2") is True
            await other.send("late")
            found = await asyncio.wait_for(waiting, 10)
            assert await found.get("Body") == "late"
            program.close()
            other.close()

    run(scenario())


def test_a_program_that_vanishes_leaves_its_messages() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue()
        lost = await world.program()
        queue = await lost.opened(RECEIVE)
        waiting = asyncio.ensure_future(queue.call("Receive"))
        await asyncio.sleep(0.3)
        lost.close()
        with pytest.raises(Exception, match="closed"):
            await waiting
        await asyncio.sleep(0.2)
        await program.send("for the other one")
        mine = await program.opened(RECEIVE)
        found = await mine.call("Receive", ReceiveTimeout=5000)
        assert await found.get("Body") == "for the other one"

    play_in_world(scenario)


# References --------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-1.7-01",
    "AC-1.7-02",
    "RP-DCOM-3.1.1.5.6.1.1-02",
    "RP-DCOM-3.1.1.5.6.1.1-04",
    "RP-DCOM-3.1.1.5.6.1.1-05",
)
def test_other_interfaces_of_an_object_and_foreign_ones() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (info,) = await server.create(clsid("MSMQQueueInfo"), INFO4.syntax.uuid)
        names = ("IMSMQQueueInfo", "IMSMQQueueInfo2", "IMSMQQueueInfo3", "IMSMQQueue")
        found = await server.query(info.ipid, *map(iid, names))
        assert found[3] == Hresult.E_NOINTERFACE
        refs = [one for one in found if isinstance(one, Objref)]
        assert len({one.ipid for one in refs}) == 3
        again = await server.query(info.ipid, iid("IMSMQQueueInfo2"))
        assert isinstance(again[0], Objref)
        assert again[0].ipid == refs[1].ipid
        managed = bytes.fromhex("9ec1fcc370a9d2118b5a00a0c9b7c9c4")
        _, status = await server.call(
            server.ipid_rem_unknown, IREMUNKNOWN, 3, (info.ipid, 1, 1, [managed])
        )
        assert status == Hresult.E_NOINTERFACE
        # The first revision's pointer takes calls of the first revision alone.
        old = object_interfaces()[iid("IMSMQQueueInfo")]
        put = opnum("IMSMQQueueInfo", "PathName", "put")
        assert await server.call(refs[0].ipid, old, put, [PRIVATE]) == [0]
        with pytest.raises(Fault) as other:
            await server.call(refs[0].ipid, INFO4, put, [PRIVATE])
        assert other.value.status == Hresult.RPC_E_DISCONNECTED
        # So does that of each other one, however it was asked for.
        revisions = [f"IMSMQQueueInfo{number}" for number in ("", 2, 3, 4)]
        for name in revisions:
            (asked,) = await server.query(info.ipid, iid(name))
            for ref in (asked, *await server.create(clsid("MSMQQueueInfo"), iid(name))):
                assert isinstance(ref, Objref)
                assert ref.iid == iid(name)
                for one in revisions:
                    served, slot = object_interfaces()[iid(one)], opnum(one, "PathName", "put")
                    if one == name:
                        assert await server.call(ref.ipid, served, slot, [PRIVATE]) == [0]
                        continue
                    with pytest.raises(Fault) as other:
                        await server.call(ref.ipid, served, slot, [PRIVATE])
                    assert other.value.status == Hresult.RPC_E_DISCONNECTED

    play(scenario)


@pytest.mark.spec(
    "RP-DCOM-3.1.1.5.4-01",
    "RP-DCOM-3.1.1.5.6-01",
    "RP-DCOM-3.1.1.5.6.1.1-01",
    "RP-DCOM-3.1.1.5.6.1.2-01",
    "RP-DCOM-3.1.1.5.6.1.3-03",
)
def test_calls_that_reach_no_object_are_faults() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (info,) = await server.create(clsid("MSMQQueueInfo"), INFO4.syntax.uuid)
        for ipid, number, status in (
            (bytes(16), 12, Hresult.RPC_E_DISCONNECTED),
            (b"\1" * 16, 12, Hresult.RPC_E_DISCONNECTED),
        ):
            with pytest.raises(Fault) as refused:
                await server.call(ipid, INFO4, number, [])
            assert refused.value.status == status
        given = (b"\1" * 16, 1, 1, [IID_IUNKNOWN])
        _, status = await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 3, given)
        assert status == Hresult.RPC_E_INVALID_OBJECT
        with pytest.raises(Fault):
            await server.call(info.ipid, IREMUNKNOWN, 3, given)
        refs = [InterfaceRef(b"\1" * 16, 5, 0), InterfaceRef(info.ipid, 1, 0)]
        found = await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 4, (2, refs))
        assert found == [[Hresult.CO_E_OBJNOTREG, 0], Hresult.CO_E_OBJNOTREG]
        # Far too many at once are as good as all.
        refs = [InterfaceRef(b"\1" * 16, 5, 0), InterfaceRef(info.ipid, 0x7FFF_FFFF, 9)]
        assert await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 5, (2, refs)) == [0]
        with pytest.raises(Fault) as gone:
            await server.call(info.ipid, INFO4, 12, [])
        assert gone.value.status == Hresult.RPC_E_DISCONNECTED

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-04", "AC-3.1.4.1-01", "AC-5.1-01")
def test_an_object_is_its_creator_s_alone() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            alice, bob = await world.program(), await world.program("bob")
            await alice.new_queue()
            queue = await alice.opened(RECEIVE)
            own = await bob.create("MSMQMessage")
            with pytest.raises(Fault) as denied:
                await Late(bob.server, queue.ref).get("IsOpen")
            assert denied.value.status == Hresult.E_ACCESSDENIED
            with pytest.raises(ComError) as foreign:
                await own.call("Send", queue)
            assert foreign.value.status == Hresult.DISP_E_TYPEMISMATCH
            # Bob is no administrator: the queue's access list lets him not read.
            info = await bob.queue_info()
            with pytest.raises(ComError) as refused:
                await info.call("Open", RECEIVE, 0)
            assert refused.value.status == ErrorCode.MQ_ERROR_ACCESS_DENIED
            alice.close()
            bob.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.1.5.3-02")
def test_pointers_to_other_servers_are_refused() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        elsewhere = write_objref(Objref(IID_IUNKNOWN, 1, 2, bytes(16), 5))
        for raw in (elsewhere, b"MEOW", b""):
            with pytest.raises(ComError):
                await message.call("Send", Variant(VarType.DISPATCH, raw))
        with pytest.raises(ComError) as nothing:
            await message.call("Send", Variant(VarType.DISPATCH, None))
        assert nothing.value.status == Hresult.E_INVALIDARG

    play(scenario)


# Activation and pings ------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3.2-01")
def test_class_factories_make_objects_too() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (factory,) = await server.class_object(clsid("MSMQMessage"), IID_ICLASSFACTORY)
        pointer, status = await server.call(factory.ipid, ICLASSFACTORY, 3, [iid("IMSMQMessage2")])
        assert status == 0
        made = parse_objref(pointer)
        assert isinstance(made, Objref)
        assert made.iid == iid("IMSMQMessage2")
        assert await server.call(factory.ipid, ICLASSFACTORY, 4, [1]) == [0]
        none = await server.call(factory.ipid, ICLASSFACTORY, 3, [iid("IMSMQQueue")])
        assert none == [None, Hresult.E_NOINTERFACE]

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3.1-01")
def test_old_clients_activate_by_plain_parameters() -> None:
    async def scenario(program: Program) -> None:
        client = await program.server.resolver()
        await client.add(IACTIVATION)
        iids = [iid("IMSMQQueue4"), iid("IMSMQMessage4")]

        async def activate(wanted: bytes, mode: int = 0) -> list[Any]:
            given = [program.server.this(), wanted, None, None, 2, mode, 2, iids, 1, [7]]
            found: list[Any] = await client.call(IACTIVATION, 0, given)
            return found

        found = await activate(clsid("MSMQMessage"))
        assert found[-4] == Hresult.S_OK
        assert found[-2] == [Hresult.E_NOINTERFACE, 0]
        assert found[-3][0] is None
        assert found[2].addresses
        assert (await activate(bytes(16)))[-4] == Hresult.REGDB_E_CLASSNOTREG

    play(scenario)


@pytest.mark.spec("AC-1.9-64")
def test_every_class_is_made_with_each_of_its_interfaces() -> None:
    async def scenario(program: Program) -> None:
        for coclass in definitions().coclasses:
            wanted = [iid(name) for name in coclass.interfaces]
            refs = await program.server.create(coclass.guid, *wanted)
            assert [one.iid for one in refs] == wanted
            assert len({one.oid for one in refs}) == 1
            await program.server.release(*refs)
        outgoing = await program.create("MSMQOutgoingQueueManagement")
        with pytest.raises(ComError) as uninitialized:
            await outgoing.get("State")
        assert uninitialized.value.status == ErrorCode.MQ_ERROR_UNINITIALIZED_OBJECT

    play(scenario)


@pytest.mark.spec("RP-DCOM-2.2.18.4-01", "RP-DCOM-2.2.19.3-02")
def test_references_say_where_their_objects_are() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            node = await world.harness.leader()
            program = await world.program()
            message = await program.create("MSMQMessage")
            assert message.ref.resolver.addresses == (node.host,)
            assert message.ref.resolver.services == (9, 10)
            # As bytes: a way to log on is its number, 0xFFFF and a principal name, an empty one
            # here. Kerberos is not built, so that 16 is not among them.
            await program.new_queue()
            (info,) = await program.server.create(clsid("MSMQQueueInfo"), INFO4.syntax.uuid)
            put = opnum("IMSMQQueueInfo4", "PathName", "put")
            assert await program.server.call(info.ipid, INFO4, put, [PRIVATE]) == [0]
            raw, status = await program.server.call(
                info.ipid, INFO4, opnum("IMSMQQueueInfo4", "Open"), [SEND, 0]
            )
            assert status == 0
            entries, security = unpack_from("<HH", raw, 64)  # behind OBJREF and STDOBJREF
            units = unpack_from(f"<{entries}H", raw, 68)
            assert len(raw) == 68 + 2 * entries
            assert units[security:] == (9, 0xFFFF, 0, 10, 0xFFFF, 0, 0)
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-2.2.18-02", "RP-DCOM-3.1.1.5.7.1.1-01", "RP-DCOM-3.1.1.5.6.1.1-03")
def test_references_that_are_none_and_queries_of_the_second_kind() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        (message,) = await server.create(clsid("MSMQMessage"), MESSAGE4.syntax.uuid)
        send = opnum("IMSMQMessage4", "Send")
        for raw in (b"MEOX" + bytes(60), b"MEOW\0\0\0" + bytes(60), b"MEOW"):
            found = await server.call(message.ipid, MESSAGE4, send, [raw, OMITTED])
            assert found == [Hresult.RPC_E_INVALID_OBJREF]
        client = server._objects
        assert client is not None
        await client.add(IREMUNKNOWN2)
        wanted = [iid("IMSMQMessage2"), iid("IMSMQQueue")]
        given = [server.this(), message.ipid, 2, wanted]
        _, statuses, pointers, overall = await client.call(
            IREMUNKNOWN2, 6, given, object_uuid=server.ipid_rem_unknown
        )
        assert statuses == [0, Hresult.E_NOINTERFACE]
        assert overall == Hresult.S_FALSE
        assert pointers[1] is None
        assert parse_objref(pointers[0]).iid == wanted[0]

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3.3-01", "RP-DCOM-2.2.22.2.8-02")
def test_nothing_is_aggregated_and_the_hint_is_integrity() -> None:
    async def scenario(program: Program) -> None:
        client = await program.server.resolver()
        wanted = write_wanted(Wanted(clsid("MSMQMessage"), (IID_IUNKNOWN,)))
        given = [program.server.this(), b"anything", wanted]
        _, blob, status = await client.call(IREMOTESCMACTIVATOR, 4, given)
        assert status == 0
        assert parse_reply(blob).hint == AuthLevel.INTEGRITY

    play(scenario)


def test_what_cannot_be_made_is_said() -> None:
    async def scenario(program: Program) -> None:
        with pytest.raises(ComError) as refused:
            await program.server.create(bytes(16), IID_IUNKNOWN)
        assert refused.value.status == Hresult.REGDB_E_CLASSNOTREG
        with pytest.raises(ComError) as none:
            await program.server.create(clsid("MSMQMessage"), iid("IMSMQQueue"))
        assert none.value.status == Hresult.E_NOINTERFACE

    play(scenario)


@pytest.mark.spec(
    "RP-DCOM-3.1.2.5.1.1-01",
    "RP-DCOM-3.1.2.5.1.1-02",
    "RP-DCOM-3.1.2.5.1.4-01",
    "RP-DCOM-3.1.2.5.1.5-01",
    "RP-DCOM-3.1.2.5.1.6-01",
)
def test_the_resolver_tells_where_objects_are_and_takes_pings() -> None:
    async def scenario() -> None:
        async with dcom_world(names=("queues.example.test",)) as world:
            program = await world.program()
            message = await program.create("MSMQMessage")
            client = await program.server.resolver()
            version, bindings, _, status = await client.call(IOBJECTEXPORTER, 5, [])
            assert (version, status) == ((5, 7), 0)
            assert bindings.addresses[0] == "queues.example.test"
            assert program.server.ipid_rem_unknown
            *_, status = await client.call(IOBJECTEXPORTER, 4, [message.ref.oxid, 1, [7]])
            assert status == 0
            *_, status = await client.call(IOBJECTEXPORTER, 0, [4711, 1, [7]])
            assert status == OR_INVALID_OXID
            number, _, status = await client.call(
                IOBJECTEXPORTER, 2, [0, 1, 1, 0, [message.ref.oid], None]
            )
            assert status == 0
            assert await client.call(IOBJECTEXPORTER, 1, [number]) == [0]
            assert await client.call(IOBJECTEXPORTER, 1, [number + 1]) == [OR_INVALID_SET]
            with pytest.raises(Fault):
                await client.call(IOBJECTEXPORTER, 2, [0, 1, 2, 0, [message.ref.oid], None])
            program.close()

            anonymous = await world.program(user="")
            client = await anonymous.server.resolver()
            assert (await client.call(IOBJECTEXPORTER, 3, [])) == [0]
            with pytest.raises(Fault) as refused:
                await client.call(IOBJECTEXPORTER, 1, [number])
            assert refused.value.status == FaultStatus.ACCESS_DENIED
            anonymous.close()

    run(scenario())


# Invoke ------------------------------------------------------------------------------------


def test_exceptions_are_told_unless_the_client_wants_none() -> None:
    async def scenario(program: Program) -> None:
        info = await program.create("MSMQQueueInfo")
        flags = InvokeFlag.PROPERTYGET
        _, told, _, _, status = await info.invoke("Label", flags, arguments_of([]))
        assert status == Hresult.DISP_E_EXCEPTION
        assert told.scode == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        assert told.source == "MSMQ"
        flags |= InvokeFlag.NO_EXCEPTION
        *_, status = await info.invoke("Label", flags, arguments_of([]))
        assert status == ErrorCode.MQ_ERROR_INVALID_PARAMETER

    play(scenario)


@pytest.mark.spec("RP-OAUT-3.1.4.4-02")
def test_default_members_and_puts_by_reference() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        message = await program.create("MSMQMessage")
        await message.put(0, "the default member is the body")
        assert await message.get(0) == "the default member is the body"
        info = await program.queue_info()
        await message.put("ResponseQueueInfo", info, by_reference=True)
        found = await message.get("ResponseQueueInfo")
        assert (await found.get("PathName")).casefold().endswith("orders")

    play(scenario)


def test_arguments_by_reference_come_back() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await program.send("by reference")
        queue = await program.opened(RECEIVE)
        number = await queue.number("Receive")
        refs = [Variant(BYREF | VarType.I4, 1000), Variant(BYREF | VarType.I4, 0)]
        blank = [Variant(), OMITTED, OMITTED, Variant()]
        given = [
            number,
            NULL,
            0x409,
            InvokeFlag.METHOD,
            arguments_of(list(reversed(blank))),
            2,
            [0, 3],
            refs,
        ]
        result, _, _, echoed, status = await queue.server.call(queue.ref.ipid, IDISPATCH, 6, given)
        assert status == 0
        assert echoed == refs
        assert await queue.python(result).get("Body") == "by reference"

    play(scenario)

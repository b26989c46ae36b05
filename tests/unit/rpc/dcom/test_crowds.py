"""Many programs and many objects at once, and programs that do as they like."""

from __future__ import annotations

import asyncio

import pytest

from qm.rpc.client import RpcFailed
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import UNPINGED_MAX_S
from qm.rpc.dcom.runtime.identifiers import IID_IUNKNOWN
from qm.rpc.dcom.runtime.orpc import OrpcThis
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN
from qm.rpc.interface import Fault
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import User
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    DENY_RECEIVE,
    PEEK,
    RECEIVE,
    Late,
    Program,
    clsid,
    dcom_world,
    iid,
)
from tests.unit.rpc.users import write_users

PROGRAMS = 30
OBJECTS = 500


def test_many_programs_work_at_once_and_each_gets_its_own() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            first = await world.program()
            await (await first.queue_info()).call("Create")
            programs = [await world.program() for _ in range(PROGRAMS)]

            async def work(program: Program, number: int) -> str:
                await program.send(f"from {number}")
                queue = await program.opened(RECEIVE)
                found = await queue.call("Receive", ReceiveTimeout=10_000)
                return str(await found.get("Body"))

            seen = await asyncio.gather(*map(work, programs, range(PROGRAMS)))
            assert sorted(seen) == sorted(f"from {k}" for k in range(PROGRAMS))
            for each in (first, *programs):
                each.close()

    run(scenario())


def test_many_objects_are_held_and_released() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            refs = []
            for _ in range(OBJECTS):
                refs += await program.server.create(clsid("MSMQMessage"), iid("IMSMQMessage4"))
            assert len({one.oid for one in refs}) == OBJECTS
            await program.server.release(*refs)
            _, status = await program.server.call(
                program.server.ipid_rem_unknown,
                IREMUNKNOWN,
                3,
                (refs[0].ipid, 1, 1, [IID_IUNKNOWN]),
            )
            assert status == Hresult.RPC_E_INVALID_OBJECT
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-1.7-02", "RP-DCOM-2.2.13.3-02")
def test_other_versions_of_com_are_refused_without_harm() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            message = await program.create("MSMQMessage")
            good = program.server.this
            for this, status in (
                (OrpcThis(bytes(16), 4, 7), Hresult.RPC_E_VERSION_MISMATCH),
                (OrpcThis(bytes(16), 5, 8), Hresult.RPC_E_VERSION_MISMATCH),
                (OrpcThis(bytes(16), 6, 0), Hresult.RPC_E_VERSION_MISMATCH),
                (OrpcThis(bytes(16), flags=2), Hresult.RPC_E_INVALID_HEADER),
            ):
                program.server.this = lambda this=this: this  # type: ignore[method-assign,misc]
                with pytest.raises(Fault) as refused:
                    await message.get("Label")
                assert refused.value.status == status
                with pytest.raises(Fault) as refused:
                    await program.server.query(message.ref.ipid, IID_IUNKNOWN)
                assert refused.value.status == status
                if status == Hresult.RPC_E_VERSION_MISMATCH:
                    with pytest.raises(Fault) as refused:
                        await program.create("MSMQMessage")
                    assert refused.value.status == status
            for minor in range(1, 8):
                older = OrpcThis(bytes(16), 5, minor)
                program.server.this = lambda this=older: this  # type: ignore[method-assign,misc]
                assert await message.get("Label") == ""
            program.server.this = good  # type: ignore[method-assign]
            assert await message.get("Label") == ""
            program.close()

    run(scenario())


def test_a_node_that_stops_ends_the_calls_that_wait() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            await (await program.queue_info()).call("Create")
            queue = await program.opened(RECEIVE)
            waiting = asyncio.ensure_future(queue.call("Receive"))
            await asyncio.sleep(0.2)
            node = await world.harness.leader()
            await node.service.windows.stop()
            with pytest.raises((ComError, Fault, RpcFailed)):
                await asyncio.wait_for(waiting, 10)
            program.close()

    run(scenario())


def test_a_node_that_stops_keeps_what_a_program_received_last() -> None:
    """Whether its answer came is not known: programs of other nodes must not lose it."""

    async def scenario() -> None:
        async with dcom_world() as world, world.client(await world.leader()) as client:
            program = await world.program()
            await (await program.queue_info()).call("Create")
            await program.send("taken")
            queue = await program.opened(RECEIVE)
            assert await (await queue.call("Receive", ReceiveTimeout=1000)).get("Body") == "taken"
            await (await world.harness.leader()).service.windows.stop()
            dead = await client.open(r"DIRECT=OS:QUORATE\SYSTEM$;DEADLETTER")
            reply = await client.peek(dead, timeout_ms=10_000)
            assert len(reply.messages.properties) == 1
            program.close()

    run(scenario())


async def opened_alone(program: Program) -> Late:
    """Open the queue for nobody else, once whoever had it has closed it."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await program.opened(RECEIVE, share=DENY_RECEIVE)
            except ComError as error:
                assert error.status == ErrorCode.MQ_ERROR_SHARING_VIOLATION
            await asyncio.sleep(0.02)


@pytest.mark.spec("RP-DCOM-3.1.1.6.2-02")
def test_what_a_lost_program_took_last_is_a_dead_letter_and_nothing_else_is() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            node = await world.harness.leader()
            program = await world.program()
            await (await program.queue_info()).call("Create")
            for body in ("released", "lost"):
                await program.send(body)
            queue = await program.opened(RECEIVE)
            assert (
                await (await queue.call("Receive", ReceiveTimeout=1000)).get("Body") == "released"
            )
            await queue.release()
            queue = await opened_alone(program)  # a queue is closed behind its release
            assert await (await queue.call("Receive", ReceiveTimeout=1000)).get("Body") == "lost"
            other = await world.program()
            with pytest.raises(ComError) as shared:
                await other.opened(RECEIVE)
            assert shared.value.status == ErrorCode.MQ_ERROR_SHARING_VIOLATION
            other.close()
            program.close()
            dcom = node.service.windows._dcom
            assert dcom is not None
            dcom._exporter.sweep(asyncio.get_running_loop().time() + 2 * UNPINGED_MAX_S)
            assert len(dcom._exporter) == 0
            other = await world.program()
            await opened_alone(other)
            info = await other.create("MSMQQueueInfo")
            await info.put("FormatName", r"DIRECT=OS:QUORATE\SYSTEM$;DEADLETTER")
            dead = await info.call("Open", PEEK, 0)
            found = await dead.call("PeekCurrent", ReceiveTimeout=10_000)
            assert await found.get("Body") == "lost"
            with pytest.raises(ComError) as nothing:
                await dead.call("PeekNext", ReceiveTimeout=0)
            assert nothing.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            other.close()

    run(scenario())


def test_a_logon_acts_with_the_groups_that_it_brought() -> None:
    """An account that left a group kept its rights for as long as it held an object."""

    async def scenario() -> None:
        async with dcom_world() as world:
            earlier = await world.program()
            kept = await earlier.create("MSMQApplication")
            await kept.call("Connect")
            node = await world.harness.leader()
            accounts = node.config.rpc.users_file
            assert accounts is not None
            write_users(accounts, [User("alice", nt_hash("pw").hex())])
            later = await world.program()
            made = await later.create("MSMQApplication")
            with pytest.raises(ComError) as refused:
                await made.call("Connect")
            assert refused.value.status == ErrorCode.MQ_ERROR_ACCESS_DENIED
            await kept.call("Connect")
            earlier.close()
            later.close()

    run(scenario())

"""Three nodes: a node that dies takes its objects with it, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from qm.rpc.client import CALL_TIMEOUT_S, RpcFailed
from qm.rpc.dcom.automation.dispatch import IDISPATCH
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac import callers
from qm.rpc.dcom.runtime.activation import ICLASSFACTORY
from qm.rpc.dcom.runtime.exporter import node_of
from qm.rpc.dcom.runtime.identifiers import IID_ICLASSFACTORY, IID_IDISPATCH
from qm.rpc.interface import Fault
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import RECEIVE, SEND, clsid, dcom_world, eventually


def test_a_program_goes_on_with_new_objects_at_another_node() -> None:
    async def scenario() -> None:
        async with dcom_world(3) as world:
            await world.harness.leader()
            here, there = await world.harness.followers()
            program = await world.program(node=here)
            await (await program.queue_info()).call("Create")
            for body in ("one", "two", "three"):
                await program.send(body)
            queue = await program.opened(RECEIVE)
            seen = [await (await queue.call("Receive", ReceiveTimeout=5000)).get("Body")]
            # Objects of one node are unknown at the other; their numbers say whose they are.
            other = await world.program(node=there)
            foreign = await other.create("MSMQMessage")
            assert node_of(foreign.ref.oxid) != node_of(queue.ref.oxid)
            with pytest.raises(Fault) as unknown:
                await other.server.call(queue.ref.ipid, IDISPATCH, 3, [])
            assert unknown.value.status == Hresult.RPC_E_DISCONNECTED
            await world.harness.kill(here.name)
            with pytest.raises((RpcFailed, Fault)):
                await queue.call("Receive", ReceiveTimeout=5000)
            again = await other.opened(RECEIVE)
            for _ in range(2):
                found = await again.call("Receive", ReceiveTimeout=5000)
                seen.append(await found.get("Body"))
            assert seen == ["one", "two", "three"]
            program.close()
            other.close()

    run(scenario())


def test_a_leader_that_dies_is_a_late_answer() -> None:
    async def scenario() -> None:
        async with dcom_world(3) as world:
            leader = await world.harness.leader()
            here, there = await world.harness.followers()
            program, sender = await world.program(node=here), await world.program(node=there)
            await (await program.queue_info()).call("Create")
            queue = await program.opened(RECEIVE)
            waiting = asyncio.ensure_future(queue.call("Receive", ReceiveTimeout=20_000))
            await asyncio.sleep(0.2)
            await world.harness.kill(leader.name)
            await sender.send("after the old leader")
            found = await waiting
            assert await found.get("Body") == "after the old leader"
            program.close()
            sender.close()

    run(scenario())


def test_without_a_majority_nothing_is_made_and_the_program_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "ACTIVATION_WAIT_MAX_S", 1.0)

    async def scenario() -> None:
        async with dcom_world(3) as world:
            leader = await world.harness.leader()
            here, other = await world.harness.followers()
            for node in (leader, other):
                await world.harness.kill(node.name)
            program = await world.program(node=here)
            (factory,) = await program.server.class_object(clsid("MSMQMessage"), IID_ICLASSFACTORY)

            async def by_factory() -> Any:
                given = [IID_IDISPATCH]
                return await program.server.call(factory.ipid, ICLASSFACTORY, 3, given)

            begun = asyncio.get_running_loop().time()
            for _ in range(2):
                with pytest.raises(ComError) as refused:
                    await program.create("MSMQQueueInfo")
                assert refused.value.status == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
            assert await by_factory() == [None, ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE]
            assert asyncio.get_running_loop().time() - begun < CALL_TIMEOUT_S / 2
            for node in (leader, other):
                await world.harness.restart(node.name)
            await world.harness.leader()

            async def is_made() -> bool:
                with contextlib.suppress(ComError):
                    await (await program.queue_info()).call("Create")
                    return True
                return False

            await eventually(is_made)
            assert (await by_factory())[-1] == Hresult.S_OK
            program.close()

    run(scenario())


def test_before_there_is_a_queue_manager_a_program_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "ACTIVATION_WAIT_MAX_S", 1.0)

    async def scenario() -> None:
        async with dcom_world(1, is_provisioned=False) as world:
            program = await world.program()
            with pytest.raises(ComError) as refused:
                await program.create("MSMQQueueInfo")
            assert refused.value.status == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
            program.close()

    run(scenario())


PROGRAMS = 8
MESSAGES = 60


def test_a_node_that_dies_under_many_programs_doubles_nothing_that_they_saw() -> None:
    """What a lost call had taken is not seen again: it waits for the end of its session's lease."""

    async def scenario() -> None:
        async with dcom_world(3) as world:
            await world.harness.leader()
            here, there = await world.harness.followers()
            sender = await world.program(node=there)
            await (await sender.queue_info()).call("Create")
            target, message = await sender.opened(SEND), await sender.create("MSMQMessage")
            for number in range(MESSAGES):
                await message.put("Body", number)
                await message.call("Send", target)
            seen: list[int] = []
            is_over = asyncio.Event()

            async def work() -> None:
                program = await world.program(node=here)
                queue = await program.opened(RECEIVE)
                while not is_over.is_set():
                    try:
                        found = await queue.call("Receive", ReceiveTimeout=5000)
                        seen.append(await found.get("Body"))
                    except (RpcFailed, Fault, ComError):
                        break
                    if len(seen) == MESSAGES // 3:
                        is_over.set()
                        await world.harness.kill(here.name)
                program.close()

            await asyncio.gather(*(work() for _ in range(PROGRAMS)))
            assert is_over.is_set()
            queue = await sender.opened(RECEIVE)
            with contextlib.suppress(ComError):
                while True:
                    found = await queue.call("Receive", ReceiveTimeout=500)
                    seen.append(await found.get("Body"))
            assert len(seen) == len(set(seen))
            assert len(seen) >= MESSAGES - PROGRAMS
            sender.close()

    run(scenario())

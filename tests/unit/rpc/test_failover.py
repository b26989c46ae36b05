"""Three nodes and remote readers: a leader that dies costs time, a reader's node its handles."""

import asyncio

import pytest

from qm.pb import control_pb2
from qm.rpc.client import RpcFailed
from qm.rpc.interface import Fault
from tests.cluster.harness import run, until
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    ORDERS,
    PEEK_CURRENT,
    RemoteReader,
    body,
    rpc_world,
    with_orders,
)


@pytest.mark.spec("RR-OUR-1-02", "RR-OUR-1-03", "RR-OUR-1-08", "RR-OUR-1-09", "RR-3.1.4.7-24")
def test_a_leader_that_dies_is_a_late_answer() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client((await made.followers())[1]) as client:
                await with_orders(client, b"one")
                reader = await made.reader(one)
                handle = await reader.open()
                lent = await reader.start(handle, request=1)
                assert body(lent) == b"one"
                waiting = asyncio.ensure_future(
                    reader.start(handle, timeout_ms=INFINITE, request=2)
                )
                await until(lambda: one.service.api.data.waits._count == 1)
                stranger = await made.reader(other)
                with pytest.raises(Fault) as unknown:
                    await stranger.start(handle)
                assert unknown.value.status == 0x1C00001A
                await made.harness.kill(leader.name)
                assert await reader.end(handle, ACK, request=1) == 0
                await client.send(ORDERS, b"two")
                assert body(await waiting) == b"two"
                assert await reader.end(handle, ACK, request=2) == 0
                assert (await reader.start(handle)).status == 0xC00E001B

    run(scenario())


@pytest.mark.spec("RR-OUR-1-11", "RR-3.1.4.2-11")
def test_a_node_that_stops_returns_what_it_lent() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            await made.harness.leader()
            one, other = await made.harness.followers()
            api = next(each for each in await made.followers() if each.name == other.name)
            async with made.client(api) as client:
                await with_orders(client, b"one")
                reader = await made.reader(one)
                handle = await reader.open(share=1)
                lent = await reader.start(handle, request=1)
                elsewhere = await made.reader(other)
                with pytest.raises(Fault) as shared:
                    await elsewhere.open()
                assert shared.value.status == 0xC00E0009
                waiting = asyncio.ensure_future(
                    reader.start(handle, timeout_ms=INFINITE, request=2)
                )
                await until(lambda: one.service.api.data.waits._count == 1)
                await one.stop()
                assert (await waiting).status == 0xC00E0008
                with pytest.raises((RpcFailed, Fault)):
                    await reader.end(handle, ACK, request=1)
                again = await elsewhere.open()
                found = await elsewhere.start(again, PEEK_CURRENT)
                assert found.sequence == lent.sequence

    run(scenario())


@pytest.mark.spec("RR-3.1.4.2-16")
def test_nobody_reads_only_what_its_list_gives_to_nobody() -> None:
    async def scenario() -> None:
        async with rpc_world(anonymous_receive=True) as made:
            leader = await made.leader()
            async with made.client(leader) as client:
                await with_orders(client, b"one")
                nobody: RemoteReader = await made.reader(user="")
                handle = await nobody.open()  # its list lets everyone
                assert await nobody.receive(handle) == b"one"
                await nobody.close(handle)
                acl = [control_pb2.Ace(principal="alice", rights=["receive_message"])]
                name = control_pb2.QueueName(name=r".\private$\orders")
                await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))
                with pytest.raises(Fault) as denied:
                    await nobody.open()
                assert denied.value.status == 0xC00E0025

    run(scenario())

"""Remote readers whose connection outlives an outage: nothing of it stays for weeks."""

import asyncio

import pytest

from qm.api.propose import proposer
from qm.pb import control_pb2, control_pb2_grpc
from qm.rpc.remote_read import interface as mqrr
from tests.cluster.harness import run
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    ACK,
    NACK,
    RemoteReader,
    RpcWorld,
    body,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world

UNAVAILABLE, STALE, TIMEOUT = 0xC00E000B, 0xC00E0056, 0xC00E001B


async def close_sessions(client: Client) -> None:
    """Close the sessions of remote readers, as an operator may."""
    control = control_pb2_grpc.ClientControlStub(client.channel)  # type: ignore[no-untyped-call]
    listed = await control.ListClients(control_pb2.ListClientsRequest())
    for one in listed.clients:
        if one.client_id.startswith("rpc-") and one.is_open:
            await control.CloseClient(control_pb2.CloseClientRequest(client_id=one.client_id))


def test_who_opens_anew_goes_on_after_the_end_of_its_session() -> None:
    """A lease ends it in the same way, where a node was cut off or suspended."""

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        assert await reader.receive(handle) == b"one"
        await close_sessions(client)
        assert (await reader.start(handle)).status == STALE
        again = await asyncio.gather(*(reader.open() for _ in range(2)))
        assert await reader.receive(again[0]) == b"two"
        for one in (handle, *again):
            assert await reader.close(one) == 0

    in_world(scenario)


def test_a_read_ends_as_it_was_asked_to_once_there_is_a_majority_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proposer, "REPEAT_FOR_S", 1.0)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"accepted", b"refused", b"closed")
            reader = await made.reader(one)
            handle, closing = await reader.open(), await reader.open()
            for number in (1, 2):
                assert (await reader.start(handle, request=number)).status == 0
            assert (await reader.start(closing, request=1)).status == 0
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            answers = await asyncio.gather(
                reader.call(9, mqrr.EndIn(handle, ACK, 1)),
                reader.call(9, mqrr.EndIn(handle, NACK, 2)),
                reader.call(3, mqrr.Handle(closing)),
            )
            assert [answer.status for answer in answers] == [UNAVAILABLE] * 3
            for node in (leader, other):
                await made.harness.restart(node.name)
            await made.harness.leader()
            assert {await taken(reader, handle) for _ in range(2)} == {b"refused", b"closed"}
            assert (await reader.start(handle)).status == TIMEOUT

    run(scenario())


async def taken(reader: RemoteReader, handle: bytes) -> bytes:
    """Receive a message, as soon as one is there."""
    found = await reader.start(handle, timeout_ms=20_000)
    assert found.status == 0, hex(found.status)
    assert await reader.end(handle) == 0
    return body(found)

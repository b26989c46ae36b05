"""Remote readers whose connection outlives an outage: nothing of it stays for weeks."""

import asyncio

import pytest

from qm.api.propose import proposer
from qm.node.replica import replicated_store
from qm.pb import control_pb2, control_pb2_grpc
from qm.rpc.client import RpcFailed
from qm.rpc.remote_read import interface as mqrr
from tests.cluster.harness import run, until
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    NACK,
    PEEK_CURRENT,
    RemoteReader,
    RpcWorld,
    body,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world

UNAVAILABLE, STALE = 0xC00E000B, 0xC00E0056
TIMEOUT, CANCELLED = 0xC00E001B, 0xC00E0008
PEEK = 0x20


async def close_sessions(client: Client) -> None:
    """Close the sessions of remote readers, as an operator may."""
    control = control_pb2_grpc.ClientControlStub(client.channel)
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


@pytest.mark.spec("RR-OUR-1-06", "RR-3.1.3-01")
def test_a_peek_that_waits_goes_on_when_there_is_a_majority_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As receives do: its own time is longer than a node waits for a leader in one try."""
    monkeypatch.setattr(replicated_store, "PROPOSE_WAIT_MS", 500)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
            reader = await made.reader(one)
            handle = await reader.open(access=PEEK)
            cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            waiting = [
                asyncio.ensure_future(reader.start(handle, PEEK_CURRENT, **more))
                for more in (
                    {"timeout_ms": INFINITE, "request": 1},
                    {"timeout_ms": 60_000, "request": 2, "cursor": cursor},
                )
            ]
            # Those that do not wait, or not so long, are answered in turn meanwhile.
            for timeout_ms in (0, 600, 0):
                short = await reader.start(handle, PEEK_CURRENT, timeout_ms=timeout_ms, request=3)
                assert (short.status, short.sections) == (UNAVAILABLE, None)
            assert not any(each.done() for each in waiting)
            for node in (leader, other):
                await made.harness.restart(node.name)
            for found in await asyncio.gather(*waiting):
                assert (found.status, body(found)) == (0, b"one")

    run(scenario())


def test_a_peek_can_be_cancelled_while_there_is_no_majority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client cancels it, or is gone: else it would wait, with its handles, for ever."""
    monkeypatch.setattr(replicated_store, "PROPOSE_WAIT_MS", 60_000)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client)
            reader, gone = await made.reader(one), await made.reader(one)
            handle, theirs = await reader.open(access=PEEK), await gone.open(access=PEEK, share=1)
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            values = reader.start_values(handle, PEEK_CURRENT, timeout_ms=INFINITE, request=1)
            peek = asyncio.ensure_future(reader.call(7, values))
            left = asyncio.ensure_future(gone.start(theirs, PEEK_CURRENT, timeout_ms=INFINITE))
            await asyncio.sleep(0)  # both are on their way before their ends
            assert (await reader.call(8, mqrr.RequestIn(handle, 1))).status == 0
            gone.client.close()
            for node in (leader, other):
                await made.harness.restart(node.name)
            assert (await peek).status == CANCELLED
            with pytest.raises(RpcFailed):
                await left
            assert one.service.windows.rpc is not None
            associations = one.service.windows.rpc._associations
            await until(lambda: len(associations) == 1)

    run(scenario())

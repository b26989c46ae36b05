"""Remote readers whose connection outlives an outage: nothing of it stays for weeks."""

import asyncio

from qm.pb import control_pb2, control_pb2_grpc
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    RpcWorld,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world

STALE = 0xC00E0056


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

"""Rules of faults and of connections that nobody binds, on real sockets."""

import asyncio

import pytest

from qm.rpc.interface import Fault
from qm.rpc.limits import BIND_TIMEOUT_S
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.types import Nothing
from tests.unit.rpc.test_server import PROBE, World, in_world


@pytest.mark.spec("RP-RPCE-3.3.3.5.1-01")
def test_a_fault_is_never_zero() -> None:
    async def test(world: World) -> None:
        client = await world.bound()

        def nothing(call: object, given: object) -> None:
            raise Fault(0)

        world.probe.crash = nothing  # type: ignore[method-assign]
        with pytest.raises(Fault) as caught:
            await client.raw_call(PROBE, 3, b"")
        assert caught.value.status != 0

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.3.3.2.1-01")
def test_who_does_not_bind_in_time_is_sent_away() -> None:
    async def test(world: World) -> None:
        assert BIND_TIMEOUT_S == 30
        bound = await world.client()
        await bound.bind(MGMT)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port(1))
        connections = world.endpoint._ports._connections
        async with asyncio.timeout(20):
            while len(connections) < 2:
                await asyncio.sleep(0.01)
        now = asyncio.get_running_loop().time()
        for one in list(connections):
            one.expire(now + BIND_TIMEOUT_S - 1)
        assert (await bound.call(MGMT, 2, Nothing())).is_listening == 1
        assert len(connections) == 2
        for one in list(connections):
            one.expire(now + BIND_TIMEOUT_S + 1)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        assert len(connections) == 1, "whoever bound is idle, and stays longer"
        writer.close()

    in_world(test)

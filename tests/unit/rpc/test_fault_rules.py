"""Rules of faults and of connections that nobody binds, on real sockets."""

import asyncio

import pytest

from qm.rpc.interface import Fault
from qm.rpc.limits import BIND_TIMEOUT_S
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.types import Nothing
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, write_bind
from qm.rpc.pdu.codes import PduType
from tests.unit.rpc.test_server import PROBE, World, in_world, until


@pytest.mark.spec("RP-RPCE-3.3.3.5.1-01")
def test_a_fault_is_never_zero() -> None:
    async def test(world: World) -> None:
        client = await world.bound()

        def nothing(call: object, given: object) -> None:
            raise Fault(0)

        world.probe.crash = nothing  # type: ignore[method-assign]

        async def nothing_later(call: object, given: object) -> None:
            raise Fault(0)

        world.probe.crash_slowly = nothing_later  # type: ignore[method-assign]
        for opnum in (3, 5):
            with pytest.raises(Fault) as caught:
                await client.raw_call(PROBE, opnum, b"")
            assert caught.value.status != 0
        waiting = asyncio.ensure_future(client.raw_call(PROBE, 2, b""))
        await until(lambda: bool(world.probe.waiting))
        world.probe.waiting[0].fail(0)
        with pytest.raises(Fault) as late:
            await waiting
        assert late.value.status != 0

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


@pytest.mark.spec("RP-RPCE-3.3.3.2.1-01")
def test_who_sends_a_bind_byte_by_byte_is_sent_away_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.rpc.server.ports.SWEEP_EVERY_S", 0.01)
    monkeypatch.setattr("qm.rpc.server.tcp.BIND_TIMEOUT_S", 0.3)

    async def test(world: World) -> None:
        bound = await world.client()
        await bound.bind(MGMT)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port(1))
        raw = write_bind(
            PduType.BIND, 1, Bind(5840, 5840, 0, (Proposal(0, MGMT.syntax, (NDR20,)),))
        )
        end = asyncio.ensure_future(reader.read())
        sent = 0
        while not end.done():
            assert sent < len(raw) - 1, "it was never whole"
            writer.write(raw[sent : sent + 1])
            sent += 1
            await asyncio.wait((end,), timeout=0.1)
        assert isinstance(end.exception(), OSError) or end.result() == b""
        assert sent > 1
        assert (await bound.call(MGMT, 2, Nothing())).is_listening == 1
        writer.close()

    in_world(test)

"""The RPC ports on real sockets: binding, logging on, calls, limits."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from qm.edge.tcp.listeners import bind
from qm.observe.metrics import Metrics
from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.endpoint import RpcEndpoint, RpcSettings
from qm.rpc.endpoint_mapper import MAPPER, LookupIn, MapIn, parse_tower, port_of_tower, tower_of
from qm.rpc.interface import Fault, Interface, Operation, interface_syntax
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.types import BYTES, NIL, Nothing, Parameters
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, write_bind
from qm.rpc.pdu.call import request_head
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduFlag, PduType
from qm.rpc.pdu.header import write_pdu
from qm.rpc.security.accounts import Account, Logons
from qm.rpc.security.ntlm import NtlmClient, NtlmTarget
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.security.providers import OfferedProviders
from qm.rpc.security.spnego import SpnegoClient
from qm.rpc.server import tcp
from qm.rpc.server.call import Call
from qm.security.sid import sid_from_text
from tests.unit.rpc.dialogue import WHOLE
from tests.unit.rpc.test_security import Accounts


class Octets(msgspec.Struct):
    octets: bytes


_OCTETS = Parameters(Octets, {"octets": BYTES})
PROBE = Interface(
    "probe",
    interface_syntax("12345678-1234-abcd-ef00-0123456789ad", 1),
    {
        0: Operation("echo", _OCTETS, _OCTETS),
        1: Operation("whoami", gives=_OCTETS),
        2: Operation("wait", gives=_OCTETS),
        3: Operation("crash"),
        4: Operation("slowly", gives=_OCTETS),
        5: Operation("crash_slowly"),
    },
    AuthLevel.PRIVACY,
)


class Probe:
    """Answers at once, later, from a coroutine, or not at all."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.ends: list[bool] = []

    def echo(self, call: Call, given: Octets) -> Octets:
        return given

    def whoami(self, call: Call, given: Nothing) -> Octets:
        return Octets(call.identity.name.encode())

    def wait(self, call: Call, given: Nothing) -> None:
        call.on_end = self.ends.append
        self.waiting.append(call)

    def crash(self, call: Call, given: Nothing) -> None:
        raise RuntimeError("secret")

    async def crash_slowly(self, call: Call, given: Nothing) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("secret")

    async def slowly(self, call: Call, given: Nothing) -> Octets:
        await asyncio.sleep(0)
        return Octets(b"done")


class World:
    def __init__(self, endpoint: RpcEndpoint, probe: Probe, metrics: Metrics) -> None:
        self.endpoint, self.probe, self.metrics = endpoint, probe, metrics
        self.clients: list[RpcClient] = []

    def port(self, number: int) -> int:
        return self.endpoint.endpoints(number)[0][1]

    async def client(self) -> RpcClient:
        client = await RpcClient().connect("127.0.0.1", self.port(1))
        self.clients.append(client)
        return client

    async def bound(self, kind: AuthType = AuthType.NTLM, password: str = "S3cret!") -> RpcClient:
        return await self.bind(RpcClient(), kind, password)

    async def bind(
        self, client: RpcClient, kind: AuthType = AuthType.NTLM, password: str = "S3cret!"
    ) -> RpcClient:
        self.clients.append(client)
        await client.connect("127.0.0.1", self.port(1))
        await client.bind(
            PROBE, MGMT, provider=logon(kind, password), auth_type=kind, level=AuthLevel.PRIVACY
        )
        return client


class Listening(RpcClient):
    """A client that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = bytearray()

    @override
    def data_received(self, data: bytes) -> None:
        self.heard += data
        super().data_received(data)


class Changing:
    """A transport that changes what is written to it."""

    def __init__(self, real: asyncio.Transport, change: Callable[[bytes], bytes]) -> None:
        self.real, self.change = real, change

    def write(self, raw: bytes) -> None:
        self.real.write(self.change(raw))

    def close(self) -> None:
        self.real.close()


def logon(kind: AuthType, password: str = "S3cret!") -> Any:
    ntlm = NtlmClient("alice", password, "", secrets.token_bytes)
    return SpnegoClient(ntlm) if kind is AuthType.SPNEGO else ntlm


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    metrics = Metrics(CollectorRegistry())
    account = Account("alice", nt_hash("S3cret!"), (sid_from_text("S-1-5-21-1-2-3-1001"),))
    providers = OfferedProviders(
        lambda: NtlmTarget("QUORATE", "quorate"),
        Logons(Accounts(account), monotonic),
        secrets.token_bytes,
        lambda: 0,
    )
    probe = Probe()
    # Two different numbers that stand for "any free port": listeners take 0 for both.
    endpoint = RpcEndpoint(
        RpcSettings(("127.0.0.1",), 0, 1), {PROBE: probe}, providers, metrics, bind=bind_free
    )
    await endpoint.start()
    found = World(endpoint, probe, metrics)
    try:
        yield found
    finally:
        for client in found.clients:
            client.close()
        await endpoint.stop()


def bind_free(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    return bind(address, 0, kind)


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), world() as found:
            await test(found)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


@pytest.mark.spec(
    "RP-RPCE-2.1.1.1-02",
    "RP-C706-O-01",
    "RP-RPCE-3.3.3.3.1.4-01",
    "RP-RPCE-2.2.1.3-01",
    "RP-RPCE-3.1.1.5.4-01",
)
def test_the_mapper_tells_the_port_without_logging_on() -> None:
    async def test(world: World) -> None:
        client = await RpcClient().connect("127.0.0.1", world.port(0))
        world.clients.append(client)
        await client.bind(MAPPER, MGMT)
        asked = tower_of(PROBE.syntax, 0, "0.0.0.0")
        found = await client.call(MAPPER, 3, MapIn(None, asked, NIL, 4))
        tower = found.towers.items[0]
        assert parse_tower(tower.octets) == PROBE.syntax
        assert port_of_tower(tower.octets) == world.port(1)
        assert (await client.call(MGMT, 2, Nothing())).is_listening == 1

    in_world(test)


@pytest.mark.spec("RP-OUR-vip-01")
def test_each_port_that_the_mapper_tells_serves_the_interface() -> None:
    async def test(world: World) -> None:
        mapper = await RpcClient().connect("127.0.0.1", world.port(0))
        world.clients.append(mapper)
        await mapper.bind(MAPPER, MGMT)
        found = await mapper.call(MAPPER, 2, LookupIn(0, None, None, 1, NIL, 500))
        towers = [entry.tower.octets for entry in found.entries.items]
        assert {parse_tower(tower) for tower in towers} == {PROBE.syntax, MGMT.syntax}
        for tower in towers:
            there = await RpcClient().connect("127.0.0.1", port_of_tower(tower))
            world.clients.append(there)
            provider = logon(AuthType.NTLM)
            level = AuthLevel.PRIVACY
            await there.bind(PROBE, MGMT, provider=provider, auth_type=AuthType.NTLM, level=level)
            if parse_tower(tower) == PROBE.syntax:
                assert (await there.call(PROBE, 1, Nothing())).octets == b"alice"
            else:
                assert (await there.call(MGMT, 2, Nothing())).is_listening == 1

    in_world(test)


@pytest.mark.parametrize("kind", [AuthType.NTLM, AuthType.SPNEGO])
@pytest.mark.spec(
    "RP-RPCE-3.3.1.5.2.1-01",
    "RP-RPCE-3.3.1.5.2.1-02",
    "RP-RPCE-3.3.1.5.2.2-05",
    "RP-RPCE-3.3.3.4.3-01",
    "RP-RPCE-2.2.2.10-02",
)
def test_sealed_calls_of_any_size_come_back(kind: AuthType) -> None:
    async def test(world: World) -> None:
        client = await world.bound(kind)
        assert (await client.call(PROBE, 1, Nothing())).octets == b"alice"
        for size in (0, 1, 5000, 20_000, 1 << 20):
            sent = secrets.token_bytes(size)
            assert (await client.call(PROBE, 0, Octets(sent))).octets == sent
        assert (await client.call(PROBE, 4, Nothing())).octets == b"done"

    in_world(test)


@pytest.mark.spec(
    "RP-RPCE-2.2.2.10-03", "RP-RPCE-5.1.1-01", "RP-RPCE-3.3.3.5.1-02", "RP-RPCE-3.1.1.5.4-01"
)
def test_wrong_passwords_levels_and_crashes_are_faults() -> None:
    async def test(world: World) -> None:
        wrong = await world.bound(password="wrong")
        with pytest.raises(Fault) as refused:
            await wrong.call(PROBE, 1, Nothing())
        assert refused.value.status == 5
        with pytest.raises(RpcFailed):
            await world.bound(AuthType.SPNEGO, "wrong")
        plain = await world.client()
        await plain.bind(PROBE)
        with pytest.raises(Fault) as low:
            await plain.call(PROBE, 1, Nothing())
        assert low.value.status == 5
        listening = Listening()
        await world.bind(listening)
        for opnum in (3, 5):
            listening.heard.clear()
            with pytest.raises(Fault) as crashed:
                await listening.call(PROBE, opnum, Nothing())
            assert crashed.value.status == 0x6BE
            assert len(listening.heard) == 32, "a fault has no room for a text"
            assert (await listening.call(PROBE, 1, Nothing())).octets == b"alice"

    in_world(test)


def test_a_method_that_crashes_at_each_call_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(world: World) -> None:
        client = await world.bound()
        for _ in range(20):
            with pytest.raises(Fault):
                await client.call(PROBE, 3, Nothing())

    in_world(test)
    assert len([line for line in caplog.records if line.exc_info]) == 1


@pytest.mark.spec("RP-RPCE-3.3.3.7.1-01")
def test_a_waiting_call_holds_up_nobody_and_ends_with_its_connection() -> None:
    async def test(world: World) -> None:
        client = await world.bound()
        waiting = asyncio.ensure_future(client.call(PROBE, 2, Nothing()))
        await until(lambda: bool(world.probe.waiting))
        assert (await client.call(PROBE, 0, Octets(b"x"))).octets == b"x"
        world.probe.waiting[0].answer(Octets(b"at last"))
        assert (await waiting).octets == b"at last"
        other = asyncio.ensure_future(client.call(PROBE, 2, Nothing()))
        await until(lambda: len(world.probe.waiting) == 2)
        client.close()
        await until(lambda: world.probe.ends == [False])
        world.probe.waiting[1].answer(Octets(b"late"))
        with pytest.raises(RpcFailed):
            await other

    in_world(test)


def test_a_client_that_takes_nothing_any_more_is_gone_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that lost its power or its network: else what it was lent would be hidden for long."""
    monkeypatch.setattr(tcp, "UNTAKEN_MAX_S", 1)

    async def test(world: World) -> None:
        client = await world.bound()
        waiting = asyncio.ensure_future(client.call(PROBE, 2, Nothing()))
        await until(lambda: bool(world.probe.waiting))
        assert client._transport is not None
        client._transport.pause_reading()
        calls = [client.call(PROBE, 0, Octets(bytes(3 << 20))) for _ in range(6)]
        ends = asyncio.gather(waiting, *calls, return_exceptions=True)
        async with asyncio.timeout(15):
            while world.probe.ends != [False]:
                await asyncio.sleep(0.05)
        client.close()
        await ends

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-03", "RP-RPCE-3.3.1.5.2.2-04")
def test_a_sealed_pdu_that_is_replayed_or_changed_ends_the_connection() -> None:
    async def test(world: World) -> None:
        for change in (lambda raw: raw + raw, lambda raw: raw[:30] + b"!" + raw[31:]):
            client = await world.bound()
            real = client._transport
            assert real is not None

            client._transport = Changing(real, change)  # type: ignore[assignment]
            with pytest.raises((Fault, RpcFailed)):
                await client.call(PROBE, 2, Nothing())

    in_world(test)


@pytest.mark.spec("RP-OUR-limits-03")
def test_connections_of_one_address_are_limited() -> None:
    async def test(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("qm.rpc.server.ports.CONNECTIONS_PER_ADDRESS_MAX", 2)
            first, second = await world.client(), await world.client()
            third = await world.client()
            await until(lambda: third._transport is None)
            await first.bind(MGMT)
            await second.bind(MGMT)
            refused = world.metrics.registry.get_sample_value(
                "quorate_rpc_refused_total", {"reason": "connections_per_address"}
            )
            assert refused == 1

    in_world(test)


async def begun(world: World, fragments: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send some of a call's fragments, and never the last."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port(0))
    proposal = Proposal(0, MAPPER.syntax, (NDR20,))
    writer.write(write_bind(PduType.BIND, 1, Bind(5840, 5840, 0, (proposal,)), None, WHOLE))
    await reader.read(1)
    for number in range(fragments):
        flags = 0 if number else int(PduFlag.FIRST)
        body = request_head(0, 3, 1 << 20) + bytes(5_000)
        writer.write(write_pdu(PduType.REQUEST, flags, 2, body))
    return reader, writer


def test_calls_that_are_never_whole_keep_nobody_from_calling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They need no logon. The oldest gives way."""
    monkeypatch.setattr(tcp, "STUBS_MAX_BYTES", 60_000)

    async def test(world: World) -> None:
        attackers = [await begun(world, 5) for _ in range(3)]
        oldest = attackers[0][0]
        while await oldest.read(1 << 16):
            pass
        client = await world.bound()
        given = Octets(bytes(50_000))
        assert await client.call(PROBE, 0, given) == given
        refused = world.metrics.registry.get_sample_value(
            "quorate_rpc_refused_total", {"reason": "stub"}
        )
        assert refused
        for _, writer in attackers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    in_world(test)

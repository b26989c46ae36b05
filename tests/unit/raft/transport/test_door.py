"""What strangers can cost the port of a node: few connections, little time, a line in the log."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from raft.transport import door, grpc_transport
from raft.transport.accepting import (
    TOO_FAST,
    TOO_MANY,
    TOO_MANY_OF_ADDRESS,
    Limits,
    Places,
)
from raft.transport.direct_transport import DirectTransport
from tests.unit.raft.transport.authority import Authority
from tests.unit.raft.transport.direct_caller import calling_at
from tests.unit.raft.transport.worlds import CLUSTER, DirectWorld, run, until

A, B = "a.1", "b.1"
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01"
HOLDERS = 60
FLOOD_BYTES = 64 << 20


def in_world(folder: Path, body: Callable[[DirectWorld], Awaitable[None]]) -> None:
    async def scenario() -> None:
        world = DirectWorld(folder)
        try:
            await body(world)
        finally:
            await world.close()

    run(scenario())


def at(world: DirectWorld) -> tuple[str, int]:
    """Return where the node itself listens: a world's addresses are those of a proxy."""
    node = world.nodes[B]
    assert isinstance(node, DirectTransport)
    return "127.0.0.1", node.port


@contextlib.asynccontextmanager
async def connected(
    world: DirectWorld, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*at(world), local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def test_a_refused_handshake_is_counted_and_names_peer_and_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport, "REFUSALS_LOGGED_EVERY_MS", 60_000)

    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        metrics = world.nodes[B].metrics
        foreign = Authority(tmp_path / "other").issue("a", files="foreign")
        for _ in range(3):
            with contextlib.suppress(OSError):
                stem = (foreign.certificate, foreign.key)
                async with calling_at(world.address(B), "b", world.authority.file, stem) as caller:
                    await caller.hello(A, B, CLUSTER)
        await until(lambda: metrics.handshake_total == 3)

    with caplog.at_level(logging.WARNING):
        in_world(tmp_path, scenario)
    (line,) = [one for one in caplog.messages if "handshake" in one]
    assert "127.0.0.1" in line
    assert "CERTIFICATE_VERIFY_FAILED" in line


def test_grpc_that_refuses_a_certificate_is_counted_too(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        metrics = world.nodes[B].metrics
        async with connected(world) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            while await reader.read(4_096):
                pass
        await until(lambda: metrics.handshake_total == 1)

    in_world(tmp_path, scenario)


def test_a_node_that_asks_whether_this_one_lives_is_no_refusal(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        metrics = world.nodes[B].metrics
        async with connected(world):
            pass
        async with connected(world) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
        await until(lambda: metrics.handshake_total == 1)

    in_world(tmp_path, scenario)


def test_half_a_client_hello_costs_nothing_while_it_waits(tmp_path: Path) -> None:
    """It was looked at 200 times a second."""

    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        async with contextlib.AsyncExitStack() as held:
            for number in range(HOLDERS):
                source = f"127.0.0.{2 + number % 8}"
                _, writer = await held.enter_async_context(connected(world, source))
                writer.write(HALF_HELLO)
            await asyncio.sleep(0.2)
            began = time.process_time()
            await asyncio.sleep(1)
            assert time.process_time() - began < 0.2

    in_world(tmp_path, scenario)


def test_a_client_hello_in_parts_is_understood(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        tls = world.authority.issue("a")
        proxy = await asyncio.start_server(_slowly(*at(world)), "127.0.0.1", 0)
        try:
            address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            stem = (tls.certificate, tls.key)
            async with calling_at(address, "b", world.authority.file, stem) as caller:
                assert await caller.hello(A, B, CLUSTER) == b""
        finally:
            proxy.close()

    in_world(tmp_path, scenario)


def _slowly(host: str, port: int) -> Callable[..., Awaitable[None]]:
    """Pass the first bytes on in parts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(host, port)
        back.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        first = await reader.read(65_536)
        for part in (first[:1], first[1:7], first[7:]):
            back.write(part)
            await asyncio.sleep(0.05)

        async def pump(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                to.write(data)
            to.close()

        await asyncio.gather(pump(reader, back), pump(onward, writer))

    return serve


def test_one_address_cannot_take_the_connections_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "LIMITS", Limits(8, 4, 1, 64, 64))

    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        metrics = world.nodes[B].metrics
        tls = world.authority.issue("a")
        async with contextlib.AsyncExitStack() as held:
            for number in range(12):
                source = f"127.0.0.{3 + number % 2}"
                await held.enter_async_context(connected(world, source))
            await until(lambda: metrics.connections_total >= 6)
            stem = (tls.certificate, tls.key)
            async with calling_at(world.address(B), "b", world.authority.file, stem) as caller:
                assert await caller.hello(A, B, CLUSTER) == b""

    in_world(tmp_path, scenario)


async def flood(client: socket.socket) -> int:
    """Send until nothing is taken any more; return how many bytes were."""
    sent, chunk, idle = 0, bytes(1 << 16), 0
    while idle < 20:
        try:
            sent += client.send(chunk)
            idle = 0
        except BlockingIOError:
            idle += 1
        assert sent < FLOOD_BYTES, "it is kept in memory"
        await asyncio.sleep(0.01 if idle else 0)
    return sent


def test_a_connection_is_read_no_faster_than_its_far_end_reads(tmp_path: Path) -> None:
    """What gRPC does not take stays with the peer, and comes once it is taken."""

    async def scenario() -> None:
        is_open, received = asyncio.Event(), bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await is_open.wait()
            while data := await reader.read(1 << 20):
                received.extend(data)
            writer.close()

        path = tmp_path / "far"
        far = await asyncio.start_unix_server(serve, path)
        near = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(near.getsockname())
        accepted, _ = near.accept()
        for one in (client, accepted):
            one.setblocking(False)
        forwarding = asyncio.ensure_future(door.forward(accepted, bytes(path)))
        try:
            sent = await flood(client)
            is_open.set()
            await until(lambda: len(received) == sent)
        finally:
            is_open.set()
            client.close()
            near.close()
            far.close()
            await forwarding

    run(scenario())


# Places ---------------------------------------------------------------------------------------


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_places_are_limited_in_total_and_per_address() -> None:
    places = Places(Limits(8, 5, 2, 100, 100), Clock())
    assert [places.enter("10.0.0.1") for _ in range(6)] == [""] * 5 + [TOO_MANY_OF_ADDRESS]
    assert [places.enter("10.0.0.2") for _ in range(3)] == ["", "", TOO_MANY]
    assert [places.enter("10.0.0.3") for _ in range(2)] == ["", TOO_MANY]
    for address in ("10.0.0.1", "10.0.0.2"):
        places.leave(address)
    assert not places.enter("10.0.0.3")


def test_what_begins_in_a_second_is_limited() -> None:
    clock = Clock()
    places = Places(Limits(100, 100, 1, 8, 4), clock)
    assert [places.enter("10.0.0.1") for _ in range(5)] == [""] * 4 + [TOO_FAST]
    assert [places.enter("10.0.0.2") for _ in range(3)] == ["", "", TOO_FAST]
    assert not places.enter("10.0.0.3")  # the last quarter is for those who have none
    clock.now_s += 1
    assert not places.enter("10.0.0.1")


def test_an_ipv6_host_has_one_place_for_all_its_addresses() -> None:
    places = Places(Limits(100, 1, 1, 100, 100), Clock())
    assert not places.enter("2001:db8::1%eth0")
    assert places.enter("2001:db8::ffff:2") == TOO_MANY_OF_ADDRESS
    assert not places.enter("2001:db8:0:1::1")
    places.leave("2001:db8::3")
    assert not places.enter("2001:db8::2")

"""Who may speak over direct streams, and how nodes with and without them meet."""

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from raft.transport.client_hello import CLIENT_HELLO_MAX_BYTES, offers
from raft.transport.direct import HELLO_MAX_BYTES, Hello, read_hello
from raft.transport.direct_transport import DirectTransport
from raft.transport.grpc_transport import GrpcConfig, GrpcTransport
from raft.transport.tls import ALPN, TlsFiles
from raft.transport.wire_format import FRAME_MAX_BYTES, FrameEncoder
from raft.types import PeerState
from tests.unit.raft.transport.authority import Authority
from tests.unit.raft.transport.direct_caller import Caller, calling_at
from tests.unit.raft.transport.test_grpc_transport import NO_PEERS, call_raw, forge
from tests.unit.raft.transport.worlds import (
    CLUSTER,
    DirectWorld,
    Recorder,
    are_connected,
    run,
    until,
)

A, B = "a.1", "b.1"
CONNECTED, LOST = PeerState.CONNECTED, PeerState.LOST


def in_world(folder: Path, body: Callable[[DirectWorld], Awaitable[None]]) -> None:
    async def scenario() -> None:
        world = DirectWorld(folder)
        try:
            await body(world)
        finally:
            await world.close()

    run(scenario())


def calling(world: DirectWorld, tls: TlsFiles | None) -> AbstractAsyncContextManager[Caller]:
    stem = (tls.certificate, tls.key) if tls is not None else None
    return calling_at(world.address(B), "b", world.authority.file, stem)


async def answer_to(
    world: DirectWorld, tls: TlsFiles | None, sender: str = A, to: str = B, cluster: bytes = CLUSTER
) -> bytes | None:
    """Call and return the answer; None: the handshake failed, or nothing was answered."""
    with contextlib.suppress(OSError):
        async with calling(world, tls) as caller:
            return await caller.hello(sender, to, cluster)
    return None


@pytest.mark.parametrize("kind", NO_PEERS)
def test_only_a_node_by_its_dns_name_may_speak(tmp_path: Path, kind: str) -> None:
    uris, names = NO_PEERS[kind]

    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a", uris=uris, names=names)
        for sender in (A, "quorate:role/node.1", "127.0.0.1.1", "*.1"):
            assert await answer_to(world, tls, sender)
        metrics = world.nodes[B].metrics
        assert metrics.forged_sender_total + metrics.stranger_total == 4
        assert not b.envelopes
        assert not b.states

    in_world(tmp_path, scenario)


def test_each_refusal_is_counted_and_explained(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        authority, metrics = world.authority, world.nodes[B].metrics
        a, z = authority.issue("a"), authority.issue("z")
        assert await answer_to(world, a) == b""
        assert b"names" in (await answer_to(world, a, "c.1") or b"")
        assert b"another cluster" in (await answer_to(world, a, cluster=CLUSTER[::-1]) or b"")
        assert b"not a member" in (await answer_to(world, z, "z.1") or b"")
        assert b"this node is b.1" in (await answer_to(world, a, to="b.2") or b"")
        expired = authority.issue("a", files="old", until=timedelta(hours=-1))
        for stranger in (None, expired, Authority(tmp_path / "other").issue("a", files="foreign")):
            assert await answer_to(world, stranger) is None
        assert metrics.forged_sender_total == metrics.foreign_cluster_total == 1
        assert metrics.stranger_total == metrics.misdirected_total == 1
        assert not b.envelopes

    in_world(tmp_path, scenario)


def test_a_revoked_certificate_cannot_speak_and_its_streams_end(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        world.revoked = tmp_path / "revoked.pem"
        world.authority.revoke(world.revoked)
        b = await world.add(B)
        tls, other = world.authority.issue("a"), world.authority.issue("c")
        async with calling(world, tls) as caller, calling(world, other) as standing:
            assert await caller.hello(A, B, CLUSTER) == b""
            assert await standing.hello("c.1", B, CLUSTER) == b""
            world.authority.revoke(world.revoked, tls)
            assert await caller.hear() is None
            assert b"revoked" in (await answer_to(world, tls) or b"")
            await standing.say(FrameEncoder(CLUSTER, "c.1").encode([]))
            await until(lambda: world.nodes[B].metrics.peer("c.1").frames_received_total)
        assert world.nodes[B].metrics.revoked_total == 2
        assert not b.envelopes

    in_world(tmp_path, scenario)


def test_a_revoked_node_is_not_called(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        world.revoked = tmp_path / "revoked.pem"
        world.authority.revoke(world.revoked)
        await world.add(B)
        a = await world.add(A, knows=[B])
        await until(lambda: (B, CONNECTED) in a.states)
        world.authority.revoke(world.revoked, TlsFiles(
            world.authority.file, tmp_path / "b.1 as b.pem", tmp_path / "b.1 as b.key"
        ))  # fmt: skip
        failed = world.nodes[A].metrics.peer(B)
        await until(lambda: (B, LOST) in a.states and failed.dials_failed_total > 1)

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    "first",
    [b"", b"\xff" * 20, CLUSTER + b"\x03a.1", CLUSTER + b"\x03a.1\x03b.1x", CLUSTER + b"\1\xff\1b"],
)
def test_a_malformed_hello_ends_the_connection(tmp_path: Path, first: bytes) -> None:
    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        async with calling(world, world.authority.issue("a")) as caller:
            await caller.say(first)
            assert await caller.hear() is None
        assert world.nodes[B].metrics.malformed_total == 1

    in_world(tmp_path, scenario)


def test_frames_larger_than_allowed_end_the_connection(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a")
        async with calling(world, tls) as caller:
            await caller.say(bytes(HELLO_MAX_BYTES + 1))
            assert await caller.hear() is None
        async with calling(world, tls) as caller:
            assert await caller.hello(A, B, CLUSTER) == b""
            caller.write((FRAME_MAX_BYTES + 1).to_bytes(4, "little"))
            assert await caller.hear() is None
        await until(lambda: b.states == [(A, CONNECTED), (A, LOST)])

    in_world(tmp_path, scenario)


def test_bad_frames_are_dropped_and_counted_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        foreign = FrameEncoder(CLUSTER[::-1], A).encode([])
        async with calling(world, world.authority.issue("a")) as caller:
            assert await caller.hello(A, B, CLUSTER) == b""
            for frame in (b"", b"\x0a\x03abc", foreign, forge("a.2"), forge(A)):
                await caller.say(frame)
            await until(lambda: b.envelopes)
        metrics = world.nodes[B].metrics
        assert [envelope.sender for envelope in b.envelopes] == [A]
        assert metrics.malformed_total == 2
        assert metrics.foreign_cluster_total == metrics.forged_sender_total == 1
        await until(lambda: not metrics.peers)

    in_world(tmp_path, scenario)


def test_what_comes_with_the_hello_waits_for_the_answer(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        async with calling(world, world.authority.issue("a")) as caller:
            await caller.say(Hello(CLUSTER, A, B).pack())
            await caller.say(forge(A))
            assert await caller.hear() == b""
            await until(lambda: len(b.envelopes) == 1)

    in_world(tmp_path, scenario)


def test_a_newer_stream_of_a_peer_takes_the_place_of_the_older(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a")
        async with calling(world, tls) as older, calling(world, tls) as newer:
            assert await older.hello(A, B, CLUSTER) == b""
            assert await newer.hello(A, B, CLUSTER) == b""
            assert await older.hear() is None
            await newer.say(forge(A))
            await until(lambda: b.envelopes)
            assert b.states == [(A, CONNECTED)]

    in_world(tmp_path, scenario)


def test_rotated_files_are_used_by_the_next_handshake(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        a = await world.add(A, knows=[B])
        b = await world.add(B, knows=[A])
        await until(partial(are_connected, world, A, B))
        renewed = Authority(tmp_path / "renewed")
        world.authority.file.write_bytes(renewed.file.read_bytes())
        for node, name in ((A, "a"), (B, "b")):
            made = renewed.issue(name)
            for suffix, file in ((".key", made.key), (".pem", made.certificate)):
                (tmp_path / f"{node} as {name}{suffix}").write_bytes(file.read_bytes())
        world.reset(A, B)
        await until(lambda: (B, LOST) in a.states and (A, LOST) in b.states)
        await until(partial(are_connected, world, A, B), lambda: (a.states, b.states))

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("older", [A, B])
def test_nodes_with_and_without_direct_streams_understand_each_other(
    tmp_path: Path, older: str
) -> None:
    """A rolling upgrade goes through this."""

    async def scenario(world: DirectWorld) -> None:
        for node, other in ((A, B), (B, A)):
            world.transport_of = GrpcTransport if node == older else DirectTransport
            await world.add(node, knows=[other])
        await until(partial(are_connected, world, A, B))
        newer = world.nodes[B if older == A else A]
        assert newer.metrics.peer(older).dials_failed_total == 0

    in_world(tmp_path, scenario)


def test_grpc_is_answered_at_the_same_port(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        b = await world.add(B)
        code = await call_raw(world, world.authority.issue("a"), [forge(A)])
        assert code.name == "OK"
        assert len(b.envelopes) == 1
        code = await call_raw(world, world.authority.issue("z"), [], "z.1", "SendSnapshot")
        assert code.name == "PERMISSION_DENIED"

    in_world(tmp_path, scenario)


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    async def scenario(world: DirectWorld) -> None:
        await world.add(B)
        tls = world.authority.issue("a")
        config = GrpcConfig(CLUSTER, A, world.address(B), tls, lambda _: True)
        transport = DirectTransport(config, Recorder(), lambda n: 0)
        with pytest.raises(OSError, match="cannot listen"):
            await transport.start()
        await transport.close()

    in_world(tmp_path, scenario)


# ClientHello ----------------------------------------------------------------------------------


def client_hello(*protocols: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(list(protocols))
    written = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), written, server_hostname="b")
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return written.read()


def test_a_client_hello_is_read_once_it_is_complete() -> None:
    hello = client_hello("h2", ALPN)
    assert offers(hello, ALPN) is True
    assert offers(client_hello("h2"), ALPN) is False
    assert offers(client_hello(), ALPN) is False
    for size in range(1, len(hello)):
        assert offers(hello[:size], ALPN) is None
    assert offers(b"GET / HTTP/1.1\r\n", ALPN) is False
    too_long = b"\x16\x03\x01" + (CLIENT_HELLO_MAX_BYTES).to_bytes(2, "big")
    assert offers(too_long, ALPN) is False


def test_no_client_hello_of_any_bytes_is_an_error() -> None:
    hello = client_hello("h2", ALPN)
    for at in range(5, len(hello)):
        for value in (0, 0xFF):
            assert offers(hello[:at] + bytes((value,)) + hello[at + 1 :], ALPN) in (True, False)


def test_a_hello_is_read_as_it_was_written() -> None:
    hello = Hello(CLUSTER, A, "b." + "9" * 250)
    assert read_hello(hello.pack()) == hello

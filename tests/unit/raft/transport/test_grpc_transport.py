"""Who may speak over gRPC: mutual TLS, names in certificates, rotation of the files."""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509

from raft.pb.peer_pb2 import DESCRIPTOR
from raft.transport.grpc_transport import (
    METADATA_CLUSTER,
    METADATA_FROM,
    METADATA_TO,
    SERVICE,
    GrpcConfig,
    GrpcTransport,
)
from raft.transport.metrics import TransportMetrics
from raft.transport.tls import PEER_ROLE, REVOKED_LOOK_S, TlsError, TlsFiles, TlsIdentity
from raft.transport.wire_format import FrameEncoder
from raft.types import Envelope, Heartbeat, PeerState
from tests.unit.raft.transport.authority import Authority
from tests.unit.raft.transport.worlds import CLUSTER, GrpcWorld, Recorder, are_connected, run, until

A, B = "a.1", "b.1"
CONNECTED, LOST = PeerState.CONNECTED, PeerState.LOST


def in_world(folder: Path, body: Callable[[GrpcWorld], Awaitable[None]]) -> None:
    async def scenario() -> None:
        world = GrpcWorld(folder)
        try:
            await body(world)
        finally:
            await world.close()

    run(scenario())


def forge(frame_sender: str) -> bytes:
    encoder = FrameEncoder(CLUSTER, frame_sender)
    return encoder.encode([Envelope(1, frame_sender, B, 3, Heartbeat(0, 0))])


@asynccontextmanager
async def raw_call(
    world: GrpcWorld, tls: TlsFiles | None, name: str = "a.1", method: str = "Exchange"
) -> AsyncIterator[Any]:
    """Call node B as a program that is no node."""
    credentials = grpc.ssl_channel_credentials(
        world.authority.file.read_bytes(),
        tls.key.read_bytes() if tls else None,
        tls.certificate.read_bytes() if tls else None,
    )
    options = (("grpc.ssl_target_name_override", "b"), ("grpc.use_local_subchannel_pool", 1))
    channel: Any = grpc.aio.secure_channel(world.address(B), credentials, options=options)
    metadata = ((METADATA_CLUSTER, CLUSTER.hex()), (METADATA_FROM, name), (METADATA_TO, B))
    try:
        yield channel.stream_stream(f"/{SERVICE}/{method}", None, None)(metadata=metadata)
    finally:
        await channel.close(None)


async def call_raw(
    world: GrpcWorld,
    tls: TlsFiles | None,
    frames: list[bytes],
    name: str = "a.1",
    method: str = "Exchange",
) -> grpc.StatusCode:
    """Send frames as a program that is no node; return how the call ended."""
    async with raw_call(world, tls, name, method) as call:
        with contextlib.suppress(grpc.RpcError, grpc.aio.UsageError):
            # A write into a call that ends meanwhile would hide the code that it ends with.
            if METADATA_FROM not in await call.initial_metadata():
                frames = []
            for frame in frames:
                await call.write(frame)
            if METADATA_FROM in await call.initial_metadata():
                await call.done_writing()
        code: grpc.StatusCode = await call.code()
        return code


def test_a_certificate_with_another_name_cannot_call(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        a = await world.add(A, knows=[B], named="mallory")
        await until(lambda: world.nodes[B].metrics.forged_sender_total > 0)
        assert not a.states
        assert not b.states

    in_world(tmp_path, scenario)


def test_a_certificate_with_another_name_cannot_be_called(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        await world.add(B, named="mallory")
        a = await world.add(A, knows=[B])
        await until(lambda: world.nodes[A].metrics.peer(B).dials_failed_total > 2)
        assert not a.states

    in_world(tmp_path, scenario)


def test_a_certificate_of_another_authority_cannot_speak(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        a = await world.add(A, knows=[B], authority=Authority(tmp_path / "other"))
        await until(lambda: world.nodes[A].metrics.peer(B).dials_failed_total > 2)
        assert not a.states
        assert not b.states

    in_world(tmp_path, scenario)


def test_a_caller_without_a_certificate_cannot_speak(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        code = await call_raw(world, None, [forge(A)])
        assert code is grpc.StatusCode.UNAVAILABLE
        assert not b.states
        assert not b.envelopes

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("name", ["", "a", ".1", "c.1", "a" * 300 + ".1"])
def test_a_caller_must_name_itself_as_its_certificate_does(tmp_path: Path, name: str) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        code = await call_raw(world, world.authority.issue("a"), [], name)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert world.nodes[B].metrics.forged_sender_total == 1
        assert not b.envelopes

    in_world(tmp_path, scenario)


ADMIN = "quorate:role/admin"
NO_PEERS: dict[str, tuple[Sequence[str], Sequence[x509.GeneralName]]] = {
    "no role": ((), [x509.DNSName("a")]),
    "a client": (("quorate:role/client",), [x509.DNSName("a")]),
    "an admin": ((ADMIN,), [x509.DNSName("a")]),
    "two roles": ((PEER_ROLE, ADMIN), [x509.DNSName("a")]),
    "a role as a name": ((), [x509.DNSName("a"), x509.DNSName(PEER_ROLE)]),
    "a name as a URI": ((PEER_ROLE, "a"), []),
    "a name as an address of mail": ((PEER_ROLE,), [x509.RFC822Name("a")]),
    "an address": ((PEER_ROLE,), [x509.IPAddress(ip_address("127.0.0.1"))]),
    "a wildcard": ((PEER_ROLE,), [x509.DNSName("*")]),
}


@pytest.mark.parametrize("method", ["Exchange", "SendSnapshot"])
@pytest.mark.parametrize("kind", NO_PEERS)
def test_only_a_node_by_its_dns_name_may_speak(tmp_path: Path, kind: str, method: str) -> None:
    """Neither a role's URI nor any other alternative name is a node's name."""
    uris, names = NO_PEERS[kind]

    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a", uris=uris, names=names)
        for name in ("a.1", "quorate:role/node.1", "127.0.0.1.1", "*.1"):
            code = await call_raw(world, tls, [forge(A)], name, method)
            assert code is grpc.StatusCode.PERMISSION_DENIED
        metrics = world.nodes[B].metrics
        assert metrics.forged_sender_total + metrics.stranger_total == 4
        assert not b.envelopes
        assert not b.states
        assert not b.senders

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("method", ["Exchange", "SendSnapshot"])
def test_a_node_that_is_no_member_may_not_speak(tmp_path: Path, method: str) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("z")
        code = await call_raw(world, tls, [forge("z.1")], "z.1", method)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert world.nodes[B].metrics.stranger_total == 1
        assert not b.envelopes
        assert not b.states
        world.members.add("z")
        assert await call_raw(world, tls, [], "z.1", method) is grpc.StatusCode.OK

    in_world(tmp_path, scenario)


def test_an_expired_certificate_cannot_speak(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a", until=timedelta(hours=-1))
        assert await call_raw(world, tls, [forge(A)]) is grpc.StatusCode.UNAVAILABLE
        assert not b.envelopes

    in_world(tmp_path, scenario)


def test_a_revoked_certificate_cannot_speak_and_its_streams_end(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        world.revoked = tmp_path / "revoked.pem"
        world.authority.revoke(world.revoked)
        b = await world.add(B)
        tls, other = world.authority.issue("a"), world.authority.issue("c")
        async with raw_call(world, tls) as call, raw_call(world, other, "c.1") as standing:
            await call.initial_metadata()
            await standing.initial_metadata()
            world.authority.revoke(world.revoked, tls)
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "revoked" in await call.details()
            for method in ("Exchange", "SendSnapshot"):
                code = await call_raw(world, tls, [forge(A)], method=method)
                assert code is grpc.StatusCode.PERMISSION_DENIED
            assert not b.envelopes
            await standing.write(FrameEncoder(CLUSTER, "c.1").encode([]))
            assert not standing.done()
            renewed = world.authority.issue("a", files="renewed")
            assert await call_raw(world, renewed, []) is grpc.StatusCode.OK
        assert world.nodes[B].metrics.revoked_total == 3

    in_world(tmp_path, scenario)


def test_a_list_of_revoked_certificates_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """At the start it is an error; while a node runs the last good one counts."""
    authority, revoked = Authority(tmp_path), tmp_path / "revoked.pem"
    taken = authority.issue("a")
    pem = taken.certificate.read_bytes()
    files = replace(authority.issue("b"), revoked=revoked)
    with pytest.raises(TlsError, match=r"revoked\.pem"):
        TlsIdentity(files, TransportMetrics())
    Authority(tmp_path / "foreign").revoke(revoked, taken)
    assert not TlsIdentity(files, TransportMetrics()).is_revoked(pem)
    authority.revoke(revoked, taken)
    identity = TlsIdentity(files, TransportMetrics())
    assert identity.is_revoked(pem)
    revoked.write_bytes(b"-----BEGIN X509 CRL-----\nnonsense\n-----END X509 CRL-----\n")
    identity.channel_credentials()
    assert identity.is_revoked(pem)
    with pytest.raises(TlsError, match=r"revoked\.pem"):
        TlsIdentity(files, TransportMetrics())


def test_lists_of_revoked_certificates_are_looked_at_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, revoked = Authority(tmp_path), tmp_path / "revoked.pem"
    taken = authority.issue("a")
    Authority(tmp_path / "foreign").revoke(revoked, taken)
    now_s = 100.0
    monkeypatch.setattr("raft.transport.tls.time.monotonic", lambda: now_s)
    identity = TlsIdentity(replace(authority.issue("b"), revoked=revoked), TransportMetrics())
    assert not identity.is_revoked(taken.certificate.read_bytes())
    authority.revoke(revoked, taken)
    assert not identity.is_revoked(taken.certificate.read_bytes()), "not before a second is over"
    now_s += REVOKED_LOOK_S
    assert identity.is_revoked(taken.certificate.read_bytes())


def test_a_malformed_snapshot_part_is_refused(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a")
        code = await call_raw(world, tls, [b"\xff" * 9], method="SendSnapshot")
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert world.nodes[B].metrics.malformed_total == 1
        assert not b.senders

    in_world(tmp_path, scenario)


def test_bad_frames_are_dropped_and_counted_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        foreign = FrameEncoder(CLUSTER[::-1], A).encode([])
        frames = [b"", b"\x0a\x03abc", foreign, forge("a.2"), forge(A)]
        code = await call_raw(world, world.authority.issue("a"), frames)
        assert code is grpc.StatusCode.OK
        assert [envelope.sender for envelope in b.envelopes] == [A]
        metrics = world.nodes[B].metrics
        assert metrics.malformed_total == 2
        assert metrics.foreign_cluster_total == 1
        assert metrics.forged_sender_total == 1

    in_world(tmp_path, scenario)


def test_callers_that_are_no_peers_leave_nothing_behind(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        await world.add(B)
        tls = world.authority.issue("a")
        for incarnation in range(5):
            await call_raw(world, tls, [], f"a.{incarnation}")
        await until(lambda: not world.nodes[B].metrics.peers)

    in_world(tmp_path, scenario)


def test_a_newer_stream_of_a_peer_takes_the_place_of_the_older(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        b = await world.add(B)
        tls = world.authority.issue("a")
        async with raw_call(world, tls) as older:
            await older.initial_metadata()
            async with raw_call(world, tls) as newer:
                assert await older.code() is grpc.StatusCode.CANCELLED
                await newer.write(forge(A))
                await until(lambda: b.envelopes)
                assert b.states == [(A, CONNECTED)]

    in_world(tmp_path, scenario)


def test_rotated_files_are_used_by_the_next_handshake(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        a = await world.add(A, knows=[B])
        b = await world.add(B, knows=[A])
        await until(partial(are_connected, world, A, B))
        # A new authority for everything: a node with an old file could not connect.
        renewed = Authority(tmp_path / "renewed")
        world.authority.file.write_bytes(renewed.file.read_bytes())
        for node, name in ((A, "a"), (B, "b")):
            made = renewed.issue(name)
            for suffix, file in ((".key", made.key), (".pem", made.certificate)):
                (tmp_path / f"{node} as {name}{suffix}").write_bytes(file.read_bytes())
        world.reset(A, B)
        await until(lambda: (B, LOST) in a.states and (A, LOST) in b.states)
        await until(partial(are_connected, world, A, B), lambda: (a.states, b.states))
        assert world.nodes[A].metrics.certificates_reloaded_total == 1
        assert world.nodes[B].metrics.certificates_reloaded_total == 1
        assert await call_raw(world, renewed.issue("a"), []) is grpc.StatusCode.OK

    in_world(tmp_path, scenario)


def test_files_that_do_not_fit_each_other_are_passed_over(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("a")
    metrics = TransportMetrics()
    identity = TlsIdentity(files, metrics)
    other = authority.issue("a", files="other")
    other.certificate.replace(files.certificate)
    identity.channel_credentials()
    assert metrics.certificates_reloaded_total == 0
    other.key.replace(files.key)
    identity.channel_credentials()
    assert metrics.certificates_reloaded_total == 1


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("a")
    files.key.unlink()
    with pytest.raises(TlsError, match=r"a\.key"):
        TlsIdentity(files, TransportMetrics())
    files.key.write_text("no key")
    with pytest.raises(TlsError, match=r"a\.key"):
        TlsIdentity(files, TransportMetrics())


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    async def scenario(world: GrpcWorld) -> None:
        await world.add(B)
        tls = world.authority.issue("a")
        transport = GrpcTransport(
            GrpcConfig(CLUSTER, A, world.address(B), tls, lambda _: True), Recorder(), lambda n: 0
        )
        with pytest.raises(OSError, match="cannot listen"):
            await transport.start()
        await transport.close()

    in_world(tmp_path, scenario)


def watch_a_peer_end(folder: Path) -> None:
    """Runs in a separate process."""

    async def scenario(world: GrpcWorld) -> None:
        a, _ = await world.add(A, knows=[B]), await world.add(B)
        await until(lambda: (B, CONNECTED) in a.states)
        await world.nodes.pop(B).close()
        await until(lambda: (B, LOST) in a.states)

    in_world(folder, scenario)


def test_the_end_of_a_peer_leaves_nothing_on_stderr(tmp_path: Path) -> None:
    """Operators' logs are lines of one format; gRPC would put its own between them."""
    program = (
        "import raft, pathlib, sys\n"
        "from tests.unit.raft.transport.test_grpc_transport import watch_a_peer_end\n"
        "watch_a_peer_end(pathlib.Path(sys.argv[1]))\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_is_the_one_of_peer_proto() -> None:
    service = DESCRIPTOR.services_by_name["Peer"]
    assert service.full_name == SERVICE
    assert set(service.methods_by_name) == {"Exchange", "SendSnapshot"}

"""The endpoint between nodes holds against callers that are no nodes, or break its rules."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from qm.api.gate.identity import Role
from qm.api.gate.receiving import REQUESTS_PER_CALLER_MAX
from qm.cluster.relay import RELAY_BATCHES_MAX
from qm.model.values.commands import ClockTick
from qm.node.config.addresses import host_and_port
from qm.node.relay.channels import Channels
from qm.pb import relay_pb2
from qm.store.codec import encode_command
from raft.transport.metrics import TransportMetrics
from raft.transport.tls import TlsFiles, TlsIdentity
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.unit.api.gate.half_sent import HalfSent

TICK = encode_command(ClockTick(1))


@contextlib.asynccontextmanager
async def caller(node: HarnessNode, files: TlsFiles) -> AsyncIterator[Any]:
    """A stub of a node's relay endpoint, with a given certificate."""
    address = host_and_port(node.host, node.config.raft.relay_port)
    channels = Channels(TlsIdentity(files, TransportMetrics()), lambda _: address)
    try:
        yield await channels.stub(node.name)
    finally:
        await channels.close()


def files_of(node: HarnessNode) -> TlsFiles:
    tls = node.config.tls
    return TlsFiles(tls.authority, tls.certificate, tls.key)


def refusals(node: HarnessNode, reason: str) -> float:
    assert node.node is not None
    registry = node.node.metrics.registry
    return registry.get_sample_value("quorate_relay_refused_total", {"reason": reason}) or 0.0


async def exchange(stub: Any, *frames: relay_pb2.EdgeFrame) -> tuple[grpc.StatusCode, str]:
    """Open a stream, say all this, and return how it ended."""
    call = stub.Exchange(None)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call.write(relay_pb2.EdgeFrames(frames=frames))
        while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
            pass
    return await call.code(), await call.details()


def hello(edge: str, term: int) -> relay_pb2.EdgeFrame:
    return relay_pb2.EdgeFrame(hello=relay_pb2.Hello(edge=edge, term=term))


def batches(count: int) -> list[relay_pb2.EdgeFrame]:
    return [
        relay_pb2.EdgeFrame(batch=relay_pb2.Batch(number=number, payload=TICK))
        for number in range(1, count + 1)
    ]


async def sound(nodes: Harness) -> None:
    """The cluster serves its own nodes as before."""
    for node in nodes.up:
        (outcome,) = await node.cluster.propose(ClockTick(1))
        assert outcome.status == 0


def test_a_node_that_is_no_member_sends_few_requests_at_once() -> None:
    """Each takes memory until it is whole, and is asked for once it is known whose it is."""
    more = 5

    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            files = nodes.certificate("n9", Role.NODE)
            tls = ssl.create_default_context(cafile=files.authority)
            tls.check_hostname = False
            tls.load_cert_chain(files.certificate, files.key)
            tls.set_alpn_protocols(["h2"])
            address = host_and_port(node.host, node.config.raft.relay_port)
            async with HalfSent.to(address, tls) as stranger:
                for _ in range(REQUESTS_PER_CALLER_MAX + more):
                    stranger.begin("/qm.pb.Relay/Inspect", 8 << 20)
                await until(lambda: len(stranger.ended) == more, lambda: stranger.ended)
                assert refusals(node, "crowded") == more
                await sound(nodes)

    run(scenario())


def test_only_nodes_may_call() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            for role in (Role.ADMIN, Role.OPERATOR, Role.CLIENT):
                async with caller(node, nodes.certificate(role.value, role)) as stub:
                    for call in (
                        stub.Propose(relay_pb2.ProposeRequest(payloads=[TICK])),
                        stub.Lead(relay_pb2.LeadRequest(transfer_to="n1")),
                        stub.Inspect(relay_pb2.InspectRequest()),
                        stub.Adopt(relay_pb2.AdoptRequest(raft_id="n1.9")),
                        stub.Drain(relay_pb2.DrainRequest(is_draining=True)),
                    ):
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await call
                        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
                    code, _ = await exchange(stub, hello("n1", 2))
                    assert code is grpc.StatusCode.PERMISSION_DENIED
            assert refusals(node, "role") == 18
            await sound(nodes)

    run(scenario())


def test_an_edge_says_its_own_name_in_the_present_term_and_keeps_the_limits() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            (follower, _) = await nodes.followers()
            term = leader.cluster.leadership.term
            async with caller(leader, files_of(follower)) as stub:
                code, text = await exchange(stub, hello(leader.name, term))
                assert (code, refusals(leader, "name")) == (grpc.StatusCode.PERMISSION_DENIED, 1)
                for stale in (term - 1, term + 1):
                    code, text = await exchange(stub, hello(follower.name, stale))
                    assert code is grpc.StatusCode.FAILED_PRECONDITION
                    assert "does not lead in term" in text
                first = hello(follower.name, term)
                code, text = await exchange(stub, first, *batches(RELAY_BATCHES_MAX + 1))
                assert "RELAY_BATCHES_MAX" in text
                code, text = await exchange(stub, first, relay_pb2.EdgeFrame())
                assert "unexpected frame" in text
                code, text = await exchange(stub, first, first)
                assert "unexpected frame" in text
                nonsense = relay_pb2.Batch(number=1, payload=b"nonsense")
                code, text = await exchange(stub, first, relay_pb2.EdgeFrame(batch=nonsense))
                assert "a header of" in text
                assert refusals(leader, "rule") == 4
            async with caller(follower, files_of(leader)) as stub:
                code, _ = await exchange(stub, hello(leader.name, term))
                assert code is grpc.StatusCode.FAILED_PRECONDITION
            await sound(nodes)

    run(scenario())


def test_an_edge_that_comes_before_the_leader_serves_is_kept_waiting() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            (heir, other) = await nodes.followers()
            may_begin = asyncio.Event()

            async def begin() -> None:
                await may_begin.wait()

            heir.cluster.before_leading = begin
            transfer = asyncio.create_task(leader.service.members.transfer(heir.name))
            await until(lambda: heir.cluster.leadership.node == heir.name)
            term = heir.cluster.leadership.term
            async with caller(heir, files_of(other)) as stub:
                call = stub.Exchange(None)
                await call.write(relay_pb2.EdgeFrames(frames=[hello(other.name, term)]))
                welcome = asyncio.create_task(call.read())
                done, _ = await asyncio.wait((welcome,), timeout=0.2)
                assert (done, heir.cluster.leads_in(term)) == (set(), False)
                may_begin.set()
                frames = (await welcome).frames
                assert [frame.welcome.term for frame in frames] == [term]
                call.cancel()
            await transfer
            await sound(nodes)

    run(scenario())


def test_a_member_is_not_adopted_again() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            async with caller(node, files_of(node)) as stub:
                for raft_id, cluster_id in (("n1.1", bytes(16)), ("n1.2", bytes(16)), ("x.1", b"")):
                    request = relay_pb2.AdoptRequest(raft_id=raft_id, cluster=cluster_id)
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await stub.Adopt(request)
                    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            await sound(nodes)

    run(scenario())


def test_commands_that_are_too_large_or_nonsense_harm_nobody() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            async with caller(node, files_of(node)) as stub:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.Propose(relay_pb2.ProposeRequest(payloads=[bytes(17 << 20)]))
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                for nonsense in (b"", b"\xff" * 40, TICK[:-1], TICK + b"x"):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await stub.Propose(relay_pb2.ProposeRequest(payloads=[nonsense]))
                    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            await sound(nodes)

    run(scenario())

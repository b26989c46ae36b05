"""A relay stream whose channel is closed under it is over, and says so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
from typing_extensions import override

from qm.cluster.relay import LatePackets, RelayEvents
from qm.model.values.effects import Outcome
from qm.node.relay.channels import Unreachable
from qm.node.relay.edge_stream import RemoteStream
from qm.pb.relay_pb2_grpc import RelayServicer, RelayStub, add_RelayServicer_to_server
from tests.unit.raft.transport.worlds import run, until


class Events(RelayEvents):
    """What the edge hears."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    @override
    def on_free(self) -> None:
        pass

    @override
    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        pass

    @override
    def on_late_packets(self, packets: LatePackets) -> None:
        pass

    @override
    def on_end(self, reason: str) -> None:
        self.ends.append(reason)


class Silent(RelayServicer):
    """A leader that takes a stream and says nothing."""

    def __init__(self) -> None:
        self.streams = 0

    @override
    async def Exchange(self, _: Any, context: Any) -> None:  # type: ignore[override]
        self.streams += 1
        while await context.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
            pass


async def with_leader(body: Callable[[Any, Silent], Awaitable[None]]) -> None:
    server: Any = grpc.aio.server()
    leader = Silent()  # type: ignore[abstract]
    add_RelayServicer_to_server(leader, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    try:
        await body(channel, leader)
    finally:
        await channel.close(None)
        await server.stop(None)


def test_a_stream_whose_channel_is_closed_under_it_ends() -> None:
    async def body(channel: Any, leader: Silent) -> None:
        events = Events()
        over: list[RemoteStream] = []

        async def stub() -> Any:
            return RelayStub(channel)

        stream = RemoteStream("n2", 3, stub, events, over.append)
        await until(lambda: leader.streams)
        await channel.close(None)
        await until(lambda: events.ends)
        assert over == [stream]
        assert events.ends == ["the channel was closed"]

    run(with_leader(body))


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Unreachable("away"), OSError("no")])
def test_a_stream_that_gets_no_channel_ends(error: BaseException) -> None:
    async def scenario() -> None:
        events = Events()

        async def stub() -> Any:
            raise error

        RemoteStream("n2", 3, stub, events, lambda _: None)
        await until(lambda: events.ends)

    run(scenario())


def test_a_stream_that_is_closed_here_says_nothing() -> None:
    async def body(channel: Any, leader: Silent) -> None:
        events = Events()

        async def stub() -> Any:
            return RelayStub(channel)

        stream = RemoteStream("n2", 3, stub, events, lambda _: None)
        await until(lambda: leader.streams)
        stream.close()
        await asyncio.wait([stream._task])
        assert not events.ends

    run(with_leader(body))

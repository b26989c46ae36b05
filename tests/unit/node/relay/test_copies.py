"""What another member does not give is missing, whatever its channel does."""

import asyncio
from typing import Any, cast

import grpc.aio
from typing_extensions import override

from qm.node.relay.copies import PeerCopies
from qm.pb import relay_pb2
from qm.pb.relay_pb2_grpc import RelayServicer, RelayStub, add_RelayServicer_to_server
from qm.store.bodies.body_places import BodyPlace
from tests.unit.raft.transport.worlds import run, until

PLACE = BodyPlace(7, 0, 4, 0, 1)


class Slow(RelayServicer):
    """A member that is asked and gives nothing."""

    def __init__(self) -> None:
        self.calls = 0

    async def _wait(self) -> None:
        self.calls += 1
        await asyncio.sleep(60)

    @override
    async def ReadEntry(self, request: Any, context: Any) -> relay_pb2.ReadEntryReply:
        await self._wait()
        return relay_pb2.ReadEntryReply()

    @override
    async def ReadBodies(self, request: Any, context: Any) -> relay_pb2.ReadBodiesReply:
        await self._wait()
        return relay_pb2.ReadBodiesReply()


class OneChannel:
    """Stubs of one channel, as `Channels` gives them."""

    def __init__(self, port: int) -> None:
        self.channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def stub(self, node: str) -> Any:
        return RelayStub(self.channel)


def test_a_channel_that_is_closed_under_a_call_cancels_only_the_call() -> None:
    """Another task closes the channel when the member does not answer it."""

    async def scenario() -> None:
        server: Any = grpc.aio.server()
        member = Slow()  # type: ignore[abstract]
        add_RelayServicer_to_server(member, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = OneChannel(port)
        copies = PeerCopies(cast("Any", channels), lambda: ["b"])
        bodies = asyncio.create_task(copies.bodies([PLACE]))
        entry = asyncio.create_task(copies.entry(7, 1))
        await until(lambda: member.calls == 2)
        await channels.channel.close(None)
        assert await bodies == ({}, False)
        assert not (await entry).is_complete
        assert await copies.bodies([PLACE]) == ({}, False), "its stub is of a closed channel"
        await server.stop(None)

    run(scenario())


def test_who_asks_can_still_be_cancelled() -> None:
    async def scenario() -> None:
        server: Any = grpc.aio.server()
        member = Slow()  # type: ignore[abstract]
        add_RelayServicer_to_server(member, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = OneChannel(port)
        asking = asyncio.create_task(PeerCopies(cast("Any", channels), lambda: ["b"]).entry(7, 1))
        await until(lambda: member.calls)
        asking.cancel()
        await asyncio.wait((asking,))
        assert asking.cancelled()
        await channels.channel.close(None)
        await server.stop(None)

    run(scenario())

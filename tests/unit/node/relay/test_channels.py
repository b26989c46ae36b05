"""What a call between nodes raises when its channel is closed under it."""

import asyncio
from typing import Any

import grpc.aio
import pytest

from qm.node.relay.channels import reply_to
from qm.pb import relay_pb2
from qm.pb.relay_pb2_grpc import RelayServicer, RelayStub, add_RelayServicer_to_server
from tests.unit.raft.transport.worlds import run, until


def test_a_call_whose_channel_is_closed_fails_and_its_task_goes_on() -> None:
    """The channel is closed by another call, to which the node did not answer in time."""

    async def scenario() -> None:
        asked = 0

        class Slow(RelayServicer):
            async def Inspect(self, request: Any, context: Any) -> Any:
                nonlocal asked
                asked += 1
                await asyncio.sleep(60)

        server: Any = grpc.aio.server()
        add_RelayServicer_to_server(Slow(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stub: Any = RelayStub(channel)
        call = reply_to(stub.Inspect, relay_pb2.InspectRequest(), timeout_s=30)
        asking = asyncio.create_task(call)
        await until(lambda: asked)
        await channel.close(None)
        with pytest.raises(grpc.aio.AioRpcError, match="closed under the call"):
            await asking
        with pytest.raises(grpc.aio.AioRpcError, match="closed under the call"):
            await reply_to(stub.Inspect, relay_pb2.InspectRequest(), timeout_s=30)
        await server.stop(None)

    run(scenario())

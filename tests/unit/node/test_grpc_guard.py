"""No address takes all connections of a gRPC listener."""

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from qm.node.grpc_guard import GrpcGuard, GrpcLimits, excess
from qm.observe.metrics import Metrics
from tests.cluster.harness import run
from tests.unit.api.world import eventually

LIMITS = GrpcLimits(total=16, per_address=8, few=3)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, {}),
        ({"a": 8, "b": 4}, {}),
        ({"a": 9}, {"a": 1}),
        ({"a": 12, "b": 4}, {"a": 4}),
        ({"a": 8, "b": 8, "c": 2}, {"a": 3, "b": 3}),
        ({"a": 8, "b": 5, "c": 2}, {"a": 3}),
        ({str(k): 2 for k in range(9)}, {}),
    ],
)
def test_those_who_have_most_give_way(counts: dict[str, int], expected: dict[str, int]) -> None:
    found = excess(counts, LIMITS)
    assert sum(found.values()) == sum(expected.values())
    assert found.keys() == expected.keys()


async def _answer(request: bytes, context: object) -> bytes:
    return request


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def service(self, details: object) -> Any:
        return grpc.unary_unary_rpc_method_handler(_answer)


def test_who_said_nothing_goes_first_and_others_are_answered() -> None:
    """One address could keep everybody else out."""

    async def scenario() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        metrics = Metrics(CollectorRegistry())
        guard = GrpcGuard({port: LIMITS}, metrics)
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            contextlib.AsyncExitStack() as held,
        ):
            call: Any = channel.unary_unary("/x/y", None, None)
            assert await call(b"x" * 10_000) == b"x" * 10_000
            readers = []
            for number in range(20):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(f"127.0.0.{1 + number % 2}", 0)
                )
                held.callback(writer.transport.abort)
                readers.append(reader)
            elsewhere, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=("127.0.0.9", 0)
            )
            held.callback(writer.transport.abort)

            async def ended() -> int:
                await guard.look()
                return sum(reader.at_eof() for reader in readers)

            for reader in (*readers, elsewhere):
                task = asyncio.create_task(_drain(reader))
                held.callback(task.cancel)
            # 12 stay: the last quarter is for those who have few.
            await eventually(ended, lambda count: count == 10)
            assert not elsewhere.at_eof()
            assert await call(b"y") == b"y"
            count = metrics.registry.get_sample_value(
                "quorate_grpc_connections_ended_total", {"port": str(port)}
            )
            assert count == 10
        await server.stop(None)

    run(scenario())


async def _drain(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(4_096):
            pass

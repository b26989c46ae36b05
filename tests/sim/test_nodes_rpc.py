"""The simulator's gRPC behaves as the real one in everything that the product relies on."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.sim.nodes.loop import SimLoop
from tests.sim.nodes.network import Network
from tests.sim.nodes.rpc import Channel, Server
from tests.sim.nodes.world import World

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
BOUND_S = 5.0
Step = Callable[["Talk"], Awaitable[Any]]


class Servicer:
    """Answers, refuses, streams, waits."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """How the last stream was seen to end here."""

    async def echo(self, request: bytes, context: Any) -> bytes:
        del context
        return request

    async def ask(self, requests: Any, context: Any) -> bytes:
        """Ask for the request when it is wanted, whatever the client takes the call for."""
        del requests
        first: bytes = await context.read()
        return first + (b" alone" if await context.read() is EOF else b" and more")

    async def refuse(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now", (("why", "because"),))
        return request

    async def fail(self, request: bytes, context: Any) -> bytes:
        raise ValueError("a bug")

    async def talk(self, requests: Any, context: Any) -> None:
        """Echo by hand, as the transports do."""
        del requests
        await context.send_initial_metadata((("hello", "there"),))
        try:
            while (message := await context.read()) is not EOF:
                if message == b"abort":
                    await context.abort(grpc.StatusCode.CANCELLED, "another took its place")
                if message == b"sleep":
                    await asyncio.sleep(10 * BOUND_S)
                await context.write(message)
            self.ended.set_result("EOF")
        except asyncio.CancelledError:
            self.ended.set_result("CancelledError")
            raise

    async def count(self, request: bytes, context: Any) -> Any:
        for number in range(int(request)):
            yield str(number).encode()

    def handlers(self) -> Any:
        methods: dict[str, Any] = {
            "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "Ask": grpc.stream_unary_rpc_method_handler(self.ask),
            "Refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
        }
        return grpc.method_handlers_generic_handler("t.T", methods)


class Talk:
    """What a step has: a server that runs, and how to call it."""

    def __init__(self, server: Any, channel: Callable[[str], Any], address: str) -> None:
        self.server = server
        self.open = channel
        self.address = address
        self.channel = channel(address)
        self.servicer = Servicer()

    def unary(self, method: str, request: bytes, **options: Any) -> Any:
        return self.channel.unary_unary(f"/t.T/{method}")(request, **options)

    async def has_ended(self) -> bool:
        """Return whether the servicer saw its reading end; the real one may see it either way."""
        return await outcome(self.servicer.ended) in ("EOF", "CancelledError")

    async def stream(self) -> Any:
        call = self.channel.stream_stream("/t.T/Talk")()
        assert dict(await call.initial_metadata())["hello"] == "there"
        await call.write(b"one")
        assert await call.read() == b"one"
        return call


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """Return what came of it, errors by their type, code and text."""
    try:
        return await asyncio.wait_for(_value(awaitable), BOUND_S)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    except asyncio.CancelledError:
        return "CancelledError"
    except Exception as error:
        return type(error).__name__


async def _value(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def echo(talk: Talk) -> Any:
    return await outcome(talk.unary("Echo", b"hello"))


async def asked_for(talk: Talk) -> Any:
    return await outcome(talk.unary("Ask", b"hello"))


async def refuse(talk: Talk) -> Any:
    call = talk.unary("Refuse", b"")
    return await outcome(call), dict(await call.trailing_metadata())["why"], await call.code()


async def fail(talk: Talk) -> Any:
    code, _ = await outcome(talk.unary("Fail", b""))
    return code


async def unimplemented(talk: Talk) -> Any:
    code, _ = await outcome(talk.unary("Nothing", b""))
    return code


async def refused_connection(talk: Talk) -> Any:
    other = talk.open(talk.address)
    await talk.server.stop(None)
    code, _ = await outcome(other.unary_unary("/t.T/Echo")(b""))
    return code


async def stream_ends_well(talk: Talk) -> Any:
    call = await talk.stream()
    await call.done_writing()
    return await outcome(call.read()) is EOF, await call.code(), await outcome(call.write(b"x"))


async def stream_is_aborted(talk: Talk) -> Any:
    call = await talk.stream()
    await call.write(b"abort")
    return await outcome(call.read()), await outcome(call.write(b"x"))


async def cancelled_here(talk: Talk) -> Any:
    call = await talk.stream()
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    call.cancel()
    read = await outcome(reading)
    return read, await call.code(), call.cancelled(), await talk.has_ended()


async def cancelled_while_the_servicer_is_elsewhere(talk: Talk) -> Any:
    call = await talk.stream()
    await call.write(b"sleep")
    await asyncio.sleep(0.1)
    call.cancel()
    return await outcome(talk.servicer.ended)


async def channel_closed_under_a_stream(talk: Talk) -> Any:
    """Finding 18: whoever reads gets CancelledError, though nothing cancelled its task."""
    call = await talk.stream()
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    await talk.channel.close(None)
    read = await outcome(reading)
    return read, await call.code(), await talk.has_ended()


async def call_on_a_closed_channel(talk: Talk) -> Any:
    await talk.channel.close(None)

    async def call() -> Any:
        return await talk.unary("Echo", b"")

    return await outcome(call())


async def server_stops_under_a_stream(talk: Talk) -> Any:
    call = await talk.stream()
    reading = asyncio.ensure_future(call.read())
    await talk.server.stop(None)
    read = await outcome(reading)
    assert isinstance(read, tuple)
    return read[0] in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


async def answers_stream(talk: Talk) -> Any:
    call = talk.channel.unary_stream("/t.T/Count")(b"40")
    return [message async for message in call]


async def deadline(talk: Talk) -> Any:
    call = talk.channel.stream_stream("/t.T/Talk")(timeout=0.2)
    await call.initial_metadata()
    code, _ = await outcome(call.read())
    return code


STEPS: tuple[Step, ...] = (
    echo,
    asked_for,
    refuse,
    fail,
    unimplemented,
    refused_connection,
    stream_ends_well,
    stream_is_aborted,
    cancelled_here,
    cancelled_while_the_servicer_is_elsewhere,
    channel_closed_under_a_stream,
    call_on_a_closed_channel,
    server_stops_under_a_stream,
    answers_stream,
    deadline,
)


async def converse(step: Step, server: Any, channel: Callable[[str], Any], address: str) -> Any:
    talk = Talk(server, channel, address)
    server.add_generic_rpc_handlers((talk.servicer.handlers(),))
    server.add_insecure_port(address)
    await server.start()
    try:
        return await step(talk)
    finally:
        await talk.channel.close(None)
        await server.stop(None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def really(step: Step) -> Any:
    async def main() -> Any:
        address = f"127.0.0.1:{free_port()}"
        return await converse(step, grpc.aio.server(), grpc.aio.insecure_channel, address)

    return asyncio.run(main())


def simulated(step: Step, folder: Path) -> Any:
    world = World(1, folder)
    network = Network(world)
    loop = SimLoop(world, network, "n1", "127.0.0.1", "node")
    results: list[Any] = []

    async def main() -> None:
        def channel(address: str) -> Channel:
            return Channel(network, address)

        try:
            results.append(await converse(step, Server(network), channel, "127.0.0.1:1"))
        except BaseException as error:
            results.append(error)

    loop.call_soon(lambda: loop.create_task(main()))
    world.run(lambda: bool(results))
    return results[0]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_the_simulated_grpc_does_what_the_real_one_does(step: Step, tmp_path: Path) -> None:
    assert simulated(step, tmp_path) == really(step)

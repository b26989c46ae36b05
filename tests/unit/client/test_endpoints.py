"""Endpoints as callers write them, and why a node is not reached."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc import aio

from qm.api.gate.identity import Role
from qm.client.calls import Calls, Tls
from qm.client.endpoints import API_PORT, cause_of, full_endpoint
from qm.client.errors import CallFailed, Unavailable
from qm.node.config import schema
from qm.node.upkeep.pki import create_authority, issue
from qm.pb import control_pb2
from tests.unit.client.threaded import threaded_node

HOST = "127.0.0.57"


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[str, Tls]]:
    with threaded_node() as reached:
        yield reached


@contextlib.asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[str]:
    """A server that says this and closes, or that says nothing at all."""

    served: list[asyncio.StreamWriter] = []

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        if answer is not None:
            writer.write(answer)
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
        for writer in served:
            writer.transport.abort()
    await asyncio.sleep(0)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def stranger(folder: Path) -> Tls:
    """Files of an authority and a caller of another cluster."""
    authority = create_authority(folder, "other")
    certificate, key = issue(folder, "stranger", Role.ADMIN)
    return Tls(authority, certificate, key)


def why_not(endpoint: str, tls: Tls | None = None, limit_s: float = 5.0) -> str:
    context = tls.context() if tls is not None else None
    name = tls.server_name if tls is not None else ""
    return asyncio.run(cause_of(endpoint, context, name, limit_s))


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("n1", f"n1:{API_PORT}"),
        ("n1:7", "n1:7"),
        ("10.0.0.1", f"10.0.0.1:{API_PORT}"),
        ("::1", f"[::1]:{API_PORT}"),
        ("[::1]", f"[::1]:{API_PORT}"),
        ("[fd00::1]:65535", "[fd00::1]:65535"),
    ],
)
def test_an_endpoint_has_the_api_s_port_unless_it_says_another(given: str, full: str) -> None:
    assert full_endpoint(given) == full
    assert API_PORT == schema.API_PORT


@pytest.mark.parametrize(
    "given", ["", ":1811", "n1:", "n1:0", "n1:65536", "n1:x", "[::1", "[::1]7"]
)
def test_what_is_no_endpoint_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        full_endpoint(given)


def test_a_node_that_answers_is_reached(node: tuple[str, Tls]) -> None:
    endpoint, tls = node
    assert why_not(endpoint, tls) == ""


def test_each_obstacle_has_its_words(
    node: tuple[str, Tls], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint, tls = node
    closed = f"{HOST}:{free_port()}"
    assert "refused" in why_not(closed)
    assert "refused" in why_not(closed, tls)
    wrong_name = msgspec.structs.replace(tls, server_name="other.example")
    assert "is not trusted" in why_not(endpoint, wrong_name)
    assert "without TLS" in why_not(endpoint)
    strange = stranger(tmp_path)
    distrusting = msgspec.structs.replace(tls, authority=strange.authority)
    assert "is not trusted" in why_not(endpoint, distrusting)
    caller = msgspec.structs.replace(strange, authority=tls.authority)
    assert "may refuse this certificate" in why_not(endpoint, caller)

    async def others() -> None:
        async with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web, listening(None) as mute:
            assert "no TLS with" in await cause_of(web, tls.context(), "", 5.0)
            assert "no answer" in await cause_of(mute, tls.context(), "", 0.1)

    asyncio.run(others())

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "'nowhere.invalid' cannot be resolved: Name or service" in why_not("nowhere.invalid")


def test_calls_end_with_the_causes_when_no_node_is_reached(node: tuple[str, Tls]) -> None:
    endpoint, tls = node

    async def ask(endpoints: list[str], connect_s: float) -> str:
        calls = Calls(endpoints, tls, connect_s)
        try:
            await calls.call(lambda s: s.cluster.GetStatus, control_pb2.GetStatusRequest())
        except Unavailable as error:
            return str(error)
        finally:
            await calls.close()
        return calls.endpoint

    async def scenario() -> None:
        closed = [f"{HOST}:{free_port()}" for _ in range(2)]
        begun = time.monotonic()
        said = await ask(closed, 20.0)
        assert time.monotonic() - begun < 10.0, "it does not wait for what is clear"
        assert all(each.partition(":")[2] in said for each in closed)
        assert said.count("refused") == 2
        assert await ask([closed[0], endpoint], 20.0) == endpoint
        async with listening(None) as mute:
            assert "within 0.2 s" in await ask([mute], 0.2)

    asyncio.run(scenario())


def test_a_refusal_counts_where_nobody_was_reached_before(node: tuple[str, Tls]) -> None:
    """gRPC tells a call that was never sent from one whose connection broke."""
    endpoint, tls = node

    async def refuse(_request: object, **_options: object) -> control_pb2.ClusterStatus:
        raise aio.AioRpcError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, aio.Metadata(), aio.Metadata(), "too many calls", ""
        )

    async def scenario() -> None:
        calls = Calls([f"{HOST}:{free_port()}", endpoint], tls)
        with pytest.raises(CallFailed, match="too many calls"):
            await calls.call(
                lambda stubs: refuse if calls.endpoint == endpoint else stubs.cluster.GetStatus,
                control_pb2.GetStatusRequest(),
            )
        await calls.close()

    asyncio.run(scenario())

"""Health over HTTP: the status codes that load balancers and probes act on."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
import uvloop
from prometheus_client import CollectorRegistry

from qm.node import http_guard
from qm.node.http import METRICS_SHARE_MAX, Exposition, HttpServer
from qm.observe.metrics import Metrics
from raft.transport.accepting import Limits

HOST = "127.0.0.1"


class Node:
    """A node that lost its leader some seconds ago."""

    leaderless_s = 3.0
    awaits_s = 5.0

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        awaited_s = self.awaits_s if no_leader_max_s is None else no_leader_max_s
        return "there is no leader" if self.leaderless_s >= awaited_s else None

    def leader(self) -> str | None:
        return None

    def leads(self) -> bool:
        return False


class Recovering(Node):
    """One that has a leader again when it is asked for the third time."""

    asked = 0

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        self.asked += 1
        return super().not_ready_reason(no_leader_max_s) if self.asked < 3 else None


async def nothing() -> None:
    """There are no gauges."""


def server_of(node: Node) -> HttpServer:
    metrics = Metrics(CollectorRegistry())
    return HttpServer(
        HOST, 0, node, metrics.registry, nothing, metrics.counter("quorate_http_refused_total")
    )


async def ask(node: Node, path: str) -> tuple[int, str]:
    """Ask a node's endpoint."""
    server = server_of(node)
    await server.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{server.port}{path}") as response,
        ):
            return response.status, await response.text()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/livez", (200, "alive\n")),
        ("/readyz", (200, "ready\n")),
        ("/readyz?no_leader_max_s=3.5", (200, "ready\n")),
        ("/readyz?no_leader_max_s=3", (503, "there is no leader\n")),
        ("/readyz?no_leader_max_s=0", (503, "there is no leader\n")),
        ("/readyz?hold=0.1", (200, "ready\n")),
        ("/readyz?hold=0.1&no_leader_max_s=0", (503, "there is no leader\n")),
        ("/leader", (503, "there is no leader\n")),
    ],
)
def test_three_endpoints_say_three_things(path: str, answer: tuple[int, str]) -> None:
    assert uvloop.run(ask(Node(), path)) == answer


def test_an_answer_that_is_kept_back_says_whether_the_node_was_ready_at_any_time() -> None:
    node = Recovering()
    assert uvloop.run(ask(node, "/readyz?no_leader_max_s=0")) == (503, "there is no leader\n")
    answer = uvloop.run(ask(node, "/readyz?hold=0.3&no_leader_max_s=0"))
    assert (answer, node.asked) == ((200, "ready\n"), 3)


@pytest.mark.parametrize("key", ["hold", "no_leader_max_s"])
@pytest.mark.parametrize("seconds", ["", "soon", "-1", "nan", "inf", "1e400"])
def test_a_query_that_says_no_time_is_refused(key: str, seconds: str) -> None:
    status, text = uvloop.run(ask(Node(), f"/readyz?{key}={seconds}"))
    assert (status, text) == (400, "no_leader_max_s, hold: seconds, 0 or more\n")


async def half_sent(server: HttpServer, text: bytes, source: str = HOST) -> asyncio.StreamReader:
    """Begin a request and stop there."""
    reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(source, 0))
    writer.write(text)
    await writer.drain()
    HELD.append(writer)
    return reader


HELD: list[asyncio.StreamWriter] = []


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 10) == b""
    except ConnectionError:
        return True


def in_server(body: Callable[[HttpServer], Awaitable[None]]) -> None:
    async def scenario() -> None:
        server = server_of(Node())
        await server.start()
        try:
            await body(server)
        finally:
            for writer in HELD:
                writer.close()
            HELD.clear()
            await server.stop()

    uvloop.run(asyncio.wait_for(scenario(), 60))  # the loop of a node


async def livez(server: HttpServer) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{server.port}/livez") as response,
    ):
        return response.status


@pytest.mark.parametrize("text", [b"", b"GET /livez HTTP/1.1\r\nX: "])
def test_a_request_that_does_not_come_ends_its_connection(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_guard, "HEADER_MAX_S", 0.2)

    async def body(server: HttpServer) -> None:
        assert await is_closed(await half_sent(server, text))

    in_server(body)


def test_a_connection_that_is_kept_has_the_same_time_for_its_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_guard, "HEADER_MAX_S", 0.3)

    async def body(server: HttpServer) -> None:
        request = b"GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"
        reader = await half_sent(server, request)
        for _ in range(3):
            answer = await reader.readuntil(b"alive\n")
            assert b"200 OK" in answer
            await asyncio.sleep(0.15)
            HELD[0].write(request)
        await reader.readuntil(b"alive\n")
        assert await is_closed(reader)

    in_server(body)


def test_half_sent_requests_take_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address, and of all; whoever comes from elsewhere is answered meanwhile."""
    monkeypatch.setattr(http_guard, "LIMITS", Limits(6, 4, 6, 1_000, 1_000))

    async def body(server: HttpServer) -> None:
        half = b"GET /livez HTTP/1.1\r\nX: "
        of_one = [await half_sent(server, half, "127.0.0.9") for _ in range(5)]
        assert await is_closed(of_one[-1])
        assert await livez(server) == 200
        others = [await half_sent(server, half, f"127.0.1.{k}") for k in range(1, 4)]
        assert await is_closed(others[-1])
        for writer in HELD:
            writer.transport.abort()
        await asyncio.sleep(0)
        while await livez_or_none(server) != 200:
            pass

    async def livez_or_none(server: HttpServer) -> int | None:
        try:
            return await livez(server)
        except aiohttp.ClientError:
            return None

    in_server(body)


def test_a_flood_of_requests_waits_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a part of a millisecond of the event loop, which belongs to the cluster."""
    monkeypatch.setattr(http_guard, "REQUESTS_PER_ADDRESS_MAX_PER_S", 20)

    async def body(server: HttpServer) -> None:
        request = b"GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"
        loop = asyncio.get_running_loop()
        began = loop.time()
        flood = [await half_sent(server, request * 30, "127.0.0.9") for _ in range(2)]
        assert await livez(server) == 200
        assert loop.time() - began < 1
        for reader in flood:
            for _ in range(25):
                await reader.readuntil(b"alive\n")
        assert loop.time() - began > 1.5

    in_server(body)


BAD_REQUESTS = (
    b"\xff\xfe\r\n\r\n",
    b"GET /livez HTTP/9.9\r\n\r\n",
    b"GET " + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nX: " + b"b" * 20_000 + b"\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)


def test_bad_requests_are_answered_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each would have written a traceback."""

    async def body(server: HttpServer) -> None:
        for request in BAD_REQUESTS * 3:
            reader = await half_sent(server, request)
            answer = await asyncio.wait_for(reader.read(64), 10)
            assert b" 40" in answer
        assert await livez(server) == 200

    in_server(body)
    lines = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [line.exc_info for line in lines] == [None]


class Slow:
    """Metrics that take a second each time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.made = 0
        self.is_broken = False

    async def refresh(self) -> None:
        self.now_s += 1
        await asyncio.sleep(0)
        if self.is_broken:
            raise OSError("the disk is gone")

    def render(self) -> bytes:
        self.made += 1
        return b"%d" % self.made

    def exposition(self) -> Exposition:
        return Exposition(self.refresh, self.render, lambda: self.now_s)


def test_many_scrapers_cost_as_much_as_a_few() -> None:
    async def scenario() -> None:
        slow = Slow()
        exposition = slow.exposition()
        assert await asyncio.gather(*(exposition.text() for _ in range(100))) == [b"1"] * 100
        slow.now_s = 1 / METRICS_SHARE_MAX - 0.1
        assert await exposition.text() == b"1"
        slow.now_s += 0.1
        assert await exposition.text() == b"2"

    uvloop.run(scenario())


def test_metrics_that_could_not_be_made_are_made_again() -> None:
    async def scenario() -> None:
        slow = Slow()
        exposition = slow.exposition()
        slow.is_broken = True
        with pytest.raises(OSError, match="gone"):
            await exposition.text()
        slow.is_broken = False
        assert await exposition.text() == b"1"

    uvloop.run(scenario())


def test_metrics_are_written_beside_the_event_loop() -> None:
    """They held it up for as long as that takes, and a leader was taken for dead."""

    def render() -> bytes:
        time.sleep(0.3)
        return b"1"

    async def scenario() -> None:
        asked = asyncio.create_task(Exposition(nothing, render, time.monotonic).text())
        latest = 0.0
        while not asked.done():
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            latest = max(latest, time.monotonic() - due)
        assert asked.result() == b"1"
        assert latest < 0.2

    uvloop.run(scenario())

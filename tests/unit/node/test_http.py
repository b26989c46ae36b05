"""Health over HTTP: the status codes that load balancers and probes act on."""

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from qm.node.http import HttpServer

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


async def ask(node: Node, path: str) -> tuple[int, str]:
    """Ask a node's endpoint."""
    server = HttpServer(HOST, 0, node, CollectorRegistry(), nothing)
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
    assert asyncio.run(ask(Node(), path)) == answer


def test_an_answer_that_is_kept_back_says_whether_the_node_was_ready_at_any_time() -> None:
    node = Recovering()
    assert asyncio.run(ask(node, "/readyz?no_leader_max_s=0")) == (503, "there is no leader\n")
    answer = asyncio.run(ask(node, "/readyz?hold=0.3&no_leader_max_s=0"))
    assert (answer, node.asked) == ((200, "ready\n"), 3)


@pytest.mark.parametrize("key", ["hold", "no_leader_max_s"])
@pytest.mark.parametrize("seconds", ["", "soon", "-1", "nan", "inf", "1e400"])
def test_a_query_that_says_no_time_is_refused(key: str, seconds: str) -> None:
    status, text = asyncio.run(ask(Node(), f"/readyz?{key}={seconds}"))
    assert (status, text) == (400, "no_leader_max_s, hold: seconds, 0 or more\n")

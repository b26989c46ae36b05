"""A real node in its own thread, for callers with no event loop or with their own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.node.config.schema import API_PORT, NodeConfig
from tests.cluster.harness import cluster, run

START_S = 60
SHARED_S = 900.0
"""All tests of a module may share a node, on a machine that has more to do."""
_LOOK_EVERY_S = 0.05
Change = Callable[[NodeConfig], NodeConfig]


@contextlib.contextmanager
def threaded_node(change: Change = lambda config: config) -> Iterator[tuple[str, Tls]]:
    """Run a cluster of one node; yield its API's endpoint and an admin's files."""
    with threaded_callers("admin", change=change) as (endpoint, (tls,)):
        yield endpoint, tls


@contextlib.contextmanager
def threaded_callers(
    *roles: str, change: Change = lambda config: config
) -> Iterator[tuple[str, list[Tls]]]:
    """Run a cluster of one node; yield its API's endpoint and the files of a caller of each role,
    who is called like it. `change` edits the node's configuration.
    """
    ready, stop = threading.Event(), threading.Event()
    reached: list[tuple[str, list[Tls]]] = []
    failures: list[BaseException] = []

    async def main() -> None:
        async with cluster(1, change=change) as nodes:
            node = await nodes.leader()
            found = [nodes.certificate(role, Role(role)) for role in roles]
            tls = [Tls(each.authority, each.certificate, each.key) for each in found]
            reached.append((f"{node.host}:{API_PORT}", tls))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(_LOOK_EVERY_S)

    def thread() -> None:
        try:
            run(main(), SHARED_S)
        except BaseException as error:
            failures.append(error)
            ready.set()

    runner = threading.Thread(target=thread, name="cluster")
    runner.start()
    try:
        assert ready.wait(START_S)
        assert not failures, failures
        yield reached[0]
    finally:
        stop.set()
        runner.join()
    assert not failures, failures

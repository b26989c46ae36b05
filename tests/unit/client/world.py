"""Clients of a real cluster in one process, over real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from qm.client.calls import Tls
from qm.client.client import Client
from qm.model.queries import find_by_path
from qm.model.values.commands import CreateQueue, Request, SetQueue
from qm.model.values.limits import APPLY_VERSION
from qm.node.config.schema import API_PORT, NodeConfig
from tests.cluster.harness import Harness, cluster, run, until

__all__ = ["Clients", "clients", "run", "until"]

PLAIN = "QUORATE\\private$\\plain"
TRANSACTIONAL = "QUORATE\\private$\\transactional"
OTHER = "QUORATE\\private$\\other"


class Clients:
    """Makes clients and queues; kills nodes."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        files = harness.certificate("admin")
        self.tls = Tls(files.authority, files.certificate, files.key)

    @property
    def endpoints(self) -> list[str]:
        return self.ordered()

    @contextlib.asynccontextmanager
    async def client(
        self, client_id: str = "", *, memory: Path | None = None, first: str = ""
    ) -> AsyncIterator[Client]:
        """An open client; `first` names the node that it asks first."""
        async with self.new(client_id, memory=memory, first=first) as client:
            yield client

    def new(self, client_id: str = "", *, memory: Path | None = None, first: str = "") -> Client:
        """A client that is not open."""
        return Client(self.ordered(first), tls=self.tls, client_id=client_id, memory=memory)

    def ordered(self, first: str = "") -> list[str]:
        nodes = sorted(self.harness.up, key=lambda node: (node.name != first, node.name))
        return [f"{node.host}:{API_PORT}" for node in nodes]

    async def create(self, path: str, *, is_transactional: bool = False) -> None:
        leader = await self.harness.leader()
        (outcome,) = await leader.cluster.propose(
            CreateQueue(
                Request("", 0, 0),
                secrets.token_bytes(16),
                secrets.token_bytes(16),
                path,
                {"transactional": msgspec.msgpack.encode(is_transactional)},
                b"",
                (),
            )
        )
        assert outcome.status == 0, hex(outcome.status)

    async def limit(self, path: str, **attributes: int) -> None:
        """Set attributes of a queue, once the cluster is at this build's apply version."""
        leader = await self.harness.leader()
        view = leader.cluster.view
        await until(lambda: view.counters().apply_version == APPLY_VERSION)
        changes = {name: msgspec.msgpack.encode(value) for name, value in attributes.items()}
        queue_id = find_by_path(view, path).queue_id
        (outcome,) = await leader.cluster.propose(
            SetQueue(Request("", 0, 0), queue_id, changes, ())
        )
        assert outcome.status == 0, hex(outcome.status)

    async def until_read_waits(self) -> None:
        """Wait until a read waits at some node."""

        def waiting() -> float:
            nodes = [each.node for each in self.harness.up if each.node is not None]
            name = "quorate_waiting_readers"
            return sum(node.metrics.registry.get_sample_value(name) or 0.0 for node in nodes)

        await until(waiting, waiting)

    async def kill_leader(self) -> str:
        leader = await self.harness.leader()
        await self.harness.kill(leader.name)
        return leader.name


@contextlib.asynccontextmanager
async def clients(
    count: int = 1, change: Callable[[NodeConfig], NodeConfig] = lambda config: config
) -> AsyncIterator[Clients]:
    """`change`: see `tests.cluster.harness.cluster`."""
    async with cluster(count, change=change) as harness:
        await harness.followers()
        found = Clients(harness)
        await found.create(PLAIN)
        await found.create(OTHER)
        await found.create(TRANSACTIONAL, is_transactional=True)
        yield found


def scenario(
    count: int = 1,
) -> Callable[[Callable[[Clients], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Make a test of a coroutine that wants a cluster of `count` nodes."""

    def decorate(work: Callable[[Clients], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with clients(count) as made:
                await work(made)

        def test() -> None:
            run(main())

        test.__name__ = work.__name__
        test.__qualname__ = work.__qualname__
        test.__module__ = work.__module__
        test.__dict__.update(work.__dict__)
        return test

    return decorate


async def abandon(client: Client) -> None:
    """Let a client end as a killed process would: no goodbye."""
    renewing = client._renewing
    if renewing is not None:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    await client.wire.close()


async def turns(count: int) -> None:
    """Let the loop run this many times."""
    for _ in range(count):
        await asyncio.sleep(0)

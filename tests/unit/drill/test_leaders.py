"""Who leads, as it is seen from outside."""

import asyncio
from types import SimpleNamespace
from typing import cast

from aiohttp import web

from qm.drill.leaders import watch_leaders
from qm.drill.targets.target import DrillNode, Target

WAIT_S = 30.0


class Node:
    """Answers at /leader, or does not run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leads = False
        self.asked = asyncio.Event()
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/leader", self._answer)])
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        self.asked.set()
        return web.Response(status=200 if self.leads else 503)


def test_a_leader_that_died_and_leads_again_was_elected_again() -> None:
    async def scenario() -> None:
        first, second = nodes = [Node("n1"), Node("n2")]
        for node in nodes:
            await node.start()
        first.leads = True
        told: asyncio.Queue[str] = asyncio.Queue()
        seen = tuple(DrillNode(n.name, "", "", f"http://127.0.0.1:{n.port}") for n in nodes)
        target = cast("Target", SimpleNamespace(nodes=seen))
        watching = asyncio.create_task(watch_leaders(target, told.put_nowait))
        await asked(first)
        await asked(first)
        await first.stop()
        for _ in range(3):
            await asked(second)
        await first.start()
        assert await asyncio.wait_for(told.get(), WAIT_S) == "n1"
        first.leads, second.leads = False, True
        assert await asyncio.wait_for(told.get(), WAIT_S) == "n2"
        assert told.empty()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for node in nodes:
            await node.stop()

    asyncio.run(scenario())


async def asked(node: Node) -> None:
    """Wait until it is asked again."""
    node.asked.clear()
    await asyncio.wait_for(node.asked.wait(), WAIT_S)

"""What replicas and queues say of themselves after the load."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web

from qm.client.calls import Calls
from qm.drill.agreement import disagreement, sums
from qm.drill.targets.target import DrillNode, Target
from qm.pb import control_pb2

HOST = "127.0.0.1"


def audited(marks: Sequence[str]) -> str:
    """Have a node whose audits come to `marks`, one after the other; return what is said."""

    async def scenario() -> str:
        said: list[str] = []

        async def metrics(_: web.Request) -> web.Response:
            lines = ["# TYPE quorate_audits_total counter"]
            for result in ("agreed", "differ", "incomplete"):
                lines.append(f'quorate_audits_total{{result="{result}"}} {said.count(result)}.0')
            return web.Response(text="\n".join(lines) + "\n")

        async def call(*_: object) -> None:
            said.append(marks[len(said)])

        application = web.Application()
        application.router.add_get("/metrics", metrics)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        port = runner.addresses[0][1]
        target = SimpleNamespace(nodes=[DrillNode("n1", HOST, "", f"http://{HOST}:{port}")])
        try:
            return await disagreement(cast(Target, target), cast(Calls, SimpleNamespace(call=call)))
        finally:
            await runner.cleanup()

    return asyncio.run(scenario())


def test_replicas_agree_or_do_not() -> None:
    assert audited(["agreed"]) == ""
    assert "differ" in audited(["differ"])


def counted(remaining: int, **found: Any) -> str:
    """Return what is said of one queue."""

    async def call(_: Callable[..., Awaitable[object]], __: object) -> control_pb2.Queue:
        return control_pb2.Queue(**found)

    wire = cast(Calls, SimpleNamespace(call=call))
    return asyncio.run(sums(wire, ["q"], remaining))


def test_queues_add_up_with_what_was_seen_in_them() -> None:
    assert counted(0) == ""
    assert counted(2, message_count=2, total_bytes=10) == ""
    assert "2 messages are counted, 1 seen" in counted(1, message_count=2)
    statistics = control_pb2.QueueStatistics(quota_used_bytes=7)
    assert "uses 7 bytes" in counted(0, statistics=statistics)

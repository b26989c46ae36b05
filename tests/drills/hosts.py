"""Drills of a test on real nodes, each in a network namespace. Needs root."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from qm.drill.runner import Round, Settings, run_round
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.namespace_target import NamespaceTarget

RATE_PER_S = 50.0


def quiet(text: str) -> None:
    del text


@contextlib.asynccontextmanager
async def hosts(folder: Path) -> AsyncIterator[NamespaceTarget]:
    target = NamespaceTarget("netns", folder, quiet)
    try:
        await target.up()
        yield target
    finally:
        await target.down()
        target.remove()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    # As the command does: uvloop forks where gRPC's threads run.
    asyncio.run(scenario())


async def drilled(target: NamespaceTarget, name: str) -> Round:
    return await run_round(target, SCENARIOS[name], Settings(1, RATE_PER_S), lambda _: None)

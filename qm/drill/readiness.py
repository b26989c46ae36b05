"""Waiting until nodes serve, as a load balancer asks them."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import aiohttp

from qm.drill.target import DrillNode, TargetFailed

READY_WAIT_S: Final = 60.0
ASK_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.05


async def until_ready(nodes: Iterable[DrillNode], wait_s: float = READY_WAIT_S) -> None:
    """Wait until all nodes serve. Raises TargetFailed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        for node in nodes:
            while reason := await _not_ready(http, node.http):
                if loop.time() > end:
                    raise TargetFailed(f"{node.name} is not ready: {reason}")
                await asyncio.sleep(POLL_S)


async def _not_ready(http: aiohttp.ClientSession, url: str) -> str:
    try:
        async with http.get(f"{url}/readyz") as response:
            return "" if response.status == HTTPStatus.OK else await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)

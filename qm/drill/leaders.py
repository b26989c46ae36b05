"""The leader of a cluster under drill, as its nodes' health endpoints report it."""

import asyncio
from collections.abc import Callable
from typing import Final

import aiohttp

from qm.drill.targets.target import DrillNode, Target, TargetFailed

LEADER_WAIT_S: Final = 30.0
POLL_S: Final = 0.02
WATCH_EVERY_S: Final = 0.2
ANSWER_MAX_S: Final = 0.5
"""Timeout of one query: a node that hangs does not count as leader."""


async def leader_of(target: Target) -> str:
    """Return the leader, waiting for one. Raises TargetFailed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LEADER_WAIT_S
    async with _session() as http:
        while loop.time() < end:
            for node in target.nodes:
                if await _leads(http, node):
                    return node.name
            await asyncio.sleep(POLL_S)
    raise TargetFailed(f"no node has led for {LEADER_WAIT_S:.0f} s")


async def watch_leaders(target: Target, on_elected: Callable[[str], None]) -> None:
    """Report every node that is seen to lead and did not lead before, until cancelled.

    A node that gives no answer may still lead; a process that is gone does not, and may be elected
    again.
    """
    known: set[str] | None = None
    async with _session() as http:
        while True:
            nodes = target.nodes
            answers = await asyncio.gather(*(_leads(http, node) for node in nodes))
            leads = {node.name: answer for node, answer in zip(nodes, answers, strict=True)}
            leaders = {name for name, answer in leads.items() if answer}
            for name in sorted(leaders - known) if known is not None else ():
                on_elected(name)
            if known is None:
                known = leaders
            else:
                known = leaders | {name for name in known if leads.get(name) is None}
            await asyncio.sleep(WATCH_EVERY_S)


async def _leads(http: aiohttp.ClientSession, node: DrillNode) -> bool | None:
    """Return whether a node leads; None if it gives no answer but may be running."""
    try:
        async with http.get(f"{node.http}/leader") as response:
            return response.ok
    except aiohttp.ClientConnectorError as error:
        return False if isinstance(error.os_error, ConnectionRefusedError) else None
    except (aiohttp.ClientError, TimeoutError):
        return None


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_MAX_S))

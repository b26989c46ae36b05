"""Waiting until nodes serve, with the same check as a load balancer."""

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

import aiohttp

from qm.client.calls import Calls, Tls
from qm.drill.targets.target import DrillNode, TargetFailed
from qm.pb import control_pb2

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


async def members_of(nodes: Sequence[DrillNode], tls: Tls) -> dict[str, control_pb2.Member]:
    """Return the members of the cluster that nodes belong to, by name. Raises ClientError."""
    wire = Calls([node.api for node in nodes], tls)
    try:
        request = control_pb2.ListMembersRequest()
        reply = await wire.call(lambda stubs: stubs.cluster.ListMembers, request)
    finally:
        await wire.close()
    return {member.name: member for member in reply.members}


async def check_members(nodes: Sequence[DrillNode], tls: Tls) -> None:
    """Raise TargetFailed unless a drill knows every member; ClientError if no node answers."""
    found, known = sorted(await members_of(nodes, tls)), sorted(node.name for node in nodes)
    if found != known:
        raise TargetFailed(
            f"the cluster's members are {', '.join(found)}, the drill knows {', '.join(known)}"
        )


async def _not_ready(http: aiohttp.ClientSession, url: str) -> str:
    try:
        # A drill continues when everything is fine again, not while nodes wait for a leader.
        async with http.get(f"{url}/readyz?no_leader_max_s=0") as response:
            return "" if response.status == HTTPStatus.OK else await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)

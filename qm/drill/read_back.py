"""Every record and every body on every replica is read and compared with its checksum."""

import asyncio
from typing import Final

from qm.client.calls import Calls
from qm.pb import control_pb2

POLL_S: Final = 0.25
STALL_S: Final = 60.0
"""Time without a byte read: what is not read then will not be."""


async def unreadable(wire: Calls) -> str:
    """Have every node read back what it stores; return the problem, "" if there is none.

    Raises ClientError.
    """
    loop = asyncio.get_running_loop()
    begun = await wire.call(lambda stubs: stubs.cluster.StartScrub, control_pb2.ScrubRequest())
    waiting = {found.node: found.rounds for found in begun.nodes}
    seen: dict[str, int] = {}
    moved_at = loop.time()
    while waiting:
        await asyncio.sleep(POLL_S)
        reply = await wire.call(lambda stubs: stubs.cluster.GetScrub, control_pb2.ScrubRequest())
        for found in reply.nodes:
            if found.rounds > waiting.get(found.node, found.rounds):
                del waiting[found.node]
                moved_at = loop.time()
                if found.damage_found:
                    left = ", ".join(found.damaged) or "none"
                    return f"{found.node} read {found.damage_found} damaged; not restored: {left}"
            elif seen.get(found.node) != found.done_bytes:
                seen[found.node] = found.done_bytes
                moved_at = loop.time()
        if loop.time() - moved_at > STALL_S:
            return f"{', '.join(waiting)} did not read back what is stored"
    return ""

"""Checks of the cluster after the load: its replicas agree, and its queues' counters add up.

Clients' histories prove what happened to messages; this proves that nothing is left behind that
would affect them later.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from qm.client.calls import Calls
from qm.drill.targets.target import Target
from qm.pb import control_pb2

AUDITS: Final = "quorate_audits"
AUDIT_WAIT_S: Final = 20.0
MARKS_MAX: Final = 3
"""Attempts: a change of leader loses the results that the last leader collected."""
POLL_S: Final = 0.1


async def disagreement(target: Target, wire: Calls) -> str:
    """Have all replicas compare digests of their states; return the problem, "" if there is none.

    Raises ClientError.
    """
    before = await _audits(target)
    for _ in range(MARKS_MAX):
        await wire.call(lambda stubs: stubs.cluster.MarkAudit, control_pb2.MarkAuditRequest())
        found = await _audit_after(target, before)
        if found["differ"]:
            return "the replicas' digests differ"
        if found["agreed"]:
            return ""
    return "not every replica reported its digest"


async def sums(wire: Calls, queues: Sequence[str], remaining: int) -> str:
    """Compare queues' counters with their contents; return the problem, "" if there is none.

    Raises ClientError.
    """
    counted = 0
    for queue in queues:
        request = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=queue))
        found = await wire.call(lambda stubs: stubs.queues.GetQueue, request)
        counted += found.message_count
        used = found.statistics.quota_used_bytes
        if not found.message_count and (used or found.total_bytes):
            return f"{queue} is empty but uses {used or found.total_bytes} bytes"
    return "" if counted == remaining else f"{counted} messages are counted, {remaining} seen"


async def _audit_after(target: Target, before: Counter[str]) -> Counter[str]:
    """Wait for a result of an audit."""
    loop = asyncio.get_running_loop()
    end = loop.time() + AUDIT_WAIT_S
    found: Counter[str] = Counter()
    while not (found["agreed"] or found["differ"]) and loop.time() < end:
        await asyncio.sleep(POLL_S)
        found = await _audits(target)
        found.subtract(before)
    return found


async def _audits(target: Target) -> Counter[str]:
    """Return the numbers of audits by result, over the nodes that answer."""
    counts: Counter[str] = Counter()
    timeout = aiohttp.ClientTimeout(total=2.0)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        for node in target.nodes:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{node.http}/metrics") as response:
                    text = await response.text()
                for family in text_string_to_metric_families(text):
                    if family.name == AUDITS:
                        for sample in family.samples:
                            if sample.name == f"{AUDITS}_total":
                                counts[sample.labels["result"]] += int(sample.value)
    return counts

"""A follower that is behind: by entries that the log still has, or by a snapshot.

The disk's own limit is measured in the same run: one file, written in blocks and synced at its end.
"""

import asyncio
import os
import time
from pathlib import Path

from tests.bench.raft_cluster import Cluster, NodeProcess

MIB = 1 << 20
LAG_BYTES = 1024 * MIB
LAG_PAYLOAD_BYTES = 16 * 1024
SNAPSHOT_BYTES = 512 * MIB
DROPPED_BYTES = 256 * MIB
"""Proposed while the follower is away, so that the log drops what it would need."""
POLL_S = 0.005
CATCH_UP_WAIT_S = 300.0


async def catch_up(folder: Path) -> dict[str, float]:
    """Replicate LAG_BYTES to a follower that was away for them."""
    cluster = Cluster(folder, log_retain_bytes=4 * LAG_BYTES)
    try:
        await cluster.start()
        away = await _without_follower(cluster, LAG_BYTES)
        seconds = await _returns(cluster, away)
        peak_mb = max(status["rss_mb"] for status in (await cluster.statuses()).values())
    finally:
        await cluster.stop()
    return {
        "lag_mib": LAG_BYTES // MIB,
        "lag_mb_per_s": round(LAG_BYTES / seconds / 1e6),
        "lag_rss_peak_mb": round(peak_mb),
    }


async def snapshot(folder: Path) -> dict[str, float]:
    """Send a snapshot of SNAPSHOT_BYTES to a follower whose entries the log has dropped."""
    cluster = Cluster(folder, log_retain_bytes=MIB)
    try:
        await cluster.start()
        for node in cluster.running():
            await node.ask("ballast", total_bytes=SNAPSHOT_BYTES)
        away = await _without_follower(cluster, DROPPED_BYTES)
        for node in cluster.running():
            await node.ask("persist")
        await _drop_entries(cluster)
        disk_mb_per_s = await asyncio.to_thread(disk_write_mb_per_s, folder, SNAPSHOT_BYTES)
        seconds = await _returns(cluster, away)
        peak_mb = max(status["rss_mb"] for status in (await cluster.statuses()).values())
    finally:
        await cluster.stop()
    rate = SNAPSHOT_BYTES / seconds / 1e6
    return {
        "snapshot_mib": SNAPSHOT_BYTES // MIB,
        "snapshot_mb_per_s": round(rate),
        "snapshot_rss_peak_mb": round(peak_mb),
        "disk_write_mb_per_s": round(disk_mb_per_s),
        "ratio_snapshot_vs_disk": round(rate / disk_mb_per_s, 2),
    }


def disk_write_mb_per_s(folder: Path, size_bytes: int) -> float:
    """Write a file and sync it once, as the receiver of a snapshot must."""
    block = os.urandom(MIB)
    path = folder / "written"
    started = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(size_bytes // MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    path.unlink()
    return size_bytes / seconds / 1e6


async def _without_follower(cluster: Cluster, size_bytes: int) -> NodeProcess:
    """Kill a follower and propose `size_bytes` without it."""
    leader = await cluster.leader()
    away = next(node for node in cluster.running() if node is not leader)
    await away.kill()
    await leader.ask("fill", total_bytes=size_bytes, size=LAG_PAYLOAD_BYTES)
    return away


async def _drop_entries(cluster: Cluster) -> None:
    """Wait until no log begins at its first entry any more."""
    firsts: list[int] = []
    async with asyncio.timeout(CATCH_UP_WAIT_S):
        while not firsts or min(firsts) <= 2:
            await asyncio.sleep(POLL_S)
            firsts = [status["first"] for status in (await cluster.statuses()).values()]


async def _returns(cluster: Cluster, away: NodeProcess) -> float:
    """Start the node; return the seconds until it has applied what the leader had."""
    target = (await (await cluster.leader()).ask("status"))["applied"]
    await away.start()
    started = time.perf_counter()
    async with asyncio.timeout(CATCH_UP_WAIT_S):
        while (await away.ask("status"))["applied"] < target:
            await asyncio.sleep(POLL_S)
    return time.perf_counter() - started

"""Three processes on this machine: `python -m tests.bench.raft`, JSON to build/bench-raft.json.

Rates: payloads of 1 KiB, proposed singly by concurrent tasks of the leader's process over gRPC with
mutual TLS, each node syncing before it acknowledges. CPU is that of all three processes. Gaps: from
the moment the leader is killed (or stopped by SIGSTOP) to the first commit under another one.
Lag: how fast a follower comes back that missed 1 GiB, or that needs a snapshot.
"""

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.log import compare
from tests.bench.raft_cluster import Cluster, NodeProcess
from tests.bench.raft_lag import catch_up, snapshot

OUTSTANDING = (64, 512)
PAYLOAD_BYTES = 1024
LIFETIME_S = 900.0
LOG_ROUNDS = 15
GAP_WAIT_S = 60.0


async def rates(cluster: Cluster, seconds: float) -> dict[str, float]:
    """Messages per second, latency and CPU at each number of outstanding proposals."""
    figures: dict[str, float] = {}
    for outstanding in OUTSTANDING:
        leader = await cluster.leader()
        before = await cluster.statuses()
        load = {"outstanding": outstanding, "size": PAYLOAD_BYTES}
        await leader.ask("load", seconds=1.0, **load)
        before = await cluster.statuses()
        found = await leader.ask("load", seconds=seconds, **load)
        after = await cluster.statuses()
        cpu_s = sum(after[node]["cpu_s"] - before[node]["cpu_s"] for node in after)
        terms = {status["term"] for status in [*before.values(), *after.values()]}
        name = f"outstanding_{outstanding}"
        figures |= {
            f"{name}_msgs_per_s": round(found["per_s"]),
            f"{name}_p50_ms": round(found["p50_ms"], 2),
            f"{name}_p99_ms": round(found["p99_ms"], 2),
            f"{name}_cpu_us_per_msg": round(cpu_s / found["messages"] * 1e6, 2),
            f"{name}_msgs_per_entry": round(found["messages_per_entry"], 1),
            f"{name}_elections": len(terms) - 1,
        }
    figures["cpu_us_per_msg"] = figures[f"outstanding_{OUTSTANDING[-1]}_cpu_us_per_msg"]
    return figures


async def next_commit_at(nodes: list[NodeProcess], term: int) -> float:
    """When the first probe was committed in a later term, on the monotonic clock in seconds."""
    waits = [asyncio.create_task(node.ask("first_commit", after_term=term)) for node in nodes]
    async with asyncio.timeout(GAP_WAIT_S):
        done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return min(float(task.result()["at"]) for task in done)


async def kill_gap_ms(cluster: Cluster) -> float:
    """Kill the leader, wait for the next commit, and start the killed one again."""
    leader = await cluster.leader()
    term = (await leader.ask("status"))["term"]
    others = [node for node in cluster.running() if node is not leader]
    killed_at = await leader.kill()
    gap_ms = (await next_commit_at(others, term) - killed_at) * 1e3
    await leader.start()
    await leader.ask("probe")
    return gap_ms


async def pause_gap_ms(cluster: Cluster) -> float:
    """Stop the leader as a hanging machine would, wait for the next commit, and let it go on."""
    leader = await cluster.leader()
    term = (await leader.ask("status"))["term"]
    others = [node for node in cluster.running() if node is not leader]
    paused_at = time.monotonic()
    leader.signal(signal.SIGSTOP)
    try:
        return (await next_commit_at(others, term) - paused_at) * 1e3
    finally:
        leader.signal(signal.SIGCONT)


async def gaps(cluster: Cluster, kills: int, pauses: int) -> dict[str, float]:
    """Gaps under probes, one small proposal after the other."""
    for node in cluster.running():
        await node.ask("probe")
    killed = [await kill_gap_ms(cluster) for _ in range(kills)]
    paused = [await pause_gap_ms(cluster) for _ in range(pauses)]
    return {
        "kill_gap_median_ms": round(statistics.median(killed), 1),
        "kill_gap_p99_ms": round(sorted(killed)[min(kills - 1, kills * 99 // 100)], 1),
        "kill_gap_rounds": kills,
        "pause_gap_median_ms": round(statistics.median(paused), 1),
        "pause_gap_max_ms": round(max(paused), 1),
        "pause_gap_rounds": pauses,
    }


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Measure the log alone, then a cluster's rates and gaps, then followers that lag."""
    folder = Path(tempfile.mkdtemp(prefix="bench-raft-", dir=_build()))
    try:
        _, ratio = compare(_fresh(folder, "log"), LOG_ROUNDS)
        figures: dict[str, float] = {"ratio_log_vs_fdatasync": ratio}
        cluster = Cluster(_fresh(folder, "cluster"), lifetime_s=LIFETIME_S)
        try:
            await cluster.start()
            figures |= await rates(cluster, options.seconds)
            figures |= await gaps(cluster, options.kills, options.pauses)
        finally:
            await cluster.stop()
        figures |= await catch_up(_fresh(folder, "lag"))
        return figures | await snapshot(_fresh(folder, "snapshot"))
    finally:
        shutil.rmtree(folder)


def _build() -> Path:
    build = Path("build")
    build.mkdir(exist_ok=True)
    return build


def _fresh(folder: Path, name: str) -> Path:
    """Make a folder of that name and remove those made before, which may be large."""
    for earlier in folder.iterdir():
        shutil.rmtree(earlier)
    (folder / name).mkdir()
    return folder / name


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load at each rate")
    parser.add_argument("--kills", type=int, default=50, help="rounds of kill -9, at least 1")
    parser.add_argument("--pauses", type=int, default=5, help="rounds of SIGSTOP, at least 1")
    text = json.dumps(asyncio.run(measure(parser.parse_args())), indent=1)
    print(text)
    (_build() / "bench-raft.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

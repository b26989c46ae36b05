"""How long senders wait when the leader fails: `python -m tests.bench.failover`.

Clusters of three node processes with different backlogs are up at once, and rounds go through them
in turn, so that a noisy machine is noisy for all. With RabbitMQ and NATS JetStream, where they are
installed, the leader of their queue is killed in the same call. Prints JSON and merges it into
build/drills.json: an entry like a scenario's for each kind of round, and ratios.
"""

import argparse
import contextlib
import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from qm.drill.fronts import front_abilities
from qm.drill.namespace_target import NamespaceTarget
from qm.drill.process_target import ProcessTarget
from qm.drill.report import merge_results
from qm.drill.target import Ability
from qm.load.verdict import Verdict
from tests.bench.failover_cluster import Happening, Probed
from tests.bench.failover_peers import peer_gaps

BACKLOGS = (0, 10_000, 1_000_000)
ROUNDS = 30
OTHER_ROUNDS = 10
"""Of pauses, partitions and transfers."""
ADDRESS_ROUNDS = 20
PEER_ROUNDS = 5
DEFAULT_TIMERS_ROUNDS = 3
OUTPUT = Path("build") / "drills.json"
BARS_MS: dict[str, tuple[float, float]] = {
    "kill": (60, 300),
    "pause": (1200, 1200),
    "partition": (1200, 1200),
    "transfer": (50, 50),
    "address": (1500, 1500),
}
"""Median and 99th percentile that a sender may see at a surviving node, or through the address."""
BACKLOG_RATIO_MAX = 1.25
"""Of the median with a backlog to the one without."""


class Series(msgspec.Struct):
    """Rounds of one kind."""

    what: str
    backlog: int | None
    """None: a peer's."""
    gaps_ms: list[float]
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        return f"gap-{self.what}" if self.backlog is None else f"gap-{self.what}-{self.backlog}"

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.gaps_ms)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

    @property
    def median_ms(self) -> float:
        return round(median(self.gaps_ms), 1)


async def rounds_of(
    clusters: list[Probed], what: Happening, rounds: int, chance: random.Random
) -> list[Series]:
    """Do it to every cluster, `rounds` times, the clusters in another order each time."""
    series = {cluster.backlog: Series(what.value, cluster.backlog, []) for cluster in clusters}
    for turn in range(rounds):
        for cluster in chance.sample(clusters, len(clusters)):
            gap_ms = await cluster.gap_ms(what, turn)
            series[cluster.backlog].gaps_ms.append(gap_ms)
            _say(f"{what.value} {turn + 1} of {rounds}, backlog {cluster.backlog}: {gap_ms:.0f} ms")
    return list(series.values())


async def judged(clusters: list[Probed], series: list[Series]) -> list[Series]:
    """Give each series the verdict on all probes of its cluster."""
    verdicts = {cluster.backlog: await cluster.verdict() for cluster in clusters}
    for one in series:
        if one.backlog is not None:
            one.verdict = verdicts[one.backlog]
    return series


async def on_loopback(folder: Path, options: argparse.Namespace) -> list[Series]:
    """Kill, pause and hand over, at each backlog."""
    chance = random.Random(options.seed)
    async with contextlib.AsyncExitStack() as stack:
        clusters = []
        for number, backlog in enumerate(options.backlogs):
            network = f"127.0.{41 + number}"
            target = ProcessTarget("dev", _made(folder / str(backlog)), network, _say)
            clusters.append(await stack.enter_async_context(Probed(target, backlog)))
            _say(f"a cluster with {backlog} messages is up")
        series = await rounds_of(clusters, Happening.KILL, options.rounds, chance)
        for what in (Happening.PAUSE, Happening.TRANSFER):
            series += await rounds_of(clusters, what, options.other_rounds, chance)
        first = clusters[0]
        waits_ms = [await first.default_timers_gap_ms() for _ in range(DEFAULT_TIMERS_ROUNDS)]
        series.append(Series("default-timers", first.backlog, waits_ms))
        return await judged(clusters, series)


async def on_hosts(folder: Path, options: argparse.Namespace) -> list[Series]:
    """Part the leader from the others; kill it where it has the virtual address."""
    rounds = {Happening.PARTITION: options.other_rounds, Happening.ADDRESS: options.address_rounds}
    if Ability.VIRTUAL_ADDRESS not in front_abilities():
        _say("keepalived is missing: nothing is measured through a virtual address")
        del rounds[Happening.ADDRESS]
    target = NamespaceTarget("netns", _made(folder / "netns"), _say)
    try:
        async with Probed(target, 0) as cluster:
            series: list[Series] = []
            for what, count in rounds.items():
                series += await rounds_of([cluster], what, count, random.Random(0))
            return await judged([cluster], series)
    finally:
        target.remove()


async def measure(options: argparse.Namespace) -> list[Series]:
    """Measure everything of ours that this machine can."""
    with tempfile.TemporaryDirectory(prefix="quorate-failover-") as name:
        series = await on_loopback(Path(name), options)
        merge_results(OUTPUT, report_of(series))
        if os.geteuid() == 0:
            series += await on_hosts(Path(name), options)
        else:
            _say("partitions need hosts of their own: run as root to measure them")
    return series


def of_peers(rounds: int) -> list[Series]:
    """Do the same to the peers that are installed."""
    found = peer_gaps(rounds, _say)
    return [Series(f"{peer}-{what}", None, gaps) for (peer, what), gaps in found.items()]


def report_of(series: list[Series]) -> dict[str, object]:
    """Return an entry for each kind of round, and ratios of medians (a peer's by ours)."""
    medians = {one.name: one.median_ms for one in series}
    ours_ms = medians["gap-kill-0"]
    report: dict[str, object] = {one.name: entry_of(one, ours_ms) for one in series}
    for name, value in medians.items():
        kind, _, backlog = name.rpartition("-")
        if kind == "gap-kill" and backlog != "0":
            report[f"ratio_kill_gap_backlog_{backlog}"] = round(value / ours_ms, 2)
    for peer in ("rabbitmq", "jetstream"):
        if (peers_ms := medians.get(f"gap-{peer}-kill")) is not None:
            report[f"ratio_{peer}_kill_gap"] = round(peers_ms / ours_ms, 2)
    return report


def entry_of(one: Series, empty_ms: float) -> dict[str, object]:
    """Return what a scenario's entry has; peers' messages are not judged.

    `empty_ms`: median gap after a kill without a backlog.
    """
    entry: dict[str, object] = {
        "runs": len(one.gaps_ms),
        "gap_median_ms": one.median_ms,
        "gap_p99_ms": one.percentile_ms(0.99),
    }
    if one.verdict is None:
        return entry
    median_max, p99_max = BARS_MS.get(one.what, (math.inf, math.inf))
    if one.what == "kill" and one.backlog:
        median_max = min(median_max, BACKLOG_RATIO_MAX * empty_ms)
    is_fast = one.median_ms <= median_max and one.percentile_ms(0.99) <= p99_max
    return entry | {
        "lost": one.verdict.lost.count,
        "duplicated": one.verdict.duplicated.count,
        "verdict": "pass" if one.verdict.holds and is_fast else "FAIL",
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure, print, merge."""
    parser = argparse.ArgumentParser(description="how long senders wait when the leader fails")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of kill -9, per backlog")
    parser.add_argument("--other-rounds", type=int, default=OTHER_ROUNDS)
    parser.add_argument("--address-rounds", type=int, default=ADDRESS_ROUNDS)
    parser.add_argument("--peer-rounds", type=int, default=PEER_ROUNDS)
    parser.add_argument("--backlogs", type=int, nargs="+", default=list(BACKLOGS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    options = parser.parse_args()
    began, load = time.time(), os.getloadavg()[0]
    series = uvloop.run(measure(options))
    # Whatever comes of the rest, what was measured stays.
    merge_results(OUTPUT, report_of(series))
    if options.peers:
        series += of_peers(options.peer_rounds)
    report = report_of(series) | {
        "failover_load_average_before": round(load, 1),
        "failover_load_average_after": round(os.getloadavg()[0], 1),
        "failover_cpus": os.cpu_count(),
        "failover_seconds": round(time.time() - began),
    }
    merge_results(OUTPUT, report)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

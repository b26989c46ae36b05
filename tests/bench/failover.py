"""How long senders wait when the leader fails: `python -m tests.bench.failover`.

Clusters of three node processes with different backlogs are up at once, and rounds go through them
in turn, so that noise of the machine affects all alike. With RabbitMQ and NATS JetStream, where
they are installed, the leader of their queue is killed as well. Prints JSON and merges it into
build/drills.json: an entry like a scenario's for each kind of round, and ratios.

Clusters and rounds are kept in build/failover, and no round is measured twice: `--seconds` begins
no round after that time, and another call continues with the rest (0 only makes the clusters).
`--fresh` starts from scratch.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import uvloop

from qm.drill.report.report import merge_results
from qm.drill.report.rounds_file import this_build
from qm.drill.targets.ability import Ability
from qm.drill.targets.fronts import front_abilities
from qm.drill.targets.namespace_target import NamespaceTarget
from tests.bench.failover_cluster import Happening, KeptTarget, Probed
from tests.bench.failover_peers import BLOWS, PEERS, Missing, peer_gaps
from tests.bench.failover_rounds import Gap, Judged, RoundsFile, Series

BACKLOGS = (0, 10_000, 1_000_000)
ROUNDS = 30
OTHER_ROUNDS = 10
"""Of pauses, partitions and transfers."""
ADDRESS_ROUNDS = 20
PEER_ROUNDS = 5
DEFAULT_TIMERS_ROUNDS = 3
FOLDER = Path("build") / "failover"
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

Turn = tuple[Happening, int, int]
"""What happens, for which time, to the cluster with which backlog."""


class Call:
    """What is left to measure, and how long this call may go on with it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kept = RoundsFile(FOLDER / "rounds.jsonl")
        self._end: float = time.monotonic() + options.seconds
        self._build = this_build()

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end

    def left(self, wanted: dict[Happening, tuple[int, Sequence[int]]]) -> list[Turn]:
        """Return the rounds that are missing: for each turn the clusters in another order.

        `wanted`: how many, at which backlogs.
        """
        turns: list[Turn] = []
        for what, (rounds, backlogs) in wanted.items():
            missing = {
                (turn, backlog)
                for backlog in backlogs
                for turn in self.kept.missing(what.value, backlog, rounds)
            }
            for turn in range(rounds):
                chance = random.Random(f"{self.options.seed}/{what.value}/{turn}")
                order = chance.sample(list(backlogs), len(backlogs))
                turns += [(what, turn, b) for b in order if (turn, b) in missing]
        return turns

    async def rounds(self, clusters: Sequence[Probed], turns: Sequence[Turn]) -> None:
        """Carry out rounds as long as there is time; keep them with the verdict on them."""
        by_backlog = {cluster.backlog: cluster for cluster in clusters}
        gaps: dict[int, list[Gap]] = defaultdict(list)
        for what, turn, backlog in turns:
            if self.is_over:
                break
            load = os.getloadavg()[0]
            gap_ms = await by_backlog[backlog].gap_ms(what, turn)
            gaps[backlog].append(Gap(what.value, turn, gap_ms, round(load, 1)))
            _say(f"{what.value} {turn + 1}, backlog {backlog}: {gap_ms:.0f} ms")
        for backlog, several in gaps.items():
            verdict = await by_backlog[backlog].verdict()
            self.kept.add(
                Judged(
                    backlog,
                    tuple(several),
                    self._build,
                    verdict.lost.count,
                    verdict.duplicated.count,
                    verdict.holds,
                )
            )

    async def on_loopback(self) -> None:
        """Kill, pause and hand over, at each backlog."""
        options = self.options
        others = (options.other_rounds, options.backlogs)
        turns = self.left(
            {
                Happening.KILL: (options.rounds, options.backlogs),
                Happening.PAUSE: others,
                Happening.TRANSFER: others,
                Happening.DEFAULT_TIMERS: (DEFAULT_TIMERS_ROUNDS, options.backlogs[:1]),
            }
        )
        if not turns:
            return
        async with contextlib.AsyncExitStack() as stack:
            clusters = []
            for number, backlog in enumerate(options.backlogs):
                network = f"127.0.{41 + number}"
                target = KeptTarget("dev", FOLDER / str(backlog), network, _say)
                clusters.append(await stack.enter_async_context(Probed(target, backlog)))
                _say(f"a cluster with {backlog} messages is up")
            await self.rounds(clusters, turns)

    async def on_hosts(self) -> None:
        """Part the leader from the others; kill it where it has the virtual address."""
        wanted: dict[Happening, tuple[int, Sequence[int]]] = {
            Happening.PARTITION: (self.options.other_rounds, (0,)),
            Happening.ADDRESS: (self.options.address_rounds, (0,)),
        }
        if Ability.VIRTUAL_ADDRESS not in front_abilities():
            _say("keepalived is missing: nothing is measured through a virtual address")
            del wanted[Happening.ADDRESS]
        turns = self.left(wanted)
        if not turns or self.is_over:
            return
        folder = FOLDER / "netns"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        target = NamespaceTarget("netns", folder, _say)
        try:
            async with Probed(target, 0) as cluster:
                await self.rounds([cluster], turns)
        finally:
            target.remove()

    def peers(self) -> None:
        """Do the same to the peers that are installed."""
        for peer in PEERS:
            for what in BLOWS:
                name = f"{peer}-{what}"
                turns = self.kept.missing(name, None, self.options.peer_rounds)
                if not turns or self.is_over:
                    continue
                try:
                    for gap in self._peer_gaps(peer, what, turns):
                        self.kept.add(Judged(None, (gap,), self._build))
                except Missing as missing:
                    _say(str(missing))

    def _peer_gaps(self, peer: str, what: str, turns: Sequence[int]) -> Iterator[Gap]:
        load = os.getloadavg()[0]
        with contextlib.closing(peer_gaps(peer, what, turns)) as gaps:
            for turn, gap_ms in gaps:
                _say(f"{peer} {what} {turn + 1}: {gap_ms:.0f} ms")
                yield Gap(f"{peer}-{what}", turn, gap_ms, round(load, 1))
                if self.is_over:
                    return
                load = os.getloadavg()[0]

    async def ours(self) -> None:
        """Measure everything of ours that this machine can."""
        task = asyncio.current_task()
        assert task is not None
        # Else the nodes would outlive this process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await self.on_loopback()
        if os.geteuid() == 0:
            await self.on_hosts()
        else:
            _say("partitions need hosts of their own: run as root to measure them")


def report_of(series: list[Series]) -> dict[str, object]:
    """Return an entry for each kind of round, and ratios of medians (a peer's by ours)."""
    medians = {one.name: one.median_ms for one in series}
    if (ours_ms := medians.get("gap-kill-0")) is None:
        return {}
    report: dict[str, object] = {one.name: entry_of(one, ours_ms) for one in series}
    for name, value in medians.items():
        kind, _, backlog = name.rpartition("-")
        if kind == "gap-kill" and backlog != "0":
            report[f"ratio_kill_gap_backlog_{backlog}"] = round(value / ours_ms, 2)
    for peer in PEERS:
        if (peers_ms := medians.get(f"gap-{peer}-kill")) is not None:
            report[f"ratio_{peer}_kill_gap"] = round(peers_ms / ours_ms, 2)
    return report


def entry_of(one: Series, empty_ms: float) -> dict[str, object]:
    """Return what a scenario's entry has; peers' messages are not judged.

    `empty_ms`: median gap after a kill without a backlog.
    """
    entry: dict[str, object] = {
        "runs": len(one.gaps),
        "gap_median_ms": one.median_ms,
        "gap_p99_ms": one.percentile_ms(0.99),
        "load_average_median": median(gap.load_average for gap in one.gaps),
    }
    if one.backlog is None:
        return entry
    median_max, p99_max = BARS_MS.get(one.what, (math.inf, math.inf))
    if one.what == "kill" and one.backlog:
        median_max = min(median_max, BACKLOG_RATIO_MAX * empty_ms)
    is_fast = one.median_ms <= median_max and one.percentile_ms(0.99) <= p99_max
    return entry | {
        "calls": one.calls,
        "lost": one.lost,
        "duplicated": one.duplicated,
        "verdict": "pass" if one.holds and is_fast else "FAIL",
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure what is left, print all of it, merge."""
    parser = argparse.ArgumentParser(description="how long senders wait when the leader fails")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of kill -9, per backlog")
    parser.add_argument("--other-rounds", type=int, default=OTHER_ROUNDS)
    parser.add_argument("--address-rounds", type=int, default=ADDRESS_ROUNDS)
    parser.add_argument("--peer-rounds", type=int, default=PEER_ROUNDS)
    parser.add_argument("--backlogs", type=int, nargs="+", default=list(BACKLOGS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no round after them")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    call = Call(options)
    uvloop.run(call.ours())
    if options.peers:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        call.peers()
    if call.is_over:
        _say("the time is over; another call goes on with what is left, if anything is")
    report = report_of(call.kept.series()) | {
        "failover_cpus": os.cpu_count(),
        "failover_builds": sorted({one.build for one in call.kept.read()}),
    }
    merge_results(OUTPUT, report)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

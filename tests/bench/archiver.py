"""What archiving costs a cluster: `python -m tests.bench.archiver`.

Two clusters of three node processes, alike but for `[archive]`, which is a folder on the same disk.
In each round 1 KiB messages go in and out of both, half a second of the one in turn with half a
second of the other; then both rest. Every figure is the median of the rounds. Prints JSON and
writes it to build/bench-archiver.json.

archiver_throughput_cost  share of messages per second, in and out, that archiving takes
archiver_cpu_cost         share of the nodes' CPU time per message that it adds; what is exported
                          after the load is in it

By default a round is a burst, of which ranges wait for the end, as long as the configuration lets
them. `--saturated` is a load that outlasts that (archiver_saturated_throughput_cost of
`make bench-spark`): ranges are exported at once, and whole runs take turns, since an export would
fall into the other side's turns, too.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.bench.cluster import Cluster, Figures
from tests.bench.cluster_load import Seen
from tests.bench.cluster_nodes import Nodes
from tests.bench.load import Load, load

MESSAGES: Final = 120_000
"""So many that every run has a flush of the state, which may take half a second."""
ROUNDS: Final = 31
"""Odd. One differs from the next by several hundredths: of medians of 11, one was 0.014 and another
0.051."""
BUSY_WAIT_S: Final = 60
"""As the configuration has it."""
TURN_S: Final = 0.5
"""A machine that is shared may give half as much CPU in one second as in the next, and both sides
are to have the same of it."""
DRAIN_S: Final = 0.1
"""Between turns, for what is in flight. That time counts for neither side, so both rates are a
little too high."""
REST_S: Final = 4.0
"""After each run, on both sides: what is due is exported then, if not before."""
NETWORKS: Final = ("127.0.21", "127.0.22")
OUTPUT: Final = Path("build") / "bench-archiver.json"
_SECTION: Final = """
[archive]
url = "{url}"
bodies = "{bodies}"
busy_wait_s = {busy_wait_s}
"""


class ArchivingNodes(Nodes):
    """A cluster that archives into a folder beside its own."""

    def __init__(self, folder: Path, network: str, bodies: str, busy_wait_s: int) -> None:
        super().__init__(folder, network)
        self.archive = folder.with_name(folder.name + "-archive")
        for node in self.layout.make(3, network):
            config = self.layout.config(node.name)
            section = _SECTION.format(url=self.archive, bodies=bodies, busy_wait_s=busy_wait_s)
            config.write_text(config.read_text() + section)


class Side:
    """One of the two clusters."""

    def __init__(self, nodes: Nodes, messages: int) -> None:
        self.nodes = nodes
        self.cluster = Cluster(nodes, messages)


Sides = dict[str, Side]


def measure(
    *,
    messages: int = MESSAGES,
    rounds: int = ROUNDS,
    bodies: str = "full",
    is_saturated: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Measure in rounds; return medians, flat keys. `is_saturated`: see above."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
        plain = Nodes(Path(folder) / "plain", NETWORKS[0])
        busy_wait_s = 0 if is_saturated else BUSY_WAIT_S
        archiving = ArchivingNodes(Path(folder) / "archiving", NETWORKS[1], bodies, busy_wait_s)
        with plain, archiving:
            sides = {"plain": Side(plain, messages), "archiving": Side(archiving, messages)}
            for side in sides.values():
                side.cluster.warm_up()
            for number in range(rounds):
                order = dict(list(sides.items())[:: 1 if number % 2 else -1])
                round_ = _round(order, messages, is_saturated=is_saturated)
                _compare(found, round_)
                say(f"round {number + 1}: {json.dumps(round_)}")
            exported = sum(path.stat().st_size for path in archiving.archive.rglob("*.parquet"))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        **{name: round(value, 4) for name, value in medians.items()},
        "archiver_exported_mib": round(exported / (1 << 20), 1),
    }


def _round(sides: Sides, messages: int, *, is_saturated: bool) -> dict[str, Figures]:
    if not is_saturated:
        return _loaded(sides, messages, TURN_S)
    figures: dict[str, Figures] = {}
    for name, side in sides.items():
        figures |= _loaded({name: side}, messages, sys.maxsize)
    return figures


def _loaded(sides: Sides, messages: int, turn_s: float) -> dict[str, Figures]:
    """Let the messages in and out, in turns so long, then rest; return rates and what they cost.

    A side's receiver is connected before its messages come, so that there is no gap between them.
    """
    loads = {
        name: (
            load(side.cluster.sending(side.nodes.leader(), messages)),
            load(side.cluster.receiving(messages)),
        )
        for name, side in sides.items()
    }
    before = {name: side.nodes.cpu_s() for name, side in sides.items()}
    _in_turns(list(loads.values()), turn_s)
    time.sleep(REST_S)
    return {
        name: _figures(messages, loads[name], side.nodes.cpu_s() - before[name])
        for name, side in sides.items()
    }


def _figures(messages: int, loads: tuple[Load[Seen], Load[Seen]], cpu_s: float) -> Figures:
    publishing_s, receiving_s = (load.result().seconds for load in loads)
    return {
        "msgs_per_s": messages / (publishing_s + receiving_s),
        "publish_msgs_per_s": messages / publishing_s,
        "receive_msgs_per_s": messages / receiving_s,
        "cpu_us_per_msg": cpu_s / messages * 1e6,
    }


def _in_turns(works: Sequence[Sequence[Load[Seen]]], turn_s: float) -> None:
    """Let sides do what they have to, each one load after the other, one side at a time."""
    waiting = deque(deque(loads) for loads in works)
    begun: set[Load[Seen]] = set()
    while waiting:
        loads = waiting.popleft()
        load = loads[0]
        load.resume() if load in begun else load.begin()
        begun.add(load)
        if load.is_over(turn_s):
            loads.popleft()
        else:
            load.pause()
        time.sleep(DRAIN_S)
        if loads:
            waiting.append(loads)


def _compare(found: dict[str, list[float]], round_: dict[str, Figures]) -> None:
    plain, archiving = round_["plain"], round_["archiving"]
    for name, side in round_.items():
        for key, value in side.items():
            found[f"archiver_{name}_{key}"].append(value)
    throughput = archiving["msgs_per_s"] / plain["msgs_per_s"]
    cpu = archiving["cpu_us_per_msg"] / plain["cpu_us_per_msg"]
    found["archiver_throughput_cost"].append(1 - throughput)
    found["archiver_cpu_cost"].append(cpu - 1)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="what archiving costs a cluster")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--bodies", choices=("none", "digest", "full"), default="full")
    parser.add_argument("--saturated", action="store_true", help="export while the load lasts")
    options = parser.parse_args()
    report: Figures = {
        "cpus": os.cpu_count() or 0,
        "load_average_before": round(os.getloadavg()[0], 1),
        "messages": options.messages,
        "rounds": options.rounds,
        "is_saturated": options.saturated,
    }
    report |= measure(
        messages=options.messages,
        rounds=options.rounds,
        bodies=options.bodies,
        is_saturated=options.saturated,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = json.dumps(report, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What archiving costs a cluster: `python -m tests.bench.archiver`.

Two clusters of three node processes, alike but for `[archive]`, which is a folder on the same disk.
They take turns within each round, in changing order: 1 KiB messages in and out, then a rest. Every
figure is the median of the rounds. Prints JSON and writes it to build/bench-archiver.json.

archiver_throughput_cost  share of messages per second, in and out, that archiving takes
archiver_cpu_cost         share of the nodes' CPU time per message that it adds; what is exported
                          after the load is in it

By default a run is a burst, of which ranges wait for the end, as long as the configuration lets
them. `--busy-wait-s 0 --messages 120000` is a load that outlasts that (`measure_saturated`, and
archiver_saturated_throughput_cost of `make bench-spark`).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.cluster import Cluster, Figures
from tests.bench.cluster_nodes import Nodes

MESSAGES: Final = 40_000
ROUNDS: Final = 21
"""Odd. One alone tells nothing: a ratio wanders by a tenth on a machine that is shared."""
BUSY_WAIT_S: Final = 60
"""As the configuration has it."""
SATURATED_MESSAGES: Final = 120_000
SATURATED_ROUNDS: Final = 15
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
        self._nodes = nodes
        self._messages = messages
        self._cluster = Cluster(nodes, messages)

    def warm_up(self) -> None:
        self._cluster.warm_up()

    def run(self) -> Figures:
        """Let the messages in and out; return their rate and what they cost the nodes."""
        nodes, cluster = self._nodes, self._cluster
        cpu_s = nodes.cpu_s()
        published = cluster.publish(nodes.leader(), self._messages)
        received = cluster.receive(self._messages)
        time.sleep(REST_S)
        spent_s = nodes.cpu_s() - cpu_s
        seconds = published.seen.seconds + received.seen.seconds
        return {
            "msgs_per_s": self._messages / seconds,
            "publish_msgs_per_s": self._messages / published.seen.seconds,
            "receive_msgs_per_s": self._messages / received.seen.seconds,
            "cpu_us_per_msg": spent_s / self._messages * 1e6,
        }


def measure(
    *,
    messages: int = MESSAGES,
    rounds: int = ROUNDS,
    bodies: str = "full",
    busy_wait_s: int = BUSY_WAIT_S,
    say: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Measure in rounds; return medians, flat keys."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
        plain = Nodes(Path(folder) / "plain", NETWORKS[0])
        archiving = ArchivingNodes(Path(folder) / "archiving", NETWORKS[1], bodies, busy_wait_s)
        with plain, archiving:
            sides = {"plain": Side(plain, messages), "archiving": Side(archiving, messages)}
            for side in sides.values():
                side.warm_up()
            for number in range(rounds):
                order = list(sides.items())[:: 1 if number % 2 else -1]
                round_ = {name: side.run() for name, side in order}
                _compare(found, round_)
                say(f"round {number + 1}: {json.dumps(round_)}")
            exported = sum(path.stat().st_size for path in archiving.archive.rglob("*.parquet"))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        **{name: round(value, 4) for name, value in medians.items()},
        "archiver_exported_mib": round(exported / (1 << 20), 1),
    }


def measure_saturated(say: Callable[[str], None] = lambda text: None) -> Figures:
    """Measure what a load costs that outlasts all waiting: every range is exported during it."""
    return measure(messages=SATURATED_MESSAGES, rounds=SATURATED_ROUNDS, busy_wait_s=0, say=say)


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
    parser.add_argument(
        "--busy-wait-s", type=int, default=BUSY_WAIT_S, help="0: export while the load lasts"
    )
    options = parser.parse_args()
    report: Figures = {
        "cpus": os.cpu_count() or 0,
        "load_average_before": round(os.getloadavg()[0], 1),
        "messages": options.messages,
        "rounds": options.rounds,
        "busy_wait_s": options.busy_wait_s,
    }
    report |= measure(
        messages=options.messages,
        rounds=options.rounds,
        bodies=options.bodies,
        busy_wait_s=options.busy_wait_s,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = json.dumps(report, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

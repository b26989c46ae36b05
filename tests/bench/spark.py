"""Audit and compaction of large archives by an embedded Spark: `make bench-spark`.

    python -m tests.bench.spark --operations 10000000 --small 1000000 --rounds 3

The archives are those of `tests.bench.archive_writer`: three nodes, real store, real archiver.
Times are the job's own, from the start of Spark's application to its end, without the start of
Java. A job on one core has one task slot and is bound to one CPU, with all of Java's threads and
Python; on two cores it has two of both. They are measured in turn within each round; every figure
is the median of the rounds. Both sizes have the same small heap; the peak is the highest execution
memory of any task, from Spark's event log.

`audit_small_ranges_s` is the whole time of the command, with the start of Python and Java, for an
archive as quiet nodes make it: 100,000 operations in 100 ranges of each node.
`--operations 0 --small 0 --no-archiver` leaves out all else.

Measurements are kept in build/bench-spark/<operations>/taken.jsonl as soon as they are known, and
not repeated: a stopped run continues where it ended. With `--piece-s` it starts no
further job after so many seconds and exits with status 75: call it again until it does not.
`--fresh` starts from scratch. Prints JSON and writes it to build/bench-spark.json.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.bench import archiver
from tests.bench.archive_writer import CLUSTER, TO_BE_CONTINUED, write_archive

OUTPUT: Final = Path("build/bench-spark.json")
FOLDER: Final = Path("build/bench-spark")
MIB: Final = 1 << 20
CORES: Final = (1, 2)
JOBS: Final = ("audit", "compact")
QUIET_OPERATIONS: Final = 100_000
QUIET_RANGES: Final = 100
"""Of each node."""


class Taken(msgspec.Struct, frozen=True):
    """What one job took."""

    seconds: float
    cpu_s: float
    """Of all tasks, Java's threads for compilation and garbage left out."""
    peak_mib: float
    """The highest peak execution memory of any task: sorts, joins, groups."""
    shuffle_mib: float
    """Written by all tasks."""
    wall_s: float = 0.0
    """From the start of the command to its end."""


class Piece:
    """What may still be begun."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """How long it still is."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Exit if it is over."""
        if self.left_s <= 0:
            raise SystemExit(TO_BE_CONTINUED)


def archive_of(folder: Path, operations: int, piece: Piece, ranges: int = 0) -> dict[str, Any]:
    """Return the figures of an archive of that size, which is written unless it is there."""
    figures = folder / "figures.json"
    if not figures.exists():
        say(f"writing {operations:,} operations")
        written = write_archive(folder / "archive", operations, ranges=ranges, piece_s=piece.left_s)
        if written is None:
            raise SystemExit(TO_BE_CONTINUED)
        figures.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return found


def job(folder: Path, name: str, cores: int, memory_mib: int) -> Taken:
    """Run a job on an archive as if it were the first."""
    for made in ("audit", "base"):
        shutil.rmtree(folder / "archive" / CLUSTER / made, ignore_errors=True)
    events = folder / "events"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir()
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "spark", name, "--archive", str(folder / "archive"),
            "--master", f"local[{cores}]", "--memory-mib", str(memory_mib),
            "--event-log", str(events),
        ],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=partial(os.sched_setaffinity, 0, sorted(os.sched_getaffinity(0))[:cores]),
    )  # fmt: skip
    wall_s = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return msgspec.structs.replace(taken(read_events(events)), wall_s=wall_s)


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield Spark's events."""
    for path in sorted(folder.rglob("events_*")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def taken(events: Iterable[dict[str, Any]]) -> Taken:
    """Return what an event log says of its application."""
    began = ended = highest = 0
    cpu_ns = shuffle_bytes = 0
    for event in events:
        match event["Event"]:
            case "SparkListenerApplicationStart":
                began = event["Timestamp"]
            case "SparkListenerApplicationEnd":
                ended = event["Timestamp"]
            case "SparkListenerTaskEnd" if "Task Metrics" in event:
                metrics = event["Task Metrics"]
                highest = max(highest, metrics["Peak Execution Memory"])
                cpu_ns += metrics["Executor CPU Time"]
                shuffle_bytes += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return Taken((ended - began) / 1e3, cpu_ns / 1e9, highest / MIB, shuffle_bytes / MIB)


class Kept(msgspec.Struct, frozen=True):
    """One line of taken.jsonl."""

    job: str
    cores: int
    memory_mib: int
    number: int
    load_average_1m: float
    """When it began."""
    taken: Taken


def measured(
    folder: Path,
    rounds: int,
    memory_mib: int,
    on: tuple[int, ...],
    piece: Piece,
    jobs: tuple[str, ...] = JOBS,
) -> dict[tuple[str, int], list[Taken]]:
    """Run jobs in rounds on these numbers of cores, as far as no earlier run did."""
    path = folder / "taken.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    known = [msgspec.json.decode(line, type=Kept) for line in lines]
    found: dict[tuple[str, int], list[Taken]] = {}
    for number in range(rounds):
        for name in jobs:
            for cores in on:
                asked = (name, cores, memory_mib, number)
                same = [k.taken for k in known if (k.job, k.cores, k.memory_mib, k.number) == asked]
                if not same:
                    piece.check()
                    load = os.getloadavg()[0]
                    same = [job(folder, name, cores, memory_mib)]
                    with path.open("ab") as file:
                        file.write(msgspec.json.encode(Kept(*asked, load, same[0])) + b"\n")
                    say(f"round {number + 1}: {name} on {cores}, load {load:.1f}: {same[0]}")
                found.setdefault((name, cores), []).append(same[0])
    return found


def measure(
    folder: Path,
    size: int,
    rounds: int,
    memory_mib: int,
    piece: Piece,
    on: tuple[int, ...] = CORES,
) -> dict[str, float]:
    """Return rates of both jobs on these numbers of cores, and what the audit needed."""
    written = archive_of(folder, size, piece)
    taken_by = measured(folder, rounds, memory_mib, on, piece)
    figures: dict[str, float] = {}
    for (name, cores), several in taken_by.items():
        seconds = statistics.median(one.seconds for one in several)
        end = "" if cores == CORES[-1] else f"_{cores}_core"
        read = written["archive_bytes"] if name == "audit" else written["archive_log_bytes"]
        figures[f"{name}_msgs{end}_per_s"] = written["archive_messages"] / seconds
        figures[f"{name}{end}_mib_per_s"] = read / MIB / seconds
    if on == CORES:
        for name in JOBS:
            one, two = (taken_by[name, cores] for cores in CORES)
            figures[f"{name}_speedup_1_to_2_cores"] = statistics.median(
                before.seconds / after.seconds for before, after in zip(one, two, strict=True)
            )
    audits = taken_by["audit", CORES[-1]]
    figures["executor_peak_mib"] = max(one.peak_mib for one in audits)
    operations = written["archive_operations"]
    shuffled = statistics.median(one.shuffle_mib for one in audits)
    figures["audit_shuffle_bytes_per_op"] = shuffled * MIB / operations
    cpu_s = statistics.median(one.cpu_s for one in audits)
    figures["audit_cpu_us_per_op"] = cpu_s * 1e6 / operations
    return figures


def measure_quiet(rounds: int, memory_mib: int, piece: Piece) -> dict[str, float]:
    """Return what an audit of many small ranges takes on two cores."""
    folder = FOLDER / f"{QUIET_OPERATIONS}-in-{QUIET_RANGES}"
    folder.mkdir(parents=True, exist_ok=True)
    archive_of(folder, QUIET_OPERATIONS, piece, QUIET_RANGES)
    found = measured(folder, rounds, memory_mib, CORES[-1:], piece, ("audit",))
    audits = found["audit", CORES[-1]]
    return {
        "audit_small_ranges_s": statistics.median(one.wall_s for one in audits),
        "audit_small_ranges_best_s": min(one.wall_s for one in audits),
    }


def report_of(options: argparse.Namespace) -> dict[str, float]:
    """Measure what was asked for; `speedup_1_to_2_cores` is the audit's."""
    size, memory_mib = options.operations, options.memory_mib
    piece = Piece(options.piece_s)
    figures = measure_quiet(options.rounds, memory_mib, piece)
    if size:
        figures |= measure(FOLDER / f"{size}", size, options.rounds, memory_mib, piece)
        figures["speedup_1_to_2_cores"] = figures.pop("audit_speedup_1_to_2_cores")
        figures["executor_peak_mib_10m"] = figures.pop("executor_peak_mib")
    if options.small:
        small = measure(
            FOLDER / f"{options.small}", options.small, 1, memory_mib, piece, CORES[-1:]
        )
        figures["executor_peak_mib_1m"] = small.pop("executor_peak_mib")
        figures |= {f"small_{name}": value for name, value in small.items()}
    if options.archiver:
        cost = archiver.measure(say=say)
        figures |= {name: cost[name] for name in ("archiver_throughput_cost", "archiver_cpu_cost")}
        saturated = archiver.measure(is_saturated=True, say=say)
        figures["archiver_saturated_throughput_cost"] = saturated["archiver_throughput_cost"]
    figures["heap_mib"] = memory_mib
    figures["operations"] = size
    figures["small_operations"] = options.small
    figures["load_average_1m"] = os.getloadavg()[0]
    return {name: round(value, 3) for name, value in sorted(figures.items())}


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000_000, help="0: leave it out")
    parser.add_argument("--small", type=int, default=1_000_000, help="0: leave it out")
    parser.add_argument("--rounds", type=int, default=3, help="of the larger archive")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--piece-s", type=float, default=math.inf)
    parser.add_argument("--memory-mib", type=int, default=768)
    parser.add_argument("--no-archiver", dest="archiver", action="store_false")
    options = parser.parse_args()
    if options.fresh:
        for path in FOLDER.glob("*/taken.jsonl"):
            path.unlink()
    report = report_of(options)
    text = json.dumps(report, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

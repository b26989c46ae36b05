"""What one entry costs: `python -m tests.bench.entry`.

Three node processes on loopback as `qm dev up` runs them, and a fixed number of messages
outstanding. Processor time is that of the nodes' threads, by the part that each node plays. With
`--beside` another checkout's cluster runs the same loads in turn; the second table has the medians
of ours divided by theirs. Then a cluster with spans (`tests.bench.spans`) shows each step from the
sender's socket to its acknowledgement; the difference to the plain figures is what spans cost.
Prints tables, and writes build/bench-entry.json.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.bench import spans
from tests.bench.cluster_nodes import Nodes, thread_cpu_s
from tests.bench.entry_load import EntrySeen, Kind, Outstanding
from tests.bench.entry_sheet import Sheet, sheet
from tests.bench.load import Load

ROUNDS = 3
WARM_UP_MESSAGES = 2_000
SHEETS = (
    *("recoverable_1", "recoverable_8", "recoverable_256"),
    *("transactional_1", "transactional_8", "transactional_256"),
)
"""Cases whose steps are shown."""
OUTPUT = Path("build") / "bench-entry.json"

Figures = dict[str, float]


class Case(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    kind: Kind
    sessions: int
    window: int
    messages: int
    rate_per_s: float = 0.0
    queues: int = 1

    @property
    def is_transactional(self) -> bool:
        return self.kind is Kind.TRANSACTIONAL


CASES = (
    Case("recoverable_1", Kind.RECOVERABLE, 1, 1, 600),
    Case("recoverable_8", Kind.RECOVERABLE, 1, 8, 3_000),
    Case("recoverable_256", Kind.RECOVERABLE, 4, 64, 24_000),
    Case("recoverable_512", Kind.RECOVERABLE, 8, 64, 32_000),
    Case("sender_sid_512", Kind.SENDER_SID, 8, 64, 32_000),
    Case("lifetime_512", Kind.LIFETIME, 8, 64, 32_000),
    Case("queues_512", Kind.RECOVERABLE, 8, 64, 32_000, queues=8),
    Case("transactional_1", Kind.TRANSACTIONAL, 1, 1, 600),
    Case("transactional_8", Kind.TRANSACTIONAL, 1, 8, 3_000),
    Case("transactional_256", Kind.TRANSACTIONAL, 4, 64, 12_000),
    Case("transactional_512", Kind.TRANSACTIONAL, 8, 64, 16_000),
    Case("transactional_queues_512", Kind.TRANSACTIONAL, 8, 64, 16_000, queues=8),
    Case("transactional_1_per_s", Kind.TRANSACTIONAL, 1, 64, 4, rate_per_s=1),
    Case("transactional_10_per_s", Kind.TRANSACTIONAL, 1, 64, 20, rate_per_s=10),
    Case("transactional_1000_per_s", Kind.TRANSACTIONAL, 1, 64, 2_000, rate_per_s=1000),
)


class Side:
    """One cluster."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._targets: dict[tuple[int, bool], tuple[str, ...]] = {}

    def run(self, case: Case) -> Figures:
        """Run a case; return its figures."""
        return self._figures(case, *self._measured(case, self._pids()))

    def run_with_spans(self, case: Case) -> tuple[Figures, Sheet]:
        """Run a case on nodes with spans; return its figures and its sheet."""
        pids = self._pids()
        seen, spent = self._measured(case, pids, has_spans=True)
        reports = {name: spans.report(pid) for name, pid in pids.items()}
        found = sheet(reports, self._nodes.leader().name, spent, seen.messages)
        return self._figures(case, seen, spent), found

    def _pids(self) -> dict[str, int]:
        return {node.name: self._nodes.pid(node) for node in self._nodes.nodes}

    def _measured(
        self, case: Case, pids: dict[str, int], *, has_spans: bool = False
    ) -> tuple[EntrySeen, dict[str, float]]:
        """Return what the load saw, and what each node spent."""
        self._send(case, max(64, min(case.messages // 4, WARM_UP_MESSAGES)))
        if has_spans:
            for pid in pids.values():
                spans.begin(pid)
        before = {name: thread_cpu_s(pid) for name, pid in pids.items()}
        seen = self._send(case, case.messages)
        return seen, {name: thread_cpu_s(pid) - before[name] for name, pid in pids.items()}

    def _figures(self, case: Case, seen: EntrySeen, cpu_s: dict[str, float]) -> Figures:
        spent = dict(cpu_s)
        leading = spent.pop(self._nodes.leader().name)
        front, rear = max(spent.values()), min(spent.values())
        per_message = 1e6 / seen.messages
        figures = {
            "cpu_us": (leading + front + rear) * per_message,
            "leader_us": leading * per_message,
            "front_us": front * per_message,
            "rear_us": rear * per_message,
            "p50_ms": seen.p50_ms,
            "p99_ms": seen.p99_ms,
            "msgs_per_s": seen.messages / seen.seconds,
        }
        if case.is_transactional:
            figures["order_ack_p50_ms"] = seen.order_ack_p50_ms
            figures["order_ack_p99_ms"] = seen.order_ack_p99_ms
        return figures

    def _send(self, case: Case, messages: int) -> EntrySeen:
        rate = case.rate_per_s if messages == case.messages else 0.0
        return Load(
            Outstanding(
                host=self._nodes.leader().host,
                targets=self._queues(case),
                kind=case.kind,
                sessions=case.sessions,
                window=case.window,
                messages=messages,
                rate_per_s=rate,
            ),
            "tests.bench.entry_load",
            EntrySeen,
        ).run()

    def _queues(self, case: Case) -> tuple[str, ...]:
        key = (case.queues, case.is_transactional)
        if key not in self._targets:
            names = [
                f"entry{case.queues}.{int(case.is_transactional)}.{k}" for k in range(case.queues)
            ]
            made = self._nodes.create_queues(names, is_transactional=case.is_transactional)
            self._targets[key] = tuple(made)
        return self._targets[key]


def measure(sides: Sequence[Side], cases: Sequence[Case], rounds: int) -> list[dict[str, Figures]]:
    """Return the medians of each side, by case."""
    found: list[dict[str, dict[str, list[float]]]] = [
        defaultdict(lambda: defaultdict(list)) for _ in sides
    ]
    for case in cases:
        for _ in range(rounds):
            for side, figures in zip(sides, found, strict=True):
                for name, value in side.run(case).items():
                    figures[case.name][name].append(value)
        for side_figures in found:
            line = {k: round(statistics.median(v), 2) for k, v in side_figures[case.name].items()}
            print(case.name, json.dumps(line), file=sys.stderr, flush=True)
    return [
        {
            case: {name: statistics.median(values) for name, values in figures.items()}
            for case, figures in side.items()
        }
        for side in found
    ]


def table(figures: dict[str, Figures]) -> str:
    """Return a table, one line for each case."""
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    lines = ["".join(["case".ljust(28), *(name.rjust(18) for name in names)])]
    for case, row in figures.items():
        cells = [f"{row[name]:18.2f}" if name in row else " " * 18 for name in names]
        lines.append(case.ljust(28) + "".join(cells))
    return "\n".join(lines)


def show_sheets(folder: Path, cases: Sequence[Case], plain: dict[str, Figures]) -> Figures:
    """Print the steps of each case, and what the spans cost; return all figures."""
    os.environ[spans.FOLDER] = str(folder)
    found: Figures = {}
    with Nodes(folder / "nodes", "127.0.79", module="tests.bench.entry_nodes") as nodes:
        side = Side(nodes)
        for case in cases:
            figures, steps = side.run_with_spans(case)
            ratio = figures["cpu_us"] / plain[case.name]["cpu_us"]
            print(f"\n{case.name}: with spans {ratio:.2f} of the processor time without")
            print(steps.table())
            named = steps.figures() | {f"with_spans_{name}": x for name, x in figures.items()}
            found |= {f"{case.name}_{name}": value for name, value in named.items()}
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="what one entry costs")
    parser.add_argument("--beside", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="cases, separated by commas")
    parser.add_argument("--no-spans", dest="spans", action="store_false")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [case.name for case in CASES]
    cases = [case for case in CASES if case.name in only]
    with ExitStack() as stack:
        sides = []
        for number, tree in enumerate([None, options.beside] if options.beside else [None]):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-entry-"))
            nodes = Nodes(Path(folder), f"127.0.{77 + number}", tree)
            sides.append(Side(stack.enter_context(nodes)))
        ours, *others = measure(sides, cases, options.rounds)
    print(table(ours))
    for theirs in others:
        print("\nours divided by theirs")
        ratios = {
            case: {name: value / theirs[case][name] for name, value in row.items()}
            for case, row in ours.items()
        }
        print(table(ratios))
    report = {f"{case}_{name}": value for case, row in ours.items() for name, value in row.items()}
    if options.spans:
        with tempfile.TemporaryDirectory(prefix="quorate-spans-") as folder:
            shown = [case for case in cases if case.name in SHEETS]
            report |= show_sheets(Path(folder), shown, ours)
    OUTPUT.parent.mkdir(exist_ok=True)
    rounded = {name: round(value, 3) for name, value in report.items()}
    OUTPUT.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

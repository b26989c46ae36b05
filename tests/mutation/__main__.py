"""Break the durable code, one small change at a time: do its tests notice?

    python -m tests.mutation [--seed 1] [--number 300] [--jobs 2] [--simulator]

Cosmic Ray makes the breaks (`breaks`, in an environment of its own: it brings a database layer
and Git bindings that nothing else here wants). It was taken and mutmut was not because it changes
one place of one file: mutmut rewrites every function of a module into a switch between all its
mutants, which is slower on the paths that tests measure, and its classes with slots do not import.

1. The suite runs once on sound code; coverage says which test executes which line.
2. Of all places in raft, qm/store, qm/model and qm/edge a sample is taken (`breaks`).
3. For each break the tests of its line run in a copy of the tree, until one fails; with
   --simulator, seeds of both simulators judge what no test noticed.

What was judged is kept in build/mutants-code: a run that was stopped goes on, a break of code that
has changed is shown first, and before 1, to the test that noticed it, and a survivor is judged
again when tests have changed. `equivalent.toml` lists breaks that change nothing, with the
reason. Writes build/mutants-code.json; exit code 1 while the share is below --wanted.
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.mutation.reach import Reach
from tests.mutation.workshop import ROOT, Fate, Verdict, Workshop

FOLDER: Final = ROOT / "build" / "mutants-code"
REPORT: Final = ROOT / "build" / "mutants-code.json"
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
BREAKS: Final = Path(__file__).with_name("breaks.py")
COSMIC_RAY: Final = ROOT / "build" / "cosmic-ray" / "bin" / "python"
IDENTITY: Final = ("file", "definition", "operator", "before", "after", "ordinal")
WANTED: Final = 0.95


def hash_of(*folders: str) -> str:
    """Return a hash of all Python source below."""
    found = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


def identity(found: dict[str, Any]) -> str:
    """Return what names a break from one run to the next."""
    return " | ".join(str(found[name]) for name in IDENTITY)


def reasons() -> dict[tuple[str, str, str, str], str]:
    """Return why breaks are equivalent, by file, definition, before, after."""
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return {
        (each["file"], each["in"], each["before"], each["after"]): each["reason"]
        for each in entries
    }


def reason_of(found: dict[str, Any], known: dict[tuple[str, str, str, str], str]) -> str | None:
    """Return why a break is equivalent, None if that is not known."""
    return known.get((found["file"], found["definition"], found["before"], found["after"]))


def sample(seed: int, number: int) -> tuple[list[dict[str, Any]], int]:
    """Return the breaks, and among how many places they were taken."""
    target = FOLDER / "sample.json"
    command = [str(COSMIC_RAY), str(BREAKS), str(ROOT), str(seed), str(number), str(target)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    made = json.loads(target.read_text(encoding="utf-8"))
    return made["breaks"], made["places"]


class Results:
    """What was judged so far, on disk after each break."""

    def __init__(self, tests_hash: str) -> None:
        self._tests_hash = tests_hash
        self._file = FOLDER / "results.json"
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, str]] = (
            json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        )

    def known(self, found: dict[str, Any], *, by_seeds: bool) -> Verdict | None:
        """Return the verdict if it still holds: the code is the same and no new test may kill."""
        row = self._rows.get(identity(found))
        if row is None or row["source"] != found["source_hash"]:
            return None
        verdict = Verdict(Fate(row["fate"]), row["by"])
        if verdict.fate is Fate.KILLED:
            return verdict
        is_complete = row["tests"] == self._tests_hash and (row["seeds"] == "yes" or not by_seeds)
        return verdict if is_complete and verdict.fate is Fate.SURVIVED else None

    def noticed_by(self, found: dict[str, Any]) -> str | None:
        """Return the test that noticed the break when the code around it was another."""
        row = self._rows.get(identity(found))
        is_test = row is not None and row["fate"] == Fate.KILLED and "::" in row["by"]
        return row["by"] if row is not None and is_test else None

    def keep(self, found: dict[str, Any], verdict: Verdict, *, by_seeds: bool) -> None:
        """Keep a verdict."""
        with self._lock:
            self._rows[identity(found)] = {
                "fate": verdict.fate,
                "by": verdict.by,
                "source": found["source_hash"],
                "tests": self._tests_hash,
                "seeds": "yes" if by_seeds else "no",
            }
            draft = self._file.with_suffix(".new")
            draft.write_text(json.dumps(self._rows, indent=1), encoding="utf-8")
            draft.replace(self._file)


def measured(workshop: Workshop, code_hash: str) -> Reach:
    """Return which tests belong to which lines, measured now unless that is known."""
    folder, mark = FOLDER / "reach", FOLDER / "reach.hash"
    if mark.exists() and mark.read_text(encoding="utf-8") == code_hash:
        return Reach(folder, workshop.root)
    reach = workshop.measure(folder)
    mark.write_text(code_hash, encoding="utf-8")
    return reach


def judge_again(
    found: list[dict[str, Any]], results: Results, shops: list[Workshop]
) -> list[dict[str, Any]]:
    """Ask of each break the test that noticed it before; return those that are still open.

    That is quick, and needs no sound run of the whole suite.
    """
    left: list[dict[str, Any]] = []

    def judge(shop: Workshop, each: dict[str, Any]) -> None:
        test = results.noticed_by(each)
        if test is None or not shop.is_noticed(each, test):
            left.append(each)
        else:
            _keep(results, each, Verdict(Fate.KILLED, test), seeds=False)

    _work_off(found, shops, judge)
    return left


def judge_all(
    found: list[dict[str, Any]], results: Results, reach: Reach, shops: list[Workshop], seeds: bool
) -> None:
    """Judge breaks by all tests that belong to their lines."""

    def judge(shop: Workshop, each: dict[str, Any]) -> None:
        tests = reach.tests_of(each["file"], each["line"])
        _keep(results, each, shop.judge(each, tests, reach.slow, by_seeds=seeds), seeds=seeds)

    _work_off(found, shops, judge)


def _keep(results: Results, each: dict[str, Any], verdict: Verdict, *, seeds: bool) -> None:
    results.keep(each, verdict, by_seeds=seeds)
    place = f"{each['file']}:{each['line']} {each['definition']}"
    print(f"{verdict.fate}: {place} [{verdict.by[-160:]}]", file=sys.stderr, flush=True)
    if verdict.fate is not Fate.KILLED:
        print(f"    {each['before']}\n    {each['after']}", file=sys.stderr, flush=True)


def _work_off(
    found: list[dict[str, Any]],
    shops: list[Workshop],
    judge: Callable[[Workshop, dict[str, Any]], None],
) -> None:
    """Judge breaks, one at a time in each copy."""
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for each in found:
        waiting.put(each)

    def work(shop: Workshop) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                judge(shop, waiting.get_nowait())

    with ThreadPoolExecutor(len(shops)) as workers:
        for done in [workers.submit(work, shop) for shop in shops]:
            done.result()


def figures(
    found: list[dict[str, Any]], verdicts: list[Verdict | None], places: int
) -> dict[str, Any]:
    """Return what build/mutants-code.json says. An equivalent that is killed counts as killed."""
    known = reasons()
    counts = dict.fromkeys(("killed", "equivalent", "survived", "timed_out"), 0)
    left: list[dict[str, Any]] = []
    for each, verdict in zip(found, verdicts, strict=True):
        fate = "survived" if verdict is None else str(verdict.fate)
        if fate != Fate.KILLED and reason_of(each, known) is not None:
            fate = "equivalent"
        counts[fate] += 1
        if fate in (Fate.SURVIVED, Fate.TIMED_OUT):
            left.append({name: each[name] for name in (*IDENTITY, "line")} | {"fate": fate})
    good = counts["killed"] + counts["equivalent"]
    return {
        "mutants": len(found),
        **counts,
        "killed_or_equivalent_share": round(good / len(found), 4) if found else 0.0,
        "places": places,
        "tool": "cosmic-ray",
        "left": left,
    }


def main() -> int:
    """Sample, judge, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--seed", type=int, default=1, help="which places are taken")
    parser.add_argument("--number", type=int, default=300, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="breaks that are judged at a time")
    parser.add_argument("--simulator", action="store_true", help="let seeds judge survivors")
    parser.add_argument("--wanted", type=float, default=WANTED, help="share for exit code 0")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    found, places = sample(options.seed, options.number)
    results = Results(hash_of("tests"))
    seeds = options.simulator
    known = reasons()
    open_ones = [
        each
        for each in found
        if results.known(each, by_seeds=seeds) is None and reason_of(each, known) is None
    ]
    if open_ones:
        shops = [Workshop(FOLDER / f"tree-{k}") for k in range(options.jobs)]
        open_ones = judge_again(open_ones, results, shops)
    if open_ones:
        reach = measured(shops[0], hash_of("qm", "raft", "tests"))
        judge_all(open_ones, results, reach, shops, seeds)
    verdicts = [results.known(each, by_seeds=False) for each in found]
    report = {"seed": options.seed, **figures(found, verdicts, places)}
    text = json.dumps(report, indent=1)
    print(text)
    REPORT.write_text(text + "\n", encoding="utf-8")
    return 0 if report["killed_or_equivalent_share"] >= options.wanted else 1


if __name__ == "__main__":
    sys.exit(main())

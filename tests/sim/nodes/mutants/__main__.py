"""Planted bugs of the whole product: does the simulator of nodes find them?

    python -m tests.sim.nodes.mutants [--seeds 30] [--only NAME]

As `tests.sim.mutants`: each bug is a patch on a copy of the tree, and what a seed finds counts if
the same seed finds nothing in a sound copy. Writes build/node_mutants.json.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.sim.mutants import Outcome, plant
from tests.sim.nodes.mutants.planted import PLANTED, Planted

ROOT: Final = Path(__file__).resolve().parents[4]
COPIED: Final = ("qm", "raft", "tests/sim", "tests/unit/edge", "tests/unit/model", "build/sim")
SINGLE: Final = ("tests/__init__.py", "tests/unit/__init__.py")
REPORT: Final = Path("build/node_mutants.json")
SEEDS: Final = 30


def copy_tree(target: Path) -> None:
    """Copy what the simulator needs."""
    for name in COPIED:
        if (ROOT / name).exists():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in SINGLE:
        shutil.copy(ROOT / name, target / name)


def simulate(tree: Path, seeds: range, faults: str) -> dict[str, Any]:
    """Run seeds in a copy of the tree until one fails; return the figures."""
    span = f"{seeds.start}:{seeds.stop}"
    options = ["--seeds", span, "--faults", faults, "--first", "--json"]
    command = [sys.executable, "-m", "tests.sim.nodes", *options]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    report = tree / "build" / "sim.json"
    if not report.exists():
        raise RuntimeError(f"the simulator did not run:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(report.read_text())
    report.unlink()
    if Path(figures["product_path"]).resolve() != (tree / "qm").resolve():
        raise RuntimeError("the installed project was imported, not the copy")
    return figures


def hunt(planted: Planted, seeds: int) -> Outcome:
    """Run seeds on the mutant until one finds something that is the mutant's doing."""
    with tempfile.TemporaryDirectory() as folder:
        sound, broken = Path(folder) / "sound", Path(folder) / "broken"
        for tree in (sound, broken):
            copy_tree(tree)
        plant(planted.mutant, broken)
        start = 0
        while start < seeds:
            figures = simulate(broken, range(start, seeds), planted.faults)
            if not figures["failed_seeds"]:
                break
            seed = figures["failed_seeds"][0]
            if not simulate(sound, range(seed, seed + 1), planted.faults)["failed_seeds"]:
                return Outcome(seed, figures["first_failure"])
            start = seed + 1
        return Outcome(None, "")


def main() -> int:
    """Hunt every bug; report."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.nodes.mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="for each bug, at most")
    parser.add_argument("--only", help="one of them, by name")
    options = parser.parse_args()
    chosen = [each for each in PLANTED if options.only in (None, each.mutant.name)]
    outcomes: dict[str, Outcome] = {}
    for each in chosen:
        name = each.mutant.name
        outcome = outcomes[name] = hunt(each, options.seeds)
        found = "SURVIVED" if outcome.seed is None else f"seed {outcome.seed}: {outcome.finding}"
        print(f"{name}: {found[:300]}", flush=True)
    caught = sum(outcome.seed is not None for outcome in outcomes.values())
    report = {
        "planted": len(chosen),
        "caught": caught,
        "survived": len(chosen) - caught,
        "seeds_per_mutant_max": options.seeds,
        **{f"first_seed_{name}": outcome.seed for name, outcome in outcomes.items()},
        **{f"finding_{name}": outcome.finding for name, outcome in outcomes.items()},
    }
    print(json.dumps(report, indent=1))
    if options.only is None:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

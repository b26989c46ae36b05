"""Planted bugs: does the simulator find them?

    python -m tests.sim.mutants [--seeds 500] [--only NAME]

Each mutant is a patch of product source on a copy of the tree in a temporary folder; the product
has no switches for it. Seeds run until one fails. A patch whose text is no longer found, or found
twice, ends the run: it must follow the code that it breaks. Writes build/mutants.json.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sim.__main__ import STEPS
from tests.sim.planted import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("raft", "tests/sim", "tests/unit/model", "tests/unit/__init__.py", "tests/__init__.py")
SEEDS = 500


class PatchFailed(Exception):
    """The text that a mutant replaces is not there exactly once."""


@dataclass(frozen=True)
class Outcome:
    """What the simulator said of a mutant."""

    seed: int | None
    """The first that failed, None if all passed."""
    finding: str


def copy_tree(target: Path) -> None:
    """Copy what the simulator needs."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def plant(mutant: Mutant, tree: Path) -> None:
    """Patch a copy of the tree."""
    for file, old, new in mutant.patches:
        path = tree / file
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise PatchFailed(
                f"mutant {mutant.name}: {file} holds this text {text.count(old)} times, not once; "
                f"make the patch follow the code:\n{old}"
            )
        text = text.replace(old, new)
        compile(text, file, "exec")
        path.write_text(text, encoding="utf-8")


def simulate(tree: Path, seeds: range) -> dict[str, Any]:
    """Run seeds in a copy of the tree until one fails; return the figures."""
    options = ["--seeds", f"{seeds.start}:{seeds.stop}", "--steps", str(STEPS), "--first", "--json"]
    command = [sys.executable, "-m", "tests.sim", *options]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    report = tree / "build" / "sim.json"
    if not report.exists():
        raise RuntimeError(f"the simulator did not run:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(report.read_text())
    report.unlink()
    if Path(figures["raft_path"]).resolve() != (tree / "raft").resolve():
        raise RuntimeError("the installed project was imported, not the copy")
    return figures


def hunt(mutant: Mutant, seeds: int) -> Outcome:
    """Run the simulator on the mutant until it finds something that is the mutant's doing."""
    with tempfile.TemporaryDirectory() as folder:
        sound, broken = Path(folder) / "sound", Path(folder) / "broken"
        for tree in (sound, broken):
            copy_tree(tree)
        plant(mutant, broken)
        start = 0
        while start < seeds:
            figures = simulate(broken, range(start, seeds))
            if not figures["failed_seeds"]:
                break
            seed = figures["failed_seeds"][0]
            if not simulate(sound, range(seed, seed + 1))["failed_seeds"]:
                return Outcome(seed, figures["first_failure"])
            start = seed + 1
        return Outcome(None, "")


def main() -> int:
    """Hunt every mutant; report."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="for each mutant, at most")
    parser.add_argument("--only", help="one mutant, by name")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in (None, mutant.name)]
    outcomes: dict[str, Outcome] = {}
    for mutant in chosen:
        outcome = outcomes[mutant.name] = hunt(mutant, options.seeds)
        found = "SURVIVED" if outcome.seed is None else f"seed {outcome.seed}: {outcome.finding}"
        print(f"{mutant.name}: {found}", flush=True)
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
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "mutants.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

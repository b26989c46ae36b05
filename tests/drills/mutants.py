"""Planted bugs: does a drill find them? Needs root: some need the network cut.

    python -m tests.drills.mutants [--rounds 3] [--only NAME]

Each mutant is a patch of product source on a copy of the tree in a temporary folder; the product
has no switches for it. Its drill must fail on the copy, in every round, and pass on a sound copy.
Writes build/drill-mutants.json, each mutant's entry as soon as it is there; with --only the others'
entries stay.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from qm.drill.report.report import merge_results
from tests.drills.planted import HUNTS, Hunt
from tests.sim.mutants import plant
from tests.sim.planted import mutant

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "drill-mutants.json"
COPIED = ("qm", "raft")
ROUNDS = 3
RATE_PER_S = 100
"""Of each sender."""
NETWORK = "127.0.71"
NOT_CARRIED_OUT = "NOT CARRIED OUT"
"""Proves nothing, of no tree."""


def copy_tree(target: Path, hunt: Hunt) -> None:
    """Copy the product, tuned."""
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    plant(mutant("tuning", "", *hunt.tuning), target)


def drill(tree: Path, hunt: Hunt, seed: int) -> tuple[bool, str]:
    """Run the drill of a copy once; return whether it passed, and what it said."""
    report = tree / "drill" / "drills.json"
    command = [
        *(sys.executable, "-m", "qm", "drill", "run", hunt.scenario, "--target", hunt.target),
        *("--seed", str(seed), "--rate", str(RATE_PER_S), "--network", NETWORK),
        *("--folder", str(tree / "drill"), "--report", str(report)),
    ]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith(hunt.scenario)]
    if not said or NOT_CARRIED_OUT in said[0]:
        raise RuntimeError(f"the drill did not run:\n{done.stdout}\n{done.stderr}")
    return done.returncode == 0, " ".join(said[0].split())


def hunted(hunt: Hunt, rounds: int) -> dict[str, object]:
    """Return what the drill said of the sound and of the broken tree."""
    findings, missed = [], 0
    with tempfile.TemporaryDirectory(prefix="quorate-mutant-") as folder:
        sound, broken = Path(folder) / "sound", Path(folder) / "broken"
        for tree in (sound, broken):
            copy_tree(tree, hunt)
        plant(hunt.mutant, broken)
        passed, said = drill(sound, hunt, 1)
        print(f"{hunt.mutant.name}, sound: {said}", flush=True)
        for seed in range(1, rounds + 1):
            is_missed, finding = drill(broken, hunt, seed)
            missed += is_missed
            findings.append(finding)
            print(f"{hunt.mutant.name}: {finding}", flush=True)
    return {
        "scenario": hunt.scenario,
        "target": hunt.target,
        "runs": rounds,
        "caught": rounds - missed,
        "sound_passes": passed,
        "findings": findings,
    }


def main() -> int:
    """Hunt every mutant; report."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills.mutants")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="for each mutant")
    parser.add_argument("--only", help="one mutant, by name")
    options = parser.parse_args()
    chosen = [hunt for hunt in HUNTS if options.only in (None, hunt.mutant.name)]
    if os.geteuid() != 0 and any(hunt.target == "netns" for hunt in chosen):
        print("drill-mutants needs root: some bugs show only when the network is cut")
        return 2
    if options.only is None:
        OUTPUT.unlink(missing_ok=True)
    outcomes = {}
    for hunt in chosen:
        outcomes[hunt.mutant.name] = hunted(hunt, options.rounds)
        merge_results(OUTPUT, outcomes)
    is_good = all(o["caught"] == o["runs"] and o["sound_passes"] for o in outcomes.values())
    print(json.dumps(outcomes, indent=1))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

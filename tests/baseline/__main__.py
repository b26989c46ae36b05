"""The comparison with raftos.

    python -m tests.baseline --raftos PYTHON    both sides; writes build/baseline.json. PYTHON is an
                                                interpreter that has raftos 0.2.6 (`make baseline`)
    python -m tests.baseline --side raftos      one side, as one JSON object (or `quorate`)

Exit status 1 when our own core violates anything.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.baseline.face import Cluster
from tests.baseline.scenarios import SCENARIOS


def factory(side: str, folder: Path) -> Callable[[int], Cluster]:
    """Return what makes a cluster of so many machines."""
    if side == "raftos":
        from tests.baseline.raftos_cluster import RaftosCluster, install_shim

        install_shim()
        return lambda machines: RaftosCluster(machines, folder)
    from tests.baseline.quorate_cluster import QuorateCluster

    return QuorateCluster


def run(side: str) -> dict[str, str]:
    """Return what each scenario violates on that side, "" for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        make = factory(side, Path(folder) / "machines")
        found = {}
        for scenario in SCENARIOS:
            cluster = make(scenario.machines)
            found[scenario.name] = scenario.run(cluster)
            cluster.close()
        return found


def compare(interpreter: str) -> dict[str, object]:
    """Run raftos under that interpreter and Quorate under this one."""
    command = [interpreter, "-m", "tests.baseline", "--side", "raftos"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"raftos cannot be run:\n{done.stdout}{done.stderr}")
    raftos: dict[str, str] = json.loads(done.stdout)
    quorate = run("quorate")
    return {
        "scenarios": len(SCENARIOS),
        "violated_by_raftos": sum(map(bool, raftos.values())),
        "violated_by_quorate": sum(map(bool, quorate.values())),
        **{f"raftos_{name}": text for name, text in raftos.items()},
        **{f"quorate_{name}": text for name, text in quorate.items()},
    }


def main() -> int:
    """Read the arguments, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.baseline")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--raftos", metavar="PYTHON", help="compare with the raftos found there")
    chosen.add_argument("--side", choices=("raftos", "quorate"), help="run one side")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run(options.side), indent=1))
        return 0
    report = compare(options.raftos)
    text = json.dumps(report, indent=1)
    print(text)
    Path("build").mkdir(exist_ok=True)
    Path("build/baseline.json").write_text(text + "\n")
    return 1 if report["violated_by_quorate"] else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.disable(logging.WARNING)
    sys.exit(main())

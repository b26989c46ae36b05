"""Run the simulator of whole nodes; `python -m tests.sim --machine node` comes here too.

    python -m tests.sim.nodes --seed 17 -v                  one seed, with its transcript
    python -m tests.sim.nodes --seeds 0:200 --json          many, and figures in build/sim.json
    python -m tests.sim.nodes --seeds 0:50 --faults disk    with these faults alone

The process is started again with a fixed hash seed and the library that fails RocksDB's files.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.sim.nodes.kinds import FAULT_KINDS, FAULT_SETS
from tests.sim.nodes.shim import LIBRARY, build


def seeds_of(text: str) -> Sequence[int]:
    """Read `A:B`, or `A,B,C`."""
    first, colon, end = text.partition(":")
    if colon:
        return range(int(first), int(end))
    return [int(part) for part in text.split(",")]


def _again() -> None:
    """Go on in a process whose sets and RocksDB do what the seed says."""
    library = build()
    environment = dict(os.environ, PYTHONHASHSEED="0")
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    if os.environ.get("PYTHONHASHSEED") == "0" and (
        library is None or LIBRARY.name in os.environ.get("LD_PRELOAD", "")
    ):
        return
    arguments = [sys.executable, "-m", "tests.sim.nodes", *sys.argv[1:]]
    os.execve(sys.executable, arguments, environment)


def main() -> int:
    """Read the arguments, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.nodes")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", type=seeds_of, metavar="A:B", help="run A to B - 1, or A,B,C")
    parser.add_argument("--seconds", type=float, default=None, help="of load with faults")
    parser.add_argument("--faults", default="", help="sets or kinds of faults, with commas")
    parser.add_argument("--processes", type=int, default=1, help="at a time")
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("--json", action="store_true", help="print and write build/sim.json")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the transcript")
    parser.add_argument("--machine", choices=["node"], default="node", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for part in filter(None, options.faults.split(",")):
        if part not in FAULT_SETS and part not in FAULT_KINDS:
            parser.error(f"no fault and no set of faults: {part}")
    _again()
    from tests.sim.nodes import seeds  # takes time and chance over, before all others
    from tests.sim.nodes.knobs import SECONDS

    level = os.environ.get("SIM_LOG", "CRITICAL")
    logging.basicConfig(level=level, format="%(name)s %(message)s")
    seconds = options.seconds or SECONDS
    seeds.set_up()
    if options.seed is not None:
        result = seeds.run_seed(options.seed, options.faults, seconds, is_verbose=options.verbose)
        print(json.dumps(result, indent=1), flush=True)
        os._exit(1 if result["findings"] else 0)
    figures = seeds.run_seeds(
        options.seeds or range(20),
        options.faults,
        seconds,
        processes=options.processes,
        stop_at_first=options.first,
    )
    print(json.dumps(figures, indent=1), flush=True)
    if options.json:
        Path("build").mkdir(exist_ok=True)
        seeds.REPORT.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

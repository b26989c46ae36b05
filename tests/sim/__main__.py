"""Run the simulator.

    python -m tests.sim --seed 17 --steps 2000 -v      one seed, with its transcript
    python -m tests.sim --seeds 0:200 --steps 2000     many; prints what fails and how to replay it
    python -m tests.sim --seeds 0:200 --json           and the figures, also in build/sim.json
    python -m tests.sim --machine model --seeds 0:50   the queue manager instead of the toy
    python -m tests.sim --machine node --seeds 0:50    whole nodes (tests.sim.nodes)

Legend of the transcript: virtual microseconds, event, fields.

    start die kill power stop   a process begins; dies at its disk (why); is killed, loses power,
                                is stopped
    pause freeze                SIGSTOP for so many microseconds; of a leader that is cut off too
    cut clog reset lose repeat  directions cut until a time; one held up until a time; a connection
                                broken; a frame lost; an old frame delivered again
    peer                        a process learns the state of its connection to a peer
    fill room wipe corrupt      a disk has only this room; has room again; is emptied; a bit in a
                                file is flipped at an offset
    set_back stall              a disk becomes an earlier copy of itself; a state machine applies
                                nothing for so many microseconds
    refused                     an administrator's or operator's request was refused (why)
    change transfer             an administrator changes the members; moves the leadership
    send recv                   an envelope leaves (sender, receiver, term, body); a frame arrives
                                (receiver, from where, envelopes)
    role                        a process has another role, term or leader (role, term, leader)
    members                     a process works with another configuration: voters, (learners)
    propose done lost read      operations enter at a process; are acknowledged (index); are known
                                never to happen; a key is read (index of the state seen)
    sync                        a background sync has finished (id, disk sequence it covers)
    snapshot                    a snapshot starts (from, to, index, bytes); ends (complete?)
    alarm                       a replica calls its operator
    stranger                    an envelope that does not concern this group is delivered
    settle settled calm         faults stop; everyone has caught up; only resets from now on
"""

import argparse
import json
import os
import sys
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import raft
from tests.sim.checkers import Violation
from tests.sim.clients import Outcome
from tests.sim.machine_world import QUEUES
from tests.sim.world import REGISTERS, World

STEPS = 2_000


MACHINES = {"registers": REGISTERS, "model": QUEUES}


def replay_command(seed: int, steps: int, machine: str = "registers") -> str:
    """Return what replays a seed."""
    chosen = f" --machine {machine}" if machine != "registers" else ""
    return f"python -m tests.sim{chosen} --seed {seed} --steps {steps} -v"


def run_seed(
    seed: int, steps: int, machine: str = "registers", *, is_verbose: bool = False
) -> World:
    """Run one seed; raises what it finds."""
    world = World(seed, write=print if is_verbose else None, workload=MACHINES[machine])
    if is_verbose:
        print(world.knobs)
    world.run(steps)
    return world


def describe(error: BaseException) -> str:
    """Return one line that says what was found, and where if it is no checker's finding."""
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, Violation):
        place = traceback.extract_tb(error.__traceback__)[-1]
        text += f" ({Path(place.filename).name}:{place.lineno})"
    return text


def run_seeds(
    seeds: range, steps: int, machine: str = "registers", *, stop_at_first: bool
) -> dict[str, Any]:
    """Run seeds one by one; return the figures."""
    began_s = time.perf_counter()
    failures: dict[int, str] = {}
    totals = dict.fromkeys(("steps", "crashes", "operations_done", "reads", "snapshots"), 0)
    counts: dict[str, int] = {}
    crashing = run = 0
    for seed in seeds:
        run += 1
        world = World(seed, workload=MACHINES[machine])
        try:
            world.run(steps)
        except Exception as error:
            failures[seed] = describe(error)
            print(f"seed {seed} failed: {failures[seed]}", file=sys.stderr)
            print(f"  {replay_command(seed, steps, machine)}", file=sys.stderr)
        crashing += world.faults.crashes > 0
        totals["steps"] += world.steps
        totals["crashes"] += world.faults.crashes
        totals["operations_done"] += world.clients.count(Outcome.DONE)
        totals["reads"] += world.clients.reads_served
        totals["snapshots"] += world.network.snapshots_done
        for kind, count in world.faults.counts.items():
            counts[f"fault_{kind}"] = counts.get(f"fault_{kind}", 0) + count
        for kind, count in world.checker.counts.items():
            counts[kind] = counts.get(kind, 0) + count
        if failures and stop_at_first:
            break
    wall_s = time.perf_counter() - began_s
    return {
        "machine": machine,
        "seeds": run,
        "seeds_with_crash": crashing,
        "failed": len(failures),
        "failed_seeds": sorted(failures),
        "first_failure": next(iter(failures.values()), ""),
        **{f"{name}_total": value for name, value in totals.items()},
        **{f"{kind}_total": counts[kind] for kind in sorted(counts)},
        "raft_path": str(Path(raft.__file__).parent),
        "wall_s": round(wall_s, 2),
        "steps_per_s": round(totals["steps"] / wall_s),
    }


def seed_range(text: str) -> range:
    """Read `A:B`."""
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def is_for_nodes(arguments: list[str]) -> bool:
    """Return whether whole nodes are asked for."""
    return "--machine=node" in arguments or ("--machine", "node") in pairwise(arguments)


def main() -> int:
    """Read the arguments, run, report."""
    if is_for_nodes(sys.argv):
        # A process of its own: time and chance are taken over before the product is imported.
        command = [sys.executable, "-m", "tests.sim.nodes", *sys.argv[1:]]
        os.execv(sys.executable, command)
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", type=seed_range, metavar="A:B", help="run seeds A to B - 1")
    parser.add_argument("--steps", type=int, default=STEPS, help="with faults, per seed")
    parser.add_argument("--json", action="store_true", help="print and write build/sim.json")
    parser.add_argument(
        "--machine",
        choices=[*sorted(MACHINES), "node"],
        default="registers",
        help="what is replicated; node: whole nodes, which have options of their own",
    )
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the transcript")
    options = parser.parse_args()
    if options.seed is not None:
        try:
            world = run_seed(
                options.seed, options.steps, options.machine, is_verbose=options.verbose
            )
        except Exception as error:
            print(f"seed {options.seed} failed: {describe(error)}", file=sys.stderr)
            replay = replay_command(options.seed, options.steps, options.machine)
            print(f"  {replay}", file=sys.stderr)
            raise
        print(f"seed {options.seed}: {world.steps} steps, transcript {world.transcript_hash()}")
        return 0
    figures = run_seeds(
        options.seeds or range(200), options.steps, options.machine, stop_at_first=options.first
    )
    if options.json:
        print(json.dumps(figures, indent=1))
        Path("build").mkdir(exist_ok=True)
        Path("build/sim.json").write_text(json.dumps(figures, indent=1) + "\n")
    else:
        print(
            f"{figures['seeds']} seeds, {figures['steps_total']} steps in {figures['wall_s']} s, "
            f"{figures['failed']} failed"
        )
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

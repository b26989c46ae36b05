"""Seeds, each in a forked child: nothing is left over, and importing is paid once."""

import gc
import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

# Behind the patches: these import the product.
import qm.store
from tests.sim.nodes import patches
from tests.sim.nodes.cluster import SimCluster
from tests.sim.nodes.knobs import SECONDS
from tests.sim.nodes.machines import prepare
from tests.sim.nodes.report import figures, replay_command
from tests.sim.nodes.shim import LIBRARY, Shim

KEYS: Final = Path("build/sim/nodes")
REPORT: Final = Path("build/sim.json")
SEED_MAX_S: Final = 120
"""Of CPU, many times what one takes: how long that lasts is the machine's affair."""
HUNG_S: Final = 900
"""A seed that took no CPU for so long waits for something that does not come."""


def run_seed(seed: int, kinds: str, seconds: float, *, is_verbose: bool = False) -> dict[str, Any]:
    """Run a seed in this process; return what came of it."""
    gc.disable()
    began_s = patches.REAL.perf_counter()
    cluster = SimCluster(
        seed, KEYS.resolve(), seconds=seconds, kinds=kinds, write=print if is_verbose else None
    )
    try:
        cluster.run()
    except Exception as error:
        logging.getLogger(__name__).exception("the simulator failed")
        cluster.find(f"simulator: {type(error).__name__}: {error}")
    finally:
        cluster.close()
    sent, acknowledged, received = cluster.load.counts
    return {
        "seed": seed,
        "trace": cluster.world.trace_hash(),
        "events": cluster.world.events,
        "turns": cluster.world.turns,
        "virtual_s": round(cluster.world.elapsed_s, 1),
        "real_s": round(patches.REAL.perf_counter() - began_s, 2),
        "sent": sent,
        "acknowledged": acknowledged,
        "received": received,
        "far_arrived": cluster.far.arrived,
        "ack_marks": cluster.probes.ack_marks,
        "queues_deleted": cluster.load.queues_deleted,
        "installs": cluster.probes.installs,
        "backups_made": cluster.backups_made,
        "parts_bent": cluster.network.bends,
        "foreign_errors": sum(
            sum(machine.disk.refused.values()) for machine in cluster.machines.values()
        ),
        "lives": sum(machine.lives for machine in cluster.machines.values()),
        "faults": cluster.faults.counts,
        "findings": cluster.findings,
    }


class _Child(NamedTuple):
    seed: int
    pid: int
    descriptor: int
    """Where its result can be read."""

    def cpu_s(self) -> float:
        """Return how much CPU it has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def collect(self) -> dict[str, Any]:
        """Return what came of it, which waits for its end."""
        with os.fdopen(self.descriptor) as pipe:
            text = pipe.read()
        _, status, usage = os.wait4(self.pid, 0)
        cpu_s = round(usage.ru_utime + usage.ru_stime, 2)
        if text:
            return {**json.loads(text), "cpu_s": cpu_s}
        ending = f"simulator: the process ended with status {status} after {cpu_s} s of CPU"
        return {"seed": self.seed, "findings": [ending], "cpu_s": cpu_s}


def _fork(seed: int, kinds: str, seconds: float) -> _Child:
    """Run a seed in a child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return _Child(seed, pid, read_end)
    resource.setrlimit(resource.RLIMIT_CPU, (SEED_MAX_S, SEED_MAX_S))
    result = run_seed(seed, kinds, seconds)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(write_end, "w") as pipe:
        json.dump(result, pipe)
    # Objects of the dead would run their finalizers now.
    os._exit(0)


def _next(running: list[_Child]) -> dict[str, Any]:
    """Return the result of whichever ends first, and take it from the list."""
    while True:
        before = [child.cpu_s() for child in running]
        ended, _, _ = select.select([child.descriptor for child in running], [], [], HUNG_S)
        for child, cpu_s in zip(running, before, strict=True):
            if not ended and child.cpu_s() == cpu_s:
                os.kill(child.pid, signal.SIGKILL)
        for child in running:
            if child.descriptor in ended:
                running.remove(child)
                return child.collect()


def run_seeds(
    seeds: Sequence[int],
    kinds: str = "",
    seconds: float = SECONDS,
    *,
    processes: int = 1,
    stop_at_first: bool = False,
) -> dict[str, Any]:
    """Run many; return the figures."""
    began_s = time.perf_counter()
    gc.collect()
    gc.freeze()
    running: list[_Child] = []
    waiting = list(seeds)
    results: list[dict[str, Any]] = []
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(_fork(waiting.pop(0), kinds, seconds))
        result = _next(running)
        results.append(result)
        if result["findings"]:
            print(f"seed {result['seed']} failed: {result['findings'][0][:500]}", file=sys.stderr)
            replay = replay_command(result["seed"], kinds, seconds if seconds != SECONDS else None)
            print(f"  {replay}", file=sys.stderr, flush=True)
            if stop_at_first:
                waiting.clear()
    shim = LIBRARY.name if Shim().is_loaded else "none"
    report = figures(results, time.perf_counter() - began_s, shim)
    return {**report, "product_path": str(Path(qm.store.__file__).parents[1])}


def set_up() -> None:
    """Make what all seeds share."""
    prepare(KEYS.resolve())

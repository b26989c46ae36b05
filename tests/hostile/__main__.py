"""Attacks three nodes beside honest senders: `python -m tests.hostile`, as root.

Writes build/hostile.json, one object for each class of attack:

    inputs                   what the attacker sent: packets, calls, requests, datagrams or bytes
    tracebacks, deaths       of the nodes
    leader_changes           terms that began meanwhile
    held_up                  lines of the nodes that their event loop was held up, and where
    rss_growth_<node>_mib    resident memory at the end, less that after a warm-up
    gap_p99_ms, gap_max_ms   times between two acknowledgements that a healthy sender waited for
    sent, lost, doubled      messages of the healthy senders
    diverged                 1 if the replicas' digests differ afterwards
    machine_late_max_ms      lateness of timers in this process: what the machine itself delayed
    beside                   classes that attacked the same cluster at the same time
    seconds, seed

Classes joined by "+" attack one cluster together, each from addresses of its own: `inputs` are then
each one's, all else is what they did together. The nodes' logs stay in build/hostile/logs. Exit
code 1: a class broke a promise. A class that ran before keeps its figures.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from qm.client.calls import Calls
from qm.drill.agreement import disagreement
from qm.drill.queues import make_queues
from qm.load.history import read_history
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.timeline import acknowledgement_gaps
from qm.load.workload import Target as Queue
from qm.load.workload import Workload
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2
from tests.hostile.attack import CLASSES
from tests.hostile.site import SILENCE, SOURCES, Site
from tests.hostile.victim import Victim

OUTPUT = Path("build") / "hostile.json"
FOLDER = Path("build") / "hostile"
GAP_P99_MAX_MS = 1_000.0
RATE_PER_S = 20.0
WARM_UP_S = 8.0
AFTER_S = 3.0
TICK_S = 0.02
OVERTIME_S = 60.0
"""Given to an attacker that does not end by itself."""
STALL_S = 60.0
QUOTA_KIB = 256 << 10
"""Of a queue that attackers may fill."""
SOURCES_PER_CLASS_MAX = 64
Figures = dict[str, float]


def broken(figures: Figures) -> list[str]:
    """Return the promises that a class broke."""
    none = ("tracebacks", "deaths", "leader_changes", "lost", "doubled", "diverged", "unsettled")
    found = [f"{name} {figures[name]:g}" for name in none if figures[name]]
    if not figures["inputs"]:
        found.append("no inputs")
    if figures["gap_p99_ms"] >= GAP_P99_MAX_MS or not figures["sent"]:
        found.append(f"gap_p99_ms {figures['gap_p99_ms']:g}")
    return found


def groups_of(text: str) -> list[list[str]]:
    """Return the classes to run, each list at the same time. Raises ValueError."""
    groups = [group.split("+") for group in text.split(",")] if text else [[c] for c in CLASSES]
    named = [name for group in groups for name in group]
    if unknown := set(named) - CLASSES.keys():
        raise ValueError(
            f"no such class: {', '.join(sorted(unknown))}; there are {', '.join(CLASSES)}"
        )
    if len(set(named)) < len(named):
        raise ValueError("a class is named twice, and has one place in the results")
    return groups


class Round:
    """Some classes of attack on a fresh cluster, at the same time."""

    def __init__(self, site: Site, names: list[str], seconds: float, seed: int) -> None:
        self._site, self._names, self._seconds, self._seed = site, names, seconds, seed
        self._machine_late_ms = 0.0
        self._history = FOLDER / "histories" / f"{'+'.join(names)}.jsonl"

    async def run(self) -> dict[str, Figures]:
        """Return the figures of each class."""
        site = self._site
        await site.up()
        site.deaths = 0
        wire = Calls([node.api for node in site.nodes], site.tls)
        try:
            healthy = await make_queues(wire, "healthy", "")
            victims = [await self._victim(wire, place) for place in range(len(self._names))]
            async with Run(self._plan([healthy[0], healthy[2]])) as run:
                return await self._beside(run, wire, victims)
        finally:
            await wire.close()
            await site.down()

    async def _beside(self, run: Run, wire: Calls, victims: list[Path]) -> dict[str, Figures]:
        site = self._site
        load = asyncio.create_task(run.send(float("inf")))
        await asyncio.sleep(WARM_UP_S)
        term, rss = await site.term(wire), site.rss_mib()
        began_ns = time.monotonic_ns()
        watch = asyncio.create_task(self._watch_machine())
        attacks = zip(self._names, victims, strict=True)
        said = await asyncio.gather(
            *(site.attack(name, victim, self._seconds + OVERTIME_S) for name, victim in attacks)
        )
        watch.cancel()
        await site.raise_the_dead()
        await asyncio.sleep(AFTER_S)
        grown = {node: now - rss[node] for node, now in site.rss_mib().items()}
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        is_settled = await run.settle(STALL_S)
        term = await site.term(wire) - term
        wrong = await disagreement(site, wire)
        site.keep_logs(FOLDER / "logs" / self._history.stem)
        verdict = await run.verdict()
        gaps = sorted(
            gap.length_ms
            for gap in acknowledgement_gaps(read_history(self._history))
            if gap.end_ns > began_ns
        )
        shared = {
            "tracebacks": site.tracebacks(self._history.with_suffix(".tracebacks")),
            "deaths": site.deaths,
            "leader_changes": term,
            "held_up": site.held_up(),
            **{f"rss_growth_{node}_mib": round(grown[node], 1) for node in sorted(grown)},
            "gap_p99_ms": gaps[int(0.99 * len(gaps))] if gaps else 0.0,
            "gap_max_ms": gaps[-1] if gaps else 0.0,
            "sent": verdict.sent,
            "lost": verdict.lost.count,
            "doubled": verdict.duplicated.count,
            "unsettled": int(not is_settled),
            "machine_late_max_ms": round(self._machine_late_ms, 1),
            "diverged": int("differ" in wrong),
            "reconnects": verdict.reconnects,
            "seconds": self._seconds,
            "seed": self._seed,
        }
        inputs = [json.loads(each or b"{}").get("inputs", 0) for each in said]
        return {
            name: {"inputs": number} | shared
            for name, number in zip(self._names, inputs, strict=True)
        }

    async def _watch_machine(self) -> None:
        """Note how late timers are in this process, which nobody attacks."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(TICK_S)
            late_ms = (loop.time() - began - TICK_S) * 1000
            self._machine_late_ms = max(self._machine_late_ms, late_ms)

    async def _victim(self, wire: Calls, place: int) -> Path:
        """Make what a class aims at, and write down what it knows."""
        site, name = self._site, self._names[place]
        request = control_pb2.GetQueueManagerRequest()
        manager = await wire.call(lambda stubs: stubs.queues.GetQueueManager, request)
        plain = f"private$\\{name}"
        transactional = f"{plain}.tx"
        for path in (plain, transactional):
            create = control_pb2.CreateQueueRequest(
                path_name=f"{manager.computer_name}\\{path}",
                attributes={
                    "transactional": control_pb2.Value(flag=path == transactional),
                    "quota": control_pb2.Value(number=QUOTA_KIB),
                },
            )
            await wire.call(lambda stubs: stubs.queues.CreateQueue, create)
        sources = SOURCES[place :: len(self._names)][:SOURCES_PER_CLASS_MAX]
        victim = Victim(
            hosts=tuple(node.host for node in site.nodes),
            computer_name=manager.computer_name,
            pki=str(site.pki.resolve()),
            sources=tuple(map(site.address, sources)),
            silent=tuple(map(site.address, SILENCE)),
            queue=plain,
            transactional_queue=transactional,
            seed=self._seed,
            seconds=self._seconds,
        )
        written = FOLDER / f"victim-{name}.json"
        written.write_bytes(msgspec.json.encode(victim))
        return written

    def _plan(self, queues: list[Queue]) -> Plan:
        nodes = self._site.nodes
        return Plan(
            workload=Workload(targets=tuple(queues), seed=self._seed),
            rate_per_s=RATE_PER_S,
            senders=[[(node.host, MSMQ_PORT)] for node in nodes],
            receivers=[Reading(queue.format_name, Mode.STREAM) for queue in queues],
            endpoints=[node.api for node in nodes],
            tls=self._site.tls,
            reconnect_s=0.25,
            history=self._history,
        )


async def attack_all(groups: list[list[str]], seconds: float, seed: int) -> bool:
    """Run the classes and keep their figures; return whether all promises held."""
    results: dict[str, Any] = json.loads(OUTPUT.read_bytes()) if OUTPUT.exists() else {}
    is_sound = True
    site = Site(FOLDER, say)
    try:
        for names in groups:
            say(f"{', '.join(names)}: {seconds:g} s")
            for name, figures in (await Round(site, names, seconds, seed).run()).items():
                beside = [other for other in names if other != name]
                results[name] = figures | {"beside": beside}
                wrong = broken(figures)
                is_sound = is_sound and not wrong
                say(f"{name}: {'BROKEN: ' + ', '.join(wrong) if wrong else 'holds'} {figures}")
            OUTPUT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    finally:
        await site.down()
        site.remove()
    return is_sound


def say(text: str) -> None:
    """Tell the progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--seconds", type=float, default=600, help="of each class")
    parser.add_argument(
        "--classes",
        default="",
        help="names, separated by commas, joined by + to attack together; default: each alone",
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        groups = groups_of(arguments.classes)
    except ValueError as error:
        parser.error(str(error))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another run uses {FOLDER}")
        return int(not uvloop.run(attack_all(groups, arguments.seconds, arguments.seed)))


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs scenarios under a load and judges them from what the clients recorded."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec
from typing_extensions import override

from qm.client.calls import Calls
from qm.client.errors import ClientError
from qm.drill.agreement import disagreement, sums
from qm.drill.leaders import leader_of, watch_leaders
from qm.drill.queues import make_queues, remove_queues
from qm.drill.read_back import unreadable
from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability
from qm.drill.targets.target import Target
from qm.load.history import EventKind, HistoryEvent, read_history
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.timeline import acknowledgement_gaps, faults
from qm.load.verdict import Verdict
from qm.load.workload import Target as Queue
from qm.load.workload import Workload
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2

BEFORE_S: Final = 2.0
"""Time under load before the first fault, and after the last."""
SETTLE_STALL_S: Final = 30.0
"""Time without progress after the load: what is missing then will not arrive."""
DRAIN_S: Final = 30.0
"""A node may take as long to leave its peers and the leadership."""
LENDERS: Final = 12
"""Two-phase readers: each locks one message at a time."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of a round."""

    seed: int = 1
    rate_per_s: float = 400.0
    """Rate of each sender."""
    reconnect_s: float = 0.25
    """How soon a sender whose session broke reconnects; MSMQ waits 5 s."""


class Round(msgspec.Struct, frozen=True):
    """Result of running one scenario once."""

    scenario: str
    seed: int
    verdict: Verdict
    is_settled: bool
    """Everything sent was acknowledged and received in time."""
    gap_ms: float
    """The longest gap of senders whose node was not hit; of all senders, if all nodes were."""
    wrong: str = ""
    """What replicas or queues report that must not be (`qm.drill.agreement`), or an answer to a
    client that must not be; "" if there is none."""

    @property
    def holds(self) -> bool:
        """Whether the round passed."""
        return self.is_settled and self.verdict.holds and not self.wrong and self.verdict.sent > 0


class Result(msgspec.Struct, frozen=True):
    """Result of a scenario over its rounds; the shape of build/drills.json."""

    runs: int
    lost: int
    duplicated: int
    gap_median_ms: float
    gap_p99_ms: float
    verdict: str
    seeds: tuple[int, ...] = ()


def result_of(rounds: list[Round]) -> Result:
    """Return the result of one scenario's rounds."""
    gaps = sorted(one.gap_ms for one in rounds)
    return Result(
        len(rounds),
        sum(one.verdict.lost.count for one in rounds),
        sum(one.verdict.duplicated.count for one in rounds),
        round(median(gaps), 1),
        round(gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))], 1),
        "pass" if all(one.holds for one in rounds) else "FAIL",
        tuple(sorted(one.seed for one in rounds)),
    )


def missing(target: Target, scenario: Scenario) -> list[Ability]:
    """Return what a scenario needs and a target does not have."""
    return sorted(scenario.needs - target.abilities, key=lambda ability: ability.name)


class Conductor(Stage):
    """Implements the stage for a round of one scenario."""

    def __init__(self, target: Target, run: Run, wire: Calls, chance: random.Random) -> None:
        self.target = target
        self.chance = chance
        self.struck: list[tuple[str, ...]] = []
        """Nodes hit by each fault."""
        self.wrongs: list[str] = []
        """What a scenario saw that must not be."""
        self._run = run
        self._wire = wire

    @override
    async def leader(self) -> str:
        return await leader_of(self.target)

    @override
    async def followers(self) -> list[str]:
        leader = await self.leader()
        return [node.name for node in self.target.nodes if node.name != leader]

    @override
    def fault(self, text: str, *struck: str) -> None:
        self.struck.append(struck)
        self._run.fault(text)

    @override
    def healed(self, text: str) -> None:
        self._run.healed(text)

    @property
    @override
    def acknowledged(self) -> int:
        return self._run.acknowledged

    @property
    @override
    def received(self) -> int:
        return self._run.received

    @override
    def wrong(self, text: str) -> None:
        self.wrongs.append(text)

    @override
    async def heal(self) -> None:
        await self.target.heal()
        self._run.healed("every node serves")

    @override
    async def transfer(self, to: str) -> None:
        request = control_pb2.TransferLeadershipRequest(to=to)
        await self._wire.call(lambda stubs: stubs.cluster.TransferLeadership, request)

    @override
    async def apply_version(self) -> int:
        return (await self._status()).apply_version

    @override
    async def known_version(self) -> int:
        return min(member.command_version for member in (await self._status()).members)

    @override
    async def now_ms(self) -> int:
        return (await self._status()).now_ms

    async def _status(self) -> control_pb2.ClusterStatus:
        request = control_pb2.GetStatusRequest()
        return await self._wire.call(lambda stubs: stubs.cluster.GetStatus, request)

    @override
    async def drain(self, node: str) -> None:
        await self._wire.call(
            lambda stubs: stubs.cluster.Drain,
            control_pb2.DrainRequest(node=node),
            wait_s=DRAIN_S,
        )


async def run_round(
    target: Target, scenario: Scenario, settings: Settings, on_run: Callable[[Run], None]
) -> Round:
    """Run a scenario once on a cluster that serves. Raises TargetFailed, ClientError.

    Senders: one for each node, with that node first, and one that knows only the front before the
    nodes, if the scenario has one. Receivers: a stream, two-phase readers, and a transactional one;
    watchers of one more queue. `on_run` gets the run, for a display.
    """
    if scenario.prepare is not None:
        # It may recreate the cluster, with other certificates.
        await scenario.prepare(target)
    wire = Calls([node.api for node in target.nodes], target.tls)
    chance = random.Random(f"{scenario.name}/{settings.seed}")
    queues: Sequence[Queue] = ()
    try:
        through = await target.front(scenario.through) if scenario.through else ""
        hosts = {node.name: node.host for node in target.nodes}
        prefix = f"drill.{scenario.name}.{settings.seed}"
        queues = await make_queues(wire, prefix, through)
        plan = _plan(target, scenario, settings, queues, through)
        async with Run(plan) as run:
            on_run(run)
            stage = Conductor(target, run, wire, chance)
            load = asyncio.gather(_load(run), watch_leaders(target, run.elected))
            try:
                await asyncio.sleep(BEFORE_S)
                await scenario.act(stage)
                await asyncio.sleep(BEFORE_S)
            finally:
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)
            is_settled, wrong = await _settled(run)
            wrong = wrong or "; ".join(stage.wrongs) or await disagreement(target, wire)
            verdict = await run.verdict()
        gap_ms = surviving_gap_ms(
            read_history(plan.history),
            {through: through} if through else hosts,
            stage.struck,
            first=len(plan.senders) if through else 1,
        )
        names = [queue.format_name for queue in queues]
        wrong = wrong or await sums(wire, names, verdict.remaining)
        wrong = wrong or await unreadable(wire)
        return Round(scenario.name, settings.seed, verdict, is_settled, gap_ms, wrong)
    finally:
        await remove_queues(wire, queues)
        await wire.close()


async def _settled(run: Run) -> tuple[bool, str]:
    """Return whether everything settled, and an error that no client may get, "" if none."""
    try:
        return await run.settle(SETTLE_STALL_S), ""
    except ClientError as error:
        await run.abandon()
        return False, f"a client was refused: {error}"


def surviving_gap_ms(
    history: Sequence[HistoryEvent],
    hosts: Mapping[str, str],
    struck: Sequence[Sequence[str]],
    *,
    first: int = 1,
) -> float:
    """Return the longest gap of any fault among the senders at nodes that it did not hit.

    `hosts`: the nodes' hosts, by name. Sender `first` + k begins at node k; one whose session broke
    continues at the address in its event.
    """
    names = {host: name for name, host in hosts.items()}
    where = {f"sender-{number}": name for number, name in enumerate(hosts, first)}
    gaps = {
        sender: acknowledgement_gaps(e for e in history if e.client == sender) for sender in where
    }
    longest = 0.0
    number = 0
    for event in history:
        if event.client in where and event.kind is EventKind.RECONNECTED:
            where[event.client] = names.get(event.address, where[event.client])
        if event.kind is EventKind.FAULT:
            hit = struck[number]
            safe = [sender for sender, node in where.items() if node not in hit] or list(where)
            felt = faults(history, [gap for sender in safe for gap in gaps[sender]])
            longest = max(longest, felt[number].gap_ms)
            number += 1
    return longest


async def _load(run: Run) -> None:
    """Send until cancelled."""
    await run.send(float("inf"))


def _plan(
    target: Target,
    scenario: Scenario,
    settings: Settings,
    queues: Sequence[Queue],
    through: str,
) -> Plan:
    """Return the load of a round; `through`: address to which one more sender connects."""
    modes = (Mode.STREAM, Mode.TWO_PHASE, Mode.TRANSACTION)
    *taken, watched = queues
    hosts = [node.host for node in target.nodes]
    senders = [
        [(host, MSMQ_PORT) for host in (*hosts[turn:], *hosts[:turn])] for turn in range(len(hosts))
    ]
    if through:
        senders.append([(through, MSMQ_PORT)])
    return Plan(
        workload=Workload(targets=tuple(taken), seed=settings.seed, priorities=(0, 3, 7)),
        rate_per_s=settings.rate_per_s,
        senders=senders,
        receivers=[
            Reading(queue.format_name, mode, return_every=0 if mode is Mode.STREAM else 50)
            for queue, mode in zip(taken, modes, strict=True)
            for _ in range(LENDERS if mode is Mode.TWO_PHASE else 1)
        ],
        watched=watched,
        endpoints=[node.api for node in target.nodes],
        tls=target.tls,
        reconnect_s=settings.reconnect_s,
        history=target.folder / "histories" / f"{scenario.name}-{settings.seed}.jsonl",
    )

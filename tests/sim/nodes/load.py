"""Clients of several kinds: the product's own load with its histories and its judge."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final

from qm.client.client import Client
from qm.client.errors import ClientError
from qm.client.message import Message
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.verdict import Findings, Verdict
from qm.load.workload import Target, Workload
from qm.node.config.schema import API_PORT, MSMQ_PORT
from qm.pb import control_pb2
from tests.sim.nodes.machines import HOSTS

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

_PASSING: Final = r".\private$\passing"
STALL_S: Final = 20.0
"""Without faults something moves within this time."""
_QUEUES: Final = (("plain", False), ("tx", True), ("kept", False), ("lent", False))
_WRONG: Final = ("lost", "duplicated", "out_of_order", "torn", "invented", "stale")


class Load:
    """Of one world; use it as a context once `prepare` was awaited."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._run: Run | None = None
        self.verdict: Verdict | None = None
        self._administrator: asyncio.Task[None] | None = None
        self.queues_deleted = 0
        """By the administrator: each had messages when it went."""

    @property
    def run(self) -> Run:
        """The run, once it has begun."""
        assert self._run is not None
        return self._run

    @property
    def counts(self) -> tuple[int, int, int]:
        """Messages sent, acknowledged, received."""
        run = self._run
        return (0, 0, 0) if run is None else (run.sent, run.acknowledged, run.received)

    async def prepare(self) -> None:
        """Create the queues."""
        endpoints = [f"{host}:{API_PORT}" for host in HOSTS.values()]
        client = Client(endpoints)
        for name, transactional in _QUEUES:
            request = control_pb2.CreateQueueRequest(
                path_name=rf".\private$\{name}",
                attributes={"transactional": control_pb2.Value(flag=transactional)},
                if_not_exists=True,
            )
            await client.wire.call(lambda stubs: stubs.queues.CreateQueue, request)
        await client.wire.close()
        self._run = Run(self._plan(endpoints))

    def _plan(self, endpoints: list[str]) -> Plan:
        cluster, knobs = self._cluster, self._cluster.knobs
        chance = cluster.world.chance("load")
        hosts = [(host, MSMQ_PORT) for host in HOSTS.values()]
        plain, tx, lent = (
            Target(rf"DIRECT=OS:quorate\private$\{name}", transactional)
            for name, transactional in (("plain", False), ("tx", True), ("lent", False))
        )
        modes = [Mode.STREAM, Mode.TWO_PHASE]
        return Plan(
            workload=Workload(
                targets=(plain, tx, lent), seed=cluster.world.seed, body_bytes=knobs.body_bytes
            ),
            rate_per_s=knobs.rate_per_s,
            senders=[hosts[k:] + hosts[:k] for k in range(2)],
            receivers=[
                Reading(r".\private$\plain", Mode.STREAM),
                Reading(r".\private$\tx", chance.choice((Mode.STREAM, Mode.TRANSACTION))),
                Reading(r".\private$\lent", chance.choice(modes), return_every=9),
            ],
            callers=1,
            watched=Target(r"DIRECT=OS:quorate\private$\kept"),
            endpoints=endpoints,
            history=cluster.folder / "history.jsonl",
            reconnect_s=0.5,
        )

    async def __aenter__(self) -> "Load":
        await self.run.__aenter__()
        self._administrator = asyncio.create_task(self._administrate())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.run.__aexit__(kind, error, trace)

    async def send(self, seconds: float) -> None:
        """Send for a time."""
        await self.run.send(seconds)

    async def settle(self) -> None:
        """Without faults: everything is acknowledged and received, or that is a finding."""
        cluster, run = self._cluster, self.run
        if self._administrator is not None:
            self._administrator.cancel()
            with suppress(asyncio.CancelledError):
                await self._administrator
        if not await run.settle(STALL_S):
            sent, acknowledged, received = self.counts
            cluster.find(
                f"liveness: {STALL_S:.0f} s without faults and without progress: sent {sent},"
                f" acknowledged {acknowledged}, received {received}"
            )
        self.verdict = verdict = await run.verdict()
        cluster.world.say("verdict", *self.counts, "remaining", verdict.remaining)
        for rule in _WRONG:
            found = getattr(verdict, rule)
            assert isinstance(found, Findings)
            if found.count:
                cluster.find(f"{rule}: {found.count}: {', '.join(found.examples[:3])}")

    async def _administrate(self) -> None:
        """Create a queue, send into it and delete it, again and again."""
        chance = self._cluster.world.chance("administrator")
        client = Client(
            [f"{host}:{API_PORT}" for host in HOSTS.values()], client_id="administrator"
        )
        created = control_pb2.CreateQueueRequest(path_name=_PASSING, if_not_exists=True)
        deleted = control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=_PASSING))
        await client.open()
        try:
            while True:
                try:
                    await client.wire.call(lambda stubs: stubs.queues.CreateQueue, created)
                    for number in range(chance.choice((1, 3, 16))):
                        body = bytes(chance.choice((100, 4_000)))
                        await client.send(_PASSING, Message(body=body, label=f"{number}"))
                    # Some stay until their bodies were moved to a file that is then sparse.
                    await asyncio.sleep(chance.choice((0.0, chance.uniform(1.0, 3.0))))
                    await client.wire.call(lambda stubs: stubs.queues.DeleteQueue, deleted)
                    self.queues_deleted += 1
                except ClientError:
                    pass  # what was asked for is asked for again
                await asyncio.sleep(chance.uniform(0.01, 0.4))
        finally:
            await client.close(confirm=False)

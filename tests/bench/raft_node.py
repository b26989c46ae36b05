"""One node of the consensus bench: commands as JSON lines on stdin, answers on stdout.

It ends when it is told to, when stdin ends, or by itself after `lifetime_s`.
"""

import asyncio
import cProfile
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from raft.core.core import Busy, CoreConfig, NotLeader
from raft.driver import Driver, DriverConfig
from raft.log.disk import DiskDirectory
from raft.process import prepare
from raft.proposals import BATCHES_IN_FLIGHT_MAX, CommitUnknown, ProposalLost
from raft.replica import Replica, ReplicaConfig
from raft.step import Alarm
from raft.transport.direct_transport import DirectTransport
from raft.transport.grpc_transport import GrpcConfig
from raft.transport.tls import TlsFiles
from raft.transport.transport import TransportEvents
from raft.types import Configuration, NodeId, Role, SoftState
from tests.bench.raft_machine import CountingMachine

GROUP = 1
LINE_MAX_BYTES = 1 << 20


class NodeConfig(msgspec.Struct):
    """What the bench tells a node, as JSON in the first argument."""

    node: str
    folder: str
    cluster: str
    addresses: dict[str, str]
    authority: str
    certificate: str
    key: str
    lifetime_s: float = 900.0
    log_retain_bytes: int = 256 << 20
    batches_in_flight_max: int = BATCHES_IN_FLIGHT_MAX
    inflight_messages_max: int = 256


class Node:
    """The driver, and what the bench asks of it."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.alarms: list[str] = []
        self.changed = asyncio.Event()
        self.commits: list[tuple[float, int]] = []
        folder = Path(config.folder)
        chance = random.Random(os.urandom(8))
        core = CoreConfig(config.node, GROUP, inflight_messages_max=config.inflight_messages_max)
        cluster = bytes.fromhex(config.cluster)
        replica_config = ReplicaConfig(core, cluster, log_retain_bytes=config.log_retain_bytes)
        directory = DiskDirectory(folder)
        if not directory.names():
            founders = Configuration(tuple(sorted(config.addresses)))
            Replica.create(replica_config, directory, founders, chance.randrange)
        self.machine = CountingMachine(folder / "machine")
        replica: Replica[Sequence[int]] = Replica(
            replica_config, directory, lambda log: self.machine, chance.randrange
        )

        def connect(events: TransportEvents) -> DirectTransport:
            files = (Path(p) for p in (config.authority, config.certificate, config.key))
            own = config.addresses[config.node]
            names = {node.rpartition(".")[0] for node in config.addresses}
            tls = TlsFiles(*files)
            grpc_config = GrpcConfig(cluster, config.node, own, tls, names.__contains__)
            return DirectTransport(grpc_config, events, chance.randrange)

        driver_config = DriverConfig(GROUP, batches_in_flight_max=config.batches_in_flight_max)
        self.driver: Driver[int] = Driver(
            replica, connect, config.addresses.get, self, driver_config
        )

    # DriverEvents

    def on_soft_state(self, state: SoftState) -> None:
        self.changed.set()

    def on_configuration(self, configuration: Configuration) -> None:
        pass

    def on_alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm.text)

    # Commands

    async def status(self) -> dict[str, Any]:
        status = self.driver.status()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        transport = self.driver.transport
        assert isinstance(transport, DirectTransport)
        return {
            "role": status.role.name,
            "term": status.term,
            "leader": status.leader,
            "commit": status.commit,
            "applied": status.applied,
            "first": status.first_index,
            "last": status.last_index,
            "count": self.machine.count,
            "counters": msgspec.to_builtins(status.counters),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_mb": usage.ru_maxrss / 1024,
            "syncs": self.driver.metrics.syncs_total,
            "peers": {peer: p.frames_sent_total for peer, p in transport.metrics.peers.items()},
            "alarms": self.alarms,
        }

    async def load(self, outstanding: int, seconds: float, size: int) -> dict[str, Any]:
        """Propose singly from `outstanding` tasks; each waits for its result."""
        propose = self.driver.propose
        body = os.urandom(size - 8)
        clock = time.perf_counter
        latencies: list[float] = []
        end = clock() + seconds

        async def one(number: int) -> int:
            count = 0
            started = clock()
            while started < end:
                await propose(count.to_bytes(8, "little") + body)
                ended = clock()
                latencies.append(ended - started)
                started = ended
                count += 1
            return count

        started = clock()
        entries = self.driver.metrics.entries_applied_total
        counts = await asyncio.gather(*(one(number) for number in range(outstanding)))
        elapsed = clock() - started
        latencies.sort()
        entries = self.driver.metrics.entries_applied_total - entries
        return {
            "messages": sum(counts),
            "seconds": elapsed,
            "per_s": sum(counts) / elapsed,
            "p50_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
            "max_ms": latencies[-1] * 1e3,
            "messages_per_entry": sum(counts) / max(entries, 1),
        }

    async def fill(self, total_bytes: int, size: int) -> dict[str, Any]:
        """Propose `total_bytes` in payloads of `size`."""
        body = os.urandom(size)
        left = total_bytes // size
        started = time.perf_counter()

        async def one() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.driver.propose(body)

        await asyncio.gather(*(one() for _ in range(64)))
        return {"seconds": time.perf_counter() - started}

    async def probe(self) -> dict[str, Any]:
        """From now on propose one small payload after the other whenever this node leads."""

        async def run() -> None:
            while True:
                if self.driver.role is not Role.LEADER:
                    self.changed.clear()
                    await self.changed.wait()
                    continue
                try:
                    await self.driver.propose(b"probe")
                except (NotLeader, ProposalLost, CommitUnknown, Busy):
                    await asyncio.sleep(0.001)
                    continue
                self.commits.append((time.monotonic(), self.driver.status().term))
                del self.commits[:-1000]
                await asyncio.sleep(0.001)

        self.prober = asyncio.create_task(run())
        return {}

    async def first_commit(self, after_term: int) -> dict[str, Any]:
        """Wait for the first probe that was committed here in a later term."""
        while True:
            for at, term in self.commits:
                if term > after_term:
                    return {"at": at, "term": term}
            await asyncio.sleep(0.002)

    async def ballast(self, total_bytes: int) -> dict[str, Any]:
        """Make snapshots this large. On the disk before it returns, so that nothing measured
        afterwards competes with it.
        """
        block = os.urandom(1 << 20)
        with self.machine.ballast.open("wb") as file:
            for _ in range(total_bytes >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return {}

    async def persist(self) -> dict[str, Any]:
        """Let the log drop what was applied."""
        self.machine.persist()
        return {}

    async def profile(self, seconds: float, path: str) -> dict[str, Any]:
        """Profile the loop's thread; write the statistics where `pstats` reads them."""
        profile = cProfile.Profile(time.thread_time)
        profile.enable()
        await asyncio.sleep(seconds)
        profile.disable()
        profile.dump_stats(path)
        return {}

    async def transfer(self, to: NodeId) -> dict[str, Any]:
        await self.driver.transfer(to)
        return {}


async def serve(config: NodeConfig) -> None:
    """Execute commands until one says stop."""
    node = Node(config)
    prepare()
    await node.driver.start()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_MAX_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    answer({"ready": True})
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] == "stop":
            break
        task = asyncio.create_task(obey(getattr(node, command.pop("do")), command))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    await node.driver.stop()
    answer({"stopped": True})


async def obey(
    method: Callable[..., Coroutine[Any, Any, dict[str, Any]]], arguments: dict[str, Any]
) -> None:
    number = arguments.pop("number")
    try:
        result = await method(**arguments)
    except Exception as error:
        result = {"error": repr(error)}
    answer({"number": number, **result})


def answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def bounded(config: NodeConfig) -> None:
    async with asyncio.timeout(config.lifetime_s):
        await serve(config)


if __name__ == "__main__":
    uvloop.run(bounded(msgspec.json.decode(sys.argv[1], type=NodeConfig)))

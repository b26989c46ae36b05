"""Programs of MSMQ objects, as processes, while the node that has their objects is killed.

What died with the node is gone, and said to be. Nothing of a queue is: no message that a program
was told of is lost or seen twice, and what one had received in a transaction returns.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qm.client.client import Client
from qm.client.message import Message
from qm.client.queue import Queue
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from tests.cluster.object_program import DONE, HOLDS, SENDS, WORK
from tests.cluster.test_objects import RPC
from tests.cluster.test_processes import client, create_queue, dev_cluster, leader_of
from tests.cluster.test_remote_readers import SETTLE_S, add_account, rpc_layout, until

PROCESSES, PROGRAMS = 4, 5
"""Processes of programs, each with an account of its own, and programs of each."""
HOLDERS = 2
MOVES = 300
DEAD_LETTERS = ".\\system$;DEADLETTER"
DISCONNECTED = "80010108"
AT_ONCE_S = 30.0
"""New objects at another node, on a busy machine: an election, and a thousand imports."""
SCENARIO_S = 420.0


class Programs:
    """A process and what its programs told."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.told: dict[str, list[str]] = defaultdict(list)
        """By its first word, what each line says."""

    async def watch(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            kind, _, rest = line.decode().rstrip().partition(" ")
            self.told[kind].append(rest)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Crowd:
    """All processes."""

    def __init__(self) -> None:
        self.processes: list[Programs] = []
        self._watches: list[asyncio.Task[None]] = []

    async def add(self, user: str, count: str, hosts: list[str]) -> Programs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.cluster.object_program", user, count, *hosts),
            stdout=asyncio.subprocess.PIPE,
        )
        self.processes.append(Programs(process))
        self._watches.append(asyncio.create_task(self.processes[-1].watch()))
        return self.processes[-1]

    def said(self, *kinds: str) -> list[str]:
        return [line for one in self.processes for kind in kinds for line in one.told[kind]]

    async def stop(self) -> None:
        for one in self.processes:
            await one.kill()
        await asyncio.gather(*self._watches)


@asynccontextmanager
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    try:
        yield made
    finally:
        await made.stop()


async def fill(sender: Client) -> list[str]:
    bodies = [f"work {number:03}" for number in range(MOVES)]
    async with sender.transaction() as transaction:
        await transaction.send(WORK, *map(Message.of_text, bodies))
    return bodies


class Drain:
    """Receives from a queue what comes."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.bodies: list[str] = []

    async def up_to(self, wanted: set[str]) -> None:
        """Receive until all of these have come, and then what else there is."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while not wanted <= set(self.bodies):
                    await self._receive(1.0)
        except TimeoutError:
            raise AssertionError(f"still missing: {wanted - set(self.bodies)}") from None
        while await self._receive(1.0):
            pass

    async def _receive(self, timeout_s: float) -> bool:
        message = await self._queue.receive(timeout_s=timeout_s)
        if message is not None:
            self.bodies.append(message.body.decode("utf-16-le"))
        return message is not None


async def set_up(layout: Layout, nodes: list[DevNode]) -> list[str]:
    """Make queues and accounts; return the accounts."""
    await create_queue(layout, nodes, "orders")
    for name in ("work", "done"):
        await create_queue(layout, nodes, name, "--transactional")
    users = [f"user{number}" for number in range(PROCESSES)]
    for user in users:
        await add_account(layout, nodes, user)
    return users


async def kill_under_way(layout: Layout, home: DevNode, programs: Crowd) -> None:
    """Kill the node when every program has its objects there and many work."""

    def work() -> tuple[int, ...]:
        kinds = ("opened", "held", "taken", "moved")
        return tuple(len(programs.said(kind)) for kind in kinds)

    wanted = (PROCESSES * PROGRAMS, HOLDERS, 40, 40)
    await until(lambda: all(a >= b for a, b in zip(work(), wanted, strict=True)), work)
    assert set(programs.said("opened")) == {home.host}
    assert pids.send(layout.pid(home.name), signal.SIGKILL)


@pytest.mark.timeout(500)
def test_a_node_that_dies_under_twenty_programs_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = rpc_layout(tmp_path, RPC)
        async with dev_cluster(tmp_path) as (_, nodes):
            users = await set_up(layout, nodes)
            home = await leader_of(nodes)
            others = [node.host for node in nodes if node is not home]
            async with client(layout, nodes) as sender, crowd() as programs:
                work = await fill(sender)
                for user in users:
                    await programs.add(user, str(PROGRAMS), [home.host, *others])
                # One whose node dies, and one that dies itself at a node that lives.
                await programs.add(users[0], HOLDS, [home.host])
                dying = await programs.add(users[1], HOLDS, others)
                await kill_under_way(layout, home, programs)
                await dying.kill()

                def moved_on() -> list[str]:
                    return [host for host in programs.said("opened") if host != home.host]

                async with asyncio.timeout(AT_ONCE_S):
                    await until(lambda: len(moved_on()) >= PROCESSES * PROGRAMS, moved_on)
                done = Drain(await sender.open_queue(DONE))
                await done.up_to(set(work))
                # Held by lost programs, and moved by others since.
                assert set(programs.said("held")) <= set(work)
                assert len(set(programs.said("held"))) == HOLDERS
                await settle_orders(sender, programs)
            assert sorted(done.bodies) == work
            assert set(programs.said("moved")) <= set(work)
            said = programs.said("foreign")
            assert len(said) >= PROCESSES * PROGRAMS
            assert {line.split()[1] for line in said} == {DISCONNECTED}

    asyncio.run(asyncio.wait_for(scenario(), SCENARIO_S))


async def settle_orders(sender: Client, programs: Crowd) -> None:
    """Wait until every message of `orders` was seen, or is a dead letter of a lost program; no
    program has seen one that another had.
    """
    all_of_them = PROCESSES * PROGRAMS * SENDS
    await until(
        lambda: len(programs.said("sent", "unsure")) == all_of_them,
        lambda: len(programs.said("sent", "unsure")),
    )
    dead = Drain(await sender.open_queue(DEAD_LETTERS))
    # Those that are not seen have to be there.
    async with asyncio.timeout(SETTLE_S):
        while not set(programs.said("sent")) <= set(programs.said("taken") + dead.bodies):
            await dead.up_to(set())
    await dead.up_to(set())
    taken, sent = programs.said("taken"), programs.said("sent", "unsure")
    assert len(sent) == len(set(sent)) == all_of_them
    assert len(taken) == len(set(taken))
    assert len(dead.bodies) == len(set(dead.bodies))
    assert set(taken + dead.bodies) <= set(sent)
    # At most the last one that each had taken when its node died.
    assert len(dead.bodies) <= PROCESSES * PROGRAMS

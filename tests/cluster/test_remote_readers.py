"""Remote readers and nodes as processes, while leaders and the readers' nodes die or stop.

No message may be lost, and one is read twice only if an acknowledgement of it had no answer. What a
node that dies had lent comes back within a minute, behind what was read meanwhile.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qm.client.client import Client
from qm.client.message import Message
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from tests.cluster.harness import free_network
from tests.cluster.remote_reader import PASSWORD, USER
from tests.cluster.test_processes import client, create_queue, dev_cluster, leader_of, qm

RPC_PORT = 2103
RPC = f"[rpc]\nenabled = true\nmapper_port = 11350\nport_base = {RPC_PORT}\n"
ORDERS = ".\\private$\\orders"
SCENARIO_S = 280.0
SETTLE_S = 120.0
"""A lease of a minute, and what a busy machine makes of it."""


class Reader:
    """A reader's process and what it told."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.taken: list[str] = []
        self.doubtful: list[str] = []
        self.ends = 0
        """How often its connection or its handle was gone."""
        self.at = ""
        """The host that serves it."""

    async def watch(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            kind, _, rest = line.decode().rstrip().partition(" ")
            if kind == "opened":
                self.at = rest
            elif kind == "ended":
                self.at = ""
                self.ends += 1
            else:
                (self.taken if kind == "taken" else self.doubtful).append(rest)

    @property
    def seen(self) -> list[str]:
        return self.taken + self.doubtful


@asynccontextmanager
async def readers(hosts: list[str], count: int) -> AsyncIterator[list[Reader]]:
    """Readers, each of which begins at another host."""
    made, watches, processes = [], [], []
    for number in range(count):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.cluster.remote_reader", str(RPC_PORT)),
            *hosts[number:],
            *hosts[:number],
            stdout=asyncio.subprocess.PIPE,
        )
        processes.append(process)
        made.append(Reader(process))
        watches.append(asyncio.create_task(made[-1].watch()))
    try:
        yield made
    finally:
        for process in processes:
            process.kill()
            await process.wait()
        await asyncio.gather(*watches)


def overtaken(texts: list[str]) -> int:
    """Return how many texts come after a later one."""
    return sum(text < max(texts[: at + 1]) for at, text in enumerate(texts))


async def until(condition: Callable[[], object], seen: Callable[[], object]) -> None:
    """Wait until the condition holds; fail with what was seen last."""
    try:
        async with asyncio.timeout(SETTLE_S):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"last seen: {seen()}") from None


def rpc_layout(folder: Path, section: str) -> Layout:
    """Return three nodes that are to be started, with an `[rpc]` section."""
    layout = Layout(folder)
    for node in layout.make(3, free_network()):
        config = layout.config(node.name)
        config.write_text(config.read_text() + section)
    return layout


async def add_account(layout: Layout, nodes: list[DevNode], user: str = USER) -> None:
    code, said = await qm(
        *("user", "add", user, "--password", PASSWORD, "--group", "S-1-5-32-544"),
        *("--endpoint", ",".join(node.api for node in nodes)),
        *("--tls-authority", str(layout.pki / "authority.pem")),
        *("--tls-certificate", str(layout.pki / "admin.pem")),
        *("--tls-key", str(layout.pki / "admin.key")),
    )
    assert code == 0, said


async def send(sender: Client, sent: list[str], count: int) -> None:
    for _ in range(count):
        text = f"order {len(sent):04}"
        await sender.send(ORDERS, Message(body=text.encode()))
        sent.append(text)


@pytest.mark.timeout(400)
@pytest.mark.spec("RR-OUR-1-02", "RR-OUR-1-08", "RR-OUR-1-09", "RR-OUR-1-10")
def test_readers_lose_nothing_when_nodes_die_and_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = rpc_layout(tmp_path, RPC)
        async with dev_cluster(tmp_path) as (_, nodes):
            await create_queue(layout, nodes, "orders")
            await add_account(layout, nodes)
            hosts = [node.host for node in nodes]
            sent: list[str] = []
            async with client(layout, nodes) as sender, readers(hosts, 2) as reading:

                def seen() -> Counter[str]:
                    return Counter(text for one in reading for text in one.seen)

                async def served(upto: int) -> None:
                    await until(lambda: len(seen()) >= upto, seen)

                await until(lambda: all(one.at for one in reading), lambda: hosts)
                await send(sender, sent, 20)
                await served(20)
                leader = await leader_of(nodes)
                assert pids.send(layout.pid(leader.name), signal.SIGKILL)
                await send(sender, sent, 20)
                await served(30)
                await until(lambda: reading[0].at, seen)
                (holder,) = (node for node in nodes if node.host == reading[0].at)
                assert pids.send(layout.pid(holder.name), signal.SIGKILL)
                await send(sender, sent, 20)
                await served(50)
                for node in nodes:  # in good order, one after the other
                    assert pids.send(layout.pid(node.name), signal.SIGTERM)
                    await send(sender, sent, 10)
                    await leader_of(nodes)
                await until(lambda: set(seen()) == set(sent), lambda: set(sent) - set(seen()))
            twice = {text for text, count in seen().items() if count > 1}
            assert twice <= {text for one in reading for text in one.doubtful}
            taken = Counter(text for one in reading for text in one.taken)
            assert max(taken.values()) == 1
            kills = 2
            assert sum(len(one.doubtful) for one in reading) <= kills * len(reading)
            # In order, but for what was on its way to a reader whose connection ended.
            assert sum(overtaken(one.taken) for one in reading) <= sum(one.ends for one in reading)

    asyncio.run(asyncio.wait_for(scenario(), SCENARIO_S))

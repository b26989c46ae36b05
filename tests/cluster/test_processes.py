"""Nodes as processes: `qm dev`, SIGKILL, exit codes. Nothing acknowledged may be lost."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.node.config.schema import HTTP_PORT
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.node.process import EXIT_STATUS_CONFIG, EXIT_STATUS_UNAVAILABLE
from tests.cluster.harness import free_network, run

START_S = 90.0
"""A busy machine takes its time to import three times everything."""
ORDERS = ".\\private$\\orders"
PYTHON = (sys.executable, "-m", "qm")


@asynccontextmanager
async def dev_cluster(
    folder: Path, settings: str = ""
) -> AsyncIterator[tuple[Layout, list[DevNode]]]:
    """Run `qm dev up` until it says that it is ready, and `qm dev down` at the end.

    `settings`: TOML tables, added to each node's configuration.
    """
    layout = Layout(folder)
    network = free_network()
    for node in layout.make(3, network) if settings else ():
        with layout.config(node.name).open("a") as config:
            config.write(settings)
    manager = await asyncio.create_subprocess_exec(
        *PYTHON, *("dev", "up", "--folder", str(folder), "--network", network),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said: list[str] = []
        assert manager.stdout is not None
        async with asyncio.timeout(START_S):
            while "ready" not in said:
                line = await manager.stdout.readline()
                assert line, said
                said.append(line.decode().strip())
        assert any(line.startswith("console  https://") for line in said)
        yield layout, layout.nodes()
    finally:
        down = await asyncio.create_subprocess_exec(
            *PYTHON, *("dev", "down", "--folder", str(folder)), stdout=asyncio.subprocess.DEVNULL
        )
        assert await down.wait() == 0
        await manager.wait()


async def get(node: DevNode, path: str) -> tuple[int, str]:
    """Ask a node over HTTP; (0, the error) if it does not answer."""
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{node.host}:{HTTP_PORT}{path}") as response,
        ):
            return response.status, await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return 0, repr(error)


async def leader_of(nodes: list[DevNode]) -> DevNode:
    """Wait until one of the nodes leads; return it."""
    answers: list[tuple[int, str]] = []
    for _ in range(int(START_S / 0.05)):
        answers = [await get(node, "/leader") for node in nodes]
        for node, (status, _) in zip(nodes, answers, strict=True):
            if status == 200:
                return node
        await asyncio.sleep(0.05)
    raise AssertionError(f"nobody leads: {answers}")


async def qm(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *PYTHON, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def client(layout: Layout, nodes: list[DevNode]) -> Client:
    pki = layout.pki
    tls = Tls(pki / "authority.pem", pki / "admin.pem", pki / "admin.key")
    return Client([node.api for node in nodes], tls=tls)


async def create_queue(layout: Layout, nodes: list[DevNode], name: str, *more: str) -> None:
    await ask(layout, nodes, "queue", "create", f".\\private$\\{name}", *more)


async def ask(layout: Layout, nodes: list[DevNode], *arguments: str) -> str:
    """Run a command as an admin; return what it said."""
    code, said = await qm(
        *arguments,
        *("--endpoint", ",".join(node.api for node in nodes)),
        *("--tls-authority", str(layout.pki / "authority.pem")),
        *("--tls-certificate", str(layout.pki / "admin.pem")),
        *("--tls-key", str(layout.pki / "admin.key")),
    )
    assert code == 0, said
    return said


async def receive_all(layout: Layout, nodes: list[DevNode]) -> list[str]:
    """Receive what is in the queue, through these nodes."""
    received: list[str] = []
    async with client(layout, nodes) as receiver:
        orders = await receiver.open_queue(ORDERS)
        while (message := await orders.receive(timeout_s=1)) is not None:
            received.append(message.body.decode())
    return received


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_the_leader_or_everybody_is_killed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with dev_cluster(tmp_path) as (layout, nodes):
            await create_queue(layout, nodes, "orders")
            leader = await leader_of(nodes)
            followers = [node for node in nodes if node != leader]
            sent: list[str] = []
            async with client(layout, followers) as sender:
                for number in range(60):
                    if number == 20:
                        assert pids.send(layout.pid(leader.name), signal.SIGKILL)
                    if number == 40:
                        for node in nodes:  # all at once, as a power loss would
                            pids.send(layout.pid(node.name), signal.SIGKILL)
                    text = f"order {number}"
                    await sender.send(ORDERS, Message(body=text.encode()))
                    sent.append(text)
            await leader_of(nodes)
            assert await receive_all(layout, nodes) == sent
            told = await ask(layout, nodes, "events", "--kind", "control")
            assert "CreateQueue by admin: OK" in told
            history = json.loads(await ask(layout, nodes, "cluster", "history", "-o", "json"))
            terms = [row["term"] for row in history]
            assert terms == sorted(set(terms)), history
            assert len(terms) >= 2, "the leader was killed, and then everybody"

    run(scenario())


@pytest.mark.timeout(300)
def test_a_paused_leader_is_replaced_and_obeys_when_it_wakes_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dev_cluster(tmp_path) as (layout, nodes):
            await create_queue(layout, nodes, "orders")
            paused = await leader_of(nodes)
            others = [node for node in nodes if node != paused]
            sent: list[str] = []

            async def send(sender: Client, count: int) -> None:
                for _ in range(count):
                    text = f"order {len(sent)}"
                    await sender.send(ORDERS, Message(body=text.encode()))
                    sent.append(text)

            async with client(layout, others) as sender:
                await send(sender, 10)
                under_way = asyncio.create_task(send(sender, 40))
                assert pids.send(layout.pid(paused.name), signal.SIGSTOP)
                await under_way
                fresh = await leader_of(others)
                assert pids.send(layout.pid(paused.name), signal.SIGCONT)
                await send(sender, 10)
            status, text = 0, ""
            for _ in range(int(START_S / 0.05)):
                status, text = await get(paused, "/leader")
                if (status, text) == (503, f"{fresh.name} leads\n"):
                    break
                await asyncio.sleep(0.05)
            assert (status, text) == (503, f"{fresh.name} leads\n")
            assert await receive_all(layout, [paused]) == sent

    run(scenario())


@pytest.mark.spec("DM-3.1.3-22")
def test_a_configuration_that_cannot_be_used_is_one_line_and_exit_code_78(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = Layout(tmp_path)
        (node,) = layout.make(1, free_network())
        path = layout.config(node.name)
        path.write_text("hots = 1\n" + path.read_text())
        code, said = await qm("node", "run", "--config", str(path))
        assert code == EXIT_STATUS_CONFIG
        assert said.splitlines() == [f"{path}: unknown key 'hots': did you mean 'host'?"]
        code, said = await qm("config", "check", str(path))
        assert (code, said.count("\n")) == (1, 1)

    run(scenario())


@pytest.mark.spec("DM-3.1.3-22")
def test_an_address_that_is_taken_ends_the_node_with_69(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = Layout(tmp_path)
        (node,) = layout.make(1, free_network())
        server = await asyncio.start_server(lambda *_: None, node.host, HTTP_PORT)
        async with server:
            code, said = await qm("node", "run", "--config", str(layout.config(node.name)))
        assert code == EXIT_STATUS_UNAVAILABLE, said
        assert "cannot start" in said

    run(scenario())


@pytest.mark.spec("DM-3.1.3-22")
def test_a_data_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = Layout(tmp_path)
        node, other = layout.make(2, free_network())
        process = await asyncio.create_subprocess_exec(
            *PYTHON, "dev", "up", "--folder", str(tmp_path), stdout=asyncio.subprocess.DEVNULL
        )
        for name in (node.name, other.name):
            for _ in range(int(START_S / 0.05)):
                if (tmp_path / name / "raft" / "identity").exists():
                    break
                await asyncio.sleep(0.05)
        process.terminate()
        await process.wait()
        path = layout.config(node.name)
        path.write_text(path.read_text().replace('data = "n1"', 'data = "n2"'))
        code, said = await qm("node", "run", "--config", str(path))
        assert code == EXIT_STATUS_CONFIG, said
        assert "belongs to node n2" in said

    run(scenario())

"""Nodes as processes: `qm dev`, SIGKILL, exit codes. Nothing acknowledged may be lost."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from qm.client.client import Client
from qm.client.message import Message
from qm.client.wire import Tls
from qm.node.config import HTTP_PORT
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.node.process import EXIT_STATUS_CONFIG, EXIT_STATUS_UNAVAILABLE
from tests.cluster.harness import free_network, run

START_S = 90.0
"""A busy machine takes its time to import three times everything."""
PYTHON = (sys.executable, "-m", "qm")


@asynccontextmanager
async def dev_cluster(folder: Path) -> AsyncIterator[tuple[Layout, list[DevNode]]]:
    """Run `qm dev up` until it says that it is ready, and `qm dev down` at the end."""
    layout = Layout(folder)
    network = free_network()
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


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_the_leader_or_everybody_is_killed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with dev_cluster(tmp_path) as (layout, nodes):
            created = await qm(
                *("queue", "create", ".\\private$\\orders"),
                *("--endpoint", nodes[0].api),
                *("--tls-authority", str(layout.pki / "authority.pem")),
                *("--tls-certificate", str(layout.pki / "admin.pem")),
                *("--tls-key", str(layout.pki / "admin.key")),
            )
            assert created[0] == 0, created[1]
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
                    await sender.send(".\\private$\\orders", Message(body=text.encode()))
                    sent.append(text)
            await leader_of(nodes)
            async with client(layout, nodes) as receiver:
                orders = await receiver.open_queue(".\\private$\\orders")
                received: list[str] = []
                while (message := await orders.receive(timeout_s=1)) is not None:
                    received.append(message.body.decode())
            assert received == sent

    run(scenario())


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

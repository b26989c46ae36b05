"""Three bench nodes as processes of this machine, addressed by pipe, ended by their ids."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.raft_node import NodeConfig
from tests.unit.raft.transport.authority import Authority

NODES = ("n1.1", "n2.1", "n3.1")
ANSWER_WAIT_S = 600.0
READY_WAIT_S = 60.0


class NodeProcess:
    """One node's process."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.raft_node",
            msgspec.json.encode(self.config).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._ready = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait_for(self._ready, READY_WAIT_S)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            if "ready" in answer:
                self._ready.set_result(None)
                continue
            future = self._answers.pop(answer.get("number"), None)
            if future is not None and not future.done():  # else the caller has stopped waiting
                future.set_result(answer)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionError(f"{self.config.node} ended"))
                future.exception()
        self._answers.clear()

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command; return the answer. Raises ConnectionError when the node ends first."""
        self._number += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = future
        command = {"do": do, "number": self._number, **arguments}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        answer = await asyncio.wait_for(future, ANSWER_WAIT_S)
        if "error" in answer:
            raise RuntimeError(f"{self.config.node}: {do}: {answer['error']}")
        return answer

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    async def stop(self) -> None:
        """Stop it well, or kill it after a while."""
        if self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.write(b'{"do": "stop"}\n')
            try:
                await asyncio.wait_for(self.process.wait(), READY_WAIT_S)
            except TimeoutError:
                self.process.kill()
        await self.process.wait()
        await self._reading

    async def kill(self) -> float:
        """Kill -9; return when (CLOCK_MONOTONIC, the same in all processes)."""
        at = time.monotonic()
        self.process.kill()
        await self.process.wait()
        await self._reading
        return at


class Cluster:
    """Three nodes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        authority = Authority(folder / "tls")
        addresses = {node: f"127.0.0.1:{port}" for node, port in zip(NODES, _ports(), strict=True)}
        cluster = os.urandom(16).hex()
        self.nodes: dict[str, NodeProcess] = {}
        for node in NODES:
            tls = authority.issue(node.rpartition(".")[0])
            (folder / node).mkdir(exist_ok=True)
            files = str(tls.authority), str(tls.certificate), str(tls.key)
            config = NodeConfig(node, str(folder / node), cluster, addresses, *files, **settings)
            self.nodes[node] = NodeProcess(config)

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))

    async def stop(self) -> None:
        running = [node for node in self.nodes.values() if hasattr(node, "process")]
        for node in running:
            if node.process.returncode is None:
                node.signal(signal.SIGCONT)
        await asyncio.gather(*(node.stop() for node in running))

    def running(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.process.returncode is None]

    async def statuses(self) -> dict[str, dict[str, Any]]:
        nodes = self.running()
        answers = await asyncio.gather(*(node.ask("status") for node in nodes))
        return {node.config.node: answer for node, answer in zip(nodes, answers, strict=True)}

    async def leader(self) -> NodeProcess:
        """Wait until one node leads and all that run follow it, fully applied."""
        statuses: dict[str, dict[str, Any]] = {}
        for _ in range(3000):
            statuses = await self.statuses()
            leaders = {status["leader"] for status in statuses.values()}
            terms = {status["term"] for status in statuses.values()}
            places = {(status["last"], status["applied"]) for status in statuses.values()}
            if len(leaders) == len(terms) == len(places) == 1 and (leader := leaders.pop()):
                return self.nodes[leader]
            await asyncio.sleep(0.02)
        raise RuntimeError(f"no leader that all follow: {statuses}")


def _ports() -> list[int]:
    """Return free ports; another process may take one before the nodes do, rarely."""
    sockets = [socket.socket() for _ in NODES]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports

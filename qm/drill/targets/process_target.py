"""Nodes as processes of this machine, on loopback addresses."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from typing_extensions import override

from qm.client.calls import Tls
from qm.drill.targets.ability import Ability
from qm.drill.targets.builds import Builds
from qm.drill.targets.limited import LimitedTarget
from qm.drill.targets.readiness import until_ready
from qm.drill.targets.tampering import Tampering, empty
from qm.drill.targets.target import DrillNode, NodeEnded, TargetFailed
from qm.node.config.schema import RPC_PORT
from qm.node.dev.layout import HOST_FIRST, DevNode, Layout
from qm.node.membership.first_start import init_cluster, join_cluster, leave_cluster
from qm.node.membership.join import JoinRefused
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE

STOP_WAIT_S: Final = 60.0
NODES: Final = 3
MACHINES: Final = 6
"""Number of machines for nodes, including those that join later."""
COMPUTER_NAME: Final = "QUORATE"

_MAPPER_PORT: Final = 11_350
"""Ports below 1,024 need root."""
_RPC_SECTION: Final = f"""
[rpc]
enabled = true
mapper_port = {_MAPPER_PORT}
port_base = {RPC_PORT}
anonymous_receive = true
"""

_LOOPBACK: Final = frozenset(
    {
        *(Ability.PROCESSES, Ability.PAUSE, Ability.DISKS),
        *(Ability.SCALE, Ability.REPLACE, Ability.BUILDS, Ability.REMOTE_READ),
    }
)


class ProcessTarget(LimitedTarget):
    """The nodes' processes; the subclass decides where they run."""

    def __init__(
        self,
        name: str,
        folder: Path,
        network: str,
        say: Callable[[str], None],
        other_build: Path | None = None,
    ) -> None:
        """`network`: first three numbers of the nodes' addresses; `other_build`: see Builds.

        Raises Refused.
        """
        super().__init__(name)
        self.folder = folder
        self._network = network
        self._say = say
        self._layout = Layout(folder / "cluster")
        self._tampering = Tampering(folder / "tampering", lambda node: self._layout.folder / node)
        self._builds = Builds(folder / "other-build", other_build)
        self._members: list[DevNode] = []
        self._free: list[DevNode] = []
        """Machines without a member, the one given up last at the end."""
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._paused: set[str] = set()

    @property
    @override
    def abilities(self) -> frozenset[Ability]:
        return _LOOPBACK | self._tampering.abilities

    @property
    @override
    def nodes(self) -> tuple[DrillNode, ...]:
        return tuple(DrillNode(n.name, n.host, n.api, n.http) for n in self._members)

    @property
    @override
    def tls(self) -> Tls:
        pki = self._layout.pki
        return Tls(pki / AUTHORITY_CERTIFICATE, pki / "admin.pem", pki / "admin.key")

    @property
    @override
    def tampering(self) -> Tampering:
        return self._tampering

    def _command(self, node: str, *argv: str) -> list[str]:
        """Return the command line that runs `argv` where a node is."""
        del node
        return list(argv)

    def _configure(self, node: DevNode) -> None:
        """Add to a node's configuration what its place requires, and remote read for anybody."""
        with self._layout.config(node.name).open("a", encoding="utf-8") as config:
            config.write(self._rpc_section())

    def _rpc_section(self) -> str:
        """How nodes serve RPC."""
        return _RPC_SECTION

    @property
    @override
    def rpc_port(self) -> int:
        return RPC_PORT

    # Life

    @override
    async def up(self) -> None:
        await self.down()
        shutil.rmtree(self._layout.folder, ignore_errors=True)
        self._members = self._layout.make(NODES, self._network)
        self._free = [_machine(number, self._network) for number in range(NODES, MACHINES)]
        self._builds.downgrade(*(node.name for node in (*self._members, *self._free)))
        for node in self._members:
            self._configure(node)
        await self.start(*(node.name for node in self._members))
        config = self._layout.config(self._members[0].name)
        try:
            await init_cluster(config, COMPUTER_NAME, "", self._say)
        except JoinRefused as error:
            raise TargetFailed(str(error)) from error
        await until_ready(self.nodes)

    @override
    async def down(self) -> None:
        for node in list(self._running):
            if node in self._paused:
                await self.resume(node)
            await self.kill(node)
        self._tampering.end()

    # Processes

    @override
    async def start(self, *nodes: str) -> None:
        for node in nodes:
            if node in self._running and self._running[node].returncode is None:
                continue
            with self._layout.log(node).open("ab") as log:
                self._running[node] = await asyncio.create_subprocess_exec(
                    *self._command(
                        node,
                        sys.executable,
                        *self._tampering.arguments(node, self._layout.config(node)),
                    ),
                    env={**self._tampering.environment(node), **self._builds.environment(node)},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    @override
    async def kill(self, *nodes: str) -> None:
        for node in nodes:
            self._signal(node, signal.SIGKILL)
        for node in nodes:
            await self._gone(node)

    @override
    async def stop(self, node: str) -> None:
        self._signal(node, signal.SIGTERM)
        await self._gone(node)

    @override
    async def pause(self, node: str) -> None:
        self._signal(node, signal.SIGSTOP)
        self._paused.add(node)

    @override
    async def resume(self, node: str) -> None:
        self._signal(node, signal.SIGCONT)
        self._paused.discard(node)

    def _signal(self, node: str, number: signal.Signals) -> None:
        process = self._running.get(node)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def _gone(self, node: str) -> None:
        process = self._running.get(node)
        if process is None:
            return
        try:
            await asyncio.wait_for(process.wait(), STOP_WAIT_S)
        except TimeoutError:
            raise TargetFailed(f"{node} does not exit: see {self._layout.log(node)}") from None
        del self._running[node]

    async def _until_ready(self) -> None:
        """Wait until every node serves. Raises NodeEnded as soon as one has exited."""
        waiting = asyncio.create_task(until_ready(self.nodes))
        ends = {asyncio.create_task(run.wait()): node for node, run in self._running.items()}
        await asyncio.wait((waiting, *ends), return_when=asyncio.FIRST_COMPLETED)
        try:
            for end, node in ends.items():
                if end.done():
                    raise NodeEnded(_end(node, end.result(), self._layout.log(node)))
            await waiting
        finally:
            for task in (waiting, *ends):
                task.cancel()
            await asyncio.gather(waiting, *ends, return_exceptions=True)

    # Disks and members

    @override
    async def lose_disk(self, node: str) -> None:
        empty(self._layout.folder / node)

    @override
    async def rejoin(self, node: str) -> None:
        try:
            await join_cluster(self._layout.config(node), self._say)
        except JoinRefused as error:
            raise TargetFailed(str(error)) from error

    @override
    async def grow(self) -> str:
        node = self._free.pop(0)
        # A cluster that was upgraded accepts no older build.
        await self.change_build(
            node.name, is_other=all(self._builds.is_other(m.name) for m in self._members)
        )
        shutil.rmtree(self._layout.folder / node.name, ignore_errors=True)
        self._layout.add(node, self._members)
        self._configure(node)
        self._members.append(node)
        await self.start(node.name)
        await self.rejoin(node.name)
        await until_ready(one for one in self.nodes if one.name == node.name)
        return node.name

    @override
    async def shrink(self, node: str) -> None:
        try:
            await leave_cluster(self._layout.config(node), self._say)
        except JoinRefused as error:
            raise TargetFailed(str(error)) from error
        await self.stop(node)
        (gone,) = (member for member in self._members if member.name == node)
        self._members.remove(gone)
        self._free.append(gone)

    @override
    async def change_build(self, node: str, *, is_other: bool) -> None:
        if is_other:
            self._builds.upgrade(node)
        else:
            self._builds.downgrade(node)

    # All of it

    @override
    async def ended(self, node: str, timeout_s: float) -> bool:
        process = self._running.get(node)
        if process is None:
            return False
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            return False
        del self._running[node]
        return True

    @override
    async def heal(self) -> None:
        self._tampering.relieve()
        for node, process in self._running.items():
            if process.returncode is not None:
                raise NodeEnded(_end(node, process.returncode, self._layout.log(node)))
        for node in list(self._paused):
            await self.resume(node)
        await self.start(*(node.name for node in self._members))
        await self._until_ready()


def _end(node: str, code: int, log: Path) -> str:
    return f"{node} exited on its own, exit code {code}: {last_words(log)}"


def _machine(number: int, network: str) -> DevNode:
    return DevNode(f"n{number + 1}", f"{network}.{HOST_FIRST + number}")


def last_words(log: Path) -> str:
    """Return the last lines of a node's log, with the error that it reported."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    try:
        line = json.loads(lines[-1])
        trace = str(line.get("exception", "")).splitlines()[-1:]
        return ": ".join([str(line["message"]), *trace])
    except (IndexError, ValueError, KeyError):
        return lines[-1] if lines else "nothing"

"""A cluster on an operator's machines: a drill acts through the commands of a file."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from qm.client.calls import Calls, Tls
from qm.drill.targets.ability import Ability
from qm.drill.targets.hosts_file import SOURCES, HostSection, HostsFile
from qm.drill.targets.limited import LimitedTarget
from qm.drill.targets.readiness import check_members, until_ready
from qm.drill.targets.reasons import HOSTS
from qm.drill.targets.target import CLIENTS, DrillNode, TargetFailed
from qm.pb import control_pb2

COMMAND_TIMEOUT_S: Final = 180.0
"""`stop` may wait for a node to be drained, `rejoin` for a snapshot."""
READY_WAIT_S: Final = 120.0
SAID_MAX_CHARS: Final = 400


class HostsTarget(LimitedTarget):
    """A cluster that exists before and after a drill, with every node running."""

    def __init__(self, hosts: HostsFile, folder: Path) -> None:
        """`folder`: for histories and reports."""
        super().__init__(HOSTS)
        self.folder = folder
        self._hosts = hosts
        self._members = list(hosts.nodes)
        self._spares = list(hosts.spares)
        self._down: set[str] = set()
        self._paused: set[str] = set()
        self._cut: set[str] = set()

    @property
    @override
    def abilities(self) -> frozenset[Ability]:
        return self._hosts.abilities

    @property
    @override
    def nodes(self) -> tuple[DrillNode, ...]:
        return tuple(DrillNode(host.name, host.host, host.api, host.http) for host in self._members)

    @property
    @override
    def tls(self) -> Tls:
        tls = self._hosts.tls
        return Tls(tls.authority, tls.certificate, tls.key)

    # Life

    @override
    async def up(self) -> None:
        """Find the cluster that the file describes. Raises TargetFailed, ClientError."""
        await self.heal()
        await check_members(self.nodes, self.tls)

    @override
    async def down(self) -> None:
        """Leave every node running, as it was found."""
        if self._down or self._paused or self._cut:
            await self.heal()

    @override
    async def heal(self) -> None:
        commands = self._hosts.commands
        for names, command in (
            (self._cut, commands.heal),
            (self._paused, commands.resume),
            (self._down, commands.start),
        ):
            # The next heal retries what fails.
            for name in sorted(names):
                await self._do(command, name)
                names.discard(name)
        await until_ready(self.nodes, READY_WAIT_S)

    # Processes

    @override
    async def kill(self, *nodes: str) -> None:
        self._down.update(nodes)
        await asyncio.gather(*(self._do(self._hosts.commands.kill, node) for node in nodes))

    @override
    async def stop(self, node: str) -> None:
        self._down.add(node)
        await self._do(self._hosts.commands.stop, node)

    @override
    async def start(self, *nodes: str) -> None:
        for node in nodes:
            await self._do(self._hosts.commands.start, node)
            self._down.discard(node)

    @override
    async def pause(self, node: str) -> None:
        self._paused.add(node)
        await self._do(self._hosts.commands.pause, node)

    @override
    async def resume(self, node: str) -> None:
        await self._do(self._hosts.commands.resume, node)
        self._paused.discard(node)

    # Disks, members, builds

    @override
    async def lose_disk(self, node: str) -> None:
        await self._do(self._hosts.commands.lose_disk, node)

    @override
    async def rejoin(self, node: str) -> None:
        await self._do(self._hosts.commands.rejoin, node)

    @override
    async def grow(self) -> str:
        host = self._spares.pop(0)
        self._members.append(host)
        await self.start(host.name)
        await self.rejoin(host.name)
        await until_ready([node for node in self.nodes if node.name == host.name], READY_WAIT_S)
        return host.name

    @override
    async def shrink(self, node: str) -> None:
        """Remove a member and empty its data folder, so that its machine becomes a spare."""
        wire = Calls([host.api for host in self._members], self.tls)
        try:
            request = control_pb2.RemoveMemberRequest(name=node)
            await wire.call(lambda stubs: stubs.cluster.RemoveMember, request)
        finally:
            await wire.close()
        await self.stop(node)
        await self.lose_disk(node)
        self._down.discard(node)
        host = self._host(node)
        self._members.remove(host)
        self._spares.append(host)

    @override
    async def change_build(self, node: str, *, is_other: bool) -> None:
        commands = self._hosts.commands
        await self._do(commands.upgrade if is_other else commands.downgrade, node)

    # Fronts and network

    @override
    async def front(self, kind: Ability) -> str:
        if kind is Ability.PROXY:
            return self._hosts.proxy_address
        return self._hosts.virtual_address

    @override
    async def holder(self) -> str:
        command = self._hosts.commands.has_address
        for host in self._members:
            if command and (await self._run(command, host))[0] == 0:
                return host.name
        return ""

    @override
    async def partition(self, *sides: list[str]) -> None:
        for side in sides:
            await self.cut(side, [node for other in sides if other is not side for node in other])

    @override
    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        addresses = [
            self._hosts.clients if source == CLIENTS else self._host(source).host
            for source in sources
        ]
        self._cut.update(nodes)
        await asyncio.gather(
            *(self._do(self._hosts.commands.cut, node, addresses) for node in nodes)
        )

    @override
    async def unplug(self, node: str) -> None:
        others = [host.name for host in self._members if host.name != node]
        await self.cut([node], [*others, CLIENTS])
        await self.cut(others, [node])

    # Commands

    def _host(self, node: str) -> HostSection:
        return next(host for host in (*self._members, *self._spares) if host.name == node)

    async def _do(self, command: Sequence[str], node: str, sources: Sequence[str] = ()) -> None:
        """Run a command for a node. Raises TargetFailed."""
        status, said = await self._run(command, self._host(node), sources)
        if status != 0:
            raise TargetFailed(said)

    async def _run(
        self, command: Sequence[str], host: HostSection, sources: Sequence[str] = ()
    ) -> tuple[int, str]:
        """Return the exit code, and a description of how the command ended. Raises TargetFailed."""
        argv: list[str] = []
        for argument in command:
            if argument == SOURCES:
                argv += sources
            else:
                argv.append(argument.format(name=host.name, host=host.host))
        text = shlex.join(argv)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise TargetFailed(f"`{text}` cannot be run: {error}") from error
        try:
            said, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise TargetFailed(f"`{text}` does not end within {COMMAND_TIMEOUT_S:.0f} s") from None
        assert process.returncode is not None
        end = said.decode(errors="replace").strip()[-SAID_MAX_CHARS:]
        return process.returncode, f"`{text}` ended with {process.returncode}: {end}"

"""Nodes as processes of this machine, on loopback addresses or in network namespaces."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from qm.client.wire import Tls
from qm.drill.builds import Builds
from qm.drill.fronts import Fronts, front_abilities
from qm.drill.namespaces import Namespaces, NamespacesRefused
from qm.drill.tampering import Tampering
from qm.drill.target import Ability, DrillNode, Refused, TargetFailed
from qm.node.dev.layout import HOST_FIRST, DevNode, Layout
from qm.node.entering import init_cluster, join_cluster, leave_cluster
from qm.node.joining import JoinRefused
from qm.node.pki import AUTHORITY_CERTIFICATE

READY_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 60.0
POLL_S: Final = 0.05
NODES: Final = 3
MACHINES: Final = 6
"""Where nodes can be, those that join later included."""
COMPUTER_NAME: Final = "QUORATE"
CLIENTS: Final = "clients"

_LOOPBACK: Final = frozenset(
    {
        *(Ability.PROCESSES, Ability.PAUSE, Ability.DISKS),
        *(Ability.SCALE, Ability.REPLACE, Ability.BUILDS),
    }
)
_FRONTS: Final = """
[msmq]
listen = ["{host}", "{virtual}"]
aliases = ["{virtual}", "{proxy}"]
"""


class ProcessTarget:
    """The nodes' processes; where they run is the subclass's to say."""

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
        self.name: Final = name
        self.folder: Final = folder
        self._network = network
        self._say = say
        self._layout = Layout(folder / "cluster")
        self.tampering: Final = Tampering(
            folder / "tampering", lambda node: self._layout.folder / node
        )
        self._builds = Builds(folder / "other-build", other_build)
        self._members: list[DevNode] = []
        self._free: list[DevNode] = []
        """Machines without a member, the one that was given up last at the end."""
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._paused: set[str] = set()

    @property
    def abilities(self) -> frozenset[Ability]:
        """See Target.abilities."""
        return _LOOPBACK | self.tampering.abilities

    @property
    def nodes(self) -> tuple[DrillNode, ...]:
        """See Target.nodes."""
        return tuple(DrillNode(n.name, n.host, n.api, n.http) for n in self._members)

    @property
    def tls(self) -> Tls:
        """See Target.tls."""
        pki = self._layout.pki
        return Tls(pki / AUTHORITY_CERTIFICATE, pki / "admin.pem", pki / "admin.key")

    def _command(self, node: str, *argv: str) -> list[str]:
        """Return the command line that runs `argv` where a node is."""
        del node
        return list(argv)

    def _configure(self, node: DevNode) -> None:
        """Say in a node's configuration what is special where it runs."""

    # Life

    async def up(self) -> None:
        """See Target.up."""
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
        await self.until_ready()

    async def down(self) -> None:
        """See Target.down."""
        for node in list(self._running):
            if node in self._paused:
                await self.resume(node)
            await self.kill(node)
        self.tampering.end()

    async def until_ready(self, *nodes: str) -> None:
        """Wait until nodes serve, all by default. Raises TargetFailed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + READY_WAIT_S
        wanted = [node for node in self._members if not nodes or node.name in nodes]
        timeout = aiohttp.ClientTimeout(total=2.0)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            for node in wanted:
                reason = "?"
                while reason := await _not_ready(http, node.http):
                    if loop.time() > end:
                        raise TargetFailed(f"{node.name} is not ready: {reason}")
                    await asyncio.sleep(POLL_S)

    # Processes

    async def start(self, *nodes: str) -> None:
        """See Target.start."""
        for node in nodes:
            if node in self._running and self._running[node].returncode is None:
                continue
            with self._layout.log(node).open("ab") as log:
                self._running[node] = await asyncio.create_subprocess_exec(
                    *self._command(
                        node,
                        sys.executable,
                        *self.tampering.arguments(node, self._layout.config(node)),
                    ),
                    env={**self.tampering.environment(node), **self._builds.environment(node)},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    async def kill(self, *nodes: str) -> None:
        """See Target.kill."""
        for node in nodes:
            self._signal(node, signal.SIGKILL)
        for node in nodes:
            await self._gone(node)

    async def stop(self, node: str) -> None:
        """See Target.stop."""
        self._signal(node, signal.SIGTERM)
        await self._gone(node)

    async def pause(self, node: str) -> None:
        """See Target.pause."""
        self._signal(node, signal.SIGSTOP)
        self._paused.add(node)

    async def resume(self, node: str) -> None:
        """See Target.resume."""
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
            raise TargetFailed(f"{node} does not end: see {self._layout.log(node)}") from None
        del self._running[node]

    # Disks and members

    async def lose_disk(self, node: str) -> None:
        """See Target.lose_disk."""
        shutil.rmtree(self._layout.folder / node)

    async def rejoin(self, node: str) -> None:
        """See Target.rejoin."""
        try:
            await join_cluster(self._layout.config(node), self._say)
        except JoinRefused as error:
            raise TargetFailed(str(error)) from error

    async def grow(self) -> str:
        """See Target.grow."""
        node = self._free.pop(0)
        # A cluster that was upgraded takes no older build in.
        await self.change_build(
            node.name, is_other=all(self._builds.is_other(m.name) for m in self._members)
        )
        shutil.rmtree(self._layout.folder / node.name, ignore_errors=True)
        self._layout.add(node, self._members)
        self._configure(node)
        self._members.append(node)
        await self.start(node.name)
        await self.rejoin(node.name)
        await self.until_ready(node.name)
        return node.name

    async def shrink(self, node: str) -> None:
        """See Target.shrink."""
        try:
            await leave_cluster(self._layout.config(node), self._say)
        except JoinRefused as error:
            raise TargetFailed(str(error)) from error
        await self.stop(node)
        (gone,) = (member for member in self._members if member.name == node)
        self._members.remove(gone)
        self._free.append(gone)

    async def change_build(self, node: str, *, is_other: bool) -> None:
        """See Target.change_build."""
        if is_other:
            self._builds.upgrade(node)
        else:
            self._builds.downgrade(node)

    # Network

    async def front(self, kind: Ability) -> str:
        """See Target.front."""
        raise Refused(f"{self.name} cannot {kind.value}: that needs hosts (--target netns)")

    async def holder(self) -> str:
        """See Target.holder."""
        return ""

    async def partition(self, *sides: list[str]) -> None:
        """See Target.partition."""
        del sides
        raise Refused(f"{self.name}: partitions need hosts of their own (--target netns)")

    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        """See Target.cut."""
        del nodes, sources
        raise Refused(f"{self.name}: partitions need hosts of their own (--target netns)")

    async def unplug(self, node: str) -> None:
        """See Target.unplug."""
        del node
        raise Refused(f"{self.name}: partitions need hosts of their own (--target netns)")

    async def heal(self) -> None:
        """See Target.heal."""
        self.tampering.relieve()
        for node in list(self._paused):
            await self.resume(node)
        await self.start(*(node.name for node in self._members))
        await self.until_ready()


class NamespaceTarget(ProcessTarget):
    """A namespace for each node; clients are on the machine itself."""

    def __init__(
        self,
        name: str,
        folder: Path,
        say: Callable[[str], None],
        other_build: Path | None = None,
    ) -> None:
        """Raises Refused where namespaces cannot be made."""
        names = [f"n{k + 1}" for k in range(MACHINES)]
        # Two drills on one machine must not hear each other.
        network = f"10.181.{os.getpid() % 256}"
        self._spaces = Namespaces(f"d{os.getpid() % 10_000}", names, f"{network}.0/24", first=11)
        super().__init__(name, folder, network, say, other_build)
        self._fronts = Fronts(
            self._spaces, folder / "fronts", lambda: [node.name for node in self.nodes]
        )
        self._is_made = False

    @property
    def abilities(self) -> frozenset[Ability]:
        """See Target.abilities."""
        return super().abilities | {Ability.NETWORK} | front_abilities()

    def _command(self, node: str, *argv: str) -> list[str]:
        return self._spaces.command(node, *argv)

    async def up(self) -> None:
        """See Target.up."""
        if not self._is_made:
            try:
                self._spaces.__enter__()
            except NamespacesRefused as error:
                raise Refused(str(error)) from error
            self._is_made = True
        await super().up()

    def _configure(self, node: DevNode) -> None:
        """Serve at the fronts' addresses, too."""
        fronts = self._fronts.addresses
        text = _FRONTS.format(
            host=node.host, virtual=fronts[Ability.VIRTUAL_ADDRESS], proxy=fronts[Ability.PROXY]
        )
        with self._layout.config(node.name).open("a", encoding="utf-8") as config:
            config.write(text)

    async def down(self) -> None:
        """See Target.down."""
        await self._fronts.stop()
        await super().down()

    async def front(self, kind: Ability) -> str:
        """See Target.front."""
        return await self._fronts.start(kind)

    async def holder(self) -> str:
        """See Target.holder."""
        return self._spaces.who_has(self._spaces.virtual_address)

    def remove(self) -> None:
        """Remove the namespaces."""
        if self._is_made:
            self._spaces.__exit__(None, None, None)
            self._is_made = False

    async def partition(self, *sides: list[str]) -> None:
        """See Target.partition."""
        self._spaces.partition(*sides)

    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        """See Target.cut."""
        machine = self._spaces.machine_address
        self._spaces.cut(nodes, [machine if source == CLIENTS else source for source in sources])

    async def unplug(self, node: str) -> None:
        """See Target.unplug."""
        self._spaces.unplug(node)

    async def heal(self) -> None:
        """See Target.heal."""
        self._spaces.heal()
        await super().heal()


def _machine(number: int, network: str) -> DevNode:
    return DevNode(f"n{number + 1}", f"{network}.{HOST_FIRST + number}")


async def _not_ready(http: aiohttp.ClientSession, url: str) -> str:
    try:
        async with http.get(f"{url}/readyz") as response:
            return "" if response.status == HTTPStatus.OK else await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)

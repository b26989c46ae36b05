"""The front before the nodes for peers that know one address: keepalived or HAProxy.

Both run with the files of deploy/, as in an operator's setup: keepalived in each namespace next to
its node, HAProxy on the machine that the namespaces are attached to.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

import qm
from qm.drill.targets.ability import Ability
from qm.drill.targets.namespaces import INSIDE, Namespaces
from qm.drill.targets.target import TargetFailed
from qm.node.config.schema import MSMQ_PORT

DEPLOY: Final = Path(qm.__path__[0]).parent / "deploy"
"""Folder of the source tree; an installed package does not have it."""
SERVE_WAIT_S: Final = 15.0
END_WAIT_S: Final = 5.0
POLL_S: Final = 0.05
PRIORITY_FIRST: Final = 254
PRIORITY_STEP: Final = 20
CHECK_SCRIPT: Final = "check-node.sh"
LEAVE_SCRIPT: Final = "leave-address.sh"
_NODE_SECTION: Final = """
[msmq]
listen = ["{host}", "{virtual}"]
aliases = ["{virtual}", "{proxy}"]
"""
_PROGRAMS: Final = {Ability.VIRTUAL_ADDRESS: "keepalived", Ability.PROXY: "haproxy"}


def front_abilities() -> frozenset[Ability]:
    """Return the fronts that can run here."""
    if not DEPLOY.is_dir():
        return frozenset()
    return frozenset(
        kind for kind, program in _PROGRAMS.items() if shutil.which(program) is not None
    )


def keepalived_text(spaces: Namespaces, host: str, hosts: Sequence[str], scripts: Path) -> str:
    """Return the keepalived.conf of one of the hosts; `scripts`: where `copy_scripts` put them."""
    template = Template((DEPLOY / "keepalived" / "keepalived.conf").read_text(encoding="utf-8"))
    others = [spaces.hosts[other].address for other in hosts if other != host]
    return template.substitute(
        NODE_NAME=host,
        NODE_ADDRESS=spaces.hosts[host].address,
        INTERFACE=INSIDE,
        PRIORITY=PRIORITY_FIRST - PRIORITY_STEP * hosts.index(host),
        PEER_ADDRESSES="\n        ".join(others),
        VIRTUAL_ADDRESS=spaces.virtual_address,
        CHECK_SCRIPT=scripts / CHECK_SCRIPT,
        LEAVE_SCRIPT=scripts / LEAVE_SCRIPT,
        SCRIPT_USER="root",
    )


def copy_scripts(folder: Path) -> None:
    """Copy the scripts that keepalived runs into a folder."""
    for script in (CHECK_SCRIPT, LEAVE_SCRIPT):
        shutil.copy(DEPLOY / "keepalived" / script, folder)


class Fronts:
    """The front of one rig, started when it is first needed."""

    def __init__(
        self, spaces: Namespaces, folder: Path, nodes: Callable[[], Sequence[str]]
    ) -> None:
        """`folder`: for configurations and logs; `nodes`: the hosts where nodes are."""
        self._spaces = spaces
        self._folder = folder
        self._nodes = nodes
        self._running: dict[Ability, list[asyncio.subprocess.Process]] = {}
        self._before: list[str] = []
        """The nodes that the running front serves."""

    @property
    def addresses(self) -> dict[Ability, str]:
        """The address under which peers know each kind of front."""
        return {
            Ability.VIRTUAL_ADDRESS: self._spaces.virtual_address,
            Ability.PROXY: self._spaces.machine_address,
        }

    def node_section(self, host: str) -> str:
        """Return the configuration that makes a node at `host` serve at the front's addresses,
        too.
        """
        virtual, proxy = self.addresses[Ability.VIRTUAL_ADDRESS], self.addresses[Ability.PROXY]
        return _NODE_SECTION.format(host=host, virtual=virtual, proxy=proxy)

    async def start(self, kind: Ability) -> str:
        """Start a front of this kind unless it runs; return its address, as in `Target.front`."""
        nodes = list(self._nodes())
        if nodes != self._before:
            await self.stop()
            self._before = nodes
        if kind not in self._running:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._running[kind] = []
            if kind is Ability.PROXY:
                await self._start_proxy()
            else:
                await self._start_keepalived()
        await self._serves(self.addresses[kind])
        return self.addresses[kind]

    async def stop(self) -> None:
        """End every front."""
        processes = [process for running in self._running.values() for process in running]
        self._running.clear()
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in processes:
            try:
                await asyncio.wait_for(process.wait(), END_WAIT_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _start_keepalived(self) -> None:
        copy_scripts(self._folder)
        for host in self._before:
            config = self._folder / f"{host}.keepalived.conf"
            config.write_text(
                keepalived_text(self._spaces, host, self._before, self._folder), encoding="utf-8"
            )
            argv = ["keepalived", "--dont-fork", "--log-console", "--use-file", str(config)]
            for kind in ("pid", "vrrp_pid", "checkers_pid"):
                argv += [f"--{kind}", str(self._folder / f"{host}.{kind}")]
            await self._run(Ability.VIRTUAL_ADDRESS, host, self._spaces.command(host, *argv))

    async def _start_proxy(self) -> None:
        addresses = [self._spaces.hosts[node].address for node in self._before]
        environment = {f"NODE_{number}": address for number, address in enumerate(addresses, 1)}
        environment["VIRTUAL_ADDRESS"] = self._spaces.machine_address
        argv = ["haproxy", "-db", "-q", "-f", str(DEPLOY / "haproxy" / "haproxy.cfg")]
        await self._run(Ability.PROXY, "haproxy", argv, environment)

    async def _run(
        self, kind: Ability, name: str, argv: Sequence[str], environment: Mapping[str, str] = {}
    ) -> None:
        with (self._folder / f"{name}.{kind.name.lower()}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._running[kind].append(process)

    async def _serves(self, address: str) -> None:
        """Wait until an address serves MSMQ. Raises TargetFailed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SERVE_WAIT_S
        while True:
            try:
                async with asyncio.timeout(1.0):
                    _, writer = await asyncio.open_connection(address, MSMQ_PORT)
            except OSError as error:  # TimeoutError is one
                if loop.time() > end:
                    raise TargetFailed(
                        f"no node serves at {address}:{MSMQ_PORT}: {error}; see {self._folder}"
                    ) from error
                await asyncio.sleep(POLL_S)
                continue
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return

"""Drills by the commands of a file on hosts of their own, with what stands before them. Needs root.

The hosts are namespaces; keepalived, HAProxy and cut-off.sh are those of deploy/.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qm.drill.targets.ability import Ability
from qm.drill.targets.fronts import DEPLOY, Fronts
from qm.drill.targets.namespaces import Namespaces
from qm.drill.targets.readiness import until_ready
from qm.drill.targets.target import DrillNode
from qm.node.dev.layout import Layout
from qm.node.membership.first_start import init_cluster

pytestmark = pytest.mark.timeout(900)
"""A drill waits as long as a busy machine makes it."""

NAMES = ("n1", "n2", "n3")
NETWORK = "10.183.0"
FIRST = 11
VERBS = ("kill", "stop", "start", "pause", "resume")
SCENARIOS = ("vip-move", "vip-machine-lost", "proxy", "partition-leader")


class Hosts:
    """A cluster on namespaces, and the file that says how a drill acts on it."""

    def __init__(self, folder: Path, rig: Namespaces) -> None:
        self.folder = folder
        self.rig = rig
        self.layout = Layout(folder)
        self.fronts = Fronts(rig, folder / "fronts", lambda: NAMES)

    def command(self, verb: str, node: str) -> list[str]:
        actor = [sys.executable, "-m", "tests.drills.host_actor", str(self.folder), verb, node]
        return self.on(node, *actor)

    def on(self, node: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self._namespace(node), *argv]

    def _namespace(self, node: str) -> str:
        """`node` may be what a drill replaces."""
        return self.rig.hosts["n1"].namespace.removesuffix("n1") + node

    async def act(self, verb: str, node: str) -> None:
        done = await asyncio.create_subprocess_exec(*self.command(verb, node))
        assert await done.wait() == 0, f"{verb} {node}"

    async def begin(self) -> None:
        nodes = self.layout.make(len(NAMES), NETWORK)
        for node in nodes:
            with self.layout.config(node.name).open("a", encoding="utf-8") as config:
                config.write(self.fronts.node_section(node.host))
            await self.act("start", node.name)
        await init_cluster(self.layout.config("n1"), "QUORATE", "", print)
        await until_ready(DrillNode(n.name, n.host, n.api, n.http) for n in nodes)

    def write_file(self) -> Path:
        addresses = self.fronts.addresses
        has = f"ip -o addr show to {addresses[Ability.VIRTUAL_ADDRESS]} | grep -q ."
        cut_off = self.on("{name}", str(DEPLOY / "drills" / "cut-off.sh"))
        commands = {verb: self.command(verb, "{name}") for verb in VERBS}
        commands["has_address"] = self.on("{name}", "sh", "-c", has)
        commands |= {"cut": [*cut_off, "{sources}"], "heal": cut_off}
        lines = [
            f'clients = "{self.rig.machine_address}"',
            f'virtual_address = "{addresses[Ability.VIRTUAL_ADDRESS]}"',
            f'proxy_address = "{addresses[Ability.PROXY]}"',
            *("[tls]", 'authority = "pki/authority.pem"'),
            *('certificate = "pki/admin.pem"', 'key = "pki/admin.key"'),
        ]
        for name in NAMES:
            lines += ["[[nodes]]", f'name = "{name}"', f'host = "{self.rig.hosts[name].address}"']
        lines += ["[commands]", *(f"{key} = {json.dumps(argv)}" for key, argv in commands.items())]
        path = self.folder / "hosts.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path


@contextlib.asynccontextmanager
async def hosts(folder: Path) -> AsyncIterator[Hosts]:
    tag = f"h{os.getpid() % 10_000}"
    with Namespaces(tag, NAMES, f"{NETWORK}.0/24", first=FIRST) as rig:
        made = Hosts(folder, rig)
        try:
            await made.begin()
            yield made
        finally:
            await made.fronts.stop()
            for name in NAMES:
                await made.act("kill", name)


async def drilled(made: Hosts, report: Path) -> tuple[int, str]:
    """Run the command as an operator does; return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qm", "drill", "run", *SCENARIOS, "--yes", "--rate", "50"),
        *("--target", str(made.write_file()), "--report", str(report)),
        *("--folder", str(made.folder / "drill")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def test_an_operator_drills_the_address_the_proxy_and_the_network_of_own_hosts(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with hosts(tmp_path / "cluster") as made:
            for kind in (Ability.VIRTUAL_ADDRESS, Ability.PROXY):
                await made.fronts.start(kind)
            report = tmp_path / "report.json"
            status, said = await drilled(made, report)
            assert status == 0, said
            found = {name: one["verdict"] for name, one in json.loads(report.read_text()).items()}
            assert found == dict.fromkeys(SCENARIOS, "pass")

    asyncio.run(scenario())

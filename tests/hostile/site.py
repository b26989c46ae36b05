"""Three nodes on network namespaces, with a host of attackers and one that is silent."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

from typing_extensions import override

from qm.api.gate.identity import Role
from qm.client.calls import Calls
from qm.drill.targets.namespace_target import NamespaceTarget
from qm.node.upkeep.pki import PEERS_FOLDER, create_authority, issue
from qm.pb import control_pb2
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import User
from tests.hostile.calls import FOREIGN, STRANGER
from tests.hostile.objects import HOARDER, OTHER
from tests.hostile.rpc import PASSWORD, USER
from tests.unit.rpc.users import write_users

ATTACKER, SILENT = "attacker", "silent"
SOURCES = range(32, 160)
SILENCE = range(160, 224)
"""Last numbers of the attacker's addresses, and of those where nothing answers."""
_NICE = ("nice", "-n", "10")
"""An attacker has processors of its own; here it may only have what the nodes leave."""
_MIB = 1 << 20
_TRACEBACK = "Traceback (most recent"
_TRACEBACK_LINES = 40
_HELD_UP = '"kind": "held_up"'
"""Of `qm.node.loop_watch`, at most once in 10 s."""


class Site(NamespaceTarget):
    """A cluster and its surroundings; use `up` and `remove` as a drill does."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        super().__init__("hostile", folder, say, guests=(ATTACKER, SILENT))
        self.deaths = 0
        """Nodes that were found ended by themselves."""

    @override
    async def up(self) -> None:
        await super().up()
        for host, numbers in ((ATTACKER, SOURCES), (SILENT, SILENCE)):
            batch = "".join(f"addr add {self.address(n)}/24 dev eth0\n" for n in numbers)
            # Those that are there already are refused, and stay.
            self._on(host, "ip", "-force", "-batch", "-", text=batch)
        rule = "add table ip silent; add chain ip silent all { type filter hook input priority 0; }"
        self._on(SILENT, "nft", f"{rule}; add rule ip silent all tcp dport 1801 drop")
        pki = self._layout.pki
        for path in (pki, pki / PEERS_FOLDER):
            issue(path, STRANGER, Role.NODE, [STRANGER])
        create_authority(pki / FOREIGN, "quorate dev authority")
        certificate, key = issue(pki / FOREIGN, FOREIGN, Role.ADMIN)
        certificate.rename(pki / f"{FOREIGN}.pem")
        key.rename(pki / f"{FOREIGN}.key")

    @override
    def _rpc_section(self) -> str:
        """Serve objects, too, to accounts that attackers have, at the ports that they know."""
        users = self._layout.folder / "users.toml"
        hash_ = nt_hash(PASSWORD).hex()
        write_users(users, [User(user, hash_) for user in (USER, OTHER, HOARDER)])
        path = json.dumps(str(users.resolve()))
        return f"\n[rpc]\nenabled = true\nobjects = true\nusers_file = {path}\n"

    def _on(self, host: str, *argv: str, text: str = "") -> None:
        command = self.spaces.command(host, *argv)
        subprocess.run(command, input=text, text=True, capture_output=True, check=False)

    @property
    def pki(self) -> Path:
        """Folder of the certificates."""
        return self._layout.pki

    def address(self, number: int) -> str:
        """Return an address of the network by its last number."""
        return str(IPv4Address(int(self.spaces.network.network_address) + number))

    async def attack(self, name: str, victim: Path, seconds: float) -> bytes:
        """Run an attacker, for so long at most; return what it printed."""
        argv = self.spaces.command(
            ATTACKER, *_NICE, sys.executable, "-m", "tests.hostile.attack", name, str(victim)
        )
        # Not by the loop, whose fork the threads of gRPC would not survive.
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            said, _ = await asyncio.to_thread(process.communicate, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = await asyncio.to_thread(process.communicate)
        finally:
            process.kill()  # also of a run that is interrupted
        return said

    # What is measured ----------------------------------------------------------------------

    def rss_mib(self) -> dict[str, float]:
        """Return the resident memory of each node that runs."""
        found = {}
        for node, process in self._running.items():
            if process.returncode is None:
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
                found[node] = pages * os.sysconf("SC_PAGE_SIZE") / _MIB
        return found

    def tracebacks(self, kept: Path) -> int:
        """Return how many the nodes have written; keep the lines around them in a file."""
        found: list[str] = []
        for node in self._members:
            lines = self._layout.log(node.name).read_text(errors="replace").splitlines()
            for place, line in enumerate(lines):
                if _TRACEBACK in line:
                    around = lines[max(place - 3, 0) : place + _TRACEBACK_LINES]
                    found.append("\n".join([f"== {node.name}", *around]))
        if found:
            kept.write_text("\n".join(found), encoding="utf-8")
        return len(found)

    def held_up(self) -> int:
        """Return how often a node has written that its event loop was held up."""
        logs = [self._layout.log(node.name).read_text(errors="replace") for node in self._members]
        return sum(text.count(_HELD_UP) for text in logs)

    def keep_logs(self, folder: Path) -> None:
        """Copy what the nodes wrote: it says why a leader changed."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in self._members:
            shutil.copy(self._layout.log(node.name), folder)

    async def raise_the_dead(self) -> None:
        """Count the nodes that ended, and start them again."""
        ended = [node for node, run in self._running.items() if run.returncode is not None]
        self.deaths += len(ended)
        await self.start(*ended)

    async def term(self, wire: Calls) -> int:
        """Return the cluster's term: each change of leader raises it."""
        request = control_pb2.GetStatusRequest()
        return (await wire.call(lambda stubs: stubs.cluster.GetStatus, request)).term

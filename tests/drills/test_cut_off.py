"""deploy/drills/cut-off.sh, run by the commands of a file on hosts of their own. Needs root."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path

from qm.drill.targets.fronts import DEPLOY
from qm.drill.targets.hosts_file import load_hosts
from qm.drill.targets.hosts_target import HostsTarget
from qm.drill.targets.namespaces import Namespaces
from qm.drill.targets.target import CLIENTS
from tests.drills.processes import process, python
from tests.drills.test_namespaces import LISTENS, PORT, machine_reaches, reaches

NAMES = ("n1", "n2", "n3")
SCRIPT = DEPLOY / "drills" / "cut-off.sh"
SSH = 22


def hosts_file(rig: Namespaces, folder: Path) -> Path:
    within = rig.command("n1", str(SCRIPT))
    cut = [word.replace("-n1", "-{name}") for word in within]
    commands = {"kill": ["false"], "stop": ["false"], "start": ["false"]}
    commands |= {"cut": [*cut, "{sources}"], "heal": cut}
    lines = [f'clients = "{rig.machine_address}"', "[tls]"]
    lines += [f'{key} = "{key}.pem"' for key in ("authority", "certificate", "key")]
    for name in NAMES:
        lines += ["[[nodes]]", f'name = "{name}"', f'host = "{rig.hosts[name].address}"']
    lines += ["[commands]", *(f"{key} = {json.dumps(argv)}" for key, argv in commands.items())]
    path = folder / "hosts.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_hosts_are_cut_off_by_the_operator_s_script_but_for_ssh(tmp_path: Path) -> None:
    tag = f"c{os.getpid() % 10_000}"
    with Namespaces(tag, NAMES, "10.182.0.0/24") as rig, contextlib.ExitStack() as servers:
        for name, host in rig.hosts.items():
            for port in (PORT, SSH):
                argv = rig.command(name, *python(LISTENS, host.address, str(port)))
                servers.enter_context(process(argv, ready="listening"))
        target = HostsTarget(load_hosts(hosts_file(rig, tmp_path)), tmp_path)
        asyncio.run(target.partition(["n1"], ["n2", "n3"]))
        assert not reaches(rig, "n1", "n2")
        assert not reaches(rig, "n3", "n1")
        assert reaches(rig, "n2", "n3")
        assert machine_reaches(rig, "n1")
        asyncio.run(target.unplug("n2"))
        assert not machine_reaches(rig, "n2")
        assert not reaches(rig, "n3", "n2")
        asyncio.run(target.cut(["n3"], [CLIENTS]))
        assert not machine_reaches(rig, "n3")
        for name, host in rig.hosts.items():
            socket.create_connection((host.address, SSH), 1.0).close()
            healed = rig.command(name, str(SCRIPT))
            subprocess.run(healed, check=True)
        assert machine_reaches(rig, "n2")
        assert reaches(rig, "n1", "n2")

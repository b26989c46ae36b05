"""Drills on a cluster that runs already, by the commands of a file, which act on this machine."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from qm.cli.drills.drill import drill
from qm.node.dev.layout import DevNode, Layout
from qm.node.membership.first_start import init_cluster

pytestmark = pytest.mark.timeout(900)
"""A drill waits as long as a busy machine makes it."""

NETWORK = "127.0.44"
FOUNDERS = 3
SPARE = "n4"
VERBS = ("kill", "stop", "start", "pause", "resume", "lose-disk", "rejoin")


def command(folder: Path, verb: str, node: str) -> list[str]:
    return [sys.executable, "-m", "tests.drills.host_actor", str(folder), verb, node]


def act(folder: Path, verb: str, node: str) -> None:
    subprocess.run(command(folder, verb, node), check=True)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster of three that runs, with one more machine that is prepared."""
    layout = Layout(tmp_path / "cluster")
    founders = layout.make(FOUNDERS, NETWORK)
    layout.add(DevNode(SPARE, f"{NETWORK}.14"), founders)
    try:
        for node in founders:
            act(layout.folder, "start", node.name)
        asyncio.run(init_cluster(layout.config("n1"), "QUORATE", "", print))
        yield layout.folder
    finally:
        for node in layout.nodes():
            act(layout.folder, "kill", node.name)


def hosts_file(folder: Path) -> Path:
    lines = ["[tls]", 'authority = "pki/authority.pem"', 'certificate = "pki/admin.pem"']
    lines += ['key = "pki/admin.key"', "[commands]"]
    for verb in VERBS:
        argv = json.dumps(command(folder, verb, "{name}"))
        lines.append(f"{verb.replace('-', '_')} = {argv}")
    for number in range(1, FOUNDERS + 2):
        lines.append("[[nodes]]" if number <= FOUNDERS else "[[spares]]")
        lines += [f'name = "n{number}"', f'host = "{NETWORK}.{10 + number}"']
    path = folder / "hosts.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_scenarios_act_by_the_commands_and_leave_the_cluster_as_it_was(folder: Path) -> None:
    names = ["kill-leader", "pause-leader", "lost-disk", "replace-member"]
    report = folder / "report.json"
    arguments = ["run", *names, "--target", str(hosts_file(folder)), "--yes", "--rate", "50"]
    arguments += ["--folder", str(folder / "drill"), "--report", str(report)]
    result = CliRunner().invoke(drill, arguments)
    assert result.exit_code == 0, result.output
    assert {name: one["verdict"] for name, one in json.loads(report.read_text()).items()} == (
        dict.fromkeys(names, "pass")
    )
    calls = (folder / "calls").read_text().splitlines()
    assert {call.split()[0] for call in calls} == set(VERBS)
    assert f"start {SPARE}" in calls

"""What deploy/ names exists and can be used: its commands run, its configurations load."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from qm.cli.main import main
from qm.node.loading import parse
from tests.chart.rendering import ROOT

DEPLOY = ROOT / "deploy"


def command_of(words: list[str]) -> click.Command:
    """Return the command of `qm` that a command line means; fail if there is none."""
    found: click.Command = main
    with click.Context(found) as context:
        for word in words:
            if not isinstance(found, click.Group) or word.startswith("-"):
                break
            next_one = found.get_command(context, word)
            assert next_one is not None, words
            found = next_one
    return found


def test_compose_makes_certificates_and_a_configuration_that_load(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    (script,) = compose["services"]["pki"]["command"]
    script, chown, _ = script.partition("chown")
    assert chown
    script = script.replace("$$", "$").replace("/pki", str(tmp_path))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for _ in range(2):  # a second start finds what the first one made
        subprocess.run(["sh", "-c", script], env=environment, check=True, timeout=120)
    text = (DEPLOY / "compose" / "node.toml").read_text().replace("/etc/quorate/pki", str(tmp_path))
    for name in ("n1", "n2", "n3"):
        service = compose["services"][name]
        config = parse(text, tmp_path, service["environment"])
        assert (config.name, config.host, config.birth.automatic) == (
            name,
            service["hostname"],
            True,
        )
        assert command_of(service["healthcheck"]["test"][2:]).name == "ready"


def test_the_unit_stops_the_node_that_it_runs() -> None:
    lines = (DEPLOY / "systemd" / "quorate.service").read_text().splitlines()
    start, stop = (
        next(line for line in lines if line.startswith(key)).partition("/qm ")[2].split()
        for key in ("ExecStart=", "ExecStop=")
    )
    assert (command_of(start).name, command_of(stop).name) == ("run", "prestop")
    assert start[2:4] == stop[2:4] == ["--config", "/etc/quorate/node.toml"]


@pytest.mark.parametrize("line", (DEPLOY / "README.md").read_text().splitlines())
def test_every_folder_of_the_readme_is_there(line: str) -> None:
    name = line.removeprefix("| `").partition("`")[0]
    if line.startswith("| `"):
        assert any((DEPLOY / name).iterdir())

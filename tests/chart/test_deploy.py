"""What deploy/ names exists and can be used: its commands run, its configurations load."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import click
import msgspec
import pytest
import yaml

from qm.cli.main import main
from qm.node.config.schema import API_PORT, HTTP_PORT
from tests.chart.custom_kinds import CUSTOM_KINDS
from tests.chart.rendering import ROOT
from tests.cluster.harness import free_network
from tests.drills.processes import process, until
from tests.image.compose import FILE, load
from tests.image.compose import parse as parse_compose

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "quorate.service"
CONFIG = "/etc/quorate/node.toml"
READY_S = 120.0


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


def test_compose_starts_three_nodes_that_find_each_other(tmp_path: Path) -> None:
    """What its containers run, as processes; `make test-image` runs the containers."""
    compose = load({"QUORATE_IMAGE": "quorate"})
    network = free_network()
    services = {name: compose.services[name] for name in ("n1", "n2", "n3")}
    hosts = {name: f"{network}.{10 + k}" for k, name in enumerate(services, 1)}
    (script,) = compose.services["pki"].command
    script, chown, _ = script.replace("127.0.0.1", f"{network}.1").partition("chown")
    assert chown
    pki = tmp_path / "pki"
    script = script.replace("/pki", str(pki))
    (pki / "admin").mkdir(parents=True)
    script = script.replace("a=/authority", f"a={tmp_path / 'authority'}")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for _ in range(2):  # a second start finds what the first one made
        subprocess.run(["sh", "-c", script], env=environment, check=True, timeout=120)
    assert (tmp_path / "authority" / "authority.key").exists()
    for name, service in services.items():
        # A container's keys are its own, and no authority's or administrator's.
        assert f"pki-{name}:/etc/quorate/pki:ro" in service.volumes
        assert {one.stem for one in (pki / name).rglob("*.key")} == {name}
        assert not any("admin" in volume or "authority" in volume for volume in service.volumes)
    assert {one.stem for one in (pki / "admin").iterdir()} == {"authority", "admin"}
    assert not list(pki.rglob("authority.key"))
    with contextlib.ExitStack() as running:
        for name, service in services.items():
            # Containers have a network and folders of their own; these have an address.
            text = (DEPLOY / "compose" / "node.toml").read_text().replace("0.0.0.0", hosts[name])
            for other, host in hosts.items():
                text = text.replace(f'host = "{other}"', f'host = "{host}"')
            text = text.replace('host = "${NODE_NAME}"', f'host = "{hosts[name]}"')
            text = text.replace("/etc/quorate/pki", str(pki / name))
            text = text.replace("/var/lib/quorate", str(tmp_path / name))
            config = tmp_path / f"{name}.toml"
            config.write_text(text)
            argv = [sys.executable, "-m", "qm", "node", "run", "--config", str(config)]
            running.enter_context(process(argv, environment=service.environment))
        for name, service in services.items():
            assert service.healthcheck is not None
            kind, program, *question = service.healthcheck.test
            assert (kind, program) == ("CMD", "qm")
            ask = [sys.executable, "-m", "qm", *question, "--http", f"{hosts[name]}:{HTTP_PORT}"]
            until(functools.partial(run, ask), lambda seen: seen[0] == 0, READY_S)


def test_three_bare_machines_become_a_cluster(tmp_path: Path) -> None:
    """The files of `prepare.sh`, and the commands of the unit, on three addresses."""
    network = free_network()
    hosts = {f"n{k}": f"{network}.{10 + k}" for k in (1, 2, 3)}
    program = tmp_path / "bin" / "qm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m qm "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    made = tmp_path / "made"
    argv = [str(DEPLOY / "bare" / "prepare.sh"), str(made)]
    argv += [f"{name}={host}" for name, host in hosts.items()]
    for _ in range(2):  # the second run changes nothing
        subprocess.run(argv, env={**os.environ, "PATH": path}, check=True, timeout=240)
    start, stop = unit_commands()
    admin = made / "admin"
    connection = {
        "QM_TLS_AUTHORITY": str(admin / "authority.pem"),
        "QM_TLS_CERTIFICATE": str(admin / "admin.pem"),
        "QM_TLS_KEY": str(admin / "admin.key"),
        "QM_ENDPOINT": f"{hosts['n1']}:{API_PORT}",
    }
    with contextlib.ExitStack() as running:

        def command(words: list[str], name: str) -> list[str]:
            config = str(tmp_path / "etc" / name / "node.toml")
            words = [config if word == CONFIG else word for word in words]
            return [sys.executable, "-m", "qm", *words]

        for name in hosts:
            etc = tmp_path / "etc" / name
            etc.mkdir(parents=True)
            subprocess.run(["tar", "-xf", made / f"{name}.tar", "-C", etc], check=True)
            (tmp_path / "var" / name).mkdir(parents=True)
            environment = {"STATE_DIRECTORY": str(tmp_path / "var" / name)}
            running.enter_context(process(command(start, name), environment=environment))
        for host in hosts.values():
            ask = [sys.executable, "-m", "qm", "check", "ready", "--http", f"{host}:{HTTP_PORT}"]
            until(functools.partial(run, ask), lambda seen: seen[0] == 0, READY_S)
        status, said = run(
            [sys.executable, "-m", "qm", "check", "send-receive", "--msmq", hosts["n2"]], connection
        )
        assert status == 0, said
        status, said = run(
            command(stop, "n3"), {"STATE_DIRECTORY": str(tmp_path / "var" / "n3"), **connection}
        )
        assert status == 0, said


def test_prepare_wants_three_nodes(tmp_path: Path) -> None:
    status, said = run([str(DEPLOY / "bare" / "prepare.sh"), str(tmp_path), "n1=10.0.0.1"])
    assert (status, said) == (64, "prepare.sh: three or five nodes, NAME=ADDRESS each, not 1\n")


def run(argv: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> tuple[int, str]:
    """Return the exit status of a command and what it said."""
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    image: ${QUORATE_IMAGE", "    imgae: ${QUORATE_IMAGE"),
        ("restart: on-failure", "restart: on-success"),
        ("interval: 5s", "interval: soon"),
    ],
)
def test_a_compose_file_with_a_mistake_is_refused(right: str, wrong: str) -> None:
    text = FILE.read_text()
    assert right.strip() in text
    with pytest.raises((ValueError, msgspec.ValidationError)):
        parse_compose(text.replace(right.strip(), wrong.strip()), {"QUORATE_IMAGE": "quorate"})


def test_compose_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="QUORATE_IMAGE: set QUORATE_IMAGE to the image"):
        load({})


def test_the_spark_application_is_one() -> None:
    for found in yaml.safe_load_all((DEPLOY / "spark" / "audit.yaml").read_text()):
        kind = CUSTOM_KINDS[found["apiVersion"], found["kind"]]
        job = msgspec.convert(found, kind, strict=True).spec.template
        assert command_of(job.arguments).name == "audit"
        mounted = {mount["name"] for mount in job.executor.volumeMounts}
        assert mounted == {volume.name for volume in job.volumes}


def unit_commands() -> tuple[list[str], list[str]]:
    """Return the arguments of `qm` that start and stop a node."""
    lines = UNIT.read_text().splitlines()
    start, stop = (
        next(line for line in lines if line.startswith(key)).partition("/qm ")[2].split()
        for key in ("ExecStart=", "ExecStop=")
    )
    return start, stop


def test_the_unit_gives_the_node_little_to_break() -> None:
    argv = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(UNIT)]
    status, said = run(argv)
    assert status == 0, said


def test_the_unit_stops_the_node_that_it_runs() -> None:
    start, stop = unit_commands()
    assert (command_of(start).name, command_of(stop).name) == ("run", "prestop")
    assert start[2:4] == stop[2:4] == ["--config", CONFIG]


@pytest.mark.parametrize("line", (DEPLOY / "README.md").read_text().splitlines())
def test_every_folder_of_the_readme_is_there(line: str) -> None:
    name = line.removeprefix("| `").partition("`")[0]
    if line.startswith("| `"):
        assert any((DEPLOY / name).iterdir())

"""Hosts on one machine hear each other, and do not where a fault says so. Needs root."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from qm.drill.targets.namespaces import Namespaces
from tests.drills.processes import process, python

_HEARS = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5).close()
except OSError:
    sys.exit(1)
"""
LISTENS = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
PORT = 1801


@pytest.fixture(scope="module")
def rig() -> Iterator[Namespaces]:
    tag = f"t{os.getpid() % 10_000}"
    names = ["n1", "n2", "n3"]
    with Namespaces(tag, names, "10.178.0.0/24") as made, contextlib.ExitStack() as servers:
        for name, host in made.hosts.items():
            argv = made.command(name, *python(LISTENS, host.address, str(PORT)))
            servers.enter_context(process(argv, ready="listening"))
        yield made


@pytest.fixture(autouse=True)
def _healed(rig: Namespaces) -> Iterator[None]:
    yield
    rig.heal()


def reaches(rig: Namespaces, source: str, target: str) -> bool:
    argv = rig.command(source, *python(_HEARS, rig.hosts[target].address, str(PORT)))
    return subprocess.run(argv, check=False).returncode == 0


def machine_reaches(rig: Namespaces, target: str) -> bool:
    try:
        socket.create_connection((rig.hosts[target].address, PORT), 0.5).close()
    except OSError:
        return False
    return True


def test_hosts_and_the_machine_reach_each_other(rig: Namespaces) -> None:
    assert reaches(rig, "n1", "n2")
    assert reaches(rig, "n3", "n1")
    assert machine_reaches(rig, "n2")


def test_a_partition_parts_the_sides_and_nobody_else(rig: Namespaces) -> None:
    rig.partition(["n1"], ["n2", "n3"])
    assert not reaches(rig, "n1", "n2")
    assert not reaches(rig, "n3", "n1")
    assert reaches(rig, "n2", "n3")
    assert machine_reaches(rig, "n1")


def test_clients_alone_can_be_cut_off(rig: Namespaces) -> None:
    rig.cut(["n1"], [rig.machine_address])
    assert not machine_reaches(rig, "n1")
    assert machine_reaches(rig, "n2")
    assert reaches(rig, "n2", "n1")


def test_healing_ends_every_fault(rig: Namespaces) -> None:
    rig.partition(["n1"], ["n2"], ["n3"])
    rig.heal()
    assert reaches(rig, "n1", "n2")
    assert reaches(rig, "n2", "n3")


def test_nothing_is_left_behind() -> None:
    with Namespaces("left", ["a"], "10.179.0.0/24"):
        pass
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert "qmleft" not in links + spaces

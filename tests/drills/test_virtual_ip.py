"""The keepalived and HAProxy files of deploy/, started on three hosts. Needs root.

What stands behind them here are three small servers with the node's ports and health endpoint, so
that these tests are about the files alone; test_fronts runs them with nodes.
"""

import contextlib
import functools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from qm.drill.targets.fronts import DEPLOY, copy_scripts, keepalived_text
from qm.drill.targets.namespaces import Namespaces
from qm.node.config.loading import section
from qm.node.config.schema import NodeConfig
from qm.node.upkeep.rpc_endpoint import port_of
from tests.drills.processes import process, python, until
from tests.unit.node.config.test_loading import SOUND

MOVE_S = 10.0
_NODE = """
import socket, sys, threading, time, urllib.parse
name, address, flag, *ports = sys.argv[1:]
import http.server, pathlib
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        # As a node does when it is asked to keep its answer back.
        asked = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        hold_s = float(asked.get("hold", ["0"])[0])
        was_ready = False
        for _ in range(max(1, int(hold_s * 20))):
            was_ready = was_ready or pathlib.Path(flag).exists()
            time.sleep(1 / 20)
        self.send_response(200 if was_ready else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
health = http.server.ThreadingHTTPServer((address, 1814), Health)
threading.Thread(target=health.serve_forever, daemon=True).start()
def serve(server):
    while True:
        connection, _ = server.accept()
        connection.sendall(name.encode())
        connection.close()
for port in ports:
    server = socket.create_server(("0.0.0.0", int(port)))
    threading.Thread(target=serve, args=(server,)).start()
print("ready", flush=True)
"""
RPC_PORTS = {"n1": 2114, "n2": 2125, "n3": 2136}
"""What `rpc.port_by_ordinal` makes of the default port."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[Namespaces, dict[str, Path]]]:
    """Three hosts whose node is ready while its flag file exists."""
    flags = {name: tmp_path / name for name in ("n1", "n2", "n3")}
    tag = f"v{os.getpid() % 10_000}"
    with Namespaces(tag, list(flags), "10.180.0.0/24") as made, contextlib.ExitStack() as nodes:
        for name, flag in flags.items():
            flag.touch()
            ports = map(str, (1801, 135, RPC_PORTS[name]))
            node = python(_NODE, name, made.hosts[name].address, str(flag), *ports)
            nodes.enter_context(process(made.command(name, *node), ready="ready"))
        yield made, flags


def who_answers(address: str, port: int = 1801) -> str:
    """Return the name of the node behind an address, "" for none."""
    try:
        with socket.create_connection((address, port), 0.5) as connection:
            connection.settimeout(0.5)
            return connection.recv(16).decode()
    except OSError:
        return ""


def test_keepalived_moves_the_address_to_a_node_that_serves(
    rig: tuple[Namespaces, dict[str, Path]], tmp_path: Path
) -> None:
    spaces, flags = rig
    copy_scripts(tmp_path)
    with contextlib.ExitStack() as running:
        for name in spaces.hosts:
            config = tmp_path / f"{name}.conf"
            text = keepalived_text(spaces, name, list(spaces.hosts), tmp_path)
            config.write_text(text, encoding="utf-8")
            argv = ["keepalived", "--dont-fork", "--log-console", "--use-file", str(config)]
            for kind in ("pid", "vrrp_pid", "checkers_pid"):
                argv += [f"--{kind}", str(tmp_path / f"{name}.{kind}")]
            running.enter_context(process(spaces.command(name, *argv)))
        first = until(lambda: who_answers(spaces.virtual_address), bool, MOVE_S)
        flags[first].unlink()
        second = until(
            lambda: who_answers(spaces.virtual_address),
            lambda name: name not in ("", first),
            MOVE_S,
        )
        flags[first].touch()
        flags[second].unlink()
        until(
            lambda: who_answers(spaces.virtual_address),
            lambda name: name not in ("", second),
            MOVE_S,
        )


def test_haproxy_sends_peers_to_nodes_that_serve(
    rig: tuple[Namespaces, dict[str, Path]], tmp_path: Path
) -> None:
    spaces, flags = rig
    addresses = [host.address for host in spaces.hosts.values()]
    environment = {f"NODE_{n}": address for n, address in enumerate(addresses, 1)}
    environment["VIRTUAL_ADDRESS"] = spaces.machine_address
    argv = ["haproxy", "-db", "-q", "-f", str(DEPLOY / "haproxy" / "haproxy.cfg")]
    with process(argv, environment=environment):
        seen: set[str] = set()

        def answers() -> set[str]:
            seen.add(who_answers(spaces.machine_address))
            return seen - {""}

        until(answers, lambda names: names == set(flags), MOVE_S)
        for name in ("n1", "n2"):
            flags[name].unlink()
        # Until its health checks notice, HAProxy may still choose the others.
        in_a_row: list[str] = []

        def last_answers() -> list[str]:
            in_a_row.append(who_answers(spaces.machine_address))
            return in_a_row[-20:]

        until(last_answers, lambda names: len(names) == 20 and set(names) == {"n3"}, MOVE_S)


def test_haproxy_keeps_readers_at_the_node_whose_port_they_were_told(
    rig: tuple[Namespaces, dict[str, Path]], tmp_path: Path
) -> None:
    spaces, flags = rig
    address = spaces.machine_address
    environment = {f"NODE_{n}": host.address for n, host in enumerate(spaces.hosts.values(), 1)}
    environment["VIRTUAL_ADDRESS"] = address
    argv = ["haproxy", "-db", "-q"]
    for name in ("haproxy.cfg", "rpc.cfg"):
        argv += ["-f", str(DEPLOY / "haproxy" / name)]
    with process(argv, environment=environment):
        for name, port in RPC_PORTS.items():
            until(functools.partial(who_answers, address, port), name.__eq__, MOVE_S)
            assert {who_answers(address, port) for _ in range(5)} == {name}
        mappers: set[str] = set()

        def seen() -> set[str]:
            mappers.add(who_answers(address, 135))
            return mappers - {""}

        until(seen, lambda names: names == set(flags), MOVE_S)
        flags["n1"].unlink()
        until(functools.partial(who_answers, address, RPC_PORTS["n1"]), lambda one: not one, MOVE_S)
        assert who_answers(address, RPC_PORTS["n2"]) == "n2"


def test_the_ports_of_the_example_are_those_of_the_nodes() -> None:
    config = section(SOUND, NodeConfig, {})
    rpc = msgspec.structs.replace(config.rpc, port_by_ordinal=True)
    for name, port in RPC_PORTS.items():
        assert port_of(msgspec.structs.replace(config, name=name, rpc=rpc)) == port

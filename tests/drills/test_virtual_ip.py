"""The keepalived and HAProxy files of deploy/, started on three hosts. Needs root.

What stands behind them here are three small servers with the node's ports and health endpoint, so
that these tests are about the files alone; test_fronts runs them with nodes.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from qm.drill.targets.fronts import DEPLOY, copy_scripts, keepalived_text
from qm.drill.targets.namespaces import Namespaces
from tests.drills.processes import process, python, until

MOVE_S = 10.0
_NODE = """
import socket, sys, threading, time, urllib.parse
name, address, flag = sys.argv[1:4]
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
server = socket.create_server(("0.0.0.0", 1801))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(name.encode())
    connection.close()
"""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[Namespaces, dict[str, Path]]]:
    """Three hosts whose node is ready while its flag file exists."""
    flags = {name: tmp_path / name for name in ("n1", "n2", "n3")}
    tag = f"v{os.getpid() % 10_000}"
    with Namespaces(tag, list(flags), "10.180.0.0/24") as made, contextlib.ExitStack() as nodes:
        for name, flag in flags.items():
            flag.touch()
            node = python(_NODE, name, made.hosts[name].address, str(flag))
            nodes.enter_context(process(made.command(name, *node), ready="ready"))
        yield made, flags


def who_answers(address: str) -> str:
    """Return the name of the node behind an address, "" for none."""
    try:
        with socket.create_connection((address, 1801), 0.5) as connection:
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

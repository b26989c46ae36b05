"""The client runs where nothing of the server is installed (`quorate[client]`)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
MODULES = {
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "prometheus-client": "prometheus_client",
    "pycryptodome": "Crypto",
    "pyyaml": "yaml",
    "zlib-ng": "zlib_ng",
}
PARTS = (
    "client",
    "blocking",
    "mqac",
    "mqac.constants",
    "signing",
    "formatters",
    "handling",
    "telemetry",
)


def modules_of(requirements: list[str]) -> list[str]:
    names = [re.split(r"[<>=]", one)[0] for one in requirements]
    return [MODULES.get(name, name.replace("-", "_")) for name in names]


@pytest.mark.parametrize("part", PARTS)
def test_it_imports_without_the_server_s_packages(part: str) -> None:
    absent = modules_of(PROJECT["optional-dependencies"]["server"])
    assert {"aiohttp", "rocksdict", "click", "yaml"} <= set(absent)
    code = f"""
import sys
for name in {absent}:
    sys.modules[name] = None
import qm.client.{part}
server = [name for name in sys.modules if name.startswith(("qm.node", "qm.store", "raft"))]
assert not server, server
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_script_says_what_a_command_line_needs() -> None:
    code = "import sys; sys.modules['click'] = None; from qm.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "qm: click is missing: pip install 'quorate[server]'\n"

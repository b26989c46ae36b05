"""What all peers have in common: processes, their CPU, what a load saw, where none is installed."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

START_WAIT_S: Final = 180.0
POLL_S: Final = 0.2
WINDOW: Final = 512
"""Messages in flight, as eight MSMQ sessions with a window of 64 have."""
WARM_UP: Final = 2_000
READ_BYTES: Final = 1 << 18


class Missing(Exception):
    """The server is not on this machine; the text says how to install it."""


class Rate(msgspec.Struct, frozen=True):
    """One run."""

    msgs_per_s: float
    cpu_us_per_msg: float
    """User and system time of all server processes."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    """From the sending to the confirmation; 0 where nothing is confirmed."""


def require(program: str, package: str) -> str:
    """Return where a program is. Raises Missing."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/lib/rabbitmq/bin")
    if path is None:
        raise Missing(f"no {program}: `apt-get install {package}` adds this peer to the report")
    return path


def attempts(seconds: float = START_WAIT_S) -> Iterator[None]:
    """Yield until the time is over, which raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(POLL_S)
    raise TimeoutError(f"the servers are not up after {seconds:.0f} s")


def connect(port: int) -> socket.socket:
    """Connect to a server of this machine, without delay of small writes."""
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read(connection: socket.socket) -> bytes:
    """Return what arrives; the end of the connection is an error."""
    data = connection.recv(READ_BYTES)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def confirmed(messages: int, seconds: float, cpu_s: float, waits_s: list[float]) -> Rate:
    """Return a run of which every confirmation's time is known."""
    ordered = sorted(waits_s)
    p50, p99 = (ordered[len(ordered) * share // 100] * 1e3 for share in (50, 99))
    return Rate(messages / seconds, cpu_s / messages * 1e6, p50, p99)


def descendants(process: subprocess.Popen[bytes], name: str) -> list[int]:
    """Return the processes of a name among what a process has started, and itself."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text(encoding="utf-8").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        number, _, title = head.partition(" (")
        parents[int(number)] = int(tail.split()[1]), title
    found = []
    for pid, (_, command) in parents.items():
        above = pid
        while above in parents and above != process.pid:
            above = parents[above][0]
        if above == process.pid and command == name:
            found.append(pid)
    return found

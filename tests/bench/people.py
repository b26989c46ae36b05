"""What people at the cluster wait for: `python -m tests.bench.people`. Three nodes as processes.

Prints JSON and writes it to build/bench-people.json. Medians of several.

console_first_page_s        sign-in and overview with all its files, by a browser that knows none
console_first_page_kb       of it, on the wire
console_queues_10000_s      the list of 10,000 queues
console_queues_by_age_first_s   by the age of the oldest message, one in each, asked the first time
console_queues_by_age_s     the same, asked again
console_overview_cpu_percent    of a core, for one open overview, at its node
client_import_s             `import qm.client.client` in a new process, less an empty one
client_installed_mib        what the client needs beside Python: packages and its own modules
client_connect_failure_s    until an error that names the cause, where nobody listens
client_silent_failure_s     until an error that names it, for an address that never answers
cli_queue_list_s            `qm queue list` from start to end, 100 queues
"""

import asyncio
import contextlib
import json
import os
import platform
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import aiohttp

from qm.client.calls import Calls, Tls
from qm.client.client import Client
from qm.client.errors import Unavailable
from qm.client.message import Message
from qm.node.dev.layout import DevNode
from qm.pb import control_pb2 as pb
from tests.bench.cluster_nodes import Nodes, thread_cpu_s

ROUNDS: Final = 5
QUEUES: Final = 10_000
QUEUES_FIRST: Final = 100
AT_ONCE: Final = 64
OVERVIEW_S: Final = 20.0
LOOK_EVERY_S: Final = 2.0
"""As the page's script does."""
CONNECT_S: Final = 3.0
PACKAGES: Final = (
    "grpcio",
    "protobuf",
    "msgspec",
    "grpcio-status",
    "googleapis-common-protos",
    "typing_extensions",
)
OWN: Final = ("client", "pb", "wire", "names")
_MIB: Final = 1 << 20


def median_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median time of something."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def python(code: str) -> None:
    """Run a new interpreter."""
    subprocess.run([sys.executable, "-c", code], check=True)


def installed_bytes() -> int:
    """Return the size of the packages and modules that a client needs."""
    found = 0
    for name in PACKAGES:
        files = distribution(name).files or []
        paths = [Path(str(one.locate())) for one in files]
        found += sum(path.stat().st_size for path in paths if path.is_file())
    root = Path(__file__).parents[2] / "qm"
    for part in OWN:
        found += sum(path.stat().st_size for path in (root / part).rglob("*.py*") if path.is_file())
    return found


async def failure_s(endpoint: str) -> float:
    """Return how long it takes until a client says why it has no node."""
    began = time.perf_counter()
    client = Client([endpoint], connect_s=CONNECT_S)
    try:
        await client.open()
    except Unavailable as error:
        assert endpoint.rpartition(":")[2] in str(error), error
        return time.perf_counter() - began
    raise AssertionError(f"{endpoint} answers")


class Browser:
    """Fetches pages and what they name, as a browser with an empty cache does."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base
        self.received = 0

    async def get(self, path: str) -> str:
        async with self.session.get(self.base + path) as answer:
            body = await answer.read()
            assert answer.status == 200, (path, answer.status)
            self.received += len(body) + sum(
                len(name) + len(value) + 4 for name, value in answer.raw_headers
            )
            return body.decode()

    async def page(self, path: str) -> None:
        text = await self.get(path)
        files = dict.fromkeys(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
        await asyncio.gather(*(self.get(file) for file in files))


@contextlib.asynccontextmanager
async def browser(node: DevNode, tls: Tls) -> AsyncIterator[Browser]:
    """A browser with an administrator's certificate."""
    context = ssl.create_default_context(cafile=str(tls.authority))
    context.load_cert_chain(tls.certificate, tls.key)
    jar = aiohttp.CookieJar(unsafe=True)  # the host is an address
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield Browser(session, node.console)


async def console(nodes: Nodes, node: DevNode) -> dict[str, float]:
    """Measure pages."""
    times, sizes = [], []
    for _ in range(ROUNDS):
        async with browser(node, nodes.tls) as found:
            began = time.perf_counter()
            await found.page("/sign-in")
            times.append(time.perf_counter() - began)
            sizes.append(found.received / 1000)
    async with browser(node, nodes.tls) as found:
        await found.page("/sign-in")
        idle = await _share(nodes, node, lambda: asyncio.sleep(0))
        watched = await _share(nodes, node, lambda: _look(found))
    return {
        "console_first_page_s": round(statistics.median(times), 3),
        "console_first_page_kb": round(statistics.median(sizes), 1),
        "console_overview_cpu_percent": round(100 * (watched - idle), 2),
    }


async def _look(found: Browser) -> None:
    await asyncio.gather(found.get("/live"), found.get("/figures"))


async def _share(nodes: Nodes, node: DevNode, look: Callable[[], Awaitable[None]]) -> float:
    """Return the share of a core that a node uses while an overview is looked at."""
    pid, began = nodes.pid(node), time.perf_counter()
    before = thread_cpu_s(pid)
    while time.perf_counter() < began + OVERVIEW_S:
        await look()
        await asyncio.sleep(LOOK_EVERY_S)
    return (thread_cpu_s(pid) - before) / (time.perf_counter() - began)


async def create(nodes: Nodes, first: int, last: int) -> None:
    """Create queues, many at once."""
    wire = Calls([node.api for node in nodes.nodes], nodes.tls)
    numbers = iter(range(first, last))

    async def one() -> None:
        for number in numbers:
            request = pb.CreateQueueRequest(path_name=f".\\private$\\queue{number}")
            await wire.call(lambda stubs: stubs.queues.CreateQueue, request)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    await wire.close()


async def fill(nodes: Nodes) -> None:
    """Leave one more message in every queue."""
    numbers = iter(range(QUEUES))

    async def some() -> None:
        async with Client([node.api for node in nodes.nodes], tls=nodes.tls) as sender:
            for number in numbers:
                await sender.send(f".\\private$\\queue{number}", Message(body=b"x"))

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def listed_s(nodes: Nodes, node: DevNode, order: str, rounds: int = ROUNDS) -> float:
    """Return how long the list of all queues takes."""
    async with browser(node, nodes.tls) as found:
        await found.page("/sign-in")
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            text = await found.get(f"/queues?sort={order}")
            times.append(time.perf_counter() - began)
            assert f"{QUEUES} queues" in text
        return statistics.median(times)


async def sorted_by_age(nodes: Nodes) -> dict[str, float]:
    """Measure the list by age where every queue has a message, at each node in turn."""
    await fill(nodes)
    first, again = [], []
    for node in nodes.nodes:
        first.append(await listed_s(nodes, node, "age", 1))
        again.append(await listed_s(nodes, node, "age"))
    return {
        "console_queues_by_age_first_s": round(statistics.median(first), 3),
        "console_queues_by_age_s": round(statistics.median(again), 3),
    }


def client() -> dict[str, float]:
    """Measure what a program meets before its first message."""
    empty = median_s(lambda: python("pass"))
    loaded = median_s(lambda: python("import qm.client.client"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        refused = asyncio.run(failure_s(f"127.0.0.1:{unused.getsockname()[1]}"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        unanswered = asyncio.run(failure_s(f"127.0.0.1:{silent.getsockname()[1]}"))
    return {
        "client_import_s": round(loaded - empty, 3),
        "client_installed_mib": round(installed_bytes() / _MIB, 1),
        "client_connect_failure_s": round(refused, 3),
        "client_silent_failure_s": round(unanswered, 3),
    }


def command_line(nodes: Nodes) -> float:
    """Return how long a list of queues takes at a shell's prompt."""
    command = [sys.executable, "-m", "qm", "queue", "list"]

    where = {
        "QM_ENDPOINT": nodes.leader().api,
        "QM_TLS_AUTHORITY": str(nodes.tls.authority),
        "QM_TLS_CERTIFICATE": str(nodes.tls.certificate),
        "QM_TLS_KEY": str(nodes.tls.key),
    }

    def run() -> None:
        done = subprocess.run(
            command, check=True, env=os.environ | where, capture_output=True, text=True
        )
        assert "queue7" in done.stdout, done

    return median_s(run)


def main() -> None:
    """Measure, print and write."""
    report: dict[str, float | str] = dict(client())
    with tempfile.TemporaryDirectory() as folder, Nodes(Path(folder), "127.61.7") as nodes:
        node = nodes.leader()
        asyncio.run(create(nodes, 0, QUEUES_FIRST))
        report["cli_queue_list_s"] = round(command_line(nodes), 3)
        report |= asyncio.run(console(nodes, node))
        asyncio.run(create(nodes, QUEUES_FIRST, QUEUES))
        report["console_queues_10000_s"] = round(asyncio.run(listed_s(nodes, node, "name")), 3)
        report |= asyncio.run(sorted_by_age(nodes))
    report["load_1min"] = round(os.getloadavg()[0], 1)
    report["python"] = platform.python_version()
    text = json.dumps(report, indent=2)
    print(text)
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-people.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

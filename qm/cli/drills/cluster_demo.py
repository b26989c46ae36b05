"""Implementation and display of `qm demo`."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from qm.cli.lib.connection import Connection, dev_connection
from qm.cli.lib.text import printable
from qm.cli.packets.render import terminal
from qm.client.calls import Calls
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.verdict import Verdict, explain_p99
from qm.load.workload import Target, Workload
from qm.node.config.schema import MSMQ_PORT
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.pb import control_pb2

UP_WAIT_S: Final = 60.0
SETTLE_WAIT_S: Final = 45.0
LEADER_POLL_S: Final = 0.02
STATUS_DEADLINE_S: Final = 0.5
_PLAIN: Final = "demo"
_TRANSACTIONAL: Final = "demo.transactional"
_LINES_MAX: Final = 8


class DemoFailed(click.ClickException):
    """The demo could not be carried out; this says nothing about messages."""


async def show_demo(folder: Path, network: str, rate: int, seconds: int, seed: int) -> Verdict:
    """Run the demo; return the histories' verdict. Raises DemoFailed, ClientError."""
    display = _Display()
    async with _dev_cluster(folder, network, display) as layout:
        connection = dev_connection(layout.folder)
        assert connection is not None
        computer = await _make_queues(connection)
        nodes = {node.name: node for node in layout.nodes()}
        watch = _LeaderWatch(layout.nodes(), display)
        watching = asyncio.create_task(watch.run())
        try:
            leader = await watch.leader()
            plan = _plan(folder, connection, computer, list(nodes.values()), leader, rate, seed)
            display.say(f"{leader} leads; the sender connects to {plan.senders[0][0][0]}")
            async with Run(plan) as run:
                display.run = run
                with display.live():
                    await run.send(seconds / 2)
                    leader = await watch.leader()
                    await _kill(layout, leader, run, watch, display)
                    await run.send(seconds / 2)
                    display.say("the sender stops; messages in flight settle")
                    await run.settle(SETTLE_WAIT_S)
                return await run.verdict()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _plan(
    folder: Path,
    connection: Connection,
    computer: str,
    nodes: list[DevNode],
    leader: str,
    rate: int,
    seed: int,
) -> Plan:
    followers = [node for node in nodes if node.name != leader]
    # Receivers start at the leader, so that they fail over, too.
    apis = [node.api for node in nodes if node.name == leader] + [n.api for n in followers]
    targets = (
        Target(f"DIRECT=OS:{computer}\\private$\\{_PLAIN}"),
        Target(f"DIRECT=OS:{computer}\\private$\\{_TRANSACTIONAL}", is_transactional=True),
    )
    return Plan(
        workload=Workload(targets=targets, seed=seed, priorities=(0, 3, 7)),
        rate_per_s=rate,
        senders=[[(node.host, MSMQ_PORT) for node in followers]],
        receivers=[
            Reading(targets[0].format_name, Mode.STREAM),
            Reading(targets[1].format_name, Mode.TRANSACTION),
        ],
        endpoints=apis,
        tls=connection.tls(),
        history=folder / "history.jsonl",
    )


# The cluster -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _dev_cluster(folder: Path, network: str, display: "_Display") -> AsyncIterator[Layout]:
    """Run `qm dev up` in a fresh folder for as long as the context lasts."""
    layout = Layout((folder / "cluster").absolute())
    if pids.running(layout.manager_pid) is not None:
        raise DemoFailed(
            f"a cluster is already running there: `qm dev down --folder {layout.folder}` stops it"
        )
    shutil.rmtree(layout.folder, ignore_errors=True)
    layout.folder.mkdir(parents=True)
    display.say("three nodes start and become one queue manager")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qm", "dev", "up"),
        *("--folder", str(layout.folder), "--network", network),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for us; the cluster is stopped below
    )
    assert process.stdout is not None
    output = process.stdout
    try:
        await asyncio.wait_for(_until_ready(output, display), UP_WAIT_S)
        reading = asyncio.create_task(_repeat(output, display))
        yield layout
        reading.cancel()
    except TimeoutError:
        raise DemoFailed(f"the cluster is not up after {UP_WAIT_S:.0f} s: {folder}") from None
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _until_ready(output: asyncio.StreamReader, display: "_Display") -> None:
    while line := (await output.readline()).decode("utf-8", "replace").strip():
        display.say(line)
        if line == "ready":
            return
    raise DemoFailed("`qm dev up` ended before its cluster was ready")


async def _repeat(output: asyncio.StreamReader, display: "_Display") -> None:
    while line := (await output.readline()).decode("utf-8", "replace").strip():
        display.say(line)


async def _make_queues(connection: Connection) -> str:
    """Create the queues; return the cluster's computer name."""
    wire = Calls(connection.endpoints, connection.tls())
    try:
        manager = await wire.call(
            lambda stubs: stubs.queues.GetQueueManager, control_pb2.GetQueueManagerRequest()
        )
        for name in (_PLAIN, _TRANSACTIONAL):
            is_transactional = control_pb2.Value(flag=name == _TRANSACTIONAL)
            request = control_pb2.CreateQueueRequest(
                path_name=f"{manager.computer_name}\\private$\\{name}",
                attributes={"transactional": is_transactional},
                if_not_exists=True,
            )
            await wire.call(lambda stubs: stubs.queues.CreateQueue, request)
        return manager.computer_name
    finally:
        await wire.close()


async def _kill(
    layout: Layout, leader: str, run: Run, watch: "_LeaderWatch", display: "_Display"
) -> None:
    pid = pids.running(layout.pid(leader))
    if pid is None:
        raise DemoFailed(f"{leader}, the leader, is not running")
    run.fault(f"SIGKILL of {leader}, the leader")
    watch.killed(leader)
    os.kill(pid, signal.SIGKILL)
    display.say(f"SIGKILL of {leader}, the leader", "bold red")


class _LeaderWatch:
    """Asks every node repeatedly whether it leads."""

    def __init__(self, nodes: list[DevNode], display: "_Display") -> None:
        self._nodes = nodes
        self._display = display
        self._leader = ""
        self._dead = ""
        self._dead_since = 0.0
        self._changed = asyncio.Event()

    async def leader(self) -> str:
        """Return the known leader, waiting for one if necessary."""
        async with asyncio.timeout(UP_WAIT_S):
            while not self._leader:
                self._changed.clear()
                await self._changed.wait()
        return self._leader

    def killed(self, name: str) -> None:
        """Record that the leader was killed."""
        self._dead, self._dead_since = name, time.monotonic()
        self._leader = self._display.leader = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        timeout = aiohttp.ClientTimeout(total=STATUS_DEADLINE_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            await asyncio.gather(*(self._watch(http, node) for node in self._nodes))

    async def _watch(self, http: aiohttp.ClientSession, node: DevNode) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{node.http}/leader") as response:
                    if response.status == HTTPStatus.OK:
                        self._take(node.name)
            await asyncio.sleep(LEADER_POLL_S)

    def _take(self, leader: str) -> None:
        if leader in (self._leader, self._dead):
            return
        if self._dead:
            after_ms = (time.monotonic() - self._dead_since) * 1000
            self._display.say(f"{leader} leads, {after_ms:.0f} ms after the kill", "bold green")
            self._dead = ""
        self._leader = self._display.leader = leader
        self._changed.set()


# The screen ------------------------------------------------------------------------------------


class _Display:
    """Live counts and rates, and a line for each event."""

    def __init__(self) -> None:
        self._console = terminal()
        self._live: Live | None = None
        self._started = time.monotonic()
        self._lines: deque[Text] = deque(maxlen=_LINES_MAX)
        self._before = (self._started, 0, 0, 0)
        self._rates = (0.0, 0.0, 0.0)
        self.run: Run | None = None
        self.leader = ""

    def say(self, text: str, style: str = "") -> None:
        """Print an event."""
        line = Text(f"{time.monotonic() - self._started:7.2f} s  {printable(text)}", style)
        self._lines.append(line)
        if self._live is None or not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)

    @contextlib.contextmanager
    def live(self) -> Any:
        """Show live counts for as long as the context lasts, if there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=5, get_renderable=self._view) as live:
            self._live = live
            yield
        self._live = None

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("", "messages", "per second"):
            table.add_column(name, justify="left" if not name else "right")
        run = self.run
        if run is not None:
            counts = (run.sent, run.acknowledged, run.received)
            self._measure(counts)
            names = ("sent", "acknowledged", "received")
            for name, count, rate in zip(names, counts, self._rates, strict=True):
                table.add_row(name, f"{count:,}", f"{rate:,.0f}")
            table.add_row("leader", self.leader or "none", "")
            table.add_row("sender's sessions", str(run.sessions), "")
        return Group(*self._lines, Text(), table)

    def _measure(self, counts: tuple[int, int, int]) -> None:
        now = time.monotonic()
        since, *before = self._before
        if now - since >= 1.0:
            sent, acknowledged, received = (
                (count - earlier) / (now - since)
                for count, earlier in zip(counts, before, strict=True)
            )
            self._rates = (sent, acknowledged, received)
            self._before = (now, *counts)


def print_verdict(verdict: Verdict, report: Path) -> None:
    """Print the figures and whether the verdict holds."""
    console = terminal()
    lines = {
        "sent": verdict.sent,
        "acknowledged": verdict.acknowledged,
        "received": verdict.received,
        "remaining": verdict.remaining,
        "lost": verdict.lost.count,
        "duplicated": verdict.duplicated.count,
        "out of order": verdict.out_of_order.count,
        "sessions lost": verdict.reconnects,
        "longest gap": f"{verdict.longest_gap_ms:.0f} ms",
        "acknowledged within": f"{verdict.acknowledgement.p50_ms:.1f} ms (p50),"
        f" {verdict.acknowledgement.p99_ms:.1f} ms (p99)",
        "the p99": explain_p99(verdict),
    }
    console.print()
    for name, value in lines.items():
        console.print(f"{name:>20}  {value}", highlight=False)
    console.print(
        Text(
            "The verdict holds." if verdict.holds else "The verdict does NOT hold.",
            "bold green" if verdict.holds else "bold red",
        )
    )
    console.print(f"Based only on the clients' histories; as JSON: {report}", highlight=False)

"""Starts the nodes, founds their cluster, restarts those that die, and stops them all."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final

import aiohttp

from qm.node.dev import addresses, pids
from qm.node.dev.layout import DevNode, Layout
from qm.node.membership.first_start import init_cluster
from qm.node.membership.join import JoinRefused
from qm.node.process import EXIT_STATUS_CONFIG

RESTART_AFTER_S: Final = 1.0
"""Pause before a node that died is restarted."""
READY_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 30.0
POLL_S: Final = 0.1
PROBE_TIMEOUT_S: Final = 2.0
COMPUTER_NAME: Final = "QUORATE"


class DevFailed(Exception):
    """The cluster does not come up; the text says where to look."""


class Manager:
    """One run of `qm dev up`."""

    program: ClassVar[tuple[str, ...]] = ("-m", "qm")
    """What the interpreter runs as a node's `qm`; benchmarks have their own."""

    def __init__(self, layout: Layout, nodes: list[DevNode], say: Callable[[str], None]) -> None:
        self._layout = layout
        self._nodes = nodes
        self._say = say
        self._stop = asyncio.Event()
        self._failure = ""

    async def run(self) -> None:
        """Run the cluster until SIGINT, SIGTERM or a node that cannot run.

        Raises DevFailed, StillRunning.
        """
        lock = pids.lock(self._layout.manager_pid)
        pids.write(lock, os.getpid())
        if problem := addresses.conflict(node.host for node in self._nodes):
            os.close(lock)
            raise DevFailed(
                f"{problem}. Is another cluster running? `--network` in a fresh `--folder` gives"
                " this one other addresses."
            )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        keepers = [asyncio.create_task(self._keep(node)) for node in self._nodes]
        try:
            await self._until_stopped(self._bring_up())
            await self._stop.wait()
        finally:
            self._stop.set()
            await asyncio.gather(*keepers)
            os.close(lock)
        if self._failure:
            raise DevFailed(self._failure)

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Await work, or the request to stop."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # Nodes

    async def _keep(self, node: DevNode) -> None:
        """Run a node and restart it whenever it ends, until all are to stop."""
        while not self._stop.is_set():
            process = await self._spawn(node)
            ended = asyncio.create_task(process.wait())
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end(process, ended)
                return
            stop.cancel()
            status = ended.result()
            if status in (EXIT_STATUS_CONFIG, 2):
                self._failure = f"{node.name} cannot run, see {self._layout.log(node.name)}"
                self._stop.set()
                return
            self._say(f"{node.name} ended ({status}); it is started again")
            await asyncio.wait((stop,), timeout=RESTART_AFTER_S)

    async def _spawn(self, node: DevNode) -> asyncio.subprocess.Process:
        lock = pids.lock(self._layout.pid(node.name))
        os.set_inheritable(lock, True)
        try:
            with self._layout.log(node.name).open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, *self.program, "node", "run"),
                    *("--config", str(self._layout.config(node.name))),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock,),
                    start_new_session=True,  # Ctrl-C reaches the manager alone
                )
            pids.write(lock, process.pid)
        finally:
            os.close(lock)
        return process

    async def _end(self, process: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
        process.terminate()
        done, _ = await asyncio.wait((ended,), timeout=STOP_WAIT_S)
        if not done:
            process.kill()
            await ended

    # Birth and readiness

    async def _bring_up(self) -> None:
        if not self._layout.born.exists():
            try:
                await init_cluster(
                    self._layout.config(self._nodes[0].name), COMPUTER_NAME, "", self._say
                )
            except JoinRefused as error:
                self._failure = str(error)
                self._stop.set()
                return
            self._layout.born.touch()
        await self._until_ready()

    async def _until_ready(self) -> None:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        end = loop.time() + READY_WAIT_S
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for node in self._nodes:
                while reason := await _not_ready_reason(session, node):
                    if loop.time() > end:
                        self._failure = f"{node.name} is not ready: {reason}"
                        self._stop.set()
                        return
                    await asyncio.sleep(POLL_S)
        for node in self._nodes:
            self._say(f"{node.name}  MSMQ {node.msmq}  API {node.api}  {node.http}")
        console = self._nodes[0].console
        self._say(f"console  {console}  (`qm console` prints an address that signs you in)")
        self._say("ready")


async def _not_ready_reason(session: aiohttp.ClientSession, node: DevNode) -> str:
    try:
        async with session.get(f"{node.http}/readyz") as response:
            return "" if response.status == HTTPStatus.OK else await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)


async def stop(layout: Layout) -> bool:
    """Stop a dev cluster, its manager first; return whether anything ran. Raises DevFailed."""
    paths = [layout.manager_pid, *(layout.pid(node.name) for node in layout.nodes())]
    found = False
    for path in paths:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not pids.send(path, number):
                break
            found = True
            # The manager waits for its nodes.
            await _until_gone(path, 2 * STOP_WAIT_S if path is layout.manager_pid else STOP_WAIT_S)
    left = [path.stem for path in paths if pids.running(path) is not None]
    if left:
        raise DevFailed(f"{', '.join(left)} did not stop")
    return found


async def _until_gone(path: Path, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while pids.running(path) is not None and loop.time() < end:
        await asyncio.sleep(POLL_S)

"""Three nodes as `qm dev up` runs them, seen from outside: processes, CPU, memory, who leads."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from qm.client.calls import Calls, Tls
from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.pb import control_pb2

LEADER_WAIT_S = 60.0
POLL_S = 0.05
COMPUTER = "QUORATE"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Sequence[int]) -> float:
    """Return user and system time of processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def thread_cpu_s(pid: int) -> float:
    """Return what a process's living threads have run, in ns steps."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text("ascii").split()[0]) for one in threads) / 1e9


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


class Nodes:
    """A cluster in its own folder, with mutual TLS, for the duration of the context."""

    def __init__(
        self, folder: Path, network: str, tree: Path | None = None, module: str = "qm"
    ) -> None:
        """`tree`: the checkout whose nodes run; this one by default. `module` has `dev up`."""
        self.layout = Layout(folder)
        self._module = module
        self._network = network
        self._tree = tree

    def __enter__(self) -> "Nodes":
        python = self._tree / ".venv" / "bin" / "python" if self._tree else sys.executable
        self._manager = subprocess.Popen(
            [
                *(str(python), "-m", self._module, "dev", "up"),
                *("--folder", str(self.layout.folder), "--network", self._network),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._tree,
        )
        assert self._manager.stdout is not None
        for line in self._manager.stdout:
            if line.strip() == "ready":
                return self
        raise RuntimeError(f"the cluster does not come up, see {self.layout.folder}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._manager.terminate()
        self._manager.wait()

    @property
    def nodes(self) -> list[DevNode]:
        return self.layout.nodes()

    def pid(self, node: DevNode) -> int:
        found = pids.running(self.layout.pid(node.name))
        assert found is not None, f"{node.name} does not run"
        return found

    def cpu_s(self) -> float:
        """CPU time of all nodes."""
        return cpu_s([self.pid(node) for node in self.nodes])

    def leader(self) -> DevNode:
        """Wait until one of the nodes leads."""
        for _ in _until(LEADER_WAIT_S):
            for node in self.nodes:
                with contextlib.suppress(urllib.error.URLError, TimeoutError):
                    urllib.request.urlopen(f"{node.http}/leader", timeout=2).close()
                    return node
        raise RuntimeError("nobody leads")

    def follower(self) -> DevNode:
        """Return a node that does not lead."""
        leader = self.leader()
        return next(node for node in self.nodes if node != leader)

    def create_queues(self, names: Sequence[str], *, is_transactional: bool = False) -> list[str]:
        """Create private queues; return their format names."""
        asyncio.run(self._create(names, is_transactional))
        return [f"DIRECT=OS:{COMPUTER}\\private$\\{name}" for name in names]

    async def _create(self, names: Sequence[str], is_transactional: bool) -> None:
        wire = Calls([node.api for node in self.nodes], self.tls)
        try:
            for name in names:
                request = control_pb2.CreateQueueRequest(
                    path_name=f".\\private$\\{name}",
                    attributes={"transactional": control_pb2.Value(flag=is_transactional)},
                )
                await wire.call(lambda stubs: stubs.queues.CreateQueue, request)
        finally:
            await wire.close()

    def purge(self, format_names: Sequence[str]) -> None:
        """Empty queues."""
        asyncio.run(self._purge(format_names))

    async def _purge(self, format_names: Sequence[str]) -> None:
        wire = Calls([node.api for node in self.nodes], self.tls)
        try:
            for name in format_names:
                request = control_pb2.PurgeQueueRequest(queue=control_pb2.QueueName(name=name))
                await wire.call(lambda stubs: stubs.queues.PurgeQueue, request)
        finally:
            await wire.close()

    @property
    def tls(self) -> Tls:
        """TLS files of an administrator."""
        pki = self.layout.pki
        return Tls(pki / "authority.pem", pki / "admin.pem", pki / "admin.key")


def _until(seconds: float) -> Iterator[None]:
    """Yield again and again until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(POLL_S)

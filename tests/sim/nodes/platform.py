"""What a simulated machine gives its node: `qm.node.platform.Platform`."""

import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from qm.node.platform import Platform
from raft.log_view import SyncToken
from raft.sync_thread import SyncDone
from tests.sim.nodes.disk import Disk, SimDirectory
from tests.sim.nodes.loop import SimLoop
from tests.sim.nodes.network import SimSocket
from tests.sim.nodes.world import ProcessDied

SYNC_US: Final = (20, 900)
"""How long a sync of the log takes to begin, and again to report."""


class SimSyncWorker:
    """Implements `raft.sync_thread.SyncWorker`: one job of the loop after the other."""

    def __init__(self, loop: SimLoop, done: SyncDone) -> None:
        self._loop = loop
        self._done = done
        self._waiting: deque[SyncToken] = deque()
        self._is_busy = False

    def submit(self, sync: SyncToken) -> None:
        """See SyncWorker.submit."""
        self._waiting.append(sync)
        self._next()

    def stop(self) -> None:
        """See SyncWorker.stop: what waits runs here."""
        while self._waiting:
            self._waiting.popleft().run()

    def _next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        sync = self._waiting.popleft()

        def over(_: object, error: BaseException | None) -> None:
            self._is_busy = False
            self._done(sync, error)
            self._next()

        self._loop.work(sync.run, over, SYNC_US)


class SimWorkers:
    """Implements `qm.node.replica.snapshot_source.Workers`."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        """See Workers.begin: a wait without bound does the job here, if it has not begun."""
        is_over = False

        def run() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                job()

        def wait(timeout_s: float | None) -> bool:
            if timeout_s is None:
                run()
            return is_over

        self._loop.work(run, lambda result, error: None)
        return wait

    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        """See Workers.later."""
        return self._loop.call_later(after_s, job).cancel


def sim_platform(loop: SimLoop, disk: Disk) -> Platform:
    """Return what one life of a machine has."""
    life = disk.life

    def directory(path: Path) -> SimDirectory:
        if disk.life != life:
            raise ProcessDied("a dead process touched its disk")
        return SimDirectory(disk, path)

    def bind(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
        return cast("socket.socket", SimSocket(address, port))

    return Platform(directory, lambda done: SimSyncWorker(loop, done), SimWorkers(loop), bind)

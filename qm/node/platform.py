"""What a node takes from the machine that it runs on; a simulator gives it others."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
from typing_extensions import override

from qm.edge.tcp.listeners import bind
from raft.log.disk import DiskDirectory
from raft.log.files import DirectoryTree
from raft.sync_thread import SyncDone, SyncThread, SyncWorker


class Workers(Protocol):
    """Runs jobs beside the loop; a simulator has others."""

    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        """Run a job; what is returned waits so many seconds (None: without bound) for its end, and
        says whether it is over.
        """

    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        """Run a job after a time; what is returned calls it off."""


class Threads(Workers):
    """A thread for each job."""

    @override
    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        done = threading.Event()

        def run() -> None:
            try:
                job()
            finally:
                done.set()

        threading.Thread(target=run, name="picture", daemon=True).start()
        return done.wait

    @override
    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        timer = threading.Timer(after_s, job)
        timer.daemon = True
        timer.start()
        return timer.cancel


class Platform(msgspec.Struct, frozen=True):
    """Each field makes one thing."""

    directory: Callable[[Path], DirectoryTree] = DiskDirectory
    """Opens a folder, made if absent."""
    sync_worker: Callable[[SyncDone], SyncWorker] = SyncThread
    """Waits for the log's disk."""
    workers: Workers = Threads()
    """Lists pictures of the state."""
    bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind
    """Takes an address for MSMQ peers."""


MACHINE = Platform()
"""The one that this process runs on."""

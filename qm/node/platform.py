"""What a node uses of its machine; a simulator substitutes its own."""

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
from raft.transport.direct_transport import DirectTransport
from raft.transport.grpc_transport import GrpcTransport


class Workers(Protocol):
    """Runs jobs beside the event loop."""

    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        """Run a job; the returned function waits at most so many seconds (None: without limit) for
        it to end, and returns whether it has.
        """

    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        """Run a job after a delay; the returned function cancels it."""


class Threads(Workers):
    """Runs each job in a thread of its own."""

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
    """Functions that a node calls for each part of its machine."""

    directory: Callable[[Path], DirectoryTree] = DiskDirectory
    """Opens a folder, creating it if absent."""
    sync_worker: Callable[[SyncDone], SyncWorker] = SyncThread
    """Waits for the log's disk."""
    workers: Workers = Threads()
    """Lists the files of snapshots of the state."""
    bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind
    """Binds an address for MSMQ peers."""
    transport: Callable[..., GrpcTransport] = DirectTransport
    """Connects to other nodes for consensus; has the parameters of DirectTransport."""


MACHINE = Platform()
"""The machine that this process runs on."""

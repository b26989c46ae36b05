"""A thread that waits for the disk, so that the event loop need not.

`os.fdatasync` releases the interpreter lock; the thread needs it back for a moment before and
after. When the loop is busy, CPython grants it after the switch interval: 5 ms by default, ten
times what the disk takes. `raft.process.prepare` lowers it.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeAlias

from typing_extensions import override

from raft.log_view import SyncToken

SYNC_THREAD_JOIN_S = 30.0
"""How long `stop` waits for a sync that still runs."""


SyncDone: TypeAlias = Callable[[SyncToken, BaseException | None], None]
"""Called in the loop with each sync that ran and what it raised."""


class SyncWorker(Protocol):
    """Runs syncs beside the loop, one after the other; a simulator has its own."""

    def submit(self, sync: SyncToken) -> None:
        """Run it soon."""

    def stop(self) -> None:
        """Return when everything submitted has run."""


class SyncThread(SyncWorker):
    """Runs one sync after the other; reports each in the loop."""

    def __init__(self, done: SyncDone) -> None:
        """`done(sync, error)` is called in the loop that creates this."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[SyncToken | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="raft sync", daemon=True)
        self._thread.start()

    @override
    def submit(self, sync: SyncToken) -> None:
        self._waiting.put(sync)

    @override
    def stop(self) -> None:
        """End the thread when everything submitted has run; blocks until then."""
        self._waiting.put(None)
        self._thread.join(SYNC_THREAD_JOIN_S)

    def _run(self) -> None:
        while (sync := self._waiting.get()) is not None:
            error: BaseException | None = None
            try:
                sync.run()
            except BaseException as raised:  # the loop must learn of it and end the process
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._done, sync, error)
            except RuntimeError:  # the loop was closed without stopping this thread
                return

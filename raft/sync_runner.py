"""Syncs run beside the event loop: by the kernel where it can, else in a thread.

The kernel takes an fdatasync like a read or write (asynchronous I/O) and tells the end through
an event descriptor. A thread needs the interpreter lock before and after: two more wakings, and
CPython grants the lock only after the switch interval when the loop is busy (5 ms by default, ten
times what the disk takes; `raft.process.prepare` lowers it). A sixth of the processor time of a
batch of 64 KiB goes away with the thread (`raft/design.md`, Where the time goes).
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from raft.log_view import SyncToken

try:
    from caio.linux_aio import Context, Operation
except ImportError as error:  # it tries a context, which a sandbox may forbid
    _unavailable: str | None = str(error)
else:
    _unavailable = None

logger = logging.getLogger(__name__)

STOP_WAIT_S = 30
"""How long stopping waits for a disk that is still at it."""
KERNEL_SYNCS_MAX = 16
"""Under way at once; further ones go to the thread. A replica has one."""

Done: TypeAlias = Callable[[SyncToken, BaseException | None], None]


class SyncRunner:
    """Runs syncs and reports each in the loop that creates this."""

    def __init__(self, done: Done) -> None:
        """`done(sync, error)` is called once for each, never from within `submit`."""
        self._thread = _SyncThread(done)
        self._kernel: _KernelSyncs | None = None
        reason = _unavailable
        if reason is None:
            try:
                self._kernel = _KernelSyncs(done)
            except SystemError as error:
                reason = str(error)
        if reason is not None:
            logger.warning(
                "syncs run in a thread, which costs some throughput: the kernel refuses "
                "asynchronous I/O (%s); allow io_setup, or raise fs.aio-max-nr",
                reason,
            )

    @property
    def uses_kernel(self) -> bool:
        """Whether the kernel runs what it can."""
        return self._kernel is not None

    def submit(self, sync: SyncToken) -> None:
        """Run it soon."""
        descriptor = sync.descriptor
        if descriptor is None or self._kernel is None or not self._kernel.take(sync, descriptor):
            self._thread.submit(sync)

    async def stop(self) -> None:
        """Return when everything submitted has run, or after STOP_WAIT_S."""
        if self._kernel is not None:
            await self._kernel.stop()
        await asyncio.to_thread(self._thread.stop)


class _KernelSyncs:
    """Syncs of one file each, run by the kernel's workers."""

    def __init__(self, done: Done) -> None:
        """Raises SystemError when the kernel gives no context."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._context = Context(KERNEL_SYNCS_MAX)
        self._under_way = 0
        self._ended: list[tuple[SyncToken, int]] = []
        self._loop.add_reader(self._context.fileno, self._on_event)

    def take(self, sync: SyncToken, descriptor: int) -> bool:
        """Have the kernel run it; False if it does not take it."""
        operation = Operation.fdsync(descriptor)
        operation.set_callback(partial(self._note, sync))
        try:
            is_taken = self._context.submit(operation) == 1
        except (OverflowError, ValueError, SystemError):  # no resources, or not for this file
            return False
        self._under_way += is_taken
        return is_taken

    def _note(self, sync: SyncToken, result: int) -> None:
        # The library swallows what this raises, and shows a negative result as unsigned.
        self._ended.append((sync, (1 << 64) - result if result else 0))

    def _on_event(self) -> None:
        with suppress(BlockingIOError):
            self._context.poll()
        self._context.process_events()
        ended, self._ended = self._ended, []
        for sync, errno in ended:
            self._under_way -= 1
            error: OSError | None = None
            try:
                sync.ran(errno)
            except OSError as raised:
                error = raised
            self._done(sync, error)

    async def stop(self) -> None:
        """Wait for what is under way, which is reported to nobody any more."""
        self._loop.remove_reader(self._context.fileno)
        count = self._under_way
        if count:
            wait = partial(self._context.process_events, count, count, STOP_WAIT_S)
            await asyncio.to_thread(wait)


class _SyncThread:
    """Runs one sync after the other."""

    def __init__(self, done: Done) -> None:
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[SyncToken | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="raft sync", daemon=True)
        self._thread.start()

    def submit(self, sync: SyncToken) -> None:
        self._waiting.put(sync)

    def stop(self) -> None:
        """End when everything submitted has run; blocks for it."""
        self._waiting.put(None)
        self._thread.join(STOP_WAIT_S)

    def _run(self) -> None:
        while (sync := self._waiting.get()) is not None:
            error: BaseException | None = None
            try:
                sync.run()
            except BaseException as raised:  # it must reach the loop, which ends the process
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._done, sync, error)
            except RuntimeError:  # the loop was closed without stopping this
                return

"""Threads for calls that wait: the objects are written for programs that block.

A call runs in a thread, and what it asks of the cluster in the event loop. A call that is given up
ends what it waits for.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from typing_extensions import override

from qm.client.blocking import Runner
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import CALLS_WAITING_MAX
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import FaultStatus

_T = TypeVar("_T")


class WouldWait(Exception):
    """What was tried in the event loop needs the cluster: it is to be done in a thread."""


class Work:
    """One call, in whatever thread; it may be given up from the event loop."""

    __slots__ = ("_future", "_lock", "is_given_up")

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._lock = threading.Lock()
        self.is_given_up = False

    def give_up(self) -> None:
        """End what it waits for, now and from now on."""
        with self._lock:
            self.is_given_up = True
            future = self._future
        if future is not None:
            future.cancel()

    def waits_for(self, future: "Future[Any] | None") -> None:
        """Note what it waits for."""
        with self._lock:
            self._future = future
            is_given_up = self.is_given_up
        if is_given_up and future is not None:
            future.cancel()


class _Local(threading.local):
    work: Work | None = None


_LOCAL: Final = _Local()


class LoopRunner(Runner):
    """Runs coroutines of the objects' clients in the event loop that it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @override
    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        if threading.get_ident() == self._thread:
            work.close()
            raise WouldWait
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        current = _LOCAL.work
        if current is not None:
            current.waits_for(future)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            if current is not None:
                current.waits_for(None)

    @override
    def soon(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)

    @override
    def close(self) -> None:
        """The loop goes on."""


class Threads:
    """The threads of a node's objects."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(CALLS_WAITING_MAX, thread_name_prefix="qm-object")
        self._running: set[Work] = set()
        self._is_stopped = False

    @property
    def count(self) -> int:
        """Calls that wait now."""
        return len(self._running)

    async def run(self, work: Work, function: Callable[[], _T]) -> _T:
        """Return what a function returns, in a thread. Raises what it raises, and Fault."""
        if self._is_stopped or len(self._running) >= CALLS_WAITING_MAX:
            raise Fault(FaultStatus.SERVER_TOO_BUSY, f"{len(self._running)} calls wait")
        self._running.add(work)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, _run, work, function
            )
        finally:
            self._running.discard(work)

    def stop(self) -> None:
        """Give up all calls; their threads end."""
        self._is_stopped = True
        for work in list(self._running):
            work.give_up()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _run(work: Work, function: Callable[[], _T]) -> _T:
    _LOCAL.work = work
    try:
        return function()
    except CancelledError:
        raise ComError(Hresult.RPC_E_CALL_CANCELED) from None
    finally:
        _LOCAL.work = None

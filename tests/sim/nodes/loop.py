"""One simulated process' event loop: what asyncio's does, when the world says so."""

import asyncio
import heapq
import logging
import socket
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.sim.nodes.network import Network, SimSocket, StreamServer
from tests.sim.nodes.world import NS, ProcessDied, World

logger = logging.getLogger(__name__)

TURN_US: Final = (10, 60)
"""What a round of the loop costs; without it a busy process would stop the clock."""
JOB_US: Final = (50, 4_000)
"""How long a thread takes to begin, and again to report."""
PING_PORT_OWN: Final = ("0.0.0.0", 0)


class SimLoop(asyncio.BaseEventLoop):
    """A process is what runs in one of these; its death is that it is turned no more."""

    is_dead = False
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]

    def __init__(self, world: World, network: Network, name: str, host: str, role: str) -> None:
        """`role`: what the process' certificate says."""
        super().__init__()
        self.world = world
        self.network = network
        self.name = name
        self.host = host
        self.role = role
        self.condemned = ""
        """Why it dies after the present instruction."""
        self.busy_until_ns = 0
        """A pause sets it later."""
        self.offset_ns = 0
        """Of the wall clock: what it was stepped by."""
        self.slow = 1
        """By how much threads (disks) are slower than usual."""
        self.errors: list[str] = []
        """What reached the loop's exception handler."""
        self.tasks_left: list[asyncio.Task[Any]] = []
        self._pace = world.chance(f"pace of {name}")
        self._jobs = world.chance(f"threads of {name}")
        self._graveyard: tuple[object, ...] = ()
        world.loops.append(self)
        self.set_debug(False)

    def __del__(self) -> None:
        """Say nothing of a loop that was not closed: the dead close nothing."""

    # Turns -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.world.time_ns / NS

    def due_ns(self) -> int | None:
        """Return when there is something to do, None: never."""
        if self._ready:
            return max(self.world.time_ns, self.busy_until_ns)
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not scheduled:
            return None
        return max(int(scheduled[0]._when * 1e9), self.world.time_ns, self.busy_until_ns)

    def turn(self) -> None:
        """Run what is due, as one round of asyncio's loop does."""
        world, scheduled = self.world, self._scheduled
        end = self.time() + 1e-9
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= end):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)
        world.mark("turn", self.name, len(self._ready))
        before, world.current = world.current, self
        events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if self.is_dead or self.condemned:
                    break
        except ProcessDied as death:
            self.condemned = self.condemned or str(death)
        finally:
            events._set_running_loop(None)
            world.current = before
        if self.condemned and not self.is_dead:
            world.on_died(self, self.condemned)
        self.busy_until_ns = max(
            self.busy_until_ns, world.time_ns + self._pace.randrange(*TURN_US) * 1000
        )

    def die(self) -> None:
        """End the process here. Its tasks are kept: those of the dead run no `finally`."""
        self.is_dead = True
        self.world.loops.remove(self)
        left = [task for task in list(tasks._all_tasks) if task._loop is self]  # type: ignore[attr-defined]
        self._graveyard = (left, list(self._ready), list(self._scheduled))
        self.network.process_died(self)

    def lose_power(self) -> None:
        """As `die`, but nobody hears of it until the machine is back."""
        self.network.power_off(self.host)
        self.die()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.is_dead:
            return asyncio.Handle(callback, args, self, context)
        return self.call_soon(callback, *args, context=context)

    def is_running(self) -> bool:
        return not self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ProcessDied):
            return
        text = f"{context.get('message')}: {error!r}"
        self.errors.append(text)
        self.world.say("loop-error", self.name, text)
        logger.error("%s: %s", self.name, text, exc_info=error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _check_thread(self) -> None:
        pass

    def _check_callback(self, callback: object, method: str) -> None:
        pass

    # Threads -----------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Run it whole at a drawn moment; its end is known at a later one."""
        future: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.work(lambda: func(*args), settle)
        return future

    def work(
        self,
        job: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        span_us: tuple[int, int] = JOB_US,
    ) -> None:
        """Have a thread do a job; `done(result, error)` is called in the loop."""
        low, high = (bound * self.slow for bound in span_us)
        world, chance = self.world, self._jobs

        def report(result: Any, error: BaseException | None) -> None:
            if not self.is_dead:
                self.call_soon(done, result, error)

        def run() -> None:
            if self.is_dead:
                return
            world.mark("job", self.name)
            before, world.current = world.current, self
            result: Any = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as raised:
                error = raised
                if isinstance(raised, ProcessDied):
                    self.condemned = self.condemned or str(raised)
            finally:
                world.current = before
            if self.condemned:
                world.on_died(self, self.condemned)
                return
            when_ns = world.time_ns + chance.randrange(low, high) * 1000
            world.at(when_ns, lambda: report(result, error))

        world.at(world.time_ns + chance.randrange(low, high) * 1000, run)

    # Sockets -----------------------------------------------------------------------------------

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int | str | None, **options: Any
    ) -> list[Any]:
        await asyncio.sleep(0)
        return [(socket.AF_INET, options.get("type", 0), 6, "", (host, int(port or 0)))]

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **_: Any
    ) -> StreamServer:
        address = sock.getsockname() if isinstance(sock, SimSocket) else (host, port)
        return self.network.listen(self, address, factory)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(self, factory, (host, port))

    async def create_datagram_endpoint(self, factory: Any, **options: Any) -> Any:  # type: ignore[override]
        sock = options.get("sock")
        own = sock.getsockname() if isinstance(sock, SimSocket) else (self.host, 0)
        return self.network.datagrams(self, factory(), own)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await self.network.probe(self, (address[0], address[1]))

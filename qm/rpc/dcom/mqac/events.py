"""MSMQEvent over DCOM: its sinks are objects of its client, which this node calls.

A sink is looked for at the address that its client calls from, never where its reference says:
nobody can have this node knock on other doors.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import MSMQEvent, MSMQQueue
from qm.client.mqac.constants import (
    CONNECT_E_ADVISELIMIT,
    CONNECT_E_CANNOTCONNECT,
    CONNECT_E_NOCONNECTION,
    E_NOTIMPL,
    E_POINTER,
)
from qm.client.mqac.event import CONNECTIONS_MAX
from qm.observe.metrics import Metrics
from qm.rpc.client import NoAnswer, RpcFailed
from qm.rpc.dcom.automation.dispatch import (
    DISPATCH_OPERATIONS,
    IDISPATCH,
    InvokeFlag,
    arguments_of,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import PING_PERIOD_S, SINK_BUSY_MAX_S, SINKS_PER_CALLER_MAX
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.members import Done, executed
from qm.rpc.dcom.mqac.threads import LoopRunner, Threads, Work
from qm.rpc.dcom.mqac.values import signed
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, NULL
from qm.rpc.dcom.runtime.objref import NO_PING, Bindings, Objref
from qm.rpc.dcom.runtime.orpc import orpc_interface
from qm.rpc.interface import Fault, Interface
from qm.rpc.ndr.types import Varying

logger: Final = logging.getLogger(__name__)

EVENTS: Final = "_DMSMQEventEvents"
ARRIVED, ARRIVED_ERROR = 0, 1
"""DISPIDs of its members (AC-A38)."""
CONNECT_S: Final = 5.0
"""How long a client's computer may take to say where its sink is, and to be connected."""
CONNECTION_IDLE_MAX_S: Final = 30.0
"""Firewalls forget connections that stand still, and let what is sent on them vanish: a sink that
was not called for this time is called over a new one."""
RETRIES_PER_PERIOD: Final = 4
"""Pings of a sink that was not reached."""
TRIES: Final = 4
"""Calls of a sink that fails, each after twice the pause."""
PAUSE_FIRST_S: Final = 0.5
_LCID: Final = 0x0409
_U32_MODULUS: Final = 1 << 32


class SinkPlace(msgspec.Struct, frozen=True):
    """Whose sinks an event has, and how this node is reached from there."""

    owner: Owner
    resolver: Bindings


class Sink:
    """A client's sink, reached."""

    def __init__(self, server: Server, given: Objref, ref: Objref, address: str) -> None:
        """`given`: what the client named it by. `ref`: the interface that is called."""
        self.server = server
        self.given = given
        self.ref = ref
        self.address = address
        self.pinging: asyncio.Task[None] | None = None
        """Keeps it alive, unless its reference says that it needs no pings (RP-A66)."""
        self.heard_at = 0.0
        """When it answered last, or was reached."""
        self.busy_count = 0
        """Calls of it that have no answer yet."""

    @property
    def interface(self) -> Interface:
        """By which it is invoked: its own, or IDispatch."""
        return IDISPATCH if self.ref.iid == IID_IDISPATCH else events_interface()


def events_interface() -> Interface:
    """Return the interface of sinks."""
    found = _INTERFACES.get(EVENTS)
    if found is None:
        iid = definitions().named(EVENTS).guid
        found = _INTERFACES[EVENTS] = orpc_interface(EVENTS, iid, DISPATCH_OPERATIONS)
    return found


_INTERFACES: Final[dict[str, Interface]] = {}


class ConnectionPoints:
    """IEnumConnectionPoints over the one that an event has."""

    def __init__(self, points: tuple[Any, ...], at: int = 0) -> None:
        self._points = points
        self._at = at

    def Next(self, cConnections: int) -> tuple[Varying[Any], int]:
        """Return the next ones, in room for as many as were asked for, and how many."""
        found = list(self._points[self._at : self._at + cConnections])
        self._at += len(found)
        return Varying(cConnections, found), len(found)

    def Skip(self, cConnections: int) -> bool:
        """Leave some out; whether there were so many."""
        left = len(self._points) - self._at
        self._at += min(cConnections, left)
        return cConnections <= left

    def Reset(self) -> None:
        """Begin again."""
        self._at = 0

    def Clone(self) -> "ConnectionPoints":
        """Return another one at the same place."""
        return ConnectionPoints(self._points, self._at)


class DcomEvent(MSMQEvent):
    """MSMQEvent with sinks on another computer."""

    def __init__(self, sinks: "Sinks", place: SinkPlace) -> None:
        super().__init__()
        self._remote = sinks
        self.place: Final = place
        self.connected: dict[int, Sink] = {}
        self._next = itertools.count(1)

    @override
    def EnumConnectionPoints(self) -> Any:
        return ConnectionPoints((self,))

    @override
    def FindConnectionPoint(self, riid: Any) -> MSMQEvent:
        if riid != definitions().named(EVENTS).guid:
            raise MqError(CONNECT_E_NOCONNECTION)
        return self

    @override
    def GetConnectionInterface(self) -> Any:
        return definitions().named(EVENTS).guid

    @override
    def Advise(self, pUnkSink: Any) -> int:
        if pUnkSink is None:
            raise MqError(E_POINTER)
        if len(self.connected) >= CONNECTIONS_MAX:
            raise MqError(CONNECT_E_ADVISELIMIT)
        sink = self._remote.reach(pUnkSink, self.place.owner)
        cookie = next(self._next)
        self.connected[cookie] = sink
        return cookie

    @override
    def Unadvise(self, dwCookie: int) -> None:
        sink = self.connected.pop(dwCookie, None)
        if sink is None:
            raise MqError(CONNECT_E_NOCONNECTION)
        self._remote.leave(sink)

    @override
    def EnumConnections(self) -> NoReturn:
        raise MqError(E_NOTIMPL)

    @override
    def FireArrivedEvent(self, pq: MSMQQueue, msgcursor: int) -> None:
        self._remote.fire(self, pq, msgcursor)

    @override
    def FireArrivedErrorEvent(self, pq: MSMQQueue, hrStatus: int, msgcursor: int) -> None:
        self._remote.fire(self, pq, msgcursor, hrStatus)

    @override
    def watch(self, queue: MSMQQueue, cursor: int, look: Callable[[], object]) -> None:
        self._remote.watch(self, queue, cursor, look)

    def drop(self) -> Iterator[Sink]:
        """Return its sinks, which it has no more."""
        sinks, self.connected = self.connected, {}
        return iter(sinks.values())


Refer = Callable[[Any, SinkPlace], bytes]
"""Return an IDispatch pointer of an object for a client. Raises ComError."""
Waits = Callable[[Any, Work], Callable[[], None]]
"""Note that a work waits in an object; call the result when it has ended."""


class Sinks:
    """Calls clients' sinks. Use it in the event loop, but for `reach`, `fire` and `watch`."""

    def __init__(
        self,
        threads: Threads,
        runner: LoopRunner,
        logon: Logon,
        resolver_port: int,
        refer: Refer,
        waits: Waits,
        metrics: Metrics,
        ping_period_s: float = PING_PERIOD_S,
    ) -> None:
        """`resolver_port`: of clients."""
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._runner = runner
        self._logon = logon
        self._port = resolver_port
        self._refer = refer
        self._waits = waits
        self._ping_period_s = ping_period_s
        self._events = metrics.counter("quorate_dcom_events_total")
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: Counter[Owner] = Counter()
        self._telling: Counter[Owner] = Counter()

    # Connections ---------------------------------------------------------------------------

    def reach(self, ref: Any, owner: Owner) -> Sink:
        """Return a sink that answers. Raises MqError CONNECT_E_CANNOTCONNECT."""
        if not isinstance(ref, Objref):
            raise MqError(CONNECT_E_CANNOTCONNECT, "the sink is no object of the caller's")
        return self._runner.call(self._reach(ref, owner.address))

    async def _reach(self, ref: Objref, address: str) -> Sink:
        server = Server(address, self._port, self._logon, only_host=address)
        wanted = (definitions().named(EVENTS).guid, IID_IDISPATCH)
        try:
            async with asyncio.timeout(CONNECT_S):
                await server.resolve(ref.oxid)
                for one in await server.query(ref.ipid, *wanted):
                    if isinstance(one, Objref):
                        return self._held(Sink(server, ref, one, address))
        except (RpcFailed, Fault, TimeoutError) as error:
            server.close()
            self._events.labels("unreachable").inc()
            text = f"the sink at {address} does not answer: {error or 'no answer in time'}"
            raise MqError(CONNECT_E_CANNOTCONNECT, text) from error
        server.close()
        raise MqError(CONNECT_E_CANNOTCONNECT, "the sink has neither the events nor IDispatch")

    def _held(self, sink: Sink) -> Sink:
        sink.heard_at = self._loop.time()
        if not sink.given.flags & NO_PING:
            sink.pinging = self._begin(self._keep(sink))
        return sink

    async def _keep(self, sink: Sink) -> None:
        """Ping a sink's object: its computer would let go of it after three periods without."""
        while True:
            pause = self._ping_period_s
            try:
                await sink.server.ping(sink.given.oid)
            except (RpcFailed, Fault, ComError) as error:
                self._events.labels("unpinged").inc()
                logger.debug("the sink at %s was not pinged: %s", sink.address, error)
                pause /= RETRIES_PER_PERIOD
            await asyncio.sleep(pause)

    def leave(self, sink: Sink) -> None:
        """Give a sink up."""
        self._loop.call_soon_threadsafe(self._begin, self._leave(sink))

    async def _leave(self, sink: Sink) -> None:
        if sink.pinging is not None:
            sink.pinging.cancel()
        try:
            async with asyncio.timeout(CONNECT_S):
                await sink.server.release(sink.ref, sink.given)
                await sink.server.unping(sink.given.oid)
        except (RpcFailed, Fault, TimeoutError):
            pass  # its client notices that it is not pinged
        finally:
            sink.server.close()

    # Notifications -------------------------------------------------------------------------

    def watch(
        self, event: DcomEvent, queue: MSMQQueue, cursor: int, look: Callable[[], object]
    ) -> None:
        """Tell an event's sinks, once, when `look` returns or raises MqError."""
        begin = partial(self._watch, event, queue, cursor, look)
        self._loop.call_soon_threadsafe(lambda: self._begin(begin()))

    async def _watch(
        self, event: DcomEvent, queue: MSMQQueue, cursor: int, look: Callable[[], object]
    ) -> None:
        owner = event.place.owner
        if self._watching[owner] >= SINKS_PER_CALLER_MAX:
            await self._tell(event, queue, cursor, Hresult.E_OUTOFMEMORY)
            return
        self._watching[owner] += 1
        work = Work()
        ended = self._waits(queue, work)
        try:
            done = await self._threads.run(work, partial(executed, look))
        except Fault:
            done = Done(Hresult.E_OUTOFMEMORY)
        finally:
            ended()
            self._watching[owner] -= 1
            if not self._watching[owner]:
                del self._watching[owner]
        if not work.is_given_up:
            await self._tell(event, queue, cursor, done.status or None)

    def fire(self, event: DcomEvent, queue: Any, cursor: int, status: int | None = None) -> None:
        """Tell an event's sinks now."""
        begin = partial(self._tell, event, queue, cursor, status)
        self._loop.call_soon_threadsafe(lambda: self._begin(begin()))

    async def _tell(self, event: DcomEvent, queue: Any, cursor: int, status: int | None) -> None:
        """Call every sink: ArrivedError with a status, or Arrived if there is none. All at once:
        a program that is busy delays no other one.
        """
        owner = event.place.owner
        if self._telling[owner] >= SINKS_PER_CALLER_MAX:
            self._given_up(owner, "too many of its events are being told")
            return
        self._telling[owner] += 1
        try:
            sinks = list(event.connected.values())
            calls = (self._invoke(event, sink, queue, cursor, status) for sink in sinks)
            await asyncio.gather(*calls)
        finally:
            self._telling[owner] -= 1
            if not self._telling[owner]:
                del self._telling[owner]

    async def _invoke(
        self, event: DcomEvent, sink: Sink, queue: Any, cursor: int, status: int | None
    ) -> None:
        """Call a sink until it takes the call. The answer comes when the program has handled the
        event, and may take its time; called again meanwhile, it would handle one event twice.
        """
        owner = event.place.owner
        pause, reason = PAUSE_FIRST_S, ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 2
            try:
                pointer = None if queue is None else self._refer(queue, event.place)
                numbers = [Variant(VarType.I4, cursor)]
                if status is not None:
                    numbers.insert(0, Variant(VarType.I4, signed(status, _U32_MODULUS)))
                arguments = arguments_of([Variant(VarType.DISPATCH, pointer), *numbers])
                dispid = ARRIVED if status is None else ARRIVED_ERROR
                given = [dispid, NULL, _LCID, InvokeFlag.METHOD, arguments, 0, [], []]
                await self._connected(sink)
                await self._called(sink, given)
            except NoAnswer as error:
                reason = str(error)
                break
            except (RpcFailed, Fault, TimeoutError) as error:
                if isinstance(error, RpcFailed) and not sink.busy_count:
                    sink.server.leave()
                reason = str(error) or "it cannot be connected in time"
                logger.debug("a sink of %s failed: %s", owner.name, reason)
            else:
                self._events.labels("delivered").inc()
                return
        self._given_up(owner, reason)

    async def _connected(self, sink: Sink) -> None:
        """Have a connection to a sink that is not of long ago. Raises as `Server.resolve`, and
        TimeoutError.
        """
        is_old = self._loop.time() - sink.heard_at > CONNECTION_IDLE_MAX_S
        if is_old and not sink.busy_count:
            sink.server.close()
        if not sink.server.is_reached:
            async with asyncio.timeout(CONNECT_S):
                await sink.server.resolve(sink.ref.oxid)

    async def _called(self, sink: Sink, given: Sequence[Any]) -> None:
        sink.busy_count += 1
        try:
            await sink.server.call(sink.ref.ipid, sink.interface, 6, given, SINK_BUSY_MAX_S)
        finally:
            sink.busy_count -= 1
        sink.heard_at = self._loop.time()

    def _given_up(self, owner: Owner, reason: str) -> None:
        self._events.labels("failed").inc()
        logger.info("a sink of %s was given up: %s", owner.name, reason)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("telling or pinging a sink failed", exc_info=task.exception())

    def close(self) -> None:
        """Tell no more."""
        for task in self._tasks:
            task.cancel()

"""DCOM of a node: what stands on its two ports, and what goes on in time."""

import asyncio
import contextlib
import secrets
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.client.mqac import MSMQDestination, MSMQQueue
from qm.client.mqac.manager import UnitOfWork
from qm.client.mqac.transaction import TransactionImpl
from qm.observe.metrics import Metrics
from qm.rpc.dcom.automation.type_interfaces import (
    ITYPECOMP,
    ITYPEINFO,
    ITYPEINFO2,
    ITYPELIB,
    ITYPELIB2,
)
from qm.rpc.dcom.client import RESOLVER_PORT, Logon
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.callers import Callers, Channels
from qm.rpc.dcom.mqac.classes import Coclasses, ObjectClasses
from qm.rpc.dcom.mqac.events import DcomEvent, SinkPlace, Sinks
from qm.rpc.dcom.mqac.exports import Exports
from qm.rpc.dcom.mqac.objects import Objects
from qm.rpc.dcom.mqac.threads import LoopRunner, Threads
from qm.rpc.dcom.mqac.type_objects import TypeComps, TypeInfos, TypeLibs, TypeObjects
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import (
    IACTIVATION,
    ICLASSFACTORY,
    IREMOTESCMACTIVATOR,
    Activation,
    Creator,
)
from qm.rpc.dcom.runtime.exporter import Exporter
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH
from qm.rpc.dcom.runtime.objref import write_objref
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.relayed import OtherNodes
from qm.rpc.dcom.runtime.rem_unknown import REM_UNKNOWN_INTERFACES, RemUnknown
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER, Resolver
from qm.rpc.interface import Interface
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

SWEEP_EVERY_S: Final = 10.0
"""Period at which objects are looked at whose clients are gone."""
_LEVEL: Final = AuthLevel.INTEGRITY
NOBODY: Final = Logon(lambda: None)
"""Calls without logging on."""


class DcomSettings(msgspec.Struct, frozen=True):
    """How a node offers objects."""

    node: int
    """Number of the node, in identifiers; 0 to 65,535."""
    names: tuple[str, ...] = ()
    """Host names that clients dial."""
    sink_logon: Logon = NOBODY
    """How this node logs on at clients to tell their sinks."""
    sink_port: int = RESOLVER_PORT
    """Of clients' resolvers."""
    has_kerberos: bool = False
    """Whether clients may log on by Kerberos."""


class Dcom(Creator):
    """The objects of a node. Create, start and stop it in the node's event loop."""

    def __init__(
        self,
        settings: DcomSettings,
        channels: Channels,
        port: Callable[[], int],
        metrics: Metrics,
        others: OtherNodes,
    ) -> None:
        """`channels`: of the node's API. `port`: of the objects, as bound. `others`: who answers
        for objects that are not here.
        """
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._places = Places(settings.names, port, loop.time, has_kerberos=settings.has_kerberos)
        self._threads = Threads()
        runner = LoopRunner()
        self._callers = Callers(channels, runner)
        self._exporter = Exporter(
            settings.node, ObjectClasses(), self._on_released, secrets.token_bytes
        )
        exports = Exports(self._exporter, self._places)
        types = TypeObjects(exports, self.create)
        self._objects = Objects(exports, types, self._threads)
        self._count = metrics.gauge("quorate_dcom_objects")
        logon = settings.sink_logon
        self._sinks = Sinks(
            self._threads,
            runner,
            logon,
            settings.sink_port,
            self._refer,
            self._objects.waits,
            metrics,
        )
        self._coclasses = Coclasses(self._on_begun, partial(DcomEvent, self._sinks))
        self._sweeping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._is_stopped = False
        activation = Activation(self._exporter, self._places, self, _LEVEL)
        self.resolver: Final = Resolver(self._exporter, self._places, _LEVEL, metrics, others)
        rem_unknown = RemUnknown(self._exporter, self._places)
        self.on_mapper_port: Final[Mapping[Interface, object]] = {
            IOBJECTEXPORTER: self.resolver,
            IREMOTESCMACTIVATOR: activation,
            IACTIVATION: activation,
        }
        """What a node serves on port 135."""
        self.on_port: Final[Mapping[Interface, object]] = {
            ICLASSFACTORY: activation,
            **dict.fromkeys(REM_UNKNOWN_INTERFACES, rem_unknown),
            **dict.fromkeys(object_interfaces().values(), self._objects),
            **dict.fromkeys((ITYPEINFO, ITYPEINFO2), TypeInfos(types)),
            **dict.fromkeys((ITYPELIB, ITYPELIB2), TypeLibs(types)),
            ITYPECOMP: TypeComps(types),
        }
        """What it serves on the port that `port` tells."""

    # Creator -------------------------------------------------------------------------------

    @override
    def has(self, clsid: Guid) -> bool:
        """Whether objects of a class can be made."""
        return self._coclasses.has(clsid)

    @override
    async def create(self, clsid: Guid, call: Call) -> Any:
        """Return a new object for a caller. Raises ComError."""
        if self._is_stopped:
            raise ComError(Hresult.RPC_E_DISCONNECTED, "this node is stopping")
        caller = await self._callers.of(self._places.owner(call), call.identity)
        place = SinkPlace(caller.owner, self._places.resolver(call))
        return self._coclasses.make(clsid, caller.service, place)

    def _refer(self, target: Any, place: SinkPlace) -> bytes:
        """Return a pointer of an object for a sink of its owner. Raises ComError."""
        ref = self._exporter.export(
            target, IID_IDISPATCH, place.owner, place.resolver, self._places.now()
        )
        return write_objref(ref)

    # Ends ----------------------------------------------------------------------------------

    def _on_released(self, target: Any, is_lost: bool) -> None:
        """An object is not held by clients any more: end what it holds."""
        self._objects.give_up(target)
        if isinstance(target, MSMQQueue) and is_lost:
            self._in_background(target.abandon)
        elif isinstance(target, MSMQQueue | MSMQDestination):
            self._in_background(target.Close)
        elif isinstance(target, DcomEvent):
            for sink in target.drop():
                self._sinks.leave(sink)

    def _on_begun(self, transaction: TransactionImpl) -> None:
        """Have a transaction aborted when the last object that could end it is gone."""
        weakref.finalize(transaction, self._abandon, transaction.unit).atexit = False

    def _abandon(self, unit: UnitOfWork) -> None:
        # The last reference may go in any thread.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._in_background, unit.abort)

    def _in_background(self, function: Callable[[], Any]) -> None:
        if self._is_stopped:
            return
        task = asyncio.ensure_future(self._objects.run_in_background(function))
        self._background.add(task)
        task.add_done_callback(partial(_forget, self._background))

    # In time -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for objects whose clients are gone."""
        self._sweeping = self._loop.create_task(self._sweep(), name="dcom objects")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = self._places.now()
            self._exporter.sweep(now)
            self.resolver.sweep()
            self._count.set(len(self._exporter))
            self._callers.sweep(now, self._exporter.owned)

    async def stop(self, within_s: float) -> None:
        """End all calls and sessions; objects are gone with the node."""
        self._is_stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        self._sinks.close()
        self._threads.stop()
        for task in self._background:
            task.cancel()
        await self._callers.close(within_s)


def _forget(tasks: set[asyncio.Task[Any]], task: asyncio.Task[Any]) -> None:
    tasks.discard(task)
    if not task.cancelled():
        task.exception()

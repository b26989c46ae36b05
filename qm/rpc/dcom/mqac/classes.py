"""The coclasses: what objects of each are made of, and which interfaces an object has."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import (
    MSMQApplication,
    MSMQCollection,
    MSMQCoordinatedTransactionDispenser,
    MSMQDestination,
    MSMQEvent,
    MSMQManagement,
    MSMQMessage,
    MSMQOutgoingQueueManagement,
    MSMQQuery,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQQueueInfos,
    MSMQQueueManagement,
    MSMQService,
    MSMQTransaction,
    MSMQTransactionDispenser,
)
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.client.mqac.transaction import TransactionImpl
from qm.rpc.dcom.mqac.definitions import Coclass, definitions
from qm.rpc.dcom.mqac.enumerator import Enumerator
from qm.rpc.dcom.mqac.events import ConnectionPoints, DcomEvent, SinkPlace
from qm.rpc.dcom.mqac.type_objects import TypeObject
from qm.rpc.dcom.runtime.activation import ClassFactory
from qm.rpc.dcom.runtime.exporter import Classes
from qm.rpc.dcom.runtime.identifiers import (
    IID_ICLASSFACTORY,
    IID_IDISPATCH,
    IID_IENUMVARIANT,
    IID_IUNKNOWN,
)
from qm.wire.guid import Guid

_OUTGOING: Final = "IMSMQOutgoingQueueManagement"
_LOCAL: Final = "IMSMQQueueManagement"


Begun = Callable[[TransactionImpl], None]
"""Told of each transaction."""


class TransactionDispenser(MSMQTransactionDispenser):
    """MSMQTransactionDispenser whose transactions end when nobody can end them any more."""

    def __init__(self, service: MSMQService, begun: Begun) -> None:
        super().__init__(service)
        self._begun = begun

    @override
    def BeginTransaction(self) -> MSMQTransaction:  # named by the document
        made = super().BeginTransaction()
        self._begun(made.attached())
        return made


Make = Callable[[MSMQService], Any]
MakeEvent = Callable[[SinkPlace], DcomEvent]
_MAKERS: Final[Mapping[str, Make]] = {
    "MSMQApplication": MSMQApplication,
    "MSMQCollection": lambda _: MSMQCollection(),
    "MSMQCoordinatedTransactionDispenser": MSMQCoordinatedTransactionDispenser,
    "MSMQDestination": MSMQDestination,
    "MSMQManagement": MSMQManagement,
    "MSMQMessage": MSMQMessage,
    "MSMQOutgoingQueueManagement": lambda service: MSMQOutgoingQueueManagement(
        MSMQManagement(service)
    ),
    "MSMQQuery": MSMQQuery,
    "MSMQQueue": MSMQQueue,
    "MSMQQueueInfo": MSMQQueueInfo,
    "MSMQQueueInfos": MSMQQueueInfos,
    "MSMQQueueManagement": lambda service: MSMQQueueManagement(MSMQManagement(service)),
    "MSMQTransaction": lambda _: MSMQTransaction(),
}
_NAMES: Final[Mapping[type, str]] = {
    MSMQApplication: "MSMQApplication",
    MSMQCollection: "MSMQCollection",
    MSMQCoordinatedTransactionDispenser: "MSMQCoordinatedTransactionDispenser",
    MSMQDestination: "MSMQDestination",
    MSMQEvent: "MSMQEvent",
    MSMQMessage: "MSMQMessage",
    MSMQOutgoingQueueManagement: "MSMQOutgoingQueueManagement",
    MSMQQuery: "MSMQQuery",
    MSMQQueue: "MSMQQueue",
    MSMQQueueInfos: "MSMQQueueInfos",
    MSMQQueueManagement: "MSMQQueueManagement",
    MSMQTransaction: "MSMQTransaction",
    MSMQTransactionDispenser: "MSMQTransactionDispenser",
    MSMQManagement: "MSMQManagement",
    QueueAttributes: "MSMQQueueInfo",
}


class Coclasses:
    """Makes objects by CLSID."""

    def __init__(self, begun: Begun, make_event: MakeEvent) -> None:
        """`begun`: told of each transaction that an application begins."""
        self._make_event = make_event
        makers: dict[str, Make] = {
            **_MAKERS,
            "MSMQTransactionDispenser": lambda service: TransactionDispenser(service, begun),
        }
        by_name = {one.name: one for one in definitions().coclasses}
        self._event = by_name["MSMQEvent"].guid
        self._makers = {by_name[name].guid: make for name, make in makers.items()}

    def has(self, clsid: Guid) -> bool:
        """Whether applications may make objects of a class."""
        return clsid in self._makers or clsid == self._event

    def make(self, clsid: Guid, service: MSMQService, place: SinkPlace) -> Any:
        """Return a new object; `place`: of its sinks, if it is an event."""
        if clsid == self._event:
            return self._make_event(place)
        return self._makers[clsid](service)


def coclass_of(made: type[Any]) -> Coclass | None:
    """Return the coclass of a Python class; None for what is no coclass's."""
    by_name = {one.name: one for one in definitions().coclasses}
    for base in made.__mro__:
        if base in _NAMES:
            return by_name[_NAMES[base]]
    return None


class ObjectClasses(Classes):
    """Which interfaces objects have."""

    @override
    def facet(self, target: Any, iid: Guid) -> Any:
        if iid == IID_IUNKNOWN:
            return target
        if isinstance(target, ClassFactory):
            return target if iid == IID_ICLASSFACTORY else None
        if isinstance(target, Enumerator):
            return target if iid == IID_IENUMVARIANT else None
        if isinstance(target, TypeObject):
            return target if iid in target.iids else None
        if isinstance(target, ConnectionPoints):
            return target if iid == definitions().named("IEnumConnectionPoints").guid else None
        if type(target) is MSMQManagement and iid in _management_iids():
            return _management(target, _management_iids()[iid])
        return target if iid in interfaces_of(type(target)) else None

    @override
    def is_pinged(self, target: Any) -> bool:
        return True


_INTERFACES: Final[dict[type, Mapping[Guid, str]]] = {}


def interfaces_of(made: type[Any]) -> Mapping[Guid, str]:
    """Return the interfaces of a class's objects by IID, besides IUnknown."""
    found = _INTERFACES.get(made)
    if found is None:
        found = _INTERFACES[made] = _all_interfaces(made)
    return found


def _all_interfaces(made: type[Any]) -> Mapping[Guid, str]:
    if issubclass(made, TransactionImpl):
        found = definitions().named("ITransaction")
        return {found.guid: found.name}
    coclass = coclass_of(made)
    if coclass is None:
        return {}
    return dict(_interfaces(coclass))


def _interfaces(coclass: Coclass) -> Iterator[tuple[Guid, str]]:
    if coclass.name == "MSMQEvent":
        # The connection point is the object itself.
        yield definitions().named("IConnectionPoint").guid, "IConnectionPoint"
    for name in coclass.interfaces:
        for each in definitions().lineage(name):
            if each == "IDispatch":
                yield IID_IDISPATCH, coclass.default
            else:
                yield definitions().named(each).guid, each


@cache
def _management_iids() -> Mapping[Guid, str]:
    return {definitions().named(name).guid: name for name in (_OUTGOING, _LOCAL)}


def _management(target: MSMQManagement, name: str) -> Any:
    """Return a queue's management as one of its two kinds; None if it is of the other."""
    try:
        if name == _OUTGOING:
            return target.outgoing_queue_management()
        return target.queue_management()
    except MqError:
        return None


def late_bound(facet: Any, iid: Guid) -> tuple[Any, str]:
    """Return what late-bound calls through an interface reach, and by which interface."""
    if type(facet) is MSMQManagement:
        # Scripts cannot ask for another interface: they see what the queue turned out to be.
        for name in (_OUTGOING, _LOCAL):
            found = _management(facet, name)
            if found is not None:
                return found, name
    coclass = coclass_of(type(facet))
    name = interfaces_of(type(facet)).get(iid, "")
    return facet, name or (coclass.default if coclass is not None else "")

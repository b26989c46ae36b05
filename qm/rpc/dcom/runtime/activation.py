"""Activation: IRemoteSCMActivator and IActivation on the mapper's port, IClassFactory on the
objects' [MS-DCOM 3.1.2.5.2, 3.1.1.5.5].
"""

from typing import Any, Final, Protocol

import msgspec

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import (
    INTERFACES_PER_REQUEST_MAX,
    NAME_MAX_CHARS,
    PROTOCOLS_MAX,
)
from qm.rpc.dcom.runtime.exporter import Exporter
from qm.rpc.dcom.runtime.identifiers import IID_ICLASSFACTORY, NULL
from qm.rpc.dcom.runtime.objref import DUAL_STRING_ARRAY, Bindings, write_objref
from qm.rpc.dcom.runtime.orpc import (
    COM_VERSION,
    INTERFACE,
    MAJOR,
    MINOR,
    orpc_interface,
    orpc_operation,
)
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.properties import (
    TCP,
    BadProperties,
    Reply,
    Wanted,
    parse_wanted,
    write_reply,
)
from qm.rpc.interface import Fault, Interface, interface_syntax
from qm.rpc.ndr.types import GUID, I32, U16, U32, U64, Array, Unique, WideString
from qm.rpc.pdu.codes import AuthLevel, FaultStatus
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

_CLASS_FACTORY_MODE: Final = 0xFFFF_FFFF
IREMOTESCMACTIVATOR: Final = Interface(
    "IRemoteSCMActivator",
    interface_syntax("000001a0-0000-0000-c000-000000000046", 0),
    {
        3: orpc_operation("get_class_object", (INTERFACE,), (INTERFACE, U32)),
        4: orpc_operation("create_instance", (INTERFACE, INTERFACE), (INTERFACE, U32)),
    },
    AuthLevel.INTEGRITY,
)
IACTIVATION: Final = Interface(
    "IActivation",
    interface_syntax("4d9f4ab8-7d1c-11cf-861e-0020af6e7c57", 0),
    {
        0: orpc_operation(
            "activate",
            (
                GUID,
                Unique(WideString(NAME_MAX_CHARS)),
                INTERFACE,
                U32,
                U32,
                U32,
                Unique(Array(GUID, INTERFACES_PER_REQUEST_MAX)),
                U16,
                Array(U16, PROTOCOLS_MAX),
            ),
            (
                U64,
                Unique(DUAL_STRING_ARRAY),
                GUID,
                U32,
                COM_VERSION,
                U32,
                Array(INTERFACE),
                Array(U32),
                U32,
            ),
        )
    },
    AuthLevel.INTEGRITY,
)
ICLASSFACTORY: Final = orpc_interface(
    "IClassFactory",
    IID_ICLASSFACTORY,
    {
        3: orpc_operation("factory_create", (GUID,), (INTERFACE, U32)),
        4: orpc_operation("factory_lock", (I32,), (U32,)),
    },
)


class ClassFactory(msgspec.Struct, frozen=True, eq=False):
    """The class object of a coclass."""

    clsid: Guid


class Creator(Protocol):
    """What makes objects."""

    def has(self, clsid: Guid) -> bool:
        """Whether objects of a class can be made."""

    async def create(self, clsid: Guid, call: Call) -> Any:
        """Return a new object for a caller. Raises ComError."""


class Activation:
    """Implements the three interfaces."""

    def __init__(
        self, exporter: Exporter, places: Places, creator: Creator, hint: AuthLevel
    ) -> None:
        """`hint`: the least protection of calls of objects (RP-A73)."""
        self._exporter = exporter
        self._places = places
        self._creator = creator
        self._hint = int(hint)

    async def create_instance(self, call: Call, given: list[Any]) -> list[Any]:
        """RemoteCreateInstance."""
        this, _, blob = given
        return await self._activated(call, this, blob, is_class=False)

    async def get_class_object(self, call: Call, given: list[Any]) -> list[Any]:
        """RemoteGetClassObject."""
        this, blob = given
        return await self._activated(call, this, blob, is_class=True)

    async def _activated(
        self, call: Call, this: Any, blob: bytes | None, *, is_class: bool
    ) -> list[Any]:
        _permitted(call, this)
        try:
            wanted = parse_wanted(blob or b"")
            reply = await self._made(call, wanted, is_class=is_class)
        except BadProperties:
            return [None, None, Hresult.E_INVALIDARG]
        except ComError as error:
            return [None, None, error.status]
        return [None, write_reply(reply), Hresult.S_OK]

    async def activate(self, call: Call, given: list[Any]) -> list[Any]:
        """RemoteActivation, of clients of COM 5.1 and before."""
        this, clsid, name, storage, _, mode, count, iids, protocol_count, protocols = given
        _permitted(call, this)
        if not iids or count != len(iids) or protocol_count != len(protocols):
            raise Fault(FaultStatus.BAD_STUB_DATA)
        wanted = Wanted(clsid, tuple(iids), name is not None or storage is not None)
        try:
            if TCP not in protocols:
                raise ComError(Hresult.E_INVALIDARG, "a client that does not speak TCP")
            reply = await self._made(call, wanted, is_class=mode == _CLASS_FACTORY_MODE)
        except ComError as error:
            nothing = [None] * count
            version = (MAJOR, MINOR)
            none = Bindings(())
            return [None, 0, none, NULL, 0, version, error.status, nothing, [0] * count, 0]
        return [
            None,
            reply.oxid,
            reply.bindings,
            reply.ipid_rem_unknown,
            reply.hint,
            (MAJOR, MINOR),
            Hresult.S_OK,
            list(reply.pointers),
            list(reply.statuses),
            0,
        ]

    async def _made(self, call: Call, wanted: Wanted, *, is_class: bool) -> Reply:
        """Create what is wanted. Raises ComError."""
        if not self._creator.has(wanted.clsid):
            raise ComError(Hresult.REGDB_E_CLASSNOTREG)
        if wanted.has_state:
            raise ComError(Hresult.E_NOTIMPL, "objects are not made from files here")
        if is_class:
            target: Any = ClassFactory(wanted.clsid)
        else:
            target = await self._creator.create(wanted.clsid, call)
        pointers: list[bytes | None] = []
        statuses: list[int] = []
        for iid in wanted.iids:
            try:
                pointers.append(self._pointer(call, target, iid))
            except ComError as error:
                pointers.append(None)
                statuses.append(error.status)
            else:
                statuses.append(Hresult.S_OK)
        if not any(pointers):
            raise ComError(statuses[0])
        return Reply(
            wanted.iids,
            statuses,
            pointers,
            self._exporter.oxid,
            self._places.exporter(call),
            self._exporter.ipid_rem_unknown,
            self._hint,
        )

    def _pointer(self, call: Call, target: Any, iid: Guid) -> bytes:
        places = self._places
        owner, resolver = places.owner(call), places.resolver(call)
        return write_objref(self._exporter.export(target, iid, owner, resolver, places.now()))

    # IClassFactory -------------------------------------------------------------------------

    async def factory_create(self, call: Call, given: list[Any]) -> list[Any]:
        """IClassFactory::RemoteCreateInstance."""
        this, iid = given
        factory = self._factory(call, this)
        try:
            target = await self._creator.create(factory.clsid, call)
            return [None, self._pointer(call, target, iid), Hresult.S_OK]
        except ComError as error:
            return [None, None, error.status]

    def factory_lock(self, call: Call, given: list[Any]) -> list[Any]:
        """IClassFactory::RemoteLockServer: the server runs anyway."""
        this, _ = given
        self._factory(call, this)
        return [None, Hresult.S_OK]

    def _factory(self, call: Call, this: Any) -> ClassFactory:
        this.check()
        ipid = call.request.object_uuid or NULL
        pointer = self._exporter.pointer(ipid, self._places.owner(call), self._places.now())
        if pointer.iid != IID_ICLASSFACTORY:
            raise ComError(Hresult.RPC_E_DISCONNECTED, "the IPID is of another interface")
        found = pointer.facet
        assert isinstance(found, ClassFactory)
        return found


def _permitted(call: Call, this: Any) -> None:
    """Raise Fault for what nobody may ask."""
    if not call.identity.is_authenticated:
        raise Fault(FaultStatus.ACCESS_DENIED, "activation without logging on")
    this.check_version()

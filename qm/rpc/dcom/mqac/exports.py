"""Objects of this node as calls find them and give them back."""

from typing import Any, Final

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.runtime.exporter import Exporter, Pointer
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import write_objref
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.server.call import Call
from qm.wire.guid import Guid


class Exports:
    """The exporter, asked in the name of who calls."""

    def __init__(self, exporter: Exporter, places: Places) -> None:
        self.exporter: Final = exporter
        self.places: Final = places

    def pointer(self, call: Call, this: Any) -> Pointer:
        """Return what is called. Raises ComError, which becomes a fault (RP-A62)."""
        this.check()
        request = call.request
        owner, now = self.places.owner(call), self.places.now()
        pointer = self.exporter.pointer(request.object_uuid or NULL, owner, now)
        if pointer.iid != request.interface.syntax.uuid:
            raise ComError(Hresult.RPC_E_DISCONNECTED, "the IPID is of another interface")
        return pointer

    def pointer_to(self, call: Call, target: Any, iid: Guid) -> bytes:
        """Return an interface pointer of an object. Raises ComError.

        A new one belongs to who has the object that is called: its sessions are theirs, and last
        as long as they have objects, from whichever of its addresses an account calls.
        """
        places = self.places
        ipid = call.request.object_uuid or NULL
        owner = self.exporter.owner_of(ipid, places.owner(call))
        resolver = places.resolver(call)
        return write_objref(self.exporter.export(target, iid, owner, resolver, places.now()))

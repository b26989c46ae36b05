"""IObjectExporter on the mapper's port: where objects are, and pings [MS-DCOM 3.1.2.5.1]."""

from typing import Any, Final

from qm.rpc.dcom.hresults import OR_INVALID_OID, OR_INVALID_OXID, OR_INVALID_SET, ComError
from qm.rpc.dcom.limits import OBJECTS_PER_CALLER_MAX, PROTOCOLS_MAX
from qm.rpc.dcom.runtime.exporter import Exporter
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import DUAL_STRING_ARRAY
from qm.rpc.dcom.runtime.orpc import COM_VERSION, MAJOR, MINOR, Listed
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.interface import Fault, Interface, Operation, interface_syntax
from qm.rpc.ndr.types import GUID, U16, U32, U64, Array, Unique
from qm.rpc.pdu.codes import AuthLevel, FaultStatus
from qm.rpc.server.call import Call

_OIDS: Final = Unique(Array(U64, OBJECTS_PER_CALLER_MAX))
_BINDINGS: Final = Unique(DUAL_STRING_ARRAY)
_RESOLVE: Final = (U64, U16, Array(U16, PROTOCOLS_MAX))
IOBJECTEXPORTER: Final = Interface(
    "IObjectExporter",
    interface_syntax("99fcfec4-5260-101b-bbcb-00aa0021347a", 0),
    {
        0: Operation("resolve", Listed(_RESOLVE), Listed((_BINDINGS, GUID, U32, U32))),
        1: Operation("simple_ping", Listed((U64,)), Listed((U32,))),
        2: Operation(
            "complex_ping",
            Listed((U64, U16, U16, U16, _OIDS, _OIDS)),
            Listed((U64, U16, U32)),
        ),
        3: Operation("alive", Listed(()), Listed((U32,))),
        4: Operation(
            "resolve_2", Listed(_RESOLVE), Listed((_BINDINGS, GUID, U32, COM_VERSION, U32))
        ),
        5: Operation("alive_2", Listed(()), Listed((COM_VERSION, _BINDINGS, U32, U32))),
    },
)


class Resolver:
    """Implements it."""

    def __init__(self, exporter: Exporter, places: Places, hint: AuthLevel) -> None:
        """`hint`: the least protection of calls of objects (RP-A73)."""
        self._exporter = exporter
        self._places = places
        self._hint = int(hint)

    def alive(self, call: Call, given: list[Any]) -> list[Any]:
        """ServerAlive."""
        return [0]

    def alive_2(self, call: Call, given: list[Any]) -> list[Any]:
        """ServerAlive2: Windows asks without security, before anything else."""
        return [(MAJOR, MINOR), self._places.resolver(call), 0, 0]

    def resolve(self, call: Call, given: list[Any]) -> list[Any]:
        """ResolveOxid."""
        _protected(call)
        if given[0] != self._exporter.oxid:
            return [None, NULL, 0, OR_INVALID_OXID]
        bindings = self._places.exporter(call)
        return [bindings, self._exporter.ipid_rem_unknown, self._hint, 0]

    def resolve_2(self, call: Call, given: list[Any]) -> list[Any]:
        """ResolveOxid2."""
        *first, status = self.resolve(call, given)
        return [*first, (MAJOR, MINOR), status]

    def simple_ping(self, call: Call, given: list[Any]) -> list[Any]:
        """SimplePing."""
        _protected(call)
        is_known = self._exporter.ping(given[0], self._places.owner(call), self._places.now())
        return [0 if is_known else OR_INVALID_SET]

    def complex_ping(self, call: Call, given: list[Any]) -> list[Any]:
        """ComplexPing; no back-off is asked for."""
        _protected(call)
        number, sequence, added_count, removed_count, added, removed = given
        if added_count != len(added or ()) or removed_count != len(removed or ()):
            raise Fault(FaultStatus.BAD_STUB_DATA)
        owner, now = self._places.owner(call), self._places.now()
        try:
            number, are_known = self._exporter.change_set(
                number, sequence, added or (), removed or (), owner, now
            )
        except KeyError:
            return [number, 0, OR_INVALID_SET]
        except ComError as error:
            return [number, 0, error.status]
        return [number, 0, 0 if are_known else OR_INVALID_OID]


def _protected(call: Call) -> None:
    """Raise Fault unless the call is signed at least."""
    context = call.request.security
    if context is None or context.level < AuthLevel.INTEGRITY:
        raise Fault(FaultStatus.ACCESS_DENIED, "a call of the resolver without signature")

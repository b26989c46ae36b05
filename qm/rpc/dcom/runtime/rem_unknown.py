"""IRemUnknown and IRemUnknown2: other interfaces of an object, and its references.

[MS-DCOM] 3.1.1.5.6.
"""

from struct import Struct
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import INTERFACES_PER_REQUEST_MAX, REFERENCES_PER_CALL_MAX
from qm.rpc.dcom.runtime.exporter import REFS_GIVEN, Exporter
from qm.rpc.dcom.runtime.identifiers import IID_IREMUNKNOWN, IID_IREMUNKNOWN2
from qm.rpc.dcom.runtime.objref import Objref, standard_bytes, write_objref
from qm.rpc.dcom.runtime.orpc import INTERFACE, orpc_interface, orpc_operation
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.interface import Interface
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import GUID, U16, U32, Array, Type, Unique
from qm.rpc.server.call import Call
from qm.wire.guid import Guid

_QI_RESULT: Final = Struct("<I4x40s")
_NO_REFERENCE: Final = bytes(40)


class InterfaceRef(msgspec.Struct, frozen=True):
    """REMINTERFACEREF."""

    ipid: Guid
    public: int
    private: int


class _RefType(Type[InterfaceRef]):
    alignment = 4
    size_min = 24

    @override
    def read(self, reader: Reader) -> InterfaceRef:
        return InterfaceRef(GUID.read(reader), reader.u32(), reader.u32())

    @override
    def write(self, writer: Writer, value: InterfaceRef) -> None:
        GUID.write(writer, value.ipid)
        writer.u32(value.public)
        writer.u32(value.private)


class _ResultType(Type[tuple[int, bytes]]):
    """REMQIRESULT: HRESULT, and a STDOBJREF aligned to 8."""

    alignment = 8
    size_min = 48

    @override
    def read(self, reader: Reader) -> tuple[int, bytes]:
        reader.align(8)
        status, standard = _QI_RESULT.unpack(reader.take(_QI_RESULT.size))
        return status, standard

    @override
    def write(self, writer: Writer, value: tuple[int, bytes]) -> None:
        writer.align(8)
        writer.put(_QI_RESULT.pack(*value))


_REFS: Final = Array(_RefType(), REFERENCES_PER_CALL_MAX)
_IIDS: Final = Array(GUID, INTERFACES_PER_REQUEST_MAX)
_STATUSES: Final = Array(U32)
_OPERATIONS: Final = {
    3: orpc_operation(
        "query_interface", (GUID, U32, U16, _IIDS), (Unique(Array(_ResultType())), U32)
    ),
    4: orpc_operation("add_ref", (U16, _REFS), (_STATUSES, U32)),
    5: orpc_operation("release", (U16, _REFS), (U32,)),
}
IREMUNKNOWN: Final = orpc_interface("IRemUnknown", IID_IREMUNKNOWN, _OPERATIONS)
IREMUNKNOWN2: Final = orpc_interface(
    "IRemUnknown2",
    IID_IREMUNKNOWN2,
    {
        **_OPERATIONS,
        6: orpc_operation(
            "query_interface_2", (GUID, U16, _IIDS), (_STATUSES, Array(INTERFACE), U32)
        ),
    },
)
REM_UNKNOWN_INTERFACES: Final[tuple[Interface, ...]] = (IREMUNKNOWN, IREMUNKNOWN2)


class RemUnknown:
    """Implements both."""

    def __init__(self, exporter: Exporter, places: Places) -> None:
        self._exporter = exporter
        self._places = places

    def query_interface(self, call: Call, given: list[Any]) -> list[Any]:
        """RemQueryInterface: STDOBJREFs (RP-A63 for its status)."""
        this, ipid, refs, count, iids = given
        self._check(call, this)
        try:
            found = self._query(call, ipid, refs, (count, iids))
        except ComError as error:
            return [None, None, _unknown_object(error)]
        results = [
            (status, _NO_REFERENCE if ref is None else standard_bytes(ref)) for status, ref in found
        ]
        return [None, results, _overall([status for status, _ in found])]

    def query_interface_2(self, call: Call, given: list[Any]) -> list[Any]:
        """RemQueryInterface2: whole OBJREFs."""
        this, ipid, count, iids = given
        self._check(call, this)
        try:
            found = self._query(call, ipid, REFS_GIVEN, (count, iids))
        except ComError as error:
            return [None, [0] * count, [None] * count, _unknown_object(error)]
        statuses = [status for status, _ in found]
        pointers = [None if ref is None else write_objref(ref) for _, ref in found]
        return [None, statuses, pointers, _overall(statuses)]

    def _query(
        self, call: Call, ipid: Guid, refs: int, asked: tuple[int, list[Guid]]
    ) -> list[tuple[int, Objref | None]]:
        count, iids = asked
        if count != len(iids):
            raise BadStub(f"{count} interfaces in an array of {len(iids)}")
        owner, now = self._places.owner(call), self._places.now()
        exported = self._exporter.pointer(ipid, owner, now).of
        results: list[tuple[int, Objref | None]] = []
        for iid in iids:
            try:
                pointer = self._exporter.query(exported, iid)
                ref = self._exporter.refer(pointer, self._places.resolver(call), max(refs, 1))
            except ComError as error:
                results.append((error.status, None))
            else:
                results.append((Hresult.S_OK, ref))
        return results

    def add_ref(self, call: Call, given: list[Any]) -> list[Any]:
        """RemAddRef."""
        this, count, refs = given
        self._check(call, this)
        if count != len(refs):
            raise BadStub(f"{count} references in an array of {len(refs)}")
        owner, now = self._places.owner(call), self._places.now()
        statuses: list[int] = []
        for one in refs:
            try:
                pointer = self._exporter.pointer(one.ipid, owner, now)
                self._exporter.add_refs(pointer, one.public, one.private)
            except ComError as error:
                is_unknown = error.status == Hresult.RPC_E_DISCONNECTED
                statuses.append(Hresult.CO_E_OBJNOTREG if is_unknown else error.status)
            else:
                statuses.append(Hresult.S_OK)
        return [None, statuses, next(filter(None, statuses), Hresult.S_OK)]

    def release(self, call: Call, given: list[Any]) -> list[Any]:
        """RemRelease; pointers that are not the caller's are left alone."""
        this, count, refs = given
        self._check(call, this)
        if count != len(refs):
            raise BadStub(f"{count} references in an array of {len(refs)}")
        owner, now = self._places.owner(call), self._places.now()
        for one in refs:
            try:
                pointer = self._exporter.pointer(one.ipid, owner, now)
            except ComError:
                continue
            self._exporter.release(pointer, one.public, one.private)
        return [None, Hresult.S_OK]

    def _check(self, call: Call, this: Any) -> None:
        this.check()
        if call.request.object_uuid != self._exporter.ipid_rem_unknown:
            raise ComError(
                Hresult.RPC_E_DISCONNECTED, "not the IPID of this exporter's IRemUnknown"
            )


def _unknown_object(error: ComError) -> int:
    is_unknown = error.status == Hresult.RPC_E_DISCONNECTED
    return Hresult.RPC_E_INVALID_OBJECT if is_unknown else error.status


def _overall(statuses: list[int]) -> int:
    if all(status == Hresult.S_OK for status in statuses):
        return Hresult.S_OK
    if any(status == Hresult.S_OK for status in statuses):
        return Hresult.S_FALSE
    return Hresult.E_NOINTERFACE

"""The vtables of [MC-MQAC] as interfaces of ORPC: one operation for each method of the data."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from typing_extensions import override

from qm.client.mqac.transaction import XACTTRANSINFO
from qm.rpc.dcom.automation.dispatch import DISPATCH_OPERATIONS, IDISPATCH, IENUMVARIANT
from qm.rpc.dcom.automation.variant import BSTR, VARIANT, Variant
from qm.rpc.dcom.mqac.definitions import Method, Parameter, definitions
from qm.rpc.dcom.runtime.orpc import INTERFACE, orpc_interface, orpc_operation
from qm.rpc.interface import Interface, Operation
from qm.rpc.ndr.streams import Reader, Writer
from qm.rpc.ndr.types import GUID, I16, I32, U32, Type, Unique, Varying, VaryingArray
from qm.wire.guid import Guid

NULL_GUID: Final = bytes(16)


class _TransactionInfo(Type[XACTTRANSINFO]):
    """XACTTRANSINFO [MC-MQAC 2.2.3.2]."""

    alignment = 4
    size_min = 40

    @override
    def read(self, reader: Reader) -> XACTTRANSINFO:
        uow = GUID.read(reader)
        return XACTTRANSINFO(uow, *(I32.read(reader) for _ in range(6)))

    @override
    def write(self, writer: Writer, value: XACTTRANSINFO) -> None:
        GUID.write(writer, value.uow)
        for number in (
            value.isoLevel,
            value.isoFlags,
            value.grfTCSupported,
            value.grfRMSupported,
            value.grfTCSupportedRetaining,
            value.grfRMSupportedRetaining,
        ):
            writer.u32(number)


_IN: Final[Mapping[str, Type[Any]]] = {
    "BSTR": BSTR,
    "VARIANT": VARIANT,
    "VARIANT*": VARIANT,
    "long": I32,
    "HRESULT": I32,
    "short": I16,
    "VARIANT_BOOL": I16,
    "DWORD": U32,
    "ULONG": U32,
    "REFIID": GUID,
    "BOID*": Unique(GUID),
}
_OUT: Final[Mapping[str, tuple[Type[Any], Any]]] = {
    "BSTR*": (BSTR, None),
    "VARIANT*": (VARIANT, Variant()),
    "long*": (I32, 0),
    "short*": (I16, 0),
    "VARIANT_BOOL*": (I16, 0),
    "DWORD*": (U32, 0),
    "ULONG*": (U32, 0),
    "IID*": (GUID, NULL_GUID),
    "XACTTRANSINFO*": (_TransactionInfo(), XACTTRANSINFO(NULL_GUID)),
    "LPCONNECTIONPOINT*": (VaryingArray(INTERFACE), Varying(0, [])),
}
"""With what is written when the method fails."""
_UNSERVED: Final = frozenset({"IEnumConnections", "_DMSMQEventEvents"})
"""Interfaces that no object here has: EnumConnections is refused, as the text allows, and the
events are the client's."""


def in_type(parameter: Parameter) -> Type[Any]:
    """Return how an [in] parameter is carried: what no scalar is, is an interface pointer."""
    return _IN.get(parameter.type, INTERFACE)


def out_type(parameter: Parameter) -> tuple[Type[Any], Any]:
    """Return how an [out] parameter is carried, and what stands for it in a failure."""
    return _OUT.get(parameter.type, (INTERFACE, None))


def operation_of(method: Method, name: str = "call_member") -> Operation:
    """Return a method as an operation: [out] parameters in their order, then the HRESULT."""
    takes = [in_type(one) for one in method.parameters if not one.is_out]
    gives = [out_type(one)[0] for one in method.parameters if one.is_out]
    return orpc_operation(name, takes, (*gives, U32))


@cache
def object_interfaces() -> Mapping[Guid, Interface]:
    """Return every interface of objects, by IID."""
    found = {}
    for definition in definitions().interfaces:
        if definition.name in _UNSERVED:
            continue
        methods = definitions().methods(definition.name)
        operations = {one.opnum: operation_of(one) for one in methods}
        if "IDispatch" in definitions().lineage(definition.name):
            operations |= DISPATCH_OPERATIONS
        found[definition.guid] = orpc_interface(definition.name, definition.guid, operations)
    for one in (IDISPATCH, IENUMVARIANT):
        found[one.syntax.uuid] = one
    return found


@cache
def method_at(iid: Guid, opnum: int) -> Method:
    """Return the method of an interface's slot."""
    return _slots(iid)[opnum]


@cache
def _slots(iid: Guid) -> Mapping[int, Method]:
    definition = next(one for one in definitions().interfaces if one.guid == iid)
    return {one.opnum: one for one in definitions().methods(definition.name)}

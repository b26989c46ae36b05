"""Activation properties: what a client wants created, and what it gets [MS-DCOM 2.2.22]. Pure.

A blob is an OBJREF_CUSTOM whose data is a header and properties back to back, each serialized by
itself (type serialization version 1 [MS-RPCE 2.2.6]).
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct, error
from typing import Any, Final

import msgspec
from typing_extensions import override

from qm.rpc.dcom.limits import INTERFACES_PER_REQUEST_MAX, PROPERTIES_MAX, PROTOCOLS_MAX
from qm.rpc.dcom.runtime.identifiers import (
    CLSID_INSTANCE,
    CLSID_INSTANTIATION,
    CLSID_PROPERTIES_IN,
    CLSID_PROPERTIES_OUT,
    CLSID_SCM_REPLY,
    CLSID_SCM_REQUEST,
    IID_PROPERTIES_IN,
    IID_PROPERTIES_OUT,
    NULL,
)
from qm.rpc.dcom.runtime.objref import (
    DUAL_STRING_ARRAY,
    BadObjref,
    Bindings,
    CustomRef,
    parse_objref,
    write_custom,
)
from qm.rpc.dcom.runtime.orpc import COM_VERSION, INTERFACE, MAJOR, MINOR
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import GUID, U16, U32, U64, Array, Type, Unique, settle
from qm.wire.guid import Guid

TCP: Final = 7
"""Protocol sequence identifier of ncacn_ip_tcp."""
_SERIALIZED: Final = Struct("<IIII")
_SERIALIZED_FIRST: Final = 0x0008_1001
_SERIALIZED_FILLER: Final = 0xCCCC_CCCC
_BLOB_HEAD: Final = Struct("<II")
_REMOTE_MACHINE: Final = 2
"""destCtx: MSHCTX_DIFFERENTMACHINE."""


class _Fields(Type[list[Any]]):
    """A structure whose value is the list of its members."""

    def __init__(self, *types: Type[Any]) -> None:
        self._types = types
        self.alignment = max(one.alignment for one in types)
        self.size_min = sum(one.size_min for one in types)

    @override
    def read(self, reader: Reader) -> list[Any]:
        reader.align(self.alignment)
        found = [one.read(reader) for one in self._types]
        for place, value in enumerate(found):
            settle(reader, value, partial(found.__setitem__, place))
        return found

    @override
    def write(self, writer: Writer, value: list[Any]) -> None:
        writer.align(self.alignment)
        for one, member in zip(self._types, value, strict=True):
            one.write(writer, member)


_IIDS: Final = Unique(Array(GUID, INTERFACES_PER_REQUEST_MAX))
_HEADER: Final = _Fields(
    U32,
    U32,
    U32,
    U32,
    U32,
    GUID,
    Unique(Array(GUID, PROPERTIES_MAX)),
    Unique(Array(U32, PROPERTIES_MAX)),
    U32,
)
_INSTANTIATION: Final = _Fields(GUID, U32, U32, U32, U32, U32, _IIDS, U32, COM_VERSION)
_SCM_REQUEST: Final = _Fields(
    Unique(U32), Unique(_Fields(U32, U16, Unique(Array(U16, PROTOCOLS_MAX))))
)
_SCM_REPLY: Final = _Fields(
    Unique(U32), Unique(_Fields(U64, Unique(DUAL_STRING_ARRAY), GUID, U32, COM_VERSION))
)
_OUT: Final = _Fields(
    U32,
    _IIDS,
    Unique(Array(U32, INTERFACES_PER_REQUEST_MAX)),
    Unique(Array(INTERFACE, INTERFACES_PER_REQUEST_MAX)),
)


class BadProperties(Exception):
    """A blob that is none, or lacks what it must have."""


class Wanted(msgspec.Struct, frozen=True):
    """What a client wants created."""

    clsid: Guid
    iids: tuple[Guid, ...]
    has_state: bool = False
    """It wants it made from a file or storage, which no class here can."""


class Reply(msgspec.Struct, frozen=True):
    """What was created, and where."""

    iids: Sequence[Guid]
    statuses: Sequence[int]
    """HRESULTs of the interfaces."""
    pointers: Sequence[bytes | None]
    oxid: int
    bindings: Bindings
    ipid_rem_unknown: Guid
    hint: int
    """The least protection of calls."""


def serialized(one: Type[Any], value: Any) -> bytes:
    """Return a value with the headers of type serialization, padded to 8."""
    writer = Writer()
    one.write(writer, value)
    writer.flush()
    writer.align(8)
    return _SERIALIZED.pack(_SERIALIZED_FIRST, _SERIALIZED_FILLER, len(writer.raw), 0) + writer.raw


def _deserialized(one: Type[Any], raw: bytes) -> Any:
    """Return the value of serialized bytes. Raises BadStub, struct.error."""
    first, _, length, _ = _SERIALIZED.unpack_from(raw)
    if first != _SERIALIZED_FIRST or length > len(raw) - _SERIALIZED.size:
        raise BadStub("headers of type serialization")
    reader = Reader(raw[_SERIALIZED.size : _SERIALIZED.size + length])
    found: list[Any] = [one.read(reader)]
    settle(reader, found[0], partial(found.__setitem__, 0))
    reader.flush()
    return found[0]


def _blob(iid: Guid, clsid: Guid, properties: Sequence[tuple[Guid, bytes]]) -> bytes:
    clsids = [one for one, _ in properties]
    sizes = [len(raw) for _, raw in properties]
    header = [0, 0, 0, _REMOTE_MACHINE, len(properties), NULL, clsids, sizes, 0]
    header_size = len(serialized(_HEADER, header))
    total = header_size + sum(sizes)
    header[:2] = total, header_size
    body = serialized(_HEADER, header) + b"".join(raw for _, raw in properties)
    return write_custom(CustomRef(iid, clsid, _BLOB_HEAD.pack(total, 0) + body))


def _properties(raw: bytes, clsid: Guid) -> dict[Guid, bytes]:
    """Return the properties of a blob by CLSID. Raises BadProperties."""
    try:
        ref = parse_objref(raw)
        if not isinstance(ref, CustomRef) or ref.clsid != clsid:
            raise BadProperties("not a blob of activation properties")
        _BLOB_HEAD.unpack_from(ref.data)
        data = ref.data[_BLOB_HEAD.size :]
        header = _deserialized(_HEADER, data)
    except (BadObjref, BadStub, error) as bad:
        raise BadProperties(str(bad)) from None
    at, count, clsids, sizes = header[1], header[4], header[6] or [], header[7] or []
    if not 1 <= count <= PROPERTIES_MAX or count != len(clsids) or count != len(sizes):
        raise BadProperties(f"{count} properties with {len(clsids)} classes, {len(sizes)} sizes")
    found = {}
    for each, size in zip(clsids, sizes, strict=True):
        if at + size > len(data):
            raise BadProperties("a property that ends behind the blob")
        found[each] = data[at : at + size]
        at += size
    return found


def parse_wanted(raw: bytes) -> Wanted:
    """Return what a client's blob asks for. Raises BadProperties."""
    properties = _properties(raw, CLSID_PROPERTIES_IN)
    instantiation = properties.get(CLSID_INSTANTIATION)
    if instantiation is None:
        raise BadProperties("no InstantiationInfoData")
    try:
        clsid, _, _, _, count, _, iids, _, _ = _deserialized(_INSTANTIATION, instantiation)
        request = properties.get(CLSID_SCM_REQUEST)
        protocols = [TCP]
        if request is not None:
            _, remote = _deserialized(_SCM_REQUEST, request)
            protocols = (remote or [0, 0, None])[2] or [TCP]
    except (BadStub, error) as bad:
        raise BadProperties(str(bad)) from None
    if not iids or count != len(iids):
        raise BadProperties(f"{count} interfaces in a list of {len(iids or ())}")
    if TCP not in protocols:
        raise BadProperties("a client that does not speak TCP")
    return Wanted(clsid, tuple(iids), CLSID_INSTANCE in properties)


def write_wanted(wanted: Wanted) -> bytes:
    """Return the blob that asks for an object."""
    count = len(wanted.iids)
    version = (MAJOR, MINOR)
    instantiation = [wanted.clsid, 0, 0, 0, count, 0, list(wanted.iids), 0, version]
    return _blob(
        IID_PROPERTIES_IN,
        CLSID_PROPERTIES_IN,
        [
            (CLSID_INSTANTIATION, serialized(_INSTANTIATION, instantiation)),
            (CLSID_SCM_REQUEST, serialized(_SCM_REQUEST, [None, [0, 1, [TCP]]])),
        ],
    )


def write_reply(reply: Reply) -> bytes:
    """Return the blob that tells what was created; PropsOutInfo stands first."""
    out = [len(reply.iids), list(reply.iids), list(reply.statuses), list(reply.pointers)]
    place = [reply.oxid, reply.bindings, reply.ipid_rem_unknown, reply.hint, (MAJOR, MINOR)]
    return _blob(
        IID_PROPERTIES_OUT,
        CLSID_PROPERTIES_OUT,
        [
            (CLSID_PROPERTIES_OUT, serialized(_OUT, out)),
            (CLSID_SCM_REPLY, serialized(_SCM_REPLY, [None, place])),
        ],
    )


def parse_reply(raw: bytes) -> Reply:
    """Return what a server's blob tells. Raises BadProperties."""
    properties = _properties(raw, CLSID_PROPERTIES_OUT)
    try:
        _, iids, statuses, pointers = _deserialized(_OUT, properties[CLSID_PROPERTIES_OUT])
        _, place = _deserialized(_SCM_REPLY, properties[CLSID_SCM_REPLY])
        oxid, bindings, ipid, hint, _ = place
    except (BadStub, error, KeyError, TypeError, ValueError) as bad:
        raise BadProperties(str(bad)) from None
    return Reply(iids, statuses, pointers, oxid, bindings, ipid, hint)

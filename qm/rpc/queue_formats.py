"""QUEUE_FORMAT as a parameter [MS-MQMQ 2.2.7], and the format name that it means."""

from typing import Final

import msgspec

from qm.names.direct import AnyDirectName, DirectAddress, DirectProtocol
from qm.names.errors import QueueNameError
from qm.names.format_name import SingleFormatName, format_name_text
from qm.rpc.ndr.types import GUID, U8, U16, U32, Arm, Structure, Union, Unique, WideString
from qm.wire.enums import QueueFormatType, QueueSuffixType
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.rpc.address import MulticastId
from qm.wire.rpc.queue_format import (
    DIRECT_TEXT_MAX_CHARS,
    DOMAIN_TEXT_MAX_CHARS,
    FLAGS_MASK,
    SUFFIX_MASK,
    DlId,
    QueueFormat,
    QueueFormatId,
    name_of_queue_format,
    queue_format_of_name,
)
from qm.wire.structures.identifiers import ObjectId

SYSTEM: Final = 0x80
"""Flag of m_SuffixAndFlags for journals and dead-letter queues."""
_SYSTEM_SUFFIXES: Final = frozenset({1, 2, 3})


class PrivateId(msgspec.Struct):
    """OBJECTID: a queue manager and a number."""

    lineage: Guid
    uniquifier: int


class ListId(msgspec.Struct):
    """DL_ID."""

    dl_guid: Guid
    domain: str | None


class MulticastAddress(msgspec.Struct):
    """MULTICAST_ID."""

    address: int
    port: int


class WireFormat(msgspec.Struct):
    """A QUEUE_FORMAT as it is in a stub."""

    kind: int
    suffix_and_flags: int
    reserved: int
    identifier: Arm


_PUBLIC, _PRIVATE, _DIRECT, _MACHINE = 1, 2, 3, 4
_CONNECTOR, _LIST, _MULTICAST, _SUBQUEUE = 5, 6, 7, 8
_TEXT: Final = Unique(WideString(DIRECT_TEXT_MAX_CHARS))
QUEUE_FORMAT: Final = Structure(
    WireFormat,
    {
        "kind": U8,
        "suffix_and_flags": U8,
        "reserved": U16,
        "identifier": Union(
            U8,
            {
                0: None,
                _PUBLIC: GUID,
                _PRIVATE: Structure(PrivateId, {"lineage": GUID, "uniquifier": U32}),
                _DIRECT: _TEXT,
                _MACHINE: GUID,
                _CONNECTOR: GUID,
                _LIST: Structure(
                    ListId,
                    {"dl_guid": GUID, "domain": Unique(WideString(DOMAIN_TEXT_MAX_CHARS))},
                ),
                _MULTICAST: Structure(MulticastAddress, {"address": U32, "port": U32}),
                _SUBQUEUE: _TEXT,
            },
        ),
    },
    lambda it: it.kind == it.identifier.tag,
)


class NotAName(Exception):
    """The structure names no queue."""


def name_of(wire: WireFormat) -> SingleFormatName:
    """Return the format name of a structure. Raises NotAName."""
    suffix, flags = wire.suffix_and_flags & SUFFIX_MASK, wire.suffix_and_flags & FLAGS_MASK
    is_system = suffix in _SYSTEM_SUFFIXES
    if flags != (SYSTEM if is_system else 0):
        raise NotAName(f"suffix {wire.suffix_and_flags:02X}")
    try:
        found = name_of_queue_format(
            QueueFormat(QueueFormatType(wire.kind), QueueSuffixType(suffix), _identifier(wire))
        )
    except (ProtocolError, QueueNameError, ValueOutOfRange, ValueError, KeyError) as error:
        raise NotAName(str(error)) from None
    if found is None:
        raise NotAName("an unknown queue")
    return found


def _identifier(wire: WireFormat) -> QueueFormatId:
    value = wire.identifier.value
    if wire.kind in (_DIRECT, _SUBQUEUE):
        if value is None:
            raise NotAName("a direct name without its text")
        return str(value)
    if isinstance(value, PrivateId):
        return ObjectId(value.lineage, value.uniquifier)
    if isinstance(value, ListId):
        return DlId(value.dl_guid, value.domain or "")
    if isinstance(value, MulticastAddress):
        return MulticastId(value.address.to_bytes(4, "little"), value.port)
    return bytes(value) if value is not None else None


def format_of(name: SingleFormatName) -> WireFormat:
    """Return the structure of a format name, for clients."""
    found = queue_format_of_name(name)
    suffix = int(found.suffix)
    value: object = found.identifier
    if isinstance(value, ObjectId):
        value = PrivateId(value.lineage, value.uniquifier)
    elif isinstance(value, DlId):
        value = ListId(value.dl_guid, value.domain or None)
    elif isinstance(value, MulticastId):
        value = MulticastAddress(int.from_bytes(value.octets, "little"), value.port)
    flags = SYSTEM if suffix in _SYSTEM_SUFFIXES else 0
    kind = int(found.format_type)
    return WireFormat(kind, suffix | flags, 0, Arm(kind, value))


def text_of(wire: WireFormat) -> str:
    """Return the text of a structure's format name. Raises NotAName."""
    return format_name_text(name_of(wire))


def settled_name(name: SingleFormatName, dialled: str, computer: str) -> SingleFormatName:
    """Return a name in which the address at which this node was called is the cluster's computer.

    Callers that know the cluster by an address put it into their direct names.
    """
    if isinstance(name, AnyDirectName) and name.address.host == dialled:
        address = DirectAddress(DirectProtocol.OS, computer)
        return msgspec.structs.replace(name, address=address)
    return name


def full_path(computer: str, pathname: str) -> str:
    """Return a path name with the computer's name in front."""
    head, separator, rest = pathname.partition("\\")
    return f"{computer}\\{rest}" if separator and head in (".", "") else pathname

"""QUEUE_FORMAT [MS-MQMQ 2.2.7] as a parameter of calls, and the format name that it means.

m_SuffixAndFlags has the suffix in its low half and the flags in its high half (MQ-A25). A direct
text is written without its suffix, and read with or without it (MQ-A3). A multicast address is its
four octets in the order of the dotted text, read as a little-endian integer (MQ-A4).
"""

from ipaddress import IPv4Address
from typing import Any, Final

import msgspec

from qm.names import (
    ConnectorName,
    DirectName,
    DirectSystemName,
    DistributionListName,
    MachineName,
    MulticastName,
    PrivateName,
    PublicName,
    SingleFormatName,
    SystemQueue,
    format_name_text,
    parse_direct_format_name,
)
from qm.names.direct import AnyDirectName, DirectAddress, DirectProtocol
from qm.names.errors import QueueNameError, excerpt
from qm.names.format_name import DIRECT_PREFIX, DOMAIN_MAX_CHARS, FORMAT_NAME_MAX_CHARS
from qm.rpc.ndr.types import GUID, U8, U16, U32, Arm, Structure, Union, Unique, WideString
from qm.wire.enums import QueueFormatFlags, QueueFormatType, QueueSuffixType
from qm.wire.guid import Guid

DIRECT_TEXT_MAX_CHARS: Final = FORMAT_NAME_MAX_CHARS + 1
DOMAIN_TEXT_MAX_CHARS: Final = DOMAIN_MAX_CHARS + 1
"""Both include the NUL."""
_SUFFIX_MASK: Final = 0x0F
_FLAGS_MASK: Final = 0xF0


class PrivateId(msgspec.Struct):
    """OBJECTID: a queue manager and a number."""

    lineage: Guid
    uniquifier: int


class ListId(msgspec.Struct):
    """DL_ID [MS-MQMQ 2.2.9]."""

    dl_guid: Guid
    domain: str | None


class MulticastAddress(msgspec.Struct):
    """MULTICAST_ID [MS-MQMQ 2.2.10]."""

    address: int
    port: int


class WireFormat(msgspec.Struct):
    """A QUEUE_FORMAT as it is in a stub."""

    kind: int
    suffix_and_flags: int
    reserved: int
    identifier: Arm


_Q: Final = QueueFormatType
_S: Final = QueueSuffixType
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
                _Q.UNKNOWN: None,
                _Q.PUBLIC: GUID,
                _Q.PRIVATE: Structure(PrivateId, {"lineage": GUID, "uniquifier": U32}),
                _Q.DIRECT: _TEXT,
                _Q.MACHINE: GUID,
                _Q.CONNECTOR: GUID,
                _Q.DL: Structure(
                    ListId,
                    {"dl_guid": GUID, "domain": Unique(WideString(DOMAIN_TEXT_MAX_CHARS))},
                ),
                _Q.MULTICAST: Structure(MulticastAddress, {"address": U32, "port": U32}),
                _Q.SUBQUEUE: _TEXT,
            },
        ),
    },
    lambda it: it.kind == it.identifier.tag,
)

# Beyond the section, JOURNAL is refused for SUBQUEUE, and DEADLETTER for all but the types that
# name a computer: no format name expresses these.
_TYPES_OF_SUFFIX: Final[dict[int, frozenset[QueueFormatType]]] = {
    _S.NONE: frozenset(_Q) - {_Q.UNKNOWN, _Q.MACHINE},
    _S.JOURNAL: frozenset({_Q.PUBLIC, _Q.PRIVATE, _Q.DIRECT, _Q.MACHINE}),
    _S.DEADLETTER: frozenset({_Q.DIRECT, _Q.MACHINE}),
    _S.DEADXACT: frozenset({_Q.DIRECT, _Q.MACHINE}),
    _S.XACTONLY: frozenset({_Q.CONNECTOR}),
    _S.SUBQUEUE: frozenset({_Q.SUBQUEUE}),
}
_SYSTEM: Final[frozenset[int]] = frozenset({QueueFormatFlags.SYSTEM})
_NOT_SYSTEM: Final[frozenset[int]] = frozenset({QueueFormatFlags.NOT_SYSTEM})
_FLAGS_OF_SUFFIX: Final[dict[int, frozenset[int]]] = {
    _S.NONE: _NOT_SYSTEM,
    _S.JOURNAL: _SYSTEM,
    _S.DEADLETTER: _SYSTEM,
    _S.DEADXACT: _SYSTEM,
    # The section does not specify the flags of XACTONLY: written as NOT_SYSTEM, read as either.
    _S.XACTONLY: _NOT_SYSTEM | _SYSTEM,
    _S.SUBQUEUE: _NOT_SYSTEM,
}
_SUFFIX_OF_SYSTEM_QUEUE: Final = {
    SystemQueue.JOURNAL: _S.JOURNAL,
    SystemQueue.DEADLETTER: _S.DEADLETTER,
    SystemQueue.DEADXACT: _S.DEADXACT,
}
_SYSTEM_QUEUE_OF_SUFFIX: Final = {
    suffix: queue for queue, suffix in _SUFFIX_OF_SYSTEM_QUEUE.items()
}


class NotAName(Exception):
    """The structure names no queue."""


def name_of(wire: WireFormat) -> SingleFormatName:
    """Return the format name of a structure; m_reserved is ignored. Raises NotAName."""
    suffix, flags = wire.suffix_and_flags & _SUFFIX_MASK, wire.suffix_and_flags & _FLAGS_MASK
    if wire.kind not in _TYPES_OF_SUFFIX.get(suffix, ()) or flags not in _FLAGS_OF_SUFFIX[suffix]:
        raise NotAName(f"type {wire.kind} with suffix and flags {wire.suffix_and_flags:02X}")
    try:
        name = _name(QueueFormatType(wire.kind), QueueSuffixType(suffix), wire.identifier.value)
        format_name_text(name)  # a group address that is none has no text
    except QueueNameError as error:
        raise NotAName(error.reason) from None
    return name


def _name(kind: QueueFormatType, suffix: QueueSuffixType, value: Any) -> SingleFormatName:
    match kind:
        case QueueFormatType.PUBLIC:
            return PublicName(value, suffix is QueueSuffixType.JOURNAL)
        case QueueFormatType.PRIVATE:
            return PrivateName(value.lineage, value.uniquifier, suffix is QueueSuffixType.JOURNAL)
        case QueueFormatType.MACHINE:
            return MachineName(value, _SYSTEM_QUEUE_OF_SUFFIX[suffix])
        case QueueFormatType.CONNECTOR:
            return ConnectorName(value, suffix is QueueSuffixType.XACTONLY)
        case QueueFormatType.DL:
            return DistributionListName(value.dl_guid, value.domain or "")
        case QueueFormatType.MULTICAST:
            octets = value.address.to_bytes(4, "little")
            return MulticastName(str(IPv4Address(octets)), value.port)
        case _:
            return _direct_name(value, kind, suffix)


def _direct_name(
    text: str | None, kind: QueueFormatType, suffix: QueueSuffixType
) -> DirectName | DirectSystemName:
    """Join a direct text and its suffix, which the text may include already (MQ-A3)."""
    if text is None:
        raise NotAName("a direct name without its text")
    if suffix in _SYSTEM_QUEUE_OF_SUFFIX:
        ending = f";{_SYSTEM_QUEUE_OF_SUFFIX[suffix].value}"
        if not text.upper().endswith(ending):
            text += ending
    name = parse_direct_format_name(text)
    implied = format_of(name)
    # The section allows NONE for a subqueue's type too: there the text is complete.
    agrees = suffix == implied.suffix_and_flags & _SUFFIX_MASK or (
        suffix is QueueSuffixType.NONE and kind is QueueFormatType.SUBQUEUE
    )
    if implied.kind != kind or not agrees:
        raise NotAName(f"{excerpt(text)} in a structure of type {kind.name}, suffix {suffix.name}")
    return name


def format_of(name: SingleFormatName) -> WireFormat:
    """Return the structure of a format name.

    Raises FormatNameError for a value without a text.
    """
    text = format_name_text(name).removeprefix(DIRECT_PREFIX)
    match name:
        case PublicName():
            return _format(_Q.PUBLIC, _journal_or_none(name.journal), name.guid)
        case PrivateName():
            identifier = PrivateId(name.guid, name.number)
            return _format(_Q.PRIVATE, _journal_or_none(name.journal), identifier)
        case DirectSystemName():
            suffix = _SUFFIX_OF_SYSTEM_QUEUE[name.system_queue]
            return _format(_Q.DIRECT, suffix, text.rpartition(";")[0])
        case DirectName(subqueue=None):
            bare = text.rpartition(";")[0] if name.journal else text
            return _format(_Q.DIRECT, _journal_or_none(name.journal), bare)
        case DirectName():
            return _format(_Q.SUBQUEUE, _S.SUBQUEUE, text)
        case MachineName():
            return _format(_Q.MACHINE, _SUFFIX_OF_SYSTEM_QUEUE[name.system_queue], name.guid)
        case ConnectorName():
            return _format(_Q.CONNECTOR, _S.XACTONLY if name.transactional else _S.NONE, name.guid)
        case DistributionListName():
            return _format(_Q.DL, _S.NONE, ListId(name.guid, name.domain or None))
        case MulticastName():
            address = int.from_bytes(IPv4Address(name.address).packed, "little")
            return _format(_Q.MULTICAST, _S.NONE, MulticastAddress(address, name.port))


def _journal_or_none(journal: bool) -> QueueSuffixType:
    return QueueSuffixType.JOURNAL if journal else QueueSuffixType.NONE


def _format(kind: QueueFormatType, suffix: QueueSuffixType, value: object) -> WireFormat:
    flags = min(_FLAGS_OF_SUFFIX[suffix])
    return WireFormat(int(kind), suffix | flags, 0, Arm(int(kind), value))


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

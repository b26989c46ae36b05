r"""QUEUE_FORMAT [MS-MQMQ 2.2.7] with DL_ID [2.2.9]; OBJECTID and MULTICAST_ID are elsewhere.

In an RPC call a QUEUE_FORMAT is NDR: the 4 bytes below, the union's discriminant again, and
pointers for its strings (`qm.rpc.queue_formats`). These bytes are the storage form and are not sent
to peers:

    u8 m_qft, u8 m_SuffixAndFlags, u16 m_reserved     as in the section, little-endian
    then the union's arm, unpadded:
      PUBLIC, MACHINE, CONNECTOR   GUID, 16 raw bytes
      PRIVATE                      OBJECTID, 20 bytes
      DIRECT, SUBQUEUE             a string as `qm.wire.rpc.counted` lays it out
      DL                           GUID, then such a string (empty without a domain)
      MULTICAST                    MULTICAST_ID, 8 bytes

m_SuffixAndFlags holds the suffix in its low half and the flags in its high half (MQ-A25). A direct
string is written without its suffix and read with or without it (MQ-A3).
"""

from struct import Struct
from typing import Final

import msgspec

from qm.names import (
    ConnectorName,
    DirectName,
    DirectSystemName,
    DistributionListName,
    FormatNameError,
    MachineName,
    MulticastName,
    PrivateName,
    PublicName,
    SingleFormatName,
    SystemQueue,
    format_name_text,
    parse_direct_format_name,
)
from qm.names.errors import excerpt, illegal_format_name
from qm.names.format_name import DIRECT_PREFIX, DOMAIN_MAX_CHARS, FORMAT_NAME_MAX_CHARS
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, take, truncated
from qm.wire.enums import QueueFormatFlags, QueueFormatType, QueueSuffixType
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.rpc.address import (
    MulticastId,
    ip_octets,
    ip_text,
    parse_multicast_id,
    write_multicast_id,
)
from qm.wire.rpc.counted import parse_counted_text, write_counted_text
from qm.wire.structures.identifiers import ObjectId, parse_object_id, write_object_id

_HEAD: Final = Struct("<BBH")
_SECTION: Final = "MS-MQMQ 2.2.7"
_SECTION_DL: Final = "MS-MQMQ 2.2.9"

SUFFIX_MASK: Final = 0x0F
FLAGS_MASK: Final = 0xF0
DIRECT_TEXT_MAX_CHARS: Final = FORMAT_NAME_MAX_CHARS + 1
DOMAIN_TEXT_MAX_CHARS: Final = DOMAIN_MAX_CHARS + 1
"""Both include the NUL."""


class DlId(msgspec.Struct, frozen=True, gc=False):
    """DL_ID: a distribution list [MS-MQMQ 2.2.9]."""

    dl_guid: Guid
    """The group object, 16 raw bytes."""
    domain: str = ""
    """The directory domain; empty when not given."""


QueueFormatId = Guid | ObjectId | str | DlId | MulticastId | None


class QueueFormat(msgspec.Struct, frozen=True, gc=False):
    """A format name as a structure."""

    format_type: QueueFormatType
    """m_qft, which says what `identifier` is."""
    suffix: QueueSuffixType = QueueSuffixType.NONE
    """Low half of m_SuffixAndFlags; the high half follows from it."""
    identifier: QueueFormatId = None
    """UNKNOWN: None. PUBLIC, MACHINE, CONNECTOR: 16 raw bytes. PRIVATE: ObjectId. DL: DlId.
    MULTICAST: MulticastId. DIRECT, SUBQUEUE: the direct name without `DIRECT=`."""


_ALL: Final = frozenset(QueueFormatType)
# Beyond the section, JOURNAL is refused for UNKNOWN and SUBQUEUE, and DEADLETTER for all but the
# types that name a computer: no format name expresses these.
_TYPES_OF_SUFFIX: Final[dict[int, frozenset[QueueFormatType]]] = {
    QueueSuffixType.NONE: _ALL - {QueueFormatType.MACHINE},
    QueueSuffixType.JOURNAL: frozenset(
        {
            QueueFormatType.PUBLIC,
            QueueFormatType.PRIVATE,
            QueueFormatType.DIRECT,
            QueueFormatType.MACHINE,
        }
    ),
    QueueSuffixType.DEADLETTER: frozenset({QueueFormatType.DIRECT, QueueFormatType.MACHINE}),
    QueueSuffixType.DEADXACT: frozenset({QueueFormatType.DIRECT, QueueFormatType.MACHINE}),
    QueueSuffixType.XACTONLY: frozenset({QueueFormatType.CONNECTOR}),
    QueueSuffixType.SUBQUEUE: frozenset({QueueFormatType.SUBQUEUE}),
}
_SYSTEM: Final[frozenset[int]] = frozenset({QueueFormatFlags.SYSTEM})
_NOT_SYSTEM: Final[frozenset[int]] = frozenset({QueueFormatFlags.NOT_SYSTEM})
_FLAGS_OF_SUFFIX: Final[dict[int, frozenset[int]]] = {
    QueueSuffixType.NONE: _NOT_SYSTEM,
    QueueSuffixType.JOURNAL: _SYSTEM,
    QueueSuffixType.DEADLETTER: _SYSTEM,
    QueueSuffixType.DEADXACT: _SYSTEM,
    # The section does not specify the flags of XACTONLY: written as NOT_SYSTEM, read as either.
    QueueSuffixType.XACTONLY: _NOT_SYSTEM | _SYSTEM,
    QueueSuffixType.SUBQUEUE: _NOT_SYSTEM,
}
_SUFFIX_OF_SYSTEM_QUEUE: Final = {
    SystemQueue.JOURNAL: QueueSuffixType.JOURNAL,
    SystemQueue.DEADLETTER: QueueSuffixType.DEADLETTER,
    SystemQueue.DEADXACT: QueueSuffixType.DEADXACT,
}
_SYSTEM_QUEUE_OF_SUFFIX: Final = {
    suffix: queue for queue, suffix in _SUFFIX_OF_SYSTEM_QUEUE.items()
}


def parse_queue_format(buffer: Buffer, offset: int, end: int) -> tuple[QueueFormat, int]:
    """Read a QUEUE_FORMAT in the storage form above; m_reserved is ignored.

    The result is a format name (`name_of_queue_format` succeeds) or of type UNKNOWN.
    """
    start = offset + _HEAD.size
    if start > end:
        raise truncated(offset, _HEAD.size, end, "QUEUE_FORMAT", _SECTION)
    number, suffix_and_flags, _ = _HEAD.unpack_from(buffer, offset)
    if number not in _ALL:
        raise ProtocolError(
            offset, "QUEUE_FORMAT.m_qft", "MS-MQMQ 2.2.6", f"{number} is not a QUEUE_FORMAT_TYPE"
        )
    suffix_number = suffix_and_flags & SUFFIX_MASK
    flags = suffix_and_flags & FLAGS_MASK
    if number not in _TYPES_OF_SUFFIX.get(suffix_number, ()) or (
        flags not in _FLAGS_OF_SUFFIX[suffix_number]
    ):
        raise ProtocolError(
            offset + 1,
            "QUEUE_FORMAT.m_SuffixAndFlags",
            _SECTION,
            f"suffix {suffix_number} and flags 0x{flags:02X} do not fit m_qft {number}",
        )
    format_type = QueueFormatType(number)
    identifier, stop = _parse_identifier(format_type, buffer, start, end)
    queue_format = QueueFormat(format_type, QueueSuffixType(suffix_number), identifier)
    try:
        name_of_queue_format(queue_format)
    except FormatNameError as refused:
        raise ProtocolError(offset, "QUEUE_FORMAT", _SECTION, refused.reason) from None
    return queue_format, stop


def write_queue_format(queue_format: QueueFormat) -> bytes:
    """Return the storage form of a QUEUE_FORMAT, m_reserved zero."""
    try:
        name_of_queue_format(queue_format)
    except FormatNameError as refused:
        raise ValueOutOfRange("QUEUE_FORMAT", _SECTION, refused.reason) from None
    flags = min(_FLAGS_OF_SUFFIX[queue_format.suffix])
    head = _HEAD.pack(queue_format.format_type, queue_format.suffix | flags, 0)
    return head + _write_identifier(queue_format.identifier)


def queue_format_of_name(name: SingleFormatName) -> QueueFormat:
    """Return the structure for a format name; raise `FormatNameError` for a value without a text.

    A multiple-element name has none: each element is a QUEUE_FORMAT of its own.
    """
    text = format_name_text(name).removeprefix(DIRECT_PREFIX)
    match name:
        case PublicName():
            return QueueFormat(QueueFormatType.PUBLIC, _journal_or_none(name.journal), name.guid)
        case PrivateName():
            return QueueFormat(
                QueueFormatType.PRIVATE,
                _journal_or_none(name.journal),
                ObjectId(name.guid, name.number),
            )
        case DirectSystemName():
            suffix = _SUFFIX_OF_SYSTEM_QUEUE[name.system_queue]
            return QueueFormat(QueueFormatType.DIRECT, suffix, text.rpartition(";")[0])
        case DirectName(subqueue=None):
            if not name.journal:
                return QueueFormat(QueueFormatType.DIRECT, identifier=text)
            bare = text.rpartition(";")[0]
            return QueueFormat(QueueFormatType.DIRECT, QueueSuffixType.JOURNAL, bare)
        case DirectName():
            return QueueFormat(QueueFormatType.SUBQUEUE, QueueSuffixType.SUBQUEUE, text)
        case MachineName():
            suffix = _SUFFIX_OF_SYSTEM_QUEUE[name.system_queue]
            return QueueFormat(QueueFormatType.MACHINE, suffix, name.guid)
        case ConnectorName():
            transactional = QueueSuffixType.XACTONLY if name.transactional else QueueSuffixType.NONE
            return QueueFormat(QueueFormatType.CONNECTOR, transactional, name.guid)
        case DistributionListName():
            return QueueFormat(QueueFormatType.DL, identifier=DlId(name.guid, name.domain))
        case MulticastName():
            multicast = MulticastId(ip_octets(name.address), name.port)
            return QueueFormat(QueueFormatType.MULTICAST, identifier=multicast)


def name_of_queue_format(queue_format: QueueFormat) -> SingleFormatName | None:
    """Return the format name of a structure; None for UNKNOWN, which names no queue.

    A type, suffix and identifier that do not belong together raise `FormatNameError`.
    """
    format_type, suffix = queue_format.format_type, queue_format.suffix
    if format_type not in _TYPES_OF_SUFFIX[suffix]:
        raise illegal_format_name(f"suffix {suffix.name} does not go with {format_type.name}")
    name: SingleFormatName
    match format_type, queue_format.identifier:
        case QueueFormatType.UNKNOWN, None:
            return None
        case QueueFormatType.PUBLIC, bytes(guid):
            name = PublicName(guid, suffix is QueueSuffixType.JOURNAL)
        case QueueFormatType.PRIVATE, ObjectId(guid, number):
            name = PrivateName(guid, number, suffix is QueueSuffixType.JOURNAL)
        case ((QueueFormatType.DIRECT | QueueFormatType.SUBQUEUE), str(text)):
            return _direct_name(text, format_type, suffix)
        case QueueFormatType.MACHINE, bytes(guid):
            name = MachineName(guid, _SYSTEM_QUEUE_OF_SUFFIX[suffix])
        case QueueFormatType.CONNECTOR, bytes(guid):
            name = ConnectorName(guid, suffix is QueueSuffixType.XACTONLY)
        case QueueFormatType.DL, DlId(guid, domain):
            name = DistributionListName(guid, domain)
        case QueueFormatType.MULTICAST, MulticastId(octets, port):
            name = MulticastName(ip_text(octets), port)
        case _, identifier:
            raise illegal_format_name(
                f"a {type(identifier).__name__} identifies no queue of type {format_type.name}"
            )
    # What has no text is not a format name: a GUID of another size, a port above 65535.
    format_name_text(name)
    return name


def _direct_name(
    text: str, format_type: QueueFormatType, suffix: QueueSuffixType
) -> DirectName | DirectSystemName:
    """Join a direct string and its suffix, which the string may include already (MQ-A3)."""
    if suffix in _SYSTEM_QUEUE_OF_SUFFIX:
        ending = f";{_SYSTEM_QUEUE_OF_SUFFIX[suffix].value}"
        if not text.upper().endswith(ending):
            text += ending
    name = parse_direct_format_name(text)
    implied = queue_format_of_name(name)
    # The section allows NONE for a subqueue's type too: there the string is complete.
    agrees = suffix is implied.suffix or (
        suffix is QueueSuffixType.NONE and format_type is QueueFormatType.SUBQUEUE
    )
    if implied.format_type is not format_type or not agrees:
        raise illegal_format_name(
            f"{excerpt(text)} is {implied.format_type.name} with suffix {implied.suffix.name}, "
            f"and the structure says {format_type.name} with {suffix.name}"
        )
    return name


def _journal_or_none(journal: bool) -> QueueSuffixType:
    return QueueSuffixType.JOURNAL if journal else QueueSuffixType.NONE


def _parse_identifier(
    format_type: QueueFormatType, buffer: Buffer, offset: int, end: int
) -> tuple[QueueFormatId, int]:
    match format_type:
        case QueueFormatType.UNKNOWN:
            return None, offset
        case QueueFormatType.PRIVATE:
            return parse_object_id(buffer, offset, end)
        case QueueFormatType.DIRECT | QueueFormatType.SUBQUEUE:
            return parse_counted_text(
                buffer, offset, end, "QUEUE_FORMAT.m_pDirectID", _SECTION, DIRECT_TEXT_MAX_CHARS
            )
        case QueueFormatType.DL:
            guid, offset = _parse_guid(buffer, offset, end, "DL_ID.m_DlGuid", _SECTION_DL)
            domain, offset = parse_counted_text(
                buffer, offset, end, "DL_ID.m_pwzDomain", _SECTION_DL, DOMAIN_TEXT_MAX_CHARS
            )
            return DlId(guid, domain), offset
        case QueueFormatType.MULTICAST:
            return parse_multicast_id(buffer, offset, end)
        case _:
            return _parse_guid(buffer, offset, end, "QUEUE_FORMAT", _SECTION)


def _parse_guid(
    buffer: Buffer, offset: int, end: int, field: str, section: str
) -> tuple[Guid, int]:
    stop = offset + GUID_SIZE_BYTES
    if stop > end:
        raise truncated(offset, GUID_SIZE_BYTES, end, field, section)
    return take(buffer, offset, stop), stop


def _write_identifier(identifier: QueueFormatId) -> bytes:
    match identifier:
        case None:
            return b""
        case ObjectId():
            return write_object_id(identifier)
        case str():
            return write_counted_text(
                identifier, "QUEUE_FORMAT.m_pDirectID", _SECTION, DIRECT_TEXT_MAX_CHARS
            )
        case DlId():
            domain = write_counted_text(
                identifier.domain, "DL_ID.m_pwzDomain", _SECTION_DL, DOMAIN_TEXT_MAX_CHARS
            )
            return identifier.dl_guid + domain
        case MulticastId():
            return write_multicast_id(identifier)
        case _:
            return identifier

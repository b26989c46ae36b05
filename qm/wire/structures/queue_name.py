"""Queue names as UserHeader carries them [MS-MQMQ 2.2.18.1.5 and 2.2.18.1.7].

Flags.DQ, AQ and RQ choose the layout: 2, 3 and 4 are PrivateQueueFormatNameId on three hosts, 5 is
PublicQueueFormatName, 6 is PrivateQueueFormatName, 7 is DirectQueueFormatName; 0 is no queue and
1 (RQ only) is the administration queue again, both without bytes. Every layout ends on a 4-byte
boundary of its header. These numbers are not those of QUEUE_FORMAT.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, aligned, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.limits import DIRECT_NAME_MAX_BYTES
from qm.wire.packing import guid_bytes, pack_fields
from qm.wire.structures.wide_text import parse_wide_text, write_wide_text

QUEUE_TYPE_NONE: Final = 0
QUEUE_TYPE_SAME_AS_ADMIN: Final = 1
QUEUE_TYPE_PUBLIC: Final = 5
QUEUE_TYPE_PRIVATE: Final = 6
QUEUE_TYPE_DIRECT: Final = 7

_PRIVATE_ID: Final = Struct("<I")
_GUID_PRIVATE_ID: Final = Struct("<16sI")
_COUNT: Final = Struct("<H")
DIRECT_COUNT_SIZE_BYTES: Final = _COUNT.size
"""Size of the byte count before a direct name's text."""
_SECTION_PRIVATE_ID: Final = "MS-MQMQ 2.2.18.1.5.1"
_SECTION_DIRECT: Final = "MS-MQMQ 2.2.18.1.5.2"
_SECTION_PUBLIC: Final = "MS-MQMQ 2.2.18.1.7.1"
_SECTION_PRIVATE: Final = "MS-MQMQ 2.2.18.1.7.2"


class QueueHost(IntEnum):
    """Whose private queue a PrivateQueueFormatNameId means; the value is the queue type."""

    SOURCE = 2
    """The queue manager that sent the message."""
    DESTINATION = 3
    """The queue manager that the message is sent to."""
    ADMIN = 4
    """The queue manager that hosts the administration queue (response queues only)."""


class PrivateQueueFormatNameId(msgspec.Struct, frozen=True, gc=False):
    """A private queue of a host that the packet names already [MS-MQMQ 2.2.18.1.5.1]."""

    host: QueueHost
    """Which of the packet's hosts."""
    private_queue_identifier: int
    """Unique among the private queues of that host, u32."""


class PublicQueueFormatName(msgspec.Struct, frozen=True, gc=False):
    """A public queue [MS-MQMQ 2.2.18.1.7.1]."""

    public_queue_identifier: Guid
    """16 raw bytes."""


class PrivateQueueFormatName(msgspec.Struct, frozen=True, gc=False):
    """A private queue of a host that the packet does not name elsewhere [MS-MQMQ 2.2.18.1.7.2]."""

    source_queue_manager: Guid
    """The hosting queue manager, 16 raw bytes."""
    private_queue_identifier: int
    """Unique among the private queues of that host, u32."""


class DirectQueueFormatName(msgspec.Struct, frozen=True, gc=False):
    r"""A queue by address, such as `OS:host\queue` [MS-MQMQ 2.2.18.1.5.2]."""

    direct_format_name: str
    """The text exactly as on the wire, where the prefix `DIRECT=` is usually left out."""


class SameAsAdminQueue(msgspec.Struct, frozen=True, gc=False):
    """Flags.RQ = 1: the response queue is the administration queue; no bytes follow."""


QueueName = (
    PrivateQueueFormatNameId
    | PublicQueueFormatName
    | PrivateQueueFormatName
    | DirectQueueFormatName
    | SameAsAdminQueue
)


def parse_queue_name(
    buffer: Buffer, offset: int, end: int, queue_type: int, field: str
) -> tuple[QueueName | None, int]:
    """Read the name that a queue type of 0..7 announces, and the padding after it.

    `offset` is 4-aligned from the start of the header; `field` names the header's field
    ("UserHeader.AdminQueue") for errors. Which types a field may have is for the header to check.
    """
    parse = _PARSERS.get(queue_type)
    if parse is None:
        return (None if queue_type == QUEUE_TYPE_NONE else SameAsAdminQueue()), offset
    return parse(buffer, offset, end, queue_type, field)


def queue_name_size(buffer: Buffer, offset: int, queue_type: int) -> int:
    """Return how many bytes the name at `offset` takes, padding included, without reading it.

    Only for packets whose structure was checked before; two bytes at `offset` must exist.
    """
    if queue_type != QUEUE_TYPE_DIRECT:
        return _FIXED_SIZES[queue_type]
    return aligned(_COUNT.size + _COUNT.unpack_from(buffer, offset)[0])


def write_queue_name(name: QueueName | None, field: str) -> tuple[int, bytes]:
    """Return the queue type for the flags and the bytes, padded with zeros."""
    match name:
        case None:
            return QUEUE_TYPE_NONE, b""
        case SameAsAdminQueue():
            return QUEUE_TYPE_SAME_AS_ADMIN, b""
        case DirectQueueFormatName():
            return QUEUE_TYPE_DIRECT, _write_direct(name, field)
        case PrivateQueueFormatNameId():
            encoded = pack_fields(
                _PRIVATE_ID, field, _SECTION_PRIVATE_ID, name.private_queue_identifier
            )
            return int(name.host), encoded
        case PublicQueueFormatName():
            return QUEUE_TYPE_PUBLIC, guid_bytes(
                name.public_queue_identifier, field, _SECTION_PUBLIC
            )
        case PrivateQueueFormatName():
            host = guid_bytes(name.source_queue_manager, field, _SECTION_PRIVATE)
            return QUEUE_TYPE_PRIVATE, pack_fields(
                _GUID_PRIVATE_ID, field, _SECTION_PRIVATE, host, name.private_queue_identifier
            )


def _parse_private_id(
    buffer: Buffer, offset: int, end: int, queue_type: int, field: str
) -> tuple[QueueName, int]:
    after = offset + _PRIVATE_ID.size
    if after > end:
        raise truncated(offset, _PRIVATE_ID.size, end, field, _SECTION_PRIVATE_ID)
    (identifier,) = _PRIVATE_ID.unpack_from(buffer, offset)
    return PrivateQueueFormatNameId(_HOSTS[queue_type], identifier), after


def _parse_public(
    buffer: Buffer, offset: int, end: int, _queue_type: int, field: str
) -> tuple[QueueName, int]:
    after = offset + GUID_SIZE_BYTES
    if after > end:
        raise truncated(offset, GUID_SIZE_BYTES, end, field, _SECTION_PUBLIC)
    return PublicQueueFormatName(bytes(buffer[offset:after])), after


def _parse_private(
    buffer: Buffer, offset: int, end: int, _queue_type: int, field: str
) -> tuple[QueueName, int]:
    after = offset + _GUID_PRIVATE_ID.size
    if after > end:
        raise truncated(offset, _GUID_PRIVATE_ID.size, end, field, _SECTION_PRIVATE)
    return PrivateQueueFormatName(*_GUID_PRIVATE_ID.unpack_from(buffer, offset)), after


def _parse_direct(
    buffer: Buffer, offset: int, end: int, _queue_type: int, field: str
) -> tuple[QueueName, int]:
    start = offset + _COUNT.size
    if start > end:
        raise truncated(offset, _COUNT.size, end, f"{field}.Count", _SECTION_DIRECT)
    (count,) = _COUNT.unpack_from(buffer, offset)
    after = offset + aligned(_COUNT.size + count)
    if after > end:
        raise ProtocolError(
            offset,
            f"{field}.Count",
            _SECTION_DIRECT,
            f"{count} bytes and padding, {end - start} are left",
        )
    return DirectQueueFormatName(
        parse_wide_text(buffer, start, start + count, field, _SECTION_DIRECT)
    ), after


def _write_direct(name: DirectQueueFormatName, field: str) -> bytes:
    text = write_wide_text(name.direct_format_name, field, _SECTION_DIRECT)
    if len(text) > DIRECT_NAME_MAX_BYTES:
        raise ValueOutOfRange(
            field, _SECTION_DIRECT, f"{len(text)} bytes; Count holds {DIRECT_NAME_MAX_BYTES}"
        )
    size = _COUNT.size + len(text)
    return _COUNT.pack(len(text)) + text + bytes(aligned(size) - size)


_HOSTS: Final = {host.value: host for host in QueueHost}
_Parser = Callable[[Buffer, int, int, int, str], tuple[QueueName, int]]
_PARSERS: Final[dict[int, _Parser]] = {
    QueueHost.SOURCE.value: _parse_private_id,
    QueueHost.DESTINATION.value: _parse_private_id,
    QueueHost.ADMIN.value: _parse_private_id,
    QUEUE_TYPE_PUBLIC: _parse_public,
    QUEUE_TYPE_PRIVATE: _parse_private,
    QUEUE_TYPE_DIRECT: _parse_direct,
}
_FIXED_SIZES: Final = {
    QUEUE_TYPE_NONE: 0,
    QUEUE_TYPE_SAME_AS_ADMIN: 0,
    QueueHost.SOURCE.value: _PRIVATE_ID.size,
    QueueHost.DESTINATION.value: _PRIVATE_ID.size,
    QueueHost.ADMIN.value: _PRIVATE_ID.size,
    QUEUE_TYPE_PUBLIC: GUID_SIZE_BYTES,
    QUEUE_TYPE_PRIVATE: _GUID_PRIVATE_ID.size,
}

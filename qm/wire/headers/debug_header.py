"""DebugHeader: the queue that receives report messages about a message [MS-MQMQ 2.2.20.8]."""

from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError
from qm.wire.guid import Guid
from qm.wire.packing import guid_bytes

SECTION: Final = "MS-MQMQ 2.2.20.8"
FLAG_QT: Final = 0x0003
QT_NONE: Final = 0
QT_PUBLIC: Final = 1

_LAYOUT: Final = Struct("<HH")


class DebugHeader(msgspec.Struct, frozen=True, gc=False):
    """Unused flags and the reserved field are ignored."""

    queue_identifier: Guid | None = None
    """The public report queue, 16 raw bytes; None: there is none (Flags.QT 0)."""


def parse_debug_header(buffer: Buffer, offset: int, end: int) -> tuple[DebugHeader, int]:
    """Read and check the 4 or 20 bytes."""
    after = offset + _LAYOUT.size
    if after > end:
        raise truncated(offset, _LAYOUT.size, end, "DebugHeader", SECTION)
    flags, _ = _LAYOUT.unpack_from(buffer, offset)
    queue_type = flags & FLAG_QT
    if queue_type == QT_NONE:
        return DebugHeader(), after
    if queue_type != QT_PUBLIC:
        # MQ-A12: the length of the header would be unknown.
        raise ProtocolError(
            offset, "DebugHeader.Flags.QT", SECTION, f"{queue_type}, only 0 and 1 exist"
        )
    start, after = after, after + GUID_SIZE_BYTES
    if after > end:
        raise truncated(start, GUID_SIZE_BYTES, end, "DebugHeader.QueueIdentifier", SECTION)
    return DebugHeader(bytes(buffer[start:after])), after


def write_debug_header(header: DebugHeader) -> bytes:
    """Return the 4 or 20 bytes."""
    if header.queue_identifier is None:
        return _LAYOUT.pack(QT_NONE, 0)
    queue = guid_bytes(header.queue_identifier, "DebugHeader.QueueIdentifier", SECTION)
    return _LAYOUT.pack(QT_PUBLIC, 0) + queue

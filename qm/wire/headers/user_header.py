"""UserHeader: who sent a message, where it goes, and which headers follow [MS-MQMQ 2.2.19.2]."""

from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.packing import guid_bytes, pack_fields
from qm.wire.structures.queue_name import (
    QUEUE_TYPE_DIRECT,
    QUEUE_TYPE_NONE,
    QUEUE_TYPE_PRIVATE,
    QUEUE_TYPE_PUBLIC,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
    QueueName,
    parse_queue_name,
    write_queue_name,
)

SECTION: Final = "MS-MQMQ 2.2.19.2"

FLAG_RC: Final = 0x0000_001F
FLAG_DM: Final = 0x0000_0060
FLAG_JN: Final = 0x0000_0100
FLAG_JP: Final = 0x0000_0200
FLAG_SH: Final = 0x0008_0000
FLAG_TH: Final = 0x0010_0000
FLAG_MP: Final = 0x0020_0000
FLAG_CQ: Final = 0x0040_0000
FLAG_MQ: Final = 0x0080_0000
FLAG_AH: Final = 0x0200_0000
"""Arrived over HTTP: no packet over TCP 1801 has it."""
FLAG_HH: Final = 0x1000_0000

DM_SHIFT: Final = 5
DQ_SHIFT: Final = 10
AQ_SHIFT: Final = 13
RQ_SHIFT: Final = 16
QUEUE_TYPE_MASK: Final = 7
DM_RECOVERABLE: Final = 1
_HOPS_FIELD_MAX: Final = FLAG_RC

# Offsets inside the header, for reading or patching single fields.
SENT_TIME_OFFSET: Final = 36
MESSAGE_ID_OFFSET: Final = 40
FLAGS_OFFSET: Final = 44
DESTINATION_QUEUE_OFFSET: Final = 48

_LAYOUT: Final = Struct("<16s16sIIII")
_FLAGS: Final = Struct("<I")
DESTINATION_TYPES: Final = frozenset(
    {QUEUE_TYPE_NONE, QueueHost.DESTINATION.value, QUEUE_TYPE_PUBLIC, QUEUE_TYPE_DIRECT}
)
_AQ_TYPES: Final = DESTINATION_TYPES | {QueueHost.SOURCE.value, QUEUE_TYPE_PRIVATE}
_RQ_TYPES: Final = frozenset(range(QUEUE_TYPE_MASK + 1))


class UserHeader(msgspec.Struct, frozen=True, gc=False):
    """Source, destination and options of a message.

    The flags for the headers of the packet (SH, TH, MQ, HH) belong to the packet and are not kept
    here. Reserved bits and AH, which no sender sets, are ignored.
    """

    source_queue_manager: Guid
    """The original sender, 16 raw bytes."""
    destination_queue: QueueName | None
    """Flags.DQ: private on the destination host, public, direct, or none."""
    queue_manager_address: Guid = GUID_NULL
    """The destination's queue manager, 16 raw bytes; zeros for a direct name."""
    time_to_be_received: int = TIME_INFINITE_S
    """Seconds to live; 0xFFFFFFFF is infinite."""
    sent_time: int = 0
    """When the message was sent, seconds since 1970 UTC, by the sender's clock."""
    message_id: int = 0
    """Unique among the sender's messages, u32."""
    admin_queue: QueueName | None = None
    """Flags.AQ: where acknowledgments go."""
    response_queue: QueueName | None = None
    """Flags.RQ: where answers go."""
    connector_type: Guid | None = None
    """Flags.CQ: a GUID of the application, not interpreted here."""
    hop_count: int = 0
    """Flags.RC: routing servers passed, 0..31 on the wire; more than 29 is too many."""
    is_recoverable: bool = False
    """Flags.DM: recoverable (1) rather than express (0)."""
    has_negative_journaling: bool = False
    """Flags.JN: the sender keeps a copy of undelivered messages."""
    has_positive_journaling: bool = False
    """Flags.JP: the sender keeps a copy of delivered messages."""


def host_of(host: QueueHost, header: UserHeader) -> Guid:
    """Return the queue manager of a private queue whose name leaves it to the header
    [MS-MQMQ 2.2.18.1.5.1]: QueueManagerAddress where no other one is named.
    """
    admin = header.admin_queue
    if host is QueueHost.ADMIN:
        if isinstance(admin, PrivateQueueFormatName):
            return admin.source_queue_manager
        host = admin.host if isinstance(admin, PrivateQueueFormatNameId) else QueueHost.DESTINATION
    if host is QueueHost.SOURCE:
        return header.source_queue_manager
    return header.queue_manager_address


def parse_user_header(buffer: Buffer, offset: int, end: int) -> tuple[UserHeader, int]:
    """Read and check the header with its names; the next offset is 4-aligned from `offset`."""
    position = offset + DESTINATION_QUEUE_OFFSET
    if position > end:
        raise truncated(offset, DESTINATION_QUEUE_OFFSET, end, "UserHeader", SECTION)
    source, address, time_to_be_received, sent_time, message_id, flags = _LAYOUT.unpack_from(
        buffer, offset
    )
    delivery_mode = (flags & FLAG_DM) >> DM_SHIFT
    dq = flags >> DQ_SHIFT & QUEUE_TYPE_MASK
    aq = flags >> AQ_SHIFT & QUEUE_TYPE_MASK
    rq = flags >> RQ_SHIFT & QUEUE_TYPE_MASK
    if delivery_mode > DM_RECOVERABLE or dq not in DESTINATION_TYPES or aq not in _AQ_TYPES:
        raise _illegal_flags(offset, delivery_mode, dq, aq)
    if not flags & FLAG_MP:
        raise _flag_error(offset, "MP", "clear, but every message has MessagePropertiesHeader")
    if flags & FLAG_TH and not delivery_mode:
        raise _flag_error(offset, "TH", "a transactional message cannot be express")
    destination, position = parse_queue_name(
        buffer, position, end, dq, "UserHeader.DestinationQueue"
    )
    admin = response = connector = None
    if aq:
        admin, position = parse_queue_name(buffer, position, end, aq, "UserHeader.AdminQueue")
    if rq:
        # MQ-A20: RQ 2..7 have bytes, 4 among them; 0 and 1 have none.
        response, position = parse_queue_name(buffer, position, end, rq, "UserHeader.ResponseQueue")
    if flags & FLAG_CQ:
        start, position = position, position + GUID_SIZE_BYTES
        if position > end:
            raise truncated(start, GUID_SIZE_BYTES, end, "UserHeader.ConnectorType", SECTION)
        connector = bytes(buffer[start:position])
    header = UserHeader(
        source,
        destination,
        address,
        time_to_be_received,
        sent_time,
        message_id,
        admin,
        response,
        connector,
        flags & FLAG_RC,
        delivery_mode == DM_RECOVERABLE,
        bool(flags & FLAG_JN),
        bool(flags & FLAG_JP),
    )
    return header, position


def peek_user_flags(buffer: Buffer, offset: int, end: int) -> int:
    """Return the 32 flags of the UserHeader at `offset`."""
    at = offset + FLAGS_OFFSET
    if at + _FLAGS.size > end:
        raise truncated(offset, DESTINATION_QUEUE_OFFSET, end, "UserHeader", SECTION)
    return int(_FLAGS.unpack_from(buffer, at)[0])


def write_user_header(header: UserHeader, presence: int = 0) -> bytes:
    """Return the header; `presence` adds the flags SH, TH, MQ and HH of the packet around it."""
    if not 0 <= header.hop_count <= _HOPS_FIELD_MAX:
        raise ValueOutOfRange(
            "UserHeader.Flags.RC", SECTION, f"{header.hop_count} is not 0 to {_HOPS_FIELD_MAX}"
        )
    if presence & FLAG_TH and not header.is_recoverable:
        raise ValueOutOfRange(
            "UserHeader.Flags.TH", SECTION, "a transactional message cannot be express"
        )
    dq, destination = _write_name(header.destination_queue, "DestinationQueue", DESTINATION_TYPES)
    aq, admin = _write_name(header.admin_queue, "AdminQueue", _AQ_TYPES)
    rq, response = _write_name(header.response_queue, "ResponseQueue", _RQ_TYPES)
    connector = b""
    if header.connector_type is not None:
        connector = guid_bytes(header.connector_type, "UserHeader.ConnectorType", SECTION)
        presence |= FLAG_CQ
    flags = (
        presence
        | FLAG_MP
        | header.hop_count
        | (DM_RECOVERABLE << DM_SHIFT if header.is_recoverable else 0)
        | (FLAG_JN if header.has_negative_journaling else 0)
        | (FLAG_JP if header.has_positive_journaling else 0)
        | dq << DQ_SHIFT
        | aq << AQ_SHIFT
        | rq << RQ_SHIFT
    )
    fixed = pack_fields(
        _LAYOUT,
        "UserHeader",
        SECTION,
        guid_bytes(header.source_queue_manager, "UserHeader.SourceQueueManager", SECTION),
        guid_bytes(header.queue_manager_address, "UserHeader.QueueManagerAddress", SECTION),
        header.time_to_be_received,
        header.sent_time,
        header.message_id,
        flags,
    )
    return b"".join((fixed, destination, admin, response, connector))


def _write_name(name: QueueName | None, field: str, allowed: frozenset[int]) -> tuple[int, bytes]:
    queue_type, encoded = write_queue_name(name, f"UserHeader.{field}")
    if queue_type not in allowed:
        raise ValueOutOfRange(
            f"UserHeader.{field}",
            SECTION,
            f"cannot be a {type(name).__name__} of type {queue_type}",
        )
    return queue_type, encoded


def _illegal_flags(offset: int, delivery_mode: int, dq: int, aq: int) -> ProtocolError:
    if delivery_mode > DM_RECOVERABLE:
        return _flag_error(offset, "DM", f"{delivery_mode}, only 0 and 1 exist")
    if dq not in DESTINATION_TYPES:
        return _flag_error(offset, "DQ", f"{dq}, only {sorted(DESTINATION_TYPES)} exist")
    return _flag_error(offset, "AQ", f"{aq}, only {sorted(_AQ_TYPES)} exist")


def _flag_error(offset: int, flag: str, reason: str) -> ProtocolError:
    return ProtocolError(offset + FLAGS_OFFSET, f"UserHeader.Flags.{flag}", SECTION, reason)

"""Reading for the hot path: what routing, duplicates and expiry need, from a raw packet.

Nothing here builds a value or checks structure beyond the fixed bytes that it reads. A packet whose
names are read was framed, and parsed once before it entered the log.
"""

from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, take
from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_PR,
    FLAG_TR,
    PACKET_SIZE_OFFSET,
)
from qm.wire.headers.message_properties import (
    MESSAGE_PROPERTIES_MIN_BYTES,
    PRIVACY_LEVEL,
    PRIVACY_LEVEL_OFFSET,
    PROPERTIES_SIZES,
)
from qm.wire.headers.security_header import AS_SHIFT, FLAG_AS, security_header_size
from qm.wire.headers.transaction_header import SEQUENCE, SEQUENCE_OFFSET, transaction_header_size
from qm.wire.headers.user_header import (
    AQ_SHIFT,
    DESTINATION_QUEUE_OFFSET,
    DQ_SHIFT,
    FLAG_CQ,
    FLAG_SH,
    FLAG_TH,
    QUEUE_TYPE_MASK,
    RQ_SHIFT,
)
from qm.wire.structures.queue_name import (
    DIRECT_COUNT_SIZE_BYTES,
    QUEUE_TYPE_DIRECT,
    QUEUE_TYPE_NONE,
    QUEUE_TYPE_PUBLIC,
    queue_name_size,
)
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES

HEAD: Final = Struct("<BxHIII16s16sIIIIH")
"""Reads `HeadFields` at a user packet's start; every user packet is long enough."""

HeadFields = tuple[int, int, int, int, int, Guid, Guid, int, int, int, int, int]
"""What `HEAD` unpacks: the fields of a `Head`, without their names."""


class Head(NamedTuple):
    """The fixed fields of a user packet, in the order of the wire."""

    version: int
    base_flags: int
    """BaseHeader.Flags."""
    signature: int
    packet_size: int
    """Bytes, without a SessionHeader after them."""
    time_to_reach_queue: int
    """Seconds; 0xFFFFFFFF is infinite."""
    source_queue_manager: Guid
    queue_manager_address: Guid
    time_to_be_received: int
    """Seconds; 0xFFFFFFFF is infinite."""
    sent_time: int
    """Seconds since 1970 UTC."""
    message_id: int
    user_flags: int
    """UserHeader.Flags."""
    direct_name_bytes: int
    """The two bytes after the fixed ones: the name's byte count when the destination is direct."""


assert len(HEAD.unpack(bytes(HEAD.size))) == len(Head._fields)

_SOURCE_OFFSET: Final = BASE_HEADER_SIZE_BYTES
"""SourceQueueManager is the first field of UserHeader."""
_DESTINATION_OFFSET: Final = BASE_HEADER_SIZE_BYTES + DESTINATION_QUEUE_OFFSET
_DIRECT_TEXT_OFFSET: Final = _DESTINATION_OFFSET + DIRECT_COUNT_SIZE_BYTES
_PRIVATE_ID_SIZE_BYTES: Final = 4
_SIZE: Final = Struct("<I")
_U16: Final = Struct("<H")
_TYPE_BYTES: Final = tuple(bytes([queue_type]) for queue_type in range(QUEUE_TYPE_MASK + 1))


def peek_head(buffer: Buffer, offset: int) -> Head:
    """Return the fixed fields of the framed user packet at `offset`."""
    # Head._make does the same but counts the fields each time, which doubles the cost.
    return tuple.__new__(Head, HEAD.unpack_from(buffer, offset))


def sizes_in(block: Buffer, lengths: Sequence[int]) -> list[int]:
    """Return BaseHeader.PacketSize of packets one after the other, each with so many bytes."""
    size_at = _SIZE.unpack_from
    starts = accumulate(lengths, initial=PACKET_SIZE_OFFSET)
    return [size_at(block, at)[0] for at, _ in zip(starts, lengths, strict=False)]


def peek_source(buffer: Buffer, offset: int) -> Guid:
    """Return UserHeader.SourceQueueManager of the framed user packet at `offset`."""
    start = offset + _SOURCE_OFFSET
    return take(buffer, start, start + GUID_SIZE_BYTES)


def effective_priority(head: Head) -> int:
    """Return 0..7; a transactional message has 0, whatever its header says (MQ-A27)."""
    return 0 if head.user_flags & FLAG_TH else head.base_flags & FLAG_PR


def is_traced(head: Head) -> bool:
    """Tell whether report messages are wanted."""
    return bool(head.base_flags & FLAG_TR)


def has_security(head: Head) -> bool:
    """Whether the packet has a SecurityHeader."""
    return bool(head.user_flags & FLAG_SH)


def is_transactional(head: Head) -> bool:
    """Tell whether the packet has a TransactionHeader."""
    return bool(head.user_flags & FLAG_TH)


def peek_destination(buffer: Buffer, offset: int, head: Head) -> bytes:
    """Return a key of the destination: one byte for its type, then its name as on the wire.

    A private queue's name is its queue manager's GUID and its id, a public one's its GUID, a direct
    one's the text in WCHARs without NUL. Equal keys mean names that are equal byte for byte; names
    that differ only in letter case have different keys.
    """
    queue_type = head.user_flags >> DQ_SHIFT & QUEUE_TYPE_MASK
    prefix = _TYPE_BYTES[queue_type]
    if queue_type == QUEUE_TYPE_DIRECT:
        start = offset + _DIRECT_TEXT_OFFSET
        stop = min(start + head.direct_name_bytes - WCHAR_SIZE_BYTES, offset + head.packet_size)
        return prefix + take(buffer, start, max(start, stop))
    start = offset + _DESTINATION_OFFSET
    if queue_type == QUEUE_TYPE_PUBLIC:
        return prefix + take(buffer, start, start + GUID_SIZE_BYTES)
    if queue_type == QUEUE_TYPE_NONE:
        return prefix
    return prefix + head.queue_manager_address + take(buffer, start, start + _PRIVATE_ID_SIZE_BYTES)


def transaction_header_offset(buffer: Buffer, offset: int, head: Head) -> int:
    """Return the offset of a checked packet's TransactionHeader, from the same origin as `offset`.

    Raises `ValueOutOfRange` when the packet has none.
    """
    flags = head.user_flags
    if not flags & FLAG_TH:
        raise ValueOutOfRange(
            "UserHeader.Flags.TH", "MS-MQMQ 2.2.20.5", "the packet has no TransactionHeader"
        )
    return user_header_end(buffer, offset, flags)


def peek_transaction(buffer: Buffer, offset: int, head: Head) -> tuple[int, int, int]:
    """Return TxSequenceID as its 64-bit integer, TxSequenceNumber and PreviousTxSequenceNumber.

    The packet was checked before; `ValueOutOfRange` when it is not transactional.
    """
    at = transaction_header_offset(buffer, offset, head) + SEQUENCE_OFFSET
    fields: tuple[int, int, int] = SEQUENCE.unpack_from(buffer, at)
    return fields


def security_header_offset(buffer: Buffer, offset: int, head: Head) -> int:
    """Return the offset of a checked packet's SecurityHeader, as above.

    Raises `ValueOutOfRange` when the packet has none.
    """
    flags = head.user_flags
    if not flags & FLAG_SH:
        raise ValueOutOfRange(
            "UserHeader.Flags.SH", "MS-MQMQ 2.2.20.6", "the packet has no SecurityHeader"
        )
    position = user_header_end(buffer, offset, flags)
    return position + (transaction_header_size(buffer, position) if flags & FLAG_TH else 0)


def peek_signature_version(packet: Buffer) -> int:
    """Return SecurityHeader.Flags.AS of a checked packet, 0 without the header.

    It means something only in a packet that was verified here: senders may write anything.
    """
    head = peek_head(packet, 0)
    if not head.user_flags & FLAG_SH:
        return 0
    (flags,) = _U16.unpack_from(packet, security_header_offset(packet, 0, head))
    return int(flags & FLAG_AS) >> AS_SHIFT


def properties_offset(buffer: Buffer, offset: int, head: Head) -> int:
    """Return the offset of a checked packet's MessagePropertiesHeader, as above."""
    flags = head.user_flags
    position = user_header_end(buffer, offset, flags)
    if flags & FLAG_TH:
        position += transaction_header_size(buffer, position)
    if flags & FLAG_SH:
        position += security_header_size(buffer, position)
    return position


def peek_privacy_level(buffer: Buffer, offset: int, head: Head) -> int:
    """Return MessagePropertiesHeader.PrivacyLevel of a checked packet."""
    at = properties_offset(buffer, offset, head) + PRIVACY_LEVEL_OFFSET
    (level,) = PRIVACY_LEVEL.unpack_from(buffer, at)
    return int(level)


def body_span(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return where MessageBody begins and ends, given where its MessagePropertiesHeader begins."""
    label_chars, size, extension_size = PROPERTIES_SIZES.unpack_from(buffer, at)
    start = at + MESSAGE_PROPERTIES_MIN_BYTES + label_chars * WCHAR_SIZE_BYTES + extension_size
    return start, start + size


def user_header_end(buffer: Buffer, offset: int, flags: int) -> int:
    """Return where the UserHeader of a checked packet with these flags ends."""
    position = offset + _DESTINATION_OFFSET
    for shift in (DQ_SHIFT, AQ_SHIFT, RQ_SHIFT):
        position += queue_name_size(buffer, position, flags >> shift & QUEUE_TYPE_MASK)
    return position + GUID_SIZE_BYTES if flags & FLAG_CQ else position

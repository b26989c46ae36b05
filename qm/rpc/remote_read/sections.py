"""A stored packet as the sections of an answer [MS-MQRR 2.2.5, 2.2.6].

The packet is the stored UserMessage with an absolute TimeToReachQueue, the sender's address in
place of the queue manager's identifier for direct destinations, and four headers behind it. Where
the client takes less of the body than there is, the packet is cut in two.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final

import msgspec

from qm.rpc.remote_read.interface import Section
from qm.wire.headers.base_header import FLAG_SH, FLAGS_OFFSET
from qm.wire.headers.message_properties import MESSAGE_PROPERTIES_MIN_BYTES
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.packets.peek import Head, peek_destination, peek_head, properties_offset
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES

FULL, FIRST, SECOND = 0, 1, 2
"""SectionType of binary messages."""
SUBQUEUE_NAME_SIZE_BYTES: Final = 64
ADDRESSES_KEPT_MAX: Final = 1_024
"""Senders' addresses whose octets are remembered."""
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_PACKET_SIZE_AT: Final = 8
_TIME_AT: Final = 12
_ADDRESS_AT: Final = 32
"""QueueManagerAddress of the UserHeader."""
_TIME_MAX_S: Final = 0xFFFF_FFFE
_U32_MAX: Final = 0xFFFF_FFFF
_EXTENSION: Final = Struct("<IIB3x")
_SUBQUEUE: Final = Struct("<IIIII64s64s")
_EXTENDED_ADDRESS: Final = Struct("<IHHI16s")
_OVERLAY: Final = Struct("<HHI8s")
_IPV4, _IPV6 = 1, 6
_HAS_DEAD_LETTER, _HAS_SUBQUEUE, _INVALID_DEAD_LETTER, _HAS_ADDRESS = 0x01, 0x02, 0x08, 0x10


class Trailing(msgspec.Struct, frozen=True):
    """What the headers behind the message say of where it stands."""

    subqueue: str = ""
    """Short name of the subqueue that it is in, or ""."""
    aborts: int = 0
    """How often receives and moves of it were rolled back."""
    moves: int = 0
    """How often it was moved; when it was moved last is not kept (RP-A35)."""
    dead_letter_queue: str = ""
    """Path name of the application's own dead-letter queue for it, or ""."""
    is_dead_letter_queue_valid: bool = True


def reader_packet(stored: bytes, *, address: str, trailing: Trailing | None) -> bytes:
    """Return the packet that a remote reader gets of a stored one.

    `address`: where the message came from, "" if that is unknown. `trailing`: None leaves out the
    headers that readers of Server 2003 do not know (RP-A36).
    """
    head = peek_head(stored, 0)
    packet = bytearray(stored[: head.packet_size])
    (flags,) = _U16.unpack_from(packet, FLAGS_OFFSET)
    _U16.pack_into(packet, FLAGS_OFFSET, flags & ~FLAG_SH)
    _U32.pack_into(packet, _TIME_AT, _absolute(head))
    if peek_destination(packet, 0, head)[:1] == bytes((QUEUE_TYPE_DIRECT,)):
        packet[_ADDRESS_AT : _ADDRESS_AT + _OVERLAY.size] = _overlay(address)
    if trailing is not None:
        packet += _trailing_headers(trailing, address)
    _U32.pack_into(packet, _PACKET_SIZE_AT, len(packet))
    return bytes(packet)


def _trailing_headers(told: Trailing, address: str) -> bytes:
    """Return ExtensionHeader, SubqueueHeader, DeadLetterHeader if any, ExtendedAddressHeader."""
    name = told.subqueue.encode("utf-16-le")[:SUBQUEUE_NAME_SIZE_BYTES]
    behind = _SUBQUEUE.pack(_SUBQUEUE.size, 0, told.aborts, told.moves, 0, name, b"")
    flags = _HAS_SUBQUEUE | _HAS_ADDRESS
    if told.dead_letter_queue:
        behind += _dead_letter(told.dead_letter_queue)
        flags |= _HAS_DEAD_LETTER
        flags |= 0 if told.is_dead_letter_queue_valid else _INVALID_DEAD_LETTER
    behind += _extended_address(address)
    return _EXTENSION.pack(_EXTENSION.size, len(behind), flags) + behind


def _dead_letter(path: str) -> bytes:
    text = path.encode("utf-16-le") + bytes(WCHAR_SIZE_BYTES)
    text += bytes(-len(text) % 4)
    return _U32.pack(_U32.size + len(text)) + text


def _absolute(head: Head) -> int:
    """Return SentTime + TimeToReachQueue; infinite stays what it is (RP-A37)."""
    if head.time_to_reach_queue == TIME_INFINITE_S:
        return TIME_INFINITE_S
    return min(head.sent_time + head.time_to_reach_queue, _TIME_MAX_S)


def _overlay(address: str) -> bytes:
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return _OVERLAY.pack(16, _IPV6, _scope(parsed), parsed.packed[:8])
    return _OVERLAY.pack(4, _IPV4, 0, b"" if parsed is None else parsed.packed)


def _extended_address(address: str) -> bytes:
    size, parsed = _EXTENDED_ADDRESS.size, _parsed(address)
    if parsed is None:
        return _EXTENDED_ADDRESS.pack(size, 0, 0, 0, b"")
    if isinstance(parsed, IPv4Address):
        return _EXTENDED_ADDRESS.pack(size, 4, _IPV4, 0, parsed.packed)
    return _EXTENDED_ADDRESS.pack(size, 16, _IPV6, _scope(parsed), parsed.packed)


def _scope(address: IPv6Address) -> int:
    """Return the number of an address's zone; one that has a name alone is not told."""
    zone = address.scope_id or ""
    return int(zone) & _U32_MAX if zone.isdecimal() else 0


@lru_cache(ADDRESSES_KEPT_MAX)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None


def sections_of(packet: bytes, body_max: int) -> list[Section]:
    """Return the sections of a packet for a reader that takes `body_max` bytes of the body."""
    start, size = body_place(packet)
    if size <= body_max:
        return [Section(FULL, len(packet), len(packet), packet)]
    first, rest = packet[: start + body_max], packet[start + size :]
    found = [Section(FIRST, start + size, len(first), first)]
    if rest:
        found.append(Section(SECOND, len(rest), len(rest), rest))
    return found


def body_place(packet: bytes) -> tuple[int, int]:
    """Return where the body of a user packet begins, and its bytes."""
    at = properties_offset(packet, 0, peek_head(packet, 0))
    label_chars = packet[at + 1]
    (size,) = _U32.unpack_from(packet, at + 32)
    (extension,) = _U32.unpack_from(packet, at + MESSAGE_PROPERTIES_MIN_BYTES - 4)
    start = at + MESSAGE_PROPERTIES_MIN_BYTES + label_chars * WCHAR_SIZE_BYTES + extension
    return start, size

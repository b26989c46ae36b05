"""Ping: a datagram that asks whether a session would be accepted [MS-MQQB 2.2.7]."""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.packing import guid_bytes, pack_fields

SECTION: Final = "MS-MQQB 2.2.7"
PING_SIGNATURE: Final = 0x5548
FLAG_RC: Final = 0x0001
FLAG_RF: Final = 0x0002
UNUSED_SHIFT: Final = 2
_UNUSED_MAX: Final = 0x3FFF

_LAYOUT: Final = Struct("<HHI16s")


class Ping(msgspec.Struct, frozen=True, gc=False):
    """Request or response; both have one layout."""

    cookie: int
    """Correlates a response with its request, u32."""
    qm_guid: Guid
    """The queue manager that made the packet, 16 raw bytes."""
    is_client_class: bool = False
    """Flags.RC: the initiator does not run a server-class system; the response repeats it."""
    is_refused: bool = False
    """Flags.RF: a session would be refused; clear in a request."""
    unused_flags: int = 0
    """The 14 bits above, which may hold anything."""


def parse_ping(buffer: Buffer, offset: int, end: int) -> tuple[Ping, int]:
    """Read and check 24 bytes; refusing a longer datagram is left to the caller."""
    after = offset + _LAYOUT.size
    if after > end:
        raise truncated(offset, _LAYOUT.size, end, "Ping", SECTION)
    flags, signature, cookie, qm_guid = _LAYOUT.unpack_from(buffer, offset)
    if signature != PING_SIGNATURE:
        raise ProtocolError(
            offset + 2,
            "Ping.Signature",
            SECTION,
            f"0x{signature:04X} instead of 0x{PING_SIGNATURE:04X}",
        )
    ping = Ping(
        cookie, qm_guid, bool(flags & FLAG_RC), bool(flags & FLAG_RF), flags >> UNUSED_SHIFT
    )
    return ping, after


def write_ping(ping: Ping) -> bytes:
    """Return 24 bytes."""
    if not 0 <= ping.unused_flags <= _UNUSED_MAX:
        raise ValueOutOfRange("Ping.Flags", SECTION, f"{ping.unused_flags} is wider than 14 bits")
    flags = (
        ping.unused_flags << UNUSED_SHIFT
        | (FLAG_RC if ping.is_client_class else 0)
        | (FLAG_RF if ping.is_refused else 0)
    )
    qm_guid = guid_bytes(ping.qm_guid, "Ping.QMGuid", SECTION)
    return pack_fields(_LAYOUT, "Ping", SECTION, flags, PING_SIGNATURE, ping.cookie, qm_guid)

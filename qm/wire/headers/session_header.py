"""SessionHeader: what a session has received, persisted and sent so far [MS-MQMQ 2.2.20.4]."""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.limits import RECOVERABLE_ACK_FLAGS_COUNT, WINDOW_SIZE_DEFAULT, WINDOW_SIZE_MIN
from qm.wire.packing import pack_fields

SECTION: Final = "MS-MQMQ 2.2.20.4"

_LAYOUT: Final = Struct("<HHIHHHH")
SESSION_NUMBER_MODULUS: Final = 0x1_0000


class SessionHeader(msgspec.Struct, frozen=True, gc=False):
    """Counts of UserMessages on one session; each is a u16 and wraps (MQ-A16)."""

    ack_sequence_number: int = 0
    """UserMessages received; acknowledges all up to this number."""
    recoverable_msg_ack_seq_number: int = 0
    """The recoverable number that bit 0 of the flags means; 0 when there is nothing to report."""
    recoverable_msg_ack_flags: int = 0
    """Bit k set: recoverable number base + k is persisted, k 0..31."""
    user_msg_sequence_number: int = 0
    """UserMessages sent by this side."""
    recoverable_msg_seq_number: int = 0
    """Recoverable UserMessages sent by this side."""
    window_size: int = WINDOW_SIZE_DEFAULT
    """Unacknowledged messages that this side allows, 1..0xFFFF."""
    reserved: int = 0
    """Any u16 is accepted."""

    def acknowledged_recoverable_numbers(self) -> tuple[int, ...]:
        """Return the recoverable numbers that base and flags name, in order."""
        base = self.recoverable_msg_ack_seq_number
        return tuple(
            (base + bit) % SESSION_NUMBER_MODULUS
            for bit in range(RECOVERABLE_ACK_FLAGS_COUNT)
            if self.recoverable_msg_ack_flags >> bit & 1
        )


def parse_session_header(buffer: Buffer, offset: int, end: int) -> tuple[SessionHeader, int]:
    """Read and check 16 bytes."""
    after = offset + _LAYOUT.size
    if after > end:
        raise truncated(offset, _LAYOUT.size, end, "SessionHeader", SECTION)
    header = SessionHeader(*_LAYOUT.unpack_from(buffer, offset))
    if header.window_size < WINDOW_SIZE_MIN:
        raise ProtocolError(
            offset + 12, "SessionHeader.WindowSize", SECTION, "0, the smallest window is 1"
        )
    return header, after


def write_session_header(header: SessionHeader) -> bytes:
    """Return 16 bytes."""
    if header.window_size < WINDOW_SIZE_MIN:
        raise ValueOutOfRange(
            "SessionHeader.WindowSize", SECTION, f"{header.window_size}, the smallest window is 1"
        )
    return pack_fields(
        _LAYOUT,
        "SessionHeader",
        SECTION,
        header.ack_sequence_number,
        header.recoverable_msg_ack_seq_number,
        header.recoverable_msg_ack_flags,
        header.user_msg_sequence_number,
        header.recoverable_msg_seq_number,
        header.window_size,
        header.reserved,
    )

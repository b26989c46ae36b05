"""Writing for the hot path: single fields of a raw packet, in place, without building a value.

Every function takes a writable buffer and the offset of a checked user packet in it. A value too
wide for its field is a `ValueOutOfRange`, and then nothing was written.
"""

from struct import Struct, error
from typing import Final

from qm.wire.bounds import aligned
from qm.wire.errors import ValueOutOfRange
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_SH,
    FLAGS_OFFSET,
    PACKET_SIZE_OFFSET,
)
from qm.wire.headers.message_properties import (
    BODY_SIZES,
    BODY_SIZES_OFFSET,
)
from qm.wire.headers.security_header import AS_SHIFT, FLAG_AS, FLAG_EB
from qm.wire.headers.session_header import SessionHeader, write_session_header
from qm.wire.headers.transaction_header import (
    FLAG_FM,
    FLAG_LM,
    ID_SHIFT,
    SECTION,
    SEQUENCE,
    SEQUENCE_OFFSET,
    check_sequence_numbers,
)
from qm.wire.headers.user_header import MESSAGE_ID_OFFSET, SENT_TIME_OFFSET
from qm.wire.limits import TRANSACTION_ID_MAX
from qm.wire.packets.peek import (
    body_span,
    peek_head,
    properties_offset,
    security_header_offset,
    transaction_header_offset,
)
from qm.wire.structures.identifiers import TxSequenceId

WritableBuffer = bytearray | memoryview

_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_SENT_TIME: Final = BASE_HEADER_SIZE_BYTES + SENT_TIME_OFFSET
_MESSAGE_ID: Final = BASE_HEADER_SIZE_BYTES + MESSAGE_ID_OFFSET


def patch_sent_time(packet: WritableBuffer, offset: int, sent_time: int) -> None:
    """Set UserHeader.SentTime, seconds since 1970 UTC."""
    _put(_U32, packet, offset + _SENT_TIME, "UserHeader.SentTime", sent_time)


def patch_message_id(packet: WritableBuffer, offset: int, message_id: int) -> None:
    """Set UserHeader.MessageID."""
    _put(_U32, packet, offset + _MESSAGE_ID, "UserHeader.MessageID", message_id)


def patch_sequence(
    packet: WritableBuffer,
    offset: int,
    tx_sequence_id: TxSequenceId,
    tx_sequence_number: int,
    previous_tx_sequence_number: int,
) -> None:
    """Set the three sequence fields of TransactionHeader; the packet must have one."""
    check_sequence_numbers(tx_sequence_number, previous_tx_sequence_number)
    at = transaction_header_offset(packet, offset, peek_head(packet, offset)) + SEQUENCE_OFFSET
    _put(
        SEQUENCE,
        packet,
        at,
        "TransactionHeader",
        tx_sequence_id.to_int(),
        tx_sequence_number,
        previous_tx_sequence_number,
    )


def patch_transaction(
    packet: WritableBuffer, offset: int, *, transaction_id: int, is_first: bool, is_last: bool
) -> None:
    """Set Flags.ID, FM and LM of TransactionHeader; the packet must have one."""
    if not 0 <= transaction_id <= TRANSACTION_ID_MAX:
        raise ValueOutOfRange(
            "TransactionHeader.Flags.ID", SECTION, f"{transaction_id} exceeds {TRANSACTION_ID_MAX}"
        )
    at = transaction_header_offset(packet, offset, peek_head(packet, offset))
    (flags,) = _U32.unpack_from(packet, at)
    flags &= ~(TRANSACTION_ID_MAX << ID_SHIFT | FLAG_FM | FLAG_LM)
    flags |= transaction_id << ID_SHIFT
    flags |= (FLAG_FM if is_first else 0) | (FLAG_LM if is_last else 0)
    _U32.pack_into(packet, at, flags)


def patch_signature_version(packet: WritableBuffer, version: int) -> None:
    """Set SecurityHeader.Flags.AS of the packet, which must have that header."""
    at = security_header_offset(packet, 0, peek_head(packet, 0))
    (flags,) = _U16.unpack_from(packet, at)
    _U16.pack_into(packet, at, flags & ~FLAG_AS | version << AS_SHIFT)


def in_clear(packet: bytes, body: bytes) -> bytes:
    """Return a packet with its body decrypted: sizes follow, Flags.EB is unset, the rest stays.

    The packet must have a SecurityHeader, and no AllocationBodySize beyond its MessageSize.
    """
    head = peek_head(packet, 0)
    security, at = security_header_offset(packet, 0, head), properties_offset(packet, 0, head)
    start, end = body_span(packet, at)
    before, after = aligned(end - at), aligned(start + len(body) - at)
    padding = bytes(at + after - start - len(body))
    clear = bytearray(b"".join((packet[:start], body, padding, packet[at + before :])))
    _U32.pack_into(clear, PACKET_SIZE_OFFSET, head.packet_size + after - before)
    BODY_SIZES.pack_into(clear, at + BODY_SIZES_OFFSET, len(body), len(body))
    (flags,) = _U16.unpack_from(clear, security)
    _U16.pack_into(clear, security, flags & ~FLAG_EB)
    return bytes(clear)


def attach_session_header(packet: bytearray, header: SessionHeader) -> None:
    """Append a SessionHeader to the one packet that `packet` holds, or replace its present one.

    PacketSize does not count it (QB-A17), so only Flags.SH changes.
    """
    encoded = write_session_header(header)
    packet[_packet_size(packet) :] = encoded
    packet[FLAGS_OFFSET] |= FLAG_SH


def detach_session_header(packet: bytearray) -> None:
    """Remove the SessionHeader of the one packet that `packet` holds, if it has one."""
    del packet[_packet_size(packet) :]
    packet[FLAGS_OFFSET] &= ~FLAG_SH


def _packet_size(packet: bytearray) -> int:
    return int(_U32.unpack_from(packet, PACKET_SIZE_OFFSET)[0])


def _put(layout: Struct, packet: WritableBuffer, at: int, field: str, *values: int) -> None:
    try:
        # Packed first: pack_into would leave the fields before the misfit changed.
        packet[at : at + layout.size] = layout.pack(*values)
    except error as overflow:
        section = "MS-MQMQ 2.2.20.5" if layout is SEQUENCE else "MS-MQMQ 2.2.19.2"
        raise ValueOutOfRange(field, section, f"{overflow}: {list(values)}") from None

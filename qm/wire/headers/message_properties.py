"""MessagePropertiesHeader: a message's properties and body [MS-MQMQ 2.2.19.3]."""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, aligned, take, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.limits import (
    CORRELATION_ID_SIZE_BYTES,
    LABEL_LENGTH_MAX_CHARS,
    PACKET_SIZE_MAX_BYTES,
)
from qm.wire.message_class import MessageClass
from qm.wire.packing import pack_fields
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES, parse_wide_text, write_wide_text

SECTION: Final = "MS-MQMQ 2.2.19.3"
ACKNOWLEDGE_MASK: Final = 0x0F
HASH_ALGORITHM_DEFAULT: Final = 0x0000_800E
ENCRYPTION_ALGORITHM_DEFAULT: Final = 0x0000_6610

_LAYOUT: Final = Struct("<BBH20sIIIIIIII")
MESSAGE_PROPERTIES_MIN_BYTES: Final = _LAYOUT.size
PROPERTIES_SIZES: Final = Struct("<xB30xI16xI")
"""LabelLength, MessageSize and ExtensionSize, from the header's start."""
BODY_SIZES_OFFSET: Final = 32
BODY_SIZES: Final = Struct("<II")
"""MessageSize, AllocationBodySize."""
PRIVACY_LEVEL_OFFSET: Final = 40
PRIVACY_LEVEL: Final = Struct("<I")


class MessagePropertiesHeader(msgspec.Struct, frozen=True, gc=False):
    """Properties and body; the unused bits of Flags are ignored."""

    message_body: bytes = b""
    """The payload, ciphertext when SecurityHeader says so; its length is MessageSize."""
    label: str | None = None
    """At most 249 WCHARs; None is a LabelLength of 0, "" one of 1 (the NUL)."""
    message_class: int = MessageClass.NORMAL
    """u16; see `qm.wire.message_class`."""
    flags: int = 0
    """The acknowledgments wanted, bits of `AcknowledgeFlags`, 0..0x0F."""
    correlation_id: bytes = bytes(CORRELATION_ID_SIZE_BYTES)
    """20 bytes: an application's, or in an acknowledgment the MessageIdentifier it is about."""
    body_type: int = 0
    """A PROPVARIANT type for the application; any u32 is kept (MQ-A10)."""
    application_tag: int = 0
    """An application's u32."""
    allocation_surplus_bytes: int = 0
    """AllocationBodySize less MessageSize (MQ-A11); the sum is at most 4 MiB (MQ-A40)."""
    privacy_level: int = 0
    """0 clear, 1 40-bit, 3 128-bit, 5 AES; the decrypting side refuses any other value."""
    hash_algorithm: int = HASH_ALGORITHM_DEFAULT
    """Hash of the signature, if there is one; SHA-512 by default."""
    encryption_algorithm: int = ENCRYPTION_ALGORITHM_DEFAULT
    """Cipher of the body, if it is encrypted; AES-256 by default."""
    extension_data: bytes = b""
    """An application's bytes."""


def parse_message_properties_header(
    buffer: Buffer, offset: int, end: int, *, is_laid_out_by_allocation: bool = False
) -> tuple[MessagePropertiesHeader, int]:
    """Read and check the header; the next offset is 4-aligned from `offset`.

    MQ-A11: the body takes MessageSize bytes. `is_laid_out_by_allocation` reads the other layout, in
    which the space for the body is AllocationBodySize.
    """
    position = offset + _LAYOUT.size
    if position > end:
        raise truncated(offset, _LAYOUT.size, end, "MessagePropertiesHeader", SECTION)
    (
        flags,
        label_length,
        message_class,
        correlation_id,
        body_type,
        application_tag,
        message_size,
        allocation_body_size,
        privacy_level,
        hash_algorithm,
        encryption_algorithm,
        extension_size,
    ) = _LAYOUT.unpack_from(buffer, offset)
    room = allocation_body_size if is_laid_out_by_allocation else message_size
    extension_start = position + label_length * WCHAR_SIZE_BYTES
    body_start = extension_start + extension_size
    after = offset + aligned(body_start + room - offset)
    if (
        label_length > LABEL_LENGTH_MAX_CHARS
        or not message_size <= allocation_body_size <= PACKET_SIZE_MAX_BYTES
        or after > end
    ):
        raise _misfit(offset, end, label_length, message_size, allocation_body_size, extension_size)
    label = None
    if label_length:
        label = parse_wide_text(
            buffer, position, extension_start, "MessagePropertiesHeader.Label", SECTION
        )
    header = MessagePropertiesHeader(
        take(buffer, body_start, body_start + message_size),
        label,
        message_class,
        flags & ACKNOWLEDGE_MASK,
        correlation_id,
        body_type,
        application_tag,
        allocation_body_size - message_size,
        privacy_level,
        hash_algorithm,
        encryption_algorithm,
        take(buffer, extension_start, body_start) if extension_size else b"",
    )
    return header, after


def write_message_properties_header(header: MessagePropertiesHeader) -> bytes:
    """Return the header, padded to 4 bytes with zeros; the body takes MessageSize bytes."""
    return b"".join(message_properties_parts(header))


def message_properties_parts(header: MessagePropertiesHeader) -> tuple[bytes, ...]:
    """Return what `write_message_properties_header` joins, so that the body is copied only once."""
    label = b""
    if header.label is not None:
        label = write_wide_text(header.label, "MessagePropertiesHeader.Label", SECTION)
    label_length = len(label) // WCHAR_SIZE_BYTES
    if label_length > LABEL_LENGTH_MAX_CHARS:
        raise _value_error("Label", f"{label_length} WCHARs, at most {LABEL_LENGTH_MAX_CHARS}")
    if not 0 <= header.flags <= ACKNOWLEDGE_MASK:
        raise _value_error("Flags", f"{header.flags} is not 0 to {ACKNOWLEDGE_MASK}")
    if len(header.correlation_id) != CORRELATION_ID_SIZE_BYTES:
        raise _value_error("CorrelationID", f"{len(header.correlation_id)} bytes instead of 20")
    message_size = len(header.message_body)
    allocation_body_size = message_size + header.allocation_surplus_bytes
    if not message_size <= allocation_body_size <= PACKET_SIZE_MAX_BYTES:
        raise _value_error(
            "AllocationBodySize", f"{allocation_body_size} bytes, at most {PACKET_SIZE_MAX_BYTES}"
        )
    fixed = pack_fields(
        _LAYOUT,
        "MessagePropertiesHeader",
        SECTION,
        header.flags,
        label_length,
        header.message_class,
        header.correlation_id,
        header.body_type,
        header.application_tag,
        message_size,
        allocation_body_size,
        header.privacy_level,
        header.hash_algorithm,
        header.encryption_algorithm,
        len(header.extension_data),
    )
    size = len(fixed) + len(label) + len(header.extension_data) + message_size
    padding = bytes(aligned(size) - size)
    return fixed, label, header.extension_data, header.message_body, padding


def _misfit(
    offset: int, end: int, label_length: int, message_size: int, allocation: int, extension: int
) -> ProtocolError:
    """Return an error that names the impossible size."""
    extension_start = offset + _LAYOUT.size + label_length * WCHAR_SIZE_BYTES
    extension_room = max(end - extension_start, 0)
    if label_length > LABEL_LENGTH_MAX_CHARS:
        at, name, reason = 1, "LabelLength", f"{label_length}, at most {LABEL_LENGTH_MAX_CHARS}"
    elif not message_size <= allocation <= PACKET_SIZE_MAX_BYTES:
        at, name = 36, "AllocationBodySize"
        reason = f"{allocation} is not {message_size} (MessageSize) to {PACKET_SIZE_MAX_BYTES}"
    elif extension > extension_room:
        at, name, reason = 52, "ExtensionSize", f"{extension}, at most {extension_room} fit"
    else:
        at, name = 32, "MessageSize"
        reason = f"{message_size} and padding, at most {extension_room - extension} fit"
    return ProtocolError(offset + at, f"MessagePropertiesHeader.{name}", SECTION, reason)


def _value_error(name: str, reason: str) -> ValueOutOfRange:
    return ValueOutOfRange(f"MessagePropertiesHeader.{name}", SECTION, reason)

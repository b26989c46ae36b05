"""SecurityHeader: sender, keys and signature of a message [MS-MQMQ 2.2.20.6].

This module knows only the layout; qm/security interprets the bytes.
"""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, aligned, take, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.limits import SENDER_CERT_MAX_BYTES
from qm.wire.packing import pack_fields
from qm.wire.structures.wide_text import parse_wide_text, write_wide_text

SECTION: Final = "MS-MQMQ 2.2.20.6"

FLAG_ST: Final = 0x000F
FLAG_EB: Final = 0x0020
FLAG_DE: Final = 0x0040
FLAG_AI: Final = 0x0080
FLAG_AS: Final = 0x0F00
AS_SHIFT: Final = 8

SENDER_ID_NONE: Final = 0
SENDER_ID_SID: Final = 1
SENDER_ID_QUEUE_MANAGER: Final = 2

_LAYOUT: Final = Struct("<HHHHII")
SECURITY_HEADER_MIN_BYTES: Final = _LAYOUT.size
_PROVIDER_TYPE: Final = Struct("<I")
_ITEMS: Final = ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo")


class SecurityHeader(msgspec.Struct, frozen=True, gc=False):
    """At least one item has bytes.

    Only the sizes tell what is present (MQ-A8, MQ-A34). AU and AS are zero when sent; they, AI and
    the unused bits are ignored when read. In a packet whose signature was verified here, AS says
    what it covers (`qm.wire.packets.peek.peek_signature_version`).
    """

    sender_id_type: int = SENDER_ID_NONE
    """Flags.ST: 0 no sender id, 1 a SID, 2 a queue manager's GUID."""
    is_body_encrypted: bool = False
    """Flags.EB."""
    is_default_provider: bool = False
    """Flags.DE: the default cryptographic provider made the signature."""
    security_id: bytes = b""
    """SID or GUID, at most 0xFFFF bytes."""
    encryption_key: bytes = b""
    """The message's symmetric key, itself encrypted, at most 0xFFFF bytes."""
    signature: bytes = b""
    """At most 0xFFFF bytes."""
    sender_cert: bytes = b""
    """The sender's X.509 certificate, at most 0xFFFF bytes."""
    provider_info: bytes = b""
    """The alternative provider, see `ProviderInfo`."""


class ProviderInfo(msgspec.Struct, frozen=True, gc=False):
    """SecurityData.ProviderInfo: the alternative provider that made the signature."""

    provider_type: int
    """u32."""
    provider_name: str
    """Without its NUL."""


def parse_security_header(buffer: Buffer, offset: int, end: int) -> tuple[SecurityHeader, int]:
    """Read and check the header and its items; the next offset is 4-aligned from `offset`."""
    position = offset + _LAYOUT.size
    if position > end:
        raise truncated(offset, _LAYOUT.size, end, "SecurityHeader", SECTION)
    flags, *sizes = _LAYOUT.unpack_from(buffer, offset)
    sender_id_type = flags & FLAG_ST
    _check_sizes(offset, sender_id_type, sizes)
    items = []
    for name, size in zip(_ITEMS, sizes, strict=True):
        if not size:
            items.append(b"")
            continue
        start, position = position, position + aligned(size)
        if position > end:
            raise truncated(start, aligned(size), end, f"SecurityHeader.{name}", SECTION)
        items.append(take(buffer, start, start + size))
    header = SecurityHeader(sender_id_type, bool(flags & FLAG_EB), bool(flags & FLAG_DE), *items)
    return header, position


def security_header_size(buffer: Buffer, offset: int) -> int:
    """Return how many bytes the header at `offset` of a checked packet takes, items included."""
    sizes = _LAYOUT.unpack_from(buffer, offset)[1:]
    return _LAYOUT.size + sum(map(aligned, sizes))


def write_security_header(header: SecurityHeader) -> bytes:
    """Return the header and its items, each padded to 4 bytes."""
    items = (
        header.security_id,
        header.encryption_key,
        header.signature,
        header.sender_cert,
        header.provider_info,
    )
    try:
        _check_sizes(0, header.sender_id_type, [len(item) for item in items])
    except ProtocolError as misfit:
        raise ValueOutOfRange(misfit.field, misfit.section, misfit.reason) from None
    # MQ-A8: AI marks authentication data; a sender id by itself does not set it.
    has_authentication = header.encryption_key or header.signature or header.sender_cert
    flags = (
        header.sender_id_type
        | (FLAG_EB if header.is_body_encrypted else 0)
        | (FLAG_DE if header.is_default_provider else 0)
        | (FLAG_AI if has_authentication else 0)
    )
    fixed = pack_fields(_LAYOUT, "SecurityHeader", SECTION, flags, *map(len, items))
    padded = (item + bytes(aligned(len(item)) - len(item)) for item in items)
    return fixed + b"".join(padded)


def parse_provider_info(buffer: Buffer, offset: int, end: int) -> tuple[ProviderInfo, int]:
    """Read ProviderType and the ProviderName that fills the rest of the item."""
    start = offset + _PROVIDER_TYPE.size
    field = "SecurityHeader.ProviderInfo"
    if start > end:
        raise truncated(offset, _PROVIDER_TYPE.size, end, field, SECTION)
    (provider_type,) = _PROVIDER_TYPE.unpack_from(buffer, offset)
    name = parse_wide_text(buffer, start, end, f"{field}.ProviderName", SECTION)
    return ProviderInfo(provider_type, name), end


def write_provider_info(info: ProviderInfo) -> bytes:
    """Return the bytes for `SecurityHeader.provider_info`."""
    field = "SecurityHeader.ProviderInfo"
    fixed = pack_fields(_PROVIDER_TYPE, f"{field}.ProviderType", SECTION, info.provider_type)
    return fixed + write_wide_text(info.provider_name, f"{field}.ProviderName", SECTION)


def _check_sizes(offset: int, sender_id_type: int, sizes: list[int]) -> None:
    if sender_id_type > SENDER_ID_QUEUE_MANAGER:
        raise ProtocolError(
            offset, "SecurityHeader.Flags.ST", SECTION, f"{sender_id_type}, only 0, 1 and 2 exist"
        )
    if sender_id_type == SENDER_ID_NONE and sizes[0]:
        raise ProtocolError(
            offset + 2, "SecurityHeader.SenderIdSize", SECTION, f"{sizes[0]} bytes, but ST is 0"
        )
    if sizes[3] > SENDER_CERT_MAX_BYTES:
        raise ProtocolError(
            offset + 8,
            "SecurityHeader.SenderCertSize",
            SECTION,
            f"{sizes[3]} bytes, at most {SENDER_CERT_MAX_BYTES}",
        )
    if not any(sizes):
        raise ProtocolError(
            offset + 2, "SecurityHeader.SenderIdSize", SECTION, "all five sizes are zero"
        )

"""SoapHeader: two application texts that came with a message over HTTP [MS-MQMQ 2.2.20.7]."""

from struct import Struct
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, aligned, truncated
from qm.wire.errors import ProtocolError
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES, parse_wide_text, write_wide_text

SECTION: Final = "MS-MQMQ 2.2.20.7"
HEADER_SECTION_ID: Final = 0x0320
BODY_SECTION_ID: Final = 0x0384

_SECTION_START: Final = Struct("<HHI")


class SoapHeader(msgspec.Struct, frozen=True, gc=False):
    """Reserved fields are ignored. None is a length of zero, "" a text of one NUL."""

    header: str | None = None
    """The Header text."""
    body: str | None = None
    """The Body text."""


def parse_soap_header(buffer: Buffer, offset: int, end: int) -> tuple[SoapHeader, int]:
    """Read both sections; the next offset is 4-aligned from `offset`."""
    header, position = _parse_section(buffer, offset, end, HEADER_SECTION_ID, "Header")
    # MQ-A13: the body section follows at once, or on the next 4-byte boundary.
    if not _has_section(buffer, position, end, BODY_SECTION_ID):
        padded = offset + aligned(position - offset)
        if _has_section(buffer, padded, end, BODY_SECTION_ID):
            position = padded
    body, position = _parse_section(buffer, position, end, BODY_SECTION_ID, "Body")
    after = offset + aligned(position - offset)
    if after > end:
        raise truncated(position, after - position, end, "SoapHeader", SECTION)
    return SoapHeader(header, body), after


def write_soap_header(header: SoapHeader) -> bytes:
    """Return both sections without padding between them, padded to 4 bytes at the end."""
    encoded = _write_section(HEADER_SECTION_ID, header.header, "Header") + _write_section(
        BODY_SECTION_ID, header.body, "Body"
    )
    return encoded + bytes(aligned(len(encoded)) - len(encoded))


def _has_section(buffer: Buffer, offset: int, end: int, section_id: int) -> bool:
    return (
        offset + _SECTION_START.size <= end
        and _SECTION_START.unpack_from(buffer, offset)[0] == section_id
    )


def _parse_section(
    buffer: Buffer, offset: int, end: int, section_id: int, name: str
) -> tuple[str | None, int]:
    start = offset + _SECTION_START.size
    if start > end:
        raise truncated(offset, _SECTION_START.size, end, f"SoapHeader.{name}", SECTION)
    found, _, length = _SECTION_START.unpack_from(buffer, offset)
    if found != section_id:
        raise ProtocolError(
            offset,
            f"SoapHeader.{name}SectionID",
            SECTION,
            f"0x{found:04X} instead of 0x{section_id:04X}",
        )
    if not length:
        return None, start
    stop = start + length * WCHAR_SIZE_BYTES
    if stop > end:
        raise ProtocolError(
            offset + 4,
            f"SoapHeader.{name}DataLength",
            SECTION,
            f"{length} WCHARs, {end - start} bytes are left",
        )
    return parse_wide_text(buffer, start, stop, f"SoapHeader.{name}", SECTION), stop


def _write_section(section_id: int, text: str | None, name: str) -> bytes:
    if text is None:
        return _SECTION_START.pack(section_id, 0, 0)
    encoded = write_wide_text(text, f"SoapHeader.{name}", SECTION)
    return _SECTION_START.pack(section_id, 0, len(encoded) // WCHAR_SIZE_BYTES) + encoded

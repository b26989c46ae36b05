"""GUIDs as they cross the wire: 16 raw bytes in packet order (MS-DTYP 2.3.4.2, MS-MQMQ 2.2.18.1.1).

The codec never swaps them: Data1..Data3 are little-endian in the bytes and only text shows them
as numbers. Section 4 of MS-MQQB prints its GUIDs fully reversed; the bytes are what counts.
"""

from typing import Final
from uuid import UUID

from qm.wire.errors import ValueOutOfRange

Guid = bytes
"""16 raw bytes in MS-DTYP packet order."""

GUID_SIZE_BYTES: Final = 16
GUID_NULL: Final[Guid] = bytes(GUID_SIZE_BYTES)

_TEXT_LENGTH_CHARS: Final = 36
_HYPHENS: Final = (8, 13, 18, 23)


def guid_text(raw: Guid) -> str:
    """Return the 36-character upper-case text of 16 raw bytes, without braces."""
    if len(raw) != GUID_SIZE_BYTES:
        raise ValueOutOfRange("GUID", "MS-DTYP 2.3.4.2", f"{len(raw)} bytes; a GUID has 16")
    return str(UUID(bytes_le=bytes(raw))).upper()


def guid_from_text(text: str) -> Guid:
    """Return the 16 raw bytes of a 36-character text in either case, without braces."""
    digits = text.replace("-", "")
    well_formed = (
        len(text) == _TEXT_LENGTH_CHARS
        and text.isascii()
        and all(text[at] == "-" for at in _HYPHENS)
        and len(digits) == 2 * GUID_SIZE_BYTES
        and all(digit in "0123456789abcdefABCDEF" for digit in digits)
    )
    if not well_formed:
        raise ValueOutOfRange(
            "GUID", "MS-DTYP 2.3.4.3", f"{text[:64]!r} is not 8-4-4-4-12 hexadecimal digits"
        )
    return UUID(hex=digits).bytes_le

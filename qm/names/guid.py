"""GUIDs as text [MS-DTYP 2.3.4.3, MS-MQMQ 2.1.3]: 8-4-4-4-12 hexadecimal digits, no braces.

Values hold the 16 raw bytes in MS-DTYP packet order, the same bytes that packets carry.
"""

import re
from typing import Final
from uuid import UUID

GUID_SIZE_BYTES: Final = 16
GUID_TEXT_LENGTH_CHARS: Final = 36

_TEXT: Final = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", re.ASCII | re.IGNORECASE)


def guid_text(raw: bytes) -> str:
    """Return the upper-case text of 16 raw bytes; another size is a `ValueError`."""
    return str(UUID(bytes_le=bytes(raw))).upper()


def guid_from_text(text: str) -> bytes | None:
    """Return the 16 raw bytes of a text in either case; None when it is not a GUID's."""
    return UUID(hex=text).bytes_le if _TEXT.fullmatch(text) else None

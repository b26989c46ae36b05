"""GUID text in format names [MS-MQMQ 2.1.3]: 8-4-4-4-12 hexadecimal digits, no braces.

Values hold the 16 raw bytes in MS-DTYP packet order, the same bytes that packets carry.
"""

import re
from typing import Final

GUID_SIZE_BYTES: Final = 16
GUID_TEXT_LENGTH_CHARS: Final = 36

_TEXT: Final = re.compile(
    r"([0-9A-F]{8})-([0-9A-F]{4})-([0-9A-F]{4})-([0-9A-F]{4})-([0-9A-F]{12})",
    re.ASCII | re.IGNORECASE,
)


def guid_text(raw: bytes) -> str:
    """Return the upper-case text of 16 raw bytes; another size is a `ValueError`."""
    if len(raw) != GUID_SIZE_BYTES:
        raise ValueError(f"{len(raw)} bytes; a GUID has {GUID_SIZE_BYTES}")
    swapped = _swap(bytes(raw)).hex().upper()
    return "-".join((swapped[:8], swapped[8:12], swapped[12:16], swapped[16:20], swapped[20:]))


def guid_from_text(text: str) -> bytes | None:
    """Return the 16 raw bytes of a text in either case; None when it is not a GUID's."""
    match = _TEXT.fullmatch(text)
    return None if match is None else _swap(bytes.fromhex("".join(match.groups())))


def _swap(raw: bytes) -> bytes:
    """Exchange packet order and text order: Data1, Data2 and Data3 are little-endian in packets."""
    return raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]

"""The little of DER that SPNEGO needs: definite lengths, nothing behind a value."""

from collections.abc import Iterator
from typing import Final

from qm.rpc.security.provider import SecurityRefused

SEQUENCE: Final = 0x30
OCTETS: Final = 0x04
OID: Final = 0x06
ENUMERATED: Final = 0x0A
_LENGTH_MAX_BYTES: Final = 3


def read(raw: bytes, tag: int) -> bytes:
    """Return the content of the only value in `raw`, which has this tag. Raises SecurityRefused."""
    found, content, end = _take(raw, 0)
    if found != tag or end != len(raw):
        raise SecurityRefused(f"DER tag {found:02X} of {end} bytes where {tag:02X} was expected")
    return content


def items(raw: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, whole encoding) of the values in `raw`. Raises SecurityRefused."""
    at = 0
    while at < len(raw):
        tag, content, end = _take(raw, at)
        yield tag, content, raw[at:end]
        at = end


def write(tag: int, *parts: bytes) -> bytes:
    """Return a value."""
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def _take(raw: bytes, at: int) -> tuple[int, bytes, int]:
    if at + 2 > len(raw):
        raise SecurityRefused("a DER value that ends before its length")
    tag, length = raw[at], raw[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= _LENGTH_MAX_BYTES or at + size > len(raw):
            raise SecurityRefused("a DER length that is indefinite or too long")
        length = int.from_bytes(raw[at : at + size], "big")
        at += size
    if at + length > len(raw):
        raise SecurityRefused("a DER value that ends before its length says")
    return tag, raw[at : at + length], at + length

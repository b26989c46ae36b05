"""Counted arrays and strings as Quorate stores them: a u32 count, then the elements.

On the wire these are NDR pointers with a count beside them [MS-MQMQ 2.2.15, 2.2.16]; the pointed-to
data follows elsewhere in an RPC stub. Quorate has no RPC interface. Its storage form keeps the
count and puts the elements directly after it, little-endian and without padding:

    array    u32 number of elements, the elements
    string   u32 number of WCHARs with the NUL, the WCHARs; a count of 0 is not a string
"""

from struct import Struct
from typing import Final

from qm.wire.bounds import Buffer, take, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.limits import PACKET_SIZE_MAX_BYTES, U32_MAX
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES, parse_wide_text, write_wide_text

COUNT: Final = Struct("<I")

TEXT_MAX_CHARS: Final = PACKET_SIZE_MAX_BYTES // WCHAR_SIZE_BYTES
"""The longest counted string, NUL included: what a whole packet could hold."""


def parse_count(
    buffer: Buffer, offset: int, end: int, element_size: int, field: str, section: str
) -> tuple[int, int]:
    """Read a count and check that as many elements of `element_size` bytes or more can follow.

    Returns the count and the offset of the first element.
    """
    start = offset + COUNT.size
    if start > end:
        raise truncated(offset, COUNT.size, end, field, section)
    (count,) = COUNT.unpack_from(buffer, offset)
    if count * element_size > end - start:
        raise ProtocolError(
            offset,
            field,
            section,
            f"{count} elements need {count * element_size} bytes, {end - start} are left",
        )
    return count, start


def write_count(count: int, field: str, section: str) -> bytes:
    """Return the four bytes of a count."""
    if count > U32_MAX:
        raise ValueOutOfRange(field, section, f"{count} elements do not fit a u32 count")
    return COUNT.pack(count)


def parse_counted_bytes(
    buffer: Buffer, offset: int, end: int, field: str, section: str
) -> tuple[bytes, int]:
    """Read a BLOB or an array of bytes."""
    size, start = parse_count(buffer, offset, end, 1, field, section)
    return take(buffer, start, start + size), start + size


def write_counted_bytes(raw: bytes, field: str, section: str) -> bytes:
    """Return a BLOB or an array of bytes."""
    return write_count(len(raw), field, section) + raw


def parse_counted_text(
    buffer: Buffer,
    offset: int,
    end: int,
    field: str,
    section: str,
    max_chars: int = TEXT_MAX_CHARS,
) -> tuple[str, int]:
    """Read a NUL-terminated string of at most `max_chars` WCHARs, NUL included."""
    count, start = parse_count(buffer, offset, end, WCHAR_SIZE_BYTES, field, section)
    if count > max_chars:
        raise ProtocolError(
            offset, field, section, f"a string of {count} WCHARs; {max_chars} are allowed"
        )
    stop = start + count * WCHAR_SIZE_BYTES
    return parse_wide_text(buffer, start, stop, field, section), stop


def write_counted_text(
    text: str, field: str, section: str, max_chars: int = TEXT_MAX_CHARS
) -> bytes:
    """Return a NUL-terminated string with its count."""
    encoded = write_wide_text(text, field, section)
    count = len(encoded) // WCHAR_SIZE_BYTES
    if count > max_chars:
        raise ValueOutOfRange(
            field, section, f"a string of {count} WCHARs; {max_chars} are allowed"
        )
    return COUNT.pack(count) + encoded

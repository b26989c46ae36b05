"""NUL-terminated UTF-16 texts: labels, direct names, SOAP sections (WCHAR, MS-DTYP 2.2.60).

A WCHAR is any 16-bit unit, so an unpaired surrogate is legal and survives the round trip; Python
shows it as a lone surrogate in the `str`.
"""

from typing import Final

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError, ValueOutOfRange

WCHAR_SIZE_BYTES: Final = 2
_CODEC: Final = "utf-16-le"
_NUL: Final = b"\0\0"


def parse_wide_text(buffer: Buffer, start: int, stop: int, field: str, section: str) -> str:
    """Read the text in `buffer[start:stop]`, whose last WCHAR is its only NUL.

    The caller has checked that `stop` is inside its bounds; the length may be zero or odd.
    """
    last = stop - WCHAR_SIZE_BYTES
    if last < start or (stop - start) % WCHAR_SIZE_BYTES:
        raise ProtocolError(
            start, field, section, f"{stop - start} bytes are not a NUL-terminated WCHAR text"
        )
    if buffer[last] or buffer[last + 1]:
        raise ProtocolError(last, field, section, "the last WCHAR is not NUL")
    try:
        text = str(buffer[start:last], _CODEC, "surrogatepass")
    except UnicodeDecodeError as broken:
        raise ProtocolError(start + broken.start, field, section, broken.reason) from None
    if "\0" in text:
        raise ProtocolError(start, field, section, "a NUL inside the text")
    return text


def write_wide_text(text: str, field: str, section: str) -> bytes:
    """Return the text's WCHARs and a NUL."""
    if "\0" in text:
        raise ValueOutOfRange(field, section, "a NUL inside the text")
    encoded = text.encode(_CODEC, "surrogatepass")
    # A pair spelled as two surrogates would be read back as one character.
    if not text.isascii() and encoded.decode(_CODEC, "surrogatepass") != text:
        raise ValueOutOfRange(field, section, "a surrogate pair written as two characters")
    return encoded + _NUL

"""Security identifiers ([MS-DTYP] 2.4.2): 8 to 68 raw bytes, compared as bytes."""

import re
from struct import Struct
from typing import Final

from qm.wire.errors import ProtocolError, ValueOutOfRange

Sid = bytes
"""Raw packet form: revision, sub-authority count, 48-bit big-endian authority, u32s."""

SUB_AUTHORITIES_MAX: Final = 15
SID_SIZE_MIN_BYTES: Final = 8
SID_SIZE_MAX_BYTES: Final = SID_SIZE_MIN_BYTES + 4 * SUB_AUTHORITIES_MAX
_REVISION: Final = 1
_SECTION: Final = "MS-DTYP 2.4.2.2"
_TEXT_SECTION: Final = "MS-DTYP 2.4.2.1"
_TEXT: Final = re.compile(
    r"[Ss]-1-(0[xX][0-9A-Fa-f]{1,12}|[0-9]{1,15})((?:-[0-9]{1,10}){0,15})", re.ASCII
)
_AUTHORITY_MAX: Final = (1 << 48) - 1
_U32: Final = Struct("<I")
_DOMAIN_AUTHORITY_PREFIX: Final = bytes((0, 0, 0, 0, 0, 5)) + _U32.pack(21)
_RID_GUEST: Final = 501
_DOMAIN_SUB_AUTHORITIES: Final = 5


def parse_sid(
    buffer: bytes | bytearray | memoryview, offset: int, end: int, field: str
) -> tuple[Sid, int]:
    """Return the SID at `offset` and the offset after it."""
    if end - offset < SID_SIZE_MIN_BYTES:
        raise ProtocolError(offset, field, _SECTION, f"{end - offset} bytes left; a SID has 8")
    revision, count = buffer[offset], buffer[offset + 1]
    if revision != _REVISION:
        raise ProtocolError(offset, field, _SECTION, f"revision {revision}; must be 1")
    if count > SUB_AUTHORITIES_MAX:
        raise ProtocolError(
            offset + 1, field, _SECTION, f"{count} sub-authorities; at most {SUB_AUTHORITIES_MAX}"
        )
    after = offset + SID_SIZE_MIN_BYTES + 4 * count
    if after > end:
        raise ProtocolError(offset, field, _SECTION, f"{count} sub-authorities do not fit")
    return bytes(buffer[offset:after]), after


def sid_text(sid: Sid) -> str:
    """Return the string form S-1-... ([MS-DTYP] 2.4.2.1)."""
    parse_sid(sid, 0, len(sid), "SID")
    authority = int.from_bytes(sid[2:8], "big")
    shown = str(authority) if authority < 1 << 32 else f"0x{authority:012X}"
    rest = "".join(f"-{number}" for (number,) in _U32.iter_unpack(sid[8:]))
    return f"S-1-{shown}{rest}"


def sid_from_text(text: str) -> Sid:
    """Return the bytes of a string form."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueOutOfRange("SID", _TEXT_SECTION, f"{text[:200]!r} is not S-1-n-n...")
    authority = int(match[1], 0) if match[1][:2] in ("0x", "0X") else int(match[1])
    numbers = [int(number) for number in match[2].split("-")[1:]]
    if authority > _AUTHORITY_MAX or any(number >= 1 << 32 for number in numbers):
        raise ValueOutOfRange("SID", _TEXT_SECTION, f"a number of {text[:200]!r} is too large")
    head = bytes((_REVISION, len(numbers))) + authority.to_bytes(6, "big")
    return head + b"".join(_U32.pack(number) for number in numbers)


def is_guest(sid: Sid) -> bool:
    """Whether this is a domain's guest account ([MS-SAMR] 2.2.1.14)."""
    return (
        len(sid) == SID_SIZE_MIN_BYTES + 4 * _DOMAIN_SUB_AUTHORITIES
        and sid[2:12] == _DOMAIN_AUTHORITY_PREFIX
        and sid[-4:] == _U32.pack(_RID_GUEST)
    )


EVERYONE: Final[Sid] = sid_from_text("S-1-1-0")
OWNER_RIGHTS: Final[Sid] = sid_from_text("S-1-3-4")
ANONYMOUS: Final[Sid] = sid_from_text("S-1-5-7")
AUTHENTICATED_USERS: Final[Sid] = sid_from_text("S-1-5-11")


ADMINISTRATORS: Final[Sid] = sid_from_text("S-1-5-32-544")
"""BUILTIN\\Administrators: every admin is a member."""

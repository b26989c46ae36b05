"""Security descriptors in self-relative form ([MS-DTYP] 2.4.4 to 2.4.6).

Entries of kinds that access checks do not use are kept as bytes, so that a descriptor read from a
client is written back unchanged.
"""

from enum import IntFlag
from struct import Struct
from typing import Final

import msgspec

from qm.security.sid import Sid, parse_sid
from qm.wire.errors import ProtocolError, ValueOutOfRange

DESCRIPTOR_MAX_BYTES: Final = 64 * 1024
ACL_MAX_BYTES: Final = 0xFFFF
"""AclSize is u16 ([MS-DTYP] 2.4.5)."""

_HEADER: Final = Struct("<BBHIIII")
_ACL: Final = Struct("<BBHHH")
_ACE: Final = Struct("<BBH")
_MASK: Final = Struct("<I")
_SECTION: Final = "MS-DTYP 2.4.6"
_ACL_SECTION: Final = "MS-DTYP 2.4.5"
_REVISION: Final = 1
_ACL_REVISION: Final = 2
_ACL_REVISION_DS: Final = 4

ACE_ALLOWED: Final = 0x00
ACE_DENIED: Final = 0x01
ACE_AUDIT: Final = 0x02
INHERIT_ONLY_ACE: Final = 0x08
"""The entry applies to children only and not to access to the object itself."""


class Control(IntFlag):
    """SECURITY_DESCRIPTOR.Control, the bits that we set or read."""

    OWNER_DEFAULTED = 0x0001
    GROUP_DEFAULTED = 0x0002
    DACL_PRESENT = 0x0004
    DACL_DEFAULTED = 0x0008
    SACL_PRESENT = 0x0010
    SACL_DEFAULTED = 0x0020
    SELF_RELATIVE = 0x8000


class Ace(msgspec.Struct, frozen=True, gc=False):
    """One entry. For kinds that are only carried along, `sid` is empty and `raw` is the body."""

    kind: int
    flags: int
    mask: int
    sid: Sid
    raw: bytes = b""


class Acl(msgspec.Struct, frozen=True):
    """An ordered list of entries."""

    entries: tuple[Ace, ...]
    revision: int = _ACL_REVISION


class SecurityDescriptor(msgspec.Struct, frozen=True):
    """`dacl` None with DACL_PRESENT unset or set: no restriction at all (a NULL DACL)."""

    owner: Sid | None = None
    group: Sid | None = None
    dacl: Acl | None = None
    sacl: Acl | None = None
    control: int = 0
    """Bits beyond presence and form, kept as read."""


def parse_descriptor(data: bytes | bytearray | memoryview) -> SecurityDescriptor:
    """Return the descriptor in `data`. Raises ProtocolError for anything malformed."""
    size = len(data)
    if size > DESCRIPTOR_MAX_BYTES:
        raise ProtocolError(0, "SECURITY_DESCRIPTOR", _SECTION, f"{size} bytes; at most 65536")
    if size < _HEADER.size:
        raise ProtocolError(0, "SECURITY_DESCRIPTOR", _SECTION, f"{size} bytes; header has 20")
    revision, _, control, owner, group, sacl, dacl = _HEADER.unpack_from(data)
    if revision != _REVISION:
        raise ProtocolError(0, "Revision", _SECTION, f"{revision}; must be 1")
    if not control & Control.SELF_RELATIVE:
        raise ProtocolError(2, "Control", _SECTION, "not in self-relative form")
    return SecurityDescriptor(
        owner=_sid_at(data, owner, size, "OwnerSid"),
        group=_sid_at(data, group, size, "GroupSid"),
        dacl=_acl_at(data, dacl, size, "Dacl") if control & Control.DACL_PRESENT else None,
        sacl=_acl_at(data, sacl, size, "Sacl") if control & Control.SACL_PRESENT else None,
        control=control & ~(Control.SELF_RELATIVE | Control.DACL_PRESENT | Control.SACL_PRESENT),
    )


def write_descriptor(descriptor: SecurityDescriptor) -> bytes:
    """Return the self-relative form: header, owner, group, SACL, DACL."""
    control = descriptor.control | Control.SELF_RELATIVE
    if descriptor.dacl is not None:
        control |= Control.DACL_PRESENT
    if descriptor.sacl is not None:
        control |= Control.SACL_PRESENT
    parts: list[bytes] = []
    places: list[int] = []
    at = _HEADER.size
    for part in (
        descriptor.owner,
        descriptor.group,
        None if descriptor.sacl is None else _write_acl(descriptor.sacl),
        None if descriptor.dacl is None else _write_acl(descriptor.dacl),
    ):
        places.append(0 if part is None else at)
        if part is not None:
            parts.append(part)
            at += len(part)
    if at > DESCRIPTOR_MAX_BYTES:
        raise ValueOutOfRange("SECURITY_DESCRIPTOR", _SECTION, f"{at} bytes; at most 65536")
    return _HEADER.pack(_REVISION, 0, control, *places) + b"".join(parts)


def _sid_at(data: bytes | bytearray | memoryview, at: int, end: int, field: str) -> Sid | None:
    if at == 0:
        return None
    _check_place(at, end, field)
    return parse_sid(data, at, end, field)[0]


def _check_place(at: int, end: int, field: str) -> None:
    if at < _HEADER.size or at >= end:
        raise ProtocolError(at, field, _SECTION, f"offset {at} is outside of {end} bytes")


def _acl_at(data: bytes | bytearray | memoryview, at: int, end: int, field: str) -> Acl | None:
    if at == 0:
        return None  # present and NULL: no restriction
    _check_place(at, end, field)
    if end - at < _ACL.size:
        raise ProtocolError(at, field, _ACL_SECTION, f"{end - at} bytes left; an ACL has 8")
    revision, _, size, count, _ = _ACL.unpack_from(data, at)
    if revision not in (_ACL_REVISION, _ACL_REVISION_DS):
        raise ProtocolError(at, f"{field}.AclRevision", _ACL_SECTION, f"{revision}; 2 or 4")
    if size < _ACL.size or at + size > end:
        raise ProtocolError(at + 2, f"{field}.AclSize", _ACL_SECTION, f"{size} does not fit")
    entries = []
    place, limit = at + _ACL.size, at + size
    for _ in range(count):
        entry, place = _parse_ace(data, place, limit, field)
        entries.append(entry)
    return Acl(tuple(entries), revision)


def _parse_ace(
    data: bytes | bytearray | memoryview, at: int, end: int, field: str
) -> tuple[Ace, int]:
    if end - at < _ACE.size:
        raise ProtocolError(at, f"{field}.Ace", "MS-DTYP 2.4.4.1", "header does not fit")
    kind, flags, size = _ACE.unpack_from(data, at)
    if size < _ACE.size or at + size > end:
        raise ProtocolError(at + 2, f"{field}.AceSize", "MS-DTYP 2.4.4.1", f"{size} does not fit")
    after = at + size
    if kind not in (ACE_ALLOWED, ACE_DENIED, ACE_AUDIT):
        return Ace(kind, flags, 0, b"", bytes(data[at + _ACE.size : after])), after
    if size < _ACE.size + _MASK.size:
        raise ProtocolError(at, f"{field}.Ace.Mask", "MS-DTYP 2.4.4.2", "mask does not fit")
    (mask,) = _MASK.unpack_from(data, at + _ACE.size)
    sid, behind = parse_sid(data, at + _ACE.size + _MASK.size, after, f"{field}.Ace.Sid")
    return Ace(kind, flags, mask, sid, bytes(data[behind:after])), after


def _write_acl(acl: Acl) -> bytes:
    body = b"".join(_write_ace(entry) for entry in acl.entries)
    size = _ACL.size + len(body)
    if size > ACL_MAX_BYTES:
        raise ValueOutOfRange("ACL", _ACL_SECTION, f"{size} bytes; at most {ACL_MAX_BYTES}")
    return _ACL.pack(acl.revision, 0, size, len(acl.entries), 0) + body


def _write_ace(entry: Ace) -> bytes:
    if entry.kind in (ACE_ALLOWED, ACE_DENIED, ACE_AUDIT):
        body = _MASK.pack(entry.mask) + entry.sid + entry.raw
    else:
        body = entry.raw
    size = _ACE.size + len(body)
    if size > ACL_MAX_BYTES:
        raise ValueOutOfRange("ACE", "MS-DTYP 2.4.4.1", f"{size} bytes; at most {ACL_MAX_BYTES}")
    return _ACE.pack(entry.kind, entry.flags, size) + body

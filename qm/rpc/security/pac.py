"""What a Kerberos ticket of Active Directory says of its user: KERB_VALIDATION_INFO [MS-PAC 2.5].

The library that took the ticket has verified the signature over it; here it is only read.
"""

from struct import Struct
from typing import Final

import msgspec
from typing_extensions import override

from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import U16, U32, Array, Octets, Structure, Type, Unique, VaryingArray
from qm.security.sid import SUB_AUTHORITIES_MAX, Sid

GROUPS_MAX: Final = 4_096
"""Groups of one user; Windows itself stops at 1,015."""
TEXT_MAX_CHARS: Final = 32_767
_PREFIX: Final = bytes.fromhex("01100800cccccccc")
"""Common type header [MS-RPCE 2.2.6.1] of little-endian NDR."""
_HEADER_SIZE_BYTES: Final = 16
_SUBAUTHORITY: Final = Struct("<I")


class _Sid(Type[Sid]):
    """RPC_SID [MS-DTYP 2.4.2.3]."""

    alignment = 4
    size_min = 12

    @override
    def read(self, reader: Reader) -> Sid:
        count = reader.u32()
        head = reader.take(8)
        if count != head[1] or count > SUB_AUTHORITIES_MAX:
            raise BadStub("counts of a SID disagree")
        return Sid(head + reader.take(4 * count))

    @override
    def write(self, writer: Writer, value: Sid) -> None:
        writer.u32(value[1])
        writer.put(value)


class _Text(msgspec.Struct):
    """RPC_UNICODE_STRING."""

    length: int
    room: int
    text: object


class _Group(msgspec.Struct):
    """GROUP_MEMBERSHIP."""

    rid: int
    attributes: int


class _Extra(msgspec.Struct):
    """KERB_SID_AND_ATTRIBUTES."""

    sid: Sid | None
    attributes: int


class _Validation(msgspec.Struct):
    """KERB_VALIDATION_INFO."""

    times: bytes
    account: _Text
    full_name: _Text
    script: _Text
    profile: _Text
    folder: _Text
    drive: _Text
    logons: int
    bad_passwords: int
    user: int
    primary_group: int
    group_count: int
    groups: list[_Group] | None
    flags: int
    session_key: bytes
    server: _Text
    domain: _Text
    domain_sid: Sid | None
    reserved: bytes
    control: int
    sub_status: int
    interactive_times: bytes
    failures: int
    reserved_too: int
    extra_count: int
    extras: list[_Extra] | None
    resource_domain: Sid | None
    resource_count: int
    resources: list[_Group] | None


_SID: Final = Unique(_Sid())
_TEXT: Final = Structure(
    _Text, {"length": U16, "room": U16, "text": Unique(VaryingArray(U16, TEXT_MAX_CHARS))}
)
_GROUPS: Final = Unique(Array(Structure(_Group, {"rid": U32, "attributes": U32}), GROUPS_MAX))
_EXTRAS: Final = Unique(Array(Structure(_Extra, {"sid": _SID, "attributes": U32}), GROUPS_MAX))
_INFO: Final = Structure(
    _Validation,
    {
        "times": Octets(48),
        "account": _TEXT,
        "full_name": _TEXT,
        "script": _TEXT,
        "profile": _TEXT,
        "folder": _TEXT,
        "drive": _TEXT,
        "logons": U16,
        "bad_passwords": U16,
        "user": U32,
        "primary_group": U32,
        "group_count": U32,
        "groups": _GROUPS,
        "flags": U32,
        "session_key": Octets(16),
        "server": _TEXT,
        "domain": _TEXT,
        "domain_sid": _SID,
        "reserved": Octets(8),
        "control": U32,
        "sub_status": U32,
        "interactive_times": Octets(16),
        "failures": U32,
        "reserved_too": U32,
        "extra_count": U32,
        "extras": _EXTRAS,
        "resource_domain": _SID,
        "resource_count": U32,
        "resources": _GROUPS,
    },
    lambda it: (
        it.group_count == len(it.groups or ())
        and it.extra_count == len(it.extras or ())
        and it.resource_count == len(it.resources or ())
    ),
)


def sids_of_logon(raw: bytes) -> tuple[Sid, ...]:
    """Return the user's SID and those of its groups from a PAC_LOGON_INFO. Raises BadStub."""
    if raw[: len(_PREFIX)] != _PREFIX:
        raise BadStub("a logon info that is not little-endian NDR")
    reader = Reader(raw[_HEADER_SIZE_BYTES:])
    found: list[_Validation] = []
    if not reader.u32():
        raise BadStub("an empty logon info")
    reader.defer(_INFO, found.append)
    reader.flush()
    (info,) = found
    extras = [one.sid for one in info.extras or () if one.sid is not None]
    sids: list[Sid] = []
    if info.domain_sid is not None and info.user:
        sids.append(_member(info.domain_sid, info.user))
    elif extras:
        # [MS-PAC 2.5]: of a user without a RID here, the first of these is the SID.
        sids.append(extras[0])
    if not sids:
        raise BadStub("a logon info without its user's SID")
    for domain, groups in (
        (info.domain_sid, info.groups),
        (info.resource_domain, info.resources),
    ):
        if domain is not None:
            sids += [_member(domain, group.rid) for group in groups or ()]
    return tuple(dict.fromkeys([*sids, *extras]))


def _member(domain: Sid, rid: int) -> Sid:
    """Return the SID of a member of a domain. Raises BadStub."""
    if domain[1] >= SUB_AUTHORITIES_MAX:
        raise BadStub("a domain's SID has no room for its members")
    return Sid(domain[:1] + bytes((domain[1] + 1,)) + domain[2:] + _SUBAUTHORITY.pack(rid))

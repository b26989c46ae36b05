"""Callers: the principal and role of a client certificate, and the SIDs that stand for it.

A certificate names its holder by its subject's common name, and gives a role by a URI among the
subject alternative names: `quorate:role/admin` (or operator, client, node). Security descriptors
contain SIDs, so each principal has one, derived only from its name and so the same on every node.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec

from qm.security.sid import ADMINISTRATORS, Sid, sid_from_text

ROLE_URI_PREFIX: Final = "quorate:role/"
PRINCIPAL_MAX_CHARS: Final = 64
"""ub-common-name of X.520."""
OPERATORS: Final[Sid] = sid_from_text("S-1-5-32-549")
"""BUILTIN\\Server Operators: every operator is a member."""
USERS: Final[Sid] = sid_from_text("S-1-5-32-545")
"""BUILTIN\\Users: members with a password may sign in to the console as clients."""
_COMMON_NAME: Final = "x509_common_name"
_URIS: Final = "peer_uri"
"""Only the URIs among alternative names: other kinds that look like a role are ignored."""
_FOUR_U32: Final = Struct(">IIII")
_RID_FIRST: Final = 1000
"""Relative ids below this belong to well-known accounts, such as a domain's guest."""


class Role(Enum):
    """What the holder of a certificate may do; `qm.api.gate.roles` defines it per call."""

    ADMIN = "admin"
    OPERATOR = "operator"
    CLIENT = "client"
    NODE = "node"


_GROUPS: Final = {Role.ADMIN: (ADMINISTRATORS,), Role.OPERATOR: (OPERATORS,)}
ROLE_GROUPS: Final[Mapping[Role, Sid]] = {
    Role.ADMIN: ADMINISTRATORS,
    Role.OPERATOR: OPERATORS,
    Role.CLIENT: USERS,
}
"""What gives a role to users who prove themselves with a password, the most powerful first."""


class Unauthenticated(Exception):
    """The certificate does not state its holder or role; the text says what is missing."""


class Principal(msgspec.Struct, frozen=True):
    """A caller."""

    name: str
    role: Role
    sids: tuple[Sid, ...]
    """For access checks; Everyone and Authenticated Users are implied."""
    is_authenticated: bool = True
    """False: unauthenticated, on a loopback address that was opened for it."""


LOOPBACK: Final = Principal("loopback", Role.ADMIN, (ADMINISTRATORS,), is_authenticated=False)
"""Every caller where the API is insecure."""


def role_uri(role: Role) -> str:
    """Return the alternative name that gives a role."""
    return ROLE_URI_PREFIX + role.value


def principal_sid(name: str) -> Sid:
    """Return the SID of a principal: S-1-5-21 and four numbers hashed from its name."""
    first, second, third, last = _FOUR_U32.unpack(sha256(name.encode()).digest()[:16])
    rid = _RID_FIRST + last % (2**32 - _RID_FIRST)
    return sid_from_text(f"S-1-5-21-{first}-{second}-{third}-{rid}")


def principal_of(name: str, role: Role, sid: Sid = b"") -> Principal:
    """Return a principal with its SIDs. `sid`: its own; left out: derived from its name."""
    return Principal(name, role, (sid or principal_sid(name), *_GROUPS.get(role, ())))


def role_of_groups(groups: Collection[Sid]) -> Role | None:
    """Return the most powerful role that groups give; None: they give none."""
    return next((role for role, group in ROLE_GROUPS.items() if group in groups), None)


def authenticate(properties: Mapping[str, Sequence[bytes]]) -> Principal:
    """Return the holder of a call's certificate, from gRPC's authentication context.

    Raises Unauthenticated.
    """
    names = properties.get(_COMMON_NAME, ())
    name = names[0].decode("utf-8", "replace") if len(names) == 1 else ""
    if not 1 <= len(name) <= PRINCIPAL_MAX_CHARS or not name.isprintable():
        raise Unauthenticated("the certificate has no common name: issue one with `qm pki issue`")
    texts = [raw.decode("utf-8", "replace") for raw in properties.get(_URIS, ())]
    given = [text[len(ROLE_URI_PREFIX) :] for text in texts if text.startswith(ROLE_URI_PREFIX)]
    if len(given) != 1:
        raise Unauthenticated(
            f"the certificate of {name!r} gives {len(given)} roles instead of one: issue it with"
            " `qm pki issue --role`"
        )
    try:
        return principal_of(name, Role(given[0]))
    except ValueError:
        raise Unauthenticated(f"the certificate of {name!r} gives an unknown role") from None

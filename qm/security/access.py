"""Access checks ([MS-DTYP] 2.5.3.2, [MS-MQDMPR] 3.1.7.1.3.1). Masks: `qm.wire.access_mask`."""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_AUDIT,
    ACE_DENIED,
    INHERIT_ONLY_ACE,
    Ace,
    Acl,
    SecurityDescriptor,
)
from qm.security.sid import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    EVERYONE,
    OWNER_RIGHTS,
    Sid,
    is_guest,
)

READ_CONTROL: Final = 0x0002_0000
"""Read the permissions: MQSEC_GET_QUEUE_PERMISSIONS and its siblings."""
WRITE_DAC: Final = 0x0004_0000
"""Change the permissions: MQSEC_CHANGE_QUEUE_PERMISSIONS and its siblings."""

QUEUE_WORLD_DEFAULT: Final = 0x0002_0020
"""MQSEC_GET_QUEUE_PROPERTIES | MQSEC_GET_QUEUE_PERMISSIONS."""
QUEUE_GENERIC_ALL: Final = 0x000F_003F
WRITE_MESSAGE: Final = 0x0000_0004


def effective_sids(sids: tuple[Sid, ...]) -> frozenset[Sid]:
    """Return the SIDs that an identity stands for; no SID at all is the anonymous sender.

    Everyone includes the anonymous sender here: a message without SecurityHeader is checked as
    S-1-1-0 and S-1-5-7 (QB-A28).
    """
    if not sids or sids == (ANONYMOUS,):
        return frozenset((EVERYONE, ANONYMOUS))
    if sids == (EVERYONE,):
        # Senders known only by queue manager are authorised as S-1-1-0, [MS-MQQB] 3.1.5.8.3.
        return frozenset(sids)
    return frozenset((*sids, EVERYONE, AUTHENTICATED_USERS))


def is_granted(
    descriptor: SecurityDescriptor | None, identity: Collection[Sid], desired: int
) -> bool:
    """Whether every bit of `desired` is granted. No descriptor and a NULL DACL grant all.

    Entries are evaluated in order; a denied bit that is still wanted ends the evaluation. An entry
    of an unknown kind, which could deny, makes the answer no: nothing is granted past it.
    """
    if descriptor is None or descriptor.dacl is None:
        return True
    entries = descriptor.dacl.entries
    wanted = desired
    if descriptor.owner is not None and descriptor.owner in identity:
        limits_owner = any(entry.sid == OWNER_RIGHTS for entry in entries)
        if not limits_owner:
            wanted &= ~(READ_CONTROL | WRITE_DAC)
        else:
            identity = frozenset((*identity, OWNER_RIGHTS))
    for entry in entries:
        if wanted == 0:
            break
        if entry.flags & INHERIT_ONLY_ACE or entry.kind == ACE_AUDIT:
            continue
        if entry.kind not in (ACE_ALLOWED, ACE_DENIED):
            return False
        if entry.sid not in identity:
            continue
        if entry.kind == ACE_ALLOWED:
            wanted &= ~entry.mask
        elif entry.mask & wanted:
            return False
    return wanted == 0


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What decides on one right."""

    right: int
    """One bit."""
    is_granted: bool
    entry: int | None
    """Place in the list of the entry that decides; None: no entry does."""
    reason: str = ""
    """Why it is so without an entry."""


def explained(
    descriptor: SecurityDescriptor | None, identity: Collection[Sid], rights: Iterable[int]
) -> list[Decision]:
    """Return what decides on each right, by the rules of `is_granted`."""
    return [_explained(descriptor, identity, right) for right in rights]


def _explained(
    descriptor: SecurityDescriptor | None, identity: Collection[Sid], right: int
) -> Decision:
    is_allowed = is_granted(descriptor, identity, right)
    if descriptor is None or descriptor.dacl is None:
        return Decision(right, is_allowed, None, "there is no list: nothing is restricted")
    entries = descriptor.dacl.entries
    is_owner = descriptor.owner is not None and descriptor.owner in identity
    if is_owner and any(entry.sid == OWNER_RIGHTS for entry in entries):
        identity = frozenset((*identity, OWNER_RIGHTS))
    elif is_owner and right in (READ_CONTROL, WRITE_DAC):
        return Decision(right, is_allowed, None, "the owner reads and changes the list")
    for place, entry in enumerate(entries):
        if entry.flags & INHERIT_ONLY_ACE or entry.kind == ACE_AUDIT:
            continue
        if entry.kind not in (ACE_ALLOWED, ACE_DENIED):
            return Decision(right, is_allowed, None, "an entry of an unknown kind could deny it")
        if entry.sid in identity and entry.mask & right:
            return Decision(right, is_allowed, place)
    return Decision(right, is_allowed, None, "no entry allows it")


def default_queue_descriptor(
    owner: Sid,
    *,
    is_domain_user: bool,
    machine: Sid | None = None,
    is_reachable_by_srmp: bool = False,
    supplied: SecurityDescriptor | None = None,
) -> SecurityDescriptor:
    """Create Default Queue Security Descriptor ([MS-MQDMPR] 3.1.7.1.3.1).

    `owner` is the caller, used unless `supplied` names another. Members of the embedded realm
    count as domain users; for the guest and all other callers the queue is open to everyone.
    """
    dacl = supplied.dacl if supplied is not None else None
    sacl = supplied.sacl if supplied is not None else None
    if supplied is not None and supplied.owner is not None:
        owner = supplied.owner
    if not is_domain_user:
        owner = ANONYMOUS
    if dacl is None:
        dacl = _default_dacl(owner, is_domain_user, machine, is_reachable_by_srmp)
    group = supplied.group if supplied is not None else None
    return SecurityDescriptor(owner=owner, group=group, dacl=dacl, sacl=sacl)


def _default_dacl(
    owner: Sid, is_domain_user: bool, machine: Sid | None, is_reachable_by_srmp: bool
) -> Acl:
    if not is_domain_user or is_guest(owner):
        world_access, owner_access = QUEUE_GENERIC_ALL, 0
    else:
        world_access, owner_access = QUEUE_WORLD_DEFAULT, QUEUE_GENERIC_ALL
    anonymous_access = 0
    if is_reachable_by_srmp:
        world_access |= WRITE_MESSAGE
        anonymous_access = WRITE_MESSAGE
    grants = [(EVERYONE, world_access)]
    if anonymous_access:
        grants.append((ANONYMOUS, anonymous_access))
    if machine is not None:
        grants.append((machine, QUEUE_WORLD_DEFAULT))
    if owner_access:
        grants.append((owner, owner_access))
    return Acl(tuple(Ace(ACE_ALLOWED, 0, mask, sid) for sid, mask in grants))

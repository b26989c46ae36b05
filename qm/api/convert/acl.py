"""Security descriptors for people: principals and rights in words, and back.

A SID derived from a principal's name (`qm.api.gate.identity`) cannot be read back; names are shown
for well-known SIDs and for principals known to the cluster as clients.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag
from typing import Final

import msgspec

from qm.api.gate.errors import InvalidArgument
from qm.api.gate.identity import (
    OPERATORS,
    PRINCIPAL_MAX_CHARS,
    Principal,
    Role,
    principal_sid,
)
from qm.model.state.granting import is_granted_on_manager
from qm.model.values.records import QueueManager
from qm.pb import control_pb2
from qm.security.access import default_queue_descriptor, explained
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_DENIED,
    Ace,
    Acl,
    SecurityDescriptor,
    parse_descriptor,
    write_descriptor,
)
from qm.security.sid import (
    ADMINISTRATORS,
    ANONYMOUS,
    AUTHENTICATED_USERS,
    EVERYONE,
    Sid,
    sid_from_text,
    sid_text,
)
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.errors import ProtocolError, ValueOutOfRange

ENTRIES_MAX: Final = 1_024
WELL_KNOWN: Final[Mapping[str, Sid]] = {
    "Everyone": EVERYONE,
    "Anonymous": ANONYMOUS,
    "Authenticated Users": AUTHENTICATED_USERS,
    "Administrators": ADMINISTRATORS,
    "Operators": OPERATORS,
}
_BY_FOLDED_NAME: Final = {name.lower(): sid for name, sid in WELL_KNOWN.items()}
_BITS: Final = re.compile(r"0x[0-9a-f]{1,8}")
"""Format of bits without a word among rights."""
_KINDS: Final = {control_pb2.ALLOW: ACE_ALLOWED, control_pb2.DENY: ACE_DENIED}


def descriptor_of_new_queue(who: Principal, supplied: bytes) -> bytes:
    """Return the descriptor of a queue with what its creator did not say ([MS-MQDMPR]
    3.1.7.1.3.1): its owner is the caller, and without a list everyone, including anonymous peers,
    may send to and see it; its owner and administrators may do everything.

    Without authentication callers cannot be distinguished, so that nothing is added: no
    restriction. What is no descriptor stays as it is, for apply to refuse.
    """
    if not who.is_authenticated:
        return supplied
    try:
        given = parse_descriptor(supplied) if supplied else None
    except ProtocolError:
        return supplied
    descriptor = default_queue_descriptor(
        who.sids[0], is_domain_user=True, is_reachable_by_srmp=True, supplied=given
    )
    assert descriptor.dacl is not None, "a default descriptor has a list"
    if given is not None and given.dacl is not None:
        return write_descriptor(descriptor)
    entries = (
        *descriptor.dacl.entries,
        Ace(ACE_ALLOWED, 0, int(QueueAccess.QUEUE_GENERIC_ALL), ADMINISTRATORS),
    )
    return write_descriptor(msgspec.structs.replace(descriptor, dacl=Acl(entries)))


def manager_descriptor() -> bytes:
    """Return the queue manager's descriptor at the creation of a cluster.

    Any holder of a certificate may create queues; dead letters and journals are for operators and
    admins, settings for admins.
    """
    operators = (
        MachineAccess.RECEIVE_DEADLETTER_MESSAGE
        | MachineAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE
        | MachineAccess.SET_MACHINE_PROPERTIES  # needed to pause an outgoing queue
    )
    grants = (
        (EVERYONE, MachineAccess.MACHINE_WORLD_RIGHTS),
        (AUTHENTICATED_USERS, MachineAccess.CREATE_QUEUE),
        (OPERATORS, operators),
        (ADMINISTRATORS, MachineAccess.MACHINE_GENERIC_ALL),
    )
    entries = tuple(Ace(ACE_ALLOWED, 0, int(mask), sid) for sid, mask in grants)
    return write_descriptor(SecurityDescriptor(owner=ADMINISTRATORS, dacl=Acl(entries)))


def sids_to_change(who: Principal, security: bytes) -> tuple[Sid, ...]:
    """Return the SIDs by which a caller changes an access list: an admin also acts as the owner,
    since it may take ownership.
    """
    owner = parse_descriptor(security).owner if security else None
    if who.role is not Role.ADMIN or owner is None:
        return who.sids
    return (*who.sids, owner)


def check_manager_list(manager: QueueManager, security: bytes) -> None:
    """Check that the queue manager's new list can still be changed. Raises InvalidArgument."""
    needed = MachineAccess.SET_MACHINE_PROPERTIES | MachineAccess.CHANGE_MACHINE_PERMISSIONS
    changed = msgspec.structs.replace(manager, security=security)
    if not is_granted_on_manager(changed, (ADMINISTRATORS,), needed):
        rights = ", ".join(rights_of(int(needed), MachineAccess))
        raise InvalidArgument(
            "entries", f"this list could never be changed again: leave Administrators {rights}"
        )


def sid_of(name: str, field: str) -> Sid:
    """Return the SID of a principal or of a well-known name. Raises InvalidArgument."""
    if not 1 <= len(name) <= PRINCIPAL_MAX_CHARS:
        raise InvalidArgument(
            field, f"a principal's name has 1 to {PRINCIPAL_MAX_CHARS} characters"
        )
    return _BY_FOLDED_NAME.get(name.lower()) or principal_sid(name)


def names_of(principals: Iterable[str]) -> dict[Sid, str]:
    """Return names for display by SID."""
    return {principal_sid(name): name for name in principals} | {
        sid: name for name, sid in WELL_KNOWN.items()
    }


def rights_of(mask: int, access: type[IntFlag]) -> list[str]:
    """Return a mask in words: the widest composite first, then the rest bit by bit."""
    rights = []
    members = sorted(access.__members__.items(), key=lambda one: -int(one[1]).bit_count())
    for name, value in members:
        if value and mask & value == value:
            rights.append(name.lower())
            mask &= ~value
    return [*rights, hex(mask)] if mask else rights


def mask_of(rights: Sequence[str], access: type[IntFlag], field: str) -> int:
    """Return rights in words as a mask. Raises InvalidArgument."""
    mask = 0
    for right in rights:
        if _BITS.fullmatch(right):
            mask |= int(right, 16)
            continue
        member = access.__members__.get(right.upper())
        if member is None:
            known = ", ".join(name.lower() for name in access.__members__)
            raise InvalidArgument(field, f"{right[:64]!r} is not a right; the rights are {known}")
        mask |= int(member)
    return mask


def shown_acl(
    security: bytes, version: int, access: type[IntFlag], names: Mapping[Sid, str]
) -> control_pb2.Acl:
    """Return a descriptor for a caller. An absent one restricts nothing: Everyone may do all."""
    shown = control_pb2.Acl(security_descriptor=security, version=version)
    descriptor = parse_descriptor(security) if security else SecurityDescriptor()
    if descriptor.owner is not None:
        shown.owner_sid = sid_text(descriptor.owner)
        shown.owner = names.get(descriptor.owner, "")
    if descriptor.dacl is None:
        everything = 0
        for member in access:
            everything |= int(member)
        entries: Sequence[Ace] = (Ace(ACE_ALLOWED, 0, everything, EVERYONE),)
    else:
        entries = descriptor.dacl.entries
    for entry in entries:
        if entry.kind in (ACE_ALLOWED, ACE_DENIED):
            shown.entries.add(
                type=control_pb2.ALLOW if entry.kind == ACE_ALLOWED else control_pb2.DENY,
                sid=sid_text(entry.sid),
                principal=names.get(entry.sid, ""),
                mask=entry.mask,
                rights=rights_of(entry.mask, access),
            )
    return shown


def sids_in(security: bytes) -> set[Sid]:
    """Return the SIDs that a descriptor names."""
    descriptor = parse_descriptor(security) if security else SecurityDescriptor()
    entries = descriptor.dacl.entries if descriptor.dacl is not None else ()
    return {sid for sid in (descriptor.owner, *(entry.sid for entry in entries)) if sid}


def explained_acl(
    security: bytes, identity: frozenset[Sid], rights: Sequence[str], access: type[IntFlag]
) -> control_pb2.ExplainAclReply:
    """Return which entry of a descriptor decides on each right. Raises InvalidArgument."""
    mask = mask_of(rights, access, "rights")
    bits = [int(member) for member in access if int(member).bit_count() == 1]
    wanted = [bit for bit in bits if not rights or mask & bit]
    descriptor = parse_descriptor(security) if security else None
    reply = control_pb2.ExplainAclReply(sids=sorted(map(sid_text, identity)))
    shown = _shown_places(descriptor)
    for decision in explained(descriptor, identity, wanted):
        added = reply.decisions.add(
            right=rights_of(decision.right, access)[0],
            is_granted=decision.is_granted,
            reason=decision.reason,
        )
        if decision.entry is not None:
            added.entry = shown[decision.entry]
    return reply


def _shown_places(descriptor: SecurityDescriptor | None) -> dict[int, int]:
    """Return where the entries of a list are among those that `shown_acl` shows."""
    entries = descriptor.dacl.entries if descriptor and descriptor.dacl else ()
    kinds = (ACE_ALLOWED, ACE_DENIED)
    places = (place for place, entry in enumerate(entries) if entry.kind in kinds)
    return {place: number for number, place in enumerate(places)}


def changed_descriptor(
    security: bytes,
    given: Sequence[control_pb2.Ace],
    owner: str,
    access: type[IntFlag],
) -> bytes:
    """Return a descriptor with another list, and another owner unless `owner` is "".

    Raises InvalidArgument.
    """
    if len(given) > ENTRIES_MAX:
        raise InvalidArgument("entries", f"{len(given)}; {ENTRIES_MAX} are allowed")
    entries = tuple(_entry(ace, access, f"entries[{place}]") for place, ace in enumerate(given))
    is_in_order = sorted(entries, key=lambda one: one.kind != ACE_DENIED) == list(entries)
    if not is_in_order:
        raise InvalidArgument("entries", "DENY must come before ALLOW, or it would have no effect")
    descriptor = parse_descriptor(security) if security else SecurityDescriptor()
    # An owner may always change the list; without one perhaps no principal could.
    kept = descriptor.owner or ADMINISTRATORS
    changed = msgspec.structs.replace(
        descriptor,
        owner=sid_or_name(owner, "owner") if owner else kept,
        dacl=Acl(entries),
    )
    try:
        return write_descriptor(changed)
    except ValueOutOfRange as error:
        raise InvalidArgument("entries", str(error)) from None


def _entry(given: control_pb2.Ace, access: type[IntFlag], field: str) -> Ace:
    if given.type not in _KINDS:
        raise InvalidArgument(f"{field}.type", f"{given.type}; ALLOW or DENY")
    if bool(given.sid) == bool(given.principal):
        raise InvalidArgument(f"{field}.principal", "give either a principal or a SID")
    if bool(given.mask) == bool(given.rights):
        raise InvalidArgument(f"{field}.rights", "give either rights or a mask")
    sid = sid_or_name(given.sid or given.principal, f"{field}.sid")
    mask = given.mask or mask_of(given.rights, access, f"{field}.rights")
    return Ace(_KINDS[given.type], 0, mask, sid)


def sid_or_name(text: str, field: str) -> Sid:
    """Return the SID of S-1-..., a principal or a well-known name. Raises InvalidArgument."""
    if not text.upper().startswith("S-1-"):
        return sid_of(text, field)
    try:
        return sid_from_text(text)
    except ValueOutOfRange as error:
        raise InvalidArgument(field, str(error)) from None

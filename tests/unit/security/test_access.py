"""Access decisions and the default descriptor of a queue ([MS-MQDMPR] 3.1.7.1.3.1)."""

import pytest

from qm.security.access import (
    QUEUE_GENERIC_ALL,
    READ_CONTROL,
    default_queue_descriptor,
    effective_sids,
    is_granted,
)
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_AUDIT,
    ACE_DENIED,
    INHERIT_ONLY_ACE,
    Ace,
    Acl,
    SecurityDescriptor,
    parse_descriptor,
    write_descriptor,
)
from qm.security.sid import ANONYMOUS, EVERYONE, OWNER_RIGHTS, sid_from_text

ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
GUEST = sid_from_text("S-1-5-21-1-2-3-501")
MACHINE = sid_from_text("S-1-5-21-1-2-3-1105")
WRITE, PEEK, RECEIVE = 0x4, 0x2, 0x3


def allowing(*entries: Ace, owner: bytes | None = None) -> SecurityDescriptor:
    return SecurityDescriptor(owner=owner, dacl=Acl(entries))


def test_no_descriptor_and_null_dacl_grant_everything() -> None:
    assert is_granted(None, effective_sids(()), QUEUE_GENERIC_ALL)
    assert is_granted(SecurityDescriptor(), effective_sids(()), QUEUE_GENERIC_ALL)


def test_empty_dacl_grants_nothing_but_the_owners_control() -> None:
    closed = allowing(owner=ALICE)
    assert not is_granted(closed, effective_sids((ALICE,)), WRITE)
    assert is_granted(closed, effective_sids((ALICE,)), READ_CONTROL)
    assert not is_granted(closed, effective_sids(()), READ_CONTROL)


def test_owner_rights_entry_replaces_the_owners_control() -> None:
    limited = allowing(Ace(ACE_ALLOWED, 0, WRITE, OWNER_RIGHTS), owner=ALICE)
    assert not is_granted(limited, effective_sids((ALICE,)), READ_CONTROL)
    assert is_granted(limited, effective_sids((ALICE,)), WRITE)


def test_entries_count_in_their_order() -> None:
    deny_first = allowing(Ace(ACE_DENIED, 0, WRITE, ALICE), Ace(ACE_ALLOWED, 0, WRITE, EVERYONE))
    allow_first = allowing(Ace(ACE_ALLOWED, 0, WRITE, EVERYONE), Ace(ACE_DENIED, 0, WRITE, ALICE))
    assert not is_granted(deny_first, effective_sids((ALICE,)), WRITE)
    assert is_granted(allow_first, effective_sids((ALICE,)), WRITE)


def test_bits_add_up_over_entries_and_all_are_needed() -> None:
    split = allowing(Ace(ACE_ALLOWED, 0, 0x1, ALICE), Ace(ACE_ALLOWED, 0, PEEK, EVERYONE))
    assert is_granted(split, effective_sids((ALICE,)), RECEIVE)
    assert not is_granted(split, effective_sids(()), RECEIVE)


def test_audit_and_inherit_only_entries_decide_nothing() -> None:
    entries = (
        Ace(ACE_AUDIT, 0, WRITE, EVERYONE),
        Ace(ACE_DENIED, INHERIT_ONLY_ACE, WRITE, EVERYONE),
        Ace(ACE_ALLOWED, 0, WRITE, EVERYONE),
    )
    assert is_granted(allowing(*entries), effective_sids(()), WRITE)
    assert not is_granted(allowing(*entries[:2]), effective_sids(()), WRITE)


def test_an_entry_of_unknown_kind_grants_nothing_behind_it() -> None:
    unknown = Ace(9, 0, 0, b"", b"callback")
    assert not is_granted(
        allowing(unknown, Ace(ACE_ALLOWED, 0, WRITE, EVERYONE)), effective_sids(()), WRITE
    )


def test_identities() -> None:
    assert effective_sids(()) == {EVERYONE, ANONYMOUS}
    assert effective_sids((EVERYONE,)) == {EVERYONE}
    assert ANONYMOUS not in effective_sids((ALICE,))


@pytest.mark.spec("DM-3.1.7.1.3.1-02", "DM-3.1.7.1.3.1-09")
def test_supplied_security_is_kept_in_self_relative_form() -> None:
    acl = Acl((Ace(ACE_ALLOWED, 0, WRITE, ALICE),))
    supplied = SecurityDescriptor(owner=ALICE, dacl=acl, sacl=Acl(()))
    made = default_queue_descriptor(GUEST, is_domain_user=True, supplied=supplied)
    assert (made.owner, made.dacl, made.sacl) == (ALICE, acl, Acl(()))
    written = write_descriptor(made)
    assert written[3] & 0x80
    assert parse_descriptor(written) == made


@pytest.mark.spec(
    "DM-3.1.7.1.3.1-03", "DM-3.1.7.1.3.1-04", "AC-3.10.4.1.26.1-02", "AC-3.10.4.1.26.1-05"
)
def test_a_caller_outside_the_realm_becomes_anonymous_and_the_queue_open() -> None:
    stranger = default_queue_descriptor(ALICE, is_domain_user=False)
    assert stranger.owner == ANONYMOUS
    guest = default_queue_descriptor(GUEST, is_domain_user=True)
    assert guest.owner == GUEST, "the calling user, who is of the realm"
    for made in (stranger, guest):
        assert made.dacl == Acl((Ace(ACE_ALLOWED, 0, 0x000F003F, EVERYONE),))
    # With a Dacl of its own the queue is as open as that says.
    acl = Acl((Ace(ACE_ALLOWED, 0, WRITE, ALICE),))
    kept = default_queue_descriptor(
        ALICE, is_domain_user=False, supplied=SecurityDescriptor(owner=bytes(ALICE), dacl=acl)
    )
    assert (kept.owner, kept.dacl) == (ANONYMOUS, acl)
    # A member of the realm stays the owner and has everything; its machine and others see it.
    made = default_queue_descriptor(ALICE, is_domain_user=True, machine=MACHINE)
    assert made.owner == ALICE
    assert made.dacl == Acl(
        (
            Ace(ACE_ALLOWED, 0, SEEN_BY_ALL, EVERYONE),
            Ace(ACE_ALLOWED, 0, SEEN_BY_ALL, MACHINE),
            Ace(ACE_ALLOWED, 0, QUEUE_GENERIC_ALL, ALICE),
        )
    )


@pytest.mark.spec(
    "DM-3.1.7.1.3.1-01",
    "DM-3.1.7.1.3.1-05",
    "DM-3.1.7.1.3.1-06",
    "DM-3.1.7.1.3.1-07",
    "DM-3.1.7.1.3.1-08",
)
def test_default_entries_and_their_order() -> None:
    default_entries_in_order()


@pytest.mark.spec("AC-3.10.4.1.26.1-01", "AC-3.10.4.1.26.1-03")
def test_a_default_list_in_its_order_is_written_self_relative() -> None:
    default_entries_in_order()
    made = default_queue_descriptor(
        ALICE, is_domain_user=True, machine=MACHINE, is_reachable_by_srmp=True
    )
    written = write_descriptor(made)
    assert written[3] & 0x80
    assert parse_descriptor(written) == made


SEEN_BY_ALL = 0x20 | 0x20000
"""MQSEC_GET_QUEUE_PROPERTIES and MQSEC_GET_QUEUE_PERMISSIONS [MS-MQMQ 2.2.25]."""


def default_entries_in_order() -> None:
    made = default_queue_descriptor(
        ALICE, is_domain_user=True, machine=MACHINE, is_reachable_by_srmp=True
    )
    assert made.dacl == Acl(
        (
            Ace(ACE_ALLOWED, 0, 0x00020024, sid_from_text("S-1-1-0")),
            Ace(ACE_ALLOWED, 0, 0x4, sid_from_text("S-1-5-7")),
            Ace(ACE_ALLOWED, 0, 0x00020020, MACHINE),
            Ace(ACE_ALLOWED, 0, 0x000F003F, ALICE),
        )
    )
    # Who is granted nothing of its own is not in it.
    guest = default_queue_descriptor(
        GUEST, is_domain_user=True, machine=MACHINE, is_reachable_by_srmp=True
    )
    assert guest.dacl is not None
    assert [one.sid for one in guest.dacl.entries] == [
        *(sid_from_text("S-1-1-0"), sid_from_text("S-1-5-7"), MACHINE),
    ]
    # Each of the two in the middle stands there by itself, too.
    for machine, is_reachable, entries in (
        (MACHINE, False, [(0x00020020, EVERYONE), (0x00020020, MACHINE)]),
        (None, True, [(0x00020024, EVERYONE), (0x4, sid_from_text("S-1-5-7"))]),
    ):
        some = default_queue_descriptor(
            ALICE, is_domain_user=True, machine=machine, is_reachable_by_srmp=is_reachable
        )
        assert some.dacl is not None
        found = [(one.mask, one.sid) for one in some.dacl.entries]
        assert found == [*entries, (0x000F003F, ALICE)]
    plain = default_queue_descriptor(ALICE, is_domain_user=True)
    assert made.owner == plain.owner == ALICE
    assert plain.dacl == Acl(
        (Ace(ACE_ALLOWED, 0, 0x00020020, EVERYONE), Ace(ACE_ALLOWED, 0, 0x000F003F, ALICE))
    )

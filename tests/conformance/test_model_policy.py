"""What apply makes of an edge's facts: signatures and access [MS-MQQB 3.1.5.8.3, 3.1.7.15]."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qm.model import queries
from qm.model.messages.acknowledgements import INSECURE_NACKS
from qm.model.values.commands import Facts, SignatureFact
from qm.model.values.records import FinalAckRow, decode
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import EVERYONE, Sid, sid_from_text
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from tests.conformance.test_model_directory import set_manager
from tests.unit.model.world import PEER, PEER_ADDRESS, World, direct, packet

ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
SEQUENCE = 9 << 32 | 1
NA = {"flags": int(AcknowledgeFlags.NA)}
WRITE_MESSAGE, PEEK_MESSAGE = 0x4, 0x2


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def granting(mask: int, sid: Sid) -> bytes:
    return write_descriptor(SecurityDescriptor(dacl=Acl((Ace(ACE_ALLOWED, 0, mask, sid),))))


def facts(*sids: Sid, signature: SignatureFact = SignatureFact.ABSENT) -> Facts:
    return Facts(1, PEER, PEER_ADDRESS, sids, signature)


def told(world: World, admin: int) -> list[int]:
    return [message.properties.message_class for message in world.messages(admin)]


def final_acks(world: World) -> list[int]:
    rows = queries.list_outbox(world.machine.view).items
    return [decode(FinalAckRow, row.payload).message_class for row in rows]


def refused(world: World, to: str, said: Facts, number: int, **header: object) -> int:
    """Send a plain and a transactional message; both are refused alike, or it is an error."""
    asking = {"admin_queue": direct("admin"), "properties": NA, **header}
    plain = packet(2 * number, to=to, **asking)  # type: ignore[arg-type]
    exact = packet(
        2 * number + 1,
        to=f"{to}-exact",
        sequence=(SEQUENCE + number, 1, 0),
        **asking,  # type: ignore[arg-type]
    )
    one, two = world.arrive(plain, exact, facts=said)
    assert one == two
    return one


def both(world: World, name: str, **attributes: object) -> None:
    security = attributes.pop("security", b"")
    assert isinstance(security, bytes)
    world.create(name, security, **attributes)
    world.create(f"{name}-exact", security, transactional=True, **attributes)


@pytest.mark.spec("QB-3.1.1.3-11", "QB-3.1.7.15-02")
def test_strangers_are_not_told_what_exists_until_an_administrator_says_so(world: World) -> None:
    admin = world.create("admin")
    both(world, "closed", security=granting(PEEK_MESSAGE, EVERYONE))
    both(world, "sealed", privacy_level=2)
    both(world, "open")
    unverified = facts(signature=SignatureFact.UNVERIFIED)
    causes = {
        MessageClass.NACK_BAD_DST_Q: ("absent", facts()),
        MessageClass.NACK_ACCESS_DENIED: ("closed", facts()),
        MessageClass.NACK_BAD_ENCRYPTION: ("sealed", facts()),
        MessageClass.NACK_BAD_SIGNATURE: ("open", unverified),
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
            "open",
            replace(unverified, is_provider_unknown=True),
        ),
    }
    assert set(causes) == INSECURE_NACKS
    assert {int(one) for one in causes} == {0x8000, 0x8004, 0x8006, 0x8007, 0x800B}
    for number, (reason, (to, said)) in enumerate(causes.items(), start=1):
        assert refused(world, to, said, number) == reason
    assert told(world, admin) == []
    assert final_acks(world) == list(causes), "a final ack is never held back"
    assert set_manager(world, send_insecure_nacks=True) == 0
    world.machine.forget()
    for number, (to, said) in enumerate(causes.values(), start=11):
        refused(world, to, said, number)
    assert sorted(told(world, admin)) == sorted([*causes, *causes])


@pytest.mark.spec("QB-3.1.5.8.3-05", "QB-3.1.5.8.3-08")
@pytest.mark.parametrize("signature", [SignatureFact.INVALID, SignatureFact.UNVERIFIED])
def test_a_signature_that_does_not_match_refuses(world: World, signature: SignatureFact) -> None:
    set_manager(world, send_insecure_nacks=True)
    admin = world.create("admin")
    both(world, "orders")
    orders, exact = (
        queries.find_by_path(world.machine.view, f"vhost\\{name}").queue_id
        for name in ("orders", "orders-exact")
    )
    bad = MessageClass.NACK_BAD_SIGNATURE
    said = facts(ALICE, signature=signature)
    assert refused(world, "orders", said, 1) == bad
    assert told(world, admin) == [bad, bad]
    assert final_acks(world) == [bad]
    assert world.arrive(packet(9, to="orders", admin_queue=direct("admin")), facts=said) == [bad]
    assert told(world, admin) == [bad, bad], "who does not ask is not told"
    assert (world.positions(orders), world.positions(exact)) == ({}, {})


@pytest.mark.spec("QB-3.1.5.8.3-14")
def test_a_body_that_cannot_be_decrypted_refuses(world: World) -> None:
    set_manager(world, send_insecure_nacks=True)
    admin = world.create("admin")
    both(world, "orders")
    unreadable = replace(facts(ALICE), decryption_failed=True)
    bad = 0x8007  # BAD_ENCRYPTION
    sealed = SecurityHeader(is_body_encrypted=True, encryption_key=b"of somebody else")
    assert refused(world, "orders", unreadable, 1, security=sealed) == bad
    assert told(world, admin) == [bad, bad]
    assert final_acks(world) == [bad]
    # Who did not ask is not told, but for the FinalAck of a transactional message.
    silent = (
        packet(8, to="orders", security=sealed),
        packet(9, to="orders-exact", sequence=(SEQUENCE + 2, 1, 0), security=sealed),
    )
    assert world.arrive(*silent, facts=unreadable) == [bad, bad]
    assert told(world, admin) == [bad, bad]
    assert final_acks(world) == [bad, bad]


@pytest.mark.spec("QB-3.1.5.8.3-01", "MQ-2.3.1.11-01")
def test_a_message_without_security_header_meets_the_same_policy(world: World) -> None:
    both(world, "signed", authentication=True)
    both(world, "sealed", privacy_level=2)
    both(world, "closed", security=granting(WRITE_MESSAGE, ALICE))
    both(world, "open")
    for number, (name, verdict) in enumerate(
        (
            ("signed", MessageClass.NACK_BAD_SIGNATURE),
            ("sealed", MessageClass.NACK_BAD_ENCRYPTION),
            ("closed", MessageClass.NACK_ACCESS_DENIED),
            ("open", 0),
        )
    ):
        assert refused(world, name, facts(), number) == verdict


@pytest.mark.spec("QB-3.1.5.8.3-01")
def test_a_message_with_security_header_is_checked_whatever_its_queue_demands(
    world: World,
) -> None:
    both(world, "open")
    security = SecurityHeader(security_id=b"\1\1" + bytes(6), sender_id_type=1)
    for number, (said, verdict) in enumerate(
        (
            (facts(), 0),
            (facts(signature=SignatureFact.INVALID), MessageClass.NACK_BAD_SIGNATURE),
            (facts(signature=SignatureFact.UNVERIFIED), MessageClass.NACK_BAD_SIGNATURE),
            (replace(facts(), decryption_failed=True), MessageClass.NACK_BAD_ENCRYPTION),
        )
    ):
        assert refused(world, "open", said, number, security=security) == verdict


@pytest.mark.spec("QB-3.1.5.8.3-15", "QB-3.1.5.8.3-16", "QB-3.1.5.8.3-17")
@pytest.mark.parametrize(
    ("granted", "sids", "is_let_in"),
    [
        ((WRITE_MESSAGE, ALICE), (ALICE,), True),
        ((PEEK_MESSAGE, ALICE), (ALICE,), False),
        ((WRITE_MESSAGE, EVERYONE), (ALICE,), True),
        ((WRITE_MESSAGE, EVERYONE), (EVERYONE,), True),
        ((WRITE_MESSAGE, ALICE), (EVERYONE,), False),
        ((WRITE_MESSAGE, ALICE), (), False),
    ],
    ids=["who may", "other right", "everyone may", "known by queue manager", "is not", "nobody"],
)
@pytest.mark.parametrize("name", ["orders", "private$\\orders"])
def test_who_may_write(
    world: World, name: str, granted: tuple[int, Sid], sids: tuple[Sid, ...], is_let_in: bool
) -> None:
    set_manager(world, send_insecure_nacks=True)
    admin = world.create("admin")
    both(world, name, security=granting(*granted))
    denied = MessageClass.NACK_ACCESS_DENIED
    assert refused(world, name, facts(*sids), 1) == (0 if is_let_in else denied)
    assert told(world, admin) == ([] if is_let_in else [denied, denied])
    assert final_acks(world) == ([] if is_let_in else [denied])
    silent = packet(9, to=name, admin_queue=direct("admin"))
    assert world.arrive(silent, facts=facts(*sids)) == [0 if is_let_in else denied]
    assert told(world, admin) == ([] if is_let_in else [denied, denied])
    # Who asked for no acknowledgement gets a final ack all the same.
    exact = packet(10, to=f"{name}-exact", sequence=(SEQUENCE + 2, 1, 0))
    assert world.arrive(exact, facts=facts(*sids)) == [0 if is_let_in else denied]
    assert told(world, admin) == ([] if is_let_in else [denied, denied])
    assert final_acks(world) == ([] if is_let_in else [denied, denied])
    queue_id = queries.find_by_path(world.machine.view, f"vhost\\{name}").queue_id
    assert len(world.positions(queue_id)) == 2 * is_let_in

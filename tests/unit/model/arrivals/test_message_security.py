"""What facts about signatures, bodies and senders are worth, by the replicated policy."""

import pytest
from msgspec.structs import replace

from qm.model.queries import View, security_policy
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Facts, SignatureFact
from qm.model.values.elements import QueueAccessType, QueuePrivacyLevel, SealedBodies
from qm.model.values.limits import VERSION_OF_SEALED_BODIES
from qm.model.values.records import SecurityPolicy
from qm.model.values.rows import PositionFlag
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import EVERYONE, sid_from_text
from qm.wire.enums import HashAlgorithm
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.unit.model.world import HOST, PEER, World, packet

ACCEPTED = 0
BAD_SIGNATURE = int(MessageClass.NACK_BAD_SIGNATURE)
BAD_ENCRYPTION = int(MessageClass.NACK_BAD_ENCRYPTION)
UNSUPPORTED = int(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER)
DENIED = int(MessageClass.NACK_ACCESS_DENIED)
ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
PLAIN = Facts(1, PEER, "10.0.0.7", ())
SIGNED = replace(
    PLAIN,
    sender_sids=(ALICE,),
    signature=SignatureFact.VALID,
    signature_version=3,
    hash_algorithm=HashAlgorithm.SHA512,
)
STRANGER = replace(SIGNED, sender_sids=(), signature=SignatureFact.STRANGER)
UNREADABLE = replace(PLAIN, signature=SignatureFact.UNVERIFIED, decryption_failed=True)
INVALID = replace(PLAIN, signature=SignatureFact.INVALID)


def secured(ordinal: int = 1, *, is_body_encrypted: bool = False) -> bytes:
    made, _ = parse_user_message(packet(ordinal), 0, len(packet(ordinal)))
    security = SecurityHeader(is_body_encrypted=is_body_encrypted, signature=b"signed")
    return write_user_message(UserMessage(made.user_header, made.properties, security=security))


def set_policy(world: World, **rules: int | tuple[int, ...]) -> None:
    policy = replace(SecurityPolicy(), **rules)
    command = commands.SetSecurityPolicy(
        policy.trusts_sender_id,
        policy.hash_algorithms,
        policy.accepts_strangers,
        policy.refuses_reduced_keys,
        policy.accepts_expired,
        policy.sealed_bodies,
    )
    assert world.one(command).status == 0
    assert security_policy(View.of(world.state)) == policy


@pytest.fixture
def world() -> World:
    return World()


def flags_of(world: World, queue: int) -> PositionFlag:
    (position,) = world.positions(queue).values()
    return PositionFlag(position.flags)


@pytest.mark.spec("MQ-2.3.1.11-01")
@pytest.mark.parametrize(
    ("facts", "authentication", "verdict"),
    [
        (SIGNED, True, ACCEPTED),
        (SIGNED, False, ACCEPTED),
        (PLAIN, False, ACCEPTED),
        (PLAIN, True, BAD_SIGNATURE),
        (replace(SIGNED, hash_algorithm=HashAlgorithm.SHA1), False, BAD_SIGNATURE),
        (replace(SIGNED, hash_algorithm=HashAlgorithm.MD5), False, BAD_SIGNATURE),
        (replace(SIGNED, is_certificate_expired=True), False, BAD_SIGNATURE),
        (STRANGER, False, ACCEPTED),
        (STRANGER, True, BAD_SIGNATURE),
        (replace(STRANGER, hash_algorithm=HashAlgorithm.SHA1), False, BAD_SIGNATURE),
        (INVALID, False, BAD_SIGNATURE),
        (replace(INVALID, is_provider_unknown=True), False, UNSUPPORTED),
    ],
)
def test_signatures_are_judged_by_hash_sender_and_provider(
    world: World, facts: Facts, authentication: bool, verdict: int
) -> None:
    world.create("orders", authentication=authentication)
    assert world.arrive(secured(), facts=facts) == [verdict]


@pytest.mark.spec("QB-6-01")
def test_the_policy_names_the_hashes_that_count(world: World) -> None:
    world.create("orders", authentication=True)
    facts = replace(SIGNED, hash_algorithm=HashAlgorithm.SHA1)
    # SHA-256 and SHA-512 count unless an administrator says otherwise; then each of them does.
    for number, algorithm in enumerate(HashAlgorithm, start=10):
        expected = ACCEPTED if algorithm in (0x800C, 0x800E) else BAD_SIGNATURE
        said = replace(SIGNED, hash_algorithm=algorithm)
        assert world.arrive(secured(number), facts=said) == [expected]
    for number, algorithm in enumerate(HashAlgorithm, start=20):
        set_policy(world, hash_algorithms=(algorithm,))
        said = replace(SIGNED, hash_algorithm=algorithm)
        assert world.arrive(secured(number), facts=said) == [ACCEPTED]
    set_policy(world, hash_algorithms=(HashAlgorithm.SHA1,))
    assert world.arrive(secured(1), facts=facts) == [ACCEPTED]
    assert world.arrive(secured(2), facts=SIGNED) == [BAD_SIGNATURE]


def test_expired_certificates_count_only_where_the_policy_says_so(world: World) -> None:
    world.create("orders", authentication=True)
    set_policy(world, accepts_expired=True)
    facts = replace(SIGNED, is_certificate_expired=True)
    assert world.arrive(secured(), facts=facts) == [ACCEPTED]


def test_strangers_authenticate_only_where_the_policy_says_so(world: World) -> None:
    queue = world.create("orders", authentication=True)
    set_policy(world, accepts_strangers=True)
    assert world.arrive(secured(), facts=STRANGER) == [ACCEPTED]
    assert flags_of(world, queue) & PositionFlag.AUTHENTICATED


@pytest.mark.parametrize(("facts", "is_shown"), [(SIGNED, True), (STRANGER, False), (PLAIN, False)])
def test_readers_are_told_only_of_signatures_that_count(
    world: World, facts: Facts, is_shown: bool
) -> None:
    queue = world.create("orders")
    assert world.arrive(secured(), facts=facts) == [ACCEPTED]
    assert bool(flags_of(world, queue) & PositionFlag.AUTHENTICATED) is is_shown


def test_an_unsigned_sid_counts_only_where_the_policy_says_so(world: World) -> None:
    acl = Acl((Ace(ACE_ALLOWED, 0, 0x4, ALICE),))
    world.create("orders", security=write_descriptor(SecurityDescriptor(dacl=acl)))
    claim = replace(PLAIN, claimed_sid=ALICE)
    assert world.arrive(secured(1), facts=SIGNED) == [ACCEPTED]
    assert world.arrive(secured(2), facts=claim) == [DENIED]
    set_policy(world, trusts_sender_id=True)
    assert world.arrive(secured(3), facts=claim) == [ACCEPTED]
    assert world.arrive(secured(4), facts=PLAIN) == [DENIED]
    set_policy(world)
    assert world.arrive(secured(5), facts=claim) == [DENIED]


@pytest.mark.spec("QB-3.1.5.8.3-16")
def test_who_is_known_by_queue_manager_is_everyone(world: World) -> None:
    for name, sid in (("orders", EVERYONE), ("alice", ALICE)):
        acl = Acl((Ace(ACE_ALLOWED, 0, 0x4, sid),))
        world.create(name, security=write_descriptor(SecurityDescriptor(dacl=acl)))
    as_manager = replace(SIGNED, sender_sids=(EVERYONE,))
    assert world.arrive(secured(), facts=as_manager) == [ACCEPTED]
    assert world.arrive(packet(2, to="alice"), facts=as_manager) == [DENIED]
    assert world.arrive(packet(3, to="alice"), facts=SIGNED) == [ACCEPTED]
    # Nobody is known: there is no token, and that is a denial.
    assert world.arrive(packet(4, to="alice"), facts=replace(SIGNED, sender_sids=())) == [DENIED]


@pytest.mark.parametrize(
    ("facts", "is_encrypted", "level", "verdict"),
    [
        (replace(PLAIN, was_encrypted=True), False, QueuePrivacyLevel.BODY, ACCEPTED),
        (replace(PLAIN, was_encrypted=True), False, QueuePrivacyLevel.OPTIONAL, ACCEPTED),
        (PLAIN, False, QueuePrivacyLevel.OPTIONAL, ACCEPTED),
        (PLAIN, False, QueuePrivacyLevel.NONE, ACCEPTED),
        (replace(PLAIN, was_encrypted=True), False, QueuePrivacyLevel.NONE, BAD_ENCRYPTION),
        (replace(PLAIN, decryption_failed=True), True, QueuePrivacyLevel.OPTIONAL, BAD_ENCRYPTION),
        (UNREADABLE, True, QueuePrivacyLevel.OPTIONAL, BAD_ENCRYPTION),
        (
            replace(UNREADABLE, is_provider_unknown=True),
            True,
            QueuePrivacyLevel.OPTIONAL,
            UNSUPPORTED,
        ),
        (PLAIN, True, QueuePrivacyLevel.OPTIONAL, BAD_ENCRYPTION),
        (PLAIN, False, QueuePrivacyLevel.BODY, BAD_ENCRYPTION),
    ],
)
@pytest.mark.spec("QB-3.1.5.8.3-14", "QB-3.1.5.8.3-09", "MQ-2.3.1.12-01", "MQ-2.2.20.6-06")
def test_bodies_are_judged_by_what_the_edge_could_do(
    world: World, facts: Facts, is_encrypted: bool, level: QueuePrivacyLevel, verdict: int
) -> None:
    world.create("orders", privacy_level=int(level))
    assert world.record(world.create("another")).privacy_level is QueuePrivacyLevel.OPTIONAL
    raw = secured(is_body_encrypted=is_encrypted)
    assert world.arrive(raw, facts=facts) == [verdict]


@pytest.mark.spec("QB-3.1.5.8.3-13", "QB-3.1.1.3-02", "QB-3.1.3.1-05")
def test_reduced_keys_are_refused_where_the_policy_says_so(world: World) -> None:
    world.create("orders")
    facts = replace(PLAIN, was_encrypted=True, is_key_reduced=True)
    assert world.arrive(secured(1), facts=facts) == [ACCEPTED]
    set_policy(world, refuses_reduced_keys=True)
    assert world.arrive(secured(2), facts=facts) == [BAD_ENCRYPTION]


def test_older_entries_keep_the_older_judgement(world: World) -> None:
    world.version = 5
    world.create("orders", authentication=True)
    weak = replace(SIGNED, hash_algorithm=HashAlgorithm.MD5)
    assert world.arrive(secured(1), facts=weak) == [ACCEPTED]
    unknown = replace(INVALID, is_provider_unknown=True)
    assert world.arrive(secured(2), facts=unknown) == [BAD_SIGNATURE]


def test_a_policy_with_too_many_hashes_is_refused(world: World) -> None:
    command = commands.SetSecurityPolicy(False, tuple(range(17)), False, False, False)
    assert world.one(command).status != 0
    assert security_policy(View.of(world.state)) is None


def test_a_policy_says_which_bodies_are_sealed_from_its_version_on(world: World) -> None:
    """Rows of older builds have no such field, and keep their bytes."""
    set_policy(world, sealed_bodies=SealedBodies.ALL)
    command = commands.SetSecurityPolicy(True, (), False, False, False, 3)
    assert world.one(command).status != 0
    world.version = VERSION_OF_SEALED_BODIES - 1
    assert world.one(replace(command, sealed_bodies=2)).status == 0
    assert security_policy(View.of(world.state)) == SecurityPolicy(True, ())
    row = world.state.get(Table.META, b"security")
    assert row is not None
    assert row[0] == 0x95  # an array of five


def test_a_copy_keeps_what_was_verified(world: World) -> None:
    queue = world.create("orders", journaling=True)
    assert world.arrive(secured(), facts=replace(SIGNED, was_encrypted=True)) == [ACCEPTED]
    client = world.client()
    assert client.receive(client.open(f"DIRECT=OS:{HOST}\\orders", QueueAccessType.RECEIVE_ACCESS))
    kept = PositionFlag.AUTHENTICATED | PositionFlag.WAS_ENCRYPTED
    assert flags_of(world, world.record(queue).journal_queue) & kept == kept

"""Facts of signed and encrypted messages ([MS-MQQB] 3.1.5.8.3), message by message."""

import datetime

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from msgspec.structs import fields, replace

from qm.edge.security.examination import Finding, examine
from qm.edge.security.examiner import Examiner, KeysSealed
from qm.model.messages.message import Message
from qm.model.values.commands import Facts, SignatureFact
from qm.node.config.schema import MsmqSection
from qm.security.providers import Provider
from qm.security.sid import EVERYONE
from qm.security.signature_input import SignatureVersion
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from qm.wire.headers.security_header import (
    SENDER_ID_NONE,
    SENDER_ID_QUEUE_MANAGER,
    SENDER_ID_SID,
    ProviderInfo,
    SecurityHeader,
    write_provider_info,
)
from qm.wire.packets.peek import peek_signature_version
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.user_certificate import certificate_digest
from tests.unit.edge.security.people import (
    ALICE,
    BOB,
    NOT_AFTER,
    Keys,
    Table,
    certificate,
    elliptic_certificate,
    encrypted,
    plain,
    private_key,
    signed,
    written,
)
from tests.unit.model.world import PEER

NOW_S = 1_700_000_000
PLAIN = Facts(1, PEER, "10.0.0.7", ())
RC4, RC2 = EncryptionAlgorithm.RC4, EncryptionAlgorithm.RC2
AES = (EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256)
CIPHERS = [
    *((level, one) for level in (PrivacyLevel.BASE, PrivacyLevel.ENHANCED) for one in (RC2, RC4)),
    *((PrivacyLevel.ADVANCED, one) for one in AES),
]


class Desk:
    """An examiner that knows Alice, with keys for each provider."""

    def __init__(self) -> None:
        self.table = Table()
        self.table.register(ALICE, certificate())
        self.own = private_key(1024)
        self.keys = Keys(BASE=self.own, ENHANCED=self.own, ADVANCED=self.own)
        self.examiner = Examiner(self.table, self.keys)
        self.last: Finding | None = None

    def facts(self, message: UserMessage, now: float = 0.0, now_s: int = NOW_S) -> Facts:
        raw = written(message)
        parsed, _ = parse_user_message(raw, 0, len(raw))
        question = self.examiner.question(raw, parsed, now)
        self.last = examine(question.subject)
        return self.examiner.facts(question, self.last, PLAIN, now, now_s)

    @property
    def message(self) -> UserMessage:
        """What enters the log of the last message."""
        assert self.last is not None
        return parse_user_message(self.last.raw, 0, len(self.last.raw))[0]


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Signatures --------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.3-02", "QB-3.1.5.8.3-03", "QB-3.1.5.8.3-04", "DM-5.1-01")
@pytest.mark.spec("QB-3.1.5.8.3-16")
@pytest.mark.parametrize(
    ("version", "kind"),
    [(SignatureVersion.MSMQ_1, 1), (SignatureVersion.MSMQ_2, 3), (SignatureVersion.MSMQ_3, 5)],
)
def test_a_registered_sender_is_known_by_its_signature(
    desk: Desk, version: SignatureVersion, kind: int
) -> None:
    facts = desk.facts(signed(plain(), version))
    assert not facts.was_encrypted
    assert facts == replace(
        PLAIN,
        sender_sids=(ALICE,),
        signature=SignatureFact.VALID,
        certificate_digest=certificate_digest(certificate()),
        signature_version=kind,
        hash_algorithm=HashAlgorithm.SHA512,
    )
    assert desk.last is not None
    assert peek_signature_version(desk.last.raw) == kind
    assert written(desk.message) == written(signed(plain(), version))


@pytest.mark.spec("QB-3.1.5.8.3-04")
@pytest.mark.parametrize(("version", "kind"), [(1, 1), (3, 3), (5, 0), (None, 0)])
def test_beside_another_signature_that_of_the_lists_counts_for_nothing(
    desk: Desk, version: int | None, kind: int
) -> None:
    both = signed(plain(), SignatureVersion.MSMQ_3)
    assert desk.facts(both).signature_version == 5
    assert both.security is not None
    assert both.multi_queue_format is not None
    signature = bytes(256)
    if version == 5:
        signature = both.multi_queue_format.signature
    elif version is not None:
        other = signed(plain(), SignatureVersion(version)).security
        assert other is not None
        signature = other.signature
    both = replace(both, security=replace(both.security, signature=signature))
    facts = desk.facts(both)
    expected = SignatureFact.VALID if kind else SignatureFact.INVALID
    assert (facts.signature_version, facts.signature) == (kind, expected)


@pytest.mark.spec("QB-3.1.5.8.3-05")
@pytest.mark.parametrize("version", SignatureVersion)
@pytest.mark.parametrize("who", ["a user", "nobody known", "a queue manager"])
def test_an_altered_message_has_an_invalid_signature(
    desk: Desk, version: SignatureVersion, who: str
) -> None:
    desk.table.publish(PEER, private_key(2048))
    security = {
        "a user": SecurityHeader(SENDER_ID_SID, security_id=ALICE, sender_cert=certificate()),
        "nobody known": SecurityHeader(sender_cert=certificate("stranger")),
        "a queue manager": SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=PEER),
    }[who]
    message = signed(plain(), version, security=security)
    assert desk.facts(message).signature_version == version, "as it was signed, it matches"
    altered = replace(
        message, properties=replace(message.properties, message_body=b"Pay 900 to Bob.")
    )
    facts = desk.facts(altered)
    assert (facts.signature, facts.sender_sids) == (SignatureFact.INVALID, ())
    assert desk.last is not None
    assert peek_signature_version(desk.last.raw) == 0


@pytest.mark.spec("QB-3.1.5.8.3-06", "QB-3.1.5.8.3-08")
@pytest.mark.parametrize("who", ["somebody else", "unknown", "another certificate"])
def test_a_certificate_that_is_not_the_sid_s_own_proves_nothing(desk: Desk, who: str) -> None:
    if who == "another certificate":
        desk.table.register(ALICE, certificate("other"))
    desk.table.register(BOB, certificate("bob"))
    sid = {"somebody else": BOB, "unknown": BOB[:-1] + b"\x09"}.get(who, ALICE)
    security = SecurityHeader(SENDER_ID_SID, security_id=sid, sender_cert=certificate())
    facts = desk.facts(signed(plain(), security=security))
    assert (facts.signature, facts.sender_sids) == (SignatureFact.INVALID, ())


@pytest.mark.spec("QB-3.1.5.8.3-08")
@pytest.mark.parametrize(
    "security",
    [
        SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=PEER),
        SecurityHeader(SENDER_ID_SID, security_id=ALICE, sender_cert=b"no certificate"),
        SecurityHeader(SENDER_ID_SID, security_id=ALICE),
        SecurityHeader(sender_cert=b"no certificate"),
    ],
    ids=["an unknown queue manager", "nonsense", "none", "nonsense of nobody"],
)
def test_without_a_certificate_that_matches_a_signature_proves_nothing(
    desk: Desk, security: SecurityHeader
) -> None:
    facts = desk.facts(signed(plain(), security=security))
    assert (facts.signature, facts.sender_sids) == (SignatureFact.INVALID, ())
    assert facts.signature_version == 0


@pytest.mark.spec("QB-3.1.5.8.3-06")
def test_what_is_known_of_a_sender_is_of_this_certificate_and_this_sid(desk: Desk) -> None:
    desk.table.register(BOB, certificate("bob"))
    for sid, mine, expected in (
        (ALICE, certificate(), (ALICE,)),
        (BOB, certificate(), ()),
        (ALICE, certificate("bob"), ()),
        (ALICE, certificate(), (ALICE,)),
    ):
        before = desk.table.reads
        security = SecurityHeader(SENDER_ID_SID, security_id=sid, sender_cert=mine)
        assert desk.facts(signed(plain(), security=security)).sender_sids == expected
    assert desk.table.reads == before, "the directory is not asked again"


@pytest.mark.spec("DM-3.1.1.12-41")
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_signature_without_sid_is_worth_what_its_certificate_is(
    desk: Desk, is_registered: bool
) -> None:
    mine = certificate() if is_registered else certificate("stranger")
    facts = desk.facts(signed(plain(), security=SecurityHeader(sender_cert=mine)))
    expected = SignatureFact.VALID if is_registered else SignatureFact.STRANGER
    assert (facts.signature, facts.sender_sids, facts.signature_version) == (expected, (), 3)


@pytest.mark.spec("DM-3.1.1.12-41")
@pytest.mark.parametrize(
    ("kind", "named", "claimed"),
    [
        (SENDER_ID_NONE, b"", b""),
        (SENDER_ID_SID, ALICE, ALICE),
        (SENDER_ID_QUEUE_MANAGER, ALICE, b""),
    ],
)
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_only_who_says_that_it_is_a_sid_names_a_sender(
    desk: Desk, kind: int, named: bytes, claimed: bytes, is_encrypted: bool
) -> None:
    security = SecurityHeader(kind, security_id=named, sender_cert=certificate())
    message = replace(plain(), security=security)
    facts = desk.facts(encrypted(message, desk.own) if is_encrypted else message)
    assert (facts.sender_sids, facts.claimed_sid) == ((), claimed)
    assert facts.was_encrypted is is_encrypted


@pytest.mark.parametrize(("days", "is_expired"), [(-1, True), (0, False), (366 * 21, True)])
def test_dates_of_certificates_are_compared_with_cluster_time(
    desk: Desk, days: int, is_expired: bool
) -> None:
    first = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    now_s = int((first + datetime.timedelta(days=days)).timestamp()) + 1
    facts = desk.facts(signed(plain()), now_s=now_s)
    assert (facts.signature, facts.is_certificate_expired) == (SignatureFact.VALID, is_expired)
    assert first < NOT_AFTER


def test_certificates_for_other_algorithms_need_another_provider(desk: Desk) -> None:
    security = SecurityHeader(sender_cert=elliptic_certificate(), signature=b"signature")
    facts = desk.facts(replace(plain(), security=security))
    assert (facts.signature, facts.is_provider_unknown) == (SignatureFact.UNVERIFIED, True)


@pytest.mark.spec("MQ-2.2.19.3-20")
def test_an_unlisted_hash_matters_to_signed_messages_alone(desk: Desk) -> None:
    odd = replace(plain(), properties=replace(plain().properties, hash_algorithm=0x1234))
    assert desk.facts(replace(odd, security=SecurityHeader(sender_cert=b"x"))) == PLAIN
    signature = SecurityHeader(sender_cert=certificate(), signature=bytes(256))
    assert desk.facts(replace(odd, security=signature)).signature is SignatureFact.INVALID
    # Nor is it taken for another one, of which the signature may be made.
    for hash_algorithm in (0x8003, 0x8004, 0x800C, 0x800E):
        made = signed(plain(), hash_algorithm=hash_algorithm)
        assert desk.facts(made).signature is SignatureFact.VALID
        named = replace(made, properties=replace(made.properties, hash_algorithm=0x1234))
        assert desk.facts(named).signature is SignatureFact.INVALID


@pytest.mark.spec("MQ-2.2.19.3-23")
def test_an_unlisted_cipher_matters_to_encrypted_messages_alone(desk: Desk) -> None:
    def odd(message: UserMessage) -> UserMessage:
        properties = replace(message.properties, encryption_algorithm=0x1234)
        return replace(message, properties=properties)

    assert desk.facts(odd(signed(plain()))).signature is SignatureFact.VALID
    assert desk.facts(odd(encrypted(plain(), desk.own))).decryption_failed


@pytest.mark.spec("MQ-2.2.20.6-07", "MQ-2.2.20.6-22")
@pytest.mark.parametrize(("kind", "is_unknown"), [(1, False), (24, False), (3, True), (6, True)])
def test_a_provider_that_does_not_sign_with_rsa_is_unsupported(
    desk: Desk, kind: int, is_unknown: bool
) -> None:
    info = write_provider_info(ProviderInfo(kind, "A provider"))
    message = signed(plain())
    assert message.security is not None
    security = replace(message.security, provider_info=info)
    facts = desk.facts(replace(message, security=security))
    expected = SignatureFact.UNVERIFIED if is_unknown else SignatureFact.VALID
    assert (facts.signature, facts.is_provider_unknown) == (expected, is_unknown)
    # DE says that it is the default one, whatever ProviderInfo names.
    by_default = replace(security, is_default_provider=True)
    facts = desk.facts(replace(message, security=by_default))
    assert facts.signature is SignatureFact.VALID
    # Of an unsigned message the provider does not matter.
    unsigned = replace(security, signature=b"", security_id=b"", sender_id_type=0)
    assert desk.facts(replace(message, security=unsigned)).signature is SignatureFact.ABSENT


def test_weak_hashes_are_facts_and_unknown_ones_are_failures(desk: Desk) -> None:
    facts = desk.facts(signed(plain(), hash_algorithm=HashAlgorithm.SHA1))
    assert (facts.signature, facts.hash_algorithm) == (SignatureFact.VALID, HashAlgorithm.SHA1)
    message = signed(plain())
    for number in (HashAlgorithm.MD2, HashAlgorithm.MD4, 0, 0xFFFF_FFFF):
        odd = replace(message, properties=replace(message.properties, hash_algorithm=number))
        assert desk.facts(odd).signature is SignatureFact.INVALID


def configured(name: str) -> tuple[str, ...]:
    """The hashes that count where a node is told of one."""
    return msgspec.convert({"signature_hashes": [name]}, MsmqSection).signature_hashes


@pytest.mark.spec("QB-6-01", "QB-3.1.5.8.3-02")
def test_hashes_that_count_by_default_and_where_they_are_configured(desk: Desk) -> None:
    everyday = MsmqSection().signature_hashes
    assert "sha512" in everyday
    names = {
        "md5": HashAlgorithm.MD5,
        "sha1": HashAlgorithm.SHA1,
        "sha256": HashAlgorithm.SHA256,
        "sha512": HashAlgorithm.SHA512,
    }
    assert {*everyday} == {"sha256", "sha512"}
    for name, number in names.items():
        message = signed(plain(), hash_algorithm=number)
        facts = desk.facts(message)
        assert (facts.signature, facts.hash_algorithm) == (SignatureFact.VALID, number)
        # It is that hash: what is signed names it.
        assert message.security is not None
        private_key(2048).public_key().recover_data_from_signature(
            message.security.signature[::-1], PKCS1v15(), getattr(hashes, name.upper())()
        )
        # Which of them count is the policy's, and each can be put on its list.
        assert configured(name) == (name,)
    for never, number in (("md2", HashAlgorithm.MD2), ("md4", HashAlgorithm.MD4)):
        with pytest.raises(msgspec.ValidationError):
            configured(never)
        message = signed(plain())
        odd = replace(message, properties=replace(message.properties, hash_algorithm=number))
        assert desk.facts(odd).signature is SignatureFact.INVALID
    (hashed,) = (one for one in fields(Message) if one.name == "hash_algorithm")
    assert hashed.default == HashAlgorithm.SHA512, "what a sender signs with"


@pytest.mark.spec("MQ-2.2.20.6-15", "DM-3.1.1.12-41", "MQ-2.2.20.6-03", "QB-3.1.5.8.3-16")
def test_a_queue_manager_signs_with_a_key_of_the_directory(desk: Desk) -> None:
    security = SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=PEER)
    message = signed(plain(), security=security, bits=1024)
    assert desk.facts(message).signature is SignatureFact.INVALID
    desk.table.publish(PEER, private_key(2048), private_key(1024))
    facts = desk.facts(message)
    assert (facts.signature, facts.sender_sids) == (SignatureFact.VALID, (EVERYONE,))
    other = SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=bytes(16))
    assert desk.facts(signed(plain(), security=other)).signature is SignatureFact.INVALID
    # Another queue manager, with keys of its own, is not the one that the message comes from.
    stranger = b"another-manager!"
    desk.table.publish(stranger, private_key(2048))
    other = SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=stranger)
    assert desk.facts(signed(plain(), security=other)).signature is SignatureFact.INVALID
    theirs = signed(plain(source_queue_manager=stranger), security=other)
    assert desk.facts(theirs).signature is SignatureFact.VALID


@pytest.mark.spec("MQ-2.2.20.6-03")
@pytest.mark.parametrize("sid", [ALICE, b"nonsense", ALICE + b"\0\0\0\0", b"\x01\x0f" + bytes(6)])
def test_an_unsigned_sid_is_a_claim(desk: Desk, sid: bytes) -> None:
    security = SecurityHeader(SENDER_ID_SID, security_id=sid)
    facts = desk.facts(replace(plain(), security=security))
    assert facts == replace(PLAIN, claimed_sid=ALICE if sid == ALICE else b"")
    # With ST 2 the same bytes name a queue manager.
    manager = SecurityHeader(SENDER_ID_QUEUE_MANAGER, security_id=sid)
    assert desk.facts(replace(plain(), security=manager)) == PLAIN


# Ciphers -----------------------------------------------------------------------------------


@pytest.mark.spec(
    "QB-3.1.5.8.3-09",
    "QB-3.1.5.8.3-11",
    "QB-3.1.5.8.3-14",
    "MQ-2.2.20.6-06",
    "MQ-2.2.19.3-18",
)
@pytest.mark.parametrize(("level", "algorithm"), CIPHERS)
@pytest.mark.parametrize("is_signed", [True, False])
def test_bodies_are_decrypted_before_signatures_are_verified(
    desk: Desk, level: PrivacyLevel, algorithm: EncryptionAlgorithm, is_signed: bool
) -> None:
    assert level == {"BASE": 1, "ENHANCED": 3, "ADVANCED": 5}[level.name]
    clear = signed(plain()) if is_signed else plain()
    message = encrypted(clear, desk.own, level, algorithm)
    # It is the level that says whose key opens it.
    others = [provider for provider in Provider if int(provider) != int(level)]
    desk.keys.of |= {provider: [private_key(2048)] for provider in others}
    facts = desk.facts(message)
    assert facts.was_encrypted
    assert not facts.decryption_failed
    assert facts.signature is (SignatureFact.VALID if is_signed else SignatureFact.ABSENT)
    assert desk.message.properties.message_body == clear.properties.message_body
    security = desk.message.security
    assert security is not None
    assert not security.is_body_encrypted
    assert security.encryption_key
    assert desk.message.properties.privacy_level == level


@pytest.mark.spec("MQ-2.2.20.6-06")
@pytest.mark.parametrize("level", PrivacyLevel)
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_body_without_eb_is_as_it_came(desk: Desk, level: PrivacyLevel, is_signed: bool) -> None:
    """Whatever PrivacyLevel says, and though the header has a key that would open it."""
    clear = replace(plain(), properties=replace(plain().properties, privacy_level=level))
    sealed = encrypted(clear, desk.own).security
    assert sealed is not None
    security = SecurityHeader(
        SENDER_ID_SID,
        security_id=ALICE,
        sender_cert=certificate(),
        encryption_key=sealed.encryption_key,
    )
    given = signed(clear, security=security) if is_signed else replace(clear, security=security)
    facts = desk.facts(given)
    assert (facts.was_encrypted, facts.decryption_failed) == (False, False)
    assert facts.signature is (SignatureFact.VALID if is_signed else SignatureFact.ABSENT)
    assert desk.message.properties.message_body == plain().properties.message_body
    assert desk.message.security is not None
    assert not desk.message.security.is_body_encrypted


def _garbled(message: UserMessage) -> UserMessage:
    body = bytes(len(message.properties.message_body))
    return replace(message, properties=replace(message.properties, message_body=body))


def _key(blob: bytes) -> object:
    return lambda message: replace(message, security=replace(message.security, encryption_key=blob))


def _level(level: int) -> object:
    return lambda message: replace(
        message, properties=replace(message.properties, privacy_level=level)
    )


UNREADABLE = {
    "body": _garbled,
    "no key": _key(b""),
    "short blob": _key(bytes(11)),
    "foreign blob": _key(bytes.fromhex("0102000010660000 00A40000") + bytes(128)),
    "level 0": _level(0),
    "level 2": _level(2),
    "level 7": _level(7),
    "other level": _level(3),
}


@pytest.mark.spec("QB-3.1.5.8.3-09", "QB-3.1.5.8.3-14", "MQ-2.2.19.3-18")
@pytest.mark.parametrize("case", UNREADABLE)
def test_whatever_fails_is_one_fact(desk: Desk, case: str) -> None:
    """Which step failed is not to be learned."""
    message = UNREADABLE[case](encrypted(signed(plain()), desk.own))  # type: ignore[operator]
    facts = desk.facts(message)
    assert facts.decryption_failed
    assert (facts.was_encrypted, facts.signature) == (False, SignatureFact.UNVERIFIED)
    assert not facts.is_provider_unknown
    assert desk.last is not None
    assert desk.last.raw == written(message)


def test_a_provider_without_keys_is_unsupported(desk: Desk) -> None:
    desk.keys.of.clear()
    facts = desk.facts(encrypted(plain(), desk.own))
    assert (facts.decryption_failed, facts.is_provider_unknown) == (True, True)


def test_a_node_that_cannot_unseal_its_keys_says_so(desk: Desk) -> None:
    desk.keys.is_sealed = True
    with pytest.raises(KeysSealed):
        desk.facts(encrypted(plain(), desk.own))


def test_an_older_key_still_opens(desk: Desk) -> None:
    message = encrypted(plain(), desk.own)
    for keys in desk.keys.of.values():
        keys.insert(0, private_key(2048))
    assert desk.facts(message).was_encrypted


@pytest.mark.spec("QB-3.1.5.8.3-13", "QB-3.1.1.3-02")
@pytest.mark.parametrize("is_reduced", [True, False])
def test_reduced_keys_are_a_fact(desk: Desk, is_reduced: bool) -> None:
    secret = b"\x01\x02\x03\x04\x05" + (bytes(11) if is_reduced else bytes(10) + b"\x01")
    message = encrypted(plain(), desk.own, PrivacyLevel.ENHANCED, RC2, secret)
    for _ in range(2):  # the second time its key is known already
        facts = desk.facts(message)
        assert (facts.was_encrypted, facts.is_key_reduced) == (True, is_reduced)
    assert desk.keys.reads == 1
    # Keys of other ciphers may be as they like.
    message = encrypted(plain(), desk.own, PrivacyLevel.ENHANCED, RC4, secret)
    facts = desk.facts(message)
    assert (facts.was_encrypted, facts.is_key_reduced) == (True, False)


# Caches ------------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.3.1-03")
def test_a_certificate_is_looked_up_once_and_again_when_the_directory_changes(desk: Desk) -> None:
    assert len(desk.examiner.user_certificates) == len(desk.examiner.symmetric_keys) == 0
    for _ in range(3):
        assert desk.facts(signed(plain())).signature is SignatureFact.VALID
    assert desk.table.reads == 1
    assert desk.facts(encrypted(plain(), desk.own)).was_encrypted
    assert len(desk.examiner.user_certificates) == len(desk.examiner.symmetric_keys) == 1
    another = Examiner(desk.table, desk.keys)
    assert len(another.user_certificates) == len(another.symmetric_keys) == 0
    desk.table.forget(ALICE)
    assert desk.facts(signed(plain())).signature is SignatureFact.INVALID


@pytest.mark.spec("QB-3.1.5.8.3-07", "QB-3.1.3.1-04", "QB-3.1.1.3.3-01")
def test_the_oldest_half_of_53_certificates_makes_room(desk: Desk) -> None:
    """CachedUserCert: certificate, SecurityID and CachedTime, 1,200 s; the key is all of both.

    SymmetricKeyLongLifetime is of releases before Vista (notes <63>, <64>): nothing here has it.
    """
    people = [ALICE[:-4] + number.to_bytes(4, "little") for number in range(2_000, 2_054)]

    def greet(sid: bytes, now: float) -> int:
        security = SecurityHeader(SENDER_ID_SID, security_id=sid, sender_cert=certificate())
        before = desk.table.reads
        assert desk.facts(signed(plain(), security=security), now).sender_sids == (sid,)
        return desk.table.reads - before

    for sid in people:
        desk.table.register(sid, certificate())
    cache = desk.examiner.user_certificates
    assert [greet(sid, float(at)) for at, sid in enumerate(people[:53])] == [1] * 53
    assert len(cache) == 53
    assert greet(people[0], 60.0) == 0
    assert greet(people[53], 61.0) == 1
    assert len(cache) == 53 - 26 + 1, "half of 53 went"
    assert greet(people[26], 62.0) == 0, "the 27th oldest stayed"
    assert greet(people[25], 63.0) == 1
    assert cache.first_cleanup_at(100.0) == 100.0 + 1_200
    # At 1,227 s and no earlier what was read at 26 s is older than its lifetime.
    assert cache.clean(1_226.0) == 26.0 + 1_200 + 60
    assert greet(people[26], 1_226.0) == 0
    cache.clean(1_227.0)
    assert greet(people[26], 1_227.0) == 1


@pytest.mark.spec("QB-3.1.5.8.3-12", "QB-3.1.3.1-04")
def test_the_oldest_half_of_127_session_keys_makes_room(desk: Desk) -> None:
    cache = desk.examiner.symmetric_keys
    # Each is encrypted with padding of its own: another blob, another CachedSymmetricKey.
    made = [encrypted(plain(), desk.own, secret=bytes([n]) * 32) for n in range(1, 129)]
    for at, message in enumerate(made[:127]):
        assert desk.facts(message, float(at)).was_encrypted
    assert (len(cache), desk.keys.reads) == (127, 127)
    assert desk.facts(made[127], 200.0).was_encrypted
    assert len(cache) == 127 - 63 + 1
    assert desk.facts(made[63], 201.0).was_encrypted
    assert desk.keys.reads == 128, "the 64th oldest stayed"
    assert desk.facts(made[62], 202.0).was_encrypted
    assert desk.keys.reads == 129
    assert cache.first_cleanup_at(100.0) == 100.0 + 600
    assert cache.clean(663.0) == 63.0 + 600 + 60
    assert cache.clean(664.0) == 64.0 + 600 + 60


@pytest.mark.spec("QB-3.1.5.8.3-10", "QB-3.1.5.8.3-11", "QB-3.1.1.3.3-01")
def test_a_session_key_is_unwrapped_once_and_again_when_the_keys_change(desk: Desk) -> None:
    message = encrypted(plain(), desk.own)
    for _ in range(3):
        assert desk.facts(message).was_encrypted
    assert desk.keys.reads == 1
    # CachedTime is when it was unwrapped, and it is kept for 600 s.
    later = encrypted(plain(), desk.own)
    for at in (26.0, 500.0):
        assert desk.facts(later, at).was_encrypted
    assert desk.keys.reads == 2
    assert desk.examiner.symmetric_keys.clean(626.0) == 26.0 + 600 + 60
    assert desk.facts(later, 626.0).was_encrypted
    assert desk.keys.reads == 2
    desk.examiner.symmetric_keys.clean(626.5)
    assert len(desk.examiner.symmetric_keys) == 0
    assert desk.facts(message, 627.0).was_encrypted
    assert desk.keys.reads == 3
    elsewhere = replace(
        message, user_header=replace(message.user_header, source_queue_manager=bytes(16))
    )
    assert desk.facts(elsewhere).was_encrypted
    assert desk.keys.reads == 4
    # With another provider, algorithm or blob it is another key, though the body is the same.
    properties, security = message.properties, message.security
    assert security is not None
    blob = bytearray(security.encryption_key)
    blob[-1] ^= 1
    for other in (
        replace(message, properties=replace(properties, privacy_level=int(PrivacyLevel.BASE))),
        replace(message, properties=replace(properties, encryption_algorithm=int(AES[0]))),
        replace(message, security=replace(security, encryption_key=bytes(blob))),
    ):
        before = desk.keys.reads
        assert desk.facts(other).decryption_failed
        assert desk.keys.reads == before + 1
    assert desk.facts(message).was_encrypted
    desk.keys.of.clear()
    desk.keys.version += 1
    assert desk.facts(message).decryption_failed

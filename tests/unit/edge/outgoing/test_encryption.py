"""Bodies are encrypted on their way by the keys of the directory, or do not leave at all."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from qm.client.mqac.constants import MQMSGPRIVLEVEL
from qm.edge.outgoing.encrypting import (
    SEND_KEY_LIFETIME_S,
    SEND_KEYS_MAX,
    BodyEncryption,
    EncryptionFailed,
)
from qm.model.messages.message import Message
from qm.model.queries.people import ReplicatedDirectory
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts
from qm.model.values.elements import DirectoryObjectType
from qm.model.values.rows import class_of
from qm.names.format_name import PrivateName
from qm.names.guid import guid_text
from qm.node.config.loading import parse
from qm.node.leader.message_policy import MessagePolicy
from qm.node.upkeep.msmq_endpoint import outgoing_settings
from qm.security.body_ciphers import SessionKey, decrypt_body
from qm.security.body_encryption import EncryptionPolicy
from qm.security.providers import Provider
from qm.security.session_keys import public_key_blob, unwrapped
from qm.session import ConnectionStatus, SessionConfig
from qm.wire.codes import ErrorCode, is_failure
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.enums import EncryptionAlgorithm as Algorithm
from qm.wire.headers.message_properties import write_message_properties_header
from qm.wire.headers.security_header import SENDER_ID_SID, SecurityHeader, parse_provider_info
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.public_key import (
    MqdsPublicKey,
    parse_simple_blob,
    write_mqds_public_keys,
)
from qm.wire.structures.queue_name import PrivateQueueFormatNameId, QueueHost
from tests.unit.edge.outgoing.world import (
    PEER_GUID,
    SendingCluster,
    one_peer,
    run,
    settled,
    until,
)
from tests.unit.edge.security.people import ALICE
from tests.unit.model.world import PEER, World, packet, request
from tests.unit.node.config.test_loading import SOUND

HOST = "127.0.0.61"
TO_PEER = f"PRIVATE={guid_text(PEER_GUID)}\\00000009"
NAME = PrivateName(PEER_GUID, 9)
KEYS = {provider: generate_private_key(65537, 1024) for provider in Provider}
PAIRS = [
    (PrivacyLevel.BASE, EncryptionAlgorithm.RC2),
    (PrivacyLevel.BASE, EncryptionAlgorithm.RC4),
    (PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC2),
    (PrivacyLevel.ENHANCED, EncryptionAlgorithm.RC4),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES128),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES192),
    (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256),
]


BITS = {
    PrivacyLevel.BASE: 40,
    PrivacyLevel.ENHANCED: 128,
    PrivacyLevel.ADVANCED: 0,  # its algorithm says it
    EncryptionAlgorithm.AES128: 128,
    EncryptionAlgorithm.AES192: 192,
    EncryptionAlgorithm.AES256: 256,
}


def know_peer(
    world: World,
    *,
    addresses: tuple[str, ...] = (),
    keys: dict[Provider, RSAPrivateKey] = KEYS,
    guid: bytes = PEER_GUID,
) -> None:
    """Put the peer with these keys into the directory."""
    published = tuple(
        MqdsPublicKey(
            provider.provider_type, provider.provider_name, public_key_blob(key.public_key())
        )
        for provider, key in keys.items()
    )
    values = {
        "computer_name": "peer" if guid == PEER_GUID else guid.hex()[-12:],
        "addresses": addresses,
        "public_encryption_key_list": write_mqds_public_keys(published),
    }
    attributes = {name: encode_attribute(value) for name, value in values.items()}
    kind = DirectoryObjectType.QUEUE_MANAGER
    outcome = world.one(commands.DirectoryWrite(request(), guid, kind, attributes, ()))
    assert outcome.status == 0


def private(level: int, algorithm: int = EncryptionAlgorithm.RC4) -> dict[str, object]:
    return {"privacy_level": level, "encryption_algorithm": algorithm}


def opened(message: UserMessage) -> bytes:
    """Return the body as its receiver reads it."""
    return decrypt_body(session_key_of(message), message.properties.message_body)


def session_key_of(message: UserMessage) -> SessionKey:
    """Return the key with which a message came."""
    security, properties = message.security, message.properties
    assert security is not None
    assert security.is_body_encrypted
    level = PrivacyLevel(properties.privacy_level)
    algorithm = EncryptionAlgorithm(properties.encryption_algorithm)
    return unwrapped(security.encryption_key, level, algorithm, KEYS[Provider(level)])


def opened_by_hand(message: UserMessage) -> bytes:
    """The same for AES, without what the product decrypts with."""
    security = message.security
    assert security is not None
    head, wrapped_key = security.encryption_key[:12], security.encryption_key[12:]
    algorithm = message.properties.encryption_algorithm
    assert head == pack("<BBHIHH", 1, 2, 0, algorithm, 0xA400, 0)
    # The ciphertext has its least significant byte first.
    own = KEYS[Provider(message.properties.privacy_level)]
    secret = own.decrypt(wrapped_key[::-1], PKCS1v15())
    assert len(secret) * 8 == {0x660E: 128, 0x660F: 192, 0x6610: 256}[algorithm]
    decryptor = Cipher(AES(secret), CBC(bytes(16))).decryptor()
    padded = decryptor.update(message.properties.message_body) + decryptor.finalize()
    unpadder = PKCS7(128).unpadder()
    return unpadder.update(padded) + unpadder.finalize()


def key_bits(message: UserMessage) -> int:
    """Return how long the key is that went with a body."""
    assert message.security is not None
    key = message.security.encryption_key
    blob, _ = parse_simple_blob(key, 0, len(key))
    own = KEYS[Provider(PrivacyLevel(message.properties.privacy_level))]
    return 8 * len(own.decrypt(blob.encrypted_key[::-1], PKCS1v15()))


@pytest.mark.spec("DM-3.1.1.12-10")
def test_who_does_not_ask_for_it_is_never_encrypted() -> None:
    async def scenario() -> None:
        assert Message().privacy_level is PrivacyLevel.NONE
        async with one_peer(HOST) as (peer, cluster):
            know_peer(cluster.world, addresses=(HOST,))
            for algorithm in EncryptionAlgorithm:
                cluster.send(TO_PEER, properties=private(PrivacyLevel.NONE, algorithm))
            count = len(EncryptionAlgorithm)
            # A signed one has the header whose EB could say that it was.
            signed = SecurityHeader(SENDER_ID_SID, security_id=ALICE, signature=bytes(range(64)))
            cluster.send(TO_PEER, properties=private(PrivacyLevel.NONE), security=signed)
            await until(lambda: len(peer.taken) == count + 1)
            assert peer.bodies == [*range(count + 1)]
            assert [message.security for message in peer.taken] == [None] * count + [signed]
            assert not signed.is_body_encrypted

    run(scenario())


@pytest.mark.spec(
    "QB-3.1.7.1.5-09", "QB-3.1.7.1.5-10", "MQ-2.2.20.6-06", "DM-3.1.1.12-10", "DM-5.1-01"
)
def test_bodies_arrive_encrypted_and_stay_here_in_clear() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            know_peer(cluster.world, addresses=("nobody.example", HOST))
            for level, algorithm in PAIRS:
                queue = cluster.send(
                    TO_PEER, properties=private(level, algorithm), has_positive_journaling=True
                )
            await until(
                lambda: len(peer.taken) == len(PAIRS), lambda: cluster.manager.report(queue)
            )
            for (level, algorithm), message in zip(PAIRS, peer.taken, strict=True):
                assert message.properties.privacy_level == level
                assert message.properties.encryption_algorithm == algorithm
                assert opened(message).isdigit()
                assert message.security is not None
                assert message.security.is_body_encrypted
                if level is PrivacyLevel.ADVANCED:
                    assert opened_by_hand(message) == opened(message)
                # MessageSize and AllocationBodySize are the ciphertext's.
                sizes = pack("<I", len(message.properties.message_body)) * 2
                written = write_message_properties_header(message.properties)
                assert written[32:40] == sizes
                info = message.security.provider_info
                provider = parse_provider_info(info, 0, len(info))[0]
                assert provider.provider_name == Provider(level).provider_name
                assert key_bits(message) == BITS.get(algorithm, BITS[level])
            await until(lambda: len(cluster.journal()) == len(PAIRS))
            assert all(body.isdigit() for body in cluster.journal())

    run(scenario())


@pytest.mark.spec("AC-2.2.2.15-01", "AC-2.2.2.15-02")
def test_a_level_asks_for_so_many_bits() -> None:
    levels = MQMSGPRIVLEVEL
    bits = {
        levels.MQMSG_PRIV_LEVEL_NONE: 0,
        levels.MQMSG_PRIV_LEVEL_BODY_BASE: 40,
        levels.MQMSG_PRIV_LEVEL_BODY_ENHANCED: 128,
    }
    assert [*bits] == [0, 1, 3]
    asked = [(level, cipher) for level in bits for cipher in (Algorithm.RC2, Algorithm.RC4)]

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            know_peer(cluster.world, addresses=(HOST,))
            for level, cipher in asked:
                queue = cluster.send(TO_PEER, properties=private(level, cipher))
            await until(
                lambda: len(peer.taken) == len(asked), lambda: cluster.manager.report(queue)
            )
            for message, (level, cipher) in zip(peer.taken, asked, strict=True):
                assert message.properties.encryption_algorithm == cipher
                if length := bits[level]:
                    assert key_bits(message) == length
                    assert session_key_of(message).effective_bits == length
                    assert opened(message).isdigit()
                else:
                    assert message.security is None
                    assert message.properties.message_body.isdigit()

    run(scenario())


@pytest.mark.spec("QB-3.1.7.1.5-01", "QB-3.1.7.1.5.1-01", "DM-3.1.1.3-07", "MQ-2.3.12.25-03")
def test_what_cannot_be_encrypted_does_not_leave() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            sent = len(cluster.world.bodies)
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            cluster.world.tick(7_000)
            refused_at_s = cluster.world.now_ms // 1000
            level = private(PrivacyLevel.ENHANCED)
            cluster.send(peer.address, 1, properties=level, has_negative_journaling=True)
            cluster.send(peer.address, 1, properties=level)
            cluster.send(
                *(peer.address, 1),
                is_transactional=True,
                properties=private(PrivacyLevel.ADVANCED),
                has_negative_journaling=True,
            )
            cluster.send(peer.address, 1)
            await until(lambda: len(peer.taken) == 2, lambda: cluster.manager.report(queue))
            await until(lambda: not cluster.waiting(queue))
            await settled()
            # Bodies are the running numbers: the first and the last left, the rest never did.
            assert peer.bodies == [sent, sent + 4]
            assert cluster.dead_letters() == [b"%d" % (sent + 1)]
            assert cluster.dead_letters(is_transactional=True) == [b"%d" % (sent + 3)]
            report = cluster.manager.report(queue)
            assert report is not None
            failed = ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE
            told = [entry for entry in report.connection_history if entry.status is failed]
            assert len(told) == 3
            assert {entry.address_list for entry in told} == {HOST}
            assert {entry.connection_history_time for entry in told} == {refused_at_s}
            (established,) = (
                entry.connection_history_time
                for entry in report.connection_history
                if entry.status is ConnectionStatus.ESTABLISHED
            )
            assert refused_at_s - established == 7
            assert all(is_failure(entry.error) for entry in told)
            assert cluster.metric("quorate_outgoing_messages_total", result="unencryptable") == 3

    run(scenario())


@pytest.mark.spec("QB-3.1.7.1.5-02")
def test_a_key_that_is_gone_when_its_message_would_leave() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=True) as (peer, cluster):
            know_peer(cluster.world)
            cluster.lead(None)
            queue = cluster.send(TO_PEER, 1, properties=private(3), has_negative_journaling=True)
            gone = commands.DirectoryWrite(
                request(), PEER_GUID, DirectoryObjectType.QUEUE_MANAGER, None, ()
            )
            assert cluster.world.one(gone).status == 0
            cluster.lead("n1")
            await until(lambda: not cluster.waiting(queue))
            await settled()
            assert not peer.taken
            assert len(cluster.dead_letters()) == 1
            which = cluster.world.manager_queue("system_deadletter_queue")
            (dead,) = cluster.world.positions(which).values()
            assert class_of(dead.class_code) == MessageClass.NACK_BAD_ENCRYPTION
            assert cluster.metric("quorate_outgoing_messages_total", result="unencryptable") == 1

    run(scenario())


def test_transactional_messages_are_encrypted_under_their_numbers() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=True) as (peer, cluster):
            know_peer(cluster.world)
            level = private(5, 0x6610)
            queue = cluster.send(TO_PEER, 3, is_transactional=True, properties=level)
            await until(lambda: not cluster.waiting(queue), lambda: peer.raw)
            assert [opened(message).isdigit() for message in peer.taken] == [True] * 3

    run(scenario())


@pytest.mark.spec("QB-3.1.7.1.5-02")
def test_a_send_is_refused_when_the_directory_has_no_key_for_it() -> None:
    world = World()
    client = world.client()
    raw = packet(0, properties=private(PrivacyLevel.ADVANCED))
    refused = ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND
    assert client.send(TO_PEER, raw=raw).status == refused
    know_peer(world, keys={Provider.BASE: KEYS[Provider.BASE]})
    assert client.send(TO_PEER, raw=raw).status == refused, "its key is of another provider"
    know_peer(world)
    assert client.send(TO_PEER, raw=raw).status == 0
    assert client.send(r"DIRECT=OS:far\q", raw=raw).status == 0, "it ends when it would leave"


@pytest.mark.spec("DM-3.1.1.2-09", "MQ-2.3.1.12-01")
def test_local_queues_take_what_asks_for_encryption_by_their_level() -> None:
    world = World()
    client = world.client()
    plain, secret = packet(0), packet(0, properties=private(PrivacyLevel.BASE))
    for level, takes_plain, takes_secret in ((0, True, False), (1, True, True), (2, False, True)):
        world.create(f"q{level}", privacy_level=level)
        name = f"DIRECT=OS:.\\q{level}"
        assert (client.send(name, raw=plain).status == 0) is takes_plain
        assert (client.send(name, raw=secret).status == 0) is takes_secret


def leaving(
    encryption: BodyEncryption, level: int, algorithm: int, name: PrivateName = NAME
) -> UserMessage:
    to = PrivateQueueFormatNameId(QueueHost.DESTINATION, 9)
    raw = packet(1, to=to, queue_manager_address=name.guid, properties=private(level, algorithm))
    sent = encryption.leaving(raw, name)
    return parse_user_message(sent, 0, len(sent))[0]


def key_of(message: UserMessage) -> bytes:
    assert message.security is not None
    return message.security.encryption_key


@pytest.mark.spec("QB-3.1.7.1.5-07", "QB-3.1.3.1-04", "QB-3.1.3.1-03")
def test_session_keys_belong_to_provider_algorithm_and_queue_manager() -> None:
    """Each has an entry of SendSymmetricKeyCache, which holds 53 and then loses its older half."""
    world = World()
    managers = [number.to_bytes(16, "big") for number in range(1, 61)]
    for manager in managers:
        know_peer(world, guid=manager)
    directory = ReplicatedDirectory(lambda: world.state)
    encryption = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy())

    def key(level: int, algorithm: int, manager: bytes = managers[0]) -> bytes:
        return key_of(leaving(encryption, level, algorithm, PrivateName(manager, 9)))

    first = key(3, 0x6801)
    assert key(3, 0x6801) == first
    others = [key(1, 0x6801), key(3, 0x6602), key(3, 0x6801, managers[1])]
    assert len({first, *others}) == 4
    # It was empty when the queue manager started: another leader has other keys.
    another = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy())
    assert key_of(leaving(another, 3, 0x6801, PrivateName(managers[0], 9))) != first
    filled = [key(3, 0x6801, manager) for manager in managers[2:51]]
    assert key(3, 0x6801) == first, "53 have room"
    key(3, 0x6801, managers[51])
    assert key(3, 0x6801, managers[50]) == filled[-1], "the younger ones stayed"
    # 26 of 53 went, the oldest: four of the first queue managers, and 22 of those that filled it.
    assert key(3, 0x6801) != first
    assert key(3, 0x6801, managers[24]) == filled[22]
    assert key(3, 0x6801, managers[23]) != filled[21]


@pytest.mark.spec("QB-3.1.7.1.5-07", "QB-3.1.3.1-04")
def test_session_keys_are_used_for_a_time() -> None:
    world, now = World(), [0.0]
    know_peer(world)
    encryption = BodyEncryption(
        ReplicatedDirectory(lambda: world.state), lambda: now[0], EncryptionPolicy()
    )
    first = key_of(leaving(encryption, 3, 0x6801))
    now[0] = SEND_KEY_LIFETIME_S - 1
    assert key_of(leaving(encryption, 3, 0x6801)) == first
    assert key_of(leaving(encryption, 3, 0x6602)) != first
    now[0] = SEND_KEY_LIFETIME_S
    second = key_of(leaving(encryption, 3, 0x6801))
    assert second != first
    know_peer(world)
    assert key_of(leaving(encryption, 3, 0x6801)) != second, "the directory has changed"
    assert (SEND_KEYS_MAX, SEND_KEY_LIFETIME_S) == (53, 600)


@pytest.mark.spec("QB-3.1.1.3-01", "QB-3.1.7.1.5-01")
@pytest.mark.parametrize(
    ("level", "setting", "algorithms"),
    [
        (1, "base", {0x6602: 0x6602, 0x6801: 0x6801}),
        (3, "enhanced", {0x6602: 0x6602, 0x6801: 0x6801}),
        (5, "advanced", {0x660E: 0x660E, 0x660F: 0x660F, 0x6610: 0x6610}),
    ],
)
def test_the_preferred_cipher_of_a_level_is_one_of_its_own(
    level: int, setting: str, algorithms: dict[int, int]
) -> None:
    world = World()
    know_peer(world)
    directory = ReplicatedDirectory(lambda: world.state)
    for number in EncryptionAlgorithm:
        policy = EncryptionPolicy(**{setting: number})  # type: ignore[arg-type]
        encryption = BodyEncryption(directory, lambda: 0.0, policy)
        if number not in algorithms:
            with pytest.raises(EncryptionFailed):
                leaving(encryption, level, 0)
            continue
        assert leaving(encryption, level, 0).properties.encryption_algorithm == number


@pytest.mark.spec("AC-3.17.4.1.39-02")
def test_a_cipher_that_a_level_does_not_have_gives_way_to_the_preferred_one() -> None:
    world = World()
    know_peer(world)
    directory = ReplicatedDirectory(lambda: world.state)
    encryption = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy())
    for level, own, preferred in (
        (1, {0x6602, 0x6801}, 0x6801),
        (3, {0x6602, 0x6801}, 0x6801),
        (5, {0x660E, 0x660F, 0x6610}, 0x6610),
    ):
        for wanted in (0, 7, 0x6601, 0x6602, 0x6801, 0x660E, 0x660F, 0x6610, 0xFFFF_FFFF):
            used = leaving(encryption, level, wanted).properties.encryption_algorithm
            assert used == (wanted if wanted in own else preferred)


@pytest.mark.spec("QB-3.1.1.3-02", "QB-3.1.7.1.5-08", "QB-3.1.3.1-05", "QB-2.4.2-03")
def test_ciphers_are_those_of_the_level() -> None:
    world = World()
    know_peer(world)
    directory = ReplicatedDirectory(lambda: world.state)
    default = EncryptionPolicy()
    chosen = [
        leaving(BodyEncryption(directory, lambda: 0.0, default), level, 0).properties
        for level in (1, 3, 5)
    ]
    assert [each.encryption_algorithm for each in chosen] == [0x6801, 0x6801, 0x6610]
    reduced = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy(reduced_rc2=True))
    for encryption, level, algorithm, is_short in (
        (reduced, 3, EncryptionAlgorithm.RC2, True),
        (reduced, 3, EncryptionAlgorithm.RC4, False),
        (BodyEncryption(directory, lambda: 0.0, default), 3, EncryptionAlgorithm.RC2, False),
    ):
        blob = key_of(leaving(encryption, level, algorithm))
        own = KEYS[Provider.ENHANCED]
        secret = own.decrypt(blob[12:][::-1], PKCS1v15())
        assert len(secret) == 16
        assert (secret[5:] == bytes(11)) is is_short


@pytest.mark.spec("QB-3.1.3.1-05")
def test_a_configuration_that_says_nothing_has_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    config = parse(SOUND, tmp_path)
    policy = outgoing_settings(config, SessionConfig(), ()).encryption
    assert (policy.advanced, policy.enhanced, policy.base) == (0x6610, 0x6801, 0x6801)
    assert (policy.reduced_rc2, config.msmq.reject_reduced_rc2) == (False, False)


@pytest.mark.spec("QB-3.1.7.1.5-04", "QB-3.1.7.1.5-06")
@pytest.mark.parametrize(
    ("level", "setting", "number", "bits"),
    [
        (5, "", 0x6610, 256),
        (5, 'encrypt_advanced = "aes256"', 0x6610, 256),
        (5, 'encrypt_advanced = "aes192"', 0x660F, 192),
        (5, 'encrypt_advanced = "aes128"', 0x660E, 128),
        (1, "", 0x6801, 40),
        (1, 'encrypt_base = "rc4"', 0x6801, 40),
        (1, 'encrypt_base = "rc2"', 0x6602, 40),
    ],
)
def test_the_preferred_cipher_of_a_level_has_a_key_of_its_own_length(
    level: int,
    setting: str,
    number: int,
    bits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    config = parse(f"{SOUND}\n[outgoing]\n{setting}\n", tmp_path)
    world = World()
    know_peer(world)
    directory = ReplicatedDirectory(lambda: world.state)
    policy = outgoing_settings(config, SessionConfig(), ()).encryption
    message = leaving(BodyEncryption(directory, lambda: 0.0, policy), level, 0)
    assert message.properties.encryption_algorithm == number
    assert key_bits(message) == bits


@pytest.mark.spec("QB-3.1.1.3-02")
def test_the_configuration_has_short_keys_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)

    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders")
            facts = Facts(1, PEER, "10.0.0.7", (), was_encrypted=True, is_key_reduced=True)
            sealed = SecurityHeader(is_body_encrypted=True, encryption_key=b"key")
            refused = MessageClass.NACK_BAD_ENCRYPTION
            for number, (is_refusing, verdict) in enumerate(((False, 0), (True, refused)), 1):
                setting = f"reject_reduced_rc2 = {str(is_refusing).lower()}"
                config = parse(f"{SOUND}\n[msmq]\n{setting}\n", tmp_path)
                node = cluster.nodes["n1"]
                await MessagePolicy(config.msmq, config.storage, node).look()
                raw = packet(number, security=sealed)
                assert cluster.world.arrive(raw, facts=facts) == [verdict]

    run(scenario())


POLICY = """
[outgoing]
encrypt_advanced = "aes128"
encrypt_enhanced = "rc2"
encrypt_base = "rc2"
encrypt_reduced_rc2 = true
"""


@pytest.mark.spec("QB-3.1.1.3-01")
@pytest.mark.parametrize(
    ("setting", "ciphers"),
    [("base", ("rc2", "rc4")), ("enhanced", ("rc2", "rc4")), ("advanced", ("aes128", "aes192"))],
)
def test_each_level_has_a_preference_of_its_own_in_the_configuration(
    setting: str, ciphers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    for cipher in ciphers:
        text = f'{SOUND}\n[outgoing]\nencrypt_{setting} = "{cipher}"\n'
        policy = outgoing_settings(parse(text, tmp_path), SessionConfig(), ()).encryption
        assert policy == EncryptionPolicy(**{setting: Algorithm[cipher.upper()]})  # type: ignore[arg-type]


@pytest.mark.spec("QB-3.1.7.1.5-04", "QB-3.1.7.1.5-05", "QB-3.1.7.1.5-06", "QB-3.1.1.3-02")
def test_the_configuration_prefers_ciphers_and_the_level_chooses_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QB-A25: a newer provider's key is never taken instead of the level's."""
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    policy = outgoing_settings(parse(SOUND + POLICY, tmp_path), SessionConfig(), ()).encryption
    world = World()
    directory = ReplicatedDirectory(lambda: world.state)
    know_peer(world)
    encryption = BodyEncryption(directory, lambda: 0.0, policy)
    expected = {1: (Algorithm.RC2, 5), 3: (Algorithm.RC2, 16), 5: (Algorithm.AES128, 16)}
    for level, (algorithm, size) in expected.items():
        message = leaving(encryption, level, 0)
        assert message.properties.encryption_algorithm == algorithm
        own = KEYS[Provider(level)]
        key = unwrapped(key_of(message), PrivacyLevel(level), algorithm, own).key
        assert len(key) == size
        if level == PrivacyLevel.ENHANCED:
            assert key.endswith(bytes(11)), "40 bits of it are random"
            # That is for RC2, and where it is configured: 128 bits otherwise.
            by_default = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy())
            for one, cipher in ((encryption, Algorithm.RC4), (by_default, Algorithm.RC2)):
                whole = leaving(one, level, cipher)
                assert whole.properties.encryption_algorithm == cipher
                key = unwrapped(key_of(whole), PrivacyLevel.ENHANCED, cipher, own).key
                assert len(key) == 16
                assert any(key[5:])
            assert leaving(by_default, level, 0).properties.encryption_algorithm == Algorithm.RC4
    for level in expected:
        others = {one: key for one, key in KEYS.items() if one != level}
        know_peer(world, keys=others)
        with pytest.raises(EncryptionFailed, match="no key"):
            leaving(encryption, level, 0)


def test_what_a_connector_encrypted_leaves_as_it_is() -> None:
    state = World().state
    directory = ReplicatedDirectory(lambda: state)
    encryption = BodyEncryption(directory, lambda: 0.0, EncryptionPolicy())
    security = SecurityHeader(is_body_encrypted=True, encryption_key=b"key")
    raw = packet(1, properties=private(3), security=security, connector_type=b"c" * 16)
    assert encryption.leaving(raw, NAME) == raw
    with pytest.raises(EncryptionFailed):
        encryption.leaving(packet(1, properties=private(3), security=security), NAME)
    plain = packet(1)
    assert encryption.leaving(plain, NAME) is plain
    with pytest.raises(EncryptionFailed, match="privacy level"):
        leaving(encryption, 2, 0)


@pytest.mark.spec("QB-3.1.7.1.5-02")
def test_another_leader_encrypts_what_the_first_one_could_not_send() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=True) as (peer, cluster):
            know_peer(cluster.world)
            peer.is_mute = True
            queue = cluster.send(TO_PEER, 1, properties=private(3))
            await until(lambda: peer.raw or peer.connections)
            cluster.lead("n2")
            peer.is_mute = False
            await until(lambda: not cluster.waiting(queue), lambda: cluster.manager.report(queue))
            assert opened(peer.taken[0]).isdigit()

    run(scenario())


def test_only_what_the_published_keys_can_hide_is_sent() -> None:
    """A key of one strength is of no use for a body that asks for another."""
    world = World()
    base = Provider(PrivacyLevel.BASE)
    know_peer(world, keys={base: KEYS[base]})
    name = f"PRIVATE={guid_text(PEER_GUID)}\\00000007"
    sent = {
        level: world.client(f"c{level}").send(name, raw=packet(0, properties=private(level))).status
        for level in (PrivacyLevel.BASE, PrivacyLevel.ENHANCED)
    }
    refused = ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND
    assert sent == {PrivacyLevel.BASE: 0, PrivacyLevel.ENHANCED: refused}

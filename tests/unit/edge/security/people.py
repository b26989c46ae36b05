"""Keys, certificates and a directory for tests, and messages signed and encrypted with them."""

import datetime
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from msgspec.structs import replace

from qm.security.body_ciphers import encrypt_body, key_bytes, session_key
from qm.security.directory import DirectoryManager, DirectoryUser
from qm.security.providers import Provider
from qm.security.session_keys import public_key_blob, wrapped
from qm.security.sid import Sid, sid_from_text
from qm.security.signature_input import SignatureVersion
from qm.security.signatures import sign
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel, PublicKeyAlgorithm
from qm.wire.guid import Guid
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SENDER_ID_SID, SecurityHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.public_key import MqdsPublicKey
from qm.wire.structures.queue_name import DirectQueueFormatName
from qm.wire.structures.user_certificate import certificate_digest
from tests.unit.model.world import packet

_MADE = json.loads((Path(__file__).parents[3] / "data/security/signatures.json").read_text())
ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
BOB = sid_from_text("S-1-5-21-1-2-3-1002")
BODY = b"Pay 100 to Bob."
NOT_BEFORE = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
NOT_AFTER = datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC)


@cache
def private_key(bits: int = 2048) -> RSAPrivateKey:
    key = load_pem_private_key(_MADE["keys"][str(bits)].encode(), None)
    assert isinstance(key, RSAPrivateKey)
    return key


@cache
def certificate(
    name: str = "alice",
    bits: int = 2048,
    not_before: datetime.datetime = NOT_BEFORE,
    not_after: datetime.datetime = NOT_AFTER,
) -> bytes:
    return _certificate(name, private_key(bits), not_before, not_after)


@cache
def elliptic_certificate() -> bytes:
    return _certificate("curve", ec.generate_private_key(ec.SECP256R1()), NOT_BEFORE, NOT_AFTER)


def _certificate(
    name: str,
    key: RSAPrivateKey | ec.EllipticCurvePrivateKey,
    not_before: datetime.datetime,
    not_after: datetime.datetime,
) -> bytes:
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(who, who, key.public_key(), 7, not_before, not_after)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


class Table:
    """A `Directory` that a test fills."""

    def __init__(self) -> None:
        self.version = 0
        self.users: dict[Sid, DirectoryUser] = {}
        self.managers: dict[Guid, DirectoryManager] = {}
        self.reads = 0

    def register(self, sid: Sid, *certificates: bytes) -> None:
        self.users[sid] = DirectoryUser(sid, certificates)
        self.version += 1

    def forget(self, sid: Sid) -> None:
        del self.users[sid]
        self.version += 1

    def publish(self, manager: Guid, *keys: RSAPrivateKey) -> None:
        published = tuple(
            MqdsPublicKey(
                Provider.ENHANCED.provider_type,
                Provider.ENHANCED.provider_name,
                public_key_blob(key.public_key(), PublicKeyAlgorithm.RSA_SIGN),
            )
            for key in keys
        )
        self.managers[manager] = DirectoryManager(manager, signing_keys=published)
        self.version += 1

    def user(self, sid: Sid) -> DirectoryUser | None:
        self.reads += 1
        return self.users.get(sid)

    def users_with(self, digest: bytes) -> tuple[Sid, ...]:
        return tuple(
            sid
            for sid, user in self.users.items()
            if digest in map(certificate_digest, user.certificates)
        )

    def queue_manager(self, identifier: Guid) -> DirectoryManager | None:
        return self.managers.get(identifier)

    def queue_manager_named(self, name: str) -> DirectoryManager | None:
        del name
        return None


class Keys:
    """`OwnKeys` that a test fills."""

    def __init__(self, **keys: RSAPrivateKey) -> None:
        """By the name of the provider."""
        self.version = 0
        self.is_sealed = False
        self.of = {Provider[name]: [key] for name, key in keys.items()}
        self.reads = 0

    def exchange_keys(self, provider: Provider) -> Sequence[RSAPrivateKey]:
        self.reads += 1
        return self.of.get(provider, ())

    def signing_key(self, provider: Provider) -> RSAPrivateKey | None:
        del provider
        return None


def plain(ordinal: int = 1, body: bytes = BODY, **options: Any) -> UserMessage:
    raw = packet(ordinal, body=body, **options)
    return parse_user_message(raw, 0, len(raw))[0]


def signed(
    message: UserMessage,
    version: SignatureVersion = SignatureVersion.MSMQ_2,
    *,
    security: SecurityHeader | None = None,
    bits: int = 2048,
    hash_algorithm: int = 0x800E,
) -> UserMessage:
    """Sign a message in clear."""
    message = replace(
        message, properties=replace(message.properties, hash_algorithm=hash_algorithm)
    )
    if security is None:
        security = SecurityHeader(
            SENDER_ID_SID, security_id=ALICE, sender_cert=certificate(bits=bits)
        )
    if version is SignatureVersion.MSMQ_3:
        lists = MultiQueueFormatHeader((DirectQueueFormatName("OS:a\\q"),))
        message = replace(message, multi_queue_format=lists)
        signature = sign(message, version, private_key(bits))
        lists = replace(lists, signature=signature)
        return replace(message, multi_queue_format=lists, security=security)
    signature = sign(message, version, private_key(bits))
    return replace(message, security=replace(security, signature=signature))


def encrypted(
    message: UserMessage,
    receiver: RSAPrivateKey,
    level: PrivacyLevel = PrivacyLevel.ADVANCED,
    algorithm: EncryptionAlgorithm = EncryptionAlgorithm.AES256,
    secret: bytes | None = None,
) -> UserMessage:
    """Encrypt a message's body, after it was signed."""
    size = key_bytes(level, algorithm)
    key = session_key(level, algorithm, bytes(range(1, 1 + size)) if secret is None else secret)
    security = message.security or SecurityHeader()
    properties = replace(
        message.properties,
        message_body=encrypt_body(key, message.properties.message_body),
        privacy_level=int(level),
        encryption_algorithm=int(algorithm),
    )
    blob = wrapped(key, receiver.public_key())
    security = replace(security, is_body_encrypted=True, encryption_key=blob)
    return replace(message, properties=properties, security=security)


def written(message: UserMessage) -> bytes:
    return write_user_message(message)

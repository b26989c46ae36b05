"""Examines one message: decrypts its body, then verifies its signature (QB-A24). Pure.

It is given all keys that it may need and runs in any thread. Its cost is bounded: one body, at most
EXCHANGE_KEYS_MAX_COUNT private keys, four lists of signed fields, two readings of a signature.
"""

from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from qm.model.values.commands import SignatureFact
from qm.security.body_ciphers import DecryptionFailed, SessionKey, decrypt_body
from qm.security.hashes import SUPPORTED_HASHES
from qm.security.providers import Provider
from qm.security.session_keys import unwrapped
from qm.security.signatures import verified_version
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.errors import ValueOutOfRange
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.patch import in_clear, patch_signature_version
from qm.wire.packets.user_message import UserMessage, write_user_message

_REDUCED_TAIL: Final = bytes(11)
"""The final 88 bits of a key of 128 of which 40 are random."""


class Subject(msgspec.Struct, frozen=True, gc=False):
    """A message, and what is known without looking at its bytes any further."""

    raw: bytes
    """The packet."""
    message: UserMessage
    """The same, parsed; it has a SecurityHeader."""
    security: SecurityHeader
    provider: Provider | None = None
    """Which one encrypted the body, if PrivacyLevel says so."""
    session_key: SessionKey | None = None
    """The body's key, where it is cached."""
    exchange_keys: tuple[RSAPrivateKey, ...] = ()
    """Otherwise: what may open it, the newest first."""
    public_keys: tuple[RSAPublicKey, ...] = ()
    """What may have signed it."""
    signature: SignatureFact = SignatureFact.ABSENT
    """What a signature is worth that matches; any other value than ABSENT, VALID and STRANGER is
    the answer already."""

    @property
    def is_encrypted(self) -> bool:
        """Whether there is anything to decrypt."""
        return self.security.is_body_encrypted

    @property
    def needs_private_key(self) -> bool:
        """Whether its session key must be unwrapped first."""
        return self.is_encrypted and self.session_key is None and bool(self.exchange_keys)


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What came of it."""

    raw: bytes
    """The packet with its body in clear, EB unset, and AS as verified (QB-A61)."""
    signature: SignatureFact
    signature_version: int = 0
    was_encrypted: bool = False
    decryption_failed: bool = False
    session_key: SessionKey | None = None


def examine(subject: Subject) -> Finding:
    """Decrypt and verify."""
    message, raw, session_key = subject.message, subject.raw, None
    if subject.is_encrypted:
        try:
            body, session_key = _decrypted(subject)
            message, raw = _in_clear(subject, body)
        except (DecryptionFailed, ValueOutOfRange):
            # One answer for all failures: which step failed is what attacks of padding live on.
            return Finding(raw, SignatureFact.UNVERIFIED, decryption_failed=True)
    signature, version = _verified(message, subject)
    if version:
        patched = bytearray(raw)
        patch_signature_version(patched, version)
        raw = bytes(patched)
    return Finding(raw, signature, version, subject.is_encrypted, False, session_key)


def _verified(message: UserMessage, subject: Subject) -> tuple[SignatureFact, int]:
    if subject.signature not in (SignatureFact.VALID, SignatureFact.STRANGER):
        return subject.signature, 0
    for key in subject.public_keys:
        version = verified_version(message, key, SUPPORTED_HASHES)
        if version is not None:
            return subject.signature, version
    return SignatureFact.INVALID, 0


def _decrypted(subject: Subject) -> tuple[bytes, SessionKey]:
    """Return the body in clear. Raises DecryptionFailed."""
    properties = subject.message.properties
    found = []
    for key in _session_keys(subject):
        try:
            found.append((decrypt_body(key, properties.message_body), key))
        except DecryptionFailed:
            continue
    if len(found) != 1:  # QB-A62: a wrong private key opens one of 250 blobs to a random key
        raise DecryptionFailed("the body cannot be decrypted")
    return found[0]


def _in_clear(subject: Subject, body: bytes) -> tuple[UserMessage, bytes]:
    """Return message and packet with the body in clear. Raises ValueOutOfRange."""
    message, properties = subject.message, subject.message.properties
    if not properties.allocation_surplus_bytes:
        raw = in_clear(subject.raw, body)
        if subject.signature is SignatureFact.ABSENT:
            return message, raw
        properties = msgspec.structs.replace(properties, message_body=body)
        return msgspec.structs.replace(message, properties=properties), raw
    # AllocationBodySize had room for the padding.
    properties = msgspec.structs.replace(properties, message_body=body, allocation_surplus_bytes=0)
    security = msgspec.structs.replace(subject.security, is_body_encrypted=False)
    message = msgspec.structs.replace(message, properties=properties, security=security)
    return message, write_user_message(message)


def _session_keys(subject: Subject) -> list[SessionKey]:
    """Return the keys that the body may be encrypted with."""
    if subject.session_key is not None:
        return [subject.session_key]
    if subject.provider is None:
        return []
    try:
        algorithm = EncryptionAlgorithm(subject.message.properties.encryption_algorithm)
    except ValueError:
        return []
    level, blob = PrivacyLevel(subject.provider), subject.security.encryption_key
    found = []
    for own in subject.exchange_keys:
        try:
            found.append(unwrapped(blob, level, algorithm, own))
        except DecryptionFailed:
            continue
    return found


def is_reduced(key: SessionKey, provider: Provider) -> bool:
    """Whether only 40 bits of an Enhanced RC2 key are random (3.1.1.3)."""
    is_rc2 = provider is Provider.ENHANCED and key.algorithm is EncryptionAlgorithm.RC2
    return is_rc2 and key.key.endswith(_REDUCED_TAIL)

"""Which key and cipher a body is encrypted with on its way [MS-MQQB 3.1.7.1.5].

QB-A25: the level that the application asks for chooses the provider, as older Windows does and as
receivers choose the key; a newer provider's key is never taken instead.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from qm.security.body_ciphers import BASE_KEY_BYTES, SessionKey, encrypt_body, key_bytes
from qm.security.providers import Provider, provider_named
from qm.wire.enums import ALGORITHMS_OF_PRIVACY_LEVEL, EncryptionAlgorithm, PrivacyLevel
from qm.wire.headers.security_header import (
    ProviderInfo,
    SecurityHeader,
    write_provider_info,
)
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.public_key import MqdsPublicKey, PublicKeyBlob

ENCRYPTION_MAX_BYTES: Final = 1_024
"""How much longer a packet may become: key blob, padding of the body, name of the provider."""
_REDUCED_PADDING: Final = bytes(11)


class NoUsableKey(Exception):
    """A body cannot be encrypted for a queue manager; the text says why."""


class EncryptionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What [MS-MQQB] 3.1.1.3 lets an administrator choose."""

    advanced: EncryptionAlgorithm = EncryptionAlgorithm.AES256
    """PreferredAdvancedAlgorithm."""
    enhanced: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    """PreferredEnhancedAlgorithm."""
    base: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    """PreferredBaseAlgorithm."""
    reduced_rc2: bool = False
    """SendEnhancedRC2Using40BitKeys."""


def is_privacy_level(level: int) -> bool:
    """Whether a number is a privacy level; 0 is none."""
    return level in tuple(PrivacyLevel)


def is_by_connector(message: UserMessage) -> bool:
    """Whether a connector application has encrypted the body already."""
    security = message.security
    is_encrypted = security is not None and security.is_body_encrypted and security.encryption_key
    return bool(is_encrypted) and message.user_header.connector_type is not None


def algorithm_for(level: int, wanted: int, policy: EncryptionPolicy) -> EncryptionAlgorithm:
    """Return the cipher of a level: the wanted one if the level has it, else the preferred one."""
    if wanted in ALGORITHMS_OF_PRIVACY_LEVEL[PrivacyLevel(level)]:
        return EncryptionAlgorithm(wanted)
    return {
        PrivacyLevel.BASE: policy.base,
        PrivacyLevel.ENHANCED: policy.enhanced,
        PrivacyLevel.ADVANCED: policy.advanced,
    }[PrivacyLevel(level)]


def published_key(level: int, keys: Sequence[MqdsPublicKey]) -> PublicKeyBlob:
    """Return the key of the provider that a level stands for. Raises NoUsableKey."""
    provider = Provider(level)
    for one in keys:
        if provider_named(one.provider_name) is provider:
            return one.key
    raise NoUsableKey(f"the directory has no key of the {provider.provider_name}")


def new_key_bytes(level: int, algorithm: EncryptionAlgorithm, policy: EncryptionPolicy) -> int:
    """Return how many random bytes a session key is made of."""
    is_reduced = (
        policy.reduced_rc2
        and level == PrivacyLevel.ENHANCED
        and algorithm is EncryptionAlgorithm.RC2
    )
    return BASE_KEY_BYTES if is_reduced else key_bytes(level, algorithm)


def padded_key(level: int, algorithm: EncryptionAlgorithm, random: bytes) -> bytes:
    """Return a session key of its full length: one of 40 bits for Enhanced is followed by zeros."""
    is_short = level == PrivacyLevel.ENHANCED and len(random) == BASE_KEY_BYTES
    return random + _REDUCED_PADDING if is_short else random


def encrypted(message: UserMessage, key: SessionKey, blob: bytes) -> UserMessage:
    """Return a message with its body encrypted, and `blob`, the SIMPLEBLOB of the key.

    QB-A70: there is one ProviderInfo; it names the provider of the signature if there is one (by
    its absence the default one), else that of the encryption.
    """
    properties = message.properties
    provider = Provider(properties.privacy_level)
    security = message.security or SecurityHeader()
    if not security.signature:
        info = write_provider_info(ProviderInfo(provider.provider_type, provider.provider_name))
        security = replace(security, provider_info=info, is_default_provider=False)
    return replace(
        message,
        properties=replace(
            properties,
            message_body=encrypt_body(key, properties.message_body),
            allocation_surplus_bytes=0,
            encryption_algorithm=key.algorithm,
        ),
        security=replace(security, is_body_encrypted=True, encryption_key=blob),
    )

"""Encryption of message bodies [MS-MQQB 3.1.5.8.3, 3.1.7.1.5].

AES and RC2 run in CBC mode with a zero initial value and PKCS#7 padding, RC4 from the first byte of
its key stream for each message (QB-A46). All of these keys belong to one sender and receiver and
are used for many messages: equal beginnings of bodies show, as they do between Windows machines.
"""

from types import MappingProxyType
from typing import Any, Final

import msgspec
from Crypto.Cipher import ARC2
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from qm.wire.enums import ALGORITHMS_OF_PRIVACY_LEVEL, EncryptionAlgorithm, PrivacyLevel

_AES_BLOCK_BYTES: Final = 16
_RC2_BLOCK_BYTES: Final = 8
_BYTE_BITS: Final = 8
BASE_KEY_BYTES: Final = 5
ENHANCED_KEY_BYTES: Final = 16
BASE_SALT: Final = bytes(11)
"""What the Base provider appends to keys of 40 bits unless told otherwise."""
_AES_KEY_BYTES: Final = MappingProxyType(
    {
        EncryptionAlgorithm.AES128: 16,
        EncryptionAlgorithm.AES192: 24,
        EncryptionAlgorithm.AES256: 32,
    }
)


class DecryptionFailed(Exception):
    """A body or a key could not be decrypted. The text never says how far it went."""


class SessionKey(msgspec.Struct, frozen=True, gc=False):
    """A key for bodies; `session_key` makes one that fits its algorithm."""

    algorithm: EncryptionAlgorithm
    """What it is for."""
    key: bytes
    """As a SIMPLEBLOB carries it."""
    cipher_key: bytes
    """As the cipher takes it: with its salt."""
    effective_bits: int
    """How much of it RC2 uses."""


def key_bytes(level: int, algorithm: int) -> int:
    """Return how long the session keys of a privacy level and algorithm are; 0: these two do not
    go together [MS-MQQB 3.1.7.1.5].
    """
    if algorithm not in ALGORITHMS_OF_PRIVACY_LEVEL.get(PrivacyLevel(level), ()):
        return 0
    if level == PrivacyLevel.BASE:
        return BASE_KEY_BYTES
    return _AES_KEY_BYTES.get(EncryptionAlgorithm(algorithm), ENHANCED_KEY_BYTES)


def session_key(
    level: PrivacyLevel, algorithm: EncryptionAlgorithm, key: bytes, *, has_salt: bool = True
) -> SessionKey:
    """Return a key that ciphers take.

    `has_salt`: keys of the Base provider get its zeros (QB-A46). Raises ValueError when the three
    do not go together.
    """
    if not key or len(key) != key_bytes(level, algorithm):
        raise ValueError(f"{len(key)} bytes are not a key of {algorithm.name} at {level.name}")
    cipher_key = key + BASE_SALT if level is PrivacyLevel.BASE and has_salt else key
    return SessionKey(algorithm, key, cipher_key, len(key) * _BYTE_BITS)


def encrypt_body(key: SessionKey, body: bytes) -> bytes:
    """Return the ciphertext of a body."""
    if key.algorithm is EncryptionAlgorithm.RC4:
        return _rc4(key, body)
    if key.algorithm is EncryptionAlgorithm.RC2:
        return bytes(_rc2(key).encrypt(_padded(body, _RC2_BLOCK_BYTES)))
    encryptor = _aes(key).encryptor()
    return encryptor.update(_padded(body, _AES_BLOCK_BYTES)) + encryptor.finalize()


def decrypt_body(key: SessionKey, ciphertext: bytes) -> bytes:
    """Return the body in clear. Raises DecryptionFailed."""
    try:
        if key.algorithm is EncryptionAlgorithm.RC4:
            return _rc4(key, ciphertext)
        if key.algorithm is EncryptionAlgorithm.RC2:
            return _unpadded(_rc2(key).decrypt(ciphertext), _RC2_BLOCK_BYTES)
        decryptor = _aes(key).decryptor()
        return _unpadded(decryptor.update(ciphertext) + decryptor.finalize(), _AES_BLOCK_BYTES)
    except ValueError:
        raise DecryptionFailed("the body cannot be decrypted") from None


def _aes(key: SessionKey) -> Cipher[CBC]:
    return Cipher(AES(key.cipher_key), CBC(bytes(_AES_BLOCK_BYTES)))


def _rc4(key: SessionKey, text: bytes) -> bytes:
    return Cipher(ARC4(key.cipher_key), None).encryptor().update(text)


def _rc2(key: SessionKey) -> Any:
    options = {"iv": bytes(_RC2_BLOCK_BYTES), "effective_keylen": key.effective_bits}
    return ARC2.new(key.cipher_key, ARC2.MODE_CBC, **options)  # type: ignore[arg-type]


def _padded(body: bytes, block_bytes: int) -> bytes:
    padder = PKCS7(block_bytes * _BYTE_BITS).padder()
    return padder.update(body) + padder.finalize()


def _unpadded(body: bytes, block_bytes: int) -> bytes:
    unpadder = PKCS7(block_bytes * _BYTE_BITS).unpadder()
    return unpadder.update(body) + unpadder.finalize()

"""Session keys on their way: encrypted for a queue manager as a SIMPLEBLOB [MS-MQQB 2.4.2]."""

from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicKey,
    RSAPublicNumbers,
)

from qm.security.body_ciphers import DecryptionFailed, SessionKey, session_key
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel, PublicKeyAlgorithm
from qm.wire.errors import ProtocolError
from qm.wire.structures.public_key import (
    PublicKeyBlob,
    SimpleBlob,
    parse_simple_blob,
    write_simple_blob,
)

EXCHANGE_KEY_MIN_BITS: Final = 512
"""Modulus of a queue manager's key; what Windows' Base provider makes [MS-MQQB 3.1.7.1.5]."""
EXCHANGE_KEY_MAX_BITS: Final = 4096
"""Modulus of a queue manager's key; it bounds what a message with a fresh key costs."""


class UnusableKey(Exception):
    """A queue manager's published key cannot be used; the text says why."""


def public_key(blob: PublicKeyBlob) -> RSAPublicKey:
    """Return a published key. Raises UnusableKey."""
    modulus = int.from_bytes(blob.modulus, "little")
    if not EXCHANGE_KEY_MIN_BITS <= modulus.bit_length() <= EXCHANGE_KEY_MAX_BITS:
        raise UnusableKey(
            f"a modulus of {modulus.bit_length()} bits is not {EXCHANGE_KEY_MIN_BITS} to"
            f" {EXCHANGE_KEY_MAX_BITS}"
        )
    try:
        return RSAPublicNumbers(blob.public_exponent, modulus).public_key()
    except ValueError as error:
        raise UnusableKey(str(error)) from None


def public_key_blob(
    key: RSAPublicKey, algorithm: PublicKeyAlgorithm = PublicKeyAlgorithm.RSA_KEYX
) -> PublicKeyBlob:
    """Return a key as queue managers publish it."""
    numbers = key.public_numbers()
    modulus = numbers.n.to_bytes((key.key_size + 7) // 8, "little")
    return PublicKeyBlob(key.key_size, numbers.e, modulus, algorithm)


def wrapped(key: SessionKey, receiver: RSAPublicKey) -> bytes:
    """Return the SIMPLEBLOB that only the receiver can open."""
    ciphertext = receiver.encrypt(key.key, padding.PKCS1v15())
    return write_simple_blob(SimpleBlob(key.algorithm, ciphertext[::-1]))


def unwrapped(
    blob: bytes,
    level: PrivacyLevel,
    algorithm: EncryptionAlgorithm,
    own: RSAPrivateKey,
    *,
    has_salt: bool = True,
) -> SessionKey:
    """Return the session key in SecurityHeader.EncryptionKey.

    OpenSSL answers bad padding with a key that nobody knows, so that an attacker learns nothing
    from the time or the kind of a failure. Raises DecryptionFailed.
    """
    try:
        found, _ = parse_simple_blob(blob, 0, len(blob))
        if found.session_key_algorithm is not algorithm:
            raise ValueError
        key = own.decrypt(found.encrypted_key[::-1], padding.PKCS1v15())
        return session_key(level, algorithm, key, has_salt=has_salt)
    except (ProtocolError, ValueError):
        raise DecryptionFailed("the session key cannot be decrypted") from None

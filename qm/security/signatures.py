"""RSA signatures of messages [MS-MQQB 3.1.5.8.3, 3.1.7.1.4].

QB-A27: RSASSA-PKCS1-v1_5 over a DigestInfo, bytes in little-endian order as Windows' CryptoAPI has
them. Big-endian ones are read as well, which other implementations write.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, utils
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import HashAlgorithm

from qm.security.hashes import ACCEPTED_HASHES, UnsupportedHash, digest, hash_algorithm
from qm.security.signature_input import SignatureVersion, signature_input
from qm.wire.packets.user_message import UserMessage

SIGNING_KEY_MIN_BITS: Final = 512
"""Modulus of a sender's key: what Windows' Base provider makes at the least."""
SIGNING_KEY_MAX_BITS: Final = 8192
"""Modulus of a sender's key; it bounds what one verification costs."""
SIGNING_EXPONENT_MAX_BITS: Final = 33
"""Public exponent of a sender's key; PUBLICKEYBLOB has 32 bits for it."""


def sign(message: UserMessage, version: SignatureVersion, key: RSAPrivateKey) -> bytes:
    """Return the signature of a message, by the hash that its properties name.

    Raises UnsupportedHash.
    """
    algorithm = hash_algorithm(message.properties.hash_algorithm)
    hashed = digest(algorithm, signature_input(message, version))
    return key.sign(hashed, padding.PKCS1v15(), utils.Prehashed(algorithm))[::-1]


def verified_version(
    message: UserMessage,
    key: RSAPublicKey,
    accepted: Collection[int] = ACCEPTED_HASHES,
) -> SignatureVersion | None:
    """Return the version whose fields the message's signature covers; None if none matches.

    The body must be in clear (QB-A24). A signature in the SecurityHeader is tried as 2.0, then as
    1.0; only without one that of the MultiQueueFormatHeader, as 3.0. A key outside the limits and a
    hash that is not accepted verify nothing.
    """
    if not is_usable(key) or message.properties.hash_algorithm not in accepted:
        return None
    try:
        algorithm = hash_algorithm(message.properties.hash_algorithm)
    except UnsupportedHash:
        return None
    for signed in _signed_hashes(message, key, algorithm):
        for version in _versions(message):
            for has_direct_counts in (False, True):
                covered = signature_input(message, version, has_direct_counts=has_direct_counts)
                if digest(algorithm, covered) == signed:
                    return version
    return None


def is_usable(key: RSAPublicKey) -> bool:
    """Tell whether a sender's key is within the limits."""
    bits = SIGNING_KEY_MIN_BITS <= key.key_size <= SIGNING_KEY_MAX_BITS
    return bits and key.public_numbers().e.bit_length() <= SIGNING_EXPONENT_MAX_BITS


def _versions(message: UserMessage) -> tuple[SignatureVersion, ...]:
    """Return the lists of fields that the signature may cover, in the order of the trials."""
    if message.security is not None and message.security.signature:
        return SignatureVersion.MSMQ_2, SignatureVersion.MSMQ_1
    return (SignatureVersion.MSMQ_3,)


def _signature(message: UserMessage) -> bytes:
    if message.security is not None and message.security.signature:
        return message.security.signature
    return b"" if message.multi_queue_format is None else message.multi_queue_format.signature


def _signed_hashes(
    message: UserMessage, key: RSAPublicKey, algorithm: HashAlgorithm
) -> Iterator[bytes]:
    """Yield the hashes that the signature, read in either byte order, was made of."""
    signature = _signature(message)
    if len(signature) != (key.key_size + 7) // 8:
        return
    for ordered in (signature[::-1], signature):
        with suppress(InvalidSignature):
            yield key.recover_data_from_signature(ordered, padding.PKCS1v15(), algorithm)

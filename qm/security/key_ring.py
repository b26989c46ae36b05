"""The queue manager's private keys as they are sealed: generations of one key pair per provider and
purpose ([MS-MQDMPR] 3.1.3).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from qm.security.providers import Provider
from qm.security.session_keys import public_key_blob
from qm.wire.enums import PublicKeyAlgorithm
from qm.wire.structures.public_key import MqdsPublicKey, write_mqds_public_keys

_VERSION: Final = b"\x02"
"""Precedes the ring. A seal of an older release holds one key in PKCS#8, which begins with 0x30."""
_PKCS8: Final = b"\x30"


class RingError(Exception):
    """Sealed bytes that are not a ring of keys."""


class KeyPairs(msgspec.Struct, frozen=True):
    """The key pairs of one generation."""

    exchange: Mapping[Provider, RSAPrivateKey]
    signing: Mapping[Provider, RSAPrivateKey]

    def exchange_list(self) -> bytes:
        """Return PublicEncryptionKeyList: MQDSPUBLICKEYS."""
        return _published(self.exchange, PublicKeyAlgorithm.RSA_KEYX)

    def signing_list(self) -> bytes:
        """Return PublicSigningKeyList: MQDSPUBLICKEYS."""
        return _published(self.signing, PublicKeyAlgorithm.RSA_SIGN)


KeyRing = dict[int, KeyPairs]
"""Generation -> key pairs."""
_Packed = dict[int, tuple[dict[int, bytes], dict[int, bytes]]]
_DECODER: Final = msgspec.msgpack.Decoder(_Packed)


def write_key_ring(ring: KeyRing) -> bytes:
    """Return what is to be sealed."""
    packed: _Packed = {
        generation: (_packed(pairs.exchange), _packed(pairs.signing))
        for generation, pairs in ring.items()
    }
    return _VERSION + msgspec.msgpack.encode(packed)


def read_key_ring(secret: bytes) -> KeyRing:
    """Return the keys in what was sealed. Raises RingError.

    The one key of an older release served the exchange of two providers, as the first generation.
    """
    if secret[:1] == _PKCS8:
        key = _loaded(secret)
        return {1: KeyPairs({Provider.ENHANCED: key, Provider.ADVANCED: key}, {})}
    if secret[:1] != _VERSION:
        raise RingError("not a ring of this version: the state is damaged or from a newer build")
    try:
        packed = _DECODER.decode(secret[1:])
        return {
            generation: KeyPairs(_unpacked(exchange), _unpacked(signing))
            for generation, (exchange, signing) in packed.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise RingError(f"a damaged ring of keys: {error}") from error


def _packed(keys: Mapping[Provider, RSAPrivateKey]) -> dict[int, bytes]:
    return {
        int(provider): key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        for provider, key in keys.items()
    }


def _unpacked(keys: dict[int, bytes]) -> dict[Provider, RSAPrivateKey]:
    return {Provider(number): _loaded(der) for number, der in keys.items()}


def _loaded(der: bytes) -> RSAPrivateKey:
    try:
        # What was sealed is what this module wrote. Testing six keys for primality costs 0.2 s of
        # CPU at each start.
        key = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RingError(f"a damaged key: {error}") from error
    if not isinstance(key, RSAPrivateKey):
        raise RingError("a key that is not for RSA")
    return key


def _published(keys: Mapping[Provider, RSAPrivateKey], algorithm: PublicKeyAlgorithm) -> bytes:
    return write_mqds_public_keys(
        tuple(
            MqdsPublicKey(
                provider.provider_type,
                provider.provider_name,
                public_key_blob(key.public_key(), algorithm),
            )
            for provider, key in keys.items()
        )
    )

"""Signatures of what leaves the cluster: backups, the archive, and the bases made of it.

A signature is in a file of its own beside the manifest whose exact bytes it is about; the manifest
names every other file with its hash. A node's key follows from the sealing key, which no backup and
no archive contains: a cluster, and what is restored from its backups, sign with the same key. Who
reads a manifest trusts the public keys that an operator named, and not the one that lies beside it.
"""

from collections.abc import Collection
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SIGNATURE_SUFFIX: Final = ".sig"
SIGNATURE_FILE_MAX_BYTES: Final = 512
_ALGORITHM: Final = "ed25519"
_SEED_BYTES: Final = 32
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"quorate signatures of exports 1"
"""Keeps the derived key, and what is signed with it, apart from every other use."""


class SignatureError(Exception):
    """It is not signed by a key that may sign it. The text says what to do."""


class Signer:
    """Signs with the key that follows from a secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        derived = HKDF(SHA256(), _SEED_BYTES, None, _PURPOSE).derive(secret)
        self._key = Ed25519PrivateKey.from_private_bytes(derived)
        self.public: Final = self._key.public_key().public_bytes_raw().hex()
        """The public key, hexadecimal."""

    def sign(self, name: str, data: bytes) -> bytes:
        """Return the contents of the signature's file for a file of this name."""
        signature = self._key.sign(_signed(name, data))
        return f"{_ALGORITHM} {self.public} {signature.hex()}\n".encode()


def public_key(text: str) -> str:
    """Return a public key as signatures write it. Raises ValueError."""
    key = text.strip().lower()
    if len(bytes.fromhex(key)) != _KEY_BYTES:
        raise ValueError(
            f"{text!r} is not a public key: it has {2 * _KEY_BYTES} hexadecimal digits"
        )
    return key


def public_keys(texts: Collection[str]) -> frozenset[str] | None:
    """Return what an operator named as trusted; None for nothing. Raises ValueError."""
    return frozenset(map(public_key, texts)) or None


def verify(name: str, data: bytes, signature: bytes) -> str:
    """Return the public key that signed a file. Raises SignatureError."""
    try:
        algorithm, key, value = signature.decode("ascii").split()
        raw = bytes.fromhex(value)
        if algorithm != _ALGORITHM or len(raw) != _SIGNATURE_BYTES:
            raise ValueError("not such a signature")
        public = public_key(key)
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(raw, _signed(name, data))
    except ValueError as error:
        raise SignatureError(
            f"{name}{SIGNATURE_SUFFIX} is damaged, or from a newer build: {error}"
        ) from error
    except InvalidSignature as error:
        raise SignatureError(f"{name} was changed after it was signed: do not use it") from error
    return public


def check(name: str, data: bytes, signature: bytes | None, trusted: Collection[str] | None) -> str:
    """Return the public key that signed a file, "" for none; `trusted`: those that may, None when
    whoever reads it takes any, and none.

    Raises SignatureError.
    """
    if signature is None and trusted is None:
        return ""
    if signature is None:
        raise SignatureError(f"{name} has no signature, and {_one_of(trusted)} is expected")
    signer = verify(name, data, signature)
    if trusted is not None and signer not in trusted:
        raise SignatureError(f"{name} was signed by {signer}, and {_one_of(trusted)} is expected")
    return signer


def _one_of(trusted: Collection[str] | None) -> str:
    return f"a signature by {' or '.join(sorted(trusted or ()))}"


def _signed(name: str, data: bytes) -> bytes:
    return _PURPOSE + b"\0" + name.encode() + b"\0" + data

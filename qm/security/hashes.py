"""Hashes of signatures: MessagePropertiesHeader.HashAlgorithm [MS-MQMQ 2.2.19.3]."""

import hashlib
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives import hashes

from qm.wire.enums import HashAlgorithm


class UnsupportedHash(Exception):
    """A signature was made with a hash that is unknown, or broken beyond use."""


_ALGORITHMS: Final[dict[int, hashes.HashAlgorithm]] = {
    HashAlgorithm.MD5: hashes.MD5(),
    HashAlgorithm.SHA1: hashes.SHA1(),
    HashAlgorithm.SHA256: hashes.SHA256(),
    HashAlgorithm.SHA512: hashes.SHA512(),
}
"""MD2 and MD4 are known by number and refused: forgeries of them cost next to nothing (QB-A75)."""
_DIGESTS: Final = {
    "md5": hashlib.md5,
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}

SUPPORTED_HASHES: Final = frozenset(_ALGORITHMS)
"""Those that can be verified; which ones count is a matter of policy."""
ACCEPTED_HASHES: Final = frozenset({HashAlgorithm.SHA512})
"""What current systems accept unless they are configured otherwise [MS-MQQB 6, note 1]."""


def hash_algorithm(number: int) -> hashes.HashAlgorithm:
    """Return the hash that a message names. Raises UnsupportedHash."""
    found = _ALGORITHMS.get(number)
    if found is None:
        raise UnsupportedHash(f"hash algorithm 0x{number:04X} is not supported")
    return found


def digest(algorithm: hashes.HashAlgorithm, parts: Iterable[bytes]) -> bytes:
    """Return the hash of the parts, one after the other."""
    # The object of `cryptography` costs twice as much for a message of 1 KiB.
    return _DIGESTS[algorithm.name](b"".join(parts), usedforsecurity=False).digest()

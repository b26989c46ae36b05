"""Verifiers of passwords: what is kept of a password that need not log on by NTLM.

An NT hash is as good as the password and quick to guess, but NTLM needs it. Who has no such
programs is kept as a verifier alone, so that whoever opens the seal still has to guess, slowly.
"""

import hmac
from hashlib import scrypt
from struct import Struct
from typing import Final

SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_HEAD: Final = Struct(">BBBB")
"""Version, log2 of the cost, block size, parallelism."""
_VERSION: Final = 1
_COST_LOG2: Final = 14
_BLOCK: Final = 8
_PARALLEL: Final = 5
"""16 MiB and a quarter of a second, five passes one after another: as hard as scrypt with 128 MiB
at once, which a node should not take for somebody whom it does not know.
"""
_MEMORY_MAX_BYTES: Final = 64 << 20
VERIFIER_BYTES: Final = _HEAD.size + SALT_BYTES + _KEY_BYTES
_PRESENT_HEAD: Final = _HEAD.pack(_VERSION, _COST_LOG2, _BLOCK, _PARALLEL)


def is_verifier(raw: bytes) -> bool:
    """Whether these bytes are a verifier of this build, with the cost that it takes."""
    return len(raw) == VERIFIER_BYTES and raw.startswith(_PRESENT_HEAD)


def verifier_of(password: str, salt: bytes) -> bytes:
    """Return the verifier of a password; `salt`: 16 new random bytes. Takes its time."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes; {SALT_BYTES} are needed")
    key = scrypt(
        password.encode(),
        salt=salt,
        n=1 << _COST_LOG2,
        r=_BLOCK,
        p=_PARALLEL,
        maxmem=_MEMORY_MAX_BYTES,
        dklen=_KEY_BYTES,
    )
    return _PRESENT_HEAD + salt + key


def is_password(password: str, verifier: bytes) -> bool:
    """Whether a verifier is of this password. Takes its time, also for what is no verifier."""
    if not is_verifier(verifier):
        verifier_of(password, bytes(SALT_BYTES))
        return False
    salt = verifier[_HEAD.size : _HEAD.size + SALT_BYTES]
    return hmac.compare_digest(verifier_of(password, salt), verifier)

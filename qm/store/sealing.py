"""Private keys at rest, sealed under a key that is not in the state ([MS-MQDMPR] 3.1.3, ours).

The replicated state and every snapshot contain only the sealed form. Each node gets the sealing key
from a file or from the output of a command (a vault's client, say); without it a node serves
everything that needs no private keys.
"""

import subprocess
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
KEY_OUTPUT_MAX_BYTES: Final = 4_096
COMMAND_TIMEOUT_S: Final = 10.0
_VERSION: Final = b"\x01"
NONCE_BYTES: Final = 12


class SealingError(Exception):
    """The key is not available, or does not open this seal. The text says what to do."""


def key_from_file(path: Path) -> bytes:
    """Read a key of 32 bytes, raw or as 64 hexadecimal digits. Raises SealingError."""
    try:
        with path.open("rb") as file:
            return _key(file.read(KEY_OUTPUT_MAX_BYTES), str(path))
    except OSError as error:
        raise SealingError(f"cannot read the sealing key: {error}") from error


def key_from_command(command: list[str]) -> bytes:
    """Read the key from a command's standard output. Raises SealingError."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SealingError(f"the sealing key's command failed: {error}") from error
    if done.returncode:
        raise SealingError(
            f"the sealing key's command {command[0]!r} ended with {done.returncode}:"
            f" {done.stderr[:200].decode(errors='replace').strip()}"
        )
    return _key(done.stdout[:KEY_OUTPUT_MAX_BYTES], command[0])


def _key(data: bytes, source: str) -> bytes:
    if len(data) == KEY_BYTES:
        return data
    text = data.strip()
    if len(text) == 2 * KEY_BYTES:
        try:
            return bytes.fromhex(text.decode("ascii"))
        except ValueError:
            pass
    raise SealingError(
        f"{source}: a sealing key is 32 bytes, or 64 hexadecimal digits; this is {len(data)} bytes"
    )


def seal(key: bytes, nonce: bytes, secret: bytes, label: bytes) -> bytes:
    """Return the sealed form. `nonce`: 12 new random bytes; `label` binds the seal to its use."""
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce of {len(nonce)} bytes; 12 are needed")
    return _VERSION + nonce + AESGCM(key).encrypt(nonce, secret, _VERSION + label)


def unseal(key: bytes, sealed: bytes, label: bytes) -> bytes:
    """Return the secret. Raises SealingError for another key, another label or damage."""
    if sealed[:1] != _VERSION or len(sealed) < 1 + NONCE_BYTES + 16:
        raise SealingError("not a seal of this version: the state is damaged or from a newer build")
    nonce = sealed[1 : 1 + NONCE_BYTES]
    try:
        return AESGCM(key).decrypt(nonce, sealed[1 + NONCE_BYTES :], _VERSION + label)
    except InvalidTag as error:
        raise SealingError(
            "the sealing key does not open this cluster's private keys: configure the key that"
            " the cluster was founded with"
        ) from error

"""Keys, signatures and seals of NTLMv2 with extended session security [MS-NLMP 3.3.2, 3.4]."""

import hmac
from hashlib import md5
from struct import Struct
from typing import TYPE_CHECKING, Final

from Crypto.Hash import MD4
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext

from qm.rpc.security.ntlm_messages import MIC_AT, MIC_SIZE_BYTES, NtlmFlag
from qm.rpc.security.provider import SecurityRefused

if TYPE_CHECKING:
    from _hashlib import HASH

KEY_SIZE_BYTES: Final = 16
TOKEN_SIZE_BYTES: Final = 16
CHECKSUM_SIZE_BYTES: Final = 8
_TOKEN: Final = Struct("<I8sI")
_SEQUENCE: Final = Struct("<I")
_TOKEN_VERSION: Final = 1
_TO_SERVER: Final = b"client-to-server"
_TO_CLIENT: Final = b"server-to-client"


def nt_hash(password: str) -> bytes:
    """Return NTOWFv1: what the accounts keep of a password, and as good as it."""
    return bytes(MD4.new(password.encode("utf-16-le")).digest())


def response_key(hash_: bytes, user: str, domain: str) -> bytes:
    """Return NTOWFv2: the user in upper case, the domain as it is."""
    return _hmac_md5(hash_, (user.upper() + domain).encode("utf-16-le"))


def proof_of(key: bytes, challenge: bytes, blob: bytes) -> bytes:
    """Return NTProofStr."""
    return _hmac_md5(key, challenge + blob)


def session_key(key: bytes, proof: bytes) -> bytes:
    """Return SessionBaseKey, which is the key exchange key, too."""
    return _hmac_md5(key, proof)


def rc4(key: bytes, data: bytes) -> bytes:
    """Return data encrypted or decrypted."""
    return _rc4_stream(key).update(data)


def mic_of(exported: bytes, negotiate: bytes, challenge: bytes, authenticate: bytes) -> bytes:
    """Return the MIC over the three messages as they were on the wire, its own bytes zero."""
    end = MIC_AT + MIC_SIZE_BYTES
    zeroed = authenticate[:MIC_AT] + bytes(MIC_SIZE_BYTES) + authenticate[end:]
    return _hmac_md5(exported, negotiate + challenge + zeroed)


def _hmac_md5(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "md5")


def _rc4_stream(key: bytes) -> CipherContext:
    return Cipher(ARC4(key), None).encryptor()


class _Direction:
    """Keys and counters of one direction."""

    __slots__ = ("_cipher", "_has_exchange", "_inner", "_outer", "_seal_key", "_sequence")

    def __init__(self, exported: bytes, flags: int, name: bytes) -> None:
        weak = 7 if flags & NtlmFlag.KEY_56 else 5
        size = KEY_SIZE_BYTES if flags & NtlmFlag.KEY_128 else weak
        sign = b"session key to " + name + b" signing key magic constant\0"
        seal = b"session key to " + name + b" sealing key magic constant\0"
        # HMAC with its key taken in: both hashes are copied for each message.
        key = md5(exported + sign, usedforsecurity=False).digest()
        self._inner, self._outer = _padded(key, 0x36), _padded(key, 0x5C)
        self._seal_key = md5(exported[:size] + seal, usedforsecurity=False).digest()
        self._has_exchange = bool(flags & NtlmFlag.KEY_EXCH)
        self._sequence = 0
        self._cipher = _rc4_stream(self._seal_key)

    def restart(self) -> None:
        """Begin RC4 anew; sequence numbers go on (RP-A7)."""
        self._cipher = _rc4_stream(self._seal_key)

    def crypt(self, data: bytes) -> bytes:
        """Encrypt or decrypt the body, before the checksum."""
        return self._cipher.update(data)

    def token(self, message: bytes) -> bytes:
        """Return the signature of the next message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(_SEQUENCE.pack(self._sequence))
        inner.update(message)
        outer.update(inner.digest())
        checksum = outer.digest()[:CHECKSUM_SIZE_BYTES]
        if self._has_exchange:
            checksum = self._cipher.update(checksum)
        token = _TOKEN.pack(_TOKEN_VERSION, checksum, self._sequence)
        self._sequence = (self._sequence + 1) & 0xFFFF_FFFF
        return token


def _padded(key: bytes, pad: int) -> "HASH":
    """Return MD5 with one of the keyed blocks of HMAC."""
    return md5(bytes(one ^ pad for one in key.ljust(64, b"\0")), usedforsecurity=False)


class SessionKeys:
    """Both directions of one security context, on either side of it."""

    def __init__(self, exported: bytes, flags: int, *, is_server: bool) -> None:
        to_server = _Direction(exported, flags, _TO_SERVER)
        to_client = _Direction(exported, flags, _TO_CLIENT)
        self._ours, self._theirs = (to_client, to_server) if is_server else (to_server, to_client)
        self.signs = bool(flags & NtlmFlag.SIGN)
        """Whether signing alone was agreed on."""

    def sign(self, message: bytes) -> bytes:
        """Return our signature of a message."""
        return self._ours.token(message)

    def seal(self, body: bytes, message: bytes) -> tuple[bytes, bytes]:
        """Return (sealed body, signature); `message` holds the body in clear."""
        sealed = self._ours.crypt(body)
        return sealed, self._ours.token(message)

    def unseal(self, body: bytes) -> bytes:
        """Return a body of the peer in clear; verify it at once afterwards."""
        return self._theirs.crypt(body)

    def verify(self, message: bytes, token: bytes) -> None:
        """Check the peer's signature of its next message. Raises SecurityRefused."""
        if not hmac.compare_digest(self._theirs.token(message), token):
            raise SecurityRefused("a signature is wrong, or a PDU was replayed or left out")

    def restart(self) -> None:
        """Begin both RC4 streams anew, after mechListMIC was exchanged."""
        self._ours.restart()
        self._theirs.restart()

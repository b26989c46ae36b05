"""NTLM [MS-NLMP] as a security provider: the accepting side, and a client for our own tools.

Only NTLMv2 with extended session security, 128-bit keys and Unicode is accepted; LM, NTLMv1, guests
and anonymous logons are refused (RP-A11, RP-A13).
"""

import hmac
from collections.abc import Callable, Sequence
from struct import pack
from typing import Final

import msgspec
from typing_extensions import override

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security.accounts import Logons
from qm.rpc.security.ntlm_keys import (
    KEY_SIZE_BYTES,
    TOKEN_SIZE_BYTES,
    SessionKeys,
    mic_of,
    nt_hash,
    proof_of,
    rc4,
    response_key,
    session_key,
)
from qm.rpc.security.ntlm_messages import (
    CHALLENGE_SIZE_BYTES,
    MIC_AT,
    MIC_SIZE_BYTES,
    PROOF_SIZE_BYTES,
    AvId,
    NtlmFlag,
    negotiate_flags,
    pairs_of_response,
    parse_authenticate,
    parse_challenge,
    parse_pairs,
    write_authenticate,
    write_blob,
    write_challenge,
    write_negotiate,
    write_pairs,
)
from qm.rpc.security.provider import Buffers, Identity, Mechanism, SecurityRefused

_NEEDED: Final = NtlmFlag.UNICODE | NtlmFlag.EXTENDED_SESSIONSECURITY | NtlmFlag.KEY_128
_OFFERED: Final = _NEEDED | NtlmFlag.SIGN | NtlmFlag.SEAL | NtlmFlag.KEY_EXCH | NtlmFlag.KEY_56
_ALWAYS: Final = (
    NtlmFlag.REQUEST_TARGET
    | NtlmFlag.NTLM
    | NtlmFlag.ALWAYS_SIGN
    | NtlmFlag.TARGET_SERVER
    | NtlmFlag.TARGET_INFO
    | NtlmFlag.VERSION
)


class NtlmTarget(msgspec.Struct, frozen=True):
    """Who the server says it is."""

    computer: str
    """NetBIOS name, the domain's as well."""
    dns_name: str
    requires_mic: bool = True
    """Refuse clients that leave out the MIC, although our timestamp asks for one (RP-A12)."""


class _Protection(Mechanism):
    """Signing and sealing, the same on both sides."""

    keys: SessionKeys | None = None
    _had_mic = False

    @property
    @override
    def had_mic(self) -> bool:
        return self._had_mic

    @property
    @override
    def is_done(self) -> bool:
        return self.keys is not None

    @override
    def signature_size(self, level: AuthLevel) -> int:
        return TOKEN_SIZE_BYTES

    @override
    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        keys = self._keys()
        message = buffers.header + buffers.body + buffers.trailer  # whatever the flag (RP-A6)
        if level == AuthLevel.PRIVACY:
            return keys.seal(buffers.body, message)
        return buffers.body, keys.sign(message)

    @override
    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        keys = self._keys()
        body = buffers.body
        if level == AuthLevel.PRIVACY:
            body = keys.unseal(body)
        elif level == AuthLevel.INTEGRITY and not keys.signs:
            raise SecurityRefused("a signature where signing was not agreed on")
        keys.verify(buffers.header + body + buffers.trailer, token)
        return body

    @override
    def sign_list(self, mechanisms: bytes) -> bytes:
        return self._keys().sign(mechanisms)

    @override
    def verify_list(self, mechanisms: bytes, mic: bytes) -> None:
        self._keys().verify(mechanisms, mic)

    @override
    def restart(self) -> None:
        self._keys().restart()

    def _keys(self) -> SessionKeys:
        if self.keys is None:
            raise SecurityRefused("the NTLM exchange is not complete")
        return self.keys


class NtlmAcceptor(_Protection):
    """The server's side of one exchange."""

    def __init__(
        self,
        level: AuthLevel,
        address: str,
        target: NtlmTarget,
        logons: Logons,
        random_bytes: Callable[[int], bytes],
        filetime: Callable[[], int],
    ) -> None:
        """`filetime`: UTC in 100 ns since 1601, for the timestamp that makes clients send a MIC
        (RP-A12).
        """
        self._level = level
        self._address = address
        self._target = target
        self._logons = logons
        self._random_bytes = random_bytes
        self._filetime = filetime
        self._flags = 0
        self._challenge = b""
        self._negotiate_raw = b""
        self._challenge_raw = b""
        self._identity: Identity | None = None
        self._had_mic = False
        """Whether the client's message had a MIC."""

    @property
    @override
    def identity(self) -> Identity:
        if self._identity is None:
            raise SecurityRefused("nobody has logged on")
        return self._identity

    @override
    def step(self, token: bytes) -> bytes:
        if not self._challenge:
            return self._offer(token)
        if self.is_done:
            raise SecurityRefused("the NTLM exchange is over")
        self._accept(token)
        return b""

    def _offer(self, token: bytes) -> bytes:
        given = negotiate_flags(token)
        if given & NtlmFlag.DATAGRAM:
            raise SecurityRefused("connectionless NTLM is not served")
        _demand(given, _NEEDED)
        self._flags = given & _OFFERED | _ALWAYS
        self._challenge = self._random_bytes(CHALLENGE_SIZE_BYTES)
        name = self._target.computer.encode("utf-16-le")
        dns_name = self._target.dns_name
        info = write_pairs(
            {
                AvId.DOMAIN: name,
                AvId.COMPUTER: name,
                AvId.DNS_DOMAIN: dns_name.partition(".")[2].encode("utf-16-le"),
                AvId.DNS_COMPUTER: dns_name.encode("utf-16-le"),
                AvId.TIMESTAMP: pack("<Q", self._filetime()),
            }
        )
        self._negotiate_raw = token
        self._challenge_raw = write_challenge(
            self._flags, self._challenge, self._target.computer, info
        )
        return self._challenge_raw

    def _accept(self, token: bytes) -> None:
        message = parse_authenticate(token)
        if message.flags & NtlmFlag.ANONYMOUS or not message.user:
            raise SecurityRefused("an anonymous logon")
        flags = message.flags & self._flags
        is_sealed = self._level == AuthLevel.PRIVACY
        _demand(flags, _NEEDED | NtlmFlag.SEAL if is_sealed else _NEEDED)
        pairs = pairs_of_response(message.nt_response)
        proof = message.nt_response[:PROOF_SIZE_BYTES]
        blob = message.nt_response[PROOF_SIZE_BYTES:]
        judged = self._logons.judge(
            message.user, message.domain, self._address, self._challenge, proof, blob
        )
        if judged is None:
            raise SecurityRefused(f"logon of {message.user[:64]!r} failed")
        identity, key = judged
        exported = session_key(key, proof)
        if flags & NtlmFlag.KEY_EXCH:
            if len(message.encrypted_key) != KEY_SIZE_BYTES:
                raise SecurityRefused("key exchange without a key (RP-A16)")
            exported = rc4(exported, message.encrypted_key)
        self._check_mic(pairs, exported, token, message.mic)
        self._identity = identity
        self.keys = SessionKeys(exported, flags, is_server=True)

    def _check_mic(
        self, pairs: dict[int, bytes], exported: bytes, token: bytes, mic: bytes
    ) -> None:
        """Verify the MIC."""
        av_flags = int.from_bytes(pairs.get(AvId.FLAGS, b""), "little")
        self._had_mic = bool(av_flags & AvId.MIC_PRESENT)
        if not self._had_mic:
            if self._target.requires_mic:
                raise SecurityRefused("the client sent no MIC")
            return
        ours = mic_of(exported, self._negotiate_raw, self._challenge_raw, token)
        if len(mic) < MIC_SIZE_BYTES or not hmac.compare_digest(ours, mic):
            raise SecurityRefused("the MIC is wrong")


def _demand(flags: int, needed: int) -> None:
    """Refuse a client without these flags (RP-A11).

    SIGN is none of them: whose calls are sealed may do without it, and calls that would be signed
    alone are refused one by one.
    """
    if flags & needed != needed:
        raise SecurityRefused(f"the client leaves out flags {needed & ~flags:08X} (RP-A11)")


class NtlmClient(_Protection):
    """A client's side of one exchange: `step(b"")` begins it."""

    def __init__(
        self, user: str, password: str, domain: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._user = user
        self._domain = domain
        self._hash = nt_hash(password)
        self._random_bytes = random_bytes
        self._negotiate_raw = b""

    @property
    @override
    def identity(self) -> Identity:
        return Identity(self._user, ())

    @override
    def step(self, token: bytes) -> bytes:
        if not token:
            offered = _OFFERED | NtlmFlag.REQUEST_TARGET | NtlmFlag.NTLM | NtlmFlag.ALWAYS_SIGN
            self._negotiate_raw = write_negotiate(offered | NtlmFlag.VERSION)
            return self._negotiate_raw
        flags, challenge, info = parse_challenge(token)
        pairs = parse_pairs(info)
        timestamp = pairs.get(AvId.TIMESTAMP, bytes(8))
        pairs[AvId.FLAGS] = AvId.MIC_PRESENT.to_bytes(4, "little")
        blob = write_blob(timestamp, self._random_bytes(CHALLENGE_SIZE_BYTES), write_pairs(pairs))
        key = response_key(self._hash, self._user, self._domain)
        proof = proof_of(key, challenge, blob)
        exported, encrypted = session_key(key, proof), b""
        if flags & NtlmFlag.KEY_EXCH:
            base, exported = exported, self._random_bytes(KEY_SIZE_BYTES)
            encrypted = rc4(base, exported)
        raw = write_authenticate(flags, proof + blob, self._domain, self._user, encrypted)
        mic = mic_of(exported, self._negotiate_raw, token, raw)
        self.keys = SessionKeys(exported, flags, is_server=False)
        return raw[:MIC_AT] + mic + raw[MIC_AT + MIC_SIZE_BYTES :]

"""The three messages of NTLM [MS-NLMP 2.2.1] and target info [2.2.2.1]."""

from enum import IntFlag
from struct import Struct, error
from typing import Final

import msgspec

from qm.rpc.security.provider import SecurityRefused

SIGNATURE: Final = b"NTLMSSP\0"
NEGOTIATE, CHALLENGE, AUTHENTICATE = 1, 2, 3
CHALLENGE_SIZE_BYTES: Final = 8
MIC_AT: Final = 72
MIC_SIZE_BYTES: Final = 16
PROOF_SIZE_BYTES: Final = 16
VERSION: Final = bytes.fromhex("0a00614a0000000f")
"""10.0, build 19041, revision 15: for debugging alone, but some clients insist on one."""
_HEAD: Final = Struct("<8sI")
_FIELD: Final = Struct("<HHI")
_FLAGS: Final = Struct("<I")
_PAIR: Final = Struct("<HH")
_PAIRS_MAX: Final = 64
_BLOB_HEAD_SIZE: Final = 28
_LM_RESPONSE_AT, _WORKSTATION_AT = 12, 44


class NtlmFlag(IntFlag):
    """NEGOTIATE flags [MS-NLMP 2.2.2.5]."""

    UNICODE = 0x0000_0001
    OEM = 0x0000_0002
    REQUEST_TARGET = 0x0000_0004
    SIGN = 0x0000_0010
    SEAL = 0x0000_0020
    DATAGRAM = 0x0000_0040
    LM_KEY = 0x0000_0080
    NTLM = 0x0000_0200
    ANONYMOUS = 0x0000_0800
    ALWAYS_SIGN = 0x0000_8000
    TARGET_DOMAIN = 0x0001_0000
    TARGET_SERVER = 0x0002_0000
    EXTENDED_SESSIONSECURITY = 0x0008_0000
    TARGET_INFO = 0x0080_0000
    VERSION = 0x0200_0000
    KEY_128 = 0x2000_0000
    KEY_EXCH = 0x4000_0000
    KEY_56 = 0x8000_0000


class AvId:
    """Ids of target info's pairs."""

    END, COMPUTER, DOMAIN, DNS_COMPUTER, DNS_DOMAIN = 0, 1, 2, 3, 4
    FLAGS, TIMESTAMP = 6, 7
    MIC_PRESENT: Final = 0x2
    """In the value of FLAGS."""


class Authenticate(msgspec.Struct, frozen=True):
    """An AUTHENTICATE message."""

    flags: int
    nt_response: bytes
    domain: str
    user: str
    encrypted_key: bytes
    mic: bytes
    """16 bytes at their place, or what is there of them."""


def kind_of(token: bytes) -> int:
    """Return the type of a message. Raises SecurityRefused for anything else."""
    try:
        signature, kind = _HEAD.unpack_from(token)
    except error:
        raise SecurityRefused("an NTLM message without its head") from None
    if signature != SIGNATURE:
        raise SecurityRefused("a token that is not an NTLM message")
    return int(kind)


def negotiate_flags(token: bytes) -> int:
    """Return the flags of a NEGOTIATE message; names in it are ignored."""
    if kind_of(token) != NEGOTIATE:
        raise SecurityRefused("NEGOTIATE was expected")
    return _number(token, 12)


def write_negotiate(flags: int) -> bytes:
    """Return a NEGOTIATE message without names."""
    head = _HEAD.pack(SIGNATURE, NEGOTIATE) + _FLAGS.pack(flags)
    return head + _FIELD.pack(0, 0, 0) * 2 + (VERSION if flags & NtlmFlag.VERSION else b"")


def write_challenge(flags: int, challenge: bytes, target: str, target_info: bytes) -> bytes:
    """Return a CHALLENGE message."""
    name = target.encode("utf-16-le")
    at = 56
    return b"".join(
        (
            _HEAD.pack(SIGNATURE, CHALLENGE),
            _FIELD.pack(len(name), len(name), at),
            _FLAGS.pack(flags),
            challenge,
            bytes(8),
            _FIELD.pack(len(target_info), len(target_info), at + len(name)),
            VERSION,
            name,
            target_info,
        )
    )


def parse_challenge(token: bytes) -> tuple[int, bytes, bytes]:
    """Return (flags, server challenge, target info) of a CHALLENGE message."""
    if kind_of(token) != CHALLENGE or len(token) < 48:
        raise SecurityRefused("CHALLENGE was expected")
    return _number(token, 20), token[24:32], _field(token, 40)


def parse_authenticate(token: bytes) -> Authenticate:
    """Read an AUTHENTICATE message. Raises SecurityRefused."""
    if kind_of(token) != AUTHENTICATE:
        raise SecurityRefused("AUTHENTICATE was expected")
    for unused in (_LM_RESPONSE_AT, _WORKSTATION_AT):
        _field(token, unused)
    return Authenticate(
        _number(token, 60),
        _field(token, 20),
        _text(token, 28),
        _text(token, 36),
        _field(token, 52),
        token[MIC_AT : MIC_AT + MIC_SIZE_BYTES],
    )


def write_authenticate(
    flags: int, nt_response: bytes, domain: str, user: str, encrypted_key: bytes
) -> bytes:
    """Return an AUTHENTICATE message with room for a MIC, and an LM response of zeros."""
    at = MIC_AT + MIC_SIZE_BYTES
    payload, fields = b"", b""
    parts = (bytes(24), nt_response, domain.encode("utf-16-le"), user.encode("utf-16-le"), b"")
    for part in (*parts, encrypted_key):
        fields += _FIELD.pack(len(part), len(part), at + len(payload))
        payload += part
    head = _HEAD.pack(SIGNATURE, AUTHENTICATE) + fields + _FLAGS.pack(flags) + VERSION
    return head + bytes(MIC_SIZE_BYTES) + payload


def write_pairs(pairs: dict[int, bytes]) -> bytes:
    """Return target info."""
    parts = [_PAIR.pack(number, len(value)) + value for number, value in pairs.items()]
    return b"".join(parts) + _PAIR.pack(AvId.END, 0)


def parse_pairs(raw: bytes) -> dict[int, bytes]:
    """Read target info up to its end. Raises SecurityRefused."""
    found: dict[int, bytes] = {}
    at = 0
    for _ in range(_PAIRS_MAX):
        if at + _PAIR.size > len(raw):
            break
        number, length = _PAIR.unpack_from(raw, at)
        at += _PAIR.size
        if number == AvId.END:
            return found
        if at + length > len(raw):
            break
        found[number] = raw[at : at + length]
        at += length
    raise SecurityRefused("target info that does not end")


def pairs_of_response(nt_response: bytes) -> dict[int, bytes]:
    """Return the pairs in the blob of an NTLMv2 response. Raises SecurityRefused for others."""
    blob = nt_response[PROOF_SIZE_BYTES:]
    if len(blob) < _BLOB_HEAD_SIZE or blob[:2] != b"\x01\x01":
        raise SecurityRefused("the response is not of NTLMv2 (RP-A13)")
    return parse_pairs(blob[_BLOB_HEAD_SIZE:])


def write_blob(timestamp: bytes, client_challenge: bytes, target_info: bytes) -> bytes:
    """Return the blob of an NTLMv2 response."""
    return b"".join(
        (b"\x01\x01", bytes(6), timestamp, client_challenge, bytes(4), target_info, bytes(4))
    )


def _number(token: bytes, at: int) -> int:
    if len(token) < at + _FLAGS.size:
        raise SecurityRefused("an NTLM message without its flags")
    value: int = _FLAGS.unpack_from(token, at)[0]
    return value


def _field(token: bytes, at: int) -> bytes:
    """Return what a descriptor points to, which must lie inside the message."""
    if len(token) < at + _FIELD.size:
        raise SecurityRefused("an NTLM message without its fields")
    length, _, offset = _FIELD.unpack_from(token, at)
    if offset + length > len(token):
        raise SecurityRefused("a field that points outside its NTLM message")
    return token[offset : offset + length]


def _text(token: bytes, at: int) -> str:
    try:
        return _field(token, at).decode("utf-16-le")
    except UnicodeDecodeError:
        raise SecurityRefused("a name that is not UTF-16") from None

"""Public keys and encrypted session keys.

MQDSPUBLICKEY [MS-MQMQ 2.2.1] and MQDSPUBLICKEYS [2.2.2] are how a directory publishes a queue
manager's keys; PUBLICKEYBLOB [MS-MQQB 2.4.1] is one key in them; SIMPLEBLOB [2.4.2] is a session
key encrypted with it, in SecurityHeader.EncryptionKey. This module only encodes them.
"""

from struct import Struct, error
from typing import Final

import msgspec

from qm.wire.bounds import Buffer, take, truncated
from qm.wire.enums import EncryptionAlgorithm, ProviderType, PublicKeyAlgorithm
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES, parse_wide_text, write_wide_text

_KEY: Final = Struct("<III")
_KEYS: Final = Struct("<II")
_PUBLIC_BLOB: Final = Struct("<4sI4sII")
_SIMPLE_BLOB: Final = Struct("<4sI4s")
_SECTION_KEY: Final = "MS-MQMQ 2.2.1"
_SECTION_KEYS: Final = "MS-MQMQ 2.2.2"
_SECTION_PUBLIC: Final = "MS-MQQB 2.4.1"
_SECTION_SIMPLE: Final = "MS-MQQB 2.4.2"

# Type and version, then two zero bytes: MS-MQMQ draws one of them, the blob has both (MQ-A9).
_PUBLIC_PREFIX: Final = bytes.fromhex("06020000")
_RSA1: Final = b"RSA1"
_SIMPLE_PREFIX: Final = bytes.fromhex("01020000")
_KEY_EXCHANGE: Final = bytes.fromhex("00A40000")

PUBLIC_KEYS_MAX: Final = 256
"""Keys in one MQDSPUBLICKEYS; no number is specified, queue managers publish up to 3."""
PROVIDER_NAME_MAX_CHARS: Final = 256
"""Provider name with its NUL; the longest known has 53."""
MODULUS_MAX_BITS: Final = 16384
"""RSA modulus; no number is specified."""
MODULUS_MAX_BYTES: Final = MODULUS_MAX_BITS // 8


class PublicKeyBlob(msgspec.Struct, frozen=True, gc=False):
    """PUBLICKEYBLOB: an RSA public key [MS-MQQB 2.4.1, MS-MQMQ 2.2.20.6]."""

    bit_length: int
    """Length of the modulus in bits."""
    public_exponent: int
    """e, u32."""
    modulus: bytes
    """n, little-endian, as many whole bytes as `bit_length` needs; bits beyond it are zero."""
    algorithm: PublicKeyAlgorithm = PublicKeyAlgorithm.RSA_KEYX
    """What the key is for."""


class MqdsPublicKey(msgspec.Struct, frozen=True, gc=False):
    """MQDSPUBLICKEY: a public key and the provider that made it [MS-MQMQ 2.2.1]."""

    provider_type: ProviderType
    """Kind of provider."""
    provider_name: str
    """Name of the provider, up to 255 characters."""
    key: PublicKeyBlob
    """aBuf. The section demands RSA_KEYX; lists of signing keys may hold RSA_SIGN."""


class SimpleBlob(msgspec.Struct, frozen=True, gc=False):
    """SIMPLEBLOB: a session key, encrypted [MS-MQQB 2.4.2]."""

    session_key_algorithm: EncryptionAlgorithm
    """What the session key is for."""
    encrypted_key: bytes
    """RSAES-PKCS1-v1_5 ciphertext, little-endian, as long as the modulus (QB-A26)."""


def parse_public_key_blob(buffer: Buffer, offset: int, end: int) -> tuple[PublicKeyBlob, int]:
    """Read a PUBLICKEYBLOB, whose end follows from its bitLen."""
    field = "PUBLICKEYBLOB"
    start = offset + _PUBLIC_BLOB.size
    if start > end:
        raise truncated(offset, _PUBLIC_BLOB.size, end, field, _SECTION_PUBLIC)
    prefix, algorithm, magic, bits, exponent = _PUBLIC_BLOB.unpack_from(buffer, offset)
    if prefix != _PUBLIC_PREFIX or magic != _RSA1:
        raise ProtocolError(
            offset, field, _SECTION_PUBLIC, f"starts with {prefix.hex()}..{magic.hex()}"
        )
    if algorithm not in (PublicKeyAlgorithm.RSA_KEYX, PublicKeyAlgorithm.RSA_SIGN):
        raise ProtocolError(
            offset + 4, f"{field}.aiKeyAlg", _SECTION_PUBLIC, f"0x{algorithm:08X} is not an RSA key"
        )
    if not 0 < bits <= MODULUS_MAX_BITS:
        raise ProtocolError(
            offset + 12,
            f"{field}.bitLen",
            _SECTION_PUBLIC,
            f"{bits} bits; 1 to {MODULUS_MAX_BITS} are allowed",
        )
    stop = start + (bits + 7) // 8
    if stop > end:
        raise truncated(start, stop - start, end, f"{field}.modulus", _SECTION_PUBLIC)
    modulus = take(buffer, start, stop)
    if not _fits(modulus, bits):
        raise ProtocolError(
            stop - 1, f"{field}.modulus", _SECTION_PUBLIC, f"has bits beyond bitLen {bits}"
        )
    return PublicKeyBlob(bits, exponent, modulus, PublicKeyAlgorithm(algorithm)), stop


def write_public_key_blob(key: PublicKeyBlob) -> bytes:
    """Return the bytes of a PUBLICKEYBLOB."""
    if not 0 < key.bit_length <= MODULUS_MAX_BITS or not _fits(key.modulus, key.bit_length):
        raise ValueOutOfRange(
            "PUBLICKEYBLOB.modulus",
            _SECTION_PUBLIC,
            f"{len(key.modulus)} bytes do not make {key.bit_length} bits",
        )
    try:
        head = _PUBLIC_BLOB.pack(
            _PUBLIC_PREFIX, key.algorithm, _RSA1, key.bit_length, key.public_exponent
        )
    except error as overflow:
        raise ValueOutOfRange("PUBLICKEYBLOB.pubExp", _SECTION_PUBLIC, str(overflow)) from None
    return head + key.modulus


def parse_mqds_public_key(buffer: Buffer, offset: int, end: int) -> tuple[MqdsPublicKey, int]:
    """Read one MQDSPUBLICKEY."""
    start = offset + _KEY.size
    if start > end:
        raise truncated(offset, _KEY.size, end, "MQDSPUBLICKEY", _SECTION_KEY)
    key_size, name_size, provider_type = _KEY.unpack_from(buffer, offset)
    if provider_type not in (ProviderType.RSA_FULL, ProviderType.RSA_AES):
        raise ProtocolError(
            offset + 8,
            "MQDSPUBLICKEY.ulProviderType",
            _SECTION_KEY,
            f"0x{provider_type:08X} is neither PROV_RSA_FULL nor PROV_RSA_AES",
        )
    if name_size > PROVIDER_NAME_MAX_CHARS * WCHAR_SIZE_BYTES:
        raise ProtocolError(
            offset + 4,
            "MQDSPUBLICKEY.ulProviderLen",
            _SECTION_KEY,
            f"{name_size} bytes; {PROVIDER_NAME_MAX_CHARS * WCHAR_SIZE_BYTES} are allowed",
        )
    key_start = start + name_size
    stop = key_start + key_size
    if stop > end:
        raise truncated(start, stop - start, end, "MQDSPUBLICKEY", _SECTION_KEY)
    name = parse_wide_text(buffer, start, key_start, "MQDSPUBLICKEY.sProviderName", _SECTION_KEY)
    key, key_stop = parse_public_key_blob(buffer, key_start, stop)
    if key_stop != stop:
        raise ProtocolError(
            key_stop, "MQDSPUBLICKEY.aBuf", _SECTION_KEY, f"{stop - key_stop} bytes after the key"
        )
    return MqdsPublicKey(ProviderType(provider_type), name, key), stop


def write_mqds_public_key(public_key: MqdsPublicKey) -> bytes:
    """Return the bytes of one MQDSPUBLICKEY."""
    field = "MQDSPUBLICKEY.sProviderName"
    name = write_wide_text(public_key.provider_name, field, _SECTION_KEY)
    if len(name) > PROVIDER_NAME_MAX_CHARS * WCHAR_SIZE_BYTES:
        raise ValueOutOfRange(field, _SECTION_KEY, f"{len(name)} bytes with the NUL")
    key = write_public_key_blob(public_key.key)
    return _KEY.pack(len(key), len(name), public_key.provider_type) + name + key


def parse_mqds_public_keys(
    buffer: Buffer, offset: int, end: int
) -> tuple[tuple[MqdsPublicKey, ...], int]:
    """Read an MQDSPUBLICKEYS, whose end follows from its ulLen."""
    start = offset + _KEYS.size
    if start > end:
        raise truncated(offset, _KEYS.size, end, "MQDSPUBLICKEYS", _SECTION_KEYS)
    size, count = _KEYS.unpack_from(buffer, offset)
    stop = offset + size
    if size < _KEYS.size or stop > end:
        raise ProtocolError(
            offset,
            "MQDSPUBLICKEYS.ulLen",
            _SECTION_KEYS,
            f"{size} bytes; 8 to {end - offset} are possible",
        )
    if count > PUBLIC_KEYS_MAX:
        raise ProtocolError(
            offset + 4,
            "MQDSPUBLICKEYS.cNumofKeys",
            _SECTION_KEYS,
            f"{count} keys; {PUBLIC_KEYS_MAX} are allowed",
        )
    keys = []
    at = start
    for _ in range(count):
        key, at = parse_mqds_public_key(buffer, at, stop)
        keys.append(key)
    if at != stop:
        raise ProtocolError(
            at, "MQDSPUBLICKEYS.ulLen", _SECTION_KEYS, f"{stop - at} bytes after the last key"
        )
    return tuple(keys), stop


def write_mqds_public_keys(keys: tuple[MqdsPublicKey, ...]) -> bytes:
    """Return the bytes of an MQDSPUBLICKEYS."""
    if len(keys) > PUBLIC_KEYS_MAX:
        raise ValueOutOfRange(
            "MQDSPUBLICKEYS.cNumofKeys",
            _SECTION_KEYS,
            f"{len(keys)} keys; {PUBLIC_KEYS_MAX} are allowed",
        )
    packed = b"".join(map(write_mqds_public_key, keys))
    return _KEYS.pack(_KEYS.size + len(packed), len(keys)) + packed


def parse_simple_blob(buffer: Buffer, offset: int, end: int) -> tuple[SimpleBlob, int]:
    """Read a SIMPLEBLOB that fills the buffer up to `end`."""
    field = "SIMPLEBLOB"
    start = offset + _SIMPLE_BLOB.size
    if start > end:
        raise truncated(offset, _SIMPLE_BLOB.size, end, field, _SECTION_SIMPLE)
    prefix, algorithm, exchange = _SIMPLE_BLOB.unpack_from(buffer, offset)
    if prefix != _SIMPLE_PREFIX or exchange != _KEY_EXCHANGE:
        raise ProtocolError(
            offset, field, _SECTION_SIMPLE, f"starts with {prefix.hex()}..{exchange.hex()}"
        )
    if algorithm not in _SESSION_KEY_ALGORITHMS:
        raise ProtocolError(
            offset + 4,
            f"{field}.sessionKeyAlgorithm",
            _SECTION_SIMPLE,
            f"0x{algorithm:08X} is neither RC2, RC4 nor AES",
        )
    if not 0 < end - start <= MODULUS_MAX_BYTES:
        raise ProtocolError(
            start,
            f"{field}.encryptedKey",
            _SECTION_SIMPLE,
            f"{end - start} bytes; 1 to {MODULUS_MAX_BYTES} are allowed",
        )
    return SimpleBlob(EncryptionAlgorithm(algorithm), take(buffer, start, end)), end


def write_simple_blob(blob: SimpleBlob) -> bytes:
    """Return the bytes of a SIMPLEBLOB."""
    if not 0 < len(blob.encrypted_key) <= MODULUS_MAX_BYTES:
        raise ValueOutOfRange(
            "SIMPLEBLOB.encryptedKey", _SECTION_SIMPLE, f"{len(blob.encrypted_key)} bytes"
        )
    head = _SIMPLE_BLOB.pack(_SIMPLE_PREFIX, blob.session_key_algorithm, _KEY_EXCHANGE)
    return head + blob.encrypted_key


def _fits(modulus: bytes, bits: int) -> bool:
    """Tell whether `modulus` is exactly as many bytes as `bits` need, with no bit beyond them."""
    return len(modulus) == (bits + 7) // 8 and not (bits % 8 and modulus[-1] >> bits % 8)


_SESSION_KEY_ALGORITHMS: Final = frozenset(EncryptionAlgorithm)

"""Bodies of messages at rest, sealed by the node that takes them (ours).

A sealed packet keeps its headers readable and its sizes true; its body is encrypted in place, and a
seal of SEAL_BYTES follows, beyond PacketSize. The headers are authenticated with it, so that a body
opens under its own headers alone.

Keys are derived (QB-A63): from the cluster's sealing key one for each generation of the queue
manager's keys, from that one for each salt. A process draws a salt when it starts and after every
SEALS_PER_SALT_MAX messages, so random nonces of 96 bits never get near their limit, and no old key
has to be kept: whoever has the sealing key opens every seal that was ever made under it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from struct import Struct, error
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError
from qm.wire.headers.base_header import BASE_HEADER_SIZE_BYTES, PACKET_SIZE_OFFSET
from qm.wire.headers.security_header import security_header_size
from qm.wire.headers.transaction_header import transaction_header_size
from qm.wire.headers.user_header import FLAG_SH, FLAG_TH, FLAGS_OFFSET
from qm.wire.packets.peek import body_span, peek_head, user_header_end

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_MAGIC: Final = b"QSL\x01"
_ORIGIN: Final = Struct(f"<4sI{SALT_BYTES}s{NONCE_BYTES}s")
"""Magic, generation, salt, nonce; the tag follows."""
SEAL_BYTES: Final = _ORIGIN.size + TAG_BYTES
SEALS_PER_SALT_MAX: Final = 1 << 20
"""Messages under one derived key: two of them share a nonce with a probability of 2**-57."""
NONCES_DRAWN: Final = 128
"""Nonces asked for at a time: asking costs as much as encrypting."""
OPENERS_MAX: Final = 1_024
"""Derived keys that are remembered: those of that many starts of nodes and millions of messages."""
_PACKET_SIZE: Final = Struct("<I")
_FLAGS_AT: Final = BASE_HEADER_SIZE_BYTES + FLAGS_OFFSET
"""UserHeader.Flags, from a packet's start."""


class SealBroken(Exception):
    """A sealed body does not open: another key, or altered bytes."""


def is_sealed(packet: Buffer) -> bool:
    """Whether a stored packet has a seal behind it."""
    if len(packet) < PACKET_SIZE_OFFSET + _PACKET_SIZE.size:
        return False
    (size,) = _PACKET_SIZE.unpack_from(packet, PACKET_SIZE_OFFSET)
    return bool(size != len(packet))


def generation_key(sealing_key: bytes, generation: int) -> bytes:
    """Return the key of one generation."""
    return _derived(sealing_key, b"", b"quorate bodies %d" % generation)


def _derived(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(key)


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(_derived(key, salt, b"quorate salt"))


class _Layouts:
    """Where bodies lie; the UserHeader of most packets is laid out as the one before."""

    def __init__(self) -> None:
        self._known = b""
        """UserHeader of the last packet, from Flags on: it says where the header ends."""
        self._end = 0
        self._flags = 0

    def body_of(self, packet: bytes) -> tuple[int, int]:
        """Return where the body of a packet begins and ends: `qm.wire.packets.peek.body_span`."""
        at = self._end
        if not at or packet[_FLAGS_AT:at] != self._known:
            self._flags = peek_head(packet, 0).user_flags
            at = self._end = user_header_end(packet, 0, self._flags)
            self._known = packet[_FLAGS_AT:at]
        if self._flags & FLAG_TH:
            at += transaction_header_size(packet, at)
        if self._flags & FLAG_SH:
            at += security_header_size(packet, at)
        return body_span(packet, at)

    def checked(self, packet: bytes, size: int) -> tuple[int, int]:
        """Return the same of a packet whose bytes prove nothing yet. Raises SealBroken."""
        try:
            begin, end = self.body_of(packet)
        except (error, IndexError, ValueError, ProtocolError):
            begin = end = size + 1
        if end > size:
            raise SealBroken("the headers of a sealed message were altered")
        return begin, end


def _nonces(draw: Callable[[int], bytes]) -> Iterator[bytes]:
    drawn = draw(NONCE_BYTES * NONCES_DRAWN)
    return (drawn[at : at + NONCE_BYTES] for at in range(0, len(drawn), NONCE_BYTES))


class BodySealer:
    """Seals packets under the key of one generation."""

    def __init__(self, key: bytes, generation: int, random: Callable[[int], bytes]) -> None:
        self.generation: Final = generation
        self._key = key
        self._random = random
        self._salt = b""
        self._cipher: AESGCM | None = None
        self._left = 0
        """How many messages the present salt may still seal."""
        self._nonces: Iterator[bytes] = iter(())
        self._layouts = _Layouts()

    def sealed(self, packet: bytes) -> bytes:
        """Return a checked plain packet sealed."""
        if not self._left or self._cipher is None:
            self._salt = self._random(SALT_BYTES)
            self._cipher, self._left = _cipher(self._key, self._salt), SEALS_PER_SALT_MAX
        self._left -= 1
        nonce = next(self._nonces, b"")
        if not nonce:
            self._nonces = _nonces(self._random)
            nonce = next(self._nonces)
        origin = _ORIGIN.pack(_MAGIC, self.generation, self._salt, nonce)
        begin, end = self._layouts.body_of(packet)
        before, after = packet[:begin], packet[end:]
        cipher = self._cipher.encrypt(nonce, packet[begin:end], b"".join((origin, before, after)))
        size = end - begin
        return b"".join((before, cipher[:size], after, origin, cipher[size:]))

    def sealed_run(self, block: bytes, offsets: Sequence[int]) -> tuple[bytes, list[int]]:
        """Return packets sealed, one after the other, and their boundaries."""
        pieces = [self.sealed(block[begin:end]) for begin, end in pairwise(offsets)]
        bounds = [0]
        for piece in pieces:
            bounds.append(bounds[-1] + len(piece))
        return b"".join(pieces), bounds


class BodyOpener:
    """Opens packets that any node of the cluster sealed."""

    def __init__(self, key_of: Callable[[int], bytes]) -> None:
        """`key_of`: the key of a generation; what it raises, `opened` raises."""
        self._key_of = key_of
        self._ciphers: OrderedDict[tuple[int, bytes], AESGCM] = OrderedDict()
        self._layouts = _Layouts()

    def opened(self, packet: bytes) -> bytes:
        """Return the plain packet of a stored one that `is_sealed`. Raises SealBroken."""
        (size,) = _PACKET_SIZE.unpack_from(packet, PACKET_SIZE_OFFSET)
        if size + SEAL_BYTES != len(packet):
            raise SealBroken(f"{len(packet) - size} bytes follow the packet, which are no seal")
        magic, generation, salt, nonce = _ORIGIN.unpack_from(packet, size)
        if magic != _MAGIC:
            raise SealBroken("not a seal of this version: it is damaged or from a newer build")
        begin, end = self._layouts.checked(packet, size)
        before, after, origin = packet[:begin], packet[end:size], packet[size:-TAG_BYTES]
        cipher = packet[begin:end] + packet[-TAG_BYTES:]
        try:
            body = self._opener(generation, salt).decrypt(
                nonce, cipher, b"".join((origin, before, after))
            )
        except InvalidTag:
            raise SealBroken(
                f"the body does not open with key {generation}: it was altered, or sealed under"
                " another sealing key"
            ) from None
        return b"".join((before, body, after))

    def _opener(self, generation: int, salt: bytes) -> AESGCM:
        place = generation, salt
        found = self._ciphers.get(place)
        if found is None:
            found = self._ciphers[place] = _cipher(self._key_of(generation), salt)
            if len(self._ciphers) > OPENERS_MAX:
                self._ciphers.popitem(last=False)
        return found

"""Encrypts bodies on their way to other queue managers [MS-MQQB 3.1.7.1.5].

A session key is made per provider, algorithm and queue manager, and kept for a time
(SendSymmetricKeyCache, 3.1.1.3, 3.1.6.11). It is never stored: another leader makes another one.
"""

import os
from collections.abc import Callable
from typing import Final

import msgspec

from qm.names.format_name import FormatName, PrivateName
from qm.security.body_ciphers import SessionKey, session_key
from qm.security.body_encryption import (
    EncryptionPolicy,
    NoUsableKey,
    algorithm_for,
    encrypted,
    is_by_connector,
    is_privacy_level,
    new_key_bytes,
    padded_key,
    published_key,
)
from qm.security.directory import Directory
from qm.security.session_keys import UnusableKey, public_key, wrapped
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.packets.peek import peek_head, peek_privacy_level
from qm.wire.packets.user_message import parse_user_message, write_user_message

SEND_KEYS_MAX: Final = 53
"""SendSymmetricKeyCacheSize; the oldest half makes room."""
SEND_KEY_LIFETIME_S: Final = 600.0
"""SymmetricKeyShortLifetime."""


class EncryptionFailed(Exception):
    """A message must not be sent: its body cannot be encrypted. The text says why."""


class _CachedKey(msgspec.Struct):
    key: SessionKey
    blob: bytes
    since: float


class BodyEncryption:
    """Encrypts for all destinations of one leadership."""

    def __init__(
        self,
        directory: Directory,
        clock: Callable[[], float],
        policy: EncryptionPolicy,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`clock`: monotonic seconds."""
        self._directory = directory
        self._clock = clock
        self._policy = policy
        self._random = random
        self._version = directory.version
        self._cache: dict[tuple[int, EncryptionAlgorithm, Guid], _CachedKey] = {}

    def leaving(self, packet: bytes, destination: FormatName) -> bytes:
        """Return a packet as it may leave: unchanged, or with its body encrypted.

        Raises EncryptionFailed.
        """
        level = peek_privacy_level(packet, 0, peek_head(packet, 0))
        if level == PrivacyLevel.NONE:
            return packet
        message, _ = parse_user_message(packet, 0, len(packet))
        if is_by_connector(message):
            return packet
        if not is_privacy_level(level):
            raise EncryptionFailed(f"{level} is not a privacy level")
        if not isinstance(destination, PrivateName):
            raise EncryptionFailed("bodies are encrypted for private and public names alone")
        algorithm = algorithm_for(level, message.properties.encryption_algorithm, self._policy)
        found = self._key(level, algorithm, destination.guid)
        try:
            return write_user_message(encrypted(message, found.key, found.blob))
        except ValueOutOfRange as error:
            raise EncryptionFailed(str(error)) from None

    def _key(self, level: int, algorithm: EncryptionAlgorithm, guid: Guid) -> _CachedKey:
        if self._directory.version != self._version:
            self._version = self._directory.version
            self._cache.clear()
        now = self._clock()
        place = level, algorithm, guid
        found = self._cache.get(place)
        if found is not None and now - found.since < SEND_KEY_LIFETIME_S:
            return found
        made = self._made(level, algorithm, guid, now)
        self._cache.pop(place, None)
        if len(self._cache) >= SEND_KEYS_MAX:
            for oldest in list(self._cache)[: SEND_KEYS_MAX // 2]:
                del self._cache[oldest]
        self._cache[place] = made
        return made

    def _made(
        self, level: int, algorithm: EncryptionAlgorithm, guid: Guid, now: float
    ) -> _CachedKey:
        manager = self._directory.queue_manager(guid)
        if manager is None:
            raise EncryptionFailed("the directory does not know the destination's queue manager")
        try:
            receiver = public_key(published_key(level, manager.exchange_keys))
            random = self._random(new_key_bytes(level, algorithm, self._policy))
            raw = padded_key(level, algorithm, random)
            key = session_key(PrivacyLevel(level), algorithm, raw)
            return _CachedKey(key, wrapped(key, receiver), now)
        except (NoUsableKey, UnusableKey, ValueError) as error:
            raise EncryptionFailed(str(error)) from None

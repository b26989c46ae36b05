"""A cluster's birth: the queue manager's identity and keys, as the Provision command.

Private keys leave this module only sealed, under a key that is never part of the state.
"""

import os
import secrets
import time
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from qm.api.convert.acl import manager_descriptor
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Provision, Request, SetQueueManager
from qm.node.config.schema import BirthSection, StorageSection
from qm.security.key_ring import KeyPairs, KeyRing, RingError, read_key_ring, write_key_ring
from qm.security.providers import Provider
from qm.store.sealing import (
    KEY_BYTES,
    SealingError,
    key_from_command,
    key_from_file,
    seal,
    unseal,
)

RSA_BITS: Final = MappingProxyType(
    {Provider.BASE: 1024, Provider.ENHANCED: 2048, Provider.ADVANCED: 2048}
)
"""QB-A60: as long as the provider of a sender can use; the text has 512, 1,024 and 1,024."""
_PUBLIC_EXPONENT: Final = 65_537
_MARK_BYTES: Final = 8
"""How many of a cluster id's 16 bytes come from `birth.cluster`. The others are random, so that a
second founding, after all founders lost their disks, makes a cluster with another id."""
_NEWBORN: Final = 1
"""QueueManager.version after Provision."""
PRIVATE_KEYS_LABEL: Final = b"queue manager keys"
"""What the seal is for (`qm.store.sealing.unseal`)."""
SEALING_KEY_FILE: Final = "sealing.key"
"""File in the data folder, used if the configuration gives neither file nor command."""


def fresh_cluster(section: BirthSection) -> bytes:
    """Return the id of a new cluster, 16 bytes, that `is_cluster_of` recognizes."""
    text = section.cluster
    mark = _mark(text) if text else secrets.token_bytes(_MARK_BYTES)
    return mark + secrets.token_bytes(16 - _MARK_BYTES)


def is_cluster_of(section: BirthSection, cluster: bytes) -> bool:
    """Return whether an id may have been made with this configuration."""
    return not section.cluster or cluster[:_MARK_BYTES] == _mark(section.cluster)


def _mark(text: str) -> bytes:
    return sha256(text.encode()).digest()[:_MARK_BYTES]


def sealing_key(storage: StorageSection, data: Path) -> bytes:
    """Return the key that opens the private keys. Raises SealingError."""
    if storage.sealing_key_command:
        return key_from_command(list(storage.sealing_key_command))
    return key_from_file(_sealing_key_file(storage, data))


def create_sealing_key(storage: StorageSection, data: Path) -> bytes:
    """Return that key, created as configured if there is none. Raises SealingError."""
    if not storage.sealing_key_command:
        keep_sealing_key(storage, data, secrets.token_bytes(KEY_BYTES))
    return sealing_key(storage, data)


def keep_sealing_key(storage: StorageSection, data: Path, key: bytes) -> None:
    """Store a key as configured, unless there is one. Raises OSError."""
    path = _sealing_key_file(storage, data)
    if not storage.sealing_key_command and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(path, key)


def _sealing_key_file(storage: StorageSection, data: Path) -> Path:
    return storage.sealing_key_file or data / SEALING_KEY_FILE


def _write_new(path: Path, key: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.hex().encode() + b"\n")


def provision(
    computer_name: str,
    dns_name: str,
    aliases: tuple[str, ...],
    key: bytes,
    pairs: KeyPairs | None = None,
) -> Provision:
    """Return the command that makes a queue manager, with fresh identity and keys.

    `key` seals the private keys. Slow unless it is given its key `pairs`.
    """
    pairs = pairs or fresh_key_pairs()
    return Provision(
        queue_manager=secrets.token_bytes(16),
        computer_name=computer_name,
        qualified_computer_name=dns_name,
        aliases=aliases,
        realm=bytes(16),
        tx_time_stamp=int(time.time()),
        sealed_private_keys=sealed(key, {1: pairs}),
        public_keys=pairs.exchange_list(),
    )


def fresh_key_pairs() -> KeyPairs:
    """Return a new pair for each provider and purpose. Slow: about 0.2 s of CPU."""
    exchange, signing = (
        {
            provider: rsa.generate_private_key(_PUBLIC_EXPONENT, bits)
            for provider, bits in RSA_BITS.items()
        }
        for _ in range(2)
    )
    return KeyPairs(exchange, signing)


def sealed(key: bytes, ring: KeyRing) -> bytes:
    """Return a ring of private keys as the state holds it."""
    return seal(key, secrets.token_bytes(12), write_key_ring(ring), PRIVATE_KEYS_LABEL)


def unsealed(key: bytes, held: bytes) -> KeyRing:
    """Return the ring in the state. Raises SealingError."""
    try:
        return read_key_ring(unseal(key, held, PRIVATE_KEYS_LABEL))
    except RingError as error:
        raise SealingError(str(error)) from error


def protection() -> SetQueueManager:
    """Return the command, proposed right after Provision, that sets the first access rights.

    It changes only a newly born queue manager: where Provision is refused, an access list that was
    set since stays.
    """
    changes = {"security": encode_attribute(manager_descriptor())}
    return SetQueueManager(Request("", 0, 0), changes, (), if_version=_NEWBORN)

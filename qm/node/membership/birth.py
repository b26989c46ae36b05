"""A cluster's birth: the queue manager's identity and keys, as the Provision command.

Private keys leave this module only sealed, under a key that is never part of the state.
"""

import os
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from qm.api.convert.acl import manager_descriptor
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Provision, Request, SetQueueManager
from qm.node.config.schema import BirthSection, StorageSection
from qm.store.sealing import KEY_BYTES, key_from_command, key_from_file, seal
from qm.wire.enums import ProviderType, PublicKeyAlgorithm
from qm.wire.structures.public_key import MqdsPublicKey, PublicKeyBlob, write_mqds_public_keys

RSA_BITS: Final = 2048
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
_PROVIDERS: Final = (
    (ProviderType.RSA_FULL, "Microsoft Enhanced Cryptographic Provider v1.0"),
    (ProviderType.RSA_AES, "Microsoft Enhanced RSA and AES Cryptographic Provider"),
)
"""Providers for which peers look up a key [MS-MQQB 3.1.7.2]."""


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


def provision(computer_name: str, dns_name: str, aliases: tuple[str, ...], key: bytes) -> Provision:
    """Return the command that makes a queue manager, with fresh identity and keys.

    `key` seals the private keys. Slow, because it generates an RSA key.
    """
    private = rsa.generate_private_key(_PUBLIC_EXPONENT, RSA_BITS)
    secret = private.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    modulus = private.public_key().public_numbers().n.to_bytes(RSA_BITS // 8, "little")
    blob = PublicKeyBlob(RSA_BITS, _PUBLIC_EXPONENT, modulus, PublicKeyAlgorithm.RSA_KEYX)
    public = write_mqds_public_keys(
        tuple(MqdsPublicKey(kind, name, blob) for kind, name in _PROVIDERS)
    )
    return Provision(
        queue_manager=secrets.token_bytes(16),
        computer_name=computer_name,
        qualified_computer_name=dns_name,
        aliases=aliases,
        realm=bytes(16),
        tx_time_stamp=int(time.time()),
        sealed_private_keys=seal(key, secrets.token_bytes(12), secret, PRIVATE_KEYS_LABEL),
        public_keys=public,
    )


def protection() -> SetQueueManager:
    """Return the command, proposed right after Provision, that sets the first access rights.

    It changes only a newly born queue manager: where Provision is refused, an access list that was
    set since stays.
    """
    changes = {"security": encode_attribute(manager_descriptor())}
    return SetQueueManager(Request("", 0, 0), changes, (), if_version=_NEWBORN)

"""The queue manager's private keys as this node has them, unsealed from the replicated state."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from typing_extensions import override

from qm.api.gate.operations import NextKeys, NotOffered
from qm.cluster.cluster import Cluster, Unavailable
from qm.model.queries import manager_keys
from qm.model.values.records import QueueManager
from qm.node.config.schema import NodeConfig
from qm.node.membership.birth import fresh_key_pairs, sealed, sealing_key, unsealed
from qm.security.key_ring import KeyPairs, KeyRing
from qm.security.own_keys import OwnKeys
from qm.security.providers import Provider
from qm.store.sealing import NONCE_BYTES, SealingError, seal, unseal

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
RETRY_AFTER_S: Final = 30.0
"""Between attempts to get a sealing key that could not be had, or to open what it does not open."""
_EMPTY: Final[KeyRing] = {}


class NodeKeys(OwnKeys):
    """Unseals whenever the sealed keys in the state are others; see `Rounds`."""

    def __init__(self, config: NodeConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._sealing_key = b""
        self._is_proven = False
        """Whether that key opened the cluster's private keys."""
        self._held = b""
        """The sealed bytes that `_ring` comes from."""
        self._ring = _EMPTY
        self._version = 0
        self._retry_at = 0.0

    # OwnKeys

    @property
    @override
    def version(self) -> int:
        return self._version

    @property
    @override
    def is_sealed(self) -> bool:
        manager = self._manager()
        return manager is None or manager.sealed_private_keys != self._held

    @override
    def exchange_keys(self, provider: Provider) -> Sequence[RSAPrivateKey]:
        return [
            pairs.exchange[provider]
            for pairs in map(self._ring.get, self._accepted())
            if pairs is not None and provider in pairs.exchange
        ]

    @override
    def signing_key(self, provider: Provider) -> RSAPrivateKey | None:
        pairs = self.present
        return None if pairs is None else pairs.signing.get(provider)

    @property
    def present(self) -> KeyPairs | None:
        """The key pairs in use, None while they are sealed."""
        return self._ring.get(manager_keys(self._cluster.view).generation)

    def _accepted(self) -> list[int]:
        """Return the generations that count now, the newest first."""
        known, now = manager_keys(self._cluster.view), self._cluster.now_ms()
        return [known.generation, *(number for number, until in known.replaced if until > now)]

    # Unsealing

    async def look(self) -> None:
        """Unseal if the state holds other keys than the ones that are open."""
        now = asyncio.get_running_loop().time()
        manager = self._manager()
        if manager is None or manager.sealed_private_keys == self._held or now < self._retry_at:
            return
        held = manager.sealed_private_keys
        try:
            ring = await asyncio.to_thread(self._opened, held)
        except SealingError as error:
            self._retry_at = now + RETRY_AFTER_S
            logger.warning("this node cannot decrypt messages: %s", error)
            return
        self._ring, self._held = ring, held
        self._version += 1

    def _opened(self, held: bytes) -> KeyRing:
        if not held:
            return _EMPTY
        ring = unsealed(self._get_sealing_key(), held)
        self._is_proven = True
        return ring

    def _get_sealing_key(self) -> bytes:
        if not self._sealing_key:
            self._sealing_key = sealing_key(self._config.storage, self._config.data)
        return self._sealing_key

    # Other secrets of the state

    def proven_sealing_key(self) -> bytes:
        """Return the sealing key, once it is known to be this cluster's. Raises SealingError.

        It asks nothing and nobody, unlike `look`, which gets the key in a thread.
        """
        if not self._is_proven:
            raise SealingError(
                "it has not opened the queue manager's keys: see `storage.sealing_key_file`"
            )
        return self._sealing_key

    async def sealed(self, secret: bytes, label: bytes) -> bytes:
        """Return a secret as the state may hold it. Raises NotOffered."""
        try:
            await asyncio.to_thread(self._get_sealing_key)
        except SealingError as error:
            raise NotOffered(f"this node cannot seal a secret: {error}") from error
        return seal(self._sealing_key, secrets.token_bytes(NONCE_BYTES), secret, label)

    def opened(self, sealed: bytes, label: bytes) -> bytes:
        """Return a secret that `sealed` made, at any node. Raises SealingError."""
        # One small file, read once; waiting for `look` would refuse people meanwhile.
        return unseal(self._get_sealing_key(), sealed, label)

    def _manager(self) -> QueueManager | None:
        try:
            return self._cluster.view.ledger.manager
        except Unavailable:
            return None

    # Replacing

    async def next_keys(self) -> NextKeys:
        """Return fresh key pairs, sealed with those that stay accepted. Raises NotOffered."""
        await self.look()
        if self.is_sealed:
            raise NotOffered("this node has no key that opens the queue manager's private keys")
        known = manager_keys(self._cluster.view)
        kept = {number: self._ring[number] for number in self._accepted() if number in self._ring}
        pairs = await asyncio.to_thread(fresh_key_pairs)
        generation = known.generation + 1
        ring = sealed(self._sealing_key, {generation: pairs} | kept)
        return NextKeys(generation, ring, pairs.exchange_list(), pairs.signing_list())

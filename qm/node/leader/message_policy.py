"""Keeps the replicated policy on signatures and ciphers as this node's configuration says, while it
leads; see `qm.node.leader.peer_bindings`.
"""

import logging
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from qm.cluster.cluster import Cluster
from qm.model.queries import security_policy
from qm.model.values.commands import SetSecurityPolicy
from qm.model.values.elements import SealedBodies
from qm.model.values.limits import VERSION_OF_MESSAGE_SECURITY, VERSION_OF_SEALED_BODIES
from qm.model.values.records import SecurityPolicy
from qm.node.config.schema import MsmqSection, StorageSection
from qm.wire.enums import HashAlgorithm

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
_HASHES: Final = MappingProxyType(
    {
        "md5": HashAlgorithm.MD5,
        "sha1": HashAlgorithm.SHA1,
        "sha256": HashAlgorithm.SHA256,
        "sha512": HashAlgorithm.SHA512,
    }
)


class MessagePolicy:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(self, msmq: MsmqSection, storage: StorageSection, cluster: Cluster) -> None:
        self._wanted: Final = SecurityPolicy(
            msmq.trust_sender_id,
            tuple(sorted({int(_HASHES[name]) for name in msmq.signature_hashes})),
            msmq.accept_unknown_certificates,
            msmq.reject_reduced_rc2,
            msmq.accept_expired_certificates,
            SealedBodies[storage.encrypt_bodies.upper()],
        )
        self._cluster = cluster

    async def look(self) -> None:
        """Change the policy if it is not what the configuration says."""
        view, wanted = self._cluster.view, self._wanted
        version = view.counters().apply_version
        if version < VERSION_OF_MESSAGE_SECURITY:
            return
        if version < VERSION_OF_SEALED_BODIES:
            wanted = replace(wanted, sealed_bodies=SealedBodies.NONE)
        if security_policy(view) == wanted:
            return
        command = SetSecurityPolicy(
            wanted.trusts_sender_id,
            wanted.hash_algorithms,
            wanted.accepts_strangers,
            wanted.refuses_reduced_keys,
            wanted.accepts_expired,
            wanted.sealed_bodies,
        )
        (outcome,) = await self._cluster.propose(command)
        if outcome.status:
            raise RuntimeError(f"the policy on signatures is refused: {outcome.status:#x}")
        logger.info(
            "unsigned senders are %s; hashes of signatures that count: %s; bodies stored"
            " encrypted: %s",
            "trusted" if wanted.trusts_sender_id else "anonymous",
            ", ".join(HashAlgorithm(number).name for number in wanted.hash_algorithms) or "none",
            SealedBodies(wanted.sealed_bodies).name.lower(),
        )

"""Publishes the queue manager's public keys for signatures, while this node leads.

A birth states the keys for encryption alone, and a queue manager of an older release has one key
pair for everything: it gets new ones, and the old one stays accepted.
"""

import logging
from typing import Final

from qm.cluster.cluster import Cluster
from qm.model.queries import manager_keys
from qm.model.values.commands import Request, SetManagerKeys
from qm.model.values.limits import VERSION_OF_MANAGER_KEYS
from qm.node.membership.manager_keys import NodeKeys
from qm.security.sid import ADMINISTRATORS
from qm.wire.codes import ErrorCode

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
OLDER_ACCEPTED_MS: Final = 365 * 24 * 3600 * 1000
"""How long the key pair of an older release is accepted: nobody was told of its end."""
_UNNUMBERED: Final = Request("", 0, 0)


class KeyPublication:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(self, keys: NodeKeys, cluster: Cluster) -> None:
        self._keys = keys
        self._cluster = cluster

    async def look(self) -> None:
        """Publish what is missing."""
        view = self._cluster.view
        manager = view.ledger.manager
        if manager is None or manager.public_signing_key_list:
            return
        if view.counters().apply_version < VERSION_OF_MANAGER_KEYS or self._keys.is_sealed:
            return
        present = self._keys.present
        if present is None:
            return
        if present.signing:
            command = SetManagerKeys(
                _UNNUMBERED,
                manager.sealed_private_keys,
                present.exchange_list(),
                present.signing_list(),
                manager_keys(view).generation,
                0,
                (ADMINISTRATORS,),
            )
        else:
            new = await self._keys.next_keys()
            command = SetManagerKeys(
                _UNNUMBERED,
                new.sealed_private_keys,
                new.exchange_keys,
                new.signing_keys,
                new.generation,
                OLDER_ACCEPTED_MS,
                (ADMINISTRATORS,),
            )
        (outcome,) = await self._cluster.propose(command)
        if outcome.status not in (0, ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT):
            raise RuntimeError(f"the queue manager's keys are refused: {outcome.status:#x}")
        logger.info("published the queue manager's keys of generation %d", command.generation)

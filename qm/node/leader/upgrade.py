"""Rolling upgrades: the state behaves in a new way once every member's build knows it.

The leader asks all members, and raises the replicated apply version to the lowest that they know.
While one of them runs an older build, or does not answer, the version stays as it is, and any
member may be downgraded to its previous build.
"""

import logging
from typing import Final

from qm.model.values.commands import RaiseApplyVersion
from qm.model.values.limits import APPLY_VERSION
from qm.node.membership.peers import Peers
from qm.node.replica.replicated_store import ReplicatedStore

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0


class Versions:
    """The leader's part in an upgrade."""

    def __init__(self, replicated: ReplicatedStore, peers: Peers) -> None:
        self._replicated = replicated
        self._peers = peers

    async def look(self) -> None:
        """Raise the apply version if every member knows a higher one."""
        known = self._replicated.view.counters().apply_version
        self._replicated.apply_version = known
        if known >= APPLY_VERSION:
            return
        replies = await self._peers.inspect_all()
        if len(replies) < self._peers.count():
            return
        version = min(reply.command_version for reply in replies.values())
        if version > known:
            await self._replicated.propose(RaiseApplyVersion(version))
            logger.info("every member knows apply version %d: it is in force from now on", version)

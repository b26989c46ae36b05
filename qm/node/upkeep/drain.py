"""Draining a node: it serves no peers and does not lead, but keeps replicating and voting."""

import logging

from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from raft.core.core import Busy, NotLeader
from raft.core.membership import BadChange
from raft.types import Role

logger = logging.getLogger(__name__)


class Drain:
    """Whether this node drains, and what it does then."""

    def __init__(self, replicated: ReplicatedStore, msmq: MsmqEndpoint) -> None:
        self.is_draining = False
        self._replicated = replicated
        self._msmq = msmq

    async def begin(self) -> None:
        """Hand over, acknowledge what was read from peers, close their sessions."""
        if self.is_draining:
            return
        self.is_draining = True
        logger.info("this node drains")
        await self._msmq.drain()
        await self._msmq.stop()
        await self.keep_following()

    async def end(self) -> None:
        """Serve again. Raises OSError when an address cannot be had."""
        if self.is_draining:
            logger.info("this node serves again")
            await self._msmq.start()
            self.is_draining = False

    async def keep_following(self) -> None:
        """Hand leadership over if this node leads although it drains."""
        driver = self._replicated.driver
        if not self.is_draining or driver.role is not Role.LEADER:
            return
        heir = driver.heir()
        if heir is None:
            return  # alone: a draining leader is better than none
        try:
            await driver.transfer(heir)
        except (Busy, NotLeader, BadChange) as error:
            logger.info("leadership is not handed over yet: %s", error)

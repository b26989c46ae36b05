"""Draining a node: it serves no peers and does not lead, but keeps replicating and voting."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from qm.cluster.cluster import Unavailable
from qm.cluster.membership import ChangeRefused
from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from qm.pb import relay_pb2
from raft.types import Role

logger = logging.getLogger(__name__)

FOLLOW_MAX_S: Final = 10.0
"""How long `Drain.begin` waits for another node to lead."""
LOOK_EVERY_S: Final = 0.05


class Drain:
    """Whether this node drains, and what it does then."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        msmq: MsmqEndpoint,
        inspect_all: Callable[[], Awaitable[Mapping[str, relay_pb2.InspectReply]]],
        transfer: Callable[[str], Awaitable[None]],
        note: Callable[[str, str], None],
    ) -> None:
        """`inspect_all` asks the members for their states; `transfer` hands leadership to one;
        `note` keeps an event, by name and text.
        """
        self.is_draining = False
        self._replicated = replicated
        self._msmq = msmq
        self._inspect_all = inspect_all
        self._transfer = transfer
        self._note = note
        self._leaving: asyncio.Future[None] | None = None
        """Closes the sessions of peers, whoever asked for it and may have given up."""

    async def begin(self) -> None:
        """Acknowledge what was read from peers, close their sessions, and hand over.

        Returns when another node leads. From then on this one leads only if no other can. If none
        takes over for FOLLOW_MAX_S, it returns while this node still leads.
        """
        if not self.is_draining:
            self.is_draining = True
            self._replicated.driver.stand_back(True)
            logger.info("this node drains")
            self._note("drain", f"{self._replicated.node} drains")
            self._leaving = asyncio.ensure_future(self._leave_peers())
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
        try:
            async with asyncio.timeout(FOLLOW_MAX_S):
                while not self._follows() and self._has_others():
                    await self.keep_following()
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            logger.warning("this node drains, but no other has taken over the leadership")

    async def _leave_peers(self) -> None:
        await self._msmq.drain()
        await self._msmq.stop()

    async def end(self) -> None:
        """Serve again. Raises OSError when an address cannot be had."""
        if self._leaving is not None:
            await asyncio.wait([self._leaving])  # whatever came of it
        if self.is_draining:
            logger.info("this node serves again")
            await self._msmq.start()
            self._replicated.driver.stand_back(False)
            self.is_draining, self._leaving = False, None
            self._note("undrain", f"{self._replicated.node} serves again")

    def _follows(self) -> bool:
        driver = self._replicated.driver
        return driver.role is Role.FOLLOWER and driver.leader is not None

    def _has_others(self) -> bool:
        own = self._replicated.config.node
        return any(voter != own for voter in self._replicated.configuration.voters)

    async def keep_following(self) -> None:
        """Hand leadership over if this node leads although it drains."""
        if not self.is_draining or self._replicated.driver.role is not Role.LEADER:
            return
        replies = await self._inspect_all()
        # One that takes messages does not drain itself. A draining leader is better than none.
        heirs = [
            (reply.takes_messages, reply.applied, name)
            for name, reply in replies.items()
            if reply.role == "follower"
        ]
        if not heirs:
            return
        try:
            await self._transfer(max(heirs)[2])
        except (Unavailable, ChangeRefused) as error:
            logger.info("leadership is not handed over yet: %s", error)

"""A leader whose disk takes no new messages hands over to a member whose disk does.

The leader decides for all nodes whether there is room (`qm.node.relay.leader_stream`), so a full
disk on its node alone would stop all senders of the cluster although the other nodes have space.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from qm.node.membership.peers import Peers

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5


class Yielding:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(
        self,
        admits_messages: Callable[[], bool],
        peers: Peers,
        transfer: Callable[[str], Awaitable[None]],
    ) -> None:
        """`admits_messages`: whether this node's own disk has room; `transfer` hands over."""
        self._admits_messages = admits_messages
        self._peers = peers
        self._transfer = transfer

    async def look(self) -> None:
        """Hand over if another member has room. Raises what `transfer` raises."""
        if self._admits_messages():
            return
        replies = await self._peers.inspect_all()
        heirs = [
            (reply.applied, name)
            for name, reply in replies.items()
            if reply.takes_messages and reply.role == "follower"
        ]
        if not heirs or self._admits_messages():
            return
        _, heir = max(heirs)
        logger.warning("this node's disk is nearly full: %s, which has room, leads instead", heir)
        await self._transfer(heir)

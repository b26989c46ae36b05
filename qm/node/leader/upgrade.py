"""Rolling upgrades: the state behaves in a new way once every member's build knows it.

The leader asks all members, and raises the replicated apply version to the lowest of what they
know. While one of them runs an older build, or does not answer, everything stays as it is, and any
member may go back to the build that it came from.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from qm.model.values.commands import RaiseApplyVersion
from qm.model.values.limits import APPLY_VERSION
from qm.node.replica.replicated_store import ReplicatedStore
from qm.pb import relay_pb2

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0


class Versions:
    """The leader's part in an upgrade."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        inspect_all: Callable[[], Awaitable[dict[str, relay_pb2.InspectReply]]],
        members: Callable[[], int],
    ) -> None:
        """`members`: how many there are."""
        self._replicated = replicated
        self._inspect_all = inspect_all
        self._members = members

    async def look(self) -> None:
        """Raise the apply version if every member knows a higher one."""
        known = self._replicated.view.counters().apply_version
        self._replicated.apply_version = known
        if known >= APPLY_VERSION:
            return
        replies = await self._inspect_all()
        if len(replies) < self._members():
            return
        version = min(reply.command_version for reply in replies.values())
        if version > known:
            await self._replicated.propose(RaiseApplyVersion(version))
            logger.info("every member knows apply version %d: it is in force from now on", version)

"""Removes members from the cluster whose pods are gone for good and could not leave by themselves.

A pod that stops in good order leaves the cluster when its StatefulSet is scaled below it
(`qm node prestop`). One that was killed before cannot, and would count in every quorum for ever.
So the leader looks which members of the StatefulSet are silent, and asks the API server whether
they are to come back.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from qm.cluster.membership import Change, ChangeKind
from qm.node.config.schema import KubernetesSection
from qm.node.leader.kubernetes import ApiServer, ServiceAccount, ordinal_of
from qm.node.membership.members import Members

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
SILENT_S: Final = 15.0
"""Before the API server is asked: a pod that still drains answers, and leaves by itself."""


class ScaledAway:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(
        self,
        stateful_set: str,
        members: Callable[[], Collection[str]],
        answering: Callable[[], Awaitable[Collection[str]]],
        replicas: Callable[[], Awaitable[int]],
        remove: Callable[[str], Awaitable[None]],
        monotonic_s: Callable[[], float],
    ) -> None:
        """`members` gives names; `answering`, those that answer now; `replicas`, how many pods the
        StatefulSet should have.
        """
        self._stateful_set = stateful_set
        self._members = members
        self._answering = answering
        self._replicas = replicas
        self._remove = remove
        self._monotonic_s = monotonic_s
        self._silent_since_s: dict[str, float] = {}

    def begin(self) -> None:
        """Forget who was silent: another node may have led since."""
        self._silent_since_s.clear()

    async def look(self) -> None:
        """Remove silent members that are not to come back. Raises the errors of its calls."""
        answering = await self._answering()
        now = self._monotonic_s()
        self._silent_since_s = {
            name: self._silent_since_s.get(name, now)
            for name in self._members()
            if name not in answering
        }
        gone = {
            ordinal: name
            for name, since in self._silent_since_s.items()
            if now - since >= SILENT_S
            and (ordinal := ordinal_of(self._stateful_set, name)) is not None
        }
        if not gone:
            return
        replicas = await self._replicas()
        # A StatefulSet with no replicas is a stopped cluster, not one without members.
        for ordinal in sorted(gone, reverse=True):
            if 0 < replicas <= ordinal:
                logger.warning(
                    "%s is silent and not among the %d pods of %s: it is no longer a member",
                    gone[ordinal], replicas, self._stateful_set,
                )  # fmt: skip
                await self._remove(gone[ordinal])


def scaled_away(config: KubernetesSection, members: Members) -> ScaledAway | None:
    """Return the leader's part for members that are pods, None if they are not."""
    if not config.stateful_set:
        return None
    server = ApiServer(ServiceAccount(config))
    return ScaledAway(
        config.stateful_set,
        lambda: [member.name for member in members.members],
        members.inspect_all,
        lambda: server.replicas(config.stateful_set),
        lambda name: members.change_members(Change(ChangeKind.REMOVE, name)),
        time.monotonic,
    )

"""The members that this node takes Raft messages and relay calls from, by their names.

A node that was away does not know the newest members. It then asks those it knows, and adopts the
members that the most advanced of them reports. A node that no configuration names (it joins, or was
removed) accepts its seeds, and the members that they report.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from qm.pb import relay_pb2
from raft.transport.transport import node_name
from raft.types import Configuration

ASK_EVERY_S: Final = 0.5
"""How often members are asked about names that are unknown here, while unknown nodes call."""


class Roster:
    """Names of members and of who may become one."""

    def __init__(self, own: str, seeds: Iterable[str]) -> None:
        """`seeds`: the founders or seeds of this node's configuration file."""
        self._own = own
        self.seeds: Final = frozenset(seeds)
        self._members: frozenset[str] = frozenset()
        self._earlier: frozenset[str] = frozenset()
        """Names in the configuration before: its removals may not be committed yet."""
        self._vouched: frozenset[str] = frozenset()
        self._has_stranger = False

    def took(self, configuration: Configuration) -> None:
        """A configuration is in force."""
        nodes = configuration.voters + configuration.learners
        self._earlier = self._members
        self._members = frozenset(map(node_name, nodes))
        self._vouched = frozenset()

    def is_member(self, name: str) -> bool:
        """Return whether a node may send what members ask of each other."""
        return name in self._members or name in self._vouched

    def may_ask(self, name: str) -> bool:
        """Return whether a node may send what members ask of each other: while this node's log is
        refused it does not know them, and takes those of its configuration file for them.
        """
        return self.is_member(name) or (not self._members and name in self.seeds)

    def admits(self, name: str) -> bool:
        """Return whether a node may send Raft messages; note a name that may not."""
        if self.is_member(name) or name in self._earlier:
            return True
        if self._own not in self._members and name in self.seeds:
            return True
        self._has_stranger = True
        return False

    async def look(
        self,
        inspect: Callable[[str], Awaitable[relay_pb2.InspectReply]],
        cluster: bytes,
        commit: int,
    ) -> None:
        """Ask which nodes are members, if an unknown one has called.

        `inspect` returns an empty reply for a node that does not answer; `commit` is this node's.
        """
        if not self._has_stranger:
            return
        self._has_stranger = False
        is_member = self._own in self._members
        asked = (self._members if is_member else self._members | self.seeds) - {self._own}
        replies = await asyncio.gather(*map(inspect, sorted(asked)))
        known = [reply for reply in replies if reply.cluster == cluster and reply.voters]
        newest = max(known, key=lambda reply: (reply.commit, reply.term), default=None)
        if newest is not None and newest.commit > commit:
            self._vouched = frozenset(map(node_name, (*newest.voters, *newest.learners)))

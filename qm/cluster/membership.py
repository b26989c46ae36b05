"""The members of the cluster as its API sees them; `qm.node` implements `Membership` beside
`qm.cluster.cluster.Cluster`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec


class Member(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    name: str
    incarnation: int
    """Raised when its log was lost: its consensus id is `name.incarnation`."""
    is_voter: bool
    """False: a learner, which replicates and never votes."""
    host: str
    """Under which it is reached; "" while this node has not been told."""
    api_port: int = 0


class NodeStatus(msgspec.Struct, frozen=True):
    """What a node knows of itself."""

    node: str
    role: str
    """leader, follower, candidate or learner."""
    term: int
    leader: str | None
    commit: int
    applied: int
    wall_clock_ms: int
    digest: bytes
    """Of its state at `applied`, 16 bytes."""
    version: str
    """Of its build."""
    command_version: int
    """Newest command that it can apply."""


class ChangeKind(Enum):
    """What happens to a member."""

    ADD = "add"
    """Enters as a learner."""
    PROMOTE = "promote"
    """A learner that has caught up becomes a voter."""
    REMOVE = "remove"
    REPLACE = "replace"
    """Its disk is lost: the old incarnation leaves, the next one enters as a learner."""


class Change(msgspec.Struct, frozen=True):
    """A change of the members."""

    kind: ChangeKind
    node: str
    """Its name."""
    incarnation: int = 0
    """ADD and REPLACE: the fresh one."""
    host: str = ""
    """ADD and REPLACE: where it is, with its ports."""
    raft_port: int = 0
    relay_port: int = 0
    api_port: int = 0


class ChangeRefused(Exception):
    """The change is not allowed now; says why and what to do."""


class Membership(Protocol):
    """Who belongs to the cluster, and changes of it. Any node may be asked."""

    @property
    def members(self) -> Sequence[Member]:
        """The members as this node knows them, voters first."""

    @property
    def left(self) -> Mapping[str, int]:
        """The names that were members and left for good, with their highest incarnation."""

    async def inspect(self, node: str) -> NodeStatus:
        """Ask a node what it knows of itself. Raises Unavailable, KeyError for a stranger."""

    async def change_members(self, change: Change) -> None:
        """Have the leader change the members; done when committed.

        Raises Unavailable, OutcomeUnknown, and ChangeRefused, which says why and what to do.
        """

    async def transfer(self, to: str) -> None:
        """Have the leader hand over to another voter. Raises Unavailable, ChangeRefused."""

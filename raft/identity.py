"""Who this node is, in a small file beside the log (DESIGN section 3, Identity).

A node that lost or refused its log never votes or acknowledges under its old Raft id again.
"""

from collections.abc import Collection

import msgspec

from raft.files import Directory
from raft.types import NodeId


class Identity(msgspec.Struct, frozen=True):
    """What the file says."""

    cluster_id: bytes
    """16 bytes, the same on all members, in every frame between them."""
    name: str
    incarnation: int
    """Counts from 1; raised whenever the node's log was lost or refused."""
    is_started: bool = False
    """Set before the node first votes or acknowledges: from then on its log must be there."""

    @property
    def node_id(self) -> NodeId:
        """The Raft id: `name.incarnation`."""
        return f"{self.name}.{self.incarnation}"


class IdentityRefused(Exception):
    """The node must not start as it is configured; the message says what to do."""


def load(directory: Directory) -> Identity | None:
    """Read the file; None when there is none. Raises IdentityRefused when it is damaged."""
    raise NotImplementedError


def store(directory: Directory, identity: Identity) -> None:
    """Replace the file durably. Blocks for its fsync. Raises OSError, FatalDiskError."""
    raise NotImplementedError


def claim(
    directory: Directory,
    wanted: Identity,
    *,
    has_log: bool,
    known_ids: Collection[NodeId],
) -> Identity:
    """Decide whether a node may start as `wanted`; return its identity, stored durably.

    `has_log` says whether the log's directory holds any segment (`raft.log.has_log`), and
    `known_ids` are all ids that the configuration or a peer says are or were members. The
    incarnation in an existing file wins over the one in `wanted`. Call `start` once the log is
    open and before anything leaves the node. Raises IdentityRefused:

    - the file is damaged, or names another cluster or another node;
    - the file says started, or `known_ids` has the id, and there is no log;
    - there is a log and no file.
    """
    raise NotImplementedError


def start(directory: Directory, identity: Identity) -> Identity:
    """Mark as started, durably; from now on the id is bound to this log."""
    raise NotImplementedError


def rejoin(directory: Directory, known_ids: Collection[NodeId]) -> Identity:
    """Return the identity for a node whose log is lost or refused, stored durably.

    Its incarnation is above the file's and above any of the name's in `known_ids`. The caller
    has moved the old log away; the cluster adds the new id as a learner and removes the old one
    in the same membership change. Raises IdentityRefused when there is no readable file.
    """
    raise NotImplementedError

"""The identity of a node, in a small file beside the log (DESIGN section 3, Identity).

A node that lost or rejected its log never votes or acknowledges under its old Raft id again.
"""

from collections.abc import Collection

import msgspec

from raft.log.checked_file import read_checked, replace_checked
from raft.log.files import Directory
from raft.types import NodeId

CLUSTER_ID_BYTES = 16
IDENTITY_FILE = "identity"
IDENTITY_MAX_BYTES = 4096

_MAGIC = b"qrident\x01"
"""The last byte is the version of the format."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The contents of the file."""

    cluster_id: bytes
    """16 bytes, the same on all members, and part of every frame between them."""
    name: str
    incarnation: int
    """Counts from 1; raised whenever the node's log was lost or rejected."""
    is_started: bool = False
    """Set before the node first votes or acknowledges: from then on its log must exist."""

    def __post_init__(self) -> None:
        if len(self.cluster_id) != CLUSTER_ID_BYTES:
            raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes")
        if not self.name or self.incarnation < 1:
            raise ValueError("a node id is name.incarnation, and incarnations count from 1")

    @property
    def node_id(self) -> NodeId:
        """The Raft id: `name.incarnation`."""
        return f"{self.name}.{self.incarnation}"


class IdentityRefused(Exception):
    """The node must not start as it is configured; the message says what to do."""


_DECODER = msgspec.msgpack.Decoder(Identity)


def load(directory: Directory) -> Identity | None:
    """Read the file; None when there is none. Raises IdentityRefused when it is damaged."""
    if IDENTITY_FILE not in directory.names():
        return None
    body = read_checked(directory, IDENTITY_FILE, _MAGIC, IDENTITY_MAX_BYTES)
    if body is None:
        raise IdentityRefused(
            f"the file {IDENTITY_FILE!r} is damaged, or of a release that this one does not know: "
            "restore it, or empty the node's folder and join under the next incarnation"
        )
    return _DECODER.decode(body)


def store(directory: Directory, identity: Identity) -> None:
    """Replace the file durably. Blocks for its fsync. Raises OSError, FatalDiskError."""
    replace_checked(directory, IDENTITY_FILE, _MAGIC, msgspec.msgpack.encode(identity))


def claim(
    directory: Directory,
    wanted: Identity,
    *,
    has_log: bool,
    known_ids: Collection[NodeId],
) -> Identity:
    """Decide whether a node may start as `wanted`; return its identity, stored durably.

    `has_log` says whether the log's directory holds any segment (`raft.log.log.has_log`), and
    `known_ids` has all ids that are or were members, as far as the configuration or a peer knows. A
    started identity keeps its incarnation; one that never started takes the higher of its own and
    the wanted one. Call `start` once the log is open and before anything leaves the node. Raises
    IdentityRefused if

    - the file is damaged, or names another cluster or another node;
    - the file says started, but there is no log;
    - there is no file, but there is a log, or `known_ids` has the id.
    """
    found = load(directory)
    if found is None:
        return _claim_first(directory, wanted, has_log, known_ids)
    if found.cluster_id != wanted.cluster_id:
        raise IdentityRefused(
            f"this folder belongs to cluster {found.cluster_id.hex()}, the configuration says "
            f"{wanted.cluster_id.hex()}: correct the configuration, or use an empty folder"
        )
    if found.name != wanted.name:
        raise IdentityRefused(
            f"this folder belongs to node {found.name}, the configuration says {wanted.name}: "
            "correct the configuration, or use an empty folder"
        )
    if found.is_started:
        if not has_log:
            raise IdentityRefused(
                f"{found.node_id} has lost its log, and may have voted with it: rejoin under the "
                "next incarnation"
            )
        return found
    incarnation = max(found.incarnation, wanted.incarnation)
    identity = msgspec.structs.replace(found, incarnation=incarnation)
    if identity != found:
        store(directory, identity)
    return identity


def _claim_first(
    directory: Directory, wanted: Identity, has_log: bool, known_ids: Collection[NodeId]
) -> Identity:
    """Claim an id in a folder without an identity."""
    if has_log:
        raise IdentityRefused(
            f"there is a log but no file {IDENTITY_FILE!r} beside it: restore the file, or empty "
            "the folder and join under the next incarnation"
        )
    if wanted.node_id in known_ids:
        following = _next_incarnation(wanted.name, known_ids)
        raise IdentityRefused(
            f"{wanted.node_id} is or was a member and this folder is empty: join as "
            f"{wanted.name}.{following}, and let {wanted.node_id} leave in the same change"
        )
    identity = msgspec.structs.replace(wanted, is_started=False)
    store(directory, identity)
    return identity


def start(directory: Directory, identity: Identity) -> Identity:
    """Mark the identity as started, durably; from now on the id is bound to this log."""
    started = msgspec.structs.replace(identity, is_started=True)
    if started != load(directory):
        store(directory, started)
    return started


def rejoin(directory: Directory, known_ids: Collection[NodeId]) -> Identity:
    """Return the identity for a node whose log is lost or rejected, stored durably.

    Its incarnation is above the file's, if that one was started, and above those of the same name
    in `known_ids`. The caller has moved the old log away; the cluster adds the new id as a learner
    and removes the old one in the same membership change. Raises IdentityRefused when there is no
    readable file.
    """
    found = load(directory)
    if found is None:
        raise IdentityRefused(
            f"there is no file {IDENTITY_FILE!r} that says which node this was: join as a new one, "
            "under an incarnation that was never used"
        )
    incarnation = found.incarnation + 1 if found.is_started else found.incarnation
    incarnation = max(incarnation, _next_incarnation(found.name, known_ids))
    identity = msgspec.structs.replace(found, incarnation=incarnation, is_started=False)
    if identity != found:
        store(directory, identity)
    return identity


def _next_incarnation(name: str, known_ids: Collection[NodeId]) -> int:
    """Return the first incarnation of a name above all known ones."""
    known = [0]
    for node in known_ids:
        of_name, _, digits = node.rpartition(".")
        if of_name == name and digits.isascii() and digits.isdecimal():
            known.append(int(digits))
    return max(known) + 1

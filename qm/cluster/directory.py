"""The replicated directory as this node's parts look others up: always in the present state."""

from qm.cluster.cluster import Cluster
from qm.model.queries.people import ReplicatedDirectory
from qm.security.directory import DirectoryManager, DirectoryUser
from qm.security.sid import Sid
from qm.wire.guid import Guid


class ClusterDirectory:
    """A `Directory` over whichever state the node has; a snapshot replaces it.

    Raises Unavailable while one does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _present(self) -> ReplicatedDirectory:
        return ReplicatedDirectory(self._cluster.state)

    @property
    def version(self) -> int:
        """Differs after each change of the directory."""
        return self._present.version

    def user(self, sid: Sid) -> DirectoryUser | None:
        """Return a user, None if it is unknown."""
        return self._present.user(sid)

    def users_with(self, digest: bytes) -> tuple[Sid, ...]:
        """Return the SIDs of users who registered a certificate of this digest."""
        return self._present.users_with(digest)

    def queue_manager(self, identifier: Guid) -> DirectoryManager | None:
        """Return another queue manager, None if it is unknown."""
        return self._present.queue_manager(identifier)

    def queue_manager_named(self, name: str) -> DirectoryManager | None:
        """Return another queue manager by its computer or DNS name in any case."""
        return self._present.queue_manager_named(name)

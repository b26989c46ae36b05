"""A machine whose disk is set back to a copy that was taken of it earlier.

No group survives that at any time: the machine forgets entries that it acknowledged, and votes. It
must survive it, and say so, when the others hold everything that the machine ever helped to commit,
follow one leader, and have entries of its term, so that no vote of an earlier term can count again.
"""

from typing import TYPE_CHECKING

from raft.types import NodeId
from tests.sim.disk import Folder

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


class Copies:
    """Copies of disks, and the machines that were set back to one."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._copies: dict[NodeId, Folder] = {}
        self.told: set[NodeId] = set()
        """Ids that were set back at some time."""
        self._owed: dict[NodeId, int] = {}

    def has(self, host: "Host") -> bool:
        """Return whether there is a copy of this machine's disk."""
        return host.node in self._copies

    def take(self, host: "Host") -> None:
        """Take a copy."""
        self._copies[host.node] = host.disk.copy()

    def lacks(self, node: NodeId) -> bool:
        """Return whether a machine that was set back does not hold again what it held."""
        owed = self._owed.get(node)
        if owed is None:
            return False
        host = self._world.host_of(node)
        if host.is_running and self._world.checker.has_on_disk(host, owed):
            del self._owed[node]
            return False
        return True

    def may_set_back(self, host: "Host") -> bool:
        """Return whether the group must survive that this machine is set back now."""
        world = self._world
        configuration = world.faults.settled()
        leader = world.current_leader()
        if configuration is None or leader is None or leader is host or world.faults.impaired:
            return False
        if host.node not in configuration.voters or len(configuration.voters) < 3:
            return False
        committed = self._committed()
        term = leader.replica_now.term
        if not host.log_now.last_index() <= committed <= leader.log_now.last_index():
            return False
        if leader.log_now.term(committed) != term:
            return False
        others = [world.host_of(voter) for voter in configuration.voters if voter != host.node]
        holding = [
            other
            for other in others
            if other.is_running
            and (other is leader or other.leader == leader.node)
            and other.replica_now.term == term
            and world.checker.has_on_disk(other, committed)
        ]
        return len(holding) == len(others)

    def _committed(self) -> int:
        leader = self._world.current_leader()
        applied = self._world.checker.model.index
        return applied if leader is None else max(applied, leader.replica_now.commit_index)

    def set_back(self, host: "Host") -> None:
        """End the process and set its disk back."""
        self._owed[host.node] = self._committed()
        self.told.add(host.node)
        host.kill()
        host.disk.set_back(self._copies.pop(host.node))
        self._world.checker.set_back(host)

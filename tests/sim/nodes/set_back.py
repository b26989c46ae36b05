"""A machine whose data folder is set back to a copy that was taken of it earlier.

No cluster survives that at any time (raft/design.md, Rolled back). It must survive it, and say so,
while the leader that the machine followed goes on and the other node holds what is committed.
"""

from typing import TYPE_CHECKING, Final

from raft.replica import ReplicaStatus
from tests.sim.nodes.machines import Machine

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

TRY_EVERY_S: Final = 0.02
TRIES: Final = 100


def begin(cluster: "SimCluster", machine: Machine) -> None:
    """Take a copy, and set the machine back to it as soon as the cluster must survive that."""
    machine.disk.copy()
    _plan(cluster, machine, TRIES)


def _plan(cluster: "SimCluster", machine: Machine, tries: int) -> None:
    cluster.world.after(TRY_EVERY_S, lambda: _try(cluster, machine, tries))


def _try(cluster: "SimCluster", machine: Machine, tries: int) -> None:
    if cluster.faults.is_calm or not machine.disk.has_copy:
        return
    if _must_survive(cluster, machine):
        machine.kill(power=False, why="its folder is set back")
        machine.disk.set_back()
        cluster.faults.count("set_back", machine)
    elif tries:
        _plan(cluster, machine, tries - 1)


def _must_survive(cluster: "SimCluster", machine: Machine) -> bool:
    leader = cluster.leader()
    if leader is None or leader is machine:
        return False
    leading = _status(leader)
    if leading is None or leading.commit > leading.durable:
        return False
    for each in cluster.machines.values():
        status = _status(each)
        if status is None or status.term != leading.term or status.leader != leading.leader:
            return False
        if each is machine and status.last_index > leading.commit:
            return False
        if each is not machine and (status.durable < leading.commit or status.owed):
            return False
    return True


def _status(machine: Machine) -> ReplicaStatus | None:
    """Return what a running node's replica says of itself."""
    replicated = None if machine.node is None else machine.node.replicated
    return None if replicated is None else replicated.driver.status()

"""Faults, one after the other at drawn moments, until the calm."""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from qm.cluster.cluster import Unavailable
from qm.cluster.membership import ChangeRefused
from tests.sim.nodes import set_back, visitors
from tests.sim.nodes.disk import ROOM_BYTES
from tests.sim.nodes.knobs import SECONDS
from tests.sim.nodes.machines import CLIENT_HOST, FAR_HOST, HOSTS, Machine
from tests.sim.nodes.rot import Rot, begin_scrub
from tests.sim.nodes.world import NS

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

FIRST_AFTER_S: Final = 0.5
AWAY_S: Final = (2.5, 4.5)
LONG_OUTAGE_S: Final = 8.0
"""Shorter than any lease, and much longer than an election."""
BOUNDARIES_MAX: Final = 400
"""An armed process dies at one of so many calls of its disk."""
CLOCK_STEP_S: Final = 300
CUT_S: Final = (0.2, 3.0)
FULL_S: Final = (0.5, 4.0)
FREE_BYTES: Final = (0, 200 << 10)
"""What a full disk has left."""
PAUSE_MS: Final = (50, 3_000)
SLOW: Final = (5, 40)
SYNC_CLASSES: Final = ("blob-", "seg", "seg", "archive")
SPACE_CLASSES: Final = ("blob-", "blob-", "seg", "incoming-", "pinned", "archive", "quarantine")
ROCKS_CLASSES: Final = (".sst", "MANIFEST", "")


class Faults:
    """Of one world."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._chance = cluster.world.chance("faults")
        self.is_calm = True
        self._pace = min(1.0, cluster.seconds / SECONDS)
        """A short seed has as many faults as a long one."""
        self.counts: dict[str, int] = {}
        """Injected so far, by kind."""
        self.reaches_rocks = any(kind.startswith("rocks") for kind in cluster.knobs.faults)
        """Whether a full disk is full for RocksDB too."""
        self._rot = Rot(cluster.world.chance("rot"), cluster.knobs.log_retain_bytes)

    def begin(self) -> None:
        """From now on."""
        self.is_calm = False
        if self._cluster.knobs.faults:
            self._cluster.world.after(FIRST_AFTER_S * self._pace, self._next)

    def end(self) -> None:
        """Heal everything; from here on the cluster has to recover by itself."""
        self.is_calm = True
        cluster = self._cluster
        cluster.network.heal()
        cluster.far.come_back()
        for machine in cluster.machines.values():
            disk = machine.disk
            disk.dies_in = 0
            disk.failing.clear()
            disk.refusing.clear()
            disk.fill(ROOM_BYTES)
            cluster.shim.fail(machine.number, disk.data)
            if machine.loop is not None:
                machine.loop.slow = 1
        cluster.world.say("calm")

    def _next(self) -> None:
        if self.is_calm:
            return
        cluster, chance = self._cluster, self._chance
        kind = chance.choice(cluster.knobs.faults)
        machine = cluster.machines[chance.choice(list(HOSTS))]
        if self._inject(kind, machine):
            self.count(kind, machine)
        pause_s = chance.uniform(*cluster.knobs.fault_pause_s) * self._pace
        cluster.world.after(pause_s, self._next)

    def count(self, kind: str, machine: Machine) -> None:
        """One was injected."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._cluster.world.say("fault", kind, machine.name)

    def _inject(self, kind: str, machine: Machine) -> bool:
        """Return whether it was possible."""
        if kind in _OF_NETWORK:
            return _OF_NETWORK[kind](self, machine)
        return machine.is_up and _OF_MACHINES[kind](self, machine)

    def _later(self, span_s: tuple[float, float], action: Callable[[], None]) -> None:
        self._cluster.world.after(self._chance.uniform(*span_s), action)

    # Processes

    def kill(self, machine: Machine) -> bool:
        """Kill -9."""
        machine.kill(power=False, why="fault")
        return True

    def away(self, machine: Machine) -> bool:
        """Kill -9, and so long a pause that the log may go on without it."""
        machine.kill(power=False, why="fault", restart_s=self._chance.uniform(*AWAY_S))
        return True

    def power(self, machine: Machine) -> bool:
        """Power loss of one machine."""
        machine.kill(power=True, why="fault")
        return True

    def transfer(self, machine: Machine) -> bool:
        """An administrator has this node lead."""
        loop, node = machine.loop, machine.node
        if loop is None or node is None or node.service is None:
            return False
        members = node.service.members

        async def ask() -> None:
            with suppress(Unavailable, ChangeRefused):
                await members.transfer(machine.name)

        machine.call(lambda: loop.create_task(ask()))
        return True

    def blackout(self, machine: Machine) -> bool:
        """Power loss of all of them."""
        for each in self._cluster.machines.values():
            each.kill(power=True, why="blackout")
        return True

    def long_outage(self, machine: Machine) -> bool:
        """Kill -9 of this node and another: the last one cannot lead until they are back."""
        others = [each for each in self._cluster.machines.values() if each is not machine]
        for each in (machine, self._chance.choice(others)):
            each.kill(power=False, why="outage", restart_s=LONG_OUTAGE_S)
        return True

    def armed(self, machine: Machine) -> bool:
        """Death within a call of the disk."""
        machine.disk.dies_in = self._chance.randrange(1, BOUNDARIES_MAX)
        return True

    def pause(self, machine: Machine) -> bool:
        """SIGSTOP for a while."""
        assert machine.loop is not None
        span_ms = self._chance.randrange(*PAUSE_MS)
        machine.loop.busy_until_ns = self._cluster.world.time_ns + span_ms * 1_000_000
        return True

    def clock(self, machine: Machine) -> bool:
        """The wall clock is set."""
        assert machine.loop is not None
        machine.loop.offset_ns += self._chance.randrange(-CLOCK_STEP_S, CLOCK_STEP_S) * NS
        return True

    def lost_disk(self, machine: Machine) -> bool:
        """A machine gets an empty disk, and its node joins anew; once, as two would be too many."""
        if any(each.has_lost_its_disk for each in self._cluster.machines.values()):
            return False
        machine.lose_disk()
        return True

    # Visitors

    def backup(self, machine: Machine) -> bool:
        """An administrator makes a backup of this node."""
        return visitors.back_up(self._cluster, machine)

    def remove(self, machine: Machine) -> bool:
        """An administrator removes this node's member; it becomes one anew."""
        return visitors.remove(self._cluster, machine)

    def hostile(self, machine: Machine) -> bool:
        """Peers that are none connect to this node."""
        return visitors.intrude(self._cluster, machine)

    # Disks

    def set_back(self, machine: Machine) -> bool:
        """A folder becomes an earlier copy of itself: not now, and counted when it happens."""
        set_back.begin(self._cluster, machine)
        return False

    def rot(self, machine: Machine) -> bool:
        """Bits of a body or of a record of the log flip."""
        what = self._rot.flip(machine)
        if what:
            self._cluster.world.say("rot", machine.name, what)
        return bool(what)

    def scrub(self, machine: Machine) -> bool:
        """The node reads everything back now."""
        return begin_scrub(machine)

    def slow_disk(self, machine: Machine) -> bool:
        """Threads that wait for the disk take longer, for a while."""
        loop = machine.loop
        assert loop is not None
        loop.slow = self._chance.randint(*SLOW)
        self._later(FULL_S, lambda: setattr(loop, "slow", 1))
        return True

    def eio(self, machine: Machine) -> bool:
        """The next sync of a file of a class fails, once."""
        part = self._chance.choice(SYNC_CLASSES)
        machine.disk.failing.append(part)
        return True

    def full(self, machine: Machine) -> bool:
        """No space for a while."""
        disk = machine.disk
        disk.fill(self._chance.randrange(*FREE_BYTES))
        self._later(FULL_S, lambda: disk.fill(ROOM_BYTES))
        return True

    def full_all(self, machine: Machine) -> bool:
        """No space on any machine for a while: nobody can take over."""
        for each in self._cluster.machines.values():
            self.full(each)
        return True

    def full_class(self, machine: Machine) -> bool:
        """No space for one class of files for a while: who writes a little less still gets it."""
        part = self._chance.choice(SPACE_CLASSES)
        refusing = machine.disk.refusing
        refusing.append(part)
        self._later(FULL_S, lambda: refusing.remove(part) if part in refusing else None)
        return True

    def rocks_full(self, machine: Machine) -> bool:
        """No space for RocksDB's files alone: a quota, or another file system."""
        return self._rocks(machine, write=errno.ENOSPC)

    def rocks_eio(self, machine: Machine) -> bool:
        """A write or a sync within RocksDB fails once."""
        if self._chance.random() < 0.5:
            return self._rocks(machine, write=errno.EIO, once=True)
        return self._rocks(machine, sync=errno.EIO, once=True)

    def _rocks(
        self, machine: Machine, *, write: int = 0, sync: int = 0, once: bool = False
    ) -> bool:
        cluster = self._cluster
        suffix = self._chance.choice(ROCKS_CLASSES) if once else ""
        folder = machine.disk.data / "store"
        cluster.shim.fail(machine.number, folder, write=write, sync=sync, suffix=suffix, once=once)
        self._later(FULL_S, lambda: cluster.shim.fail(machine.number, folder))
        return cluster.shim.is_loaded

    # The network

    def cut(self, machine: Machine) -> bool:
        """Cut a machine off, both ways."""
        others = [host for host in [*HOSTS.values(), CLIENT_HOST, FAR_HOST] if host != machine.host]
        return self._cut([(machine.host, o) for o in others] + [(o, machine.host) for o in others])

    def one_way(self, machine: Machine) -> bool:
        """Nothing gets from a machine to one or all of the others, but from them to it."""
        others = [host for host in HOSTS.values() if host != machine.host]
        if self._chance.random() < 0.5:
            others = [self._chance.choice(others)]
        ways = [(machine.host, other) for other in others]
        if self._chance.random() < 0.5:
            ways = [(receiver, sender) for sender, receiver in ways]
        return self._cut(ways)

    def _cut(self, ways: list[tuple[str, str]]) -> bool:
        network = self._cluster.network
        network.cut(ways)
        self._later(CUT_S, lambda: network.mend(ways))
        return True

    def reset(self, machine: Machine) -> bool:
        """Break a TCP connection."""
        return self._cluster.network.reset_one()

    def far_away(self, machine: Machine) -> bool:
        """The other queue manager ends, and begins again after a while."""
        far = self._cluster.far
        far.leave()
        self._later(CUT_S, far.come_back)
        return True

    def bent(self, machine: Machine) -> bool:
        """A bit of the next part of a snapshot flips on its way, whoever sends it."""
        bending = self._cluster.network.bending
        bending[:] = [self._chance.randrange(1 << 16)]
        return True

    def slow_net(self, machine: Machine) -> bool:
        """Everything takes longer for a while."""
        network = self._cluster.network
        network.slowness = self._chance.randint(*SLOW)
        self._later(CUT_S, lambda: setattr(network, "slowness", 1))
        return True


_OF_NETWORK: Final[dict[str, Callable[[Faults, Machine], bool]]] = {
    "cut": Faults.cut,
    "one_way": Faults.one_way,
    "reset": Faults.reset,
    "far_away": Faults.far_away,
    "slow_net": Faults.slow_net,
    "bent": Faults.bent,
    "blackout": Faults.blackout,
    "full_all": Faults.full_all,
    "long_outage": Faults.long_outage,
}
_OF_MACHINES: Final[dict[str, Callable[[Faults, Machine], bool]]] = {
    "kill": Faults.kill,
    "power": Faults.power,
    "away": Faults.away,
    "armed": Faults.armed,
    "transfer": Faults.transfer,
    "lost_disk": Faults.lost_disk,
    "backup": Faults.backup,
    "hostile": Faults.hostile,
    "remove": Faults.remove,
    "pause": Faults.pause,
    "clock": Faults.clock,
    "slow_disk": Faults.slow_disk,
    "set_back": Faults.set_back,
    "rot": Faults.rot,
    "scrub": Faults.scrub,
    "eio": Faults.eio,
    "full": Faults.full,
    "full_class": Faults.full_class,
    "rocks_full": Faults.rocks_full,
    "rocks_eio": Faults.rocks_eio,
}

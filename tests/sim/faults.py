"""What goes wrong, when, and how far it may go.

A correct group must survive every fault below; no others are injected.

- Processes end at any instruction that touches the disk, all of them at once if need be, and
  start again. Nothing on disk is lost by that, so any number may do it.
- Power fails, at one machine or at all. What was not synced survives by luck (tests.sim.disk).
  What was synced does survive: a disk that lies about a sync cannot be survived by a group
  whose majority it lies to, and is not injected.
- An fdatasync fails. The process ends; its machine restarts from what the platter holds. (A
  restart onto a page cache that keeps what the disk refused could not be told from success.)
- A disk fills, and has room again later. Names and preallocated space stay usable.
- A disk is lost whole, or bits of it flip. A group of n voters has its entries on a majority,
  so it survives the loss of n - majority(n) disks until they are replaced. A further disk is
  harmed only when every voter runs in one configuration and the healthy disks are still a
  majority of it: otherwise an entry may have its last healthy copy there. The machine returns
  under a new incarnation as a learner; that it may not start under the old id is tried first.
- Bits flip only in bytes that a later synced record vouches for (the log's format says which
  entry was synced when the record was written). A flip in the newest record of a log cannot be
  told from a torn write of something never acknowledged, by any log of this kind.
- Frames are lost, late, doubled, overtaken or repeated long after; directions of the network
  are cut for a while; strangers (foreign groups, unknown ids) speak. Nothing is forged: a
  sender's id is proven by its certificate.
- A state machine applies nothing for a while, though the log goes on.
- A disk is set back to an earlier copy of itself (tests.sim.set_back says when).
- Processes stand still while their peers go on. Clocks run at different speeds.
- Administrators add, promote, remove and replace members and move leadership at bad times.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raft.types import Configuration, Envelope, Heartbeat, NodeId, PreVote, Vote
from tests.sim.checkers import Violation
from tests.sim.damage import byte_to_flip
from tests.sim.network import splits
from tests.sim.set_back import Copies

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

STABLE_MIN_US = 50_000
"""A cut lasts at least so long, so that both sides notice it."""
FREE_WHEN_FULL_MAX_BYTES = 6_000
SET_BACK_TRY_US = 20_000
SET_BACK_TRIES = 100


def majority(voters: int) -> int:
    """Return how many of this many voters are a majority."""
    return voters // 2 + 1


class Faults:
    """Draws and does what goes wrong, within what must be survived."""

    def __init__(self, world: "World", chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.is_off = False
        self.crashes = 0
        self.counts: dict[str, int] = {}
        self.impaired: set[NodeId] = set()
        """Ids whose disks are lost or may be damaged."""
        self.copies = Copies(world)
        self._kinds = sorted(world.knobs.fault_weights)
        self._weights = [world.knobs.fault_weights[kind] for kind in self._kinds]
        self._do: dict[str, Callable[[], bool]] = {
            "pause": self._pause,
            "freeze": self._freeze,
            "split": self._split,
            "reset": self._reset,
            "clog": self._clog,
            "repeat": self._repeat,
            "stranger": self._stranger,
            "transfer": self.world.administrator.transfer,
            "kill": self._kill,
            "die": self._arm,
            "power": self._power,
            "blackout": self._blackout,
            "stop": self._stop,
            "wipe": self._wipe,
            "corrupt": self._corrupt,
            "fill": self._fill,
            "sync_error": self._sync_error,
            "set_back": self._set_back,
            "stall": self._stall,
        }

    def start(self) -> None:
        """Plan the first fault."""
        self._plan()

    def _plan(self) -> None:
        mean = self.world.knobs.fault_pause_us
        self._later(self.chance.randint(mean // 4, mean * 2), self._happen)

    def _later(self, wait_us: int, action: Callable[[], None]) -> None:
        self.world.at(self.world.now_us + wait_us, action)

    def _happen(self) -> None:
        if self.is_off or not self._kinds:
            return
        self._plan()
        kind = self.chance.choices(self._kinds, self._weights)[0]
        if self._do[kind]():
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def _running(self) -> "list[Host]":
        return [host for host in self.world.hosts.values() if host.is_running]

    def _one_running(self) -> "Host | None":
        """Choose a machine; the leader more often than its share."""
        running = self._running()
        if not running:
            return None
        leaders = [host for host in running if host.leads]
        if leaders and self.chance.random() < 0.6:
            return self.chance.choice(leaders)
        return self.chance.choice(running)

    def _leader(self) -> "Host | None":
        leaders = [host for host in self._running() if host.leads]
        return self.chance.choice(leaders) if leaders else None

    # Network and clocks

    def _pause(self) -> bool:
        host = self._one_running()
        if host is None:
            return False
        wait_us = self.chance.choice((20_000, 100_000, 600_000))
        self.world.say("pause", host.node, wait_us)
        host.pause(self.world.now_us + wait_us)
        return True

    def _freeze(self) -> bool:
        """The leader is frozen and wakes up cut off: it has missed that it was deposed."""
        host = self._leader()
        if host is None:
            return False
        election_us = self.world.knobs.election_ticks * host.tick_us
        wakes_us = self.world.now_us + election_us * self.chance.randint(1, 5)
        self.world.say("freeze", host.node, wakes_us)
        host.pause(wakes_us)
        for other in self.world.host_names:
            if other != host.name:
                self.world.network.cut(other, host.name, wakes_us + election_us)
        return True

    def _split(self) -> bool:
        names = self.world.host_names
        if len(names) < 2:
            return False
        pairs = splits(self.chance, names, self._leader())
        until_us = self.world.now_us + STABLE_MIN_US + self.chance.choice((0, 200_000, 800_000))
        self.world.say("cut", " ".join(f"{a}>{b}" for a, b in pairs), until_us)
        for source, target in pairs:
            self.world.network.cut(source, target, until_us)
        return True

    def _pair(self) -> tuple[str, str] | None:
        names = self.world.host_names
        if len(names) < 2:
            return None
        source, target = self.chance.sample(names, 2)
        return source, target

    def _reset(self) -> bool:
        pair = self._pair()
        if pair is None:
            return False
        self.world.say("reset", *pair)
        self.world.network.reset(*pair)
        return True

    def _clog(self) -> bool:
        pair = self._pair()
        if pair is None:
            return False
        until_us = self.world.now_us + self.chance.randint(10_000, 400_000)
        self.world.say("clog", *pair, until_us)
        self.world.network.connection(*pair).clogged_until_us = until_us
        return True

    def _repeat(self) -> bool:
        self.world.network.repeat_an_old_frame()
        return True

    def _stranger(self) -> bool:
        """A leader of a foreign group, a leader of another node, or a candidate that no member
        knows (removed long ago, say) and whose log is short.
        """
        host = self._one_running()
        if host is None:
            return False
        now = host.replica_now.term
        sender = self.chance.choice(self.world.host_names) + ".1"
        heartbeat = Heartbeat(commit=self.chance.randint(0, 1_000), read_context=0)
        envelope = self.chance.choice(
            (
                Envelope(7, sender, host.node, self.chance.randint(0, 1_000), heartbeat),
                Envelope(1, sender, "n9.9", self.chance.randint(0, 1_000), heartbeat),
                Envelope(1, "n9.9", host.node, now + 1, PreVote(1, 1, is_early=False)),
                Envelope(1, "n9.9", host.node, now + 1, PreVote(1, 1, is_early=True)),
                Envelope(1, "n9.9", host.node, now + 1, Vote(1, 1, is_transfer=False)),
            )
        )
        self.world.say("stranger", envelope)
        host.deliver((envelope,))
        return True

    # Processes and power

    def _restart_soon(self, host: "Host") -> None:
        self._later(
            self.chance.choice((1_000, 20_000, 20_000, 200_000, 1_200_000)),
            lambda: self._restart(host),
        )

    def _restart(self, host: "Host") -> None:
        if host.is_running or host.is_lost:
            return
        if not self.is_off and self.chance.random() < 0.1 and self.world.knobs.has_crashes:
            host.dies_in_at_start = self.chance.randint(1, 20)
        host.start()
        if host.replica is not None:
            self.impaired.discard(host.node)  # the bit that flipped was of no use

    def died(self, host: "Host") -> None:
        """A process ended by itself; it will be started again."""
        self.crashes += 1
        self._restart_soon(host)

    def crash_if_none_yet(self) -> None:
        """See to it that a seed with crashes has one."""
        if not self.is_off and not self.crashes:
            self._kill()

    def repair_everything(self) -> None:
        """From now on there are no faults; stopped processes start again."""
        self.is_off = True
        for host in self.world.hosts.values():
            host.disk.make_room()
            host.disk.fails_sync = False
            host.disk.dies_in = 0
            if host.machine is not None:
                host.machine.is_stalled = False
            if host.is_paused:
                host.pause_ends()
            if host.is_running and host.node in self.impaired:
                host.kill()  # a scrub would find what has not been read yet
            if not host.is_running:
                self._restart(host)
            else:
                host.space_returned()

    def _kill(self) -> bool:
        host = self._one_running()
        if host is None:
            return False
        self.world.say("kill", host.node)
        host.kill()
        self.died(host)
        return True

    def _power(self) -> bool:
        host = self._one_running()
        if host is None:
            return False
        self.world.say("power", host.node)
        host.lose_power()
        self.died(host)
        return True

    def _blackout(self) -> bool:
        self.world.say("blackout")
        for host in self._running():
            host.lose_power()
            self.died(host)
        return True

    def _stop(self) -> bool:
        host = self._one_running()
        if host is None:
            return False
        self.world.say("stop", host.node)
        host.stop()
        self._restart_soon(host)
        return True

    def _arm(self) -> bool:
        """Have a process die at one of its next disk operations."""
        host = self._one_running()
        if host is None:
            return False
        host.disk.dies_in = self.chance.randint(1, 30)
        return True

    def replaced(self, host: "Host") -> None:
        """A log has replaced entries: no other moment hangs so much on the order of records on
        disk, so the power often goes while they are written.
        """
        if self.is_off or not self.world.knobs.has_crashes or self.chance.random() < 0.3:
            return
        epoch = host.epoch

        def cut() -> None:
            if host.is_running and host.epoch == epoch and not self.is_off:
                self.world.say("power", host.node, "replacing entries")
                host.lose_power(in_last_write=True)
                self.died(host)

        self._later(1, cut)

    # Disks

    def may_lose(self, host: "Host") -> bool:
        """Return whether the group survives the loss of this disk now."""
        configuration = self.settled()
        if configuration is None or host.node not in configuration.voters:
            return False
        healthy = [
            voter
            for voter in configuration.voters
            if voter not in self.impaired and voter != host.node and not self.copies.lacks(voter)
        ]
        return len(healthy) >= majority(len(configuration.voters))

    def settled(self) -> Configuration | None:
        """Return the configuration if every voter runs in it and it is committed."""
        configuration = self.world.checker.model.configuration
        if configuration is None:
            return None
        for voter in configuration.voters:
            host = self.world.host_of(voter)
            if voter in self.impaired:
                continue
            if host.node != voter or host.configuration != configuration:
                return None
        return configuration

    def _wipe(self) -> bool:
        host = self._one_running()
        if host is None or not self.may_lose(host):
            return False
        self.world.say("wipe", host.node)
        host.kill()
        host.disk.wipe()
        self.lose(host)
        host.start()  # must refuse: the id has been a member
        return True

    def lose(self, host: "Host") -> None:
        """The id of this machine is dead."""
        host.is_lost = True
        self.impaired.add(host.node)
        self.world.checker.lost_ids.add(host.node)

    def refused(self, host: "Host", error: Exception) -> None:
        """A process would not start on its disk; only where a disk was harmed may that be."""
        self.world.say("refused", host.node, type(error).__name__, error)
        if host.node not in self.impaired:
            raise Violation(f"{host.node} refuses an unharmed disk: {error}")
        self.lose(host)

    def found_damage(self, host: "Host", error: BaseException) -> None:
        """A running process read back other bytes than were written."""
        if host.node not in self.impaired:
            raise Violation(f"{host.node} finds damage on an unharmed disk: {error}")

    def _corrupt(self) -> bool:
        """Flip a bit, under a running process or while it is down."""
        host = self._one_running()
        if host is None or not self.may_lose(host):
            return False
        place = byte_to_flip(host.disk, self.chance)
        if place is None:
            return False
        name, inode, offset = place
        if self.chance.random() < 0.7:
            host.kill()
            self._restart_soon(host)
        self.world.say("corrupt", host.node, name, offset)
        self.impaired.add(host.node)
        host.disk.flip_bit(inode, offset)
        return True

    def _fill(self) -> bool:
        """A disk fills, now and then several at once."""
        running = self._running()
        if not running:
            return False
        for host in self.chance.sample(running, self.chance.choice((1, 1, len(running)))):
            free = self.chance.choice((0, 0, 1_000, FREE_WHEN_FULL_MAX_BYTES))
            self.world.say("fill", host.node, free)
            host.disk.fill(free)
            wait_us = self.chance.choice((100_000, 500_000, 1_500_000))
            self._later(wait_us, partial(self._room, host))
        return True

    def _room(self, host: "Host") -> None:
        self.world.say("room", host.node)
        host.disk.make_room()
        host.space_returned()

    def _sync_error(self) -> bool:
        host = self._one_running()
        if host is None:
            return False
        host.disk.fails_sync = True
        return True

    def _set_back(self) -> bool:
        """Take a copy of a disk, and set it back to that once the group must survive it."""
        host = self._one_running()
        if host is None:
            return False
        self.copies.take(host)
        self._later(SET_BACK_TRY_US, partial(self._try_set_back, host, host.node, SET_BACK_TRIES))
        return False

    def _try_set_back(self, host: "Host", node: NodeId, tries: int) -> None:
        if self.is_off or host.node != node or not self.copies.has(host):
            return
        if host.is_running and self.copies.may_set_back(host):
            self.world.say("set_back", host.node)
            self.counts["set_back"] = self.counts.get("set_back", 0) + 1
            self.copies.set_back(host)
            self.died(host)
        elif tries:
            self._later(SET_BACK_TRY_US, partial(self._try_set_back, host, node, tries - 1))

    def _stall(self) -> bool:
        """A state machine applies nothing for a while."""
        host = self._one_running()
        if host is None or host.machine is None:
            return False
        machine = host.machine
        machine.is_stalled = True
        wait_us = self.chance.choice((50_000, 300_000, 1_500_000))
        self.world.say("stall", host.node, wait_us)

        def end() -> None:
            machine.is_stalled = False
            if host.machine is machine:
                host.space_returned()

        self._later(wait_us, end)
        return True

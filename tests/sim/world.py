"""A deterministic world: virtual time, machines, a network, clients, faults and checkers.

Everything that happens is an event at a virtual microsecond; events of one microsecond happen
in the order in which they were planned. One event is one step. The same seed gives the same
transcript, byte for byte, on every machine and with every PYTHONHASHSEED.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

from raft.log.files import Directory
from raft.replica import LogReader
from raft.types import Configuration, Envelope, NodeId, PeerState
from tests.sim.administrator import Administrator
from tests.sim.chance import Chance
from tests.sim.checkers import Checker, Model, Violation
from tests.sim.clients import ClientFaults, Clients, Outcome
from tests.sim.faults import Faults
from tests.sim.host import Host, HostFaults
from tests.sim.knobs import Knobs
from tests.sim.machine import Machine
from tests.sim.network import Network, NetworkFaults
from tests.sim.slots import MachineFaults, SlottedMachine

SETTLE_MAX_US = 20_000_000
"""Virtual time within which a group must elect, commit and catch up once the faults stop."""
SETTLE_STEPS_MAX = 40_000
CRASH_CHECK_STEPS = 400
"""A seed that is to have a crash gets it after so many steps."""
CALM_US = 500_000
"""Time without faults during which resets alone must not depose the leader."""


@dataclass(frozen=True)
class Workload:
    """What the group replicates, and who uses it."""

    machine: Callable[[Directory, LogReader, MachineFaults], SlottedMachine[Any]]
    model: Callable[[], Model]
    clients: "Callable[[World, Random, ClientFaults], Clients]"


REGISTERS = Workload(Machine, Model, Clients)
"""The toy: most seeds per second."""


class World:
    """One run of one seed."""

    def __init__(
        self,
        seed: int,
        knobs: Knobs | None = None,
        write: Callable[[str], None] | None = None,
        workload: "Workload | None" = None,
    ) -> None:
        self.workload = workload or REGISTERS
        self.seed = seed
        self.chance = Chance(seed)
        self.knobs = knobs or Knobs.drawn(seed, self.chance.stream("knobs"))
        self.now_us = 0
        self.steps = 0
        self._write = write
        self._hash = blake2b(digest_size=16)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        self.checker = Checker(self)
        names = [f"n{n + 1}" for n in range(self.knobs.voters + self.knobs.spares)]
        self.hosts = {name: Host(self, name) for name in names}
        self.host_names = names
        self.network = Network(self, self.chance.stream("network"), self.knobs.network)
        self.clients = self.workload.clients(
            self, self.chance.stream("clients"), self.knobs.clients
        )
        self.administrator = Administrator(self, self.chance.stream("administrator"))
        self.faults = Faults(self, self.chance.stream("faults"))

    # Time and transcript

    def at(self, at_us: int, action: Callable[[], None]) -> None:
        """Plan an event."""
        self._planned += 1
        heapq.heappush(self._events, (max(at_us, self.now_us), self._planned, action))

    def say(self, event: str, *fields: object) -> None:
        """Write one line of the transcript."""
        line = f"{self.now_us:>9} {event:<8} {' '.join(map(str, fields))}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self._write is not None:
            self._write(line)

    def transcript_hash(self) -> str:
        """Return a hash of every line so far."""
        return self._hash.hexdigest()

    def step(self) -> bool:
        """Do the next event; False when nothing is planned any more."""
        if not self._events:
            return False
        self.now_us, _, action = heapq.heappop(self._events)
        self.steps += 1
        action()
        return True

    # What the parts ask of each other

    def host_of(self, node: NodeId) -> Host:
        """Return the machine whose name an id carries."""
        return self.hosts[node.rpartition(".")[0]]

    def is_running(self, name: str) -> bool:
        return self.hosts[name].is_running

    def is_known(self, name: str) -> bool:
        return name in self.hosts

    def has_power(self, name: str) -> bool:
        return self.hosts[name].has_power

    def deliver(self, source: str, target: str, frame: tuple[Envelope, ...]) -> None:
        """A frame has arrived."""
        host = self.hosts[target]
        if host.is_running:
            self.say("recv", host.node, source, len(frame))
            host.deliver(frame)

    def tell_peer(self, source: str, target: str, state: PeerState) -> None:
        """Tell a process the state of its connection to another machine."""
        host = self.hosts[source]
        if host.is_running:
            peer = self.hosts[target].node
            self.say("peer", host.node, peer, state.name)
            host.tell_peer(peer, state)

    # A run

    def found(self) -> None:
        """Start a new group on the first machines; the others wait as spares."""
        voters = tuple(sorted(f"{name}.1" for name in self.host_names[: self.knobs.voters]))
        for name in self.host_names:
            host = self.hosts[name]
            host.found(Configuration(voters if host.node in voters else ()))
            host.start()

    def run(self, steps: int) -> None:
        """Do a whole run: steps with faults, then the phase without."""
        self.found()
        self.clients.start()
        self.faults.start()
        self.administrator.start()
        while self.steps < steps and self.step():
            if self.steps % CRASH_CHECK_STEPS == 0 and self.knobs.has_crashes:
                self.faults.crash_if_none_yet()
        self.settle()
        self.calm()
        self.clients.check()

    def settle(self) -> None:
        """Stop the faults; the group must elect, commit and catch up within a bound."""
        self.say("settle")
        self.administrator.is_calm = True
        self.faults.repair_everything()
        self.network.faults = NetworkFaults()
        self.knobs.host = HostFaults()
        self.network.heal()
        mark = len(self.clients.history)
        deadline_us = self.now_us + SETTLE_MAX_US
        last_step = self.steps + SETTLE_STEPS_MAX
        while reason := self._unsettled(mark):
            if self.now_us > deadline_us or self.steps > last_step or not self.step():
                raise Violation(f"without faults there is no progress: {reason}")
        self.say("settled")

    def _unsettled(self, mark: int) -> str:
        """Return what is still missing, or nothing."""
        if any(not host.is_running for host in self.hosts.values()):
            return "a machine does not run"
        configuration = self.checker.model.configuration
        if configuration is None:
            return "nobody has ever led"
        members = (*configuration.voters, *configuration.learners)
        if self.faults.impaired & set(members):
            return "a lost id is still a member"
        done = [op.index for op in self.clients.history[mark:] if op.outcome is Outcome.DONE]
        if not done:
            return "no operation was acknowledged"
        applied = {node: self.checker.shadow(node).applied for node in members}
        if any(index is None or index < done[0] for index in applied.values()):
            return f"a member has not applied {done[0]}: {applied}"
        return ""

    def calm(self) -> None:
        """A leader keeps leading while connections are reset under it."""
        leader = self.current_leader()
        if leader is None:
            raise Violation("without faults there is no leader")
        term = leader.replica_now.term
        self.say("calm", leader.node, term)
        until_us = self.now_us + CALM_US
        chance = self.chance.stream("calm")
        for _ in range(4 if len(self.host_names) > 1 else 0):
            pair = chance.sample(self.host_names, 2)
            self.at(
                self.now_us + chance.randint(0, CALM_US // 2),
                partial(self.network.reset, *pair),
            )
        while self.now_us < until_us and self.step():
            pass
        now = self.current_leader()
        if now is not leader or now.replica_now.term != term:
            raise Violation(f"{leader.node} led term {term} and was deposed without a fault")

    def current_leader(self) -> Host | None:
        """Return the leader of the newest term."""
        leading = [host for host in self.hosts.values() if host.leads]
        return max(leading, key=lambda host: host.replica_now.term, default=None)

"""A tiny vocabulary for hand-written cases: a world without faults but those that are called."""

from collections.abc import Iterable
from functools import partial

from raft.replica import Replica
from raft.types import Role
from tests.sim.clients import Outcome
from tests.sim.host import Host, Results
from tests.sim.knobs import Knobs
from tests.sim.network import NetworkFaults
from tests.sim.world import World

FOREVER_US = 1 << 60
PATIENCE_MS = 5_000
"""Virtual time within which what is expected must come true."""


class Case:
    """Machines `n1`, `n2`, ... of which the first ones found a group."""

    def __init__(self, voters: int = 3, spares: int = 0, knobs: Knobs | None = None) -> None:
        knobs = knobs or Knobs(network=NetworkFaults(delay_us_max=2_000))
        knobs.voters, knobs.spares = voters, spares
        self.world = World(seed=voters, knobs=knobs)
        self.world.administrator.is_calm = True

    def open(self) -> "Case":
        """Found the group and start every machine."""
        self.world.found()
        return self

    def host(self, name: str) -> Host:
        """Return a machine."""
        return self.world.hosts[name]

    # Time

    def run(self, ms: int) -> None:
        """Let virtual time pass."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.world.at(self.world.now_us + ms * 1_000, end)
        while not is_over:
            self.world.step()

    # Processes

    def start(self, *names: str) -> None:
        """Start processes on what their disks hold."""
        for name in names:
            self.host(name).start()

    def stop(self, *names: str) -> None:
        """Kill processes."""
        for name in names:
            self.host(name).kill()

    def cut_power(self, *names: str) -> None:
        """Stop machines; what they had not synced is gone, or not."""
        for name in names:
            self.host(name).lose_power()

    def pause(self, name: str) -> None:
        """Stop a process in its tracks."""
        self.host(name).pause(FOREVER_US)

    def resume(self, name: str) -> None:
        """Let it go on: the next call finds it as it was, `run` brings what waited."""
        host = self.host(name)
        host.paused_until_us = self.world.now_us
        self.world.at(self.world.now_us, host.pause_ends)

    # Network

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass in this direction."""
        self.world.network.cut(source, target, FOREVER_US)

    def split(self, *camps: Iterable[str]) -> None:
        """Let machines reach only those of their own camp."""
        for camp in camps:
            for other in camps:
                if other is not camp:
                    for source in camp:
                        for target in other:
                            self.cut(source, target)

    def heal(self) -> None:
        """End every cut."""
        self.world.network.heal()

    # Requests

    def elect(self, name: str) -> None:
        """Make a machine campaign as often as it takes; who leads already hands over."""
        for _ in range(20):
            leader = self.leader()
            if leader == name:
                return
            if leader is None:
                self.campaign(name)
            else:
                self.host(leader).command(partial(Replica.transfer, to=self.host(name).node))
            self.run(self.world.knobs.election_ticks)
        raise AssertionError(f"{name} does not become leader")

    def campaign(self, name: str) -> None:
        """Have the others lose patience, and then the clock of this machine run fast."""
        host = self.host(name)
        knobs = self.world.knobs
        self.run(knobs.election_ticks)

        def hurry(replica: Replica[Results]) -> None:
            replica.tick(knobs.heartbeat_ticks)

        for _ in range(2 * knobs.election_ticks // knobs.heartbeat_ticks + 1):
            if host.role is Role.FOLLOWER:
                host.command(hurry)

    def propose(self, name: str, key: int = 0, length: int = 8) -> int:
        """Propose an operation and return its number at once."""
        (number,) = self.world.clients.propose(self.host(name), [(key, length)])
        return number

    def put(self, name: str, count: int = 1, length: int = 8) -> int:
        """Have operations done; return the number of the last."""
        number = 0
        for _ in range(count):
            number = self.propose(name, length=length)
            self.expect(number, Outcome.DONE)
        return number

    # Expectations

    def outcome(self, number: int) -> Outcome:
        """Return what the client knows of an operation."""
        return self.world.clients.history[number - 1].outcome

    def leader(self) -> str | None:
        """Return who leads the newest term."""
        leading = [h for h in self.world.hosts.values() if h.leads and not h.is_paused]
        newest = max(leading, key=lambda host: host.replica_now.term, default=None)
        return newest.name if newest else None

    def expect(self, number: int, outcome: Outcome) -> None:
        """Wait until an operation has ended so."""
        for _ in range(PATIENCE_MS // 5):
            if self.outcome(number) is outcome:
                return
            self.run(5)
        raise AssertionError(f"operation {number} is {self.outcome(number)}, not {outcome}")

    def expect_leader(self, *names: str, within_ms: int = PATIENCE_MS) -> str:
        """Wait until one of these leads, and return it."""
        for _ in range(within_ms):
            leader = self.leader()
            if leader in names:
                assert leader is not None
                return leader
            self.run(1)
        raise AssertionError(f"{self.leader()} leads after {within_ms} ms, none of {names}")

    def expect_equal(self, *names: str) -> None:
        """Wait until these have applied the same, all that is committed."""
        for _ in range(PATIENCE_MS // 5):
            applied = {self.host(name).replica_now.applied_index for name in names}
            if applied == {self.world.checker.model.index}:
                return
            self.run(5)
        raise AssertionError(f"{names} have applied {applied}")

    def every_sync_of(self, name: str, ms: int) -> None:
        """Have every sync of a machine take so long; 0: as long as it likes."""
        self.host(name).slow_disk_us = ms * 1_000

"""Clients: each proposes operations that exist once in the world, and reads, and keeps a window
of them outstanding. What it knows at the end of each goes into the history.
"""

import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tests.sim.machine import KEYS, encode_operation
from tests.sim.slots import Result

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


class Outcome(Enum):
    """What a client knows of an operation."""

    OPEN = "open"
    REFUSED = "refused"
    """No process took it: it never happened."""
    LOST = "lost"
    """Another entry was committed in its place: it never happens."""
    UNKNOWN = "unknown"
    """Its process died or the client gave up: it may have happened, or happen yet."""
    DONE = "done"


@dataclass(slots=True)
class Operation:
    """One line of the history."""

    number: int
    client: int
    invoked_us: int
    outcome: Outcome = Outcome.OPEN
    index: int = 0
    """DONE: of its entry."""


@dataclass(slots=True)
class ClientFaults:
    """How the clients behave; drawn per seed."""

    count: int = 3
    window: int = 2
    """Operations that one client keeps outstanding."""
    think_us: int = 20_000
    read_share: float = 0.25
    value_bytes: tuple[int, ...] = (0, 8, 40, 200)
    timeout_us: int = 1_500_000


class Clients:
    """All clients of a world."""

    def __init__(self, world: "World", chance: random.Random, faults: ClientFaults) -> None:
        self.world = world
        self.chance = chance
        self.faults = faults
        self.history: list[Operation] = []
        self.reads_served = 0
        self._outstanding = [0] * faults.count

    def start(self) -> None:
        """Plan the first action of each client."""
        for client in range(self.faults.count):
            self._plan(client)

    def count(self, outcome: Outcome) -> int:
        """Return how many operations ended so."""
        return sum(operation.outcome is outcome for operation in self.history)

    def check(self) -> None:
        """Hold what the clients know against the model, at the end of a run."""

    def _plan(self, client: int) -> None:
        wait_us = self.chance.randint(1, self.faults.think_us)
        self.world.at(self.world.now_us + wait_us, lambda: self._think(client))

    def _think(self, client: int) -> None:
        self._plan(client)
        if self._outstanding[client] >= self.faults.window:
            return
        host = self._choose()
        if host is None:
            return
        if self.chance.random() < self.faults.read_share:
            self._read(client, host)
        else:
            self._put(client, host, self.chance.choice((1, 1, 2, 5)))

    def _choose(self) -> "Host | None":
        """Mostly a machine that says it leads, as a client that follows redirects would."""
        running = [host for host in self.world.hosts.values() if host.is_running]
        if not running:
            return None
        leaders = [host for host in running if host.leads]
        if leaders and self.chance.random() < 0.9:
            return self.chance.choice(leaders)
        return self.chance.choice(running)

    # Writes

    def _put(self, client: int, host: "Host", count: int) -> None:
        sizes = [
            (self.chance.randrange(KEYS), self.chance.choice(self.faults.value_bytes))
            for _ in range(count)
        ]
        numbers = self.propose(host, sizes, client)
        at_us = self.world.now_us + self.faults.timeout_us
        self.world.at(at_us, lambda: self.unknown(numbers))

    def propose(
        self, host: "Host", sizes: list[tuple[int, int]], client: int = 0
    ) -> tuple[int, ...]:
        """Put values of (key, length) in one entry; return the operations' numbers."""
        payloads = []
        for key, length in sizes:
            number = len(self.history) + 1
            self.history.append(Operation(number, client, self.world.now_us))
            payloads.append((number, encode_operation(number, key, length)))
        numbers = tuple(number for number, _ in payloads)
        self._outstanding[client] += len(numbers)
        if host.propose(payloads):
            self.world.say("propose", host.node, numbers)
        else:
            self._end(numbers, Outcome.REFUSED)
        return numbers

    def acknowledged(
        self,
        host: "Host",
        index: int,
        term: int,
        numbers: tuple[int, ...],
        result: tuple[Result, ...],
    ) -> None:
        """The operations of one entry are done."""
        self.world.checker.acknowledged(index, term, result)
        assert numbers == tuple(one[0] for one in result), "results of other operations"
        self.world.say("done", host.node, index, numbers)
        for number in numbers:
            self.history[number - 1].index = index
        self._end(numbers, Outcome.DONE)

    def lost(self, numbers: tuple[int, ...]) -> None:
        """Another entry took the place of these operations."""
        self.world.say("lost", numbers)
        self._end(numbers, Outcome.LOST)

    def unknown(self, numbers: tuple[int, ...]) -> None:
        """The outcome of these operations can no longer be known."""
        self._end(numbers, Outcome.UNKNOWN)

    def _end(self, numbers: tuple[int, ...], outcome: Outcome) -> None:
        for number in numbers:
            operation = self.history[number - 1]
            if operation.outcome is Outcome.OPEN:
                operation.outcome = outcome
                self._outstanding[operation.client] -= 1
            elif operation.outcome is Outcome.UNKNOWN and outcome is not Outcome.OPEN:
                operation.outcome = outcome

    # Reads

    def _read(self, client: int, host: "Host") -> None:
        floor = self.world.checker.acknowledged_index
        key = self.chance.randrange(KEYS)
        epoch = host.epoch
        self._outstanding[client] += 1
        is_open = True

        def end() -> bool:
            nonlocal is_open
            was_open, is_open = is_open, False
            if was_open:
                self._outstanding[client] -= 1
            return was_open

        def serve() -> None:
            index = self.world.checker.read(host, key, floor)
            self.world.say("read", host.node, key, index)
            self.reads_served += 1
            end()

        number = host.read(serve)
        if number is None:
            end()
            return

        def give_up() -> None:
            if end():
                host.cancel_read(epoch, number)

        self.world.at(self.world.now_us + self.faults.timeout_us, give_up)

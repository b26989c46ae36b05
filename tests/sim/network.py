"""The network between simulated machines: slow, lossy, repeating, reordering, and cut at times.

Each ordered pair of machines has its own connection, as with a real transport: a process
dials its peers, and what it sends travels on the connections that it dialled. A frame may be
lost, late, doubled or overtaken; nothing is forged. Cuts may be one-way and last at least the
minimum stability time of the seed, so that both sides of a split have time to do harm.

Connections tell their dialler what a real one would see (`raft.transport.transport.PeerState`):
a killed process breaks them at once and refuses new ones; a machine without power or behind a
cut stays silent until keepalive gives up and refuses nothing; a reset breaks the connection of
a peer that lives on. A live process is never reported as refused.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raft.replica import SnapshotSend
from raft.types import SNAPSHOT_REFUSED, Envelope, PeerState

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

FRAMES_REMEMBERED_MAX = 64
"""Old frames kept for a very late repetition."""
TRANSFER_TRIES_MAX = 8
"""Attempts without progress after which a snapshot's transfer is given up."""


@dataclass(slots=True)
class NetworkFaults:
    """What the network does to frames; drawn once per seed, all zero in the liveness phase."""

    delay_us_min: int = 200
    delay_us_max: int = 1_500
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Share of frames that get a delay of their own; the others keep their order."""
    late: float = 0.0
    """Share of frames that are delivered once more, much later."""
    keepalive_us: int = 400_000
    """Silence after which a connection is given up."""

    @classmethod
    def drawn(cls, chance: random.Random) -> "NetworkFaults":
        """Draw the faults of one seed; each kind is absent in some seeds."""
        slow = chance.choice((1, 1, 2, 8))
        return cls(
            delay_us_min=chance.choice((50, 200, 1_000)),
            delay_us_max=chance.choice((1_500, 4_000, 10_000)) * slow,
            loss=chance.choice((0.0, 0.01, 0.05, 0.2)),
            duplicate=chance.choice((0.0, 0.02, 0.1)),
            reorder=chance.choice((0.0, 0.1, 0.5)),
            late=chance.choice((0.0, 0.01)),
            keepalive_us=chance.choice((100_000, 400_000, 2_000_000)),
        )


@dataclass(slots=True)
class Connection:
    """What one machine dialled to another."""

    state: PeerState = PeerState.LOST
    epoch: int = 0
    """Counts the losses of this connection; frames of an older epoch are gone."""
    cut_until_us: int = 0
    """Frames vanish until then."""
    clogged_until_us: int = 0
    """Frames wait until then."""
    last_arrival_us: int = 0
    is_dialling: bool = False


class Network:
    """Carries frames and news of connections between the machines of a world."""

    def __init__(self, world: "World", chance: random.Random, faults: NetworkFaults) -> None:
        self.world = world
        self.chance = chance
        self.faults = faults
        self.connections: dict[tuple[str, str], Connection] = {}
        self.remembered: list[tuple[str, str, tuple[Envelope, ...]]] = []
        self.transfers: dict[tuple[str, str], Transfer] = {}
        self.snapshots_done = 0
        self.copies: Callable[[str, str, tuple[Envelope, ...]], int] = lambda *frame: 1
        """How often a frame travels; a hand-written case may decide by what is in it."""

    def connection(self, source: str, target: str) -> Connection:
        """Return the connection that `source` dials to `target`."""
        pair = (source, target)
        found = self.connections.get(pair)
        if found is None:
            found = self.connections[pair] = Connection()
        return found

    def is_open(self, source: str, target: str) -> bool:
        """Return whether frames pass from one machine to the other at this time."""
        return self.connection(source, target).cut_until_us <= self.world.now_us

    # Frames

    def send(self, source: str, target: str, frame: tuple[Envelope, ...]) -> None:
        """Send a frame; it may never arrive."""
        if not self.world.is_known(target):
            return
        link = self.connection(source, target)
        if link.state is not PeerState.CONNECTED or link.cut_until_us > self.world.now_us:
            return
        faults = self.faults
        chance = self.chance
        if faults.loss and chance.random() < faults.loss:
            self.world.say("lose", source, target)
            return
        for _ in range(self.copies(source, target, frame)):
            self._carry(link, source, target, frame)
        if faults.duplicate and chance.random() < faults.duplicate:
            self._carry(link, source, target, frame)
        if faults.late and chance.random() < faults.late:
            if len(self.remembered) == FRAMES_REMEMBERED_MAX:
                self.remembered.pop(0)
            self.remembered.append((source, target, frame))

    def delay_us(self) -> int:
        """Draw the time that a frame takes."""
        return self.chance.randint(self.faults.delay_us_min, self.faults.delay_us_max)

    def _carry(
        self, link: Connection, source: str, target: str, frame: tuple[Envelope, ...]
    ) -> None:
        now_us = self.world.now_us
        arrival_us = max(now_us + self.delay_us(), link.clogged_until_us)
        if not (self.faults.reorder and self.chance.random() < self.faults.reorder):
            arrival_us = max(arrival_us, link.last_arrival_us)
            link.last_arrival_us = arrival_us
        epoch = link.epoch
        self.world.at(arrival_us, lambda: self._arrive(link, epoch, source, target, frame))

    def _arrive(
        self,
        link: Connection,
        epoch: int,
        source: str,
        target: str,
        frame: tuple[Envelope, ...],
    ) -> None:
        if epoch == link.epoch and link.cut_until_us <= self.world.now_us:
            self.world.deliver(source, target, frame)

    def repeat_an_old_frame(self) -> None:
        """Deliver an old frame again."""
        if self.remembered:
            source, target, frame = self.chance.choice(self.remembered)
            self.world.say("repeat", source, target)
            self.world.deliver(source, target, frame)

    def send_snapshot(self, host: "Host", send: SnapshotSend) -> None:
        """Stream a snapshot; another one on its way to the same machine ends."""
        pair = (host.name, send.to.rpartition(".")[0])
        before = self.transfers.pop(pair, None)
        if before is not None:
            before.end(is_whole=False)
        self.world.say("snapshot", host.node, send.to, send.meta.index, send.meta.size_bytes)
        transfer = self.transfers[pair] = Transfer(self, host, send)
        transfer.ask()

    # Connections

    def process_started(self, host: str) -> None:
        """Dial from and to a process that has just started."""
        for other in self.world.host_names:
            if other != host:
                self.connection(host, other).state = PeerState.LOST
                self._dial_soon(host, other)
                link = self.connection(other, host)
                if link.state is PeerState.CONNECTED:
                    # The machine was without power: its first answer is a reset.
                    self._lose_later(link, other, host, self.delay_us(), is_reset=True)
                self._dial_soon(other, host)

    def process_died(self, host: str, *, has_power: bool) -> None:
        """Break the connections to a process; those that it dialled die with it."""
        for other in self.world.host_names:
            if other == host:
                continue
            mine = self.connection(host, other)
            mine.state = PeerState.LOST
            mine.epoch += 1
            link = self.connection(other, host)
            if link.state is PeerState.CONNECTED:
                wait_us = self.delay_us() if has_power else self.faults.keepalive_us
                self._lose_later(link, other, host, wait_us)

    def reset(self, source: str, target: str) -> None:
        """Break a connection between two live processes; it comes back."""
        link = self.connection(source, target)
        if link.state is PeerState.CONNECTED:
            self._lose(link, source, target)

    def cut(self, source: str, target: str, until_us: int) -> None:
        """Let nothing pass in this direction for a while."""
        link = self.connection(source, target)
        link.cut_until_us = max(link.cut_until_us, until_us)
        for a, b in ((source, target), (target, source)):
            dialled = self.connection(a, b)
            if dialled.state is PeerState.CONNECTED:
                self._lose_later(dialled, a, b, self.faults.keepalive_us)
        self.world.at(until_us, lambda: self._mend(source, target))

    def heal(self) -> None:
        """End every cut and every clog now."""
        for (source, target), link in self.connections.items():
            link.cut_until_us = 0
            link.clogged_until_us = 0
            if link.state is not PeerState.CONNECTED:
                self._dial_soon(source, target)

    def _mend(self, source: str, target: str) -> None:
        for a, b in ((source, target), (target, source)):
            if self.connection(a, b).state is not PeerState.CONNECTED:
                self._dial_soon(a, b)

    def _lose_later(
        self, link: Connection, source: str, target: str, wait_us: int, *, is_reset: bool = False
    ) -> None:
        epoch = link.epoch

        def lose() -> None:
            is_dead = not self.world.is_running(target)
            is_cut = not (self.is_open(source, target) and self.is_open(target, source))
            if link.epoch == epoch and (is_reset or is_dead or is_cut):
                self._lose(link, source, target)

        self.world.at(self.world.now_us + wait_us, lose)

    def _lose(self, link: Connection, source: str, target: str) -> None:
        link.epoch += 1
        link.state = PeerState.LOST
        self.world.tell_peer(source, target, PeerState.LOST)
        self._dial_soon(source, target)

    def _dial_soon(self, source: str, target: str) -> None:
        link = self.connection(source, target)
        if not link.is_dialling:
            link.is_dialling = True
            wait_us = self.chance.randint(100, 5_000)
            self.world.at(self.world.now_us + wait_us, lambda: self._dial(link, source, target))

    def _dial(self, link: Connection, source: str, target: str) -> None:
        """One attempt. What failed is tried again when the target or the network changes."""
        link.is_dialling = False
        if link.state is PeerState.CONNECTED or not self.world.is_running(source):
            return
        if not (self.is_open(source, target) and self.is_open(target, source)):
            return
        if self.world.is_running(target):
            self._become(link, source, target, PeerState.CONNECTED)
        elif link.state is PeerState.LOST and self.world.has_power(target):
            self._become(link, source, target, PeerState.REFUSED)

    def _become(self, link: Connection, source: str, target: str, state: PeerState) -> None:
        link.state = state
        link.last_arrival_us = 0
        self.world.tell_peer(source, target, state)


class Transfer:
    """A snapshot on its way, chunk by chunk, on its own stream, which may break and resume."""

    def __init__(self, network: Network, host: "Host", send: SnapshotSend) -> None:
        self.network = network
        self.host = host
        self.send = send
        self.target = send.to.rpartition(".")[0]
        self.epoch = host.epoch
        self.tries = 0
        self.wanted = -1
        self.is_ended = False

    def ask(self) -> None:
        """Open the stream: an empty chunk at 0 asks where to begin."""
        self._carry(0, b"")

    def end(self, *, is_whole: bool) -> None:
        """Close the source and tell the sender, if it still is the same process."""
        if not self.is_ended:
            self.is_ended = True
            self.network.snapshots_done += is_whole
            self.network.world.say("snapshot", self.host.node, self.send.to, is_whole)
            if self.host.epoch == self.epoch:
                self.send.source.close()
                self.host.snapshot_done(self.send.to, is_whole)

    def _carry(self, offset: int, chunk: bytes) -> None:
        network = self.network
        link = network.connection(self.host.name, self.target)
        if link.state is not PeerState.CONNECTED or not network.is_open(
            self.host.name, self.target
        ):
            self._again()
            return
        epoch = link.epoch
        repeated = 1 + (network.chance.random() < network.faults.duplicate)
        answers = 0

        def answer(wanted: int) -> None:
            nonlocal answers
            answers += 1
            if answers == 1:
                at_us = network.world.now_us + network.delay_us()
                network.world.at(at_us, lambda: self._answered(wanted))

        def arrive() -> None:
            target = network.world.hosts[self.target]
            is_there = target.node == self.send.to and target.is_running
            if self.is_ended or self.host.epoch != self.epoch:
                return
            if link.epoch == epoch and network.is_open(self.host.name, self.target) and is_there:
                for _ in range(repeated):
                    target.snapshot_chunk(self.send, self.host.node, offset, chunk, answer)
            else:
                self._again()

        network.world.at(network.world.now_us + network.delay_us(), arrive)

    def _answered(self, wanted: int) -> None:
        if self.is_ended or self.host.epoch != self.epoch:
            return
        if wanted == SNAPSHOT_REFUSED or wanted >= self.send.meta.size_bytes:
            self.end(is_whole=wanted != SNAPSHOT_REFUSED)
        elif not self.network.is_open(self.target, self.host.name):
            self._again()
        elif wanted == self.wanted and not self._tries_again():
            self.end(is_whole=False)
        else:
            if wanted != self.wanted:
                self.tries = 0
            self.wanted = wanted
            length = self.network.world.knobs.snapshot_chunk_bytes
            self._carry(wanted, self.send.source.read(wanted, length))

    def _tries_again(self) -> bool:
        self.tries += 1
        return self.tries < TRANSFER_TRIES_MAX

    def _again(self) -> None:
        """The stream broke: open it again in a while, or give up."""
        if not self._tries_again():
            self.end(is_whole=False)
            return

        def ask() -> None:
            if not self.is_ended and self.host.epoch == self.epoch:
                self.ask()

        self.network.world.at(self.network.world.now_us + 30_000, ask)


def splits(chance: random.Random, hosts: list[str], leader: "Host | None") -> list[tuple[str, str]]:
    """Draw a set of directions to cut: one machine alone (often the leader), or two camps;
    both ways, one way, or with one machine that still reaches everybody.
    """
    order = hosts[:]
    chance.shuffle(order)
    if leader is not None and chance.random() < 0.6:
        order.remove(leader.name)
        order.insert(0, leader.name)
    camp = 1 if chance.random() < 0.6 else chance.randint(1, len(hosts) - 1)
    left, right = order[:camp], order[camp:]
    pairs = [(a, b) for a in left for b in right]
    ways = chance.choice(("both", "both", "out", "in", "bridge"))
    if ways == "out":
        return pairs
    if ways == "in":
        return [(b, a) for a, b in pairs]
    both = pairs + [(b, a) for a, b in pairs]
    if ways == "bridge" and len(right) > 1:
        bridge = order[-1]
        both = [(a, b) for a, b in both if bridge not in (a, b)]
    return both

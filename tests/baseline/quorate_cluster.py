"""Our own core in the world of tests.sim, without faults but those of the scenario."""

from raft.replica import Replica
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Envelope,
    Role,
    Vote,
    VoteReply,
)
from tests.baseline.face import Frame, Handle, Leadership
from tests.sim.clients import Outcome
from tests.sim.host import Host, Results
from tests.sim.knobs import Knobs
from tests.sim.network import NetworkFaults
from tests.sim.world import World

FOREVER_US = 1 << 60
KINDS: dict[type, str] = {
    Append: "append",
    AppendReply: "append_reply",
    Vote: "vote",
    VoteReply: "vote_reply",
}


class QuorateCluster:
    """`tests.baseline.face.Cluster` on Quorate."""

    def __init__(self, machines: int) -> None:
        knobs = Knobs(voters=machines, spares=0, network=NetworkFaults(delay_us_max=2_000))
        self.world = World(seed=machines, knobs=knobs)
        self.names = list("abcde"[:machines])
        self.hosts = dict(zip(self.names, self.world.hosts.values(), strict=True))
        self.names_of = {host.name: name for name, host in self.hosts.items()}
        self.founders = Configuration(tuple(host.node for host in self.hosts.values()))
        self.is_founded: set[str] = set()
        self.repeats: dict[str, int] = {}
        self.sent: list[Frame] = []
        self.values: dict[int, int] = {0: 0}
        """Operation to the value that it puts."""
        self.keys: dict[str, int] = {}
        self.writes: list[tuple[int, Handle]] = []
        self.world.network.copies = self._copies

    def _copies(self, source: str, target: str, frame: tuple[Envelope, ...]) -> int:
        copies = 1
        for envelope in frame:
            body = envelope.body
            kind = KINDS.get(type(body), "other")
            entries = len(body.entries) if isinstance(body, Append) else 0
            names = self.names_of
            self.sent.append(Frame(names[source], names[target], kind, entries, frame))
            copies = max(copies, self.repeats.get(kind, 1))
        return copies

    def start(self, *names: str) -> None:
        for name in names:
            if name not in self.is_founded:
                self.is_founded.add(name)
                self.hosts[name].found(self.founders)
            self.hosts[name].start()

    def kill(self, *names: str) -> None:
        for name in names:
            self.hosts[name].kill()

    def cut_power(self) -> None:
        for host in self.hosts.values():
            host.lose_power()

    def pause(self, name: str) -> None:
        self.hosts[name].pause(FOREVER_US)

    def resume(self, name: str) -> None:
        host = self.hosts[name]
        host.paused_until_us = self.world.now_us
        self.world.at(self.world.now_us, host.pause_ends)

    def cut(self, source: str, target: str) -> None:
        self.world.network.cut(self.hosts[source].name, self.hosts[target].name, FOREVER_US)

    def split(self, *camps: str) -> None:
        for camp in camps:
            for other in camps:
                if other is not camp:
                    for source in camp:
                        for target in other:
                            self.cut(source, target)

    def heal(self) -> None:
        self.world.network.heal()

    def repeat(self, kind: str, times: int) -> None:
        self.repeats[kind] = times

    def frames(self, kind: str, source: str, target: str) -> list[Frame]:
        return [f for f in self.sent if (f.kind, f.source, f.target) == (kind, source, target)]

    def deliver(self, frame: Frame) -> None:
        source, target = self.hosts[frame.source].name, self.hosts[frame.target].name
        assert isinstance(frame.content, tuple)
        self.world.deliver(source, target, frame.content)

    def close(self) -> None:
        """Nothing runs outside of virtual time."""

    def run(self, ms: int) -> None:
        until_us = self.world.now_us + ms * 1_000
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.world.at(until_us, end)
        while not is_over and self.world.step():
            pass
        for number, handle in self.writes:
            outcome = self.world.clients.history[number - 1].outcome
            handle.is_done = outcome is Outcome.DONE
            handle.is_failed = outcome in (Outcome.REFUSED, Outcome.LOST)

    def campaign(self, name: str) -> None:
        host = self.hosts[name]
        knobs = self.world.knobs
        self.run(knobs.election_ticks)

        def hurry(replica: Replica[Results]) -> None:
            replica.tick(knobs.heartbeat_ticks)

        for _ in range(2 * knobs.election_ticks // knobs.heartbeat_ticks):
            if host.role is Role.FOLLOWER:
                host.command(hurry)

    def leaderships(self) -> list[Leadership]:
        return [
            (term, self.names_of[node.rpartition(".")[0]])
            for term, node in self.world.checker.leaders.items()
        ]

    def leader(self) -> str | None:
        leading = [host for host in self.hosts.values() if host.leads and not host.is_paused]
        newest = max(leading, key=lambda host: host.replica_now.term, default=None)
        return self.names_of[newest.name] if newest else None

    def put(self, name: str, key: str, value: int) -> Handle:
        place = self.keys.setdefault(key, len(self.keys))
        (number,) = self.world.clients.propose(self.hosts[name], [(place, 8)])
        self.values[number] = value
        handle = Handle()
        self.writes.append((number, handle))
        return handle

    def read(self, name: str, key: str) -> Handle:
        host: Host = self.hosts[name]
        handle = Handle()

        def serve() -> None:
            assert host.machine is not None
            operation, _, _ = host.machine.read(self.keys[key])
            handle.value = self.values[operation]
            handle.is_done = True

        handle.is_failed = host.read(serve) is None
        return handle

"""Our own core in the world of tests.sim, without faults but those of the scenario."""

from raft.types import Append, AppendReply, Configuration, Envelope, Vote, VoteReply
from tests.baseline.face import Frame, Handle, Leadership
from tests.sim.case import Case
from tests.sim.clients import Outcome

KINDS: dict[type, str] = {
    Append: "append",
    AppendReply: "append_reply",
    Vote: "vote",
    VoteReply: "vote_reply",
}


class QuorateCluster:
    """`tests.baseline.face.Cluster` on Quorate."""

    def __init__(self, machines: int) -> None:
        self.case = Case(machines)
        self.world = self.case.world
        self.names = list("abcde"[:machines])
        self.real = dict(zip(self.names, self.world.host_names, strict=True))
        self.letter = {real: name for name, real in self.real.items()}
        self.founders = Configuration(tuple(host.node for host in self.world.hosts.values()))
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
            ends = self.letter[source], self.letter[target]
            self.sent.append(Frame(*ends, kind, entries, frame))
            copies = max(copies, self.repeats.get(kind, 1))
        return copies

    def start(self, *names: str) -> None:
        for name in names:
            if name not in self.is_founded:
                self.is_founded.add(name)
                self.case.host(self.real[name]).found(self.founders)
            self.case.start(self.real[name])

    def kill(self, *names: str) -> None:
        self.case.stop(*(self.real[name] for name in names))

    def cut_power(self) -> None:
        self.case.cut_power(*self.real.values())

    def pause(self, name: str) -> None:
        self.case.pause(self.real[name])

    def resume(self, name: str) -> None:
        self.case.resume(self.real[name])

    def cut(self, source: str, target: str) -> None:
        self.case.cut(self.real[source], self.real[target])

    def split(self, *camps: str) -> None:
        self.case.split(*([self.real[name] for name in camp] for camp in camps))

    def heal(self) -> None:
        self.case.heal()

    def repeat(self, kind: str, times: int) -> None:
        self.repeats[kind] = times

    def frames(self, kind: str, source: str, target: str) -> list[Frame]:
        return [f for f in self.sent if (f.kind, f.source, f.target) == (kind, source, target)]

    def deliver(self, frame: Frame) -> None:
        assert isinstance(frame.content, tuple)
        self.world.deliver(self.real[frame.source], self.real[frame.target], frame.content)

    def close(self) -> None:
        """Nothing runs outside of virtual time."""

    def run(self, ms: int) -> None:
        self.case.run(ms)
        for number, handle in self.writes:
            outcome = self.case.outcome(number)
            handle.is_done = outcome is Outcome.DONE
            handle.is_failed = outcome in (Outcome.REFUSED, Outcome.LOST)

    def campaign(self, name: str) -> None:
        self.case.campaign(self.real[name])

    def leaderships(self) -> list[Leadership]:
        return [
            (term, self.letter[node.rpartition(".")[0]])
            for term, node in self.world.checker.leaders.items()
        ]

    def leader(self) -> str | None:
        return self.letter.get(self.case.leader() or "")

    def put(self, name: str, key: str, value: int) -> Handle:
        place = self.keys.setdefault(key, len(self.keys))
        number = self.case.propose(self.real[name], place)
        self.values[number] = value
        handle = Handle()
        self.writes.append((number, handle))
        return handle

    def read(self, name: str, key: str) -> Handle:
        host = self.case.host(self.real[name])
        handle = Handle()

        def serve() -> None:
            assert host.machine is not None
            operation, _, _ = host.machine.read(self.keys[key])
            handle.value = self.values[operation]
            handle.is_done = True

        handle.is_failed = host.read(serve) is None
        return handle

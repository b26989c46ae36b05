"""Stock raftos 0.2.6 in virtual time: its own modules, unchanged, one fresh import per machine.

Replaced around it: the event loop's clock, the datagram socket, and the disk's durability.
The shim for today's Python and msgpack: `asyncio.Queue(loop=...)` and
`unpackb(encoding=...)` are gone, so both arguments are taken and dropped, and
`asyncio.futures.InvalidStateError` is found under its old name again. Encryption is switched
to raftos' own DummyCryptor. One error is forgiven: the log is read back line by line with the
newline still on, which msgpack refuses as extra data (the pinned 0.4.8 as well as today's), so
that no log with an entry could be read at all.
"""

import asyncio
import importlib
import os
import random
import selectors
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.baseline.face import Frame, Handle, Leadership

DELAY_S = 0.002
KINDS = {
    "append_entries": "append",
    "append_entries_response": "append_reply",
    "request_vote": "vote",
    "request_vote_response": "vote_reply",
}
Address = tuple[str, int]


class VirtualSelector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        self.loop.now_s += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is ours and whose datagrams go to our network."""

    def __init__(self, cluster: "RaftosCluster") -> None:
        selector = VirtualSelector()
        selector.loop = self
        self.now_s = 0.0
        self.cluster = cluster
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    async def create_datagram_endpoint(  # type: ignore[override]
        self, protocol_factory: Any, local_addr: Address
    ) -> Any:
        protocol = protocol_factory()
        transport = VirtualTransport(self.cluster, local_addr)
        self.cluster.protocols[local_addr] = protocol
        protocol.connection_made(transport)
        return transport, protocol


class VirtualTransport:
    """What raftos takes for a UDP socket."""

    def __init__(self, cluster: "RaftosCluster", address: Address) -> None:
        self.cluster = cluster
        self.address = address
        self._is_closing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def sendto(self, data: bytes, destination: Address) -> None:
        if not self._is_closing:
            self.cluster.carry(self.address, destination, data)


class Clock:
    """The loop as one machine's timers see it: it stands still while the machine is paused."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        machine = self.machine
        number = machine.process

        def fire() -> None:
            if machine.process == number:
                machine.act(callback)

        return machine.cluster.loop.call_later(delay_s, fire)


class Machine:
    """One machine and the raftos process on it."""

    def __init__(self, cluster: "RaftosCluster", name: str, address: Address) -> None:
        self.cluster = cluster
        self.name = name
        self.address = address
        self.process = 0
        self.is_paused = False
        self.waiting: list[Callable[[], None]] = []
        self.modules: dict[str, ModuleType] = {}
        self.node: Any = None
        self.folder = cluster.folder / name

    def act(self, action: Callable[[], None]) -> None:
        """Let the process do something, now or when it goes on."""
        if self.is_paused:
            self.waiting.append(action)
        else:
            action()

    def start(self) -> None:
        """Import raftos afresh and start a node on the folder."""
        for name in [name for name in sys.modules if name.split(".")[0] == "raftos"]:
            del sys.modules[name]
        importlib.import_module("raftos.server")
        self.modules = {k: v for k, v in sys.modules.items() if k.split(".")[0] == "raftos"}
        self.process += 1
        loop = self.cluster.loop
        clock = Clock(self)
        timer: Any = self.modules["raftos.timer"]
        timer.asyncio = SimpleNamespace(get_event_loop=lambda: clock)
        conf: Any = self.modules["raftos.conf"]
        cryptors: Any = self.modules["raftos.cryptors"]
        conf.configure(
            {
                "log_path": f"{self.folder}/",
                "cryptor": cryptors.DummyCryptor,
                "on_leader": self._on_leader,
            }
        )
        server: Any = self.modules["raftos.server"]
        self.node = server.Node(address=self.address, loop=loop)
        for other in self.cluster.machines.values():
            if other is not self:
                self.node.update_cluster(other.address)
        loop.run_until_complete(self.node.start())

    def _on_leader(self) -> None:
        self.cluster.led.append((self.node.state.storage.term, self.name))

    def kill(self) -> None:
        """End the process."""
        self.process += 1
        if self.node is not None:
            self.node.stop()
        self.node = None
        self.is_paused = False
        self.waiting.clear()

    @property
    def state(self) -> Any:
        """The role object: Follower, Candidate or Leader."""
        return self.node.state.state

    @property
    def leads(self) -> bool:
        return self.node is not None and type(self.state).__name__ == "Leader"


class RaftosCluster:
    """`tests.baseline.face.Cluster` on raftos."""

    def __init__(self, machines: int, folder: Path) -> None:
        random.seed(machines)
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.loop = VirtualLoop(self)
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        asyncio.set_event_loop(self.loop)
        self.names = list("abcde"[:machines])
        self.errors: list[dict[str, Any]] = []
        self.protocols: dict[Address, Any] = {}
        self.led: list[Leadership] = []
        self.cuts: set[tuple[str, str]] = set()
        self.repeats: dict[str, int] = {}
        self.arrived: list[Frame] = []
        self.syncs = 0
        self.machines = {
            name: Machine(self, name, ("127.0.0.1", 8000 + place))
            for place, name in enumerate(self.names)
        }
        self.by_address = {machine.address: machine for machine in self.machines.values()}

    def start(self, *names: str) -> None:
        for name in names:
            self.machines[name].start()

    def kill(self, *names: str) -> None:
        for name in names:
            self.machines[name].kill()

    def cut_power(self) -> None:
        """Whatever was not synced is gone; raftos never calls fsync (counted below)."""
        self.kill(*self.names)
        if not SYNCS:
            for name in self.names:
                shutil.rmtree(self.machines[name].folder, ignore_errors=True)

    def pause(self, name: str) -> None:
        self.machines[name].is_paused = True

    def resume(self, name: str) -> None:
        machine = self.machines[name]
        machine.is_paused = False
        waiting, machine.waiting = machine.waiting, []
        for action in waiting:
            self.loop.call_later(DELAY_S, action)

    def cut(self, source: str, target: str) -> None:
        self.cuts.add((source, target))

    def split(self, *camps: str) -> None:
        for camp in camps:
            for other in camps:
                if other is not camp:
                    self.cuts.update((a, b) for a in camp for b in other)

    def heal(self) -> None:
        self.cuts.clear()

    def repeat(self, kind: str, times: int) -> None:
        self.repeats[kind] = times

    def frames(self, kind: str, source: str, target: str) -> list[Frame]:
        return [f for f in self.arrived if (f.kind, f.source, f.target) == (kind, source, target)]

    def deliver(self, frame: Frame) -> None:
        source, target = self.machines[frame.source], self.machines[frame.target]
        protocol = self.protocols[target.address]
        self.loop.call_soon(protocol.datagram_received, frame.content, source.address)
        self.run(1)

    def carry(self, source: Address, target: Address, data: bytes) -> None:
        """Carry a datagram."""
        import msgpack  # type: ignore[import-not-found]  # only in the environment that raftos runs in

        message = msgpack.unpackb(data)
        sender, receiver = self.by_address[source], self.by_address[target]
        kind = KINDS[message["type"]]
        frame = Frame(sender.name, receiver.name, kind, len(message.get("entries", ())), data)
        for _ in range(self.repeats.get(kind, 1)):
            self.loop.call_later(DELAY_S, self._arrive, frame)

    def _arrive(self, frame: Frame) -> None:
        machine = self.machines[frame.target]
        if machine.node is None or (frame.source, frame.target) in self.cuts:
            return
        source = self.machines[frame.source].address
        protocol = self.protocols[machine.address]
        self.arrived.append(frame)
        machine.act(lambda: protocol.datagram_received(frame.content, source))

    def close(self) -> None:
        """End what still runs."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def run(self, ms: int) -> None:
        self.loop.call_later(ms / 1000, self.loop.stop)
        self.loop.run_forever()

    def campaign(self, name: str) -> None:
        machine = self.machines[name]
        if type(machine.state).__name__ == "Candidate":
            machine.node.state.to_follower()
        if not machine.leads:
            machine.state.start_election()

    def leaderships(self) -> list[Leadership]:
        return self.led

    def leader(self) -> str | None:
        leading = [m for m in self.machines.values() if m.leads and not m.is_paused]
        newest = max(leading, key=lambda m: m.node.state.storage.term, default=None)
        return newest.name if newest else None

    def put(self, name: str, key: str, value: int) -> Handle:
        return self._request(name, "set_value", key, value)

    def read(self, name: str, key: str) -> Handle:
        return self._request(name, "get_value", key)

    def _request(self, name: str, method: str, *arguments: object) -> Handle:
        handle = Handle()
        state: Any = self.machines[name].modules["raftos.state"]
        work: Coroutine[Any, Any, Any] = getattr(state.State, method)(*arguments)

        async def ask() -> None:
            try:
                handle.value = await work
                handle.is_done = True
            except Exception:
                handle.is_failed = True

        self.loop.create_task(ask())
        return handle


SYNCS: list[int] = []
"""File descriptors that anybody synced."""


def install_shim() -> None:
    """Let raftos 0.2.6 run on this Python; see the module's docstring."""
    import msgpack

    queue, unpackb = asyncio.Queue, msgpack.unpackb
    asyncio.futures.InvalidStateError = asyncio.InvalidStateError  # type: ignore[attr-defined]
    asyncio.Queue = lambda maxsize=0, loop=None: queue(maxsize)  # type: ignore[assignment, misc]

    def forgiving(data: bytes, encoding: str | None = None, **options: Any) -> Any:
        try:
            return unpackb(data, **options)
        except msgpack.ExtraData as error:
            if error.extra != b"\n":
                raise
            return error.unpacked

    msgpack.unpackb = forgiving
    os.fsync = os.fdatasync = SYNCS.append  # type: ignore[assignment]

"""One seed: three machines, a network, clients, faults; and what was found."""

import asyncio
import errno
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from qm.model.values.commands import RaiseApplyVersion
from qm.model.values.limits import APPLY_VERSION
from qm.store.codec import encode_command, inspect
from tests.sim.nodes import far, faults, foreign, load, oracles, patches, probes, rpc
from tests.sim.nodes.knobs import NODES, SECONDS, Knobs, shrink
from tests.sim.nodes.loop import SimLoop
from tests.sim.nodes.machines import CLIENT_HOST, Machine, birth_command
from tests.sim.nodes.network import Network
from tests.sim.nodes.shim import Shim
from tests.sim.nodes.world import NS, World

logger = logging.getLogger(__name__)

CALM_MAX_S: Final = 240.0
"""What follows them, at most."""
NO_SPACE_BELOW_BYTES: Final = 16 << 10
"""Of free space: RocksDB, whose writes are not counted, then has none either."""


def fast_folder() -> str | None:
    """Return where files cost no disk, None: nowhere here."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None


class SimCluster:
    """See the module. One in a process, at a time."""

    def __init__(
        self,
        seed: int,
        keys: Path,
        *,
        seconds: float = SECONDS,
        kinds: str = "",
        write: Callable[[str], None] | None = None,
    ) -> None:
        """`keys`: what `machines.prepare` made. `kinds`: see Knobs.drawn."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"nodes-{seed}-", dir=fast_folder()))
        self.keys = keys
        self.seconds = seconds
        self.world = world = World(seed, self.folder, write)
        patches.ask(world)
        self.knobs = Knobs.drawn(world.chance("knobs"), kinds)
        shrink(self.knobs, world.chance("runs"))
        self.network = Network(world)
        rpc.install(self.network)
        self.probes = probes.Probes(self)
        probes.install(self.probes)
        foreign.install(self)
        self.shim = Shim()
        world.on_died = self._on_died
        self.findings: list[str] = []
        self.load = load.Load(self)
        self.far = far.Far(self)
        self.faults = faults.Faults(self)
        self.machines = {name: Machine(self, k, name) for k, name in enumerate(NODES)}
        for machine in self.machines.values():
            machine.disk.on_space = lambda machine=machine: self.shim_follow(machine)  # type: ignore[misc]
        self.client: SimLoop | None = None
        self.backups = 0
        """Begun."""
        self.backups_made = 0
        self._kept: list[object] = []
        self._is_over = False

    def find(self, text: str) -> None:
        """Something that must not be was found."""
        self.findings.append(text)
        self.world.say("FOUND", text)

    def keep(self, task: object) -> None:
        """Hold a task that nobody awaits."""
        self._kept.append(task)

    def shim_follow(self, machine: Machine) -> None:
        """RocksDB has space when the disk has, and writes below the present life's folder."""
        is_full = machine.disk.free_bytes < NO_SPACE_BELOW_BYTES and self.faults.reaches_rocks
        folder = machine.disk.data / "store"
        self.shim.fail(machine.number, folder, write=errno.ENOSPC if is_full else 0)

    def _on_died(self, loop: SimLoop, why: str) -> None:
        machine = self.machines.get(loop.name)
        if machine is None or machine.loop is not loop:
            self.find(f"{loop.name} died: {why}")
            loop.die()
            return
        power = self.world.chance("deaths").random() < 0.5
        machine.kill(power=power, why=why)

    # The run -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the seed; what is wrong is in `findings`."""
        world = self.world
        world.say("knobs", self.knobs)
        cluster_id = world.chance("cluster").randbytes(16)
        for machine in self.machines.values():
            machine.found(cluster_id)
        for machine in self.machines.values():
            machine.start()
        self.client = SimLoop(world, self.network, "client", CLIENT_HOST, "admin")
        client = self.client
        client.call_soon(lambda: client.create_task(self._main()))
        limit_ns = world.time_ns + int((self.seconds + CALM_MAX_S) * NS)
        world.run(lambda: self._is_over or world.time_ns > limit_ns)
        if not self._is_over:
            self.find(f"liveness: not over after {self.seconds + CALM_MAX_S:.0f} s")

    async def _main(self) -> None:
        try:
            await self._phases()
        except Exception as error:
            logger.exception("the client's side failed")
            self.find(f"client: {type(error).__name__}: {error}")
        self._is_over = True

    async def _phases(self) -> None:
        await self.until(lambda: self.leader() is not None, "a first leader", 30.0)
        await self._be_born()
        self.probes.watch_time()
        self.probes.watch_streams()
        await self.load.prepare()
        async with self.load:
            self.far.begin()
            self.faults.begin()
            await self.load.send(self.seconds)
            self.faults.end()
            await self.load.settle()
            await self.far.settle()
            await oracles.judge(self)

    async def _be_born(self) -> None:
        leader = self.leader()
        assert leader is not None
        replies: list[Any] = []

        async def propose() -> None:
            assert leader.node is not None
            replicated = leader.node.replicated
            assert replicated is not None
            commands = [birth_command(self.keys)]
            if self.knobs.encrypt_bodies != "none":
                # Else a short seed is over before its members have told their versions.
                commands.append(encode_command(RaiseApplyVersion(APPLY_VERSION)))
            replies.extend(await replicated.propose_here([inspect(one) for one in commands]))

        loop = leader.loop
        assert loop is not None
        loop.call_soon(lambda: loop.create_task(propose()))
        await self.until(lambda: bool(replies), "the birth", 10.0)

    def leader(self) -> Machine | None:
        """Return who leads and serves, in the highest term."""
        best: tuple[int, Machine] | None = None
        for machine in self.machines.values():
            if not machine.leads:
                continue
            assert machine.node is not None
            replicated = machine.node.replicated
            assert replicated is not None
            term = replicated.leadership.term
            if best is None or term > best[0]:
                best = term, machine
        return None if best is None else best[1]

    async def until(self, condition: Callable[[], bool], what: str, wait_s: float) -> None:
        """Wait for something in virtual time. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while not condition():
            if loop.time() > end:
                raise TimeoutError(f"{what} did not come within {wait_s:.0f} s")
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Remove what the seed wrote."""
        shutil.rmtree(self.folder, ignore_errors=True)

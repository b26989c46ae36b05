"""A machine and the node on it, life after life; keys and certificates for all."""

import fcntl
import logging
import shutil
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from qm.api.gate.identity import Role
from qm.node.config.schema import (
    ArchiveSection,
    BirthSection,
    MemberSection,
    NodeConfig,
    RaftSection,
    StorageSection,
    TlsSection,
)
from qm.node.membership.birth import create_sealing_key, provision
from qm.node.node import Node
from qm.node.platform import Platform, Workers
from qm.node.replica.replicated_store import ReplicatedConfig, found
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue
from qm.store.codec import encode_command
from raft.log_view import SyncToken
from raft.sync_thread import SyncDone, SyncWorker
from raft.types import Configuration
from tests.sim.nodes.direct import SimDirectTransport
from tests.sim.nodes.disk import Disk, SimDirectory
from tests.sim.nodes.knobs import NODES
from tests.sim.nodes.loop import SimLoop
from tests.sim.nodes.network import SimSocket
from tests.sim.nodes.world import ProcessDied, end_process

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

logger = logging.getLogger(__name__)

SYNC_US: Final = (20, 900)
"""How long a sync of the log takes to begin, and again to report."""
NETWORK: Final = "127.77.0"
HOSTS: Final = {name: f"{NETWORK}.{11 + number}" for number, name in enumerate(NODES)}
CLIENT_HOST: Final = f"{NETWORK}.99"
FAR_HOST: Final = f"{NETWORK}.98"
RESTART_S: Final = (0.2, 2.0)
START_FAILURES_MAX: Final = 40
_BIRTH: Final = "birth"
_KEY: Final = "sealing.key"


class SimSyncWorker(SyncWorker):
    """One job of the loop after the other."""

    def __init__(self, loop: SimLoop, done: SyncDone) -> None:
        self._loop = loop
        self._done = done
        self._waiting: deque[SyncToken] = deque()
        self._is_busy = False

    @override
    def submit(self, sync: SyncToken) -> None:
        self._waiting.append(sync)
        self._next()

    @override
    def stop(self) -> None:
        """What waits runs here."""
        while self._waiting:
            self._waiting.popleft().run()

    def _next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        sync = self._waiting.popleft()

        def over(_: object, error: BaseException | None) -> None:
            self._is_busy = False
            self._done(sync, error)
            self._next()

        self._loop.work(sync.run, over, SYNC_US)


class SimWorkers(Workers):
    """Jobs of the loop."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    @override
    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        """A wait without bound does the job here, if it has not begun."""
        is_over = False

        def run() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                job()

        def wait(timeout_s: float | None) -> bool:
            if timeout_s is None:
                run()
            return is_over

        self._loop.work(run, lambda result, error: None)
        return wait

    @override
    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        return self._loop.call_later(after_s, job).cancel


def sim_platform(loop: SimLoop, disk: Disk) -> Platform:
    """Return what one life of a machine has."""
    life = disk.life

    def directory(path: Path) -> SimDirectory:
        if disk.life != life:
            raise ProcessDied("a dead process touched its disk")
        return SimDirectory(disk, path)

    def bind(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
        return cast("socket.socket", SimSocket(address, port))

    return Platform(
        directory,
        lambda done: SimSyncWorker(loop, done),
        SimWorkers(loop),
        bind,
        SimDirectTransport,
    )


def prepare(folder: Path) -> None:
    """Make keys, certificates and the first command once: OpenSSL's chance is its own."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="ascii") as lock:
        # Of two runs that begin together one makes them: mixed, no certificate fits its authority.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _BIRTH).exists():
            _make_keys(folder)


def _make_keys(folder: Path) -> None:
    (folder / _KEY).unlink(missing_ok=True)
    shutil.rmtree(folder / "pki", ignore_errors=True)
    create_authority(folder / "pki", "simulated authority")
    for name, host in HOSTS.items():
        issue(folder / "pki", name, Role.NODE, [host])
    storage = StorageSection(sealing_key_file=folder / _KEY)
    key = create_sealing_key(storage, folder)
    command = provision("QUORATE", "quorate.example", tuple(HOSTS.values()), key)
    fresh = folder / f"{_BIRTH}.fresh"
    fresh.write_bytes(encode_command(command))
    fresh.replace(folder / _BIRTH)


def birth_command(folder: Path) -> bytes:
    """Return the command that makes the cluster a queue manager."""
    return (folder / _BIRTH).read_bytes()


class Machine:
    """Its disk outlives its processes."""

    def __init__(self, cluster: "SimCluster", number: int, name: str) -> None:
        self.cluster = cluster
        self.number = number
        self.name = name
        self.host = HOSTS[name]
        self.disk = Disk(cluster.world, name, cluster.folder / name)
        self.loop: SimLoop | None = None
        self.node: Node | None = None
        self.lives = 0
        self.has_lost_its_disk = False
        """From then on it gets back into its cluster by itself, under its next incarnation."""
        self.deaths: list[str] = []
        """What the product said when it ended its process itself."""
        self.start_failures: list[str] = []
        self._graves: list[object] = []

    @property
    def is_up(self) -> bool:
        """Whether a process runs; it may be starting."""
        return self.loop is not None

    @property
    def leads(self) -> bool:
        """Whether the node leads and serves."""
        replicated = None if self.node is None else self.node.replicated
        return replicated is not None and replicated.leadership.is_here

    def config(self) -> NodeConfig:
        """Return the node's configuration in this life."""
        keys, knobs = self.cluster.keys, self.cluster.knobs
        archive = self.cluster.folder / "archive" / self.name
        pki = keys / "pki"
        return NodeConfig(
            name=self.name,
            host=self.host,
            data=self.disk.data,
            tls=TlsSection(
                authority=pki / AUTHORITY_CERTIFICATE,
                certificate=pki / f"{self.name}.pem",
                key=pki / f"{self.name}.key",
            ),
            members=tuple(MemberSection(name=name, host=host) for name, host in HOSTS.items()),
            storage=StorageSection(
                cache_mb=4,
                reserve_mb=1,
                sealing_key_file=keys / _KEY,
                encrypt_bodies=knobs.encrypt_bodies,
            ),
            raft=RaftSection(log_retain_mb=1),
            birth=BirthSection(automatic=self.has_lost_its_disk),
            archive=ArchiveSection(
                url=str(archive) if self.name in knobs.archivers else "",
                range_entries=64,
                range_s=1,
            ),
        )

    def found(self, cluster_id: bytes) -> None:
        """Prepare the data folder of a founder."""
        loop = self._new_loop()
        founders = Configuration(tuple(sorted(f"{name}.1" for name in NODES)))
        config = ReplicatedConfig(f"{self.name}.1", cluster_id, self.disk.data)
        found(config, founders, sim_platform(loop, self.disk))
        self.cluster.world.loops.remove(loop)

    def _new_loop(self) -> SimLoop:
        cluster = self.cluster
        return SimLoop(cluster.world, cluster.network, self.name, self.host, "node")

    def start(self) -> None:
        """Begin a life."""
        if self.is_up:
            return
        self.cluster.network.power_on(self.host)
        self.loop = loop = self._new_loop()
        self.lives += 1
        loop.call_soon(lambda: loop.create_task(self._run(loop)))

    async def _run(self, loop: SimLoop) -> None:
        try:
            node = Node(self.config(), self._die, sim_platform(loop, self.disk))
            await node.start()
        except ProcessDied:
            raise
        except Exception as error:
            # As the process would: it ends, and is started again.
            text = f"{type(error).__name__}: {error}"
            self.start_failures.append(text)
            self.cluster.world.say("start-failed", self.name, text[:200])
            logger.info("%s cannot start", self.name, exc_info=error)
            if len(self.start_failures) > START_FAILURES_MAX:
                self.cluster.find(f"{self.name} does not start: {text[:300]}")
                return
            end_process(self.cluster.world, f"start failed: {text}")
        self.node = node
        self.cluster.world.say("up", self.name, self.disk.life)

    def _die(self, text: str) -> None:
        self.deaths.append(text)
        self.cluster.world.say("fatal", self.name, text[:200])
        end_process(self.cluster.world, text)

    def kill(self, *, power: bool, why: str, restart_s: float | None = None) -> None:
        """End the process here, and start the next one after a while (None: drawn)."""
        loop, world = self.loop, self.cluster.world
        if loop is None:
            return
        if power:
            loop.lose_power()
        else:
            loop.die()
        # The world's own writes, which undo the machine's, do not fail.
        self.cluster.shim.fail(self.number, self.disk.data)
        lost = self.disk.crash(power=power)
        world.say("killed", self.name, "power" if power else "kill", why[:120], "lost", lost)
        self.cluster.shim_follow(self)
        self._graves.append((self.node, loop))
        self.node = self.loop = None
        if restart_s is None:
            restart_s = world.chance("restarts").uniform(*RESTART_S)
        world.after(restart_s, self.start)

    def lose_disk(self) -> None:
        """Kill -9, and the next life begins with an empty disk."""
        self.kill(power=False, why="its disk is lost")
        self.has_lost_its_disk = True
        self.disk.replace()

    def call(self, action: Callable[[], object]) -> None:
        """Do something in the node's process, soon."""
        if self.loop is not None:
            self.loop.call_soon(action)

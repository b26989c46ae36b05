"""Real nodes in one process and loop: own loopback addresses, real TLS, logs and states on disk.

    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            await leader.cluster.propose(command)

    run(scenario())

Nothing here is a stand-in: each node is `qm.node.node.Node` with its own folder and certificates.
`kill` closes a node at once, with nothing finished; `restart` opens its folder again.
"""

import asyncio
import contextlib
import functools
import itertools
import random
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from qm.api.gate.identity import Role
from qm.cluster.cluster import Unavailable
from qm.cluster.membership import Change
from qm.node.config.schema import RAFT_PORT, MemberSection, NodeConfig, StorageSection, TlsSection
from qm.node.membership.birth import create_sealing_key, fresh_key_pairs, provision
from qm.node.node import Node
from qm.node.replica.replicated_store import ReplicatedConfig, ReplicatedStore, found
from qm.node.service import Service
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue
from qm.security.key_ring import KeyPairs
from raft.replica import ReplicaConfig
from raft.transport.tls import TlsFiles
from raft.types import Configuration

WAIT_S = 30.0
SCENARIO_S = 150.0
COMPUTER_NAME = "QUORATE"
FIRST_SEGMENT_BYTES = 4 << 20


def run(scenario: Coroutine[Any, Any, None], wait_s: float = SCENARIO_S) -> None:
    """Run a scenario in the production loop, with a bound."""
    uvloop.run(asyncio.wait_for(scenario, wait_s))


async def until(
    condition: Callable[[], object], last_seen: Callable[[], object] = str, wait_s: float = WAIT_S
) -> None:
    """Wait until the condition holds; fail with what was seen last."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while not condition():
        assert loop.time() < end, f"not within {wait_s} s; last seen: {last_seen()}"
        await asyncio.sleep(0.005)


async def change_members(node: "HarnessNode", change: Change) -> None:
    """Change the members as a program would: again while the change before it is not committed."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while True:
        try:
            return await node.service.members.change_members(change)
        except Unavailable:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.005)


class HarnessNode:
    """A node that can be killed and restarted."""

    def __init__(self, config: NodeConfig, deaths: list[str], *, has_edge: bool) -> None:
        self.config = config
        self._has_edge = has_edge
        self._deaths = deaths
        self.node: Node | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def host(self) -> str:
        """Its own loopback address; all ports are the usual ones."""
        return self.config.host

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def service(self) -> Service:
        """Everything that it runs."""
        assert self.node is not None, f"{self.name} is down"
        assert self.node.service is not None, f"{self.name} belongs to no cluster"
        return self.node.service

    @property
    def cluster(self) -> ReplicatedStore:
        """Its `qm.cluster.cluster.Cluster`."""
        return self.service.replicated

    async def start(self) -> None:
        assert self.node is None
        node = Node(self.config, self._deaths.append)
        await node.start()
        self.node = node
        if not self._has_edge and node.service is not None:
            await self.service.msmq.stop()

    async def kill(self) -> None:
        """End it as a crash would: nothing is finished, handed over or announced."""
        assert self.node is not None
        node, self.node = self.node, None
        await node.abort()

    async def stop(self) -> None:
        """Stop it in good order."""
        assert self.node is not None
        node, self.node = self.node, None
        await node.stop()


class Harness:
    """A cluster's nodes, by name: n1, n2, ..."""

    def __init__(self, folder: Path, configs: list[NodeConfig], *, has_edges: bool) -> None:
        self.folder = folder
        self.deaths: list[str] = []
        """What made a node end its process; a scenario that leaves any here fails."""
        self.nodes = {
            config.name: HarnessNode(config, self.deaths, has_edge=has_edges) for config in configs
        }

    def __getitem__(self, name: str) -> HarnessNode:
        return self.nodes[name]

    @property
    def up(self) -> list[HarnessNode]:
        return [node for node in self.nodes.values() if node.is_up]

    def serving(self) -> HarnessNode | None:
        """Return the node that leads and serves, if there is one now."""
        leaders = [node for node in self.up if node.cluster.leadership.is_here]
        return max(leaders, key=lambda node: node.cluster.leadership.term, default=None)

    async def leader(self) -> HarnessNode:
        """Wait until a node leads and serves; return it."""
        await until(lambda: self.serving() is not None, self._leaderships)
        found = self.serving()
        assert found is not None
        return found

    async def followers(self) -> list[HarnessNode]:
        """Return the other nodes, once they know the leader."""
        leader = await self.leader()
        others = [node for node in self.up if node is not leader]
        await until(
            lambda: all(node.cluster.leadership.node == leader.name for node in others),
            self._leaderships,
        )
        return others

    def _leaderships(self) -> object:
        return {node.name: node.cluster.leadership for node in self.up}

    async def kill(self, name: str) -> None:
        await self.nodes[name].kill()

    async def restart(self, name: str) -> None:
        await self.nodes[name].start()

    async def agree(self) -> int:
        """Wait until all nodes that are up have applied the same entries; return the index."""

        def points() -> set[tuple[int, int]]:
            applied = (node.cluster.machine.store.applied for node in self.up)
            return {(point.index, point.digest) for point in applied}

        await until(lambda: len(points()) == 1, points)
        return points().pop()[0]

    async def add(self, name: str) -> HarnessNode:
        """Start one more node, which belongs to no cluster yet and has the others for seeds."""
        configs = [node.config for node in self.nodes.values()]
        network = configs[0].host.rpartition(".")[0]
        host = f"{network}.{10 + int(name.removeprefix('n'))}"
        certificate, key = issue(self.folder / "pki", name, Role.NODE, [host])
        config = msgspec.structs.replace(
            configs[0],
            name=name,
            host=host,
            data=self.folder / name,
            tls=msgspec.structs.replace(configs[0].tls, certificate=certificate, key=key),
        )
        node = self.nodes[name] = HarnessNode(config, self.deaths, has_edge=True)
        await node.start()
        return node

    def certificate(self, name: str, role: Role = Role.ADMIN) -> TlsFiles:
        """Return the files of a caller's certificate, issued when first asked for."""
        pki = self.folder / "pki"
        if not (pki / f"{name}.pem").exists():
            issue(pki, name, role)
        return TlsFiles(pki / AUTHORITY_CERTIFICATE, pki / f"{name}.pem", pki / f"{name}.key")


@contextlib.asynccontextmanager
async def cluster(
    count: int = 3,
    *,
    folder: Path | None = None,
    is_provisioned: bool = True,
    is_founded: bool = True,
    has_edges: bool = True,
    change: Callable[[NodeConfig], NodeConfig] = lambda config: config,
) -> AsyncIterator[Harness]:
    """Start `count` nodes as one cluster; kill what is left of them at the end.

    `folder` must be empty; without one a temporary folder is used. `change` edits each node's
    configuration. With `is_provisioned` the cluster is a queue manager already; without
    `is_founded` the nodes belong to no cluster yet. Without `has_edges` nodes leave the MSMQ side,
    and their names in relay streams, to the test.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-")))
        configs = [change(config) for config in configure(folder, count)]
        harness = Harness(folder, configs, has_edges=has_edges)
        if is_founded:
            prepare(harness)
        try:
            for node in harness.nodes.values():
                await node.start()
            if is_founded and is_provisioned:
                await make_queue_manager(harness)
            yield harness
        finally:
            for node in harness.up:
                await node.kill()
        assert not harness.deaths, harness.deaths


def configure(folder: Path, count: int) -> list[NodeConfig]:
    """Make certificates and return configurations of nodes with addresses of their own."""
    pki = folder / "pki"
    create_authority(pki, "test authority")
    network = free_network()
    hosts = {f"n{k}": f"{network}.{10 + k}" for k in range(1, count + 1)}
    configs = []
    for name, host in hosts.items():
        certificate, key = issue(pki, name, Role.NODE, [host])
        configs.append(
            NodeConfig(
                name=name,
                host=host,
                data=folder / name,
                tls=TlsSection(
                    authority=pki / AUTHORITY_CERTIFICATE, certificate=certificate, key=key
                ),
                members=tuple(MemberSection(name=n, host=h) for n, h in hosts.items()),
                storage=StorageSection(
                    cache_mb=16, reserve_mb=1, sealing_key_file=folder / "sealing.key"
                ),
            )
        )
    return configs


class SmallLogConfig(ReplicatedConfig, frozen=True):
    """A first segment that is small: a start reads all of it, and reading the empty space of usual
    ones took a tenth of all tests' time. Further segments have the usual size.
    """

    def replica_config(self) -> ReplicaConfig:
        return msgspec.structs.replace(super().replica_config(), segment_bytes=FIRST_SEGMENT_BYTES)


def prepare(harness: Harness) -> None:
    """Give every node its identity, as founders of one cluster."""
    cluster_id = random.randbytes(16)
    founders = Configuration(tuple(sorted(f"{name}.1" for name in harness.nodes)))
    for node in harness.nodes.values():
        found(SmallLogConfig(f"{node.name}.1", cluster_id, node.config.data), founders)


KEY_PAIRS_MAX = 4
_births = itertools.count()


@functools.cache
def key_pairs(number: int) -> KeyPairs:
    """Drawing keys costs as much as all the rest of a cluster's start; those that are born one
    after another have different ones.
    """
    return fresh_key_pairs()


async def make_queue_manager(harness: Harness) -> None:
    """Propose the birth of the queue manager."""
    config = next(iter(harness.nodes.values())).config
    key = create_sealing_key(config.storage, config.data)
    hosts = tuple(node.host for node in harness.nodes.values())
    pairs = key_pairs(next(_births) % KEY_PAIRS_MAX)
    command = provision(COMPUTER_NAME, f"{COMPUTER_NAME.lower()}.example", hosts, key, pairs)
    leader = await harness.leader()
    (outcome,) = await leader.cluster.propose(command)
    assert outcome.status == 0, hex(outcome.status)


def free_network() -> str:
    """Return the first three numbers of loopback addresses that nothing listens on."""
    while True:
        network = f"127.{random.randrange(16, 250)}.{random.randrange(250)}"
        with socket.socket() as probe:
            try:
                probe.bind((f"{network}.11", RAFT_PORT))
            except OSError:
                continue
        return network


def with_sections(**sections: Any) -> Callable[[NodeConfig], NodeConfig]:
    """Return a `change` that replaces sections of each node's configuration."""
    return lambda config: msgspec.structs.replace(config, **sections)

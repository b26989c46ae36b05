"""The same small world over memory and over gRPC: nodes, what they saw, and faults."""

import asyncio
import contextlib
import random
import zlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import uvloop

from raft.transport.direct_transport import DirectTransport
from raft.transport.grpc_transport import GrpcConfig, GrpcTransport
from raft.transport.memory_transport import MemoryNetwork, MemoryTransport
from raft.transport.stream_transport import StreamTransport
from raft.types import Envelope, GroupId, NodeId, PeerState, SnapshotMeta
from tests.unit.raft.transport.authority import Authority

CLUSTER = bytes(range(16))
WAIT_S = 20.0


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in the production loop, with a bound."""
    uvloop.run(asyncio.wait_for(scenario, timeout=120))


async def until(condition: Callable[[], object], what: Callable[[], object] = str) -> None:
    """Wait until the condition holds; fail with what was seen last."""
    for _ in range(int(WAIT_S * 500)):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"not within {WAIT_S} s; last seen: {what()}")


class Recorder:
    """Records calls to one node's owner; receives snapshots into memory."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.states: list[tuple[NodeId, PeerState]] = []
        self.snapshot = b""
        self.senders: list[NodeId] = []
        self.offers = 0
        self.on_chunk: Callable[[int], int | None] = lambda held: None

    def has_seen(self, state: tuple[NodeId, PeerState], times: int) -> bool:
        return self.states.count(state) >= times

    def on_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        self.envelopes += envelopes

    def on_peer(self, peer: NodeId, state: PeerState) -> None:
        self.states.append((peer, state))

    def on_snapshot_chunk(
        self, group: GroupId, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes
    ) -> int:
        self.senders.append(sender)
        self.offers += not chunk
        if chunk and offset == len(self.snapshot):
            self.snapshot += chunk
        instead = self.on_chunk(len(self.snapshot))
        return len(self.snapshot) if instead is None else instead


class Source:
    """A snapshot in memory that notes how it was used."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offsets: list[int] = []
        self.is_closed = False

    def size_bytes(self) -> int:
        return len(self._data)

    def identity(self) -> bytes:
        return zlib.crc32(self._data).to_bytes(4, "big")

    def read(self, offset: int, length: int) -> bytes:
        self.offsets.append(offset)
        return self._data[offset : offset + length]

    def close(self) -> None:
        self.is_closed = True


class World(Protocol):
    """Nodes over one kind of transport."""

    nodes: dict[NodeId, StreamTransport]

    async def add(
        self, node: NodeId, *, cluster: bytes = CLUSTER, knows: Sequence[NodeId] = ()
    ) -> Recorder:
        """Start a node that dials the nodes in `knows`."""

    def address(self, node: NodeId) -> str:
        """Return where a node is, or will be, dialed."""

    def reset(self, one: NodeId, other: NodeId) -> None:
        """Break what connects two living nodes."""

    async def stop(self, node: NodeId) -> None:
        """End a node; nothing listens at its address then."""

    async def close(self) -> None:
        """End everything."""


def are_connected(world: World, one: NodeId, other: NodeId) -> bool:
    """Tell whether two nodes that dial each other both see both streams."""
    metrics = world.nodes[one].metrics.peer(other), world.nodes[other].metrics.peer(one)
    return all(seen.streams_opened_total - seen.streams_lost_total == 2 for seen in metrics)


class MemoryWorld:
    def __init__(self, folder: Path) -> None:
        self.network = MemoryNetwork()
        self.nodes: dict[NodeId, StreamTransport] = {}

    async def add(
        self, node: NodeId, *, cluster: bytes = CLUSTER, knows: Sequence[NodeId] = ()
    ) -> Recorder:
        events = Recorder()
        transport = MemoryTransport(
            self.network, cluster, node, self.address(node), events, random.Random(1).randrange
        )
        self.nodes[node] = transport
        transport.set_peers({peer: self.address(peer) for peer in knows})
        await transport.start()
        return events

    def address(self, node: NodeId) -> str:
        return f"at {node}"

    def reset(self, one: NodeId, other: NodeId) -> None:
        self.network.reset(one, other)

    async def stop(self, node: NodeId) -> None:
        await self.nodes.pop(node).close()

    async def close(self) -> None:
        for node in list(self.nodes):
            await self.stop(node)


class GrpcWorld:
    """Each node is dialed through a relay, so that connections can break while it lives."""

    transport_of: type[GrpcTransport] = GrpcTransport

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.members = set("abcdefgh")
        """Names of nodes that may speak."""
        self.revoked: Path | None = None
        """What new nodes read."""
        self.nodes: dict[NodeId, StreamTransport] = {}
        self.relays: dict[NodeId, Relay] = {}

    async def add(
        self,
        node: NodeId,
        *,
        cluster: bytes = CLUSTER,
        knows: Sequence[NodeId] = (),
        named: str = "",
        authority: Authority | None = None,
    ) -> Recorder:
        events = Recorder()
        name = named or node.rpartition(".")[0]
        tls = (authority or self.authority).issue(name, files=f"{node} as {name}")
        if self.revoked is not None:
            tls = replace(tls, revoked=self.revoked)
        config = GrpcConfig(cluster, node, "127.0.0.1:0", tls, lambda name: name in self.members)
        transport = self.transport_of(config, events, random.Random(1).randrange)
        self.nodes[node] = transport
        for peer in (node, *knows):
            await self._relay(peer).open()
        transport.set_peers({peer: self.address(peer) for peer in knows})
        await transport.start()
        self._relay(node).target = transport.port
        return events

    def address(self, node: NodeId) -> str:
        return f"127.0.0.1:{self.relays[node].port}"

    def reset(self, one: NodeId, other: NodeId) -> None:
        for node in (one, other):  # a relay does not know callers: worlds that reset have two nodes
            self._relay(node).reset()

    async def stop(self, node: NodeId) -> None:
        await self._relay(node).close()
        await self.nodes.pop(node).close()

    async def close(self) -> None:
        for node in list(self.nodes):
            await self.stop(node)
        for relay in self.relays.values():
            await relay.close()

    def _relay(self, node: NodeId) -> "Relay":
        return self.relays.setdefault(node, Relay())


class DirectWorld(GrpcWorld):
    """The same with direct streams."""

    transport_of: type[GrpcTransport] = DirectTransport


class Relay:
    """Forwards TCP on its own port, which stays the same when reopened."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        await asyncio.gather(_pump(reader, back), _pump(onward, writer))
        self._writers -= {writer, back}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()

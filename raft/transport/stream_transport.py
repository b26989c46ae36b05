"""Common parts of transports over streams: the table of peers, sending, snapshots, closing."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from raft.machine import SnapshotSource
from raft.transport.metrics import Every, TransportMetrics
from raft.transport.peer import Peer, Stream
from raft.transport.snapshot_stream import SnapshotCall, SnapshotSender
from raft.transport.transport import TransportEvents, node_name
from raft.transport.wire_format import FrameDecoder, FrameEncoder, FrameError, FrameFault
from raft.types import Envelope, GroupId, NodeId, SnapshotMeta

logger = logging.getLogger(__name__)

FAULTS_LOGGED_EVERY_MS = 1_000
"""At most one log line in this time; the counters include all faults."""


class StreamTransport(ABC):
    """Implements `raft.transport.transport.Transport` over streams that a subclass opens and
    accepts.

    Everything runs in the asyncio loop that called `start`.
    """

    def __init__(
        self,
        cluster: bytes,
        node: NodeId,
        events: TransportEvents,
        random: Callable[[int], int],
    ) -> None:
        """`cluster` has 16 bytes; `random(n)` gives 0 to n - 1, for jitter."""
        self.metrics = TransportMetrics()
        self.cluster = cluster
        self.node = node
        self._events = events
        self._random = random
        self._encoder = FrameEncoder(cluster, node)
        self._addresses: dict[NodeId, str] = {}
        self._peers: dict[NodeId, Peer] = {}
        self._snapshots: dict[NodeId, asyncio.Task[None]] = {}
        self._is_started = False
        self._is_closed = False
        self._faults = Every(FAULTS_LOGGED_EVERY_MS / 1000, time.monotonic)

    # For the subclass

    @abstractmethod
    async def _listen(self) -> None:
        """Begin to accept streams. Raises OSError."""

    @abstractmethod
    async def _stop_listening(self) -> None:
        """Refuse new streams and end the accepted ones."""

    @abstractmethod
    def open_stream(self, peer: NodeId, address: str) -> AbstractAsyncContextManager[Stream]:
        """Dial for ordinary traffic (`raft.transport.peer.Connector`)."""

    @abstractmethod
    def open_snapshot(
        self, peer: NodeId, address: str
    ) -> AbstractAsyncContextManager[SnapshotCall]:
        """Dial for a snapshot; the peer has accepted when the context enters. Raises what
        `raft.transport.peer.BROKEN` lists.
        """

    @abstractmethod
    async def resolve(self, address: str) -> object:
        """Resolve an address (`raft.transport.peer.Connector`)."""

    @abstractmethod
    async def is_refused(self, place: object) -> bool:
        """Probe a peer (`raft.transport.peer.Connector`)."""

    # The public interface

    async def start(self) -> None:
        """Listen and dial. Raises OSError when the address cannot be bound."""
        self._loop = asyncio.get_running_loop()
        await self._listen()
        self._is_started = True
        self._dial()

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        """Replace the peers and their addresses (`host:port`). This node itself is ignored, and so
        are its earlier incarnations, which have the same address.
        """
        own = node_name(self.node)
        self._addresses = {peer: at for peer, at in addresses.items() if node_name(peer) != own}
        if self._is_started:
            self._dial()

    def send(self, envelopes: Sequence[Envelope]) -> None:
        """Queue envelopes; those for unknown peers are dropped and counted.

        The first one's peer is sent its frame before this returns, as a commit waits for it; the
        others get theirs in the loop's next round, so as not to delay the caller.
        """
        peers: list[Peer] = []
        for envelope in envelopes:
            peer = self._peers.get(envelope.to)
            if peer is None:
                self.metrics.unknown_peer_total += 1
                continue
            peer.send(envelope)
            if peer not in peers:
                peers.append(peer)
        if peers:
            peers[0].flush()
        for peer in peers[1:]:
            self._loop.call_soon(peer.flush)

    def send_snapshot(
        self,
        group: GroupId,
        to: NodeId,
        meta: SnapshotMeta,
        source: SnapshotSource,
        done: Callable[[bool], None],
    ) -> None:
        """Stream a snapshot beside the ordinary traffic, then call `done(whole)` once."""
        earlier = self._snapshots.pop(to, None)
        if earlier is not None:
            earlier.cancel()

        def dial() -> AbstractAsyncContextManager[SnapshotCall]:
            return self.open_snapshot(to, self._addresses.get(to, ""))

        sender = SnapshotSender(group, meta, source, dial, self.metrics.peer(to))
        self._snapshots[to] = asyncio.create_task(
            self._run_snapshot(to, sender, source, done), name=f"raft snapshot {to}"
        )

    async def close(self) -> None:
        """Stop listening, break every stream, close every snapshot source."""
        if self._is_closed:
            return
        self._is_closed = True
        snapshots = list(self._snapshots.values())
        for task in snapshots:
            task.cancel()
        await asyncio.gather(*snapshots, return_exceptions=True)
        if self._is_started:
            await self._stop_listening()
        await asyncio.gather(*(peer.close() for peer in list(self._peers.values())))

    # Internals

    async def _serve(self, peer: NodeId, stream: Stream) -> None:
        """Serve a stream that an authenticated peer opened, until it ends."""
        known = self._peer(peer)
        try:
            await known.serve(stream)
        finally:
            # Otherwise ids that only ever called would accumulate.
            if known.is_idle and self._peers.get(peer) is known:
                del self._peers[peer]
                del self.metrics.peers[peer]
                await known.close()

    def _peer(self, node: NodeId) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(
                node,
                self.node,
                self._encoder,
                FrameDecoder(self.cluster, node, self.node),
                self._events,
                self,
                self.metrics.peer(node),
                self._count_fault,
            )
        return peer

    def _dial(self) -> None:
        # Keep the caller's order: the peer that comes first is sent its frame first.
        for node in dict.fromkeys((*self._addresses, *self._peers)):
            self._peer(node).dial(self._addresses.get(node, ""), self._random)

    def _count_fault(self, node: NodeId, error: FrameError) -> None:
        if error.fault is FrameFault.FOREIGN_CLUSTER:
            self.metrics.foreign_cluster_total += 1
        elif error.fault is FrameFault.FORGED_SENDER:
            self.metrics.forged_sender_total += 1
        else:
            self.metrics.malformed_total += 1
        if self._faults.is_due():
            logger.warning("dropped a frame from %s: %s", node, error)

    async def _run_snapshot(
        self,
        to: NodeId,
        sender: SnapshotSender,
        source: SnapshotSource,
        done: Callable[[bool], None],
    ) -> None:
        is_whole = False
        try:
            is_whole = await sender.run()
        except Exception:
            logger.exception("snapshot to %s failed", to)
        finally:
            metrics = self.metrics.peer(to)
            metrics.snapshots_sent_total += is_whole
            metrics.snapshots_failed_total += not is_whole
            if self._snapshots.get(to) is asyncio.current_task():
                del self._snapshots[to]
            source.close()
            done(is_whole)

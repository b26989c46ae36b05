"""How replicas reach each other (DESIGN section 3): the interface that gRPC, memory and the
simulator share.

A transport may lose, repeat and reorder envelopes but never forges them: the sender of an envelope
is the authenticated peer. It batches: `send` only queues, and one frame carries everything that
waits. Queues are limited in bytes; what does not fit is dropped and counted, since Raft repeats it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from raft.machine import SnapshotSource
from raft.types import Envelope, GroupId, NodeId, PeerState, SnapshotMeta


class TransportEvents(Protocol):
    """The methods that a transport calls, in the thread (and loop) of its owner."""

    def on_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        """Process the envelopes of one frame, in the order in which they were sent."""

    def on_peer(self, peer: NodeId, state: PeerState) -> None:
        """Note that the state of the connection to a peer changed; until then it has none."""

    def on_snapshot_chunk(
        self, group: GroupId, sender: NodeId, meta: SnapshotMeta, offset: int, chunk: bytes
    ) -> int:
        """Take a chunk of a snapshot; return the offset wanted next (resume or repeat).

        An empty chunk at offset 0 opens a transfer and asks where to begin. A chunk at another
        offset than the wanted one is ignored. `meta.size_bytes` means that everything has arrived;
        `SNAPSHOT_REFUSED` ends the transfer.
        """


class Transport(Protocol):
    """One node's connections to its peers."""

    def send(self, envelopes: Sequence[Envelope]) -> None:
        """Queue envelopes; never blocks."""

    def send_snapshot(
        self,
        group: GroupId,
        to: NodeId,
        meta: SnapshotMeta,
        source: SnapshotSource,
        done: Callable[[bool], None],
    ) -> None:
        """Stream a snapshot beside the ordinary traffic, then call `done(whole)` once.

        A broken stream is opened again and resumes. The transport closes the source. At most one
        snapshot is sent to a peer at a time; another one ends the first.
        """

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        """Replace the peers and their addresses (`host:port`). This node itself is ignored."""

    async def start(self) -> None:
        """Listen and connect. Raises OSError when the address cannot be bound."""

    async def close(self) -> None:
        """Stop listening, break every stream, close every snapshot source."""


def node_name(node: NodeId) -> str:
    """Return the node's name in certificates: the id without its incarnation."""
    return node.rpartition(".")[0]

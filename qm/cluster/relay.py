"""The seam between an edge and the leader (DESIGN section 9, contract 5).

An edge sends over a `RelayStream`, which belongs to one term of one leader, and listens with
`RelayEvents`. The leader speaks to `RelayEvents`, too, whether a gRPC stream or nothing at all lies
between it and the edge. All calls are made in the node's event loop and none blocks.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from qm.model.values.effects import Outcome

RELAY_BATCHES_MAX = 64
"""Batches of one relay stream that have no result yet; then `RelayStream.room` is 0."""
RELAY_MAX_BYTES = 32 << 20
"""Bytes of those batches."""
OVERLAP_MIN_BYTES = 256 << 10
"""While an entry is in flight at a leader of this node, so many bytes are worth one beside it; to a
leader elsewhere, for each batch without a result, one more."""


class SessionFacts(msgspec.Struct, frozen=True, gc=False):
    """An open MSMQ session of an edge, so that the leader can send late acknowledgements by it."""

    number: int
    """The edge's, never used again by the same process of it."""
    queue_manager: bytes
    """GUID that the peer claims, 16 raw bytes."""
    address: str
    """Where the peer was seen, without port."""
    opened_ms: int
    """Cluster time, so that sessions of different edges have an order."""


class LatePackets(msgspec.Struct, frozen=True, gc=False):
    """Packets that the leader wants sent over an edge's open session: OrderAcks and FinalAcks."""

    session: int
    tokens: tuple[int, ...]
    """The leader's names for them, u64; `RelayStream.late_result` gives them back."""
    packets: tuple[bytes, ...]


class RelayEvents(Protocol):
    """What a leader says to an edge.

    The edge hears it from the event loop, never from within a call of its stream, and nothing more
    once it has closed the stream or heard `on_end`.
    """

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        """The batch is committed and applied, by the entry at `index` of the log.

        Outcomes come in the order of the batches, so the indexes never fall.
        """

    def on_free(self) -> None:
        """Anything is worth a batch: one that is sent within this call is in the next entry."""

    def on_late_packets(self, packets: LatePackets) -> None:
        """Offer these to the session, or refuse them with `RelayStream.late_result`."""

    def on_end(self, reason: str) -> None:
        """The stream is over, once; unanswered batches may or may not be applied.

        The edge opens another when `Cluster.leadership` names a leader, and sends again from its
        oldest unanswered batch on, minus batches of closed sessions (DESIGN section 7).
        """


class RelayStream(Protocol):
    """One edge's ordered way to one leader in one term (DESIGN section 7)."""

    @property
    def room(self) -> int:
        """How many more batches may be sent now; 0 while RELAY_*_MAX are reached."""

    @property
    def least_bytes(self) -> int:
        """So much must have gathered to be worth a batch now; 0: anything is.

        A small batch would only wait for the entry in flight, and cost as much as a large one.
        """

    def send(self, number: int, payload: bytes) -> None:
        """Relay one encoded command (`qm.store.codec.encode_command`). Numbers rise.

        It is an EdgeBatch, an OrderAcked or a FinalAcked: what peers send keeps one order.
        """

    def session_opened(self, session: SessionFacts) -> None:
        """Tell the leader of a session; sessions open at the start of a stream come first."""

    def session_closed(self, number: int) -> None:
        """The session is gone."""

    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        """The peer acknowledged these late packets; or they were not, or not surely, delivered."""

    def close(self) -> None:
        """End it, from the edge; `on_end` is not called."""


class RelayHub(Protocol):
    """The leader's side of all relay streams, its own edge's included."""

    def is_free(self) -> bool:
        """Return whether no entry is in flight."""

    def sessions(self, queue_manager: bytes) -> Sequence[tuple[str, SessionFacts]]:
        """Return (edge, session) of every open session whose peer claims a GUID."""

    def send_late(self, edge: str, packets: LatePackets) -> None:
        """Send over an edge's session; nothing happens when it is gone meanwhile."""

    def listen(self, listener: "RelayHubEvents") -> None:
        """Have one listener, the leader's dispatcher."""


class RelayHubEvents(Protocol):
    """What the leader's dispatcher hears from edges."""

    def on_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        """A session opened or closed; the end of a stream closes all of its sessions."""

    def on_late_result(
        self, edge: str, session: int, tokens: Sequence[int], is_delivered: bool
    ) -> None:
        """What became of late packets that a session of an edge was to carry."""

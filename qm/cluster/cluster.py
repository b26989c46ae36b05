"""The cluster as its edges, its API and its archiver see it (DESIGN section 9, contracts 2 and 5).

`qm.node` implements `Cluster` once per node. Whoever serves peers or clients speaks to this face
alone: it proposes commands, whichever node leads; it reads this node's state, behind a barrier
where the answer must be current; and it hears of every entry that is applied here. All calls are
made, and all listeners are called, in the node's event loop; listeners must neither block nor
raise.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from qm.model.queries import View
from qm.model.state.tables import State
from qm.model.values.commands import Command
from qm.model.values.effects import Applied, Outcome
from qm.store.bodies.body_places import BodyPlace, BodyPlaces, Packets

RELAY_BATCHES_MAX = 64
"""Batches of one relay stream that have no result yet; then `RelayStream.room` is 0."""
RELAY_MAX_BYTES = 32 << 20
"""Bytes of those batches."""
OVERLAP_MIN_BYTES = 256 << 10
"""While an entry is in flight at a leader of this node, so many bytes are worth one beside it; to a
leader elsewhere, for each batch without a result, one more."""


class Unavailable(Exception):
    """Nothing happened and nothing will: no leader, too busy, or stopping. Try again later."""


class OutcomeUnknown(Exception):
    """It may have happened, or may yet. Repeat it with the same request number."""


class Leadership(msgspec.Struct, frozen=True, gc=False):
    """Who leads, as far as this node knows."""

    node: str | None
    """Name of the leader, None while there is none."""
    term: int
    is_here: bool
    """This node leads and has applied the first entry of its term."""


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
    """The leader's names for them, u64; `RelayStream.delivered` gives them back."""
    packets: tuple[bytes, ...]


class RelayEvents(Protocol):
    """What a relay stream tells the edge that opened it."""

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        """The batch is committed and applied, by the entry at `index` of the log.

        Outcomes come in the order of the batches, so the indexes never fall.
        """

    def on_free(self) -> None:
        """Anything is worth a batch: one that is sent within this call is in the next entry."""

    def on_late_packets(self, packets: LatePackets) -> None:
        """Offer these to the session, or refuse them with `RelayStream.undelivered`."""

    def on_end(self, reason: str) -> None:
        """The stream is over, once; unanswered batches may or may not be applied.

        The edge opens another when `Leadership` names a leader, and sends again from its oldest
        unanswered batch on, minus batches of closed sessions (DESIGN section 7).
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

    def delivered(self, session: int, tokens: Sequence[int]) -> None:
        """The peer acknowledged these late packets."""

    def undelivered(self, session: int, tokens: Sequence[int]) -> None:
        """They were not, or not surely, delivered: the session is gone."""

    def close(self) -> None:
        """End it; `on_end` is not called."""


class RelayHub(Protocol):
    """The leader's side of all relay streams, its own edge's included."""

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


class ClusterListener(Protocol):
    """Hears of what happens to the replicated state."""

    def on_applied(self, applied: Applied) -> None:
        """An entry was applied here, in order; its rows are visible in `Cluster.state`."""

    def on_restored(self, index: int) -> None:
        """A snapshot replaced the state: whatever was derived from it must be read again."""

    def on_leadership(self, leadership: Leadership) -> None:
        """The leader or the term changed."""


class Cluster(Protocol):
    """The cluster as its edges, its API and its archiver see it."""

    @property
    def node(self) -> str:
        """This node's name, without incarnation."""

    @property
    def leadership(self) -> Leadership:
        """As far as this node knows."""

    @property
    def state(self) -> State:
        """This node's replicated state, for reading only, between applied entries.

        Raises Unavailable while a snapshot replaces it.
        """

    @property
    def view(self) -> View:
        """The same state as `qm.model.queries` read it, heads of queues known; ask anew each time,
        since a snapshot replaces it.
        """

    @property
    def relay_hub(self) -> RelayHub:
        """The leader's side of relay streams; without streams while another node leads."""

    def now_ms(self) -> int:
        """Return this node's estimate of cluster time, UTC milliseconds, never going back."""

    def read_body(self, place: BodyPlace) -> bytes:
        """Return a stored packet of this node. Raises BodyDamaged, KeyError when it is gone."""

    def read_bodies(self, places: BodyPlaces) -> Packets:
        """Return stored packets, in order; as `read_body`, but cheaper where they are neighbours.

        Whoever calls bounds their bytes.
        """

    def listen(self, listener: ClusterListener) -> Callable[[], None]:
        """Have a listener called from now on; the result ends that."""

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        """Replicate commands through whoever leads; return their outcomes in order.

        They are applied in this order, not necessarily in one entry. Waits for a leader for at
        most PROPOSE_WAIT_MS. Raises Unavailable, OutcomeUnknown.
        """

    async def read_barrier(self) -> int:
        """Return an applied index at which `state` holds everything answered before this call.

        Raises Unavailable.
        """

    def open_relay(self, events: RelayEvents) -> RelayStream:
        """Open a relay stream to the present leader. Raises Unavailable when there is none."""


PROPOSE_WAIT_MS = 5_000
"""How long `Cluster.propose` looks for a leader before it raises Unavailable."""

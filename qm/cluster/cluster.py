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

from qm.cluster.relay import RelayEvents, RelayHub, RelayStream
from qm.model.queries import View
from qm.model.state.tables import State
from qm.model.values.commands import Command
from qm.model.values.effects import Applied, Outcome
from qm.store.bodies.body_places import BodyPlace, BodyPlaces, Packets


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

    async def restore_body(self, place: BodyPlace) -> bool:
        """Have a damaged body restored from another node; return whether it can be read here."""

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

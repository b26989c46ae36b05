"""What all connections of an edge share."""

import asyncio
from typing import Final, Protocol

from qm.edge.ack_marks import AckMark, AckMarks
from qm.edge.batches import IntakeOwner
from qm.edge.edge_metrics import EdgeMetrics
from qm.edge.limits import INCOMPLETE_MAX_BYTES
from qm.edge.relay.relay import Relay
from qm.edge.tcp.admission import Admission
from qm.edge.tcp.deadlines import Deadlines, Waiter
from qm.edge.tcp.incomplete import Incomplete
from qm.session import CloseReason, SessionConfig
from qm.wire.guid import Guid


class Admitted(Waiter, Protocol):
    """An admitted connection, as the edge knows it."""

    @property
    def address(self) -> str:
        """The peer's address, without port."""

    def close(self, reason: CloseReason, detail: str) -> None:
        """End the session, then the transport."""

    def abort(self) -> None:
        """Close the transport at once."""


class EdgeContext:
    """Shared by all connections of one edge."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        relay: Relay,
        metrics: EdgeMetrics,
        admission: Admission,
        session: SessionConfig,
    ) -> None:
        self.loop: Final = loop
        self.relay: Final = relay
        self.metrics: Final = metrics
        self.admission: Final = admission
        self.session: Final = session
        self.deadlines: Final = Deadlines(loop)
        self.marks: Final = AckMarks()
        self.connections: Final[set[Admitted]] = set()
        """Admitted connections, until their transport is gone."""
        self.incomplete: Final = Incomplete[IntakeOwner](INCOMPLETE_MAX_BYTES, _end_incomplete)
        self._emptied = asyncio.Event()

    @property
    def queue_manager(self) -> Guid | None:
        """Our own GUID, None before the cluster's birth."""
        return self.relay.queue_manager

    def enter(self, connection: Admitted) -> None:
        """A connection was admitted."""
        self.admission.enter(connection.address)
        self.connections.add(connection)
        self.metrics.connected_peer(1)
        self._emptied.clear()

    def leave(self, connection: Admitted) -> None:
        """Its transport is gone."""
        self.deadlines.forget(connection)
        self.admission.leave(connection.address)
        self.connections.remove(connection)
        self.metrics.connected_peer(-1)
        if not self.connections:
            self._emptied.set()

    async def wait_until_empty(self, timeout_s: float) -> None:
        """Wait for the transports to close; then abort them."""
        try:
            if self.connections:
                await asyncio.wait_for(self._emptied.wait(), timeout_s)
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()

    def mark(self, session: int, acknowledged: int, depends_on: int) -> None:
        """An acknowledgement was written."""
        self.marks.add(AckMark(session, acknowledged, depends_on, self.relay.commit_index))


def _end_incomplete(connection: IntakeOwner) -> None:
    connection.close(CloseReason.LIMIT, "too much waits for the rest of its packet")

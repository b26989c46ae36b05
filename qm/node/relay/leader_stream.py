"""Relay streams at the leader: batches in, outcomes out, late packets, open sessions.

A *line* is one edge's stream as the leader sees it, whatever carries it: a gRPC stream or, for the
leader's own edge, nothing at all. It belongs to one term of this leader (DESIGN section 7).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from qm.cluster.cluster import (
    RELAY_BATCHES_MAX,
    RELAY_MAX_BYTES,
    LatePackets,
    RelayHubEvents,
    SessionFacts,
)
from qm.model.values.effects import Outcome
from qm.node.relay.disk_admission import is_edge_batch, refusal
from raft import proposals
from raft.core.core import Busy, NotLeader
from raft.driver import Stopping
from raft.proposals import ProposalLost

logger = logging.getLogger(__name__)

LINE_SESSIONS_MAX: Final = 65_536
"""Open sessions of one edge."""

Pending: TypeAlias = proposals.Pending[Sequence[Outcome]]
Submit: TypeAlias = Callable[[bytes], tuple[Pending, int]]
"""`raft.driver.Driver.submit`."""

REFUSED: Final = (NotLeader, Stopping, ProposalLost, proposals.CommitUnknown, ValueError, Busy)
"""What a submitted payload can end with instead of an outcome."""


class LineEnd(Exception):
    """The line is over; the text says why."""


class LineEvents(Protocol):
    """Carries what the leader says to the edge."""

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        """A batch was applied."""

    def on_late_packets(self, packets: LatePackets) -> None:
        """Packets for an open session."""

    def on_free(self) -> None:
        """No entry is in flight: a batch that comes within this call is in the next one."""

    def on_end(self, reason: str) -> None:
        """The leader ended the line."""


class LeaderStream:
    """See the module. Methods raise LineEnd when the edge broke a rule or is behind the times."""

    def __init__(self, hub: "LeaderStreams", edge: str, events: LineEvents) -> None:
        self.edge: Final = edge
        self.sessions: dict[int, SessionFacts] = {}
        self._hub = hub
        self._events = events
        self._held: deque[tuple[int, bytes]] = deque()
        """Batches that the leader is too busy to propose."""
        self._pending: deque[tuple[int, int, Pending, int]] = deque()
        """number, bytes, where the outcome will be, ordinal there."""
        self._bytes = 0
        self._index = 0
        """Of the last entry with an outcome; a refused batch is in none."""
        self._has_pending = asyncio.Event()
        self._is_over = False
        self._pump = asyncio.create_task(self._hand_out(), name=f"outcomes for {edge}")

    def batch(self, number: int, payload: bytes) -> None:
        """Propose a batch behind all earlier ones."""
        if self._is_over:
            raise LineEnd("the stream is over")
        if len(self._held) + len(self._pending) >= RELAY_BATCHES_MAX:
            raise LineEnd("more batches than RELAY_BATCHES_MAX")
        # As `RelayStream.room` counts: the last batch may go beyond the bound.
        if self._bytes >= RELAY_MAX_BYTES:
            raise LineEnd("more bytes than RELAY_MAX_BYTES")
        self._bytes += len(payload)
        self._held.append((number, payload))
        self.propose_held()

    def propose_held(self) -> None:
        """Propose what waits, as far as the leader takes it."""
        while self._held and not self._is_over:
            number, payload = self._held[0]
            try:
                pending, ordinal = self._hub.take(payload)
            except Busy:
                return
            except (NotLeader, Stopping) as error:
                self.end(str(error) or "this node stops")
                return
            self._held.popleft()
            self._pending.append((number, len(payload), pending, ordinal))
            self._has_pending.set()

    async def _hand_out(self) -> None:
        while True:
            if not self._pending:
                self._has_pending.clear()
                await self._has_pending.wait()
            pending = self._pending[0][2]
            try:
                outcomes = await pending.wait()
            except REFUSED as error:
                self.end(f"a batch was not applied: {error!r}")
                return
            # All batches of one entry at once.
            while self._pending and self._pending[0][2] is pending:
                number, size, _, ordinal = self._pending.popleft()
                self._bytes -= size
                self._index = max(self._index, pending.index)
                self._events.on_outcome(number, self._index, outcomes[ordinal])
            self.propose_held()

    def session_opened(self, session: SessionFacts) -> None:
        """The edge has a session."""
        if len(self.sessions) >= LINE_SESSIONS_MAX:
            raise LineEnd("more sessions than LINE_SESSIONS_MAX")
        self.sessions[session.number] = session
        self._hub.tell_session(self.edge, session, True)

    def session_closed(self, number: int) -> None:
        """The edge has lost it."""
        session = self.sessions.pop(number, None)
        if session is not None:
            self._hub.tell_session(self.edge, session, False)

    def late_result(self, session: int, tokens: Sequence[int], is_delivered: bool) -> None:
        """What became of late packets."""
        self._hub.tell_late_result(self.edge, session, tokens, is_delivered)

    def send_late(self, packets: LatePackets) -> None:
        """Have the edge send packets."""
        self._events.on_late_packets(packets)

    def gather(self) -> None:
        """An entry is about to be closed."""
        self._events.on_free()

    def end(self, reason: str) -> None:
        """Tell the edge that it is over."""
        if not self._is_over:
            self.close()
            self._events.on_end(reason)

    def close(self) -> None:
        """The edge is gone, or knows that it is over."""
        if self._is_over:
            return
        self._is_over = True
        self._pump.cancel()
        self._hub.forget(self)
        for number in list(self.sessions):
            self.session_closed(number)


class LeaderStreams:
    """Implements `qm.cluster.cluster.RelayHub`: all lines of this node while it leads."""

    def __init__(
        self, submit: Submit, admits_messages: Callable[[], bool], is_free: Callable[[], bool]
    ) -> None:
        """`admits_messages`: whether the disk has room for new ones. `is_free`: whether no entry
        is in flight.
        """
        self.is_free: Final = is_free
        self._submit = submit
        self._admits_messages = admits_messages
        self._lines: dict[str, LeaderStream] = {}
        self._claims: dict[bytes, dict[tuple[str, int], SessionFacts]] = {}
        """Open sessions by the GUID that their peer claims, then by edge and number."""
        self._listener: RelayHubEvents | None = None

    def take(self, payload: bytes) -> tuple[Pending, int]:
        """Submit a batch, or refuse its messages."""
        if not self._admits_messages() and is_edge_batch(payload):
            refused: Pending = proposals.Pending()
            refused.resolve([refusal(payload)])
            return refused, 0
        return self._submit(payload)

    def open(self, edge: str, events: LineEvents) -> LeaderStream:
        """Return a new line; an older one of the same edge ends."""
        older = self._lines.get(edge)
        if older is not None:
            older.end("the edge has opened another stream")
        line = self._lines[edge] = LeaderStream(self, edge, events)
        return line

    def forget(self, line: LeaderStream) -> None:
        """A line is over."""
        if self._lines.get(line.edge) is line:
            del self._lines[line.edge]

    def gather(self) -> None:
        """Ask edges for what belongs into the entry that is about to be closed."""
        for line in list(self._lines.values()):
            try:
                line.gather()
            except Exception:
                # Within consensus an error would end the process.
                logger.exception("what waits at %s cannot be had", line.edge)
                line.end("an error at the edge")

    def propose_held(self) -> None:
        """There may be room again."""
        for line in list(self._lines.values()):
            line.propose_held()

    def end_all(self, reason: str) -> None:
        """This node leads no more, or in another term."""
        for line in list(self._lines.values()):
            line.end(reason)

    # RelayHub

    def sessions(self, queue_manager: bytes) -> Sequence[tuple[str, SessionFacts]]:
        """See RelayHub.sessions."""
        claims = self._claims.get(queue_manager, {})
        return [(edge, session) for (edge, _), session in claims.items()]

    def send_late(self, edge: str, packets: LatePackets) -> None:
        """See RelayHub.send_late."""
        line = self._lines.get(edge)
        if line is not None:
            line.send_late(packets)

    def listen(self, listener: RelayHubEvents) -> None:
        """See RelayHub.listen."""
        self._listener = listener
        for line in self._lines.values():
            for session in line.sessions.values():
                listener.on_session(line.edge, session, True)

    def tell_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        """Note it and pass it on."""
        claims = self._claims.setdefault(session.queue_manager, {})
        if is_open:
            claims[edge, session.number] = session
        else:
            claims.pop((edge, session.number), None)
            if not claims:
                del self._claims[session.queue_manager]
        if self._listener is not None:
            self._listener.on_session(edge, session, is_open)

    def tell_late_result(
        self, edge: str, session: int, tokens: Sequence[int], is_delivered: bool
    ) -> None:
        """Pass it on."""
        if self._listener is not None:
            self._listener.on_late_result(edge, session, tokens, is_delivered)

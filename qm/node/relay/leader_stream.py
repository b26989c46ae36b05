"""Relay streams at the leader: batches in, outcomes out, late packets, open sessions.

Each has one edge at its other end, connected by a gRPC stream or, on the leader's own node,
directly. It belongs to one term of this leader (DESIGN section 7).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from typing_extensions import override

from qm.cluster.relay import (
    RELAY_BATCHES_MAX,
    RELAY_MAX_BYTES,
    LatePackets,
    RelayEvents,
    RelayHub,
    RelayHubEvents,
    SessionFacts,
)
from qm.model.values.effects import Outcome
from qm.node.relay.disk_admission import is_edge_batch, refusal, sessions_of
from qm.store.codec import Inspected
from raft import proposals
from raft.core.core import Busy, NotLeader
from raft.driver import Stopping
from raft.proposals import ProposalLost

logger = logging.getLogger(__name__)

EDGE_SESSIONS_MAX: Final = 65_536
"""Open sessions of one edge."""
EDGE_REFUSED_SESSIONS_MAX: Final = 65_536
"""Sessions of one edge whose messages were refused; beyond that the edge opens another stream."""

Pending: TypeAlias = proposals.Pending[Sequence[Outcome]]
Submit: TypeAlias = Callable[[bytes, int], tuple[Pending, int]]
"""`raft.driver.Driver.submit`: payload and weight."""
Weigh: TypeAlias = Callable[[Inspected], int]
"""`qm.node.replica.entry_weight.Weights.of`."""

REFUSED: Final = (NotLeader, Stopping, ProposalLost, proposals.CommitUnknown, ValueError, Busy)
"""Errors that a submitted payload can end with instead of an outcome."""


class StreamOver(Exception):
    """The stream is over, or has to end because the edge broke a rule; the text says why."""


class LeaderStream:
    """One edge's stream as the leader sees it. Methods raise StreamOver when the edge broke a rule
    or comes too late.
    """

    def __init__(self, streams: "LeaderStreams", edge: str, events: RelayEvents) -> None:
        self.edge: Final = edge
        self.events: Final = events
        """Calls to the edge."""
        self.sessions: dict[int, SessionFacts] = {}
        self._streams = streams
        self._held: deque[tuple[int, Inspected]] = deque()
        """Batches that the leader is too busy to propose."""
        self._pending: deque[tuple[int, int, Pending, int]] = deque()
        """Number, bytes, the pending outcomes of its entry, and its ordinal in them."""
        self._refused: set[int] = set()
        """Sessions with a message that was refused for lack of room. Their later messages may be on
        their way and are refused too, even if there is room by then, because order must be kept.
        """
        self._bytes = 0
        self._index = 0
        """Index of the last entry with an outcome; a refused batch is in no entry."""
        self._has_pending = asyncio.Event()
        self._is_over = False
        self._pump = asyncio.create_task(self._hand_out(), name=f"outcomes for {edge}")

    def send(self, number: int, command: Inspected) -> None:
        """Propose a batch after all earlier ones."""
        if self._is_over:
            raise StreamOver("the stream is over")
        if len(self._held) + len(self._pending) >= RELAY_BATCHES_MAX:
            raise StreamOver("more batches than RELAY_BATCHES_MAX")
        # As `RelayStream.room` counts: the last batch may exceed the bound.
        if self._bytes >= RELAY_MAX_BYTES:
            raise StreamOver("more bytes than RELAY_MAX_BYTES")
        self._bytes += len(command.payload)
        self._held.append((number, command))
        self.propose_held()

    def propose_held(self) -> None:
        """Propose what waits, as far as the leader takes it."""
        while self._held and not self._is_over:
            number, command = self._held[0]
            try:
                pending, ordinal = self._streams.take(command, self._refused)
            except Busy:
                return
            except (NotLeader, Stopping) as error:
                self.end(str(error) or "this node stops")
                return
            if len(self._refused) > EDGE_REFUSED_SESSIONS_MAX:
                self.end("too many sessions were refused")
                return
            self._held.popleft()
            size = len(command.payload)
            self._pending.append((number, size, pending, ordinal))
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
                self.events.on_outcome(number, self._index, outcomes[ordinal])
            self.propose_held()

    def session_opened(self, session: SessionFacts) -> None:
        """The edge has opened a session."""
        if len(self.sessions) >= EDGE_SESSIONS_MAX:
            raise StreamOver("more sessions than EDGE_SESSIONS_MAX")
        self.sessions[session.number] = session
        self._streams.tell_session(self.edge, session, True)

    def session_closed(self, number: int) -> None:
        """The edge has closed it, or lost it."""
        session = self.sessions.pop(number, None)
        if session is not None:
            self._streams.tell_session(self.edge, session, False)

    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        """The edge has delivered late packets, or has not."""
        self._streams.tell_late_result(self.edge, session, tokens, is_delivered)

    def end(self, reason: str) -> None:
        """Tell the edge that the stream is over."""
        if not self._is_over:
            self.close()
            self.events.on_end(reason)

    def close(self) -> None:
        """The edge is gone, or knows that the stream is over."""
        if self._is_over:
            return
        self._is_over = True
        self._pump.cancel()
        self._streams.forget(self)
        for number in list(self.sessions):
            self.session_closed(number)


class LeaderStreams(RelayHub):
    """Implements `qm.cluster.relay.RelayHub`: the streams of all edges while this node leads."""

    def __init__(
        self,
        submit: Submit,
        weigh: Weigh,
        admits_messages: Callable[[], bool],
        is_free: Callable[[], bool],
        announce: Callable[[Inspected], None] = lambda _: None,
    ) -> None:
        """`admits_messages`: whether the disk has room for new messages. `is_free`: whether no
        entry is in flight. `announce`: told of a batch that is about to be submitted.
        """
        self._announce = announce
        self._is_free = is_free
        self._submit = submit
        self._weigh = weigh
        self._admits_messages = admits_messages
        self._streams: dict[str, LeaderStream] = {}
        self._claims: dict[bytes, dict[tuple[str, int], SessionFacts]] = {}
        """Open sessions by the GUID that their peer claims, then by edge and number."""
        self._listener: RelayHubEvents | None = None

    def take(self, command: Inspected, refused: set[int]) -> tuple[Pending, int]:
        """Submit a batch, or refuse its messages and add their sessions to `refused`. It is also
        refused if a session of its messages is in `refused` already.
        """
        has_room = self._admits_messages()
        if is_edge_batch(command) and (refused or not has_room):
            sessions = sessions_of(command)
            if not has_room or not refused.isdisjoint(sessions):
                refused |= sessions
                outcome: Pending = proposals.Pending()
                outcome.resolve([refusal(command)])
                return outcome, 0
        self._announce(command)
        return self._submit(command.payload, self._weigh(command))

    def open(self, edge: str, events: RelayEvents) -> LeaderStream:
        """Return a new stream; an older one of the same edge ends."""
        older = self._streams.get(edge)
        if older is not None:
            older.end("the edge has opened another stream")
        stream = self._streams[edge] = LeaderStream(self, edge, events)
        return stream

    def forget(self, stream: LeaderStream) -> None:
        """Remove a stream that is over."""
        if self._streams.get(stream.edge) is stream:
            del self._streams[stream.edge]

    def gather(self) -> None:
        """Ask edges for batches for the entry that is about to be closed."""
        for stream in list(self._streams.values()):
            try:
                stream.events.on_free()
            except Exception:
                # Within consensus an error would end the process.
                logger.exception("what waits at %s cannot be had", stream.edge)
                stream.end("an error at the edge")

    def propose_held(self) -> None:
        """There may be room again: propose waiting batches."""
        for stream in list(self._streams.values()):
            stream.propose_held()

    def end_all(self, reason: str) -> None:
        """This node no longer leads, or leads in another term."""
        for stream in list(self._streams.values()):
            stream.end(reason)

    # RelayHub

    @override
    def is_free(self) -> bool:
        return self._is_free()

    @override
    def sessions(self, queue_manager: bytes) -> Sequence[tuple[str, SessionFacts]]:
        claims = self._claims.get(queue_manager, {})
        return [(edge, session) for (edge, _), session in claims.items()]

    @override
    def send_late(self, edge: str, packets: LatePackets) -> None:
        stream = self._streams.get(edge)
        if stream is not None:
            stream.events.on_late_packets(packets)

    @override
    def listen(self, listener: RelayHubEvents) -> None:
        self._listener = listener
        for stream in self._streams.values():
            for session in stream.sessions.values():
                listener.on_session(stream.edge, session, True)

    def tell_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        """Record the session and notify the listener."""
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
        """Notify the listener."""
        if self._listener is not None:
            self._listener.on_late_result(edge, session, tokens, is_delivered)

"""The ordered way from an edge's sessions to the leader, over one relay stream at a time.

Arrivals are gathered per iteration of the event loop into numbered batches, which are sent while
the stream has room; outcomes come in order. When a stream ends, batches without an outcome are sent
again on the next one; apply recognizes what was applied already (DESIGN section 7).
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from qm.cluster.cluster import Cluster, Unavailable
from qm.cluster.relay import LatePackets, RelayStream
from qm.cluster.sealing import Sealing
from qm.edge.batches import IntakeOwner, Item
from qm.edge.edge_metrics import NEW_TERM, EdgeMetrics
from qm.edge.limits import HELD_MAX_BYTES, LATE_MAX_COUNT, RELAY_RETRY_S
from qm.edge.live_sessions import LiveSessions
from qm.edge.relay.batch_outcome import settle
from qm.edge.relay.pipeline import Pipeline
from qm.edge.relay.session_intake import Inspector, SessionIntake
from qm.edge.security.verification import Verification
from qm.model.values.effects import Outcome
from qm.model.values.limits import VERSION_OF_MESSAGE_SECURITY
from qm.wire.guid import Guid

_NUMBERS_PER_MS: Final = 1_024
"""More sessions than a process opens; beyond, numbers of before a restart could come again."""


class IntakeNumbers:
    """Numbers of sessions, of which a node gives none twice, also when it is started anew.

    The state remembers for a while by them which sessions were refused something.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self, now_ms: int) -> int:
        """Return a number; `now_ms`: the cluster's time, which does not go back."""
        self._last = max(self._last + 1, now_ms * _NUMBERS_PER_MS)
        return self._last


_INTAKE_NUMBERS: Final = IntakeNumbers()
"""Shared by the process: an edge that is started again must not reuse earlier numbers."""


class Relay:
    """An edge's ordered way to the leader."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: EdgeMetrics,
        loop: asyncio.AbstractEventLoop,
        on_change: Callable[[], None],
        verification: Verification,
        sealing: Sealing,
    ) -> None:
        """`on_change` is called whenever `is_connected` has changed."""
        self._cluster = cluster
        self._metrics = metrics
        self._loop = loop
        self._on_change = on_change
        self._pipeline = Pipeline()
        self._verification = verification
        self._is_verifying = False
        self._held_back_bytes = 0
        self.sealing: Final = sealing
        self.inspector: Final = Inspector()
        self.sessions: Final = LiveSessions(cluster.now_ms)
        """Those whose arrivals come here, from their connection on."""
        self.queue_manager: Guid | None = None
        """Our own GUID, None before the cluster's birth."""
        self.commit_index = 0
        """The highest log index that an outcome proved committed."""
        self._intakes: dict[int, SessionIntake] = {}
        self._late_tokens = count(1)
        self._stream: RelayStream | None = None
        self._term = 0
        self._retry: asyncio.TimerHandle | None = None
        self._is_pump_due = False
        self._is_holding = False
        self._is_ending = False
        self._is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    # Sessions ------------------------------------------------------------------------------

    def open_intake(
        self, owner: IntakeOwner, claimed_guid: Guid, address: str, *, is_announced: bool = True
    ) -> SessionIntake:
        """Open the intake of a session.

        `is_announced`: the leader may send late acknowledgements over the session.
        """
        opened_ms = self._cluster.now_ms()
        number = _INTAKE_NUMBERS.next(opened_ms)
        intake = SessionIntake(self, owner, number, claimed_guid, address, opened_ms)
        intake.is_announced = is_announced
        self._intakes[intake.number] = intake
        if is_announced and self._stream is not None:
            self._stream.session_opened(intake.session_facts)
        if self._is_holding:
            owner.hold(True)
        return intake

    def forget(self, intake: SessionIntake, tokens: Sequence[int]) -> None:
        """An intake is closed; see `SessionIntake.close`."""
        del self._intakes[intake.number]
        self.report_late(intake, tokens, is_delivered=False)
        if intake.is_announced and self._stream is not None:
            self._stream.session_closed(intake.number)

    @property
    def verification(self) -> Verification | None:
        """What examines messages, once the cluster's version knows what comes of it."""
        if not self._is_verifying:
            with contextlib.suppress(Unavailable):
                version = self._cluster.view.counters().apply_version
                self._is_verifying = version >= VERSION_OF_MESSAGE_SECURITY
        return self._verification if self._is_verifying else None

    def on_restored(self) -> None:
        """The state was replaced: its version may be another one."""
        self._is_verifying = False

    def hold_back(self, size_bytes: int) -> None:
        """Count bytes of packets that wait to be added; negative: that do not any more."""
        self._held_back_bytes += size_bytes
        if size_bytes > 0:
            self._idle.clear()
            self._hold_if_full()
        elif not self._held_back_bytes:
            self._after_release()

    def add(self, item: Item) -> None:
        """Add an item after all others. Items of one iteration of the event loop leave together."""
        self._pipeline.add(item, self._loop.time())
        self._idle.clear()
        self._schedule_pump()
        self._hold_if_full()

    def _hold_if_full(self) -> None:
        if not self._is_holding and self.held_bytes > HELD_MAX_BYTES:
            self._hold(True)

    @property
    def held_bytes(self) -> int:
        """Bytes of packets without an outcome, those that are being examined included."""
        return self._pipeline.held_bytes + self._held_back_bytes

    # Batches and outcomes ------------------------------------------------------------------

    def _schedule_pump(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send what may be sent now."""
        self._is_pump_due = False
        while (stream := self._stream) is not None and stream.room > 0:
            batch = self._pipeline.next_batch(self._loop.time(), least_bytes=stream.least_bytes)
            if batch is None:
                return
            self._metrics.batch_sent()
            stream.send(batch.number, batch.payload(self._cluster.node))

    def on_free(self) -> None:
        """The leader asks: what has gathered can be in the next entry."""
        self._pump()

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        """The oldest unanswered batch is applied."""
        batch = self._pipeline.answered(number)
        if batch is None:
            self._abandon(f"an outcome for batch {number}, which is not the next")
            self._retry_later()
            return
        self.commit_index = max(self.commit_index, index)
        again = settle(batch, index, outcome)
        if again:
            self._pipeline.put_first(again, self._loop.time())
        self._after_release()
        self._metrics.answered(self._loop.time() - batch.arrived_at, batch, outcome)

    def _after_release(self) -> None:
        is_low = self.held_bytes <= HELD_MAX_BYTES // 2
        if self._is_holding and is_low and not self._is_ending:
            self._hold(False)
        if not self._pipeline.is_empty:
            self._schedule_pump()
        elif not self._held_back_bytes:
            self._idle.set()

    def _hold(self, is_held: bool) -> None:
        self._is_holding = is_held
        if is_held and not self._is_ending:
            self._metrics.holds(self.held_bytes)
        for intake in list(self._intakes.values()):
            intake.owner.hold(is_held)

    # Late packets --------------------------------------------------------------------------

    def on_late_packets(self, packets: LatePackets) -> None:
        """Offer acknowledgements to their session, or return them to the leader."""
        intake = self._intakes.get(packets.session)
        if intake is not None and len(intake.late) + len(packets.tokens) <= LATE_MAX_COUNT:
            ours = [next(self._late_tokens) for _ in packets.tokens]
            intake.late.update(zip(ours, packets.tokens, strict=True))
            if intake.owner.offer(ours, packets.packets):
                return
            for token in ours:
                intake.late.pop(token, None)
        self._metrics.late(len(packets.tokens), is_delivered=False)
        if self._stream is not None:
            self._stream.late_result(packets.session, packets.tokens, is_delivered=False)

    def report_late(
        self, intake: SessionIntake, tokens: Sequence[int], *, is_delivered: bool
    ) -> None:
        """Tell the leader whether its late packets were delivered.

        Those of an earlier leader are ignored: its tokens mean nothing to this one.
        """
        late = intake.late
        theirs = [late.pop(token) for token in tokens if token in late]
        if not theirs or self._stream is None:
            return
        self._metrics.late(len(theirs), is_delivered=is_delivered)
        self._stream.late_result(intake.number, theirs, is_delivered=is_delivered)

    # Streams -------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether a stream to a leader is open."""
        return self._stream is not None

    def connect(self) -> None:
        """Open a stream to the present leader, unless there is one to it in this term."""
        leadership = self._cluster.leadership
        if self._is_stopped or (self._stream is not None and leadership.term == self._term):
            return
        self._abandon(NEW_TERM)
        if leadership.node is None:
            return
        try:
            stream = self._cluster.open_relay(self)
        except Unavailable:
            self._retry_later()
            return
        self._term, self._stream = leadership.term, stream
        self._metrics.connected(leadership.node, leadership.term)
        for intake in reversed(self._intakes.values()):  # the newest gets what is owed at once
            if intake.is_announced:
                stream.session_opened(intake.session_facts)
        self.drop_closed()
        self._on_change()

    def on_end(self, reason: str) -> None:
        """The present stream is over."""
        self._lose(reason)
        self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if not self._is_stopped:
            self._retry = self._loop.call_later(RELAY_RETRY_S, self.connect)

    def _abandon(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.close()
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        self._stream = None
        for intake in self._intakes.values():
            intake.late.clear()
        again = self._pipeline.start_again()
        if not self._is_stopped:
            self._metrics.disconnected(reason, again)
        self._on_change()

    # Ending --------------------------------------------------------------------------------

    def drop_closed(self) -> None:
        """Drop items of closed sessions that are not on a stream."""
        self._pipeline.drop_closed()
        self._after_release()

    def read_no_more(self) -> None:
        """Hold all sessions for good."""
        self._is_ending = True
        self._hold(True)

    async def idle(self) -> None:
        """Wait until everything added has its outcome."""
        await self._idle.wait()

    def stop(self) -> None:
        """Close the present stream and open no other."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._abandon("stopped")

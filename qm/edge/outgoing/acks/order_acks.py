"""When an incoming sequence's order ack is due [MS-MQQB 3.1.2.7, 3.1.6.9, QB-A21].

Addresses of senders are volatile: every node notes them from each entry that it applies, so that a
follower that becomes leader knows them. The schedules are the leader's, and start anew with it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from typing_extensions import override

from qm.edge.outgoing.limits import (
    SEQUENCE_ACTIVE_MS,
    SEQUENCES_SEEN_MAX,
)
from qm.edge.outgoing.link.timers import TimerOwner, TimerQueue
from qm.model.state.tables import State, Table
from qm.model.values.effects import SequenceSeen
from qm.model.values.rows import SEQUENCE_IN_ROW, number_key
from qm.session import OrderAckSchedule, OrderAckTimer, PromptOrderAckSchedule


class SendersSeen:
    """Stream id -> where its sender was seen last; kept by every node."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, SequenceSeen] = OrderedDict()
        self.spare_ordinals: Iterator[int] = iter(())
        """MessageIDs given to the leader that was activated last; each is used once."""

    def reserve(self, ordinals: range) -> None:
        """A leader was activated, and was given these MessageIDs."""
        self.spare_ordinals = iter(ordinals)

    def note(self, sequences: Mapping[int, SequenceSeen]) -> None:
        """One entry contained messages of these sequences."""
        seen = self._seen
        for stream_id, place in sequences.items():
            seen[stream_id] = place
            seen.move_to_end(stream_id)
        while len(seen) > SEQUENCES_SEEN_MAX:
            seen.popitem(last=False)

    def place(self, stream_id: int) -> SequenceSeen | None:
        """Return where a sequence's sender was seen."""
        return self._seen.get(stream_id)

    def active(self, state: State, now_ms: int) -> list[int]:
        """Return the sequences seen within SEQUENCE_ACTIVE_MS, latest first."""
        found = []
        for stream_id in reversed(self._seen):
            row = sequence_row(state, stream_id)
            if row is None or SEQUENCE_IN_ROW.unpack(row)[3] < now_ms - SEQUENCE_ACTIVE_MS:
                break
            found.append(stream_id)
        return found


class OrderAckIds:
    """MessageIDs of this leadership's order acks: none is used twice, nor for anything else that
    the queue manager sends ([MS-MQMQ] 2.2.19.2).

    Apply gives one to each sequence that an entry has messages of. Those from entries before this
    leadership may have been used by another leader.
    """

    def __init__(self, senders: SendersSeen) -> None:
        """Create it when this node is activated as leader."""
        self._spare = senders.spare_ordinals
        self._given: OrderedDict[int, int] = OrderedDict()

    def note(self, sequences: Mapping[int, SequenceSeen]) -> None:
        """An entry of this leadership contained messages of these sequences."""
        for stream_id, seen in sequences.items():
            self._given[stream_id] = seen.message_ordinal
            self._given.move_to_end(stream_id)
        while len(self._given) > SEQUENCES_SEEN_MAX:
            self._given.popitem(last=False)

    def take(self, stream_id: int) -> int:
        """Return a MessageID for an order ack of a sequence; 0 if there is none at present."""
        return self._given.pop(stream_id, 0) or next(self._spare, 0)


def sequence_row(state: State, stream_id: int) -> bytes | None:
    """Return the SEQUENCE_IN row of a stream."""
    return state.get(Table.SEQUENCE_IN, number_key(stream_id))


class OrderAcks:
    """The schedules of all incoming sequences, at the leader."""

    def __init__(
        self,
        timers: TimerQueue,
        clock: Callable[[], float],
        owe: Callable[[int], None],
        *,
        is_prompt: bool = True,
    ) -> None:
        """`owe` sends the order ack of a stream; `is_prompt` chooses the kind of schedule."""
        self._timers = timers
        self._clock = clock
        self._owe = owe
        self._schedule = PromptOrderAckSchedule if is_prompt else OrderAckTimer
        self._scheduled: OrderedDict[int, _Scheduled] = OrderedDict()

    def received(self, stream_id: int, *, is_last: bool) -> None:
        """Messages of the stream came (3.1.5.8.6); `is_last`: none is in flight behind them."""
        now = self._clock()
        scheduled = self._scheduled.get(stream_id)
        if scheduled is None:
            scheduled = _Scheduled(self, stream_id, self._schedule(now))
            self._scheduled[stream_id] = scheduled
            self._make_room()
        self._scheduled.move_to_end(stream_id)
        if scheduled.schedule.received(now, is_last=is_last):
            self._owe(stream_id)
        else:
            self._timers.watch(scheduled)

    def due(self, stream_id: int) -> None:
        """A schedule fired."""
        self._owe(stream_id)

    def _make_room(self) -> None:
        while len(self._scheduled) > SEQUENCES_SEEN_MAX:
            _, oldest = self._scheduled.popitem(last=False)
            self._timers.forget(oldest)


class _Scheduled(TimerOwner):
    """One stream's schedule."""

    def __init__(self, owner: OrderAcks, stream_id: int, schedule: OrderAckSchedule) -> None:
        self._owner = owner
        self._stream_id = stream_id
        self.schedule = schedule

    @override
    def next_timer(self) -> float | None:
        return self.schedule.next_timer()

    @override
    def handle_timer(self, now: float) -> None:
        if self.schedule.handle_timer(now):
            self._owner.due(self._stream_id)

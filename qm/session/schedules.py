"""The timers of transactional messages [MS-MQQB 3.1.2.6, 3.1.2.7].

Both are kept by the leader, one per sequence, and start empty after a change of leader; that of
resending starts anew with each session, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from qm.session import limits
from qm.session.errors import SessionMisuse

_PER_CLASS: Final = 3


def resend_timer_table(
    short_s: int = limits.RESEND_TIMEOUT_SHORT_S,
    medium_s: int = limits.RESEND_TIMEOUT_MEDIUM_S,
    long_s: int = limits.RESEND_TIMEOUT_LONG_S,
    final_s: int = limits.RESEND_TIMEOUT_FINAL_S,
) -> tuple[int, ...]:
    """Return ResendTimerTable in seconds [MS-MQQB 3.1.3.1]: all but the last three times each."""
    return (
        *(short_s,) * _PER_CLASS,
        *(medium_s,) * _PER_CLASS,
        *(long_s,) * _PER_CLASS,
        final_s,
    )


class ResendSchedule:
    """Session Transactional Ack Wait Timer of one outgoing sequence [MS-MQQB 3.1.6.5].

    The interval grows with consecutive timeouts and falls back to the first on progress (QB-A18).
    """

    __slots__ = ("_due", "_index", "_table", "last_ack_count", "time_of_last_ack")

    def __init__(self, now: float, table: Sequence[int] = resend_timer_table()) -> None:
        """`table`: ResendTimerTable in seconds; `now` in seconds starts TimeOfLastAck."""
        if not table:
            raise SessionMisuse("ResendTimerTable needs at least one interval")
        self._table = tuple(table)
        self._index = 0
        self._due: float | None = None
        self.time_of_last_ack = now
        """TimeOfLastAck, on the clock of `now`."""
        self.last_ack_count = 0
        """LastAckCount: OrderAcks received for the sequence."""

    @property
    def resend_interval_s(self) -> int:
        """ResendInterval."""
        return self._table[self._index]

    @property
    def resend_interval_index(self) -> int:
        """ResendIntervalIndex, which EodResendCount reports."""
        return self._index

    @property
    def resend_time(self) -> float | None:
        """ResendTime on the clock of `now`, None while nothing is scheduled."""
        return self._due

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._due

    def sent(self, now: float) -> None:
        """A transactional message has left: start the timer unless it runs."""
        if self._due is None:
            self._due = now + self.resend_interval_s

    def order_acked(self, now: float, *, progress: bool, unacked: int, count: int = 1) -> None:
        """`count` OrderAcks of the live sequence came; `unacked` messages of it remain.

        `progress` says whether they, or earlier ones, acknowledged anything new.
        """
        if count:
            self.time_of_last_ack = now
        self.last_ack_count += count
        if progress or not unacked:
            self._index = 0
        if not unacked:
            self._due = None
        elif progress:
            self._due = now + self.resend_interval_s

    def handle_timer(self, now: float) -> bool:
        """Return whether every unacknowledged transactional message is to be sent again now."""
        if self._due is None or now < self._due:
            return False
        self._index = min(self._index + 1, len(self._table) - 1)
        self._due = now + self.resend_interval_s
        return True

    def stop(self) -> None:
        """Nothing transactional is left, or the session is gone [MS-MQQB 3.1.5.9]."""
        self._due = None

    def begin_session(self, now: float) -> None:
        """Start anew, as everything of TxOutgoingSequence but LastAck does [MS-MQQB 3.1.3.2]."""
        self._index, self._due = 0, None
        self.time_of_last_ack, self.last_ack_count = now, 0


class OrderAckSchedule(ABC):
    """When the OrderAck of one incoming sequence is sent."""

    __slots__ = ("_due", "_last_sent")

    def __init__(self, now: float) -> None:
        """`now`: seconds; LastOrderAckSendTime starts with it [MS-MQQB 3.1.3.2]."""
        self._last_sent = now
        self._due: float | None = None

    @abstractmethod
    def received(self, now: float, *, is_last: bool) -> bool:
        """Return whether an OrderAck is to be sent at once; it then counts as sent.

        Messages of the sequence arrived, accepted or not; `is_last`: none is in flight behind them.
        """

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._due

    def sent(self, now: float) -> None:
        """An OrderAck has left, on this schedule or with a SessionAck (DESIGN section 7)."""
        self._last_sent = now
        self._due = None

    def handle_timer(self, now: float) -> bool:
        """Return whether an OrderAck is to be sent now; it then counts as sent."""
        if self._due is None or now < self._due:
            return False
        self.sent(now)
        return True


class PromptOrderAckSchedule(OrderAckSchedule):
    """At once behind the last message in flight, otherwise every 20 ms (DESIGN section 7)."""

    __slots__ = ()

    @override
    def received(self, now: float, *, is_last: bool) -> bool:
        due = self._last_sent + limits.ORDER_ACK_INTERVAL_MS / 1000
        if is_last or now >= due:
            self.sent(now)
            return True
        self._due = due
        return False


class OrderAckTimer(OrderAckSchedule):
    """Order Ack Send Timer [MS-MQQB 3.1.1.6.2, 3.1.2.7].

    Arriving messages keep postponing the acknowledgement, but to at most ten seconds after the
    previous one.
    """

    __slots__ = ()

    @override
    def received(self, now: float, *, is_last: bool) -> bool:
        del is_last
        delay_max_s = limits.ORDER_ACK_DELAY_MAX_MS / 1000
        if self._due is None or now - self._last_sent < delay_max_s:
            self._due = now + limits.ORDER_ACK_TIMEOUT_MS / 1000
        return False

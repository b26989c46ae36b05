"""When received messages are acknowledged [MS-MQQB 3.1.5.8.7, 3.1.6.4, 3.1.7.11].

An acknowledgement leaves on one of the occasions in design.md, alone or on a message that leaves
anyway. Its contents come from `ReceiveCursors` at the moment at which it is written (QB-A50).
"""

from math import inf

from qm.session.config import SessionConfig
from qm.session.events import KIND_EXPRESS
from qm.session.receive_cursors import ReceiveCursors
from qm.session.timers import Timers
from qm.wire.headers.session_header import SessionHeader
from qm.wire.limits import RECOVERABLE_ACK_FLAGS_COUNT, WINDOW_SIZE_MIN


class AckPolicy:
    """Decides for one session; owns its Session Ack Send Timer and the window it announces."""

    __slots__ = ("_announced_window", "_config", "_receiving", "_timers", "is_due")

    def __init__(self, config: SessionConfig, receiving: ReceiveCursors, timers: Timers) -> None:
        self.is_due = False
        """Whether a SessionAck is to leave now."""
        self._config = config
        self._receiving = receiving
        self._timers = timers
        self._announced_window = config.window_size

    def arrived(self, kinds: bytes, now: float) -> None:
        """Messages have arrived: start Session Ack Send, shorter for a recoverable one."""
        timers = self._timers
        if not timers.is_recoverable_ack and kinds.count(KIND_EXPRESS) != len(kinds):
            timers.start_ack_send(now, is_recoverable=True)
        elif timers.ack_send_at == inf:
            timers.start_ack_send(now, is_recoverable=False)

    def committed(self, window: int) -> None:
        """The durable cursor moved; `window` is the smaller of both sides' (QB-A33)."""
        receiving = self._receiving
        enough = max(1, min(window // 2, self._config.acknowledged_after_count))
        if (
            not receiving.uncommitted
            or receiving.unacked >= enough
            or receiving.unacked_recoverable >= RECOVERABLE_ACK_FLAGS_COUNT
        ):
            self.is_due = True

    def paused(self) -> None:
        """The outgoing queue is on hold: announce a window of 1 [MS-MQQB 3.1.7.13]."""
        self._timers.stop_ack_send()
        self.is_due = True
        self._announced_window = WINDOW_SIZE_MIN

    def ack_send_expired(self, now: float) -> None:
        """Session Ack Send Timer Event [MS-MQQB 3.1.6.4]."""
        self._timers.stop_ack_send()
        if self._receiving.unacked:
            self.is_due = True
        elif self._receiving.uncommitted:
            self._restart(now)

    def is_piggyback_due(self, now: float) -> bool:
        """Whether a message that leaves now carries an acknowledgement [MS-MQQB 3.1.7.11]."""
        return self._receiving.unacked > 0 and self._timers.is_piggyback_due(now)

    def take_headers(self, sent: int, sent_recoverable: int, now: float) -> list[SessionHeader]:
        """Acknowledge what is durable at this moment [MS-MQQB 3.1.5.8.7, QB-A50].

        `sent` and `sent_recoverable` are what this side has sent, unwrapped. Write all of the
        headers, in this order.
        """
        headers = list(
            self._receiving.session_headers(sent, sent_recoverable, self._announced_window)
        )
        self._announced_window = self._config.window_size
        self.is_due = False
        self._timers.stop_ack_send()
        if self._receiving.uncommitted:
            # QB-A34: armed by the next receipt, or now if there has been one already.
            self._restart(now)
        return headers

    def _restart(self, now: float) -> None:
        receiving = self._receiving
        is_recoverable = receiving.wire_recoverable > receiving.durable_recoverable
        self._timers.start_ack_send(now, is_recoverable=is_recoverable)

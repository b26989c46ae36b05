"""The four timers of a session [MS-MQQB 3.1.2.1, 3.1.2.2, 3.1.2.4, 3.1.2.5].

A timer is a deadline in monotonic seconds; infinity means stopped. What expiry means is decided in
`qm.session.session`.
"""

from math import inf
from typing import Final

from qm.session.config import SessionConfig
from qm.session.limits import (
    ACK_WAIT_FACTOR,
    ACK_WAIT_FACTOR_DIRECT,
    RECOVERABLE_ACK_SEND_TIMEOUT_UNSET_MS,
)
from qm.wire.limits import ACK_TIMEOUT_MAX_MS

_PIGGYBACK_AFTER: Final = 0.75


class Timers:
    """Deadlines of one session and the periods that its handshake agreed on."""

    __slots__ = (
        "_ack_wait_factor",
        "_cleanup_period",
        "ack_send_at",
        "ack_send_period",
        "ack_wait_at",
        "ack_wait_timeout_ms",
        "cleanup_at",
        "initialization_at",
        "is_recoverable_ack",
        "recoverable_ack_send_timeout_ms",
    )

    def __init__(self, config: SessionConfig, now: float, *, is_direct: bool) -> None:
        """Start Session Initialization and Session Cleanup [MS-MQQB 3.1.3.2, QB-A32].

        `is_direct`: we connect to a direct format name, which doubles Session Ack Wait (note <46>).
        """
        self.ack_wait_timeout_ms = min(
            config.ack_wait_timeout_ms + config.round_trip_delay_ms, ACK_TIMEOUT_MAX_MS
        )
        """AckWaitTimeout; at first what an initiator proposes (note <51>)."""
        self.recoverable_ack_send_timeout_ms = RECOVERABLE_ACK_SEND_TIMEOUT_UNSET_MS
        """RecoverableAckSendTimeout."""
        self._ack_wait_factor = ACK_WAIT_FACTOR_DIRECT if is_direct else ACK_WAIT_FACTOR
        self._cleanup_period = config.cleanup_timeout_ms / 1000
        initialization_ms = config.initialization_timeout_ms + 2 * config.round_trip_delay_ms
        self.initialization_at = now + initialization_ms / 1000
        self.cleanup_at = now + self._cleanup_period
        self.ack_wait_at = inf
        self.ack_send_at = inf
        self.ack_send_period = inf
        self.is_recoverable_ack = False
        """Whether Session Ack Send runs for a recoverable message."""

    def next(self) -> float | None:
        """Return the earliest deadline, None when every timer is stopped."""
        at = min(self.initialization_at, self.cleanup_at, self.ack_wait_at, self.ack_send_at)
        return None if at == inf else at

    def stop(self) -> None:
        """Stop all [MS-MQQB 3.1.5.9]."""
        self.initialization_at = self.cleanup_at = self.ack_wait_at = self.ack_send_at = inf

    def start_cleanup(self, now: float) -> None:
        """Start another cleanup period."""
        self.cleanup_at = now + self._cleanup_period

    def start_ack_wait(self, now: float) -> None:
        """(Re)start Session Ack Wait."""
        self.ack_wait_at = now + self._ack_wait_factor * self.ack_wait_timeout_ms / 1000

    def start_ack_send(self, now: float, *, is_recoverable: bool) -> None:
        """(Re)start Session Ack Send, with RecoverableAckSendTimeout or AckWaitTimeout / 2."""
        self.is_recoverable_ack = is_recoverable
        if is_recoverable:
            self.ack_send_period = self.recoverable_ack_send_timeout_ms / 1000
        else:
            self.ack_send_period = self.ack_wait_timeout_ms / 2000
        self.ack_send_at = now + self.ack_send_period

    def stop_ack_send(self) -> None:
        """Stop Session Ack Send; the next recoverable message restarts it."""
        self.ack_send_at = inf
        self.is_recoverable_ack = False

    def is_piggyback_due(self, now: float) -> bool:
        """Whether more than 75 % of Session Ack Send has elapsed [MS-MQQB 3.1.7.11]."""
        return self.ack_send_at - now < (1 - _PIGGYBACK_AFTER) * self.ack_send_period

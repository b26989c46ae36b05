"""When an acknowledgement leaves: each row of the table in qm/session/design.md."""

from __future__ import annotations

import pytest

from qm.session import KIND_EXPRESS, KIND_RECOVERABLE, SessionConfig
from qm.session.ack_policy import AckPolicy
from qm.session.receive_cursors import ReceiveCursors
from qm.session.timers import Timers
from qm.wire.limits import WINDOW_SIZE_MIN

NOW = 100.0
WINDOW = 64


class Receiver:
    """A policy with the cursors and timers that it judges by."""

    def __init__(self, config: SessionConfig) -> None:
        self.cursors = ReceiveCursors()
        self.timers = Timers(config, NOW, is_direct=False)
        self.policy = AckPolicy(config, self.cursors, self.timers)

    def arrive(self, count: int, kind: int = KIND_EXPRESS) -> None:
        kinds = bytes([kind]) * count
        self.cursors.arrived(kinds, count)
        self.policy.arrived(kinds, NOW)

    def commit(self, upto: int, window: int = WINDOW) -> bool:
        assert self.cursors.commit(upto)
        self.policy.committed(window)
        return self.policy.is_due


@pytest.mark.parametrize(
    ("after_count", "window", "kind", "enough"),
    [
        (8, WINDOW, KIND_EXPRESS, 8),
        (1000, 6, KIND_EXPRESS, 3),
        (1000, 1, KIND_EXPRESS, 1),
        (1000, 1000, KIND_RECOVERABLE, 32),
        (1000, 1000, KIND_EXPRESS, 500),
    ],
    ids=["count", "half a window", "smallest window", "bitmap full", "recoverables alone fill it"],
)
def test_enough_is_acknowledged_although_more_is_in_flight(
    after_count: int, window: int, kind: int, enough: int
) -> None:
    receiver = Receiver(SessionConfig(acknowledged_after_count=after_count))
    receiver.arrive(1001, kind)
    if enough > 1:
        assert not receiver.commit(enough - 1, window)
    assert receiver.commit(enough, window)


def test_what_is_complete_is_acknowledged_at_once() -> None:
    receiver = Receiver(SessionConfig())
    receiver.arrive(2)
    assert not receiver.commit(1)
    assert receiver.commit(2)
    (header,) = receiver.policy.take_headers(0, 0, NOW)
    assert (header.ack_sequence_number, receiver.policy.is_due) == (2, False)
    assert receiver.timers.ack_send_at == float("inf")


def test_the_timer_acknowledges_what_is_durable_and_waits_for_what_is_not() -> None:
    receiver = Receiver(SessionConfig())
    receiver.arrive(2, KIND_RECOVERABLE)
    due = receiver.timers.ack_send_at
    receiver.policy.ack_send_expired(due)
    assert not receiver.policy.is_due
    assert receiver.timers.ack_send_at == due + receiver.timers.ack_send_period
    assert not receiver.commit(1)
    receiver.policy.ack_send_expired(receiver.timers.ack_send_at)
    assert receiver.policy.is_due


def test_an_acknowledgement_is_piggybacked_late_in_the_period() -> None:
    receiver = Receiver(SessionConfig())
    receiver.arrive(2)
    receiver.commit(1)
    period = receiver.timers.ack_send_period
    assert not receiver.policy.is_piggyback_due(NOW + 0.74 * period)
    assert receiver.policy.is_piggyback_due(NOW + 0.76 * period)


def test_a_pause_is_announced_once() -> None:
    config = SessionConfig()
    receiver = Receiver(config)
    receiver.policy.paused()
    assert receiver.policy.is_due
    announced = [receiver.policy.take_headers(0, 0, NOW)[0].window_size for _ in range(2)]
    assert announced == [WINDOW_SIZE_MIN, config.window_size]

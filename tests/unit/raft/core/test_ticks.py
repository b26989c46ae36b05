"""Ticks do not depend on how long the machine has been up."""

import pytest

from raft.core.core import TICK_MS
from raft.core.ticks import TickCount

HOUR_S = 3600


@pytest.mark.parametrize("start_s", [0.0, 1_024.003, 5_000.001, 5 * HOUR_S + 0.007, 86_400 * 9.5])
def test_a_timer_that_fires_when_it_is_due_finds_its_tick(start_s: float) -> None:
    """With a clock of whole milliseconds, as uvloop's is."""
    ticks = TickCount(start_s)
    for _ in range(20_000):
        now = round(ticks.due_s(1) * 1000) / 1000
        assert ticks.take(now) == 1
    assert ticks.count == 20_000


def test_a_late_look_takes_all_ticks_that_have_passed() -> None:
    ticks = TickCount(7.0)
    assert ticks.take(7.0 + 3.4 * TICK_MS / 1000) == 3
    assert ticks.take(7.0 + 3.8 * TICK_MS / 1000) == 0
    assert ticks.take(7.0 + 4.2 * TICK_MS / 1000) == 1


def test_a_clock_that_goes_back_gives_no_ticks() -> None:
    ticks = TickCount(7.0)
    assert ticks.take(6.0) == 0
    assert ticks.take(7.0 + TICK_MS / 1000) == 1

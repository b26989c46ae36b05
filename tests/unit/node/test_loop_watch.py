"""A loop that is held up says so, and where."""

import asyncio
import logging
import time

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from qm.node.loop_watch import HELD_UP_S, LoopWatch
from qm.observe.metrics import Metrics

LAG = "quorate_event_loop_lag_seconds"


def heavy_work() -> None:
    end = time.monotonic() + 3 * HELD_UP_S
    while time.monotonic() < end:
        time.sleep(0.01)


def test_a_loop_that_is_held_up_is_measured_and_the_place_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> Metrics:
        metrics = Metrics(CollectorRegistry())
        watch = LoopWatch(metrics.histogram(LAG))
        watch.start()
        await asyncio.sleep(0.5)
        heavy_work()
        await asyncio.sleep(0.3)
        watch.stop()
        return metrics

    with caplog.at_level(logging.WARNING):
        registry = uvloop.run(scenario()).registry
    (line,) = caplog.records
    assert "held up" in line.message
    assert "of a processor" in line.message
    assert any("heavy_work" in place for place in line.fields["at"])  # type: ignore[attr-defined]
    beats = registry.get_sample_value(f"{LAG}_count")
    assert beats is not None
    assert beats > 3
    late = registry.get_sample_value(f"{LAG}_bucket", {"le": "0.5"})
    assert late is not None
    assert late < beats

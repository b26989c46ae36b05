"""When cluster time may jump, and whom it asks."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from qm.node.leader.timekeeping import GAP_MS, Timekeeper
from qm.node.membership.peers import Peers
from qm.node.replica.clock import ClusterClock
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2

HOUR_MS = 3_600_000


class Members(Peers):
    """Answers of the members, in turn; the last one repeated."""

    def __init__(self, *answers: Sequence[int]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        self.asked += 1
        walls = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {f"n{k}": relay_pb2.InspectReply(wall_clock_ms=wall) for k, wall in enumerate(walls)}

    def majority(self) -> int:
        return 2

    def count(self) -> int:
        return 3


class Monotonic:
    """A monotonic clock by hand."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def keeper(members: Members, clock: ClusterClock) -> Timekeeper:
    metrics = Metrics(CollectorRegistry())
    return Timekeeper(clock, members, metrics)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(("silence_ms", "jumps"), [(0, False), (GAP_MS - 1, False), (GAP_MS, True)])
def test_only_a_gap_without_leader_lets_time_jump(silence_ms: int, jumps: bool) -> None:
    monotonic, members = Monotonic(), Members([HOUR_MS, HOUR_MS, HOUR_MS])
    clock = ClusterClock(monotonic)
    clock.observe(1_000)
    monotonic.ns += silence_ms * 1_000_000
    asyncio.run(keeper(members, clock).before_leading())
    assert (clock.now_ms() >= HOUR_MS) is jumps
    assert bool(members.asked) is jumps


def test_a_restarted_node_asks_a_majority_and_never_goes_back() -> None:
    clock = ClusterClock(Monotonic())
    clock.begin_at(2 * HOUR_MS)
    members = Members([5 * HOUR_MS], [HOUR_MS, HOUR_MS, 9 * HOUR_MS])
    asyncio.run(keeper(members, clock).before_leading())
    assert members.asked == 2, "one wall clock is no majority"
    assert clock.now_ms() == 2 * HOUR_MS


def test_without_a_majority_only_a_birth_takes_the_own_wall_clock() -> None:
    members = Members([now_ms()])
    fresh = ClusterClock(Monotonic())
    asyncio.run(keeper(members, fresh).before_leading())
    assert abs(fresh.now_ms() - now_ms()) < HOUR_MS
    ahead = ClusterClock(Monotonic())
    ahead.begin_at(now_ms() + HOUR_MS)
    before = ahead.now_ms()
    asyncio.run(keeper(members, ahead).before_leading())
    assert ahead.now_ms() == before


def test_steering_needs_a_majority() -> None:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    clock.observe(HOUR_MS)
    clock.lead()
    monotonic.ns += 1_000_000
    asyncio.run(keeper(Members([2 * HOUR_MS]), clock).steer())
    monotonic.ns += 1_000_000_000
    assert clock.now_ms() == HOUR_MS + 1_001
    asyncio.run(keeper(Members([2 * HOUR_MS, 2 * HOUR_MS]), clock).steer())
    monotonic.ns += 1_000_000_000
    assert clock.now_ms() == HOUR_MS + 2_006

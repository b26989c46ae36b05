"""At what time a term begins, and whom a node asks for it."""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from qm.node.leader import timekeeping
from qm.node.leader.timekeeping import READING_MAX_AGE_MS, ROUND_TRIP_MAX_MS, Timekeeper, wall_ms
from qm.node.membership.peers import ClockReading, Peers
from qm.node.replica.clock import ClusterClock
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2

HOUR_MS = 3_600_000
YEARS_MS = 50 * 365 * 24 * HOUR_MS


class Monotonic:
    """A monotonic clock by hand."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def pass_ms(self, milliseconds: int) -> None:
        self.ns += milliseconds * 1_000_000


class Members(Peers):
    """Answers of three members, in turn; the last one repeated."""

    def __init__(
        self, monotonic: Monotonic, *answers: Sequence[int], round_trip_ms: int = 0
    ) -> None:
        self.monotonic = monotonic
        self.answers = list(answers)
        self.round_trip_ms = round_trip_ms
        self.asked: list[int] = []
        """How many answers were wanted, each time."""

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        raise NotImplementedError

    async def read_clocks(self, enough: int) -> dict[str, ClockReading]:
        self.asked.append(enough)
        walls = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        asked_ms = self.monotonic.ns // 1_000_000
        self.monotonic.pass_ms(self.round_trip_ms)
        answered_ms = asked_ms + self.round_trip_ms
        return {f"n{k}": ClockReading(wall, asked_ms, answered_ms) for k, wall in enumerate(walls)}

    def majority(self) -> int:
        return 2

    def count(self) -> int:
        return 3


class World:
    """A node whose cluster time was stamped last at `stamp_ms`; 0: never."""

    def __init__(
        self, *answers: Sequence[int], stamp_ms: int = YEARS_MS, round_trip_ms: int = 0
    ) -> None:
        self.monotonic = Monotonic()
        self.clock = ClusterClock(self.monotonic)
        self.clock.begin_at(stamp_ms)
        self.members = Members(self.monotonic, *answers, round_trip_ms=round_trip_ms)
        self.metrics = Metrics(CollectorRegistry())
        self.steps: list[str] = []
        self.keeper = Timekeeper(
            self.clock, self.members, self.metrics, self.monotonic, self.steps.append
        )

    def counted(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name) or 0.0


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeping, "ASK_MAX_S", 0.02)
    monkeypatch.setattr(timekeeping, "ASK_PAUSE_S", 0.001)


def test_every_term_begins_at_the_median_however_short_the_outage_was() -> None:
    world = World([YEARS_MS + 8_000] * 3)
    world.clock.observe(YEARS_MS)  # a moment ago: replayed by a restart, or stamped
    asyncio.run(world.keeper.before_leading())
    assert world.clock.now_ms() == YEARS_MS + 8_000
    assert world.members.asked == [2], "a majority is enough"
    assert world.counted("quorate_clock_jumped_seconds_total") == 8.0


def test_cluster_time_never_goes_back() -> None:
    world = World([YEARS_MS - HOUR_MS] * 3)
    asyncio.run(world.keeper.before_leading())
    assert world.clock.now_ms() == YEARS_MS
    assert world.counted("quorate_clock_jumped_seconds_total") == 0


def test_one_clock_that_is_ahead_moves_nothing() -> None:
    world = World([YEARS_MS + HOUR_MS, YEARS_MS + 5])
    asyncio.run(world.keeper.before_leading())
    assert world.clock.now_ms() == YEARS_MS + 5


def test_a_new_leader_asks_until_a_majority_answers() -> None:
    world = World([YEARS_MS + HOUR_MS], [YEARS_MS + 7, YEARS_MS + 9])
    asyncio.run(world.keeper.before_leading())
    assert world.members.asked == [2, 2]
    assert world.clock.now_ms() == YEARS_MS + 7


def test_a_follower_that_read_the_clocks_lately_asks_nobody_when_it_is_elected() -> None:
    world = World([YEARS_MS + 900] * 3)
    asyncio.run(world.keeper.watch())
    world.monotonic.pass_ms(100)
    asyncio.run(world.keeper.before_leading())
    assert world.members.asked == [3]
    assert world.clock.now_ms() == YEARS_MS + 1_000


def test_members_are_asked_in_every_second_round_while_all_of_them_answer() -> None:
    world = World([YEARS_MS] * 3)
    for _ in range(6):
        asyncio.run(world.keeper.watch())
        world.monotonic.pass_ms(1_000)
    assert len(world.members.asked) == 3
    silent = World([YEARS_MS] * 2)
    for _ in range(6):
        asyncio.run(silent.keeper.watch())
        silent.monotonic.pass_ms(1_000)
    assert len(silent.members.asked) == 6


def test_old_readings_count_no_more() -> None:
    world = World([YEARS_MS] * 3, [YEARS_MS + HOUR_MS] * 3)
    asyncio.run(world.keeper.watch())
    world.monotonic.pass_ms(READING_MAX_AGE_MS + 1)
    asyncio.run(world.keeper.before_leading())
    assert world.clock.now_ms() == YEARS_MS + HOUR_MS


def test_an_answer_counts_from_the_middle_of_its_round_trip_unless_it_took_too_long() -> None:
    world = World([YEARS_MS + 5_000] * 3, round_trip_ms=ROUND_TRIP_MAX_MS)
    asyncio.run(world.keeper.before_leading())
    assert world.clock.now_ms() == YEARS_MS + 5_000 + ROUND_TRIP_MAX_MS // 2
    slow = World([YEARS_MS + 5_000] * 3, round_trip_ms=ROUND_TRIP_MAX_MS + 1)
    before = slow.clock.now_ms()
    asyncio.run(slow.keeper.before_leading())
    assert slow.clock.now_ms() == before + slow.monotonic.ns // 1_000_000
    assert slow.counted("quorate_clock_unread_terms_total") == 1


def test_without_a_majority_only_a_birth_takes_the_own_wall_clock() -> None:
    fresh = World([wall_ms()], stamp_ms=0)
    asyncio.run(fresh.keeper.before_leading())
    assert abs(fresh.clock.now_ms() - wall_ms()) < HOUR_MS
    behind = World([wall_ms()], stamp_ms=YEARS_MS)
    asyncio.run(behind.keeper.before_leading())
    assert behind.clock.now_ms() == YEARS_MS
    assert behind.counted("quorate_clock_unread_terms_total") == 1


def test_steering_needs_a_majority() -> None:
    world = World([YEARS_MS + HOUR_MS], [YEARS_MS + HOUR_MS] * 3)
    world.clock.lead()
    world.monotonic.pass_ms(1)
    asyncio.run(world.keeper.steer())
    world.monotonic.pass_ms(1_000)
    assert world.clock.now_ms() == YEARS_MS + 1_001
    asyncio.run(world.keeper.steer())
    world.monotonic.pass_ms(1_000)
    assert world.clock.now_ms() == YEARS_MS + 2_006


def test_a_wall_clock_that_was_set_is_told() -> None:
    world = World([YEARS_MS] * 3)
    asyncio.run(world.keeper.watch())
    assert world.steps == []
    world.monotonic.pass_ms(HOUR_MS)  # and the wall clock stands still
    asyncio.run(world.keeper.watch())
    (told,) = world.steps
    assert "the wall clock was set by -" in told
    assert world.counted("quorate_clock_steps_total") == 1

"""Cluster time under clocks that step, drift and stop (DESIGN section 4, Time)."""

from hypothesis import given
from hypothesis import strategies as st

from qm.node.replica.clock import SLEW_SHARE, ClusterClock

MS = 1_000_000


class Monotonic:
    """A monotonic clock by hand, in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 5 * MS

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, milliseconds: float) -> None:
        self.now_ns += int(milliseconds * MS)


def leading(at_ms: int) -> tuple[ClusterClock, Monotonic]:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    clock.observe(at_ms)
    clock.lead()
    return clock, monotonic


def test_a_leader_counts_from_the_last_stamp_by_its_monotonic_clock() -> None:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    clock.observe(1_000)
    monotonic.pass_ms(250)
    clock.lead()
    assert clock.now_ms() == 1_250
    monotonic.pass_ms(50)
    clock.observe(1_200)  # its own, applied a moment later
    assert clock.now_ms() == 1_300


def test_a_follower_follows_stamps_and_never_goes_back() -> None:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    clock.observe(1_000)
    monotonic.pass_ms(500)
    assert clock.now_ms() == 1_500
    clock.observe(1_400)  # the leader's clock is slower
    assert clock.now_ms() == 1_500
    monotonic.pass_ms(50)
    assert clock.now_ms() == 1_500
    monotonic.pass_ms(100)
    assert clock.now_ms() == 1_550
    clock.lead()
    assert clock.now_ms() == 1_550


def test_wall_clocks_only_steer_slowly() -> None:
    for ahead_ms, sign in ((3_600_000, 1), (-3_600_000, -1)):
        clock, monotonic = leading(1_000_000)
        clock.steer([1_000_000 + ahead_ms] * 3)
        for _ in range(1_000):
            monotonic.pass_ms(1)
            clock.now_ms()
        assert clock.now_ms() == 1_001_000 + sign * 1_000 // SLEW_SHARE


def test_a_step_of_one_wall_clock_changes_nothing() -> None:
    clock, monotonic = leading(1_000)
    clock.steer([1_000, 1_000, 99_000_000])
    monotonic.pass_ms(10_000)
    assert clock.now_ms() == 11_000


def test_steering_ends_at_the_median() -> None:
    clock, monotonic = leading(1_000)
    clock.steer([1_020, 1_010, 5])
    monotonic.pass_ms(100_000)
    assert clock.now_ms() == 101_010


def test_it_jumps_forward_to_the_median_and_never_back() -> None:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    clock.observe(1_000)
    assert clock.jump([900, 500, 800]) == 0
    assert clock.jump([]) == 0
    assert clock.jump([90_000, 61_000, 5]) == 60_000
    assert clock.now_ms() == 61_000
    assert clock.jump([99_000, 70_000]) == 9_000, "of two the earlier"
    clock.observe(1_500)  # an entry of the last leader that is applied only now
    assert clock.now_ms() == 70_000


def test_a_leader_is_never_behind_what_older_leaders_stamped() -> None:
    clock, monotonic = leading(1_000)
    clock.observe(9_000)
    monotonic.pass_ms(10)
    assert clock.now_ms() == 9_010


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.integers(0, 10_000_000)),
            st.tuples(st.just("observe"), st.integers(0, 20_000)),
            st.tuples(st.just("steer"), st.integers(0, 10**9)),
            st.tuples(st.just("jump"), st.integers(0, 30_000)),
            st.tuples(st.just("lead"), st.just(0)),
            st.tuples(st.just("follow"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_it_never_goes_back(steps: list[tuple[str, int]]) -> None:
    monotonic = Monotonic()
    clock = ClusterClock(monotonic)
    told = clock.now_ms()
    for what, value in steps:
        if what == "pass":
            monotonic.now_ns += value
        elif what == "observe":
            clock.observe(value)
        elif what == "steer":
            clock.steer([value])
        elif what == "jump":
            clock.jump([value])
        elif what == "lead":
            clock.lead()
        else:
            clock.follow()
        now = clock.now_ms()
        assert now >= told
        told = now

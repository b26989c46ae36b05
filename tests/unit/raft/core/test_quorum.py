"""Arithmetic of majorities against a slow obvious version."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from raft.core.quorum import Tally, majority, reached_by_majority, tally

VOTERS = st.lists(st.integers(0, 20).map(str), unique=True, max_size=9)


def slow_reached(values: list[int]) -> int:
    """Try every set of voters that is a majority: the best of their worst."""
    size = len(values) // 2 + 1
    if not values:
        return 0
    return max(min(chosen) for chosen in combinations(values, size))


def slow_tally(voters: list[str], votes: dict[str, bool]) -> Tally:
    """Try to fill in the missing votes with all yes, and with all no."""
    yes = sum(votes.get(voter, False) for voter in voters)
    yes_at_best = sum(votes.get(voter, True) for voter in voters)
    if 2 * yes > len(voters):
        return Tally.WON
    return Tally.PENDING if 2 * yes_at_best > len(voters) else Tally.LOST


@given(st.lists(st.integers(0, 12), max_size=9))
def test_what_a_majority_has_reached(values: list[int]) -> None:
    """Raft 5.3."""
    assert reached_by_majority(values) == slow_reached(values)


@given(VOTERS, st.dictionaries(st.integers(0, 20).map(str), st.booleans()))
def test_where_a_vote_stands(voters: list[str], votes: dict[str, bool]) -> None:
    """Raft 5.2; votes of strangers do not count."""
    assert tally(voters, votes) is slow_tally(voters, votes)


@given(st.integers(1, 50))
def test_two_majorities_share_a_voter(voters: int) -> None:
    """A smaller number need not share one."""
    assert 2 * majority(voters) > voters
    assert 2 * (majority(voters) - 1) <= voters


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(0, 8))
def test_progress_never_takes_a_commit_back(values: list[int], which: int) -> None:
    """A voter that moves on moves the result on, or not at all."""
    before = reached_by_majority(values)
    values[which % len(values)] += 3
    assert reached_by_majority(values) >= before

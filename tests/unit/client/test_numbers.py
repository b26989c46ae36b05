from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qm.client.numbers import Numbers, in_parts, runs


def test_numbers_go_on_above_what_is_known_to_be_used() -> None:
    numbers = Numbers(confirmed_upto=4, highest=9)
    assert numbers.take(3) == 10
    assert numbers.take() == 13
    assert numbers.confirmed_upto == 4


def test_a_gap_holds_confirmation_back_until_it_is_finished() -> None:
    numbers = Numbers(0, 0)
    first, second, third = numbers.take(), numbers.take(2), numbers.take()
    numbers.finish(third)
    numbers.finish(second, 2)
    assert numbers.confirmed_upto == 0
    numbers.finish(first)
    assert numbers.confirmed_upto == 4
    assert numbers.open_count == 0


@given(st.permutations(range(1, 30)))
def test_any_order_of_finishing_confirms_the_longest_prefix(order: list[int]) -> None:
    numbers = Numbers(0, 0)
    numbers.take(len(order))
    for done, number in enumerate(order, start=1):
        numbers.finish(number)
        finished = set(order[:done])
        prefix = next(n for n in range(1, 32) if n not in finished) - 1
        assert numbers.confirmed_upto == prefix


@given(st.lists(st.integers(0, 60), unique=True))
def test_runs_say_the_same_numbers(numbers: list[int]) -> None:
    ordered = sorted(numbers)
    found = runs(ordered)
    assert [n for first, count in found for n in range(first, first + count)] == ordered
    assert all(a + b < c for (a, b), (c, _) in pairwise(found))


def test_long_runs_are_cut() -> None:
    assert in_parts([(1, 5), (9, 2), (20, 4)], 2) == [
        (1, 2), (3, 2), (5, 1), (9, 2), (20, 2), (22, 2),
    ]  # fmt: skip

"""Where a replay is cut."""

import random
from itertools import combinations

import pytest

from qm.archive.checkpoints import Checkpoint
from spark.replay.cuts import PIECES_PER_SLOT, Cutting
from tests.spark.files import CLUSTER

UPTO = 1000


def checkpoints(indexes: list[int], stream_bytes: int = 0) -> list[Checkpoint]:
    return [
        Checkpoint(
            schema=1, cluster=CLUSTER, node="n1.1", group=1, index=index, term=1, digest="",
            stream_bytes=stream_bytes,
        )
        for index in indexes
    ]  # fmt: skip


def chosen(indexes: list[int], slots: int, stream_bytes: int = 0) -> list[int]:
    cutting = Cutting(float, UPTO, slots)
    return [one.index for one in cutting.choose(checkpoints(indexes, stream_bytes))]


@pytest.mark.parametrize(
    ("indexes", "slots", "expected"),
    [
        ([], 4, []),
        ([500], 1, []),
        ([500], 2, [500]),
        ([300, 500, 700], 2, [500]),
        ([180, 370, 650, 860], 2, [370, 860]),  # 500 on each, of three pieces
        ([100, 200, 300, 400, 500, 600, 700, 800, 900], 5, [200, 400, 600, 800]),
        ([250, 500, 750], 64, [250, 500, 750]),
    ],
)
def test_slots_are_done_at_the_same_time(
    indexes: list[int], slots: int, expected: list[int]
) -> None:
    assert chosen(indexes, slots) == expected


def test_a_state_that_costs_more_than_it_saves_is_not_loaded() -> None:
    assert chosen([100], 2, stream_bytes=400) == [100]
    assert chosen([100], 2, stream_bytes=1000) == []


def test_few_of_very_many_are_considered() -> None:
    found = chosen(list(range(1, UPTO)), 3)
    assert 2 <= len(found) < 3 * PIECES_PER_SLOT
    assert Cutting(float, UPTO, 3).span(checkpoints(found)) < 1.1 * UPTO / 3


@pytest.mark.parametrize("seed", range(20))
def test_it_takes_little_longer_than_the_best_cuts(seed: int) -> None:
    chance = random.Random(seed)
    inside = checkpoints(sorted(chance.sample(range(1, UPTO), 6)), stream_bytes=100)
    for slots in (2, 3):
        cutting = Cutting(float, UPTO, slots)
        best = min(cutting.span(cuts) for count in range(7) for cuts in combinations(inside, count))
        assert cutting.span(cutting.choose(inside)) <= 1.15 * best


def test_the_longest_piece_begins_first() -> None:
    cutting = Cutting(float, UPTO, 2)
    assert cutting.order(checkpoints([180, 900])) == [1, 0, 2]

"""Credit: each number is given out once, and their number is bounded."""

import random

import pytest

from qm.api.data.credit import CREDIT_MAX, Credit
from qm.api.gate.errors import InvalidArgument, LimitReached


def test_credit_gives_out_every_number_once_whatever_is_answered() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        credit, open_numbers, following = Credit(), set[int](), 1
        for _ in range(60):
            if chance.random() < 0.4 and credit.count < CREDIT_MAX - 50:
                following += chance.choice((0, 0, 3))
                count = chance.randint(1, 50)
                credit.grant(following, count)
                open_numbers |= set(range(following, following + count))
                following += count
            first, count = credit.head(20)
            assert (count == 0) == (not open_numbers)
            numbers = [n for n in range(first, first + count) if chance.random() < 0.7]
            assert set(range(first, first + count)) <= open_numbers
            credit.answered(numbers)
            open_numbers -= set(numbers)
            assert credit.count == len(open_numbers), seed


def test_credit_is_bounded() -> None:
    credit = Credit()
    with pytest.raises(LimitReached):
        credit.grant(1, CREDIT_MAX + 1)
    for first, count in ((0, 1), (1, 0), (1 << 64, 1)):
        with pytest.raises(InvalidArgument):
            credit.grant(first, count)

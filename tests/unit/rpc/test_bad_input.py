"""The invariant of tests.fuzz.rpc on the vectors and on what chance makes of them."""

import random

import pytest

from tests.fuzz.rpc import check_input, check_stub, check_token, seeds


@pytest.mark.spec("RP-OUR-limits-01", "RP-OUR-limits-04", "RP-RPCE-3.1.1.5.2-01")
def test_changed_bytes_end_in_an_answer_or_a_closed_connection() -> None:
    chance = random.Random(33)
    known = [raw for _, raw in seeds() if raw]
    for raw in known:
        check_input(raw)
    for _ in range(150):
        changed = bytearray(chance.choice(known)[:600])
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        check_stub(bytes(changed))
        check_token(bytes(changed[: chance.randrange(len(changed)) + 1]))

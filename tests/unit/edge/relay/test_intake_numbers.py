"""Numbers of sessions, as the replicated state remembers refused ones by them."""

from __future__ import annotations

from qm.edge.relay.relay import IntakeNumbers

NOW_MS = 1_800_000_000_000


def test_a_process_that_is_started_anew_gives_none_of_before() -> None:
    before, after = IntakeNumbers(), IntakeNumbers()
    old = [before.next(NOW_MS + k // 900) for k in range(10_000)]
    new = [after.next(NOW_MS + 12) for _ in range(10)]
    assert old == sorted(set(old))
    assert max(old) < min(new)


def test_a_clock_that_stands_still_repeats_no_number() -> None:
    numbers = IntakeNumbers()
    assert len({numbers.next(NOW_MS) for _ in range(3_000)}) == 3_000

"""Codes and sessions of the console."""

from collections.abc import Callable
from itertools import count

from qm.api.gate.identity import Role, principal_of
from qm.console.sign_ins import (
    CODE_VALID_S,
    CODES_MAX,
    IDLE_MAX_S,
    SESSION_MAX_S,
    SESSIONS_MAX,
    SignIns,
)

ALICE = principal_of("alice", Role.ADMIN)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[SignIns, Clock]:
    clock = Clock()
    numbers = count()
    secret: Callable[[], str] = lambda: f"secret-{next(numbers)}"  # noqa: E731
    return SignIns(clock, secret), clock


def test_a_code_signs_in_once_and_within_its_time() -> None:
    sign_ins, clock = made()
    code = sign_ins.code_for(ALICE)
    assert sign_ins.redeem(code) is ALICE
    assert sign_ins.redeem(code) is None
    late = sign_ins.code_for(ALICE)
    clock.now += CODE_VALID_S
    assert sign_ins.redeem(late) is None
    first, *others = [sign_ins.code_for(ALICE) for _ in range(CODES_MAX + 1)]
    assert sign_ins.redeem(first) is None
    assert sign_ins.redeem(others[0]) is ALICE


def test_a_session_ends_when_it_is_idle_or_old() -> None:
    sign_ins, clock = made()
    idle, busy = sign_ins.begin(ALICE), sign_ins.begin(ALICE)
    for _ in range(int(SESSION_MAX_S / IDLE_MAX_S)):
        clock.now += IDLE_MAX_S - 1
        assert sign_ins.find(busy) is not None
    assert sign_ins.find(idle) is None
    clock.now = SESSION_MAX_S + 1
    assert sign_ins.find(busy) is None


def test_one_session_too_many_ends_the_one_that_was_used_least() -> None:
    sign_ins, clock = made()
    cookies = []
    for _ in range(SESSIONS_MAX):
        clock.now += 1
        cookies.append(sign_ins.begin(ALICE))
    clock.now += 1
    assert sign_ins.find(cookies[0]) is not None
    sign_ins.begin(ALICE)
    assert sign_ins.knows(cookies[0])
    assert not sign_ins.knows(cookies[1])
    sign_ins.end(cookies[0])
    assert sign_ins.find(cookies[0]) is None

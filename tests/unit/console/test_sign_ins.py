"""Codes and sessions of the console."""

from collections.abc import Callable
from itertools import count

from qm.api.gate.identity import Role, principal_of
from qm.console.sign_ins import (
    CODE_VALID_S,
    CODES_MAX,
    CODES_PER_PERSON_MAX,
    IDLE_MAX_S,
    SESSION_MAX_S,
    SESSIONS_MAX,
    SESSIONS_PER_PERSON_MAX,
    Person,
    SignIns,
)

REVOKED: set[str] = set()


def person(name: str) -> Person:
    return Person(principal_of(name, Role.ADMIN), lambda: name not in REVOKED)


ALICE, BOB = person("alice"), person("bob")


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
    first, *others = [sign_ins.code_for(ALICE) for _ in range(CODES_PER_PERSON_MAX + 1)]
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
    for _ in range(SESSIONS_PER_PERSON_MAX):
        clock.now += 1
        cookies.append(sign_ins.begin(ALICE))
    clock.now += 1
    assert sign_ins.find(cookies[0]) is not None
    sign_ins.begin(ALICE)
    assert sign_ins.knows(cookies[0])
    assert not sign_ins.knows(cookies[1])
    sign_ins.end(cookies[0])
    assert sign_ins.find(cookies[0]) is None


def test_nobody_pushes_out_what_belongs_to_others() -> None:
    sign_ins, _ = made()
    code, cookie = sign_ins.code_for(BOB), sign_ins.begin(BOB)
    for _ in range(CODES_MAX + SESSIONS_MAX):
        sign_ins.code_for(ALICE)
        sign_ins.begin(ALICE)
    assert sign_ins.find(cookie) is not None
    assert sign_ins.redeem(code) is BOB


def test_where_all_are_taken_those_who_have_most_give_way() -> None:
    sign_ins, _ = made()
    own = sign_ins.begin(BOB)
    many = [person(f"p{k}") for k in range(SESSIONS_MAX // SESSIONS_PER_PERSON_MAX + 1)]
    cookies = [[sign_ins.begin(one) for _ in range(SESSIONS_PER_PERSON_MAX)] for one in many]
    assert sign_ins.knows(own)
    found = [sum(map(sign_ins.knows, some)) for some in cookies]
    assert sum(found) == SESSIONS_MAX - 1
    assert min(found) > 0
    newest = sign_ins.begin(person("carol"))
    assert sign_ins.knows(newest)
    assert sign_ins.knows(own)
    own_code = sign_ins.code_for(BOB)
    for k in range(2 * CODES_MAX):
        sign_ins.code_for(many[k % len(many)])
    assert sign_ins.redeem(own_code) is BOB


def test_a_session_ends_with_what_began_it() -> None:
    sign_ins, _ = made()
    cookie, other = sign_ins.begin(ALICE), sign_ins.begin(BOB)
    assert sign_ins.find(cookie) is not None
    REVOKED.add(ALICE.who.name)
    try:
        assert sign_ins.find(cookie) is None
        assert sign_ins.find(other) is not None
    finally:
        REVOKED.clear()
    assert sign_ins.find(cookie) is None

"""Signing in with name and password: who may, what others hear, and what slows guessing down."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from qm.api.gate.identity import OPERATORS, ROLE_GROUPS, USERS, Role, principal_sid, role_of_groups
from qm.console.passwords import (
    CHECKS_MAX,
    CHECKS_OF_PLACE_MAX,
    FAILURES_OF_NAME_HERE_MAX,
    FAILURES_OF_NAME_MAX,
    FAILURES_OF_PLACE_MAX,
    PASSWORD_MAX_CHARS,
    WINDOW_S,
    PasswordCheck,
    User,
    Users,
    UsersUnknown,
)
from qm.console.sign_ins import Person, Refused
from qm.rpc.security.ntlm_keys import nt_hash
from qm.security.passwords import SALT_BYTES, is_password, is_verifier, verifier_of
from qm.security.sid import ADMINISTRATORS

SECRET = "correct horse"
VERIFIER = verifier_of(SECRET, b"s" * SALT_BYTES)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def user(name: str, kept: bytes = VERIFIER, role: Role | None = Role.OPERATOR) -> User:
    return User(name, principal_sid(name), role, True, kept)


class Directory(Users):
    def __init__(self, *users: User) -> None:
        self.users = {one.name: one for one in users}
        self.is_known = True

    def find(self, name: str, domain: str) -> User | None:
        if not self.is_known:
            raise UsersUnknown("its state is being replaced")
        return self.users.get(name.casefold())


class World:
    def __init__(self, *users: User) -> None:
        self.now = 0.0
        self.directory = Directory(*users)
        self.said: list[tuple[str, str]] = []
        self.check = PasswordCheck(
            self.directory, lambda: self.now, lambda why, place: self.said.append((why, place))
        )

    async def person(self, name: str, password: str = SECRET, place: str = HERE) -> Person:
        return await self.check.person(name, password, place)

    async def refusal(self, name: str, password: str = "wrong", place: str = HERE) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.person(name, password, place)
        return caught.value


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_verifier_is_of_one_password_and_of_the_cost_of_this_build() -> None:
    assert is_verifier(VERIFIER)
    assert is_password(SECRET, VERIFIER)
    assert not is_password(SECRET + " ", VERIFIER)
    assert verifier_of(SECRET, b"t" * SALT_BYTES) != VERIFIER
    for other in (b"", nt_hash(SECRET), VERIFIER[:-1], b"\x01\x1f" + VERIFIER[2:]):
        assert not is_verifier(other)
        assert not is_password(SECRET, other)
    with pytest.raises(ValueError, match="salt"):
        verifier_of(SECRET, b"short")


def test_groups_give_the_most_powerful_role() -> None:
    assert role_of_groups([]) is None
    assert role_of_groups([principal_sid("x")]) is None
    assert role_of_groups([USERS, OPERATORS]) is Role.OPERATOR
    assert role_of_groups([OPERATORS, USERS, ADMINISTRATORS]) is Role.ADMIN
    assert Role.NODE not in ROLE_GROUPS


def test_hash_and_verifier_sign_in_with_the_role_and_sid_of_the_user() -> None:
    async def work() -> None:
        sid = principal_sid("somebody else")
        kept = User("Alice", sid, Role.ADMIN, True, nt_hash(SECRET))
        world = World(kept, user("bob"))
        world.directory.users["alice"] = kept
        found = await world.person("ALICE")
        assert (found.who.name, found.who.role) == ("Alice", Role.ADMIN)
        assert found.who.sids == (sid, ADMINISTRATORS)
        assert (await world.person(" EXAMPLE\\bob ")).who.name == "bob"
        assert not world.said

    run(work())


def test_everybody_else_hears_the_same() -> None:
    async def work() -> None:
        off = msgspec.structs.replace(user("off"), is_enabled=False)
        world = World(user("alice"), user("none", role=None), off, user("empty", nt_hash("")))
        answers = {
            (str(one), one.status)
            for one in (
                await world.refusal("alice"),
                await world.refusal("nobody"),
                await world.refusal("none", SECRET),
                await world.refusal("off", SECRET),
                await world.refusal("empty", ""),
                await world.refusal("alice", "x" * (PASSWORD_MAX_CHARS + 1)),
                await world.refusal("\0'; --\n" * 99),
            )
        }
        assert len(answers) == 1
        told = [why for why, _ in world.said]
        assert told[:4] == [
            "a wrong password of alice",
            "an unknown name",
            "none has no role: `qm user add --role` gives one",
            "the account of off is disabled",
        ]
        assert told[-1] == "an unknown name"
        assert {place for _, place in world.said} == {HERE}

    run(work())


def test_an_unknown_name_takes_as_long_as_a_wrong_password() -> None:
    async def work() -> None:
        world = World(user("hash", nt_hash(SECRET)), user("alice"))
        loop = asyncio.get_running_loop()
        took = {}
        for name in ("alice", "hash", "nobody"):
            best = 99.0
            for _ in range(3):
                began = loop.time()
                await world.refusal(name)
                best = min(best, loop.time() - began)
            took[name] = best
        assert max(took.values()) < 2 * min(took.values()), took

    run(work())


def test_guessing_ends_for_a_name_at_a_place_and_begins_again_later() -> None:
    async def work() -> None:
        world = World(user("alice"))
        for name in ("alice", "nobody"):
            for _ in range(FAILURES_OF_NAME_HERE_MAX):
                assert (await world.refusal(name)).status == 403
            before = len(world.said)
            for _ in range(3):
                assert (await world.refusal(name, SECRET)).status == 429
            assert len(world.said) - before <= 1
        assert (await world.person("alice", place=THERE)).who.name == "alice"
        world.now += WINDOW_S + 1
        assert (await world.person("alice")).who.name == "alice"

    run(work())


def test_a_right_password_forgets_the_wrong_ones() -> None:
    async def work() -> None:
        world = World(user("alice"))
        for _ in range(3):
            for _ in range(FAILURES_OF_NAME_HERE_MAX - 1):
                assert (await world.refusal("alice")).status == 403
            await world.person("alice")

    run(work())


def test_a_place_may_not_try_many_names_nor_many_places_one() -> None:
    async def work() -> None:
        world = World(user("alice"))
        for number in range(FAILURES_OF_PLACE_MAX):
            assert (await world.refusal(f"n{number}")).status == 403
        assert (await world.refusal("alice", SECRET)).status == 429
        for number in range(FAILURES_OF_NAME_MAX):
            assert (await world.refusal("alice", place=f"p{number}")).status == 403
        assert (await world.refusal("alice", SECRET, THERE)).status == 429

    run(work())


def test_few_passwords_are_checked_at_once_and_all_attempts_count() -> None:
    async def work() -> None:
        world = World(user("alice"))
        many = [world.refusal("alice", place=HERE) for _ in range(4 * FAILURES_OF_NAME_HERE_MAX)]
        many += [world.refusal(f"n{k}", place=f"p{k}") for k in range(2 * CHECKS_MAX)]
        found = await asyncio.gather(*many)
        here = [one.status for one in found[: 4 * FAILURES_OF_NAME_HERE_MAX]]
        assert here.count(403) <= CHECKS_OF_PLACE_MAX
        assert [one.status for one in found].count(403) <= CHECKS_MAX
        assert {503, 403} <= {one.status for one in found} <= {503, 429, 403}
        world.now += WINDOW_S + 1
        assert (await world.person("alice")).who.name == "alice"

    run(work())


def test_what_is_refused_for_want_of_room_is_no_failure() -> None:
    async def work() -> None:
        world = World(user("alice"))
        world.directory.is_known = False
        for _ in range(2 * FAILURES_OF_NAME_HERE_MAX):
            assert (await world.refusal("alice")).status == 503
        world.directory.is_known = True
        assert (await world.person("alice")).who.name == "alice"

    run(work())


@pytest.mark.parametrize(
    "change",
    [
        {"kept": nt_hash("new")},
        {"role": Role.CLIENT},
        {"role": None},
        {"is_enabled": False},
        {"sid": principal_sid("x")},
    ],
)
def test_a_person_holds_as_long_as_the_user_is_the_same(change: dict[str, Any]) -> None:
    async def work() -> None:
        world = World(user("alice"))
        person = await world.person("alice")
        assert person.holds()
        world.directory.is_known = False
        assert person.holds()
        world.directory.is_known = True
        world.directory.users["alice"] = msgspec.structs.replace(user("alice"), **change)
        assert not person.holds()
        del world.directory.users["alice"]
        assert not person.holds()

    run(work())

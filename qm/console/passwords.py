"""Signing in with name and password, by the users of the cluster who have a role (`qm user`)."""

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from qm.api.gate.identity import Role, principal_of
from qm.console.sign_ins import Person, Refused
from qm.rpc.security.ntlm_keys import nt_hash
from qm.security.guesses import Guesses
from qm.security.passwords import is_password
from qm.security.sid import Sid

WINDOW_S: Final = 60.0
FAILURES_OF_NAME_HERE_MAX: Final = 5
"""Within WINDOW_S, of one name from one place: an address, or a network of IPv6 (/64)."""
FAILURES_OF_PLACE_MAX: Final = 15
"""Of all names from one place."""
FAILURES_OF_NAME_MAX: Final = 30
"""Of one name from all places. Who guesses from many can keep its owner from signing in with the
password, not with a certificate or `qm console`."""
KEYS_MAX: Final = 4_096
"""Names and places whose failures are remembered."""
CHECKS_MAX: Final = 6
"""Passwords that are checked or wait for it: one after another, since each takes a quarter of a
second of a core and is asked for by anybody."""
CHECKS_OF_PLACE_MAX: Final = 2
CHECK_WAIT_MAX_S: Final = 2.0
PASSWORD_MAX_CHARS: Final = 1_024
_WRONG: Final = "This name and password do not open the console."
_LOCKED: Final = (
    "Too many attempts: wait a minute. `qm console` and certificates sign in all the same."
)
_BUSY: Final = "Too many people sign in with passwords at this moment: try again."


class User(msgspec.Struct, frozen=True):
    """A user of the cluster with a password, as it is now."""

    name: str
    sid: Sid
    role: Role | None
    """None: it may not sign in here."""
    is_enabled: bool
    kept: bytes
    """Of its password: the NT hash, or a verifier. Never shown."""


class UsersUnknown(Exception):
    """This node does not know now which users there are."""


class Users(Protocol):
    """The users of the cluster, as this node has applied them."""

    def find(self, name: str, domain: str) -> User | None:
        """Return the user of a name, in any case. Raises UsersUnknown."""


class PasswordCheck:
    """Judges names and passwords; whether somebody exists is told by neither answer nor time."""

    def __init__(
        self, users: Users, now_s: Callable[[], float], refused: Callable[[str, str], None]
    ) -> None:
        """`refused` is told (why, place) of each refusal; of those that follow one after too many
        failures, of the first.
        """
        self._users = users
        self._refused = refused
        self._of_pair = Guesses(FAILURES_OF_NAME_HERE_MAX, WINDOW_S, KEYS_MAX, now_s)
        self._of_place = Guesses(FAILURES_OF_PLACE_MAX, WINDOW_S, KEYS_MAX, now_s)
        self._of_name = Guesses(FAILURES_OF_NAME_MAX, WINDOW_S, KEYS_MAX, now_s)
        self._locks_told = Guesses(1, WINDOW_S, KEYS_MAX, now_s)
        self._in_turn = asyncio.Lock()
        self._waiting: Counter[str] = Counter()

    async def person(self, given: str, password: str, place: str) -> Person:
        """Return whom a name and a password prove; the name may have its domain and a backslash
        before it. Raises Refused.
        """
        domain, _, name = given.strip().rpartition("\\")
        key = hmac.digest(b"name", name.casefold().encode(), "sha256")  # bounded, whatever came
        counted = ((self._of_pair, (key, place)), (self._of_place, place), (self._of_name, key))
        if any(guesses.is_over(one) for guesses, one in counted):
            self._tell_of_lock(place)
            raise Refused(_LOCKED, 429)
        for guesses, one in counted:  # now, or many at once would all be within the limits
            guesses.note(one)
        try:
            with _Place(self._waiting, place):
                user = self._found(name, domain)
                is_right = await self._is_right(password, b"" if user is None else user.kept)
        except Refused:
            for guesses, one in counted:
                guesses.take_back(one)
            raise
        if user is None or not is_right or not user.is_enabled or user.role is None:
            self._refused(_why(user, is_right), place)
            raise Refused(_WRONG, 403)
        self._of_pair.forget((key, place))
        self._of_place.take_back(place)
        self._of_name.take_back(key)
        return Person(
            principal_of(user.name, user.role, user.sid), lambda: self._holds(user, name, domain)
        )

    def _found(self, name: str, domain: str) -> User | None:
        try:
            return self._users.find(name, domain)
        except UsersUnknown as error:
            raise Refused(f"This node cannot check passwords now: {error}", 503) from None

    def _holds(self, user: User, name: str, domain: str) -> bool:
        """Whether nothing of a user has changed."""
        try:
            return self._users.find(name, domain) == user
        except UsersUnknown:  # nothing can be called here, either
            return True

    def _tell_of_lock(self, place: str) -> None:
        if not self._locks_told.is_over(place):
            self._locks_told.note(place)
            self._refused("too many wrong names and passwords", place)

    async def _is_right(self, password: str, kept: bytes) -> bool:
        if not 0 < len(password) <= PASSWORD_MAX_CHARS:
            password, kept = "", b""
        try:
            async with asyncio.timeout(CHECK_WAIT_MAX_S):
                await self._in_turn.acquire()
        except TimeoutError:
            raise Refused(_BUSY, 503) from None
        try:
            return await asyncio.to_thread(_is_right, password, kept)
        finally:
            self._in_turn.release()


class _Place:
    """A place in the line for checks. Raises Refused."""

    def __init__(self, waiting: Counter[str], place: str) -> None:
        self._waiting = waiting
        self._place = place

    def __enter__(self) -> None:
        waiting = self._waiting
        if waiting.total() >= CHECKS_MAX or waiting[self._place] >= CHECKS_OF_PLACE_MAX:
            raise Refused(_BUSY, 503)
        waiting[self._place] += 1

    def __exit__(self, *_: object) -> None:
        self._waiting[self._place] -= 1
        if not self._waiting[self._place]:
            del self._waiting[self._place]


def _is_right(password: str, kept: bytes) -> bool:
    """Whether the password is the one; as long for whatever is kept, and for nothing."""
    is_hash = hmac.compare_digest(nt_hash(password), kept)
    return is_password(password, kept) or is_hash


def _why(user: User | None, is_right: bool) -> str:
    """Return a refusal's reason for operators. Names that nobody has are not repeated: they may be
    passwords in the wrong field.
    """
    if user is None:
        return "an unknown name"
    if not is_right:
        return f"a wrong password of {user.name}"
    if not user.is_enabled:
        return f"the account of {user.name} is disabled"
    return f"{user.name} has no role: `qm user add --role` gives one"

"""Who is signed in to the console: codes for signing in and sessions, in one node's memory."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from qm.api.gate.identity import Principal

CODE_VALID_S: Final = 60.0
CODES_PER_PERSON_MAX: Final = 8
"""Codes that nobody has used yet; the person's oldest gives way."""
CODES_MAX: Final = 256
"""Of all; then the oldest of whoever has most of them."""
IDLE_MAX_S: Final = 3_600.0
SESSION_MAX_S: Final = 12 * 3_600.0
SESSIONS_PER_PERSON_MAX: Final = 16
"""The person's session that was used least recently gives way."""
SESSIONS_MAX: Final = 256
"""Of all; then the one that was used least recently of whoever has most of them."""


class Refused(Exception):
    """Somebody may not sign in; the text tells them no more than they may know."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status: Final = status


class Person(msgspec.Struct, frozen=True):
    """Who signs in."""

    who: Principal
    holds: Callable[[], bool]
    """Whether what proved it still does: the certificate, or the user with this password."""
    session_max_s: float = SESSION_MAX_S
    way_out: Callable[[], Awaitable[str]] | None = None
    """Returns the address at which who proved it signs them out as well, "" for none."""


class Session(msgspec.Struct):
    """One browser."""

    person: Person
    token: str
    """Goes with every request that changes something, so that no other site can make one."""
    began_s: float
    used_s: float

    @property
    def who(self) -> Principal:
        """Who signed in."""
        return self.person.who


class SignIns:
    """Codes and sessions of one node."""

    def __init__(self, monotonic_s: Callable[[], float], secret: Callable[[], str]) -> None:
        """`secret` makes a new one that cannot be guessed."""
        self._monotonic_s = monotonic_s
        self._secret = secret
        self._codes: dict[str, tuple[Person, float]] = {}
        """The oldest first."""
        self._sessions: dict[str, Session] = {}
        """The one that was used least recently first."""

    def code_for(self, person: Person) -> str:
        """Return a code that signs somebody in once, within CODE_VALID_S."""
        owners = {code: one.who.name for code, (one, _) in self._codes.items()}
        for code in giving_way(owners, person.who.name, CODES_PER_PERSON_MAX, CODES_MAX):
            del self._codes[code]
        code = self._secret()
        self._codes[code] = (person, self._monotonic_s() + CODE_VALID_S)
        return code

    def redeem(self, code: str) -> Person | None:
        """Return for whom a code was made, None if it is unknown, used or too old, or what proved
        the person does no more.
        """
        person, valid_until_s = self._codes.pop(code, (None, 0.0))
        if person is None or self._monotonic_s() >= valid_until_s or not person.holds():
            return None
        return person

    def begin(self, person: Person) -> str:
        """Begin a session; return the value of its cookie."""
        owners = {cookie: one.who.name for cookie, one in self._sessions.items()}
        for cookie in giving_way(owners, person.who.name, SESSIONS_PER_PERSON_MAX, SESSIONS_MAX):
            del self._sessions[cookie]
        now = self._monotonic_s()
        cookie = self._secret()
        self._sessions[cookie] = Session(person, self._secret(), now, now)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, None if there is none, it is over, or what began it holds
        no more.
        """
        session = self._sessions.get(cookie)
        if session is None:
            return None
        now = self._monotonic_s()
        del self._sessions[cookie]
        person = session.person
        if now - session.used_s > IDLE_MAX_S or now - session.began_s > person.session_max_s:
            return None
        if not person.holds():
            return None
        self._sessions[cookie] = session
        session.used_s = now
        return session

    def knows(self, cookie: str) -> bool:
        """Whether a session exists, without using it."""
        return cookie in self._sessions

    def end(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)


def giving_way(owners: Mapping[str, str], person: str, own_max: int, all_max: int) -> list[str]:
    """Return which of some keys, in the order in which they give way and with the names of their
    owners, do so for another one of a person.
    """
    counts = Counter(owners.values())
    if counts[person] >= own_max:
        return [next(key for key, owner in owners.items() if owner == person)]
    if len(owners) < all_max:
        return []
    (greediest, _) = counts.most_common(1)[0]
    return [next(key for key, owner in owners.items() if owner == greediest)]

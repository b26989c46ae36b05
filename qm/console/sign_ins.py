"""Who is signed in to the console: codes for signing in and sessions, in one node's memory."""

from collections.abc import Callable
from typing import Final

import msgspec

from qm.api.gate.identity import Principal

CODE_VALID_S: Final = 60.0
CODES_MAX: Final = 256
"""Codes that nobody has used yet; the oldest gives way."""
IDLE_MAX_S: Final = 3_600.0
SESSION_MAX_S: Final = 12 * 3_600.0
SESSIONS_MAX: Final = 256
"""The one that was used least recently gives way."""


class Session(msgspec.Struct):
    """One browser."""

    who: Principal
    token: str
    """Goes with every request that changes something, so that no other site can make one."""
    began_s: float
    used_s: float


class SignIns:
    """Codes and sessions of one node."""

    def __init__(self, monotonic_s: Callable[[], float], secret: Callable[[], str]) -> None:
        """`secret` makes a new one that cannot be guessed."""
        self._monotonic_s = monotonic_s
        self._secret = secret
        self._codes: dict[str, tuple[Principal, float]] = {}
        self._sessions: dict[str, Session] = {}

    def code_for(self, who: Principal) -> str:
        """Return a code that signs somebody in once, within CODE_VALID_S."""
        code = self._secret()
        self._codes[code] = (who, self._monotonic_s() + CODE_VALID_S)
        while len(self._codes) > CODES_MAX:
            del self._codes[next(iter(self._codes))]
        return code

    def redeem(self, code: str) -> Principal | None:
        """Return for whom a code was made, None if it is unknown, used or too old."""
        who, valid_until_s = self._codes.pop(code, (None, 0.0))
        return who if self._monotonic_s() < valid_until_s else None

    def begin(self, who: Principal) -> str:
        """Begin a session; return the value of its cookie."""
        now = self._monotonic_s()
        cookie = self._secret()
        self._sessions[cookie] = Session(who, self._secret(), now, now)
        while len(self._sessions) > SESSIONS_MAX:
            oldest = min(self._sessions, key=lambda one: self._sessions[one].used_s)
            del self._sessions[oldest]
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, None if there is none or it is over."""
        session = self._sessions.get(cookie)
        if session is None:
            return None
        now = self._monotonic_s()
        if now - session.used_s > IDLE_MAX_S or now - session.began_s > SESSION_MAX_S:
            del self._sessions[cookie]
            return None
        session.used_s = now
        return session

    def knows(self, cookie: str) -> bool:
        """Whether a session exists, without using it."""
        return cookie in self._sessions

    def end(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)

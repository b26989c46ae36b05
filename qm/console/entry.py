"""The ways into the console: a code, a certificate, a password, an OpenID provider."""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from qm.console.forms import form_of
from qm.console.passwords import PasswordCheck, Users
from qm.console.people import certified
from qm.console.sign_ins import Person, Refused, SignIns
from qm.console.single_sign_on import ATTEMPT_MAX_S, BACK_PATH, SingleSignOn, SsoSettings
from qm.security.guesses import Guesses

FORM_MAX_BYTES: Final = 8 << 10
"""Of a name and a password, which anybody may post."""
FORM_COOKIE: Final = "__Host-quorate-form"
ATTEMPT_COOKIE: Final = "__Host-quorate-provider"
"""Comes back with the provider's redirection, unlike that of a session (SameSite=Lax)."""
_BEGIN_PATH: Final = "/sign-in/provider"
_SIGNED_OUT: Final = "out"
SIGNED_OUT_PATH: Final = f"/sign-in?{_SIGNED_OUT}=1"
"""Where signing out ends: a certificate of the browser would sign in again at once elsewhere."""
_SECRET_BYTES: Final = 32
_SECRET_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_AT_HOME: Final = "here"
"""In the query of an attempt that was sent to the console's own address, so that a proxy which
changes hosts makes no circle."""

_FROM_ELSEWHERE: Final = (
    "Another site led here with a code, which could sign you in as somebody else. If you asked for"
    " this address yourself, paste it into the address bar."
)

Enter = Callable[[web.Request, Person, str], Awaitable[str]]
"""(request, who, how) -> the cookie of the session that begins."""


TOLD_WINDOW_S: Final = 60.0
SIGN_INS_TOLD_MAX: Final = 10
"""Events within TOLD_WINDOW_S of one person who signs in over and over."""
REFUSALS_OF_PLACE_TOLD_MAX: Final = 24
"""Events of those who did not come in, from one address or network."""
REFUSALS_TOLD_MAX: Final = 40
"""Events of all of them: fewer than the cluster's history takes, or strangers could keep it from
telling who came in.
"""
_TOLD_KEYS_MAX: Final = 4_096
_NO_MORE: Final = "; more of this are not told for a minute"


class Ways(msgspec.Struct, frozen=True):
    """What else signs people in, beside codes and certificates."""

    users: Users | None
    """None: nobody signs in with a password."""
    provider: SsoSettings | None
    note: Callable[[str, str, str], None]
    """Of (event, text, principal): an event for who came in, and for who did not."""


class Notes:
    """Events of who came in and who did not, in bounds."""

    def __init__(self, note: Callable[[str, str, str], None], now_s: Callable[[], float]) -> None:
        """`note`: see `Ways`; `now_s`: monotonic seconds."""
        self._note = note
        self._of_person = Guesses(SIGN_INS_TOLD_MAX, TOLD_WINDOW_S, _TOLD_KEYS_MAX, now_s)
        self._of_place = Guesses(REFUSALS_OF_PLACE_TOLD_MAX, TOLD_WINDOW_S, _TOLD_KEYS_MAX, now_s)
        self._of_all = Guesses(REFUSALS_TOLD_MAX, TOLD_WINDOW_S, 1, now_s)

    def entered(self, name: str, text: str) -> None:
        """Tell who came in."""
        self._tell("console_sign_in", text, name, [(self._of_person, name)])

    def refused(self, why: str, place: str) -> None:
        """Tell that somebody did not."""
        counted = [(self._of_place, place), (self._of_all, "")]
        self._tell("console_refused", f"nobody signed in from {place}: {why}", "", counted)

    def _tell(self, event: str, text: str, name: str, counted: list[tuple[Guesses, str]]) -> None:
        if any(told.is_over(key) for told, key in counted):
            return
        for told, key in counted:
            told.note(key)
        is_last = any(told.is_over(key) for told, key in counted)
        self._note(event, text + _NO_MORE if is_last else text, name)


class Entry:
    """Handlers of signing in."""

    def __init__(
        self,
        ways: Ways,
        notes: Notes,
        sign_ins: SignIns,
        is_revoked: Callable[[bytes], bool],
        now_s: Callable[[], float],
        place_of: Callable[[web.Request], str],
        render: Callable[..., web.Response],
        enter: Enter,
    ) -> None:
        """`render`: a template, a status and its values; `place_of`: see `HttpGuard.place`."""
        self._notes = notes
        self._sign_ins = sign_ins
        self._is_revoked = is_revoked
        self._place_of = place_of
        self._render = render
        self._enter = enter
        self._form_key = secrets.token_bytes(_SECRET_BYTES)
        users, provider = ways.users, ways.provider
        self._passwords = None if users is None else PasswordCheck(users, now_s, notes.refused)
        self._provider = (
            None if provider is None else SingleSignOn(provider, now_s, _secret, notes.refused)
        )

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        found = [web.get("/sign-in", self._sign_in)]
        if self._passwords is not None:
            found.append(web.post("/sign-in", self._with_password))
        if self._provider is not None:
            found.append(web.get(_BEGIN_PATH, self._to_provider))
            found.append(web.get(BACK_PATH, self._from_provider))
        return found

    async def close(self) -> None:
        """Close connections to the provider."""
        if self._provider is not None:
            await self._provider.close()

    # Codes and certificates

    async def _sign_in(self, request: web.Request) -> web.Response:
        code = request.query.get("code", "")
        if code and _is_from_elsewhere(request):
            return self._page(request, 403, _FROM_ELSEWHERE)
        if code:
            person, how = self._sign_ins.redeem(code), "a code"
        elif _SIGNED_OUT in request.query:
            person, how = None, ""
        else:
            person, how = certified(request, self._is_revoked), "a certificate"
        if person is not None:
            return with_session(_moved("/"), await self._enter(request, person, how))
        if not code:
            return self._page(request, 401)
        self._notes.refused("a code that is unknown, used or too old", self._place_of(request))
        text = "This address was used before, or is older than a minute."
        return self._page(request, 403, text)

    def _page(self, request: web.Request, status: int, alert: str = "") -> web.Response:
        """Return the page for signing in, with a form that no other site can send."""
        browser = _cookie(request, FORM_COOKIE) or _secret()
        provider = self._provider
        answer = self._render(
            "sign-in.html.j2",
            status,
            alert=alert,
            form_token="" if self._passwords is None else self._form_token(browser),
            provider="" if provider is None else provider.name,
        )
        if self._passwords is not None:
            _set_cookie(answer, FORM_COOKIE, browser, "Strict")
        return answer

    def _form_token(self, browser: str) -> str:
        return hmac.digest(self._form_key, browser.encode(), "sha256").hex()

    # Name and password

    async def _with_password(self, request: web.Request) -> web.Response:
        assert self._passwords is not None
        if request.content_length is None or request.content_length > FORM_MAX_BYTES:
            raise web.HTTPRequestEntityTooLarge(FORM_MAX_BYTES, request.content_length or 0)
        form = await form_of(request)
        browser = _cookie(request, FORM_COOKIE)
        given = str(form.get("form_token", "")).encode()
        if not browser or not hmac.compare_digest(given, self._form_token(browser).encode()):
            return self._page(request, 403, "The page was too old: sign in again.")
        try:
            person = await self._passwords.person(
                str(form.get("name", "")), str(form.get("password", "")), self._place_of(request)
            )
        except Refused as error:
            return self._page(request, error.status, str(error))
        answer = with_session(_moved("/"), await self._enter(request, person, "a password"))
        answer.del_cookie(FORM_COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return answer

    # A provider

    async def _to_provider(self, request: web.Request) -> web.Response:
        provider = self._provider
        assert provider is not None
        if f"https://{request.host}" != provider.url and _AT_HOME not in request.query:
            return _moved(f"{provider.url}{_BEGIN_PATH}?{_AT_HOME}=1")
        try:
            address, browser = await provider.begin(self._place_of(request))
        except Refused as error:
            return self._page(request, error.status, str(error))
        answer = _moved(address)
        _set_cookie(answer, ATTEMPT_COOKIE, browser, "Lax", int(ATTEMPT_MAX_S))
        return answer

    async def _from_provider(self, request: web.Request) -> web.Response:
        provider = self._provider
        assert provider is not None
        browser = _cookie(request, ATTEMPT_COOKIE)
        try:
            person = await provider.finish(request.query, browser, self._place_of(request))
        except Refused as error:
            return self._page(request, error.status, str(error))
        cookie = await self._enter(request, person, "its provider")
        # A page of ours leads on: after a redirection from another site the browser would keep back
        # the cookie of the session.
        answer = with_session(self._render("signed-in.html.j2", 200), cookie)
        answer.del_cookie(ATTEMPT_COOKIE, path="/", secure=True, httponly=True, samesite="Lax")
        return answer


SESSION_COOKIE: Final = "__Host-quorate"
"""The prefix keeps other hosts and plain HTTP from setting it."""


def with_session(answer: web.Response, cookie: str) -> web.Response:
    """Return an answer that gives the browser its session."""
    _set_cookie(answer, SESSION_COOKIE, cookie, "Strict")
    return answer


def _set_cookie(
    answer: web.Response, name: str, value: str, same_site: Any, max_age_s: int | None = None
) -> None:
    answer.set_cookie(
        name, value, secure=True, httponly=True, samesite=same_site, path="/", max_age=max_age_s
    )


def _is_from_elsewhere(request: web.Request) -> bool:
    """Whether another site's page made the browser ask, as it says itself (Fetch Metadata)."""
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def _cookie(request: web.Request, name: str) -> str:
    """Return a secret that this console gave a browser, "" for anything else."""
    value = request.cookies.get(name, "")
    return value if _SECRET_FORM.fullmatch(value) else ""


def _moved(address: str) -> web.Response:
    return web.Response(status=303, headers={"Location": address})


def _secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)

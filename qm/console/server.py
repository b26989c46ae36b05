"""The console's server: TLS, signing in, sessions, and what every request passes."""

import asyncio
import hmac
import logging
import secrets
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import jinja2
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from typing_extensions import override

from qm.api.gate.identity import Principal
from qm.api.gate.operations import Console
from qm.api.gate.roles import rule_of
from qm.client.errors import AccessDenied, ClientError, NotAllowed, Unavailable
from qm.console.activity import ActivityPages
from qm.console.counters import CounterPages
from qm.console.entry import SESSION_COOKIE, SIGNED_OUT_PATH, Entry, Notes, Ways
from qm.console.forms import FORM_MAX_BYTES, form_of
from qm.console.messages.pages import MessagePages
from qm.console.messages.receiving import Receiving
from qm.console.messages.sending import Sending
from qm.console.page_group import texts_of
from qm.console.pages import Pages
from qm.console.peers import PeerPages
from qm.console.people import Access, Caller, of_certificate
from qm.console.reports import ReportPages
from qm.console.rights import Rights
from qm.console.sign_ins import Person, Session, SignIns
from qm.names.errors import QueueNameError
from qm.observe.logs import LimitedLog

logger = logging.getLogger(__name__)

TOKEN_FIELD: Final = "token"
SESSION: Final = web.RequestKey("session", Session)
REQUESTS_PER_PERSON_MAX: Final = 8
"""Requests of a person in progress, with their forms and bodies. A browser makes six at once."""
REQUESTS_MAX: Final = 32
"""The same of all; the last quarter is for people who have none."""
HEADER_MAX_BYTES: Final = 8_190
STOP_GRACE_S: Final = 1.0
"""For requests in progress when the node stops: half-sent ones would keep it."""
SECRET_BYTES: Final = 32
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Strict-Transport-Security": "max-age=31536000",
}
_STATIC: Final = Path(__file__).parent / "static"
_STATIC_MAX_AGE_S: Final = 3_600
_OPEN_PATHS: Final = ("/sign-in", "/static/")
_PART: Final = "HX-Request"
"""Header of requests for a part of a page."""


class Files(msgspec.Struct, frozen=True):
    """PEM files of the listener, read again for each connection when they change."""

    authority: Path
    certificate: Path
    key: Path


class Guard(Protocol):
    """A listener with limits (`qm.node.http_guard.HttpGuard`)."""

    async def open(
        self, make: Callable[[], Any], host: str, port: int, tls: ssl.SSLContext
    ) -> None:
        """Listen; `make` returns what serves a connection. Raises OSError."""

    def stop_listening(self) -> None:
        """Accept no more; connections stay."""

    async def close(self) -> None:
        """Stop listening, and end every connection."""

    def place(self, transport: object) -> str:
        """Return the address or network that a connection comes from, for limits."""

    def server_log(self) -> logging.Logger:
        """Return a logger for aiohttp that limits what peers can make it write."""

    async def during(self, transport: object, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Answer a request within the time limits."""


class ConsoleServer(Console):
    """One node's console. Create and use it in one event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        files: Files,
        access: Access,
        is_revoked: Callable[[bytes], bool],
        public_host: str,
        ways: Ways,
        make_guard: Callable[[], Guard],
    ) -> None:
        """`is_revoked` tells it of a certificate as PEM; `public_host` is in addresses that the
        console gives out.
        """
        loop = asyncio.get_event_loop()
        self._host = host
        self._port = port
        self._tls = _TlsContext(files)
        self._access = access
        self._is_revoked = is_revoked
        self._public_host = public_host
        self._make_guard = make_guard
        self._notes = Notes(ways.note, loop.time)
        self._sign_ins = SignIns(loop.time, lambda: secrets.token_urlsafe(SECRET_BYTES))
        self._entry = Entry(
            ways,
            self._notes,
            self._sign_ins,
            is_revoked,
            loop.time,
            self._place,
            self._open_page,
            self._enter,
        )
        self._callers: dict[str, Caller] = {}
        self._in_progress: Counter[str] = Counter()
        """Requests, by principal."""
        self._templates: jinja2.Environment | None = None
        self._log = LimitedLog(logger, loop.time)
        self._runner: web.AppRunner | None = None
        self._guard: Guard | None = None

    # Lifecycle

    async def start(self) -> None:
        """Listen. Raises OSError, and ssl.SSLError for files that cannot be used."""
        guard = self._guard = self._make_guard()

        @web.middleware
        async def timed(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer = await guard.during(request.transport, lambda: handler(request))
            assert isinstance(answer, web.StreamResponse)
            return answer

        app = web.Application(
            middlewares=[timed, self._guarded], client_max_size=FORM_MAX_BYTES, logger=logger
        )
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                *self._entry.routes(),
                web.post("/sign-out", self._sign_out),
                web.get("/static/{name}", _static),
                *Pages(self._page, self.caller_of).routes(),
                *MessagePages(self._page, self.caller_of).routes(),
                *ActivityPages(self._page, self.caller_of).routes(),
                *CounterPages(self._page, self.caller_of).routes(),
                *PeerPages(self._page, self.caller_of).routes(),
                *Rights(self._page, self.caller_of).routes(),
                *Sending(self._page, self.caller_of).routes(),
                *Receiving(self._page, self.caller_of).routes(),
                *ReportPages(self._page, self.caller_of).routes(),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=guard.server_log(),
            shutdown_timeout=STOP_GRACE_S,
            auto_decompress=False,  # it would come before anybody has signed in
            max_field_size=HEADER_MAX_BYTES,
            max_line_size=HEADER_MAX_BYTES,
        )
        await self._runner.setup()
        make = self._runner.server
        assert make is not None
        await guard.open(make, self._host, self._port, self._tls.context())

    async def stop(self) -> None:
        """Stop listening and end all sessions."""
        if self._guard is not None:
            self._guard.stop_listening()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._guard is not None:
            await self._guard.close()
        callers, self._callers = self._callers, {}
        for caller in callers.values():
            await caller.close()
        await self._entry.close()

    @override
    def sign_in(self, who: Principal, certificate: bytes) -> str:
        host = f"[{self._public_host}]" if ":" in self._public_host else self._public_host
        code = self._sign_ins.code_for(of_certificate(who, certificate, self._is_revoked))
        return f"https://{host}:{self._port}/sign-in?code={code}"

    # Signing in and out

    async def _enter(self, request: web.Request, person: Person, how: str) -> str:
        """Begin a session, in place of the one that the browser had; return its cookie."""
        self._sign_ins.end(request.cookies.get(SESSION_COOKIE, ""))
        cookie = self._sign_ins.begin(person)
        self._callers[cookie] = Caller(self._access, person.who)
        await self._close_ended()
        name, place = person.who.name, self._place(request)
        self._log.info(f"signed in: {name}", f"{name} signed in to the console")
        text = f"{name} ({person.who.role.value}) signed in with {how} from {place}"
        self._notes.entered(name, text)
        return cookie

    def _place(self, request: web.Request) -> str:
        return "" if self._guard is None else self._guard.place(request.transport)

    def _open_page(self, template: str, status: int, **values: Any) -> web.Response:
        """A page for people who are not signed in."""
        return self._render(template, status, None, **values)

    async def _close_ended(self) -> None:
        for cookie in [one for one in self._callers if not self._sign_ins.knows(one)]:
            await self._callers.pop(cookie).close()

    async def _sign_out(self, request: web.Request) -> web.Response:
        """End the session and, by a page that leads there, the one at its provider: the content
        policy admits no form that ends at another site.
        """
        way_out = request[SESSION].person.way_out
        self._sign_ins.end(request.cookies.get(SESSION_COOKIE, ""))
        await self._close_ended()
        address = "" if way_out is None else await way_out()
        if address:
            provider = urlsplit(address).netloc
            answer = self._open_page("signed-out.html.j2", 200, address=address, provider=provider)
        else:
            answer = web.Response(status=303, headers={"Location": SIGNED_OUT_PATH})
        answer.del_cookie(SESSION_COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return answer

    def caller_of(self, request: web.Request) -> Caller:
        """Return the API as the person of this request may call it."""
        caller = self._callers.get(request.cookies[SESSION_COOKIE])
        if caller is None:  # the session ended meanwhile
            raise web.HTTPSeeOther("/sign-in")
        return caller

    # Every request

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Require a session, and its token where something changes; show errors as pages."""
        session = None
        if not request.path.startswith(_OPEN_PATHS):
            session = self._sign_ins.find(request.cookies.get(SESSION_COOKIE, ""))
            if session is None and _PART in request.headers:
                return web.Response(status=401)  # or the page after it would become a part of one
            if session is None:
                return web.Response(status=303, headers={"Location": "/sign-in"})
            request[SESSION] = session
        try:
            with self._counted(session):
                if request.method != "GET" and session is not None:
                    await _check_token(request, session)
                return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return self._error(session, error.status, error.reason)
        except (NotAllowed, AccessDenied) as error:
            return self._error(session, 403, str(error))
        except Unavailable as error:
            return self._error(session, 503, str(error))
        except (ClientError, QueueNameError, ValueError) as error:
            return self._error(session, 400, str(error))
        except Exception as error:
            cookie = request.cookies.get(SESSION_COOKIE, "")
            if session is not None and not self._sign_ins.knows(cookie):
                return web.Response(status=303, headers={"Location": "/sign-in"})
            self._log.error("failed", f"the console failed at {request.method}", error)
            return self._error(session, 500, "this node's log says why")

    @contextmanager
    def _counted(self, session: Session | None) -> Iterator[None]:
        """Count a request in progress. Raises web.HTTPException."""
        if session is None:
            yield
            return
        own, name = self._in_progress[session.who.name], session.who.name
        if own >= REQUESTS_PER_PERSON_MAX:
            raise web.HTTPTooManyRequests(reason="you have too many requests in progress")
        if self._in_progress.total() >= (REQUESTS_MAX * 3 // 4 if own else REQUESTS_MAX):
            raise web.HTTPServiceUnavailable(reason="too many requests are in progress: try again")
        self._in_progress[name] += 1
        try:
            yield
        finally:
            self._in_progress[name] -= 1
            if not self._in_progress[name]:
                del self._in_progress[name]

    def _error(self, session: Session | None, status: int, text: str) -> web.Response:
        return self._render("error.html.j2", status, session, status=status, text=text)

    def _page(self, request: web.Request, template: str, **values: Any) -> web.Response:
        return self._render(template, 200, request[SESSION], **values)

    def _render(
        self, template: str, http_status: int, session: Session | None, **values: Any
    ) -> web.Response:
        if self._templates is None:
            self._templates = _environment()
        page = self._templates.get_template(template)
        text = page.render(session=session, may=_may(session), **values)
        return web.Response(status=http_status, text=text, content_type="text/html")


class _TlsContext:
    """TLS with the files as they are now; a browser may show a certificate."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: tuple[int, ...] = ()
        self._current: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        context = self._latest()

        def choose(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            try:
                connection.context = self._latest()
            except (OSError, ssl.SSLError) as error:
                logger.warning("the previous certificate of the console stays in use: %s", error)

        context.sni_callback = choose
        return context

    def _latest(self) -> ssl.SSLContext:
        files = self._files
        paths = (files.authority, files.certificate, files.key)
        changed = tuple(path.stat().st_mtime_ns for path in paths)
        if self._current is None or changed != self._known:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.certificate, files.key)
            context.load_verify_locations(files.authority)
            context.verify_mode = ssl.CERT_OPTIONAL
            self._current, self._known = context, changed
        return self._current


async def _add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    for name, text in _HEADERS.items():
        answer.headers.setdefault(name, text)


async def _check_token(request: web.Request, session: Session) -> None:
    form = await form_of(request)
    if not hmac.compare_digest(str(form.get(TOKEN_FIELD, "")).encode(), session.token.encode()):
        raise web.HTTPForbidden(reason="the page is too old: open it again")


def _may(session: Session | None) -> Callable[[str], bool]:
    """Return what says whether a person's role admits a change, such as QueueControl/PurgeQueue:
    others do not see its button. Whether it is allowed for a certain queue, its access list says.
    """

    def may(method: str) -> bool:
        rule = rule_of(f"/quorate.control.v1.{method}")
        return session is not None and rule is not None and session.who.role in rule.roles

    return may


def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("qm.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= texts_of()
    return found


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    path = _STATIC / name
    if name not in {found.name for found in _STATIC.iterdir()}:
        raise web.HTTPNotFound(reason="there is no such file")
    return web.FileResponse(path, headers={"Cache-Control": f"max-age={_STATIC_MAX_AGE_S}"})

"""Browsers of the console, without a window."""

import contextlib
import re
import ssl
from collections.abc import AsyncIterator

import aiohttp
import aiohttp.abc

from qm.console.entry import SESSION_COOKIE
from qm.node.config.schema import CONSOLE_PORT
from qm.pb import control_pb2 as pb
from tests.unit.client.world import Clients


class Browser:
    """A browser that keeps cookies and follows redirections."""

    def __init__(self, made: Clients, session: aiohttp.ClientSession) -> None:
        (node,) = made.harness.up
        self.host = node.host
        self.session = session
        self.token = ""
        self.form_token = ""

    @property
    def jar(self) -> aiohttp.abc.AbstractCookieJar:
        return self.session.cookie_jar

    @property
    def cookie(self) -> str:
        return next(one.value for one in self.jar if one.key == SESSION_COOKIE)

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"https://{self.host}:{CONSOLE_PORT}{path}") as answer:
            text = await answer.text()
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            found = re.search(r'name="token" value="([^"]+)"', text)
            self.token = found[1] if found else self.token
            found = re.search(r'name="form_token" value="([^"]+)"', text)
            self.form_token = found[1] if found else self.form_token
            return answer.status, text

    async def post(self, path: str, /, **fields: str | list[str]) -> tuple[int, str]:
        fields = {"token": self.token, **fields}
        data = [
            (name, one)
            for name, value in fields.items()
            for one in ([value] if isinstance(value, str) else value)
        ]
        url = f"https://{self.host}:{CONSOLE_PORT}{path}"
        async with self.session.post(url, data=aiohttp.FormData(data)) as answer:
            return answer.status, await answer.text()


@contextlib.asynccontextmanager
async def browser(made: Clients, tls: ssl.SSLContext | None = None) -> AsyncIterator[Browser]:
    tls = tls or ssl.create_default_context(cafile=str(made.tls.authority))
    jar = aiohttp.CookieJar(unsafe=True)  # the host is an address
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield Browser(made, session)


async def sign_in(made: Clients, found: Browser) -> None:
    async with made.client() as client:
        reply = await client.wire.call(lambda stubs: stubs.console.SignIn, pb.SignInRequest())
    path = reply.url.removeprefix(f"https://{found.host}:{CONSOLE_PORT}")
    status, text = await found.get(path)
    assert status == 200
    assert "Overview" in text
    status, text = await found.get(path)
    assert status == 403
    assert "was used before" in text


async def with_password(found: Browser, name: str, password: str) -> tuple[int, str]:
    """Sign in as a person would, from the page with the form."""
    await found.get("/sign-in")
    return await found.post("/sign-in", form_token=found.form_token, name=name, password=password)

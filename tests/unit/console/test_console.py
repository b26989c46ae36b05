"""The console of a node of a real cluster, as a browser meets it."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from qm.api.gate.delegation import FOR_KEY, WORD_KEY
from qm.api.gate.identity import Role
from qm.client.calls import Calls, Tls
from qm.client.errors import NotAllowed
from qm.client.message import Message
from qm.console.server import HANDSHAKE_MAX_S
from qm.node.config.schema import API_PORT, CONSOLE_PORT
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.client.world import PLAIN, Clients, scenario

HOSTILE = "<script>alert(1)</script>"


class Browser:
    """A browser that keeps cookies and follows redirections."""

    def __init__(self, made: Clients, session: aiohttp.ClientSession) -> None:
        (node,) = made.harness.up
        self.host = node.host
        self._session = session
        self.token = ""

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"https://{self.host}:{CONSOLE_PORT}{path}") as answer:
            text = await answer.text()
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            found = re.search(r'name="token" value="([^"]+)"', text)
            self.token = found[1] if found else self.token
            return answer.status, text

    async def post(self, path: str, /, **fields: str) -> tuple[int, str]:
        fields = {"token": self.token} | fields
        url = f"https://{self.host}:{CONSOLE_PORT}{path}"
        async with self._session.post(url, data=fields) as answer:
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


@scenario()
async def test_who_is_not_signed_in_sees_nothing(made: Clients) -> None:
    async with browser(made) as found:
        for path in ("/", "/queues", "/figures", "/queues/1/1/body"):
            status, text = await found.get(path)
            assert status == 401
            assert "qm console" in text
        assert (await found.get("/static/console.css"))[0] == 200
        assert (await found.get("/static/..%2fserver.py"))[0] == 404
        assert (await found.post("/queues", path="x"))[0] == 401


@scenario()
async def test_a_handshake_that_does_not_come_ends(
    made: Clients,
) -> None:
    (node,) = made.harness.up
    reader, writer = await asyncio.open_connection(node.host, CONSOLE_PORT)
    assert await asyncio.wait_for(reader.read(), 2 * HANDSHAKE_MAX_S) == b""
    writer.close()


@scenario()
async def test_every_page_opens_and_hostile_texts_stay_texts(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, Message(body=HOSTILE.encode(), label=HOSTILE))
        await client.send(PLAIN, Message(body=b'{"a": 1}', label="json"))
    async with browser(made) as found:
        await sign_in(made, found)
        paths = ["/", "/live", "/queues", "/queues?sort=messages&filter=plain", "/outgoing"]
        paths += ["/clients", "/transactions", "/events", "/queues?kind=dead_letter"]
        for path in paths:
            status, text = await found.get(path)
            assert status == 200, (path, text)
        _, text = await found.get("/live")
        assert "<td>leader</td>" in text
        _, text = await found.get("/queues?filter=plain")
        (link,) = re.findall(r'href="(/queues/[0-9]+)">QUORATE', text)
        _, text = await found.get(link)
        assert HOSTILE not in text
        keys = re.findall(rf'href="{link}/([0-9]+)"', text)
        assert len(keys) == 2
        status, text = await found.get(f"{link}/{keys[0]}")
        assert status == 200
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text
        status, text = await found.get(f"{link}/{keys[0]}/body")
        assert text == HOSTILE
        _, text = await found.get(f"{link}/{keys[1]}?form=json")
        assert "{\n  &#34;a&#34;: 1\n}" in text
        for path in ("/queues?sort=x", "/queues?first=x", "/queues?first=-1", f"{link}?after=zz"):
            assert (await found.get(path))[0] == 400, path
        assert (await found.get("/queues/99999"))[0] == 400
        assert (await found.get("/nowhere"))[0] == 404


@scenario()
async def test_what_buttons_do_is_done_and_needs_the_token(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        status, text = await found.post("/queues", path="made")
        assert status == 200, text
        (queue_id,) = set(re.findall(r'action="/queues/([0-9]+)/send"', text))
        link = f"/queues/{queue_id}"
        token, found.token = found.token, "another"
        for path in (f"{link}/purge", f"{link}/delete", "/sign-out"):
            assert (await found.post(path))[0] == 403
        found.token = token
        status, text = await found.post(f"{link}/send", body="hello", label="greeting")
        assert "greeting" in text
        await found.post(f"{link}/send", body="second", label="other")
        key = re.findall(rf'href="{link}/([0-9]+)"', text)[0]
        status, text = await found.post(f"{link}/{key}/delete")
        assert status == 200
        assert "greeting" not in text
        status, text = await found.post(f"{link}/set", label="new", quota="seven")
        assert status == 400
        status, text = await found.post(
            f"{link}/set", label="new", quota="7", max_deliveries="0", retry_delay_ms="0"
        )
        assert 'value="7"' in text
        status, text = await found.post(f"{link}/purge")
        assert "other" not in text
        status, text = await found.post(f"{link}/delete")
        assert "private$\\made" not in text
        _, text = await found.get("/events")
        assert "admin" in text
        assert "PurgeQueue" in text
        assert (await found.post("/sign-out"))[0] == 401
        assert (await found.get("/queues"))[0] == 401


@scenario()
async def test_a_certificate_of_the_browser_signs_in_with_its_role(made: Clients) -> None:
    pki = made.tls.authority.parent
    certificate, key = issue(pki, "oscar", Role.OPERATOR, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        status, text = await found.get("/sign-in")
        assert status == 200
        assert "oscar (operator)" in text
    node_certificate, node_key = issue(pki, "n9", Role.NODE, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(node_certificate, node_key)
    async with browser(made, tls) as found:
        assert (await found.get("/sign-in"))[0] == 401


@scenario()
async def test_no_certificate_calls_for_somebody_else(made: Clients) -> None:
    """Only the console knows the word of its process."""
    (node,) = made.harness.up
    files = made.harness.certificate(node.name)
    tls = Tls(files.authority, files.certificate, files.key, server_name=node.name)
    for word in ("", "guess"):
        metadata = ((WORD_KEY, word), (FOR_KEY, "admin:admin"))
        wire = Calls([f"{node.host}:{API_PORT}"], tls, metadata=metadata)
        with pytest.raises(NotAllowed):
            await wire.call(lambda stubs: stubs.queues.ListQueues, pb.ListQueuesRequest())
        await wire.close()

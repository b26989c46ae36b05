"""Attacks over the web console's port 1815, by strangers and by people who may sign in."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import ssl
from collections.abc import AsyncIterator
from functools import partial
from random import Random
from urllib.parse import urlencode

import grpc
import grpc.aio

from qm.node.config.addresses import host_and_port
from qm.node.config.schema import API_PORT, CONSOLE_PORT
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE
from qm.pb import control_pb2, control_pb2_grpc
from tests.hostile.calls import credentials
from tests.hostile.sessions import Raw, again_and_again
from tests.hostile.victim import Count, Victim

_COOKIE = "__Host-quorate"
_SIGNERS = 6
_STRANGERS = 16
_HOLDERS = 300
_PEOPLE = 8
_HELD_S = 20.0
_BOMB_BYTES = 1 << 27
_FIELDS = 50_000
_PATHS = (
    "/",
    "/live",
    "/figures",
    "/queues",
    "/queues?sort=bytes&filter=%00%ff*[",
    "/queues?first=18446744073709551615",
    "/queues/1",
    "/queues/99999999999999999999999",
    "/queues/1/1/body",
    "/queues/1/1?form=hex",
    "/events",
    "/clients?after=%F0%9F%92%A9",
    "/transactions?after=x",
    "/sign-in?code=" + "x" * 4_000,
    "/sign-in",
    "/sign-in/provider/back?state=" + "x" * 4_000 + "&code=%00%ff",
    "/counters",
    "/counters/live?before=" + "%7B" * 2_000,
    "/peers?after=%ff",
    "/peers/sessions?before=" + "k8s%3D" * 1_000,
    "/peers/" + "0" * 32,
    "/queues/1/lent/" + "f" * 32 + "?" + "key=18446744073709551615&" * 300,
    "/queues/1/packets?key=1&key=1",
    "/reports/show?path=archive:../0-1/summary.json",
    "/queues?sort=age&way=up",
    "/static/..%2f..%2fserver.py",
    "/" + "%2e/" * 1_000,
)
_POSTS = (
    "/queues",
    "/queues/1/set",
    "/queues/1/send",
    "/clients/close",
    "/transactions/resolve",
    "/outgoing/1/pause",
    "/sign-out",
    "/queues/matching",
    "/queues/1/load",
    "/queues/1/receive",
    "/queues/1/lent/" + "f" * 32,
)
_FORM = "application/x-www-form-urlencoded"
_FORM_COOKIE = "__Host-quorate-form"
_FORM_SECRETS = ("", "x" * 43, "\xff" * 43, "x" * 7_000)
_PASSWORD_FORMS = (
    urlencode({"form_token": "wrong", "name": "admin", "password": "guess"}).encode(),
    urlencode({"name": "x" * 4_000, "password": "\0" * 1_000}).encode(),
    urlencode({"form_token": "\u00e9" * 64, "name": "\U0001f4a9", "password": ""}).encode(),
    b"name=%ff&password=%fe&form_token=%fd",
    b"name=" + b"y" * (64 << 10),
)
"""Names and passwords at the page for signing in."""
_COOKIES = (
    f"{_COOKIE}=",
    f"{_COOKIE}=" + "A" * 7_000,
    f'{_COOKIE}="\\000\\377"; $Version=1; =;;;',
    f"{_COOKIE}=a; " * 300,
    "\xff\xfe=\x01",
)


def tls_of(victim: Victim, stem: str = "") -> ssl.SSLContext:
    """Return TLS of a browser, with the certificate of that name."""
    context = ssl.create_default_context(cafile=victim.certificate(AUTHORITY_CERTIFICATE)[0])
    context.check_hostname = False
    if stem:
        context.load_cert_chain(*victim.certificate(stem))
    return context


@contextlib.asynccontextmanager
async def _browser(
    victim: Victim, number: int, tls: ssl.SSLContext
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection(
            victim.host(number), CONSOLE_PORT, ssl=tls, local_addr=(victim.source(number), 0)
        ),
        10,
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """Return a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and as much of the body as there is at once."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    found = re.search(rb"Content-Length: (\d+)", head)
    body = await asyncio.wait_for(reader.readexactly(int(found[1])), 10) if found else b""
    return head, body


class _Attacker:
    """Attacks of one process."""

    def __init__(self, victim: Victim, chance: Random, count: Count) -> None:
        self._victim, self._chance, self._count = victim, chance, count
        self._bomb = gzip.compress(bytes(_BOMB_BYTES), 6)
        self._stranger = tls_of(victim)
        self._client = tls_of(victim, "client")
        self._operator = tls_of(victim, "operator")

    async def run(self) -> None:
        """Attack for ever."""
        await asyncio.gather(
            *(again_and_again(partial(self._hold, k)) for k in range(_HOLDERS)),
            *(again_and_again(partial(self._slow, k)) for k in range(_STRANGERS)),
            *(again_and_again(partial(self._ask, k)) for k in range(_STRANGERS)),
            *(again_and_again(partial(self._sign_in, k)) for k in range(_SIGNERS)),
            *(again_and_again(partial(self._person, k)) for k in range(_PEOPLE)),
            *(again_and_again(partial(self._unfinished, k)) for k in range(_PEOPLE)),
        )

    async def _hold(self, number: int) -> None:
        """Half a handshake, or none, and a request a byte at a time."""
        where = (self._victim.host(number), CONSOLE_PORT, self._victim.source(number))
        async with Raw.to(*where) as raw:
            self._count(1)
            await raw.send(
                self._chance.choice((b"\x16\x03\x01\x02\x00\x01", b"\x16", b"GET / HTTP/1.1"))
            )
            await raw.until_closed(_HELD_S)

    async def _slow(self, number: int) -> None:
        async with _browser(self._victim, number, self._stranger) as (_, writer):
            for byte in b"GET / HTTP/1.1\r\nX: yyyyyyyy":
                writer.write(bytes((byte,)))
                self._count(1)
                await asyncio.sleep(0.5)

    async def _ask(self, number: int) -> None:
        """Requests of strangers: cookies, paths, forms, bodies that unpack to much more."""
        async with _browser(self._victim, number, self._stranger) as (reader, writer):
            for _ in range(self._chance.choice((1, 8))):
                match self._chance.randrange(5):
                    case 4:
                        kind = f"Content-Type: {_FORM}"
                        cookie = f"Cookie: {_FORM_COOKIE}={self._chance.choice(_FORM_SECRETS)}"
                        body = self._chance.choice(_PASSWORD_FORMS)
                        writer.write(request("POST", "/sign-in", kind, cookie, body=body))
                    case 0:
                        headers = [f"Cookie: {self._chance.choice(_COOKIES)}"]
                        writer.write(request("GET", self._chance.choice(_PATHS), *headers))
                    case 1:
                        headers = ["Content-Encoding: gzip", f"Content-Type: {_FORM}"]
                        writer.write(request("POST", "/queues", *headers, body=self._bomb))
                    case 2:
                        body = b"x" * self._chance.choice((10, 1 << 20))
                        headers = [
                            f"Content-Type: {self._chance.choice((_FORM, 'multipart/form-data'))}"
                        ]
                        writer.write(
                            request("POST", self._chance.choice(_POSTS), *headers, body=body)
                        )
                    case _:
                        writer.write(self._chance.randbytes(200) + b"\r\n\r\n")
                self._count(1)
                await asyncio.wait_for(writer.drain(), 10)
                await _answer(reader)

    async def _sign_in(self, number: int) -> None:
        """Sign in again and again: with a certificate, and by codes of the API."""
        if number % 2:
            async with _browser(self._victim, number, self._client) as (reader, writer):
                for _ in range(50):
                    writer.write(request("GET", "/sign-in"))
                    self._count(1)
                    await _answer(reader)
            return
        channel = grpc.aio.secure_channel(
            host_and_port(self._victim.host(number), API_PORT),
            credentials(self._victim, "client", is_peer=False),
        )
        async with channel:
            stub = control_pb2_grpc.ConsoleControlStub(channel)
            for _ in range(50):
                with contextlib.suppress(grpc.RpcError):
                    await stub.SignIn(control_pb2.SignInRequest(), timeout=2)
                self._count(1)

    async def _person(self, number: int) -> None:
        """Somebody who is signed in: pages, wrong tokens, forms of all sizes, answers not read."""
        async with _browser(self._victim, number, self._operator) as (reader, writer):
            writer.write(request("GET", "/sign-in"))
            head, _ = await _answer(reader)
            found = re.search(rb"Set-Cookie: ([^;]+)", head)
            if found is None:
                return
            cookie = f"Cookie: {found[1].decode()}"
            for _ in range(40):
                self._count(1)
                if self._chance.random() < 0.5:
                    writer.write(request("GET", self._chance.choice(_PATHS), cookie))
                else:
                    body = self._chance.choice(
                        (
                            urlencode({"token": "wrong", "path": "x"}).encode(),
                            urlencode({f"f{k}": "" for k in range(_FIELDS)}).encode(),
                            b"token=" + b"%41" * 300_000,
                            b"token=\xff\xfe&" * 10,
                        )
                    )
                    kind = f"Content-Type: {_FORM}"
                    writer.write(
                        request("POST", self._chance.choice(_POSTS), cookie, kind, body=body)
                    )
                await asyncio.wait_for(writer.drain(), 10)
                await _answer(reader)
            for _ in range(20):  # and then it reads nothing more
                writer.write(request("GET", "/events", cookie))
            await asyncio.sleep(_HELD_S)

    async def _unfinished(self, number: int) -> None:
        """A form that begins and does not end."""
        async with _browser(self._victim, number, self._operator) as (reader, writer):
            writer.write(request("GET", "/sign-in"))
            head, _ = await _answer(reader)
            found = re.search(rb"Set-Cookie: ([^;]+)", head)
            cookie = f"Cookie: {found[1].decode() if found else ''}"
            kind = f"Content-Type: {_FORM}"
            writer.write(request("POST", "/queues", cookie, kind, "Content-Length: 1000000"))
            self._count(1)
            await asyncio.sleep(self._chance.choice((0.1, _HELD_S)))


async def console(victim: Victim, chance: Random, count: Count) -> None:
    """Half handshakes, slow and hostile requests, wrong tokens, huge forms, many sign-ins."""
    await _Attacker(victim, chance, count).run()

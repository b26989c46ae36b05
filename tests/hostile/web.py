"""Attacks over HTTP 1814."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from qm.node.config.schema import HTTP_PORT
from tests.hostile.sessions import Raw, again_and_again
from tests.hostile.victim import Count, Victim

_PATHS = (
    "/metrics",
    "/livez",
    "/readyz",
    "/leader",
    "/",
    "/../../etc/passwd",
    "/%00",
    "/" + "x" * 9_000,
)
_METHODS = ("GET", "HEAD", "POST", "PUT", "TRACE", "X" * 100, "")
_ASKERS = 16
_HOLDERS = 400
_SLOW = 32
_HELD_S = 20.0


def request(chance: Random) -> bytes:
    """Return a request, sound or near one."""
    method, path = chance.choice(_METHODS), chance.choice(_PATHS)
    lines = [f"{method} {path} HTTP/{chance.choice(('1.1', '1.0', '9'))}", "Host: x"]
    match chance.randrange(6):
        case 0:
            lines += [f"X-{k}: {'v' * 200}" for k in range(chance.choice((1, 100, 2_000)))]
        case 1:
            lines += ["Content-Length: 99999999999999999999"]
        case 2:
            lines += ["Transfer-Encoding: chunked", "", "ffffffffffff", "x"]
        case 3:
            lines += ["Content-Length: 5", "Content-Length: 6", "", "hello!"]
        case 4:
            lines += ["\0: \xff", "no colon"]
        case _:
            pass
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def fuzz_http(victim: Victim, chance: Random, count: Count) -> None:
    """Requests near sound ones, half-sent ones that are held, and answers that nobody reads."""

    async def ask(number: int) -> None:
        async with Raw.to(victim.host(number), HTTP_PORT, victim.source(number)) as raw:
            for _ in range(chance.choice((1, 1, 5))):
                await raw.send(request(chance) if chance.random() < 0.8 else chance.randbytes(300))
                count(1)
            await raw.until_closed(chance.choice((0.05, 0.5)))

    async def hold(number: int) -> None:
        async with Raw.to(victim.host(number), HTTP_PORT, victim.source(number)) as raw:
            await raw.send(b"GET /livez HTTP/1.1\r\nX: ")
            count(1)
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(1)
                await raw.send(b"y")
            await raw.until_closed(_HELD_S)

    async def read_nothing(number: int) -> None:
        where = (victim.host(number), HTTP_PORT, victim.source(number))
        async with Raw.to(*where, receive_bytes=2_048) as raw:
            for _ in range(20):
                await asyncio.wait_for(
                    raw.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), _HELD_S
                )
                count(1)
            await asyncio.sleep(_HELD_S)

    await asyncio.gather(
        *(again_and_again(partial(ask, number)) for number in range(_ASKERS)),
        *(again_and_again(partial(hold, number)) for number in range(_HOLDERS)),
        *(again_and_again(partial(read_nothing, number)) for number in range(_SLOW)),
    )

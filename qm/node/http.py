"""Health and metrics over HTTP, for load balancers and Prometheus; status codes are sufficient.

/livez   200 while the process answers
/readyz  200 when clients and peers may connect here, else 503 and the reason. A node that lost its
         leader waits 5 s for the next one, or as long as the query `?no_leader_max_s=` says.
         `?hold=` delays the answer by so many seconds: 503 if the node was not ready at any time
         in between. A caller that polls notices by a broken connection that the process died
/leader  200 on the node that leads, else 503 and the leader's name
/metrics all metrics
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest

from qm.node.http_guard import HttpGuard

HEADER_MAX_BYTES: Final = 8_190
STOP_GRACE_S: Final = 1.0
"""For requests in progress when the node stops: half-sent ones would keep it."""
NO_LEADER_KEY: Final = "no_leader_max_s"
HOLD_KEY: Final = "hold"
HOLD_MAX_S: Final = 5.0
HELD_LOOK_S: Final = 0.05
"""How often a delayed answer checks whether the node is ready."""
METRICS_SHARE_MAX: Final = 0.1
"""Share of the event loop's time that goes into expositions of the metrics, however many ask."""
_OK: Final = 200
_BAD_REQUEST: Final = 400
_UNAVAILABLE: Final = 503


class Health(Protocol):
    """What the endpoint asks of its node."""

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        """Return why this node should not be used now; None when it is ready.

        It stays ready for `no_leader_max_s` seconds after its leader is lost; None: for as long as
        sessions stay open without one (`EdgeSettings.no_leader_max_s`).
        """

    def leader(self) -> str | None:
        """Return the node that leads and serves, as far as this node knows."""

    def leads(self) -> bool:
        """Return whether this node is that leader."""


class HttpServer:
    """One node's HTTP endpoint."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        registry: CollectorRegistry,
        refresh: Callable[[], Awaitable[None]],
        refused: Counter,
    ) -> None:
        """`refresh` sets the gauges that are read from the state, before each exposition;
        `refused` counts closed connections by reason.
        """
        self._host = host
        self._port = port
        self._health = health
        self._exposition = Exposition(refresh, lambda: generate_latest(registry), monotonic)
        self._refused = refused
        self._runner: web.AppRunner | None = None
        self._guard: HttpGuard | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        guard = self._guard = HttpGuard(self._refused)

        @web.middleware
        async def timed(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer = await guard.during(request.transport, lambda: handler(request))
            assert isinstance(answer, web.StreamResponse)
            return answer

        app = web.Application(middlewares=[timed])
        app.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/leader", self._leader),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=STOP_GRACE_S,
            logger=guard.server_log(),
            auto_decompress=False,  # no endpoint wants a body
            max_field_size=HEADER_MAX_BYTES,
            max_line_size=HEADER_MAX_BYTES,
        )
        await self._runner.setup()
        make = self._runner.server
        assert make is not None
        await guard.open(make, self._host, self._port)

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        assert self._guard is not None, "not started"
        return self._guard.port

    async def stop(self) -> None:
        """Stop listening."""
        if self._guard is not None:
            self._guard.stop_listening()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._guard is not None:
            await self._guard.close()

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _ready(self, request: web.Request) -> web.Response:
        try:
            awaited_s = _seconds(request.query.get(NO_LEADER_KEY))
            hold_s = _seconds(request.query.get(HOLD_KEY)) or 0.0
        except ValueError:
            text = f"{NO_LEADER_KEY}, {HOLD_KEY}: seconds, 0 or more\n"
            return web.Response(status=_BAD_REQUEST, text=text)
        reason = await self._not_ready_for(min(hold_s, HOLD_MAX_S), awaited_s)
        status = _OK if reason is None else _UNAVAILABLE
        return web.Response(status=status, text=f"{reason or 'ready'}\n")

    async def _not_ready_for(self, hold_s: float, awaited_s: float | None) -> str | None:
        """Wait; return why the node was not ready the whole time, None if it was ready once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + hold_s
        reason = self._health.not_ready_reason(awaited_s)
        while (left_s := end - loop.time()) > 0:
            await asyncio.sleep(min(left_s, HELD_LOOK_S) if reason else left_s)
            reason = reason and self._health.not_ready_reason(awaited_s)
        return reason

    async def _leader(self, _: web.Request) -> web.Response:
        if self._health.leads():
            return web.Response(text="this node leads\n")
        leader = self._health.leader()
        text = "there is no leader" if leader is None else f"{leader} leads"
        return web.Response(status=_UNAVAILABLE, text=f"{text}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await self._exposition.text()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class Exposition:
    """The metrics as text, made once for all who ask at about the same time.

    Making it reads every queue. Those who ask while it is made get that one, and another is not
    begun before the time it took is METRICS_SHARE_MAX of what has passed.
    """

    def __init__(
        self,
        refresh: Callable[[], Awaitable[None]],
        render: Callable[[], bytes],
        clock: Callable[[], float],
    ) -> None:
        self._refresh, self._render, self._clock = refresh, render, clock
        self._making: asyncio.Task[bytes] | None = None
        self._next_s = 0.0

    async def text(self) -> bytes:
        """Return the newest text."""
        if self._making is None or (self._making.done() and self._clock() >= self._next_s):
            self._making = asyncio.create_task(self._make())
        # Shielded: others may wait for it when this request ends.
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        began_s = self._clock()
        await self._refresh()
        text = await asyncio.to_thread(self._render)  # some tens of milliseconds of Python
        self._next_s = began_s + (self._clock() - began_s) / METRICS_SHARE_MAX
        return text


def _seconds(text: str | None) -> float | None:
    """Return the seconds that a query gives, None if it gives nothing. Raises ValueError."""
    if text is None:
        return None
    seconds = float(text)
    if not 0 <= seconds < inf:
        raise ValueError(text)
    return seconds

"""Health and metrics over HTTP, for load balancers and Prometheus: status codes say enough.

/livez   200 while the process answers
/readyz  200 when clients and peers should come here, else 503 and why not
/leader  200 on the node that leads, else 503 and who does
/metrics everything in the metric table
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

HEADER_BYTES_MAX: Final = 8_190
_OK: Final = 200
_UNAVAILABLE: Final = 503


class Health(Protocol):
    """What the endpoint asks of its node."""

    def not_ready_reason(self) -> str | None:
        """Return why nobody should come here now; None when everybody may."""

    def leader(self) -> str | None:
        """Return who leads and serves, as far as this node knows."""

    def leads(self) -> bool:
        """Return whether that is this node."""


class HttpServer:
    """One node's HTTP endpoint."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        registry: CollectorRegistry,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh` sets the gauges that are read from the state, before each exposition."""
        self._host = host
        self._port = port
        self._health = health
        self._registry = registry
        self._refresh = refresh
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/leader", self._leader),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, max_field_size=HEADER_BYTES_MAX, max_line_size=HEADER_BYTES_MAX
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, reuse_port=False).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _ready(self, _: web.Request) -> web.Response:
        reason = self._health.not_ready_reason()
        status = _OK if reason is None else _UNAVAILABLE
        return web.Response(status=status, text=f"{reason or 'ready'}\n")

    async def _leader(self, _: web.Request) -> web.Response:
        if self._health.leads():
            return web.Response(text="this node leads\n")
        leader = self._health.leader()
        text = "there is no leader" if leader is None else f"{leader} leads"
        return web.Response(status=_UNAVAILABLE, text=f"{text}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        await self._refresh()
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

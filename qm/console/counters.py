"""Counters of the node: what Windows shows of the service, with rates, and what else it measures.

A rate needs two readings. The page holds the earlier one and sends it with each renewal, so that
this node remembers nothing of whoever looks.
"""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from qm.console.page_group import PageGroup
from qm.observe.service_counters import SERVICE, Reading, counters_of, service_of, totals_of
from qm.pb import control_pb2 as pb

BEFORE_MAX_CHARS: Final = 1_024
"""Of an earlier reading, as a page sends it."""


class CounterPages(PageGroup):
    """Handlers of counters."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [web.get("/counters", self._counters), web.get("/counters/live", self._live)]

    async def _counters(self, request: web.Request) -> web.Response:
        return await self._page(request, "counters.html.j2")

    async def _live(self, request: web.Request) -> web.Response:
        """The part of the page that is renewed."""
        return await self._page(request, "counted.html.j2")

    async def _page(self, request: web.Request, template: str) -> web.Response:
        wanted = pb.GetDiagnosticsRequest()
        found = await self.call(request, lambda s: s.nodes.GetDiagnostics, wanted)
        counters = await asyncio.to_thread(counters_of, found.metrics)
        now = Reading(found.started_ms, asyncio.get_running_loop().time(), totals_of(counters))
        before = reading_of(request.query.get("before", ""))
        return self.render(
            request,
            template,
            node=found.node,
            started_ms=found.started_ms,
            service=service_of(counters, now, before),
            others=[one for one in counters if one.name not in SERVICE],
            before=msgspec.json.encode(now).decode(),
        )


def reading_of(text: str) -> Reading | None:
    """Return an earlier reading as a page sent it, None if it is none."""
    if len(text) > BEFORE_MAX_CHARS:
        return None
    try:
        return msgspec.json.decode(text, type=Reading)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None

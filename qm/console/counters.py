"""Counters of the node: what Windows shows of the service, and everything else it measures."""

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from qm.console.page_group import PageGroup
from qm.pb import control_pb2 as pb

SERVICE: Final[Mapping[str, str]] = {
    "quorate_sessions": "Sessions",
    "quorate_connections": "IP connections accepted",
    "quorate_messages_arrived_total": "Incoming messages",
    "quorate_outgoing_messages_total": "Outgoing messages",
    "quorate_bytes_arrived_total": "Incoming bytes",
    "quorate_bytes_sent_total": "Outgoing bytes",
    "quorate_pings_total": "UDP pings",
    "quorate_client_sessions": "Sessions of API clients",
    "quorate_waiting_readers": "Reads that wait",
}
"""Metrics that answer to the counters of the object MSMQ Service."""
SAMPLES_MAX: Final = 2_000


class Counter(msgspec.Struct, frozen=True):
    """One value now."""

    name: str
    labels: str
    value: float


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
        counters = counters_of(found.metrics.decode("utf-8", "replace"))
        service = [
            (title, [one for one in counters if one.name == name])
            for name, title in SERVICE.items()
        ]
        return self.render(
            request,
            template,
            node=found.node,
            started_ms=found.started_ms,
            service=service,
            others=[one for one in counters if one.name not in SERVICE],
        )


def counters_of(text: str) -> list[Counter]:
    """Return gauges and totals of Prometheus' text, without parts of histograms and what is made
    by the process's libraries.
    """
    found: list[Counter] = []
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("quorate_") or family.type not in ("counter", "gauge"):
            continue
        for sample in family.samples:
            if sample.name.endswith("_created") or len(found) == SAMPLES_MAX:
                continue
            labels = ", ".join(f"{name} {value}" for name, value in sorted(sample.labels.items()))
            found.append(Counter(sample.name, labels, sample.value))
    return found

"""Reports of drills and audits that the node keeps, shown as text, tables or a page without rights.

Whoever wrote a report is not trusted: its texts are escaped as all others, and a page of HTML comes
in a sandbox that runs nothing, asks nothing of anybody and belongs to no site.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from qm.console.page_group import PageGroup
from qm.pb import control_pb2 as pb

SHOWN_MAX_CHARS: Final = 128 << 10
"""Of a report as text; all of it can be downloaded."""
ROWS_MAX: Final = 200
COLUMNS_MAX: Final = 12
TABLES_MAX: Final = 20
CELL_MAX_CHARS: Final = 200
_SANDBOX: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
_SCALARS: Final = (str, int, float, bool)


class Table(msgspec.Struct, frozen=True):
    """Part of a report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class ReportPages(PageGroup):
    """Handlers of reports."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/reports", self._reports),
            web.get("/reports/show", self._show),
            web.get("/reports/page", self._page),
            web.get("/reports/file", self._file),
        ]

    async def _reports(self, request: web.Request) -> web.Response:
        reply = await self.call(request, lambda s: s.nodes.ListReports, pb.ListReportsRequest())
        return self.render(request, "reports.html.j2", reports=reply.reports, missing=reply.missing)

    async def _content(self, request: web.Request) -> bytes:
        wanted = pb.GetReportRequest(path=request.query.get("path", ""))
        reply = await self.call(request, lambda s: s.nodes.GetReport, wanted)
        return bytes(reply.content)

    async def _show(self, request: web.Request) -> web.Response:
        content = await self._content(request)
        path = request.query.get("path", "")
        tables = await asyncio.to_thread(tables_of, content) if path.endswith(".json") else []
        text = content.decode("utf-8", "replace")
        return self.render(
            request,
            "report.html.j2",
            path=path,
            is_page=path.endswith(".html"),
            tables=tables,
            text=text[:SHOWN_MAX_CHARS],
            is_cut=len(text) > SHOWN_MAX_CHARS,
        )

    async def _page(self, request: web.Request) -> web.Response:
        """A report that is a page, where it can do nothing."""
        if not request.query.get("path", "").endswith(".html"):
            raise web.HTTPBadRequest(reason="it is no page")
        return web.Response(
            body=await self._content(request),
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": _SANDBOX},
        )

    async def _file(self, request: web.Request) -> web.Response:
        content = await self._content(request)
        _, _, ending = request.query["path"].rpartition(".")
        return web.Response(
            body=content,
            content_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="report.{ending}"'},
        )


def tables_of(content: bytes) -> list[Table]:
    """Return what of a report in JSON fits into tables; nothing of what cannot be read."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    facts = [(name, _text(value)) for name, value in found.items() if isinstance(value, _SCALARS)]
    tables = [Table("", ("What", "Value"), facts[:ROWS_MAX])] if facts else []
    named = {name: value for name, value in found.items() if isinstance(value, dict)}
    if named and len(named) == len(found):  # one entry for each scenario
        return [_table("", [{"name": name, **value} for name, value in named.items()])]
    for name, value in found.items():
        if len(tables) == TABLES_MAX:
            break
        rows = _rows(value)
        if rows:
            tables.append(_table(name, rows))
    return tables


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """Return objects in a list, or in lists by name, or numbers by name."""
    if isinstance(value, list):
        return [one for one in value if isinstance(one, dict)]
    if not isinstance(value, dict):
        return []
    if all(isinstance(one, _SCALARS) for one in value.values()):
        return [{"name": name, "value": one} for name, one in value.items()]
    return [
        {"name": name, **one}
        for name, several in value.items()
        if isinstance(several, list)
        for one in several
        if isinstance(one, dict)
    ]


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    rows = rows[:ROWS_MAX]
    names = dict.fromkeys(
        name for row in rows for name, value in row.items() if isinstance(value, _SCALARS)
    )
    columns = list(names)[:COLUMNS_MAX]
    cells = [[_text(row.get(name, "")) for name in columns] for row in rows]
    return Table(_text(title), [_text(name) for name in columns], cells)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value) if isinstance(value, _SCALARS) else ""
    return text if len(text) <= CELL_MAX_CHARS else f"{text[:CELL_MAX_CHARS]}..."

"""`qm session`: connections with other queue managers, and what each carries."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.names import completed
from qm.cli.lib.output import instant, output_option, show_rows, sortable
from qm.cli.lib.text import printable

LIMIT_MAX = 1_000
_COUNTED = ("messages_in", "messages_out", "bytes_in", "bytes_out")
_RATES = tuple(f"{name}_per_s" for name in _COUNTED)
_COLUMNS = ("address", "queue_manager", "direction", "open", "node", "since", *_COUNTED)
_ALL_COLUMNS = (*_COLUMNS, "number", *_RATES)
_Row = dict[str, Any]
_Readings = Mapping[tuple[Any, ...], _Row]


class Peer(click.ParamType):  # type: ignore[type-arg]  # generic in stubs only
    """An address or a GUID; the value is fields of a request."""

    name = "peer"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        from ipaddress import ip_address

        from qm.names.guid import guid_from_text

        guid = guid_from_text(str(value).strip("{}"))
        if guid is not None:
            return {"queue_manager": guid}
        try:
            return {"address": str(ip_address(str(value)))}
        except ValueError:
            self.fail(f"{value!r} is neither an IP address nor a GUID", param, ctx)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completed(ctx, incomplete, _peers)


class Order(click.ParamType):  # type: ignore[type-arg]  # generic in stubs only
    """A column; after a minus the highest first."""

    name = "column"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, bool]:
        name = str(value).removeprefix("-")
        if name not in _ALL_COLUMNS:
            known = ", ".join(_ALL_COLUMNS)
            self.fail(f"{name!r} is not a column; these are: {known}", param, ctx)
        return name, str(value).startswith("-")

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _ALL_COLUMNS if name.startswith(incomplete)]


@click.group()
def session() -> None:
    """Show sessions with other queue managers, as they are now."""


@session.command("list")
@click.option("--peer", type=Peer(), metavar="ADDRESS|GUID", help="Only sessions with this one.")
@click.option(
    "--sort", "order", type=Order(), metavar="NAME", help="By a column; -NAME: the highest first."
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_MAX,
    show_default=True,
    help="Only so many, those with the most bytes.",
)
@click.option(
    "--watch",
    type=click.FloatRange(0.2),
    metavar="SECONDS",
    help="Show it again and again, with rates, until interrupted.",
)
@output_option
@connected
def list_sessions(
    connection: Connection,
    peer: Mapping[str, Any] | None,
    order: tuple[str, bool] | None,
    limit: int,
    watch: float | None,
    output: str,
) -> None:
    """List the sessions of all nodes, the busiest first: what came in and went out since when.

    An incoming session is one that the peer began; messages go both ways on either. The counters
    end with their session; those of the whole node are in its metrics. Exit code 1: a node does not
    answer, so that its sessions are missing.
    """
    from qm.pb import control_pb2

    request = control_pb2.ListSessionsRequest(limit=limit, **peer or {})
    if order is not None and order[0] in _RATES and watch is None:
        raise click.UsageError(f"{order[0]} needs two readings: add --watch SECONDS")

    async def work(wire: Any) -> bool:
        before: _Readings = {}
        before_s = time.monotonic()
        while True:
            reply = await wire.call(lambda stubs: stubs.peers.ListSessions, request)
            now_s = time.monotonic()
            rows = list(map(_row, reply.sessions))
            readings = {_identity(row): row for row in rows}
            if watch is not None:
                rows = [row | _rates(row, before, now_s - before_s) for row in rows]
            if watch is not None and output == "table":
                click.clear()
            _show(_sorted(rows, order), reply, is_watched=watch is not None, output=output)
            if watch is None:
                return not reply.silent_nodes
            before, before_s = readings, now_s
            await asyncio.sleep(watch)

    try:
        is_whole = connection.run(work)
    except KeyboardInterrupt:
        return
    if not is_whole:
        sys.exit(1)


def _show(rows: Sequence[_Row], reply: Any, *, is_watched: bool, output: str) -> None:
    show_rows(rows, (*_COLUMNS, *_RATES) if is_watched else _COLUMNS, output)
    if reply.left_out:
        click.echo(f"and {reply.left_out} more with fewer bytes: see --peer and --limit", err=True)
    for node in reply.silent_nodes:
        text = printable(f"{node} does not answer: its sessions are missing")
        click.echo(text, err=True)


def _row(found: Any) -> _Row:
    from qm.names.guid import guid_text

    return {
        "address": found.address,
        "queue_manager": guid_text(found.queue_manager) if found.queue_manager else "",
        "direction": "incoming" if found.is_incoming else "outgoing",
        "open": found.is_open,
        "node": found.node,
        "number": found.number,
        "since": instant(found.since_ms // 1000),
        **{name: getattr(found, name) for name in _COUNTED},
    }


def _identity(row: _Row) -> tuple[Any, ...]:
    """A restarted node counts from one again."""
    return row["node"], row["number"], row["since"], row["address"]


def _rates(row: _Row, before: _Readings, passed_s: float) -> dict[str, float | None]:
    """Return counts per second, None for a session that was not there before."""
    earlier = before.get(_identity(row))
    if earlier is None or passed_s <= 0:
        return dict.fromkeys(_RATES)
    return {
        rate: round((row[name] - earlier[name]) / passed_s, 1)
        for rate, name in zip(_RATES, _COUNTED, strict=True)
    }


def _sorted(rows: Sequence[_Row], order: tuple[str, bool] | None) -> Sequence[_Row]:
    if order is None:
        return rows
    name, is_reversed = order
    return sorted(rows, key=lambda row: sortable(row[name]), reverse=is_reversed)


def _peers(connection: Connection) -> list[str]:
    from qm.names.guid import guid_text
    from qm.pb import control_pb2

    async def names(wire: Any) -> list[str]:
        request = control_pb2.ListSessionsRequest()
        reply = await wire.call(lambda stubs: stubs.peers.ListSessions, request)
        found = [one.address for one in reply.sessions]
        found += [guid_text(one.queue_manager) for one in reply.sessions if one.queue_manager]
        return list(dict.fromkeys(found))

    return connection.run(names)

"""`qm events`, `qm cluster history` and `qm top`: what happened and what happens."""

import asyncio
import json
import time
from typing import Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import instant, output_option, show_rows
from qm.cli.lib.text import printable
from qm.cli.lib.times import parse_time_ms

TOP_QUEUES_MAX: Final = 100
_SUBJECTS: Final = frozenset(
    {"client_id", "lookup_identifier", "name", "node", "path_name", "queue.name", "queue.queue_id"}
)
"""Details of an event that name its subject."""

KINDS: Final = ("control", "leadership", "member", "alarm", "session")
EVENTS_MAX: Final = 1_000
FOLLOW_EVERY_S: Final = 1.0
_U64_MAX: Final = (1 << 64) - 1


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events, until interrupted.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Only events of this kind; repeatable.",
)
@click.option(
    "--since",
    "since_ms",
    callback=parse_time_ms,
    metavar="TIME",
    help="Such as 2h, 7d or 2026-05-01.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, EVENTS_MAX),
    default=100,
    show_default=True,
    help="At most the last so many or, with --after, the first.",
)
@click.option(
    "--after", type=click.IntRange(0, _U64_MAX), default=0, help="Start after this number."
)
@output_option
@connected
def events(
    connection: Connection,
    follow: bool,
    kinds: tuple[str, ...],
    since_ms: int,
    limit: int,
    after: int,
    output: str,
) -> None:
    """Print the cluster's events, oldest first; with -o json, one per line.

    Every node has them, also those of nodes that are gone.
    """

    async def work(wire: Any) -> None:
        last = after
        wanted = {"limit": limit, "latest": not after}
        while True:
            reply = await _events(wire, after=last, since_ms=since_ms, kinds=kinds, **wanted)
            for event in reply.events:
                last = event.number
                _print(event, output)
            if not follow:
                return
            wanted = {"limit": EVENTS_MAX}
            if not reply.has_more:
                await asyncio.sleep(FOLLOW_EVERY_S)

    try:
        connection.run(work)
    except KeyboardInterrupt:
        return


@click.command()
@click.option("--limit", type=click.IntRange(1, EVENTS_MAX), default=50, show_default=True)
@output_option
@connected
def history(connection: Connection, limit: int, output: str) -> None:
    """List the cluster's leaders, the present one last: in which term, since when, for how long."""
    from qm.cli.cluster.cluster_control import get_status

    async def work(wire: Any) -> tuple[Any, Any]:
        reply = await _events(wire, kinds=["leadership"], limit=limit, latest=True)
        return reply.events, await get_status(wire)

    found, status = connection.run(work)
    ends = [event.time_ms for event in found[1:]] + [0]
    rows = [
        {
            "term": int(event.details["term"]),
            "leader": event.node,
            "since": instant(event.time_ms // 1000),
            "seconds": (end_ms - event.time_ms) / 1000 if end_ms else None,
            "index": event.index,
        }
        for event, end_ms in zip(found, ends, strict=False)
    ]
    if status.leader and (not rows or rows[-1]["term"] < status.term):
        # It leads since before the history began: the cluster is new, or was upgraded.
        present = {"since": "", "seconds": None, "index": None}
        rows.append({"term": status.term, "leader": status.leader} | present)
    show_rows(rows, ("term", "leader", "since", "seconds", "index"), output)


async def _events(wire: Any, **wanted: Any) -> Any:
    from qm.pb import control_pb2

    request = control_pb2.ListEventsRequest(**wanted)
    return await wire.call(lambda stubs: stubs.cluster.ListEvents, request)


@click.command()
@click.option("--interval", type=click.FloatRange(0.2), default=1.0, show_default=True)
@click.option("--once", is_flag=True, help="Print one table and end.")
@output_option
@connected
def top(connection: Connection, interval: float, once: bool, output: str) -> None:
    """Show queues by traffic, and the leader, until interrupted.

    If there are very many queues, the hundred with the most messages.
    """
    from qm.cli.cluster.cluster_control import get_status

    async def snapshot(wire: Any) -> tuple[Any, list[dict[str, Any]]]:
        from qm.cli.queues.queue import get_queue, queues_like

        status = await get_status(wire)
        rows = []
        queues = sorted(await queues_like(wire), key=lambda queue: -queue.message_count)
        for summary in queues[:TOP_QUEUES_MAX]:
            found = await get_queue(wire, summary.format_name or summary.path_name)
            rows.append(
                {
                    "path_name": found.path_name,
                    "messages": found.message_count,
                    "bytes": found.total_bytes,
                    "arrived": found.statistics.arrival_count,
                    "removed": found.statistics.removal_count,
                }
            )
        return status, rows

    if once or output != "table":
        _, rows = connection.run(snapshot)
        show_rows(rows, ("path_name", "messages", "bytes", "arrived", "removed"), output)
        return

    async def work(wire: Any) -> None:
        from rich.live import Live

        from qm.cli.packets.render import terminal

        before: dict[str, dict[str, Any]] = {}
        since = time.monotonic()
        with Live(console=terminal(), auto_refresh=False) as live:
            while True:
                status, rows = await snapshot(wire)
                now = time.monotonic()
                live.update(_table(status, rows, before, now - since), refresh=True)
                before, since = {row["path_name"]: row for row in rows}, now
                await asyncio.sleep(interval)

    try:
        connection.run(work)
    except KeyboardInterrupt:
        return


def _table(
    status: Any, rows: list[dict[str, Any]], before: dict[str, dict[str, Any]], passed_s: float
) -> Any:
    from rich.table import Table

    table = Table(
        title=f"{status.computer_name}: {status.leader or 'no node'} leads, term {status.term},"
        f" index {status.applied_index}",
        box=None,
    )
    for column in ("queue", "messages", "bytes", "in/s", "out/s"):
        table.add_column(column, justify="left" if column == "queue" else "right")

    def rate(row: dict[str, Any], name: str) -> float:
        earlier = before.get(row["path_name"])
        return max(0.0, (row[name] - earlier[name]) / passed_s) if earlier else 0.0

    rated = [(rate(row, "arrived"), rate(row, "removed"), row) for row in rows]
    for arrived, removed, row in sorted(rated, key=lambda entry: -(entry[0] + entry[1])):
        table.add_row(
            printable(row["path_name"]),
            str(row["messages"]),
            str(row["bytes"]),
            f"{arrived:.0f}",
            f"{removed:.0f}",
        )
    return table


def _print(event: Any, output: str) -> None:
    fields = {
        "number": event.number,
        "time": instant(event.time_ms // 1000),
        "node": event.node,
        "kind": event.kind,
        "name": event.name,
        "principal": event.principal,
        "text": event.text,
        "details": dict(event.details),
    }
    if output == "json":
        click.echo(json.dumps(fields))
    elif output == "yaml":
        import yaml

        click.echo("---\n" + yaml.safe_dump(fields, sort_keys=False), nl=False)
    else:
        subject = ", ".join(
            f"{name}={event.details[name]}" for name in sorted(event.details) if name in _SUBJECTS
        )
        text = f"{event.text} ({subject})" if subject else event.text
        click.echo(printable(f"{fields['time']} {event.node} {event.kind}: {text}"))

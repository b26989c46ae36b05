"""`qm events` and `qm top`: events and traffic as they happen."""

import asyncio
import json
import time
from typing import Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import instant, output_option, show_rows
from qm.cli.lib.text import printable

TOP_QUEUES_MAX: Final = 100
_SUBJECTS: Final = frozenset(
    {"client_id", "lookup_identifier", "name", "node", "path_name", "queue.name", "queue.queue_id"}
)
"""Details of an event that name its subject."""


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events, until interrupted.")
@click.option("--kind", "kinds", multiple=True, help="control, leadership, ...; repeatable.")
@click.option("--after", type=click.IntRange(0), default=0, help="Start after this number.")
@output_option
@connected
def events(
    connection: Connection, follow: bool, kinds: tuple[str, ...], after: int, output: str
) -> None:
    """Print the events of one node, oldest first; with -o json, one per line."""
    from qm.client.errors import error_of
    from qm.pb import control_pb2

    async def work(wire: Any) -> None:
        from grpc import aio

        request = control_pb2.StreamEventsRequest(after=after, follow=follow, kinds=kinds)
        try:
            async for event in wire.stubs().nodes.StreamEvents(request):
                _print(event, output)
        except aio.AioRpcError as failure:
            raise error_of(failure) or click.ClickException(failure.details() or "") from None

    try:
        connection.run(work)
    except KeyboardInterrupt:
        return


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

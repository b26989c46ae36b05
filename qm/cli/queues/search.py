"""`qm search`: messages by what is in them, in every queue of the cluster."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import output_option, show_rows
from qm.cli.queues.browse import browsed_row, pages_of
from qm.cli.queues.queue import KINDS, queues_like
from qm.client.search import PLACES, found_in

_UNREAD: Final = ("order", "notification", "connector")
_COLUMNS: Final = ("queue", "lookup_id", "found_in", "state", "arrived", "label", "body")


@click.command()
@click.argument("text")
@click.option("--in", "places", type=click.Choice(PLACES), multiple=True, help="Repeatable.")
@click.option("--queue", "pattern", default="", help="Shell pattern for the queues' path names.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind for kind in KINDS if kind not in _UNREAD]),
    multiple=True,
    help="Of queues, journals and dead letters among them; repeatable.  [default: all]",
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--look-at",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Messages to look at before it gives up.",
)
@output_option
@connected
def search(
    connection: Connection,
    text: str,
    places: tuple[str, ...],
    pattern: str,
    kinds: tuple[str, ...],
    limit: int,
    look_at: int,
    output: str,
) -> None:
    """Find messages whose label, body, id, correlation id or destination contains TEXT, in any
    case. Bodies are searched as UTF-8 and as UTF-16; ids are hexadecimal digits.

    Exit code 1: there is none.
    """
    if not text:
        raise click.UsageError("give the text to look for")
    wanted_kinds = kinds or tuple(kind for kind in KINDS if kind not in _UNREAD)

    async def work(wire: Any) -> tuple[list[dict[str, Any]], int]:
        found: list[dict[str, Any]] = []
        looked = 0
        async for queue, entry in _messages(wire, pattern, wanted_kinds):
            looked += 1
            where = found_in(entry, text, places or PLACES)
            if where:
                row = browsed_row(entry, "auto")
                found.append({"queue": queue.path_name, "found_in": where} | row)
            if len(found) == limit or looked == look_at:
                break
        return found, looked

    rows, looked = connection.run(work)
    show_rows(rows, _COLUMNS, output)
    if len(rows) == limit:
        click.echo(f"there may be more: --limit {limit}", err=True)
    elif looked == look_at:
        click.echo(f"only {look_at} messages were looked at: --look-at", err=True)
    if not rows:
        sys.exit(1)


async def _messages(
    wire: Any, pattern: str, kinds: Sequence[str]
) -> AsyncIterator[tuple[Any, Any]]:
    from qm.pb import control_pb2

    for queue in await queues_like(wire, pattern, kinds):
        if queue.message_count:
            where = control_pb2.QueueName(queue_id=queue.queue_id)
            async for page in pages_of(wire, where):
                for entry in page:
                    yield queue, entry

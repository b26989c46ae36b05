"""`qm queue`: the cluster's queues."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import QueueName
from qm.cli.lib.output import (
    attribute_shown,
    confirm,
    dry_run_option,
    instant,
    output_option,
    show_one,
    show_rows,
    sortable,
    yes_option,
)
from qm.cli.lib.pages import all_pages

_COLUMNS = ("path_name", "messages", "bytes", "transactional", "journaling", "label")
_SUMMARY = (
    *("path_name", "format_name", "queue_id", "kind", "type"),
    *("messages", "bytes", "transactional", "journaling", "label"),
)
_COUNTED = {"oldest_s", "arrived", "removed", "locked", "quota_percent"}
"""Columns with statistics of queues."""
_OPENED = "opened"
"""The column for which every queue is asked on its own."""
_ALL_COLUMNS = (*_SUMMARY, *sorted({*_COUNTED, _OPENED}))
DETAILS_AT_A_TIME = 16
KINDS = (
    "application",
    "subqueue",
    "journal",
    "system_journal",
    "dead_letter",
    "transactional_dead_letter",
    "order",
    "notification",
    "outgoing",
    "connector",
)
_PRIVACY = {"none": 0, "optional": 1, "body": 2}
_POISON = {"move": 0, "dead-letter": 1, "reject": 2}


@click.group()
def queue() -> None:
    """Create, show, change and empty queues."""


def _attributes(command: Any) -> Any:
    """Add the options shared by create and set."""
    for option in (
        click.option("--label", help="Label, at most 124 characters."),
        click.option("--journal/--no-journal", "journaling", default=None, help="Keep copies."),
        click.option(
            "--quota",
            type=click.IntRange(0, 0xFFFF_FFFF),
            metavar="KB",
            help="4294967295: no quota.",
        ),
        click.option("--journal-quota", type=click.IntRange(0, 0xFFFF_FFFF), metavar="KB"),
        click.option(
            "--authenticate/--no-authenticate",
            "authentication",
            default=None,
            help="Accept only messages with a valid signature.",
        ),
        click.option("--privacy", type=click.Choice(list(_PRIVACY)), help="Encryption of bodies."),
        click.option("--multicast", "multicast_address", metavar="ADDRESS:PORT"),
        click.option("--base-priority", type=click.IntRange(-32768, 32767)),
        click.option(
            "--max-deliveries",
            type=click.IntRange(0, 0xFFFF_FFFF),
            help="How often a message may come back before the poison action; 0: no limit.",
        ),
        click.option(
            "--retry-delay",
            "retry_delay_ms",
            type=click.IntRange(0),
            metavar="MS",
            help="How long a message that came back waits; later ones overtake it.",
        ),
        click.option(
            "--poison-action",
            type=click.Choice(list(_POISON)),
            help="What becomes of a message that came back too often.",
        ),
    ):
        command = option(command)
    return command


@queue.command()
@click.argument("path", type=QueueName())
@click.option("--transactional", is_flag=True, help="Accept only transactional messages.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if an identical one exists.")
@_attributes
@output_option
@changing
def create(
    connection: Connection, path: str, if_not_exists: bool, output: str, **options: Any
) -> None:
    r"""Create the queue PATH, such as .\private$\orders."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.CreateQueueRequest(
            path_name=await _full(wire, path),
            attributes=_values(options),
            if_not_exists=if_not_exists,
        )
        return await wire.call(lambda stubs: stubs.queues.CreateQueue, request)

    made = connection.run(work)
    show_one(_summary(made) if output == "table" else _details(made), output)


@queue.command("list")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Repeatable.")
@click.option("--pattern", default="", help="Shell pattern for the path name.")
@click.option(
    "--columns",
    metavar="NAME,...",
    help=f"Of these: {', '.join(_ALL_COLUMNS)}.  [default: {','.join(_COLUMNS)}]",
)
@click.option("--sort", "order", metavar="NAME", help="By a column; -NAME: the highest first.")
@click.option(
    "--watch",
    type=click.FloatRange(0.2),
    metavar="SECONDS",
    help="Show it again and again, until interrupted.",
)
@output_option
@connected
def list_queues(
    connection: Connection,
    kinds: tuple[str, ...],
    pattern: str,
    columns: str | None,
    order: str | None,
    watch: float | None,
    output: str,
) -> None:
    """List queues with their message counts; application queues unless kinds are given."""
    shown = _chosen_columns(columns)
    key, is_reversed = _order(order)
    is_opened_wanted = _OPENED in {*shown, key}
    has_details = is_opened_wanted or bool(_COUNTED & {*shown, key})

    async def rows(wire: Any) -> list[dict[str, Any]]:
        found = await queues_like(wire, pattern, kinds, with_statistics=has_details)
        if has_details and (is_opened_wanted or not _has_statistics(found)):
            found = await _with_details(wire, found)
        made = [_summary(each) | (_ages(each) if has_details else {}) for each in found]
        return (
            sorted(made, key=lambda row: sortable(row[key]), reverse=is_reversed) if key else made
        )

    async def work(wire: Any) -> None:
        while True:
            found = await rows(wire)
            if watch is not None and output == "table":
                click.clear()
            show_rows(found, shown, output)
            if watch is None:
                return
            await asyncio.sleep(watch)

    try:
        connection.run(work)
    except KeyboardInterrupt:
        return


def _chosen_columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return _COLUMNS
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return tuple(map(_column, names)) or _COLUMNS


def _column(name: str) -> str:
    if name not in _ALL_COLUMNS:
        raise click.UsageError(f"{name!r} is not a column; these are: {', '.join(_ALL_COLUMNS)}")
    return name


def _order(text: str | None) -> tuple[str, bool]:
    return (_column(text.removeprefix("-")), text.startswith("-")) if text else ("", False)


def _has_statistics(found: Sequence[Any]) -> bool:
    """Whether the list came with them: nodes of earlier versions send none."""
    return all(queue.HasField("statistics") for queue in found)


async def _with_details(wire: Any, found: Sequence[Any]) -> list[Any]:
    """Ask for each queue, a few at a time; one that is gone meanwhile is left out."""
    from qm.client.errors import MqError
    from qm.pb import control_pb2

    turns = asyncio.Semaphore(DETAILS_AT_A_TIME)

    async def one(queue: Any) -> Any:
        name = control_pb2.QueueName(queue_id=queue.queue_id)
        async with turns:
            try:
                return await wire.call(
                    lambda stubs: stubs.queues.GetQueue, control_pb2.GetQueueRequest(queue=name)
                )
            except MqError:
                return None

    return [queue for queue in await asyncio.gather(*map(one, found)) if queue is not None]


def _ages(found: Any) -> dict[str, Any]:
    statistics = found.statistics
    has_oldest = statistics.HasField("oldest_arrival_time_s")
    age_s = max(0, int(time.time()) - statistics.oldest_arrival_time_s) if has_oldest else None
    used = statistics.quota_used_bytes
    has_quota = statistics.HasField("quota_bytes") and statistics.quota_bytes > 0
    return {
        "oldest_s": age_s,
        "arrived": statistics.arrival_count,
        "removed": statistics.removal_count,
        "locked": statistics.locked_count,
        "opened": statistics.open_count,
        "quota_percent": round(100 * used / statistics.quota_bytes, 1) if has_quota else None,
    }


@queue.command()
@click.argument("name", type=QueueName())
@output_option
@connected
def show(connection: Connection, name: str, output: str) -> None:
    """Show everything about the queue NAME, a path name or format name."""
    show_one(_details(connection.run(lambda wire: get_queue(wire, name))), output)


@queue.command("set")
@click.argument("name", type=QueueName())
@_attributes
@changing
def set_queue(connection: Connection, name: str, **options: Any) -> None:
    """Change properties of the queue NAME in place."""
    from qm.pb import control_pb2

    changes = _values(options)
    if not changes:
        raise click.UsageError("nothing to change: give at least one property")

    async def work(wire: Any) -> None:
        request = control_pb2.SetQueueRequest(queue=await queue_name(wire, name), changes=changes)
        await wire.call(lambda stubs: stubs.queues.SetQueue, request)

    connection.run(work)


@queue.command()
@click.argument("names", type=QueueName(patterns=True), nargs=-1, required=True)
@yes_option
@dry_run_option
@connected
def purge(connection: Connection, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete all messages of the queues NAMES; a name with * means all matching queues."""
    _each(connection, names, "purge", "PurgeQueue", yes=yes, dry_run=dry_run)


@queue.command()
@click.argument("names", type=QueueName(patterns=True), nargs=-1, required=True)
@yes_option
@dry_run_option
@connected
def delete(connection: Connection, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete the queues NAMES with their messages; a name with * means all matching queues."""
    _each(connection, names, "delete", "DeleteQueue", yes=yes, dry_run=dry_run)


def _each(
    connection: Connection,
    names: Sequence[str],
    verb: str,
    method: str,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    from qm.pb import control_pb2

    async def find(wire: Any) -> list[Any]:
        found = []
        for name in names:
            found += await queues_like(wire, name) if "*" in name else [await get_queue(wire, name)]
        return found

    queues = connection.run(find)
    if not queues:
        click.echo("no queue matches", err=True)
        sys.exit(1)
    for each in queues:
        click.echo(f"{each.path_name}: {each.message_count} messages", err=True)
    if dry_run:
        click.echo(f"would {verb} {len(queues)} queue(s)", err=True)
        return
    confirm(f"{verb.capitalize()} {len(queues)} queue(s)?", yes=yes)
    make = control_pb2.PurgeQueueRequest if verb == "purge" else control_pb2.DeleteQueueRequest

    async def work(wire: Any) -> None:
        for each in queues:
            request = make(queue=control_pb2.QueueName(queue_id=each.queue_id))
            await wire.call(lambda stubs: getattr(stubs.queues, method), request)

    connection.run(work)


# Used by other nouns, too ----------------------------------------------------------------------


async def get_queue(wire: Any, name: str) -> Any:
    """Return a queue by path name or format name."""
    from qm.pb import control_pb2

    request = control_pb2.GetQueueRequest(queue=await queue_name(wire, name))
    return await wire.call(lambda stubs: stubs.queues.GetQueue, request)


async def queue_name(wire: Any, name: str) -> Any:
    r"""Return a queue name as requests carry it; `.\` means the cluster."""
    from qm.pb import control_pb2

    return control_pb2.QueueName(name=await _full(wire, name))


async def queues_like(
    wire: Any, pattern: str = "", kinds: Sequence[str] = (), *, with_statistics: bool = False
) -> list[Any]:
    """Return all queues of given kinds that match a shell pattern, except those being deleted."""
    from qm.pb import control_pb2

    full = await _full(wire, pattern)
    wanted = [control_pb2.QueueKind.Value(kind.upper()) for kind in kinds]
    found = await all_pages(
        wire,
        lambda stubs: stubs.queues.ListQueues,
        lambda token: control_pb2.ListQueuesRequest(
            page_token=token, pattern=full, kinds=wanted, with_statistics=with_statistics
        ),
        "queues",
    )
    return [each for each in found if not each.is_deleting]


async def _full(wire: Any, path: str) -> str:
    if not path.startswith(".\\"):
        return path
    from qm.pb import control_pb2

    manager = await wire.call(
        lambda stubs: stubs.queues.GetQueueManager, control_pb2.GetQueueManagerRequest()
    )
    return str(manager.computer_name) + path[1:]


def _values(options: dict[str, Any]) -> dict[str, Any]:
    from qm.client.values import value_of

    given = {name: value for name, value in options.items() if value not in (None, "")}
    if "privacy" in given:
        given["privacy_level"] = _PRIVACY[given.pop("privacy")]
    if "poison_action" in given:
        given["poison_action"] = _POISON[given["poison_action"]]
    return {name: value_of(value) for name, value in given.items()}


def _summary(found: Any) -> dict[str, Any]:
    from qm.pb import control_pb2

    return {
        "path_name": found.path_name,
        "format_name": found.format_name,
        "queue_id": found.queue_id,
        "kind": control_pb2.QueueKind.Name(found.kind).lower(),
        "type": control_pb2.QueueType.Name(found.type).lower(),
        "messages": found.message_count,
        "bytes": found.total_bytes,
        "transactional": found.is_transactional,
        "journaling": found.is_journaling,
        "label": found.label,
    }


def _details(found: Any) -> dict[str, Any]:
    from qm.client.values import python_value

    details = _summary(found)
    statistics = found.statistics
    details |= {
        "locked": statistics.locked_count,
        "hidden": statistics.hidden_count,
        "by_priority": list(statistics.count_by_priority),
        "arrived": statistics.arrival_count,
        "removed": statistics.removal_count,
        "oldest_arrival": instant(statistics.oldest_arrival_time_s),
        "quota_bytes": statistics.quota_bytes if statistics.HasField("quota_bytes") else None,
        "opened": statistics.open_count,
        "version": found.version,
    }
    # `qm acl get` shows the security descriptor in readable form.
    names = sorted(set(found.attributes) - {"security"})
    values = {name: python_value(found.attributes[name]) for name in names}
    return details | {"attributes": {name: attribute_shown(name, values[name]) for name in names}}

"""`qm manager`: the cluster as a queue manager."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.output import attribute_shown, output_option, show_one, show_rows
from qm.cli.queues.manager_keys import keys

APART_MAX_S: Final = 60.0
"""Between two readings of counters."""


@click.group()
def manager() -> None:
    """Show the queue manager and change its settings."""


manager.add_command(keys)


@manager.command()
@output_option
@connected
def show(connection: Connection, output: str) -> None:
    """Show names, totals and every attribute."""
    show_one(_row(connection.run(_get)), output)


@manager.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@changing
def set_manager(connection: Connection, settings: Sequence[str]) -> None:
    """Change settings, all or none of them. `qm manager show` lists them as settable."""

    async def work(wire: Any) -> None:
        from qm.client.values import value_of
        from qm.pb import control_pb2

        found = await _get(wire)
        changes = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals or name not in found.settable:
                raise click.UsageError(f"{setting!r}: write NAME=VALUE; {_known(found)}")
            changes[name] = value_of(_value(name, text, found))
        request = control_pb2.SetQueueManagerRequest(changes=changes, if_version=found.version)
        await wire.call(lambda stubs: stubs.queues.SetQueueManager, request)

    connection.run(work)


@manager.command()
@click.option(
    "--seconds",
    "apart_s",
    type=click.FloatRange(1.0, APART_MAX_S),
    default=2.0,
    show_default=True,
    help="Time between the two readings that a rate needs.",
)
@output_option
@connected
def counters(connection: Connection, apart_s: float, output: str) -> None:
    """Show what the node at each endpoint counts of messages, bytes and sessions, and how fast.

    They are those of Windows' performance object MSMQ Service.
    """
    rows = connection.run(lambda _: _counted_everywhere(connection, apart_s))
    show_rows(rows, ("node", "counter", "value", "per_s"), output)


async def _counted_everywhere(connection: Connection, apart_s: float) -> list[dict[str, Any]]:
    from qm.client.calls import Calls

    wires = [
        Calls((endpoint,), connection.tls(), connection.connect_s)
        for endpoint in connection.endpoints
    ]
    try:
        found = await asyncio.gather(*(_counted(wire, apart_s) for wire in wires))
    finally:
        for wire in wires:
            await wire.close()
    return [row for rows in found for row in rows]


async def _counted(wire: Any, apart_s: float) -> list[dict[str, Any]]:
    from qm.client.errors import Unavailable
    from qm.observe.service_counters import Reading, counters_of, service_of, totals_of
    from qm.pb import control_pb2

    loop = asyncio.get_running_loop()

    async def read() -> tuple[str, list[Any], Reading]:
        found = await wire.call(
            lambda stubs: stubs.nodes.GetDiagnostics, control_pb2.GetDiagnosticsRequest()
        )
        counters = counters_of(found.metrics)
        return found.node, counters, Reading(found.started_ms, loop.time(), totals_of(counters))

    try:
        _, _, before = await read()
        await asyncio.sleep(apart_s)
        node, counters, now = await read()
    except Unavailable as error:
        return [{"node": wire.endpoint, "counter": str(error), "value": None, "per_s": None}]
    return [
        {
            "node": node,
            "counter": one.title,
            "value": int(one.value),
            "per_s": None if one.per_s is None else round(one.per_s, 1),
        }
        for one in service_of(counters, now, before)
    ]


async def _get(wire: Any) -> Any:
    from qm.pb import control_pb2

    return await wire.call(
        lambda stubs: stubs.queues.GetQueueManager, control_pb2.GetQueueManagerRequest()
    )


def _value(name: str, text: str, found: Any) -> bool | int | str | list[str]:
    """Parse a value by the type of the attribute's current value."""
    from qm.client.values import python_value

    match python_value(found.attributes[name]):
        case bool():
            if text.lower() not in ("true", "false"):
                raise click.UsageError(f"{name} is true or false, not {text!r}")
            return text.lower() == "true"
        case int():
            try:
                return int(text)
            except ValueError:
                raise click.UsageError(f"{name} is a number, not {text!r}") from None
        case list():
            return [part for part in text.split(",") if part]
        case str():
            return text
    raise click.UsageError(f"{name} cannot be given as text")


def _known(found: Any) -> str:
    return "settings are " + ", ".join(sorted(found.settable))


def _row(found: Any) -> dict[str, Any]:
    from qm.client.values import python_value
    from qm.names.guid import guid_text

    # `qm acl get` shows the security descriptor in readable form.
    names = sorted(set(found.attributes) - {"security"})
    return {
        "identifier": guid_text(found.identifier),
        "computer_name": found.computer_name,
        "qualified_computer_name": found.qualified_computer_name,
        "queues": found.queue_count,
        "message_bytes": found.total_bytes,
        "journal_bytes": found.journal_bytes,
        "version": found.version,
        "settable": sorted(found.settable),
        "attributes": {
            name: attribute_shown(name, python_value(found.attributes[name])) for name in names
        },
    }

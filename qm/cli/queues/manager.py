"""`qm manager`: the cluster as a queue manager."""

from collections.abc import Sequence
from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.output import attribute_shown, output_option, show_one
from qm.cli.queues.manager_keys import keys


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

"""`qm defs`: queues and settings as a document for version control."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import confirm, dry_run_option, output_option, show_rows, yes_option

DOCUMENT_S: Final = 300.0
"""How long a node may take for a document: 5 ms and more for each queue, of which there may be ten
thousand. One that has vanished is noticed within seconds all the same.
"""
_COLUMNS = ("change", "path_name", "attributes")


@click.group()
def defs() -> None:
    """Export, compare and import queues, access lists and the queue manager's settings."""


@defs.command("export")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: standard output.",
)
@connected
def export_definitions(connection: Connection, file: Path | None) -> None:
    """Write the cluster's definitions as YAML."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> str:
        reply = await wire.call(
            lambda stubs: stubs.definitions.Export,
            control_pb2.ExportRequest(),
            wait_s=DOCUMENT_S,
        )
        return str(reply.document)

    document = connection.run(work)
    if file is None:
        click.echo(document, nl=False)
    else:
        file.write_text(document, encoding="utf-8")


@defs.command("diff")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--prune", is_flag=True, help="Also count queues that FILE does not name.")
@output_option
@connected
def diff(connection: Connection, file: Any, prune: bool, output: str) -> None:
    """Show what importing FILE would change. Exit code 1: there are changes."""
    changes = connection.run(lambda wire: _changes(wire, "Diff", file.read(), prune=prune))
    show_rows(changes, _COLUMNS, output)
    if changes:
        sys.exit(1)


@defs.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--prune", is_flag=True, help="Delete queues that FILE does not name.")
@yes_option
@dry_run_option
@output_option
@connected
def import_definitions(
    connection: Connection, file: Any, prune: bool, yes: bool, dry_run: bool, output: str
) -> None:
    """Change the cluster to match FILE; a second import changes nothing."""
    document = file.read()
    planned = connection.run(lambda wire: _changes(wire, "Diff", document, prune=prune))
    if dry_run or not planned:
        show_rows(planned, _COLUMNS, output)
        return
    deleted = [change["path_name"] for change in planned if change["change"] == "delete"]
    if deleted:
        confirm(f"Delete {', '.join(deleted)} with all messages?", yes=yes)
    done = connection.run(lambda wire: _changes(wire, "Import", document, prune=prune))
    show_rows(done, _COLUMNS, output)


async def _changes(wire: Any, method: str, document: str, *, prune: bool) -> list[dict[str, Any]]:
    from qm.pb import control_pb2

    request = control_pb2.ImportRequest(document=document, prune=prune)
    reply = await wire.call(
        lambda stubs: getattr(stubs.definitions, method), request, wait_s=DOCUMENT_S
    )
    return [
        {
            "change": control_pb2.DefinitionChange.Kind.Name(change.kind).lower(),
            "path_name": change.path_name,
            "attributes": [
                f"{each.name}: {getattr(each, 'from')} -> {each.to}" for each in change.attributes
            ],
        }
        for change in reply.changes
    ]

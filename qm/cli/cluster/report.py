"""`qm report`: reports of drills and audits that a node shows."""

from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import instant, output_option, show_rows
from qm.cli.lib.text import printable

_COLUMNS = ("path", "bytes", "written")
_SAVE_PATH = click.Path(path_type=Path, dir_okay=False)


@click.group()
def report() -> None:
    """Reports of drills and audits, as the console shows them.

    A node shows those in its folder `console.reports`, and the audits in its archive.
    """


@report.command("list")
@output_option
@connected
def list_reports(connection: Connection, output: str) -> None:
    """List the reports of the node that answers, the newest first."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.ListReportsRequest()
        return await wire.call(lambda stubs: stubs.nodes.ListReports, request)

    found = connection.run(work)
    if found.missing:
        click.echo(f"without the audits of the archive: {printable(found.missing)}", err=True)
    rows = [
        {
            "path": one.path,
            "bytes": one.size_bytes,
            "written": instant(one.written_ms // 1000),
        }
        for one in found.reports
    ]
    show_rows(rows, _COLUMNS, output)


@report.command()
@click.argument("path")
@click.option("--save", type=_SAVE_PATH, help="Write it to this file, as it is.")
@connected
def show(connection: Connection, path: str, save: Path | None) -> None:
    """Show the report PATH of `qm report list`.

    A report is not trusted: characters that could control a terminal are escaped, and no page is
    opened. Use --save for the bytes themselves.
    """
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.GetReportRequest(path=path)
        return await wire.call(lambda stubs: stubs.nodes.GetReport, request)

    content = connection.run(work).content
    if save is not None:
        save.write_bytes(content)
        return
    for line in content.decode("utf-8", "replace").splitlines():
        click.echo(printable(line.expandtabs()))

"""`qm dev`: a cluster on this machine, for development and exploration."""

import asyncio
from pathlib import Path

import click

FOLDER_OPTION = click.option(
    "-f",
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="QM_DEV_FOLDER",
    default=".quorate-dev",
    show_default=True,
    help="Where the cluster keeps everything.  [env: QM_DEV_FOLDER]",
)


@click.group()
def dev() -> None:
    """Run a cluster on this machine."""


@dev.command()
@FOLDER_OPTION
@click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True)
@click.option(
    "--network",
    default="127.0.0",
    show_default=True,
    help="First three numbers of the nodes' loopback addresses; the last are 11, 12, ...",
)
@click.option(
    "--archive",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Export to this folder or URL, without one to `archive` in the cluster's folder, for"
    " `qm audit` and `qm compact`. Nodes that export already go on as they do.",
)
def up(folder: Path, nodes: int, network: str, archive: str | None) -> None:
    """Run three nodes on loopback addresses until Ctrl-C or `qm dev down`.

    The first run creates certificates and configurations and founds the cluster; later ones
    continue with its data. A node that dies is restarted.

    Exit code: 0 stopped; 1 the cluster did not come up.
    """
    from qm.node.dev.layout import Layout
    from qm.node.dev.manager import DevFailed, Manager
    from qm.node.dev.pids import StillRunning

    layout = Layout(folder.absolute())

    made = layout.make(nodes, network)
    if archive is not None:
        layout.archive_to(archive)

    async def main() -> None:
        await Manager(layout, made, click.echo).run()

    try:
        asyncio.run(main())
    except (DevFailed, StillRunning) as error:
        raise click.ClickException(str(error)) from error


@dev.command()
@FOLDER_OPTION
def down(folder: Path) -> None:
    """Stop the cluster of a folder; its data is kept."""
    from qm.node.dev.layout import Layout
    from qm.node.dev.manager import DevFailed, stop

    try:
        found = asyncio.run(stop(Layout(folder.absolute())))
    except DevFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo("stopped" if found else "nothing runs there")

"""`qm node`: one node as a process, and how it joins a cluster."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import Connection, changing
from qm.cli.lib.output import output_option, show_rows

CONFIG_OPTION = click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default="node.toml",
    show_default=True,
    help="Configuration of the node.",
)


@click.group()
def node() -> None:
    """Run nodes."""


@node.command()
@CONFIG_OPTION
def run(path: Path) -> None:
    """Run a node until it is told to stop (SIGTERM, SIGINT).

    A new node waits for `qm cluster init` or `qm node join` and does not serve until then, unless
    its configuration lets it find its cluster automatically (`[birth] automatic`).

    Exit code: 0 stopped; 69 an address cannot be bound; 74 disk or state cannot be trusted; 78 the
    configuration, or the data folder that it names, must be corrected.
    """
    from qm.node import process  # imported here: slow to load

    sys.exit(process.run(path))


@node.command()
@CONFIG_OPTION
def join(path: Path) -> None:
    """Make the running node of this configuration a member of its seeds' cluster.

    A node that lost its data joins under its next incarnation, in place of the lost one. May be
    repeated: steps that are already done are skipped.
    """
    from qm.node.membership.first_start import join_cluster
    from qm.node.membership.join import JoinRefused

    try:
        asyncio.run(join_cluster(path, click.echo))
    except JoinRefused as error:
        raise click.ClickException(str(error)) from error


@node.command()
@CONFIG_OPTION
@click.option(
    "--drain-seconds",
    "drain_s",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="How long to wait for the other nodes at most.",
)
def prestop(path: Path, drain_s: int) -> None:
    """Make the running node of this configuration ready to be stopped.

    Waits until the other nodes can do without it, then makes it close its sessions and hand
    leadership over. A pod that its StatefulSet scales away also leaves the cluster
    (`[kubernetes]`). Stop the node afterwards, whatever the exit code.

    Exit code: 0 it can stop unnoticed; 1 it is drained, but the others cannot do without it or it
    still leads; 4 it does not answer.
    """
    from qm.cli.cluster.prestop import NotReady, prestop_node
    from qm.node.config.loading import ConfigError

    try:
        prestop_node(path, drain_s, click.echo)
    except (NotReady, ConfigError) as error:
        raise click.ClickException(str(error)) from error


@node.command()
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--logger", default="", help="Only this part, such as qm.edge; default: all.")
@click.option(
    "--for",
    "seconds",
    type=click.IntRange(0, 7 * 24 * 3600),
    default=600,
    show_default=True,
    help="Seconds until it reverts; 0: it stays until the node restarts.",
)
@click.option("--node", "names", multiple=True, help="A member, instead of all; repeatable.")
@output_option
@changing
def loglevel(
    connection: Connection,
    level: str,
    logger: str,
    seconds: int,
    names: tuple[str, ...],
    output: str,
) -> None:
    """Change the log LEVEL of running nodes."""
    from qm.cli.lib.member_call import list_members, wire_to_name
    from qm.pb import control_pb2

    request = control_pb2.SetLogLevelRequest(level=level, logger=logger, expires_after_s=seconds)

    async def work(wire: Any) -> list[dict[str, Any]]:
        wanted = names or sorted(member.name for member in await list_members(wire))
        rows = []
        for name in wanted:
            own = await wire_to_name(connection, wire, name)
            try:
                reply = await own.call(lambda stubs: stubs.nodes.SetLogLevel, request)
            finally:
                await own.close()
            rows.append({"node": name, "level": level, "before": reply.previous_level})
        return rows

    show_rows(connection.run(work), ("node", "level", "before"), output)

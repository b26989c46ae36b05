"""`qm node`: one node as a process, and its entry into a cluster."""

import asyncio
import sys
from pathlib import Path

import click

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

    A fresh node waits for `qm cluster init` or `qm node join` and serves nobody until then, unless
    its configuration lets it find its cluster by itself (`[birth] automatic`).

    Exit code: 0 stopped; 69 an address cannot be had; 74 disk or state cannot be trusted; 78 the
    configuration, or the data folder that it names, must be corrected.
    """
    from qm.node import process  # late: slow to load

    sys.exit(process.run(path))


@node.command()
@CONFIG_OPTION
def join(path: Path) -> None:
    """Make the running node of this configuration a member of its seeds' cluster.

    A node that lost its data joins under its next incarnation, in the place of the lost one. May be
    repeated: what is done already is found done.
    """
    from qm.node.entering import join_cluster
    from qm.node.joining import JoinRefused

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
    help="How long to wait for the others at most.",
)
def prestop(path: Path, drain_s: int) -> None:
    """Make the running node of this configuration ready to be stopped.

    Waits until the other nodes can do without it, then has it close its sessions and hand
    leadership over. A pod whose StatefulSet is scaled down to others leaves the cluster, too
    (`[kubernetes]`). Stop the node afterwards, whatever the exit code is.

    Exit code: 0 nobody will notice its end; 1 it is drained, but the others cannot do without it or
    it still leads; 4 it does not answer.
    """
    from qm.cli.prestop import NotReady, prestop_node
    from qm.node.loading import ConfigError

    try:
        prestop_node(path, drain_s, click.echo)
    except (NotReady, ConfigError) as error:
        raise click.ClickException(str(error)) from error

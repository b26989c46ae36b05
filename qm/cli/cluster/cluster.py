"""`qm cluster`: the cluster as a whole."""

import asyncio
from pathlib import Path

import click

from qm.cli.cluster.cluster_control import COMMANDS
from qm.cli.cluster.cluster_recover import recover
from qm.cli.cluster.node import CONFIG_OPTION
from qm.cli.cluster.watch import history


@click.group()
def cluster() -> None:
    """Create and manage a cluster."""


@cluster.command()
@CONFIG_OPTION
@click.option("--name", default="QUORATE", show_default=True, help="Computer name, 15 characters.")
@click.option("--dns-name", default="", help="Qualified name; default: the computer name.")
def init(path: Path, name: str, dns_name: str) -> None:
    """Make the running nodes of this configuration one cluster and a queue manager.

    Only once: a second birth is refused. An interrupted birth is continued.
    """
    from qm.node.membership.first_start import init_cluster
    from qm.node.membership.join import JoinRefused

    try:
        asyncio.run(init_cluster(path, name.upper(), dns_name, click.echo))
    except JoinRefused as error:
        raise click.ClickException(str(error)) from error


for command in (*COMMANDS, recover, history):
    cluster.add_command(command)

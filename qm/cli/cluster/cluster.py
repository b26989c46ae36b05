"""`qm cluster`: the cluster as a whole."""

import asyncio
from pathlib import Path

import click

from qm.cli.cluster.cluster_control import COMMANDS
from qm.cli.cluster.cluster_recover import recover
from qm.cli.cluster.node import CONFIG_OPTION


@click.group()
def cluster() -> None:
    """Make and look after a cluster."""


@cluster.command()
@CONFIG_OPTION
@click.option("--name", default="QUORATE", show_default=True, help="Computer name, 15 characters.")
@click.option("--dns-name", default="", help="Qualified name; the computer name without it.")
def init(path: Path, name: str, dns_name: str) -> None:
    """Make the running nodes that this configuration names one cluster and a queue manager.

    Once: a second birth is refused. A birth that was broken off is continued.
    """
    from qm.node.membership.first_start import init_cluster
    from qm.node.membership.join import JoinRefused

    try:
        asyncio.run(init_cluster(path, name.upper(), dns_name, click.echo))
    except JoinRefused as error:
        raise click.ClickException(str(error)) from error


for command in (*COMMANDS, recover):
    cluster.add_command(command)

"""`qm config`: a node's configuration file."""

import sys
from pathlib import Path

import click


@click.group()
def config() -> None:
    """Check configurations."""


@config.command()
@click.argument("path", type=click.Path(path_type=Path))
def check(path: Path) -> None:
    """Check the configuration file PATH as a node would.

    Exit code: 0 it is valid; 1 it is not, and one line says why.
    """
    from qm.node.config.loading import ConfigError, load

    try:
        loaded = load(path)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(f"{path}: node {loaded.name} at {loaded.host}, valid")

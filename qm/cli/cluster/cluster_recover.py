"""`qm cluster recover`: continue with one node after a majority was lost for good."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qm.cli.cluster.node import CONFIG_OPTION
from qm.cli.lib.output import output_option, show_one, yes_option

if TYPE_CHECKING:
    from qm.node.membership.refounding import Survivor


@click.command()
@CONFIG_OPTION
@click.option(
    "--unsafe-lose-acknowledged",
    "is_unsafe",
    is_flag=True,
    help="Accept the loss of what the lost nodes acknowledged beyond this one's log.",
)
@yes_option
@output_option
def recover(path: Path, is_unsafe: bool, yes: bool, output: str) -> None:
    """Make the stopped node of this configuration the only voter of a new cluster.

    Only if a majority will never come back: what its nodes acknowledged and this one's log does not
    have is lost, and it is unknown what that was. Without both flags it shows what this node has
    and changes nothing (exit code 1): compare the survivors, choose the one with the highest
    `last_term`, then `last_index`. Afterwards start the node, empty the folders of all others and
    let them join (`qm node join`).
    """
    from qm.node.config.loading import ConfigError, load
    from qm.node.membership.refounding import RefoundingRefused, survey
    from qm.node.membership.refounding import recover as recover_node

    try:
        config = load(path)
        survivor = survey(config)
        if not (is_unsafe and yes):
            show_one(_row(survivor), output)
            click.echo(
                "Nothing was changed. If a majority of the voters is lost for good, and no other"
                " survivor has more: --unsafe-lose-acknowledged --yes",
                err=True,
            )
            sys.exit(1)
        done = recover_node(config)
    except (ConfigError, RefoundingRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    for warning in done.warnings:
        click.echo(f"Warning: {warning}", err=True)
    show_one(
        _row(survivor) | {"new_cluster": done.cluster.hex(), "computer_name": done.computer_name},
        output,
    )


def _row(survivor: Survivor) -> dict[str, Any]:
    return {
        "node": survivor.raft_id,
        "cluster": survivor.cluster.hex(),
        "voters": list(survivor.voters),
        "learners": list(survivor.learners),
        "term": survivor.term,
        "last_term": survivor.last_term,
        "last_index": survivor.last_index,
        "known_committed": survivor.known_committed,
        "perhaps_committed": survivor.last_index - survivor.known_committed,
        "applied_index": survivor.applied_index,
    }

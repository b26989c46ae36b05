"""`qm demo`: a cluster, real MSMQ packets through a follower, a killed leader, and a verdict."""

import asyncio
import sys
from pathlib import Path

import click


@click.command()
@click.option(
    "-f",
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="build/demo",
    show_default=True,
    help="Folder for cluster and history; data of an earlier demo is deleted.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    default="build/demo.json",
    show_default=True,
    help="File for the verdict as JSON.",
)
@click.option(
    "--network",
    default="127.0.0",
    show_default=True,
    help="First three numbers of the nodes' addresses.",
)
@click.option("--rate", type=click.IntRange(1), default=1000, show_default=True, help="Messages/s.")
@click.option("--seconds", type=click.IntRange(2), default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the messages.")
def demo(folder: Path, report: Path, network: str, rate: int, seconds: int, seed: int) -> None:
    """Run three nodes, send through a follower, kill the leader, and judge what clients saw.

    A sender uses MSMQ over TCP: express, recoverable and transactional messages. Receivers take
    them by gRPC. Half-way the leader gets SIGKILL. The verdict is based only on the clients'
    histories. Exit code: 0 it holds; 1 it does not, or the demo could not be carried out.
    """
    # Imported here: `qm --help` and shell completion need none of it.
    from qm.cli.drills.cluster_demo import print_verdict, show_demo
    from qm.cli.lib.connection import exiting
    from qm.load.verdict import write_verdict

    verdict = exiting(lambda: asyncio.run(show_demo(folder, network, rate, seconds, seed)))
    write_verdict(verdict, report)
    print_verdict(verdict, report)
    sys.exit(0 if verdict.holds and verdict.acknowledged == verdict.sent > 0 else 1)

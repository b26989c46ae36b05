"""`qm compact`: a new base of the archive, by Spark within this process."""

import logging
import sys

import click
import msgspec

from qm.cli.archive.options import (
    EXIT_BROKEN_OFF,
    archive_options,
    embedded_engine,
    fail,
    spark_options,
)
from qm.cli.lib.output import confirm, output_option, show_one, yes_option


@click.group()
def compact() -> None:
    """Compaction of the archive: bases that stand for the log behind them."""


@compact.command()
@archive_options
@spark_options
@click.option("--upto", type=int, help="Highest index; default: the last audit mark.")
@click.option(
    "--hash-files/--no-hash-files", default=True, help="Compare every file with its manifest."
)
@click.option(
    "--drop-old",
    is_flag=True,
    help="Remove older bases, and audited ranges that the new one stands for.",
)
@yes_option
@output_option
def run(
    url: str,
    cluster: str | None,
    cores: int,
    memory_mib: int,
    upto: int | None,
    hash_files: bool,
    drop_old: bool,
    yes: bool,
    output: str,
) -> None:
    """Make a new base of what is new, prove it, and only then, if asked, drop what is old.

    The base is a backup: `qm backup verify` and `qm backup restore` take its folder.

    Exit code: 0 done, or nothing to do; 1 done, but some files cannot be used; 2 refused, or wrong
    usage; 3 Spark broke off.
    """
    if drop_old:
        confirm("What the new base stands for cannot be audited again. Go on?", yes=yes)
    engine = embedded_engine(cores, memory_mib)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from spark.archive.standing import NoArchive
    from spark.engine import SparkFailed
    from spark.main import compact_archive, compaction_exit_code

    try:
        done = compact_archive(
            url, cluster, upto, engine, hashes_files=hash_files, drops_old=drop_old
        )
    except (NoArchive, ValueError) as error:
        fail(str(error))
    except SparkFailed as error:
        fail(str(error), EXIT_BROKEN_OFF)
    show_one(msgspec.to_builtins(done), output)
    sys.exit(compaction_exit_code(done))

"""`qm compact`: makes a new base of the archive with Spark in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from qm.cli.archive.options import (
    archive_options,
    embedded_engine,
    ending_on_failure,
    hash_files_option,
    spark_options,
)
from qm.cli.lib.output import confirm, output_option, show_one, yes_option
from qm.cli.lib.signers import signer_option, signing_key_option

if TYPE_CHECKING:
    from qm.store.signing import Signer


@click.group()
def compact() -> None:
    """Compaction of the archive: bases that replace the log before them."""


@compact.command()
@archive_options
@spark_options
@click.option("--upto", type=int, help="Highest index; default: the last audit mark.")
@signer_option
@signing_key_option
@hash_files_option
@click.option(
    "--drop-old",
    is_flag=True,
    help="Remove older bases, and audited ranges that the new one replaces.",
)
@yes_option
@output_option
def run(
    url: str,
    cluster: str | None,
    cores: int,
    memory_mib: int,
    upto: int | None,
    signers: frozenset[str] | None,
    signer: Signer | None,
    hash_files: bool,
    drop_old: bool,
    yes: bool,
    output: str,
) -> None:
    """Make a new base from new entries, verify it, and only then, on request, drop old data.

    The base is a backup: `qm backup verify` and `qm backup restore` take its folder.

    Exit code: 0 done, or nothing to do; 1 done, but some files cannot be used; 2 refused, or wrong
    usage; 3 Spark aborted.
    """
    if drop_old:
        confirm("The data that the new base replaces cannot be audited again. Continue?", yes=yes)
    engine = embedded_engine(cores, memory_mib)
    from spark.main import compact_archive, compaction_exit_code

    with ending_on_failure():
        done = compact_archive(
            url,
            cluster,
            upto,
            engine,
            signers,
            signer,
            hashes_files=hash_files,
            drops_old=drop_old,
        )
    show_one(msgspec.to_builtins(done), output)
    sys.exit(compaction_exit_code(done))

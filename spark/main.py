"""The jobs as programs: `python -m spark audit --archive URL`, or under `spark-submit`.

Exit status of `audit`: 0 nothing found, 1 findings, 2 the archive, or a part of it, cannot be
used, 4 nothing found, but the archive begins after the cluster's first entry. Of `compact`: 0 done,
or nothing to do; 1 done without files that cannot be used; 2 refused. Both: 3 Spark was aborted.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec

from qm.store.sealing import SealingError, key_from_file
from qm.store.signing import Signer, public_keys
from spark.archive.standing import NoArchive, only_cluster
from spark.archive.store import ArchiveStore
from spark.archive.summary import Summary
from spark.audit import AuditOptions, find_unaudited, nothing_new, run_audit
from spark.compact import Compacted, CompactOptions, run_compaction
from spark.engine import EMBEDDED_MEMORY_MIB, Engine, SparkFailed, session

EXIT_FINDINGS: Final = 1
EXIT_DAMAGED: Final = 2
EXIT_BROKEN_OFF: Final = 3
EXIT_PARTIAL: Final = 4
"""Nothing was found, but entries before were not archived."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


def audit_exit_code(summary: Summary) -> int:
    """Return the exit code for a summary of an audit."""
    if summary.is_damaged:
        return EXIT_DAMAGED
    if summary.findings_total:
        return EXIT_FINDINGS
    return EXIT_PARTIAL if summary.is_partial else 0


def audit_archive(
    url: str,
    cluster: str | None,
    upto: int | None,
    engine: Engine,
    signers: frozenset[str] | None,
    signer: Signer | None,
    **options: bool,
) -> Summary:
    """Audit an archive with an embedded Spark. Raises NoArchive, ValueError."""
    store = ArchiveStore(url, signers)
    wanted = AuditOptions(cluster or only_cluster(store), upto, signer=signer, **options)
    unaudited = find_unaudited(store, wanted)
    if unaudited.is_nothing:
        return nothing_new(wanted, unaudited)
    with session(replace(engine, rows=unaudited.rows)) as spark:
        return run_audit(spark, store, wanted, unaudited)


def compaction_exit_code(done: Compacted) -> int:
    """Return the exit code for the result of a compaction."""
    if done.is_refused:
        return EXIT_DAMAGED
    return EXIT_FINDINGS if done.problems else 0


def compact_archive(
    url: str,
    cluster: str | None,
    upto: int | None,
    engine: Engine,
    signers: frozenset[str] | None,
    signer: Signer | None,
    **options: bool,
) -> Compacted:
    """Compact an archive with an embedded Spark. Raises NoArchive, ValueError."""
    store = ArchiveStore(url, signers)
    wanted = CompactOptions(cluster or only_cluster(store), upto, signer=signer, **options)
    with session(engine) as spark:
        return run_compaction(spark, store, wanted)


def _signers(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> frozenset[str] | None:
    try:
        return public_keys(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _signer(_context: click.Context, _option: click.Parameter, file: Path | None) -> Signer | None:
    try:
        return None if file is None else Signer(key_from_file(file))
    except SealingError as error:
        raise click.BadParameter(str(error)) from error


SIGNER_OPTION: Final = click.option(
    "--signer",
    "signers",
    multiple=True,
    metavar="KEY",
    envvar="QM_SIGNERS",
    show_envvar=True,
    callback=_signers,
    help="Public key that must have signed what the archive holds (`qm backup signer`); may be"
    " repeated.",
)
SIGNING_KEY_OPTION: Final = click.option(
    "--signing-key",
    "signer",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="QM_SIGNING_KEY",
    show_envvar=True,
    callback=_signer,
    help="File with the key that signs what this run leaves (`qm backup signing-key`).",
)


def _job_options(command: _Command) -> _Command:
    for option in (
        SIGNING_KEY_OPTION,
        SIGNER_OPTION,
        click.option("--event-log", help="Folder for Spark's event log."),
        click.option(
            "--memory-mib",
            default=EMBEDDED_MEMORY_MIB,
            show_default=True,
            help="Heap of an embedded Spark.",
        ),
        click.option("--master", help="For example local[2]; default: spark-submit's."),
        click.option("--upto", type=int, help="Highest index."),
        click.option("--cluster", help="Hexadecimal id; needed when there are several."),
        click.option("--archive", "url", required=True, help="Folder or URL of the archive."),
    ):
        command = option(command)
    return command


@click.group()
def main() -> None:
    """Audit and compact an archive of Quorate."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)


@main.command()
@_job_options
@click.option("--hash-files/--no-hash-files", default=True, help="Compare files with manifests.")
@click.option("--replay/--no-replay", default=True, help="Compare digests with a replay.")
def audit(
    url: str,
    cluster: str | None,
    upto: int | None,
    master: str | None,
    memory_mib: int,
    event_log: str | None,
    signers: frozenset[str] | None,
    signer: Signer | None,
    hash_files: bool,
    replay: bool,
) -> None:
    """Audit what is new in an archive; print the summary as JSON."""
    engine = Engine(master, memory_mib, event_log)
    try:
        summary = audit_archive(
            url, cluster, upto, engine, signers, signer, hashes_files=hash_files, replays=replay
        )
    except (NoArchive, ValueError) as error:
        _fail(f"audit: {error}", EXIT_DAMAGED)
    except SparkFailed as error:
        _fail(f"audit: {error}", EXIT_BROKEN_OFF)
    _print(summary)
    sys.exit(audit_exit_code(summary))


@main.command()
@_job_options
@click.option("--hash-files/--no-hash-files", default=True, help="Compare files with manifests.")
@click.option("--drop-old", is_flag=True, help="Remove what the new base replaces.")
def compact(
    url: str,
    cluster: str | None,
    upto: int | None,
    master: str | None,
    memory_mib: int,
    event_log: str | None,
    signers: frozenset[str] | None,
    signer: Signer | None,
    hash_files: bool,
    drop_old: bool,
) -> None:
    """Make a new base from what is new in an archive; print the result as JSON."""
    engine = Engine(master, memory_mib, event_log)
    try:
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
    except (NoArchive, ValueError) as error:
        _fail(f"compact: {error}", EXIT_DAMAGED)
    except SparkFailed as error:
        _fail(f"compact: {error}", EXIT_BROKEN_OFF)
    _print(done)
    sys.exit(compaction_exit_code(done))


def _fail(text: str, exit_code: int) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(exit_code)


def _print(result: msgspec.Struct) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())

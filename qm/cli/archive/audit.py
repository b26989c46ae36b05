"""`qm audit`: checks the archive with Spark in this process."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from qm.cli.archive.options import (
    EXIT_FOUND,
    EXIT_PARTIAL,
    archive_options,
    embedded_engine,
    ending_on_failure,
    fail,
    hash_files_option,
    spark_options,
    write_whole,
)
from qm.cli.lib.output import output_option, show_one, show_rows
from qm.cli.lib.signers import signer_option, signing_key_option

if TYPE_CHECKING:
    from qm.store.signing import Signer
    from spark.archive.summary import Audited, Summary

_EXAMPLE_COLUMNS = ("rule", "index", "node", "subject", "detail")


@click.group()
def audit() -> None:
    """Audits of the archive that nodes export (`[archive]` in their configuration)."""


@audit.command()
@archive_options
@spark_options
@click.option("--upto", type=int, help="Highest index; default: what most nodes have exported.")
@signer_option
@signing_key_option
@hash_files_option
@click.option(
    "--replay/--no-replay", default=True, help="Compare nodes' digests with a replay of the log."
)
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the result to this file, for Prometheus' textfile collector.",
)
@output_option
def run(
    url: str,
    cluster: str | None,
    cores: int,
    memory_mib: int,
    upto: int | None,
    signers: frozenset[str] | None,
    signer: "Signer | None",
    hash_files: bool,
    replay: bool,
    metrics_file: Path | None,
    output: str,
) -> None:
    """Audit the part of the archive after the last audit.

    Exit code: 0 no findings; 1 findings; 2 the archive, or a part of it, cannot be used (the rest
    was audited), or wrong usage; 3 Spark aborted; 4 no findings, but the archive begins after the
    cluster's first entry, and this is its first audit.
    """
    engine = embedded_engine(cores, memory_mib)
    from spark.main import audit_archive, audit_exit_code
    from spark.report.metrics import metrics_text

    with ending_on_failure():
        summary = audit_archive(
            url, cluster, upto, engine, signers, signer, hashes_files=hash_files, replays=replay
        )
    if metrics_file is not None:
        write_whole(metrics_file, metrics_text(summary))
    _show(summary, output)
    sys.exit(audit_exit_code(summary))


@audit.command()
@archive_options
@signer_option
@output_option
def status(url: str, cluster: str | None, signers: frozenset[str] | None, output: str) -> None:
    """Show how far nodes have exported, how far audits are, and which bases exist.

    Exit code: 0 all is well; 1 the last audit has findings; 2 no archive, or wrong usage.
    """
    from spark.archive.standing import NoArchive, standing
    from spark.archive.store import ArchiveStore

    try:
        found = standing(ArchiveStore(url, signers), cluster)
    except (NoArchive, ValueError) as error:
        fail(str(error))
    show_one(msgspec.to_builtins(found), output)
    sys.exit(EXIT_FOUND if found.findings else 0)


@audit.command()
@archive_options
@click.option("--last", type=int, help="The audit that ended at this index; default: the newest.")
@click.option(
    "--html", type=click.Path(path_type=Path), help="Save the report as an HTML page here."
)
@signer_option
@output_option
def report(
    url: str,
    cluster: str | None,
    last: int | None,
    html: Path | None,
    signers: frozenset[str] | None,
    output: str,
) -> None:
    """Show the findings of an audit.

    Exit code: 0 no findings; 1 findings; 2 there is no such audit, or wrong usage; 4 no findings,
    but entries before the audit were not archived.
    """
    from spark.archive.standing import NoArchive, audits
    from spark.archive.store import ArchiveStore
    from spark.archive.summary import REPORT_NAME, read_file, read_summary

    try:
        store = ArchiveStore(url, signers)
        done = _chosen(audits(store, cluster), last)
        summary = read_summary(store, done)
        if html is not None:
            html.write_bytes(read_file(store, done, REPORT_NAME))
    except (NoArchive, OSError, ValueError) as error:
        fail(str(error))
    _show(summary, output)
    sys.exit(EXIT_FOUND if summary.findings_total else EXIT_PARTIAL * summary.is_partial)


def _chosen(found: "list[Audited]", last: int | None) -> "Audited":
    wanted = [one for one in found if last is None or one.last == last]
    if not wanted:
        ends = ", ".join(str(one.last) for one in found) or "none yet: `qm audit run`"
        fail(f"no such audit; there are audits that end at {ends}")
    return wanted[-1]


def _show(summary: "Summary", output: str) -> None:
    """Print everything for programs, the verdict and its evidence for people."""
    if output != "table":
        show_one(msgspec.to_builtins(summary), output)
        return
    show_one(_verdict(summary), output)
    if summary.examples:
        click.echo()
        show_rows(summary.examples, _EXAMPLE_COLUMNS, output)


def _verdict(summary: "Summary") -> dict[str, Any]:
    return {
        "cluster": summary.cluster,
        "indexes": f"{summary.first} to {summary.last}",
        "not archived": f"1 to {summary.begun_after}" if summary.begun_after else "",
        "nodes": summary.nodes,
        "ranges": summary.ranges,
        "entries": summary.entries,
        "operations": summary.operations,
        "replayed": [
            f"to entry {said.index}, {said.marks} marks"
            + (f": {said.problem}" * bool(said.problem))
            for said in summary.replays
        ],
        "findings": summary.findings_total,
        "findings by rule": summary.findings_by_rule,
    }

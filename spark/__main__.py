"""The jobs: `python -m spark audit --archive URL`, or `spark-submit spark/__main__.py audit ...`.

Exit status: 0 nothing found, 1 findings, 2 the archive cannot be audited.
"""

import logging
import sys

import click
import msgspec
from pyspark.sql import SparkSession

from spark.audit import AuditOptions, run_audit
from spark.ranges import NoArchive, clusters
from spark.store import ArchiveStore

EXIT_FINDINGS = 1
EXIT_NO_ARCHIVE = 2


def session(master: str | None, memory_mb: int) -> SparkSession:
    """Return a session; without a master it is spark-submit's."""
    builder = (
        SparkSession.builder.appName("quorate")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED")
    )
    if master:
        builder = (
            builder.master(master)
            .config("spark.driver.memory", f"{memory_mb}m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
        )
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


@click.group()
def main() -> None:
    """Audit and compact an archive of Quorate."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)


@main.command()
@click.option("--archive", "url", required=True, help="Folder or URL of the archive.")
@click.option("--cluster", help="Hexadecimal id; needed when the archive holds several.")
@click.option("--upto", type=int, help="Highest index; default: as far as most nodes exported.")
@click.option("--master", help="Spark master such as local[2]; default: spark-submit's.")
@click.option("--memory-mb", default=1024, show_default=True, help="Heap of an embedded Spark.")
@click.option("--hash-files/--no-hash-files", default=True, help="Compare files with manifests.")
def audit(
    url: str,
    cluster: str | None,
    upto: int | None,
    master: str | None,
    memory_mb: int,
    hash_files: bool,
) -> None:
    """Audit what is new in an archive; print the summary as JSON."""
    try:
        store = ArchiveStore(url)
        options = AuditOptions(cluster or only_cluster(store), upto, hash_files)
        spark = session(master, memory_mb)
        try:
            summary = run_audit(spark, store, options)
        finally:
            spark.stop()
    except (NoArchive, ValueError) as error:
        click.echo(f"audit: {error}", err=True)
        sys.exit(EXIT_NO_ARCHIVE)
    click.echo(msgspec.json.format(msgspec.json.encode(summary)).decode())
    sys.exit(EXIT_FINDINGS if summary.findings_total else 0)


def only_cluster(store: ArchiveStore) -> str:
    """Return the archive's cluster. Raises NoArchive unless there is exactly one."""
    found = clusters(store)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise NoArchive(f"say --cluster: {store.url} holds {names}")
    return found[0]


if __name__ == "__main__":
    main()

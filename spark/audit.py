"""The audit job: what the archive holds above the last audit, judged and written down."""

import logging
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.flow import ages_by_queue, dead_letters, flow_by_queue, rate_by_minute
from spark.metrics import metrics_text
from spark.ranges import (
    Ranges,
    altered_files,
    find_ranges,
    problem_rows,
    read_tables,
)
from spark.report import report_html
from spark.rules import Audit, all_findings
from spark.rules.carry import ENDS, STAYS, STREAMS, Carried, nothing_carried
from spark.store import ArchiveStore
from spark.summary import AUDITED_NAME, Audited, Summary, last_audited
from spark.tables import Tables

logger = logging.getLogger(__name__)

AUDIT_FOLDER: Final = "audit"
EVIDENCE_ROWS_MAX: Final = 200
"""Findings in the report; all of them are in findings/."""
QUEUES_MAX: Final = 1000
"""Queues in the report, busiest first."""
_DIGITS: Final = 20
_CARRIED: Final = {"stays": STAYS, "streams": STREAMS, "ends": ENDS}


@dataclass(frozen=True)
class AuditOptions:
    """What to audit."""

    cluster: str
    upto: int | None = None
    """Highest index; None = as far as most nodes exported."""
    hashes_files: bool = True
    """Read every file once more to compare its bytes with its manifest."""


def run_audit(spark: SparkSession, store: ArchiveStore, options: AuditOptions) -> Summary:
    """Audit what is new; return what was found. Raises NoArchive.

    Repeating it after it was killed gives the same: the folder without `audited.json` is replaced.
    """
    before = last_audited(store, options.cluster)
    base = before.last if before is not None else 0
    ranges = find_ranges(store, options.cluster, base)
    upto = options.upto if options.upto is not None else ranges.majority_last()
    folder = f"{options.cluster}/{AUDIT_FOLDER}/{base + 1:0{_DIGITS}}-{upto:0{_DIGITS}}"
    if upto <= base:
        logger.info("nothing new above index %d", base)
        return Summary.nothing(options.cluster, base)
    if options.hashes_files:
        _stage(spark, "hash files")
        ranges.problems += altered_files(spark, store, ranges)
        _leave_out(ranges)
    store.remove_folder(folder)
    carried = _carried(spark, store, before)
    tables = read_tables(spark, store, ranges, base, upto)
    audit = all_findings(tables, carried)
    findings = audit.findings.unionByName(problem_rows(spark, ranges.problems))
    _stage(spark, "findings")
    findings.write.mode("overwrite").parquet(store.spark_path(f"{folder}/findings"))
    _stage(spark, "carry")
    for name in _CARRIED:
        part: DataFrame = getattr(audit.carried, name)
        part.write.mode("overwrite").parquet(store.spark_path(f"{folder}/carry/{name}"))
    summary = _summarize(spark, store, folder, audit, tables, ranges, base, upto, options.cluster)
    store.write(f"{folder}/summary.json", msgspec.json.format(msgspec.json.encode(summary)))
    store.write(f"{folder}/report.html", report_html(summary).encode())
    store.write(f"{folder}/metrics.prom", metrics_text(summary))
    done = Audited(options.cluster, base + 1, upto, folder, summary.findings_total)
    store.write(f"{folder}/{AUDITED_NAME}", msgspec.json.encode(done))
    return summary


def _stage(spark: SparkSession, name: str) -> None:
    """Name what follows in Spark's own progress and UI."""
    spark.sparkContext.setJobDescription(f"quorate audit: {name}")
    logger.info("%s", name)


def _leave_out(ranges: Ranges) -> None:
    """Leave out the files that turned out to be altered."""
    bad = {problem.path for problem in ranges.problems}
    for part, files in ranges.files.items():
        ranges.files[part] = [(manifest, path) for manifest, path in files if path not in bad]


def _carried(spark: SparkSession, store: ArchiveStore, before: Audited | None) -> Carried:
    if before is None:
        return nothing_carried(spark)
    return Carried(
        **{
            name: spark.read.schema(schema).parquet(
                store.spark_path(f"{before.folder}/carry/{name}")
            )
            for name, schema in _CARRIED.items()
        }
    )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return a small frame."""
    return [row.asDict() for row in frame.collect()]


def _summarize(
    spark: SparkSession,
    store: ArchiveStore,
    folder: str,
    audit: Audit,
    tables: Tables,
    ranges: Ranges,
    base: int,
    upto: int,
    cluster: str,
) -> Summary:
    _stage(spark, "summary")
    written = spark.read.parquet(store.spark_path(f"{folder}/findings"))
    stays = audit.stays
    busiest = (
        flow_by_queue(tables)
        .groupBy("queue")
        .pivot("operation")
        .agg(F.sum("messages"))
        .fillna(0)
        .limit(QUEUES_MAX)
    )
    return Summary(
        cluster=cluster,
        first=base + 1,
        last=upto,
        nodes=sorted({manifest.node for manifest in ranges.manifests}),
        ranges=len(ranges.manifests),
        entries=tables.one_copy_of_entries().count(),
        operations=tables.one_copy_of_operations().count(),
        findings_by_rule={
            row["rule"]: row["count"] for row in _rows(written.groupBy("rule").count())
        },
        examples=_rows(written.orderBy("rule", "index").limit(EVIDENCE_ROWS_MAX)),
        flow=_rows(busiest),
        ages=_rows(ages_by_queue(stays, tables).limit(QUEUES_MAX)),
        dead_letters=_rows(dead_letters(tables).limit(QUEUES_MAX)),
        time_line=_rows(rate_by_minute(tables)),
    )
